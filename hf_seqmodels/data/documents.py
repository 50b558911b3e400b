"""Documents for language models, read from text and data files one by one.

A data file (.jsonl, .json, .csv, .tsv) holds a document in one column of each row. A text file is
cut into documents by one of three rules:

| text_unit | a document is | for |
|---|---|---|
| line | a line, blank ones included | a sentence a line: Penn Treebank, WikiText |
| paragraph | the lines between blank ones | books, articles |
| file | the whole file, line ends included | characters, programs |

Each file may be compressed and end in .gz. Nothing is passed over or changed but the line ends
that the rule cuts at.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from hf_seqmodels.data.table_files import TABLE_ENDINGS, file_ending, read_lines, read_rows

TEXT_UNITS = ("line", "paragraph", "file")
DEFAULT_COLUMN = "text"


def read_documents(
    path: str | os.PathLike[str], *, text_unit: str = "line", column: str = DEFAULT_COLUMN
) -> Iterator[str]:
    """Yield the documents of a file.

    Args:
        path: of the file; one that ends as a data file does is one, any other is a text file.
        text_unit: "line", "paragraph" or "file"; only a text file is cut by it.
        column: which column of a data file holds the documents.

    Yields:
        A document, without the line ends that separate it from others; it may be empty.

    Raises:
        ValueError: if there is no such unit, or the file is not as described; the message names
            file and line.
        FileNotFoundError: if there is no such file.
    """
    if text_unit not in TEXT_UNITS:
        raise ValueError(
            f"text_unit must be one of {', '.join(TEXT_UNITS)}, got {text_unit!r}. It says what of "
            "a text file is one document."
        )
    path = Path(path)
    if file_ending(path) in TABLE_ENDINGS:
        yield from _column_texts(path, column)
        return
    lines = (line for _, line in read_lines(path))
    if text_unit == "line":
        yield from lines
    elif text_unit == "file":
        yield "\n".join(lines)
    else:
        yield from _paragraphs(lines)


def document_text_bytes(documents: Iterator[str] | list[str]) -> tuple[int, int]:
    """Return how much text there is, for figures in bits per byte or per character.

    Each document counts with one line end, which is what its end-of-text token stands for.

    Args:
        documents: as `read_documents` yields them.

    Returns:
        Number of bytes in UTF-8 and number of characters (code points).
    """
    num_bytes = num_characters = 0
    for document in documents:
        num_bytes += len(document.encode()) + 1
        num_characters += len(document) + 1
    return num_bytes, num_characters


def _column_texts(path: Path, column: str) -> Iterator[str]:
    for line, row in read_rows(path, header=True):
        text = row.get(column)
        if not isinstance(text, str):
            raise ValueError(
                f"{path}:{line}: each row must hold a text in the column {column!r}, got {text!r}; "
                f"its columns are {', '.join(row)}. Name the column that holds the documents."
            )
        yield text


def _paragraphs(lines: Iterator[str]) -> Iterator[str]:
    paragraph: list[str] = []
    for line in lines:
        if line.strip():
            paragraph.append(line)
        elif paragraph:
            yield "\n".join(paragraph)
            paragraph = []
    if paragraph:
        yield "\n".join(paragraph)
