"""Texts for the scripts that train on plain text: read, split, and collected as rows."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
from script_data import data_files, load_named_dataset
from text_arguments import TextArguments

from hf_seqmodels.data import read_documents
from hf_seqmodels.data.documents import document_text_bytes


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

    options: TextArguments

    def __iter__(self) -> Iterator[str]:
        if self.options.train_file:
            documents = _file_documents(self.options.train_file, self.options)
        else:
            documents = _dataset_documents(self.options, "train", streaming=True)
        return itertools.islice(documents, self.options.max_train_documents)


def load_corpus(options: TextArguments) -> Corpus:
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


def _read_part(options: TextArguments, part: str) -> tuple[Iterator[str] | None, dict[str, Any]]:
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


def _file_documents(path: str, options: TextArguments) -> Iterator[str]:
    return read_documents(path, text_unit=options.text_unit, column=options.text_column)


def _dataset_documents(
    options: TextArguments, part: str, *, streaming: bool
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


def _checked_stream(options: TextArguments, corpus: Corpus) -> TextStream:
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
