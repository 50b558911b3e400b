"""Rows for the fine-tuning scripts: read, split, looked up by column."""

import hashlib
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from finetune_arguments import FinetuneDataArguments
from script_data import PARTS, data_files, load_named_dataset
from transformers import PreTrainedTokenizerBase

from hf_seqmodels.data.table_files import Row, read_rows

logger = logging.getLogger("finetune")

SPLIT_SEED = 0  # not the seed of the run: runs with different seeds hold out the same rows


@dataclass
class Part:
    """The rows of train, validation or test, and where each of them stands."""

    name: str
    rows: list[Row]
    places: list[str]  # such as "train.csv:3", for errors
    origin: dict[str, Any]  # for metrics.json
    features: datasets.Features | None = None  # of a dataset that was named

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def columns(self) -> list[str]:
        """Names of all columns, in order of appearance."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def select(self, indices: Iterable[int]) -> "Part":
        """Return some of the rows.

        Args:
            indices: of the rows.

        Returns:
            A part with the same name and origin.
        """
        indices = list(indices)
        rows, places = ([items[i] for i in indices] for items in (self.rows, self.places))
        return Part(self.name, rows, places, dict(self.origin), self.features)

    def texts(self, column: str) -> list[str]:
        """Return a column of texts.

        Args:
            column: its name.

        Returns:
            A text for each row.

        Raises:
            ValueError: if a row has none, with the place of that row.
        """
        texts = []
        for row, place in zip(self.rows, self.places, strict=True):
            value = row.get(column)
            if not isinstance(value, str):
                problem = f"got {value!r}" if column in row else f"it has only {listed(row)}"
                raise ValueError(
                    f"{place}: the column {column!r} must hold a text, {problem}. Name the columns "
                    "of this file, or write the value in quotes."
                )
            texts.append(value)
        return texts


Corpus = dict[str, Part]


RowReader = Callable[[Path], Iterable[tuple[int, Row]]]


def rows_with_header(path: Path) -> Iterable[tuple[int, Row]]:
    """Read a data file; CSV and TSV have a header.

    Args:
        path: of the file.

    Returns:
        Line number and row.
    """
    return read_rows(path, header=True)


def load_corpus(options: FinetuneDataArguments, read_file: RowReader = rows_with_header) -> Corpus:
    """Read all rows of a run.

    Args:
        options: the data options.
        read_file: reads a data file.

    Returns:
        The parts there are, in the order train, validation, test.

    Raises:
        ValueError: if a file is not as it should be, or a part has no rows.
    """
    corpus = _file_parts(options, read_file) if data_files(options) else _named_parts(options)
    for name, part in corpus.items():
        if not part.rows:
            raise ValueError(
                f"{part.origin['name']}: the {name} part must hold at least one row, got none. "
                "Check whether it was written or fetched completely."
            )
    if "train" in corpus and "validation" not in corpus and options.validation_split:
        stay, held_out = hold_out(len(corpus["train"]), options.validation_split)
        validation = corpus["train"].select(held_out)
        corpus["train"] = corpus["train"].select(stay)
        validation.name, validation.origin = (
            "validation",
            {"name": "held out from the training rows"},
        )
        corpus["validation"] = validation
    for part in corpus.values():
        part.origin["rows"] = len(part)
    return {name: corpus[name] for name in PARTS if name in corpus}


def _limits(options: FinetuneDataArguments) -> dict[str, int | None]:
    return {
        "train": options.max_train_samples,
        "validation": options.max_eval_samples,
        "test": options.max_predict_samples,
    }


def _file_parts(options: FinetuneDataArguments, read_file: RowReader) -> Corpus:
    corpus = {}
    for name, file in data_files(options).items():
        path = Path(file)
        numbered = list(islice(read_file(path), _limits(options)[name]))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        corpus[name] = Part(
            name,
            [row for _, row in numbered],
            [f"{path.name}:{line}" for line, _ in numbered],
            {"name": path.name, "sha256": digest},
        )
    return corpus


def _named_parts(options: FinetuneDataArguments) -> Corpus:
    found, corpus = load_named_dataset(options), {}
    for name, limit in _limits(options).items():
        if name in found:
            rows = list(islice(found[name], limit))
            places = [f"{options.dataset_name}, {name} row {row}" for row in range(len(rows))]
            origin = {"name": options.dataset_name}
            corpus[name] = Part(name, rows, places, origin, found[name].features)
    if not corpus:
        raise ValueError(
            f"dataset_name: {options.dataset_name!r} must have a part called {', '.join(PARTS)}; "
            f"it has {', '.join(found)}. Save it with these names, or pass files."
        )
    return corpus


def hold_out(num_rows: int, size: float, *, seed: int = SPLIT_SEED) -> tuple[list[int], list[int]]:
    """Choose rows to hold out.

    Args:
        num_rows: how many there are.
        size: share (below 1) or number of rows to hold out.
        seed: of the choice.

    Returns:
        The numbers of the rows that stay and of those held out, both rising.

    Raises:
        ValueError: if nothing would stay.
    """
    num_held_out = max(round(size * num_rows) if size < 1 else int(size), 1)
    if num_held_out >= num_rows:
        raise ValueError(
            f"validation_split must leave rows on both sides, got {size:g} of {num_rows} training "
            "rows. Choose a smaller one, pass --validation_file, or 0 for no validation."
        )
    held_out = set(random.Random(seed).sample(range(num_rows), num_held_out))
    return [row for row in range(num_rows) if row not in held_out], sorted(held_out)


def listed(names: Iterable[str]) -> str:
    """Write names for a message.

    Args:
        names: the names.

    Returns:
        The names in quotes with commas between, or "nothing".
    """
    return ", ".join(map(repr, names)) or "nothing"


def check_columns(corpus: Corpus, names: Sequence[str], option: str) -> None:
    """Refuse columns that a part does not have.

    Args:
        corpus: the data.
        names: of the columns.
        option: how an error calls the option that names them.

    Raises:
        ValueError: if a column is missing in a part.
    """
    for part in corpus.values():
        missing = [name for name in names if name not in part.columns]
        if missing:
            raise ValueError(
                f"{option}: the {part.name} rows ({part.origin['name']}) have no column "
                f"{listed(missing)}; they have {listed(part.columns)}. Pass --{option}."
            )


def row_lengths(rows: datasets.Dataset) -> np.ndarray:
    """Return how much work each row is.

    Args:
        rows: with `input_ids`, a list of ids or a list of such lists (choices).

    Returns:
        Tokens of each row, choices counted as padded to the longest, (rows,).
    """
    return np.array(
        [
            max(map(len, ids)) * len(ids) if ids and isinstance(ids[0], list) else len(ids)
            for ids in rows["input_ids"]
        ],
        dtype=np.int64,
    )


def encode_texts(
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int | None,
    *,
    name: str,
) -> dict[str, list[Any]]:
    """Turn texts or pairs of texts into tokens, with a warning that counts those that are cut.

    Args:
        texts: the texts.
        pairs: the second text of each; None for none.
        tokenizer: of the model.
        max_length: tokens to cut at, from the longer text first; None cuts nothing.
        name: how the warning calls the rows.

    Returns:
        Columns as the tokenizer names them.
    """
    encoded = tokenizer(list(texts), pairs and list(pairs), truncation=False, verbose=False)
    too_long = sum(len(ids) > max_length for ids in encoded["input_ids"]) if max_length else 0
    if too_long:
        logger.warning(
            f"{too_long} of {len(texts)} {name} rows have more than {max_length} tokens and are "
            "cut."
        )
        encoded = tokenizer(
            list(texts), pairs and list(pairs), truncation=True, max_length=max_length
        )
    return dict(encoded)
