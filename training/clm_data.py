"""Text for run_clm.py: read, split, turn into token ids, and cut into rows."""

import hashlib
import itertools
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
from clm_arguments import DataTrainingArguments
from script_data import data_files, load_named_dataset
from transformers import PreTrainedTokenizerBase

from hf_seqmodels.data import read_documents, token_blocks
from hf_seqmodels.data.documents import document_text_bytes

logger = logging.getLogger("run_clm")

ENCODED_AT_ONCE = 1000  # documents


@dataclass
class Corpus:
    """Documents of each part, and where they came from.

    With streaming, `train` is empty and `train_stream` reads it anew each time.
    """

    train: list[str] = field(default_factory=list)
    validation: list[str] = field(default_factory=list)
    test: list[str] = field(default_factory=list)
    train_stream: "TextStream | None" = None
    origins: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def parts(self) -> set[str]:
        """Names of the parts that hold text."""
        held = {name for name in ("train", "validation", "test") if getattr(self, name)}
        return held | ({"train"} if self.train_stream else set())


@dataclass
class TextStream:
    """Training documents that are read while training; can be read again and again."""

    options: DataTrainingArguments

    def __iter__(self) -> Iterator[str]:
        if self.options.train_file:
            documents = _file_documents(self.options.train_file, self.options)
        else:
            documents = _dataset_documents(self.options, "train", streaming=True)
        return itertools.islice(documents, self.options.max_train_documents)


def load_corpus(options: DataTrainingArguments) -> Corpus:
    """Read all text of a run; of a streamed part only the first document.

    Args:
        options: the data options.

    Returns:
        The documents of each part.

    Raises:
        ValueError: if a file or a row is not as the options say, or there is no text.
    """
    files = data_files(options)
    if options.streaming and files and "train" not in files:
        raise ValueError("streaming reads training text. Pass --train_file.")
    corpus = Corpus()
    limits = {
        "train": options.max_train_documents,
        "validation": options.max_eval_documents,
        "test": options.max_eval_documents,
    }
    for part, limit in limits.items():
        if part == "train" and options.streaming:
            corpus.train_stream = _checked_stream(options, corpus)
            continue
        documents, origin = _read_part(options, part)
        if documents is None:
            continue
        documents = list(itertools.islice(documents, limit))
        if not any(documents):
            raise ValueError(
                f"{origin['name']}: the {part} part must hold text, got {len(documents)} empty "
                "documents. Check the file and --text_column."
            )
        setattr(corpus, part, documents)
        corpus.origins[part] = origin
    if corpus.train and not corpus.validation and options.validation_split_percentage:
        share = options.validation_split_percentage / 100
        corpus.train, corpus.validation = split_off_end(corpus.train, share)
        corpus.origins["validation"] = {"name": "held out from the end of the training text"}
    for part in ("train", "validation", "test"):
        if documents := getattr(corpus, part):
            num_bytes, num_characters = document_text_bytes(documents)
            corpus.origins[part] |= {
                "rows": len(documents),
                "bytes": num_bytes,
                "characters": num_characters,
            }
    return corpus


def _read_part(
    options: DataTrainingArguments, part: str
) -> tuple[Iterator[str] | None, dict[str, Any]]:
    """Return the documents of a part, None if there is no such part, and where they come from."""
    if options.dataset_name:
        documents = _dataset_documents(options, part, streaming=False)
        return documents, {"name": options.dataset_name}
    path = getattr(options, f"{part}_file")
    if path is None:
        return None, {}
    documents = _file_documents(path, options)
    first = next(documents, "")  # a file that is not there is noticed now
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return itertools.chain([first], documents), {"name": Path(path).name, "sha256": digest}


def _file_documents(path: str, options: DataTrainingArguments) -> Iterator[str]:
    return read_documents(path, text_unit=options.text_unit, column=options.text_column)


def _dataset_documents(
    options: DataTrainingArguments, part: str, *, streaming: bool
) -> Iterator[str] | None:
    """Return the texts of one part of a dataset of the Hub, None if it has no such part."""
    parts = load_named_dataset(options, streaming=streaming)
    if part not in parts:
        return None
    columns = parts[part].column_names
    if columns is not None and options.text_column not in columns:
        raise ValueError(
            f"dataset {options.dataset_name!r} has no column {options.text_column!r}; it has "
            f"{', '.join(columns)}. Pass --text_column."
        )
    return (row[options.text_column] for row in parts[part])


def _checked_stream(options: DataTrainingArguments, corpus: Corpus) -> TextStream:
    """Return the stream of training text, after a look at its beginning."""
    stream = TextStream(options)
    if not any(itertools.islice(stream, 100)):
        raise ValueError(
            "the first 100 training documents must hold text, but all are empty. Check the file "
            "and --text_column."
        )
    name = Path(options.train_file).name if options.train_file else options.dataset_name
    corpus.origins["train"] = {"name": f"{name} (streamed)"}
    return stream


def split_off_end(documents: list[str], share: float) -> tuple[list[str], list[str]]:
    """Hold out the end of a text: its last documents, or the last characters of a single one.

    Args:
        documents: in the order of the text.
        share: of the documents or characters, between 0 and 1.

    Returns:
        What stays and what is held out.

    Raises:
        ValueError: if nothing would be on one side.
    """
    pieces: Any = documents if len(documents) > 1 else documents[0]
    num_held_out = max(round(share * len(pieces)), 1)
    stay, held_out = pieces[:-num_held_out], pieces[-num_held_out:]
    stay, held_out = ([side] if isinstance(side, str) else side for side in (stay, held_out))
    if not (any(stay) and any(held_out)):
        raise ValueError(
            f"validation_split_percentage must leave text on both sides, got {100 * share:g} % of "
            f"{len(pieces)} {'documents' if len(documents) > 1 else 'characters'}. Choose another "
            "one, pass --validation_file, or 0 for no validation."
        )
    return stay, held_out


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


def row_dataset(rows: Iterable[dict[str, list[int]]], part: str) -> datasets.Dataset:
    """Collect rows in memory.

    Args:
        rows: of `training_rows`.
        part: how an error calls the data.

    Returns:
        A dataset.

    Raises:
        ValueError: if there is no row.
    """
    columns: dict[str, list[list[int]]] = {}
    for row in rows:
        for name, values in row.items():
            columns.setdefault(name, []).append(values)
    if not columns:
        raise ValueError(
            f"the {part} text must hold at least two tokens in a document, got none. Check the "
            "file, or pack documents together (--packing concatenate)."
        )
    return datasets.Dataset.from_dict(columns)


def streamed_rows(
    stream: TextStream,
    tokenizer: PreTrainedTokenizerBase,
    options: DataTrainingArguments,
    block_size: int,
    seed: int,
) -> datasets.IterableDataset:
    """Return training rows that are read, encoded and shuffled while training.

    Args:
        stream: of the documents.
        tokenizer: of the model.
        options: give packing and the size of the buffer.
        block_size: most tokens in a row.
        seed: of the shuffling.

    Returns:
        A dataset without a length; each pass over it reads the text once more.
    """

    def rows() -> Iterator[dict[str, list[int]]]:
        yield from training_rows(encode_documents(stream, tokenizer), options, block_size)

    streamed = datasets.IterableDataset.from_generator(rows)
    return streamed.shuffle(seed=seed, buffer_size=options.shuffle_buffer_size)
