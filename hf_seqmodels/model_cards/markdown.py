"""Pieces of Markdown that hold whatever text they are given: no text can end them early."""

import re
from collections.abc import Iterable, Sequence

# an underscore inside a word means itself
_SPECIAL = re.compile(r"([\\`*\[\]<>()#!|~&$]|(?<![^\W_])_|_(?![^\W_]))")
_BAR = re.compile(r"(?<!\\)\|")  # ends a cell, even inside code
_CODE_RUN = re.compile(r"`+")


def one_line(text: object) -> str:
    """Write a value as Markdown text on one line, every special character escaped.

    Args:
        text: any value.

    Returns:
        Markdown that shows the text as it is, but for blanks.
    """
    return _SPECIAL.sub(r"\\\1", " ".join(str(text).split()))


def code_span(text: object) -> str:
    """Write a value as code inside a line.

    Args:
        text: any value.

    Returns:
        The code span; blanks and line breaks become single blanks.
    """
    line = " ".join(str(text).split())
    ticks = "`" * (_longest_run(line) + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def fenced(language: str, content: str) -> str:
    """Write a block of code.

    Args:
        language: what it is written in.
        content: the code; backticks in it make the fence longer.

    Returns:
        The block, without a line break at its end.
    """
    fence = "`" * max(3, _longest_run(content) + 1)
    return f"{fence}{language}\n{content.strip(chr(10))}\n{fence}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table.

    Args:
        header: names of the columns, Markdown already.
        rows: cells, Markdown already; see `one_line`.

    Returns:
        The table, without a line break at its end.
    """
    lines = [list(header), ["---"] * len(header), *map(list, rows)]
    cells = [[_BAR.sub(r"\\|", cell) for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def _longest_run(text: str) -> int:
    return max((len(run) for run in _CODE_RUN.findall(text)), default=0)
