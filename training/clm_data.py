"""Text for run_clm.py: turned into token ids, and cut into rows."""

import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from clm_arguments import DataTrainingArguments
from streamed_rows import StreamedRows
from text_corpus import TextStream
from transformers import PreTrainedTokenizerBase, TrainingArguments

from hf_seqmodels.data import token_blocks

logger = logging.getLogger("run_clm")

ENCODED_AT_ONCE = 1000  # documents


def encode_documents(
    documents: Iterable[str], tokenizer: PreTrainedTokenizerBase
) -> Iterator[list[int]]:
    """Yield the token ids of each document, closed by the end-of-text token if there is one.

    Args:
        documents: the texts.
        tokenizer: of the model.

    Yields:
        Token ids; an empty document is the end-of-text token alone.
    """
    documents = iter(documents)
    eos_token_id: Any = tokenizer.eos_token_id
    while batch := list(itertools.islice(documents, ENCODED_AT_ONCE)):
        for token_ids in tokenizer(batch, truncation=False, verbose=False)["input_ids"]:
            if eos_token_id is not None and token_ids[-1:] != [eos_token_id]:
                token_ids = [*token_ids, eos_token_id]
            yield token_ids


def training_rows(
    documents: Iterable[list[int]], options: DataTrainingArguments, block_size: int
) -> Iterator[dict[str, list[int]]]:
    """Yield the rows that the model is trained on, by the rule of `options.packing`.

    Args:
        documents: token ids of each document.
        options: give packing.
        block_size: most tokens in a row.

    Yields:
        `input_ids`, `labels`, and `position_ids` where documents are kept separate.
    """
    if options.packing != "none":
        yield from token_blocks(documents, block_size, separate=options.packing == "separate")
        return
    num_cut = 0
    for token_ids in documents:
        num_cut += len(token_ids) > block_size
        token_ids = token_ids[:block_size]
        if len(token_ids) > 1:  # a single token predicts nothing
            yield {"input_ids": token_ids, "labels": token_ids}
    if num_cut:
        logger.warning(f"{num_cut} documents have more than {block_size} tokens and are cut.")


def streamed_rows(
    stream: TextStream,
    tokenizer: PreTrainedTokenizerBase,
    options: DataTrainingArguments,
    block_size: int,
    args: TrainingArguments,
) -> StreamedRows:
    """Return training rows that are read, encoded and shuffled while training.

    Args:
        stream: of the documents.
        tokenizer: of the model.
        options: give packing and the size of the buffer.
        block_size: most tokens in a row.
        args: give the seed of the shuffling, and the processes.

    Returns:
        A dataset without an end.
    """

    def rows(number: int) -> Iterator[dict[str, list[int]]]:
        yield from training_rows(encode_documents(stream, tokenizer), options, block_size)

    return StreamedRows(rows, options, args)
