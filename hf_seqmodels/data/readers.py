"""Pairs of texts from files, checked line by line.

| ending | what a row is |
|---|---|
| .jsonl | one JSON object a line |
| .json | a list of objects, or JSON Lines |
| .csv | comma-separated, quoted as spreadsheets do, with a header |
| .tsv | tab-separated, no quoting; with or without a header |

Each may be compressed, with .gz behind. Text is UTF-8, with or without a byte order mark.

A TSV or CSV file has a header if columns are named by the caller, or if its first row holds the
names `source` and `target`. Otherwise a TSV file must have two columns, source and target.
"""

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets

ENDINGS = (".jsonl", ".json", ".csv", ".tsv")
Row = dict[str, Any]


def read_pairs(
    path: str | Path,
    *,
    source_column: str | None = None,
    target_column: str | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> datasets.Dataset:
    """Read pairs of source and target texts.

    Several references for one source are several rows, or a list of texts in the target column.
    Empty texts are legal; empty lines are passed over.

    Args:
        path: a file with one of the endings above.
        source_column: column of the source; None is `source`.
        target_column: column of the target; None is `target`.
        source_lang: key of the source in a `translation` object, instead of columns.
        target_lang: key of the target there.

    Returns:
        Columns `source` and `target`, and the other columns of the file as they are.

    Raises:
        ValueError: if the file or a row is not of this form, with file and line.
        FileNotFoundError: if there is no such file.
    """
    path = Path(path)
    if bool(source_lang) != bool(target_lang):
        raise ValueError(
            f"source_lang and target_lang go together, got {source_lang!r} and {target_lang!r}."
        )
    if source_lang and (source_column or target_column):
        raise ValueError(
            "name columns or languages, not both: got "
            f"source_column={source_column!r}, target_column={target_column!r}, "
            f"source_lang={source_lang!r}, target_lang={target_lang!r}."
        )
    named = bool(source_column or target_column)
    source, target = source_column or "source", target_column or "target"
    rows = []
    for line, row in _read_rows(path, named=named):
        place = f"{path}, line {line}"
        row = _translation_row(row, source_lang, target_lang, place)
        names = ("source", "target") if "translation" in row else (source, target)
        rows.append(_pair(row, *names, place))
    if not rows:
        raise ValueError(
            f"{path} must hold at least one pair, got none. Check that it is complete."
        )
    columns = list(dict.fromkeys(name for row in rows for name in row if name != "translation"))
    has_lists = any(isinstance(row["target"], list) for row in rows)
    if has_lists:
        for row in rows:
            row["target"] = row["target"] if isinstance(row["target"], list) else [row["target"]]
    try:
        return datasets.Dataset.from_dict({c: [row.get(c) for row in rows] for c in columns})
    except (ValueError, TypeError) as error:  # pyarrow: one column, several types
        raise ValueError(
            f"{path}: each column must hold values of one type: {error} "
            "Make them alike, or leave out the column."
        ) from error


def read_texts(path: str | Path, *, column: str | None = None) -> list[str]:
    """Read texts: one column of a file, or the lines of a text file.

    Args:
        path: a file with one of the endings above, or any other text file, a text a line.
        column: which column; None is `text`, and not read for text files.

    Returns:
        The texts; empty lines of a text file are left out.

    Raises:
        ValueError: if the file or a row is not of this form, with file and line.
    """
    path = Path(path)
    if _ending(path) not in ENDINGS:
        texts = [text for _, text in _read_lines(path) if text.strip()]
    else:
        name = column or "text"
        rows = _read_rows(path, named=True)
        texts = [_text(row, name, f"{path}, line {line}") for line, row in rows]
    if not texts:
        raise ValueError(f"{path} must hold at least one text, got none.")
    return texts


def _ending(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _read_rows(path: Path, *, named: bool) -> Iterator[tuple[int, Row]]:
    ending = _ending(path)
    if ending not in ENDINGS:
        raise ValueError(
            f"data files end in {', '.join(ENDINGS)}, each also with .gz, got {str(path)!r}. "
            "Rename or convert it."
        )
    if ending == ".csv":
        return _read_csv(path, named=named)
    if ending == ".tsv":
        return _read_tsv(path, named=named)
    return _read_json(path)


def _read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines without their ends; a line that is not UTF-8 is an error."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}. Check the path.")
    opened = gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")
    with opened as file:
        try:
            for number, line in enumerate(file, start=1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                yield number, text.rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number}: text must be UTF-8, got byte "
                f"{error.object[error.start]:#04x} at position {error.start + 1}. Convert the "
                "file, for example with iconv -t UTF-8."
            ) from error
        except (gzip.BadGzipFile, EOFError, OSError) as error:
            raise ValueError(
                f"{path} is no complete gzip file: {error}. Fetch it again, or drop the .gz."
            ) from error


def _read_json(path: Path) -> Iterator[tuple[int, Row]]:
    lines = [(number, text) for number, text in _read_lines(path) if text.strip()]
    if lines and _ending(path) == ".json" and lines[0][1].lstrip().startswith("["):
        yield from _read_json_list(path, lines)
        return
    for number, text in lines:
        try:
            row = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{path}, line {number}: not JSON: {error.msg} at column {error.colno}."
            ) from error
        yield number, _object(row, f"{path}, line {number}")


def _read_json_list(path: Path, lines: list[tuple[int, str]]) -> Iterator[tuple[int, Row]]:
    try:
        rows = json.loads("\n".join(text for _, text in lines))
    except json.JSONDecodeError as error:
        number = lines[min(error.lineno, len(lines)) - 1][0]
        raise ValueError(f"{path}, line {number}: not JSON: {error.msg}.") from error
    for index, row in enumerate(rows, start=1):
        yield index, _object(row, f"{path}, item {index}")


def _object(row: Any, place: str) -> Row:
    if not isinstance(row, dict):
        raise ValueError(
            f'{place}: a row must be a JSON object such as {{"source": ..., "target": ...}}, '
            f"got {type(row).__name__}."
        )
    return row


def _read_tsv(path: Path, *, named: bool) -> Iterator[tuple[int, Row]]:
    cells = ((number, text.split("\t")) for number, text in _read_lines(path) if text.strip("\r"))
    yield from _with_header(path, cells, named=named, kind="tab")


def _read_csv(path: Path, *, named: bool) -> Iterator[tuple[int, Row]]:
    def lines() -> Iterator[str]:
        for _, text in _read_lines(path):
            yield text + "\n"

    reader = csv.reader(lines(), strict=True)

    def cells() -> Iterator[tuple[int, list[str]]]:
        try:
            for row in reader:
                if row:
                    yield reader.line_num, row
        except csv.Error as error:
            raise ValueError(
                f"{path}, line {reader.line_num}: not CSV: {error}. Quote texts that hold commas, "
                "quotes or line ends, and double the quotes in them."
            ) from error

    yield from _with_header(path, cells(), named=named, kind="comma")


def _with_header(
    path: Path, cells: Iterator[tuple[int, list[str]]], *, named: bool, kind: str
) -> Iterator[tuple[int, Row]]:
    first = next(cells, None)
    if first is None:
        return
    number, header = first
    has_header = named or {"source", "target"} <= set(header)
    if not has_header:
        if len(header) != 2:
            raise ValueError(
                f"{path}, line {number}: without a header row (source and target), a row must be "
                f"source, {kind}, target, got {len(header)} columns. Add a header, or name the "
                "columns of the one that is there (source_column, target_column)."
            )
        header, rows = ["source", "target"], [first]
    else:
        doubled = sorted({name for name in header if header.count(name) > 1})
        if doubled:
            raise ValueError(
                f"{path}, line {number}: column names must differ, got {doubled} twice."
            )
        rows = []
    yield from (_row(path, header, *row, kind=kind) for row in rows)
    yield from (_row(path, header, *row, kind=kind) for row in cells)


def _row(
    path: Path, header: list[str], number: int, values: list[str], *, kind: str
) -> tuple[int, Row]:
    if len(values) != len(header):
        raise ValueError(
            f"{path}, line {number}: a row must have {len(header)} columns ({', '.join(header)}), "
            f"got {len(values)}: {values!r}. Columns are separated by one {kind} each."
        )
    return number, dict(zip(header, values, strict=True))


def _translation_row(row: Row, source_lang: str | None, target_lang: str | None, place: str) -> Row:
    """Lift the two texts of a `translation` object into `source` and `target`."""
    if source_lang is None:
        if isinstance(row.get("translation"), dict):
            languages = ", ".join(row["translation"])
            raise ValueError(
                f"{place}: the row holds a `translation` object ({languages}). "
                "Say which is which with source_lang and target_lang."
            )
        return row
    texts = row.get("translation")
    if not isinstance(texts, dict):
        raise ValueError(
            f"{place}: source_lang and target_lang need a `translation` object in every row, got "
            f"{', '.join(row) or 'an empty row'}. Name columns instead (source_column, "
            "target_column)."
        )
    for name in (source_lang, target_lang):
        if name not in texts:
            raise ValueError(f"{place}: `translation` has no {name!r}, it has {', '.join(texts)}.")
    return row | {"source": texts[source_lang], "target": texts[target_lang]}


def _pair(row: Row, source: str, target: str, place: str) -> Row:
    references = row.get(target)
    if isinstance(references, list):
        if not references or not all(isinstance(text, str) for text in references):
            raise ValueError(
                f"{place}: a list of references must hold one text or more, got {references!r}."
            )
        pair = {"source": _text(row, source, place), "target": references}
    else:
        pair = {"source": _text(row, source, place), "target": _text(row, target, place)}
    hidden = {source, target, "translation"}
    return pair | {
        name: value for name, value in row.items() if name not in hidden and name not in pair
    }


def _text(row: Row, name: str, place: str) -> str:
    if name not in row:
        raise ValueError(
            f"{place}: there is no column {name!r}, the row has {', '.join(row) or 'none'}. Name "
            "the columns (source_column, target_column) or fix the row."
        )
    value = row[name]
    if not isinstance(value, str):
        raise ValueError(f"{place}: column {name!r} must hold text, got {value!r}.")
    return value
