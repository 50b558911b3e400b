"""Rows of JSON Lines, JSON, CSV and TSV files, each with the line where it stands.

Text is UTF-8, with or without a byte order mark; lines end with LF or CRLF. Nothing is guessed and
nothing is passed over: whatever is no row is an error that names the file and the line, except
blank lines at the end of a file.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TABLE_ENDINGS = (".jsonl", ".json", ".csv", ".tsv")
Row = dict[str, Any]
DEFAULT_COLUMNS = ("source", "target")
MAX_CELL_LENGTH = 10_000_000  # characters; a longer cell of CSV is a quote that never closes
_CSV_FORM = (
    "Quote a text that holds commas, quotes or line ends, and write each quote inside it twice."
)


def file_ending(path: Path) -> str:
    """Return the ending that tells what a file holds, in lower case, without .gz.

    Args:
        path: of the file.

    Returns:
        Such as ".tsv"; empty if there is none.
    """
    name = path.name.lower()
    return Path(name.removesuffix(".gz")).suffix


def read_rows(path: Path, *, header: bool | None) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a file as {column: value}, each with the number of its first line.

    Args:
        path: of the file, with one of TABLE_ENDINGS, which .gz may follow.
        header: whether the first row of CSV and TSV names the columns. None takes it for names if
            `source` and `target` are among its cells, and otherwise for the first of rows that hold
            a source and a target and nothing else.

    Yields:
        Line number, counted from 1, and row.

    Raises:
        ValueError: if the ending is none of these, or a line is not as it should be.
        FileNotFoundError: if there is no such file.
    """
    ending = file_ending(path)
    if ending not in TABLE_ENDINGS:
        raise ValueError(
            f"{path}: a data file must end in {', '.join(TABLE_ENDINGS)}, which .gz may follow. "
            "Rename it by what it holds, or convert it."
        )
    if ending == ".csv":
        yield from _name_cells(path, _csv_cells(path), header, separator="comma")
    elif ending == ".tsv":
        yield from _name_cells(path, _tsv_cells(path), header, separator="tab")
    elif ending == ".json" and _begins_with_bracket(path):
        yield from _json_list(path)
    else:
        yield from _json_lines(path)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file with their numbers, without line ends.

    Args:
        path: of the file, decompressed if it ends in .gz.

    Yields:
        Line number, counted from 1, and line.

    Raises:
        ValueError: if a line is not UTF-8, or the file is no complete gzip file.
        FileNotFoundError: if there is no such file.
    """
    if not path.is_file():
        kind = "a folder, not a file" if path.is_dir() else "not there"
        raise FileNotFoundError(f"{path} is {kind}. Check the path.")
    number = 0
    with _open(path) as file:
        try:
            for number, line in enumerate(file, start=1):
                yield number, _decode(line, path, number)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{path}: not a complete gzip file, good up to line {number}: {error}. "
                "Fetch or compress it again, or drop .gz from its name if it is not compressed."
            ) from error


@contextmanager
def _open(path: Path) -> Iterator[Iterable[bytes]]:
    if path.name.lower().endswith(".gz"):
        with gzip.open(path, "rb") as file:
            yield file
    else:
        with path.open("rb") as file:
            yield file


def _decode(line: bytes, path: Path, number: int) -> str:
    if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(
            f"{path}:1: text must be UTF-8, but this file is UTF-16. "
            "Convert it, for example with: iconv -f UTF-16 -t UTF-8."
        )
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}:{number}: text must be UTF-8, got byte {line[error.start]:#04x} at position "
            f"{error.start + 1} of the line. Convert the file, for example with: "
            "iconv -f LATIN1 -t UTF-8; if other lines are UTF-8, convert this one alone."
        ) from None
    if "\0" in text:
        raise ValueError(
            f"{path}:{number}: text must not hold the character NUL, got one at position "
            f"{text.index(chr(0)) + 1}. Convert the file to UTF-8 if it is UTF-16, or remove it."
        )
    return text.removesuffix("\n").removesuffix("\r")


def _tsv_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    lines = _refuse_blanks(path, read_lines(path), is_blank=lambda line: not line.strip(" "))
    return ((number, line.split("\t")) for number, line in lines)


def _csv_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    return _refuse_blanks(
        path,
        _parse_csv(path),
        is_blank=lambda cells: not cells or (len(cells) == 1 and not cells[0].strip()),
    )


def _parse_csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((line + "\n" for _, line in read_lines(path)), strict=True)
    previous_limit = csv.field_size_limit(MAX_CELL_LENGTH)
    first_line = 1
    try:
        for cells in reader:
            yield first_line, cells
            first_line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path}:{first_line}: the row that begins here is not CSV: {error}. {_CSV_FORM}"
        ) from error
    finally:
        csv.field_size_limit(previous_limit)


def _json_lines(path: Path) -> Iterator[tuple[int, Row]]:
    lines = _refuse_blanks(path, read_lines(path), is_blank=lambda line: not line.strip())
    for number, line in lines:
        try:
            value = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            reason = getattr(error, "msg", "too deep")
            column = getattr(error, "colno", 1)
            raise ValueError(
                f"{path}:{number}: a line must be one JSON object, but this is not JSON at "
                f"character {column}: {reason}. Write each row on a line of its own, or a list of "
                "rows in a file that ends in .json."
            ) from error
        yield number, _as_row(value, path, number)


def _begins_with_bracket(path: Path) -> bool:
    return next((line for _, line in read_lines(path) if line.strip()), "").lstrip()[:1] == "["


def _json_list(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield the items of one JSON list, read one by one so that each has its line."""
    text = "\n".join(line for _, line in read_lines(path))
    decoder = json.JSONDecoder()
    number, counted = 1, 0  # the line of the character at `counted`

    def skip_blanks(position: int) -> int:
        nonlocal number, counted
        while position < len(text) and text[position] in " \t\r\n":
            position += 1
        number += text.count("\n", counted, position)
        counted = position
        return position

    def refuse(reason: str) -> ValueError:
        return ValueError(
            f"{path}:{number}: a file that begins with [ must be one JSON list of objects: "
            f"{reason}. Write it again with a JSON library, or one object a line."
        )

    position = skip_blanks(skip_blanks(0) + 1)
    expects_item = text[position : position + 1] != "]"
    while expects_item:
        try:
            value, end = decoder.raw_decode(text, position)
        except (json.JSONDecodeError, RecursionError) as error:
            number += text.count("\n", counted, getattr(error, "pos", position))
            raise refuse(getattr(error, "msg", "too deep")) from error
        yield number, _as_row(value, path, number)
        position = skip_blanks(end)
        expects_item = text[position : position + 1] == ","
        if expects_item:
            position = skip_blanks(position + 1)
    if text[position : position + 1] != "]":
        raise refuse("expected a comma or the closing bracket")
    position = skip_blanks(position + 1)
    if position < len(text):
        raise refuse("something follows the closing bracket")


def _as_row(value: Any, path: Path, number: int) -> Row:
    if not isinstance(value, dict):
        raise ValueError(
            f"{path}:{number}: a row must be a JSON object such as "
            f'{{"source": "a", "target": "b"}}, '
            f"got {json.dumps(value, ensure_ascii=False)[:60]}. Give each value a name."
        )
    return value


def _refuse_blanks(
    path: Path, numbered: Iterable[tuple[int, Any]], *, is_blank: Callable[[Any], bool]
) -> Iterator[tuple[int, Any]]:
    """Pass the rows on; a blank one is an error unless only blank ones follow."""
    blank = None
    for number, row in numbered:
        if is_blank(row):
            blank = blank or number
        elif blank is not None:
            raise ValueError(
                f"{path}:{blank}: a blank line is no row, and may only stand at the end of a file. "
                "Remove it, or write the two empty texts of the row."
            )
        else:
            yield number, row


def _name_cells(
    path: Path,
    numbered: Iterator[tuple[int, list[str]]],
    header: bool | None,
    *,
    separator: str,
) -> Iterator[tuple[int, Row]]:
    """Turn cells into rows by the header, or by the rule for files without one."""
    first = next(numbered, None)
    if first is None:
        return
    first_number, first_cells = first
    if header is None:
        header = set(DEFAULT_COLUMNS) <= set(first_cells)
    if header:
        names = first_cells
        _check_names(path, first_number, names)
    else:
        names = list(DEFAULT_COLUMNS)
        if len(first_cells) != len(names):
            raise ValueError(
                f"{path}:{first_number}: a file without column names must have two columns, source "
                f"and target, with a {separator} between them, got {len(first_cells)}: "
                f"{_shorten(first_cells)}. If this line holds names, say which ones are the source "
                "and the target."
            )
        yield first_number, dict(zip(names, first_cells, strict=True))
    for number, cells in numbered:
        if len(cells) != len(names):
            raise ValueError(
                f"{path}:{number}: a row must have {len(names)} columns ({', '.join(names)}), got "
                f"{len(cells)}: {_shorten(cells)}. Columns are separated by a {separator}; an "
                "empty text needs its place too."
            )
        yield number, dict(zip(names, cells, strict=True))


def _check_names(path: Path, number: int, names: list[str]) -> None:
    repeated = [name for index, name in enumerate(names) if name in names[:index]]
    if repeated:
        raise ValueError(
            f"{path}:{number}: column names must differ, got {repeated[0]!r} twice in "
            f"{_shorten(names)}. Rename one of the columns."
        )


def _shorten(cells: list[str]) -> str:
    text = ", ".join(map(repr, cells))
    return text if len(text) <= 100 else text[:97] + "..."
