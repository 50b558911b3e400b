"""Reading pairs of texts, and texts alone, from files.

| ending | a row is | columns are |
|---|---|---|
| .jsonl | a JSON object on a line | its keys, or those of a `translation` object in it |
| .json | an item of one JSON list of objects; or as .jsonl | the same |
| .csv | a record, quoted as spreadsheets do | separated by commas |
| .tsv | a line; quotes are text like any other | separated by tabs |

Each may be compressed and end in .gz. A CSV or TSV file has a header if the caller names a column,
or if its first row holds the names `source` and `target`; otherwise it has two columns, source and
target, and its first row is a pair like any other. An empty text is a text. Blank lines count for
nothing at the end of a file and are errors elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_seqmodels.data.table_files import (
    DEFAULT_COLUMNS,
    TABLE_ENDINGS,
    Row,
    file_ending,
    read_lines,
    read_rows,
)

if TYPE_CHECKING:
    import datasets

TRANSLATION = "translation"


def read_pairs(
    path: str | os.PathLike[str],
    *,
    source_column: str | None = None,
    target_column: str | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> datasets.Dataset:
    """Read sources and targets from a file; the docstring of the module says what it may look like.

    Several references of one source are either rows of their own or a list of texts in the target
    column. If one row has such a list, the targets of all rows become lists.

    Args:
        path: of the file.
        source_column: column of the source; None for `source`.
        target_column: column of the target; None for `target`.
        source_lang: key of the source in the `translation` objects of a JSON file, instead of
            columns.
        target_lang: key of the target there.

    Returns:
        A dataset with the columns `source` and `target`, and the other columns of the file as they
        are, None where a JSON object lacks one.

    Raises:
        ValueError: if the options contradict each other or the file is not as described; the
            message names file and line.
        FileNotFoundError: if there is no such file.
        ImportError: if the datasets library is not installed.
    """
    datasets = _import_datasets()
    path = Path(path)
    _check_choice(path, source_column, target_column, source_lang, target_lang)
    names = source_column or DEFAULT_COLUMNS[0], target_column or DEFAULT_COLUMNS[1]
    languages = (source_lang, target_lang) if source_lang and target_lang else None
    named = bool(source_column or target_column)
    rows, lines = [], []
    for line, row in read_rows(path, header=True if named else None):
        place = f"{path}:{line}"
        if languages or (TRANSLATION in row and not named):
            rows.append(_translated_pair(row, languages, place))
        else:
            rows.append(_pair(row, names, place))
        lines.append(line)
    return _to_dataset(datasets, path, rows, lines)


def read_texts(path: str | os.PathLike[str], *, column: str | None = None) -> list[str]:
    """Read texts to train a tokenizer on: the lines of a text file, or one column of a data file.

    Args:
        path: of the file. One that ends as the table above says is a data file, with a header if it
            is CSV or TSV; any other is a text file with a text on each line.
        column: which column of a data file; a list of texts in it counts as so many texts.

    Returns:
        The texts, without the blank lines of a text file.

    Raises:
        ValueError: if a column is named for a text file or none for a data file, or the file is not
            as described; the message names file and line.
        FileNotFoundError: if there is no such file.
    """
    path = Path(path)
    is_table = file_ending(path) in TABLE_ENDINGS
    if is_table != (column is not None):
        raise ValueError(
            f"{path}: a data file ({', '.join(TABLE_ENDINGS)}) needs the name of a column, and a "
            f"text file has none, got column={column!r}. "
            + ("Name the column that holds the texts." if is_table else "Leave the column out.")
        )
    texts: list[str] = []
    if column is None:
        texts += (line for _, line in read_lines(path) if line.strip())
    else:
        for line, row in read_rows(path, header=True):
            value = _texts(row, column, f"{path}:{line}")
            texts += value if isinstance(value, list) else [value]
    if not texts:
        raise ValueError(
            f"{path}: a file to learn from must hold at least one text, got none. "
            "Check whether it was written or fetched completely."
        )
    return texts


def _to_dataset(datasets: Any, path: Path, rows: list[Row], lines: list[int]) -> Any:
    if not rows:
        raise ValueError(
            f"{path}: a data file must hold at least one row, got none. "
            "Check whether it was written or fetched completely."
        )
    if any(isinstance(row["target"], list) for row in rows):
        for row in rows:
            row["target"] = row["target"] if isinstance(row["target"], list) else [row["target"]]
    columns = dict.fromkeys(name for row in rows for name in row)
    try:
        return datasets.Dataset.from_dict(
            {name: [row.get(name) for row in rows] for name in columns}
        )
    except (ValueError, TypeError, OverflowError) as error:  # what pyarrow raises
        raise _mixed_column(path, rows, lines, error) from error


def _import_datasets() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise ImportError(
            "read_pairs returns a dataset of the datasets library, which is not installed. "
            "Install it with: pip install 'hf-seqmodels[train]'"
        ) from error
    return datasets


def _check_choice(
    path: Path,
    source_column: str | None,
    target_column: str | None,
    source_lang: str | None,
    target_lang: str | None,
) -> None:
    if bool(source_lang) != bool(target_lang):
        raise ValueError(
            "source_lang and target_lang belong together, got "
            f"{source_lang!r} and {target_lang!r}. Give both or none."
        )
    if source_lang and (source_column or target_column):
        raise ValueError(
            f"columns and languages exclude each other, got source_column={source_column!r}, "
            f"target_column={target_column!r}, source_lang={source_lang!r} and "
            f"target_lang={target_lang!r}. Give languages for a file with `{TRANSLATION}` objects, "
            "columns for any other."
        )
    if source_lang and file_ending(path) in (".csv", ".tsv"):
        raise ValueError(
            f"{path}: source_lang and target_lang choose from the `{TRANSLATION}` objects of a "
            f"JSON file, got {source_lang!r} and {target_lang!r} for a table. "
            "Name its columns with source_column and target_column."
        )


def _translated_pair(row: Row, languages: tuple[str, str] | None, place: str) -> Row:
    """Make the pair of a row with a `translation` object."""
    texts = row.get(TRANSLATION)
    if not isinstance(texts, dict):
        raise ValueError(
            f"{place}: languages choose from a `{TRANSLATION}` object, but the row has "
            f"{'none' if texts is None else repr(texts)}. Its columns are {_listed(row)}; "
            "name two of them with source_column and target_column instead."
        )
    if languages is None:
        raise ValueError(
            f"{place}: a `{TRANSLATION}` object needs source_lang and target_lang, got none. "
            f"It holds {_listed(texts)}."
        )
    source, target = languages
    pair = {"source": _text(texts, source, place), "target": _texts(texts, target, place)}
    others = {name: value for name, value in row.items() if name != TRANSLATION}
    _check_free(others, place)
    return {**pair, **others}


def _pair(row: Row, names: tuple[str, str], place: str) -> Row:
    source, target = names
    others = {name: value for name, value in row.items() if name not in names}
    pair = {"source": _text(row, source, place), "target": _texts(row, target, place)}
    _check_free(others, place)
    return {**pair, **others}


def _check_free(others: Row, place: str) -> None:
    taken = [name for name in DEFAULT_COLUMNS if name in others]
    if taken:
        raise ValueError(
            f"{place}: the chosen texts become the columns source and target, but the file has "
            f"another column {taken[0]!r}. Rename or remove that column."
        )


def _texts(row: Row, name: str, place: str) -> str | list[str]:
    """Return the text of a column, or the list of its texts."""
    values = row.get(name)
    if not isinstance(values, list):
        return _text(row, name, place)
    if not values:
        raise ValueError(
            f"{place}: a list of references must hold at least one text, got none in {name!r}. "
            'Leave the row out, or write [""] for an empty text.'
        )
    return [_text({name: value}, name, place) for value in values]


def _text(row: Row, name: str, place: str) -> str:
    if name not in row:
        raise ValueError(
            f"{place}: there is no {name!r} here, only {_listed(row)}. "
            "Name the columns of this file, or complete the row."
        )
    value = row[name]
    if not isinstance(value, str):
        raise ValueError(
            f"{place}: {name!r} must hold a text, got {value!r}. "
            'Write it in quotes, or "" for an empty text.'
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{place}: {name!r} must hold valid Unicode, got a lone surrogate in {value!r}. "
            "Write the character itself, or both halves of the escape."
        ) from None
    return value


def _listed(row: Row) -> str:
    return ", ".join(map(repr, row)) or "nothing"


def _mixed_column(
    path: Path, rows: Sequence[Row], lines: Sequence[int], error: Exception
) -> ValueError:
    """Say which column holds values of different kinds, and in which lines."""
    for name in dict.fromkeys(name for row in rows for name in row):
        first_lines: dict[str, int] = {}
        for row, line in zip(rows, lines, strict=True):
            if row.get(name) is not None:
                first_lines.setdefault(type(row[name]).__name__, line)
        if len(first_lines) > 1 and set(first_lines) != {"int", "float"}:
            kinds = " and ".join(f"{kind} in line {line}" for kind, line in first_lines.items())
            return ValueError(
                f"{path}: a column must hold values of one kind, but {name!r} holds {kinds}. "
                "Write all of them as text, or remove the column."
            )
    return ValueError(
        f"{path}: a column holds values that do not fit together: {error}. "
        "Write all of them as text, or remove the column."
    )
