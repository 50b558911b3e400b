"""Rows for run_mlm.py: texts turned into token ids, packed, parted or paired."""

import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import Any

import datasets
from mlm_arguments import DataTrainingArguments
from streamed_rows import StreamedRows
from text_corpus import TextStream
from transformers import PreTrainedTokenizerBase, TrainingArguments

from hf_seqmodels.data import RowTemplate, next_sentence_pairs

logger = logging.getLogger("run_mlm")

ENCODED_AT_ONCE = 1000  # texts
Row = dict[str, Any]


def encode_texts(texts: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> Iterator[list[int]]:
    """Yield the token ids of each text, without special tokens.

    Args:
        texts: the texts.
        tokenizer: of the model.

    Yields:
        Token ids, none for an empty text.
    """
    texts = iter(texts)
    options: Any = {"add_special_tokens": False, "truncation": False, "verbose": False}
    while batch := list(itertools.islice(texts, ENCODED_AT_ONCE)):
        yield from tokenizer(batch, **options)["input_ids"]


class RowMaker:
    """Makes rows of documents by the rule that the options name.

    Args:
        options: say which rule.
        tokenizer: of the model, a fast one.
        max_length: tokens in a row at most.
        seed: of the pairs.

    Raises:
        ValueError: if a row has no room for text.
    """

    def __init__(
        self,
        options: DataTrainingArguments,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        seed: int,
    ):
        self.options, self.tokenizer, self.seed = options, tokenizer, seed
        self.template = RowTemplate.of(tokenizer)
        self.special_ids = set(tokenizer.all_special_ids)
        self.max_length = max_length
        self.room = self.template.room(max_length, pair=options.next_sentence)
        if self.room < 1 + options.next_sentence:
            raise ValueError(
                f"max_seq_length must leave room for text beside {max_length - self.room} special "
                f"tokens, got {max_length}. Raise it."
            )

    def __call__(self, documents: Iterable[str]) -> Iterator[Row]:
        """Yield the rows of documents.

        Args:
            documents: the texts.

        Yields:
            `input_ids`; for pairs also `token_type_ids`, where the tokenizer has them, and
            `next_sentence_label`; `attention_mask` with pad_to_max_length.

        Raises:
            ValueError: if there are no two documents to make pairs from.
        """
        if self.options.next_sentence:
            rows = self._pairs(documents)
        else:
            encoded = encode_texts(documents, self.tokenizer)
            rows = self._lines(encoded) if self.options.line_by_line else self._packed(encoded)
        for row in rows:
            if self.options.pad_to_max_length:  # batches of one shape have the same columns
                row["attention_mask"] = [1] * len(row["input_ids"])
            yield row

    def _lines(self, encoded: Iterable[list[int]]) -> Iterator[Row]:
        num_cut = 0
        for token_ids in encoded:
            num_cut += len(token_ids) > self.room
            if token_ids:
                yield self.template.single(token_ids[: self.room])
        if num_cut:
            logger.warning(
                f"{num_cut} documents have more than {self.max_length} tokens and are cut."
            )

    def _packed(self, encoded: Iterable[list[int]]) -> Iterator[Row]:
        """Fill rows with documents, what closes a text between them (Liu et al. 2019, section 4.2).

        A document may begin in one row and go on in the next; no token is left out or repeated.
        """
        text: list[int] = []
        for token_ids in encoded:
            if text and token_ids:
                text += self.template.suffix
            while token_ids:
                if len(text) >= self.room:
                    yield self.template.single(text[: self.room])
                    text = []
                taken = self.room - len(text)
                text += token_ids[:taken]
                token_ids = token_ids[taken:]
        if text:
            yield self.template.single(text)

    def _pairs(self, documents: Iterable[str]) -> Iterator[Row]:
        texts = [[line for line in document.split("\n") if line] for document in documents]
        encoded = encode_texts(itertools.chain.from_iterable(texts), self.tokenizer)
        sentences = [list(itertools.islice(encoded, len(text))) for text in texts]
        pairs = next_sentence_pairs(
            sentences,
            self.room,
            short_probability=self.options.short_seq_prob,
            seed=self.seed,
        )
        for pair in pairs:
            row: Row = self.template.pair(pair.first, pair.second)
            yield row | {"next_sentence_label": int(pair.is_random)}

    def dataset(self, documents: Iterable[str], part: str) -> datasets.Dataset:
        """Collect the rows of a part in memory.

        Args:
            documents: the texts.
            part: how an error calls them.

        Returns:
            A dataset.

        Raises:
            ValueError: if there are no rows.
        """
        rows = [row for row in self(documents) if self._has_candidates(row["input_ids"])]
        if not rows:
            raise ValueError(
                f"the {part} text must hold at least one known token, got none. Check the file and "
                "the tokenizer."
            )
        return datasets.Dataset.from_list(rows)

    def _has_candidates(self, token_ids: list[int]) -> bool:
        return not set(token_ids) <= self.special_ids

    def stream(self, texts: TextStream, args: TrainingArguments) -> StreamedRows:
        """Return rows that are made while training, from the text again and again.

        Args:
            texts: the documents.
            args: give the seed of the shuffling, and the processes.

        Returns:
            A dataset without an end. `mask_epoch` tells the pass over the text, so that each has
            masks of its own.
        """

        def rows(number: int) -> Iterator[Row]:
            for row in self(texts):
                if self._has_candidates(row["input_ids"]):
                    yield row | {"mask_epoch": number}

        return StreamedRows(rows, self.options, args)
