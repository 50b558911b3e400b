"""Word alignments in the Pharaoh format: a line per pair of texts, a link per pair `i-j` in it.

`0-0 1-2` links the first source token to the first target token, and the second to the third. This
is what fast_align, eflomal and GIZA++ write and read. An empty line is a pair without links.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from hf_seqmodels.data.table_files import read_lines

Link = tuple[int, int]
LINK = re.compile(r"([0-9]+)-([0-9]+)")


def parse_pharaoh(line: str) -> list[Link]:
    """Return the links of one pair of texts.

    Args:
        line: links `i-j`, source and target counted from 0, between blanks.

    Returns:
        Pairs of source and target, in order, each once.

    Raises:
        ValueError: if a piece of the line is no link.
    """
    links = set()
    for piece in line.split():
        link = LINK.fullmatch(piece)
        if link is None:
            raise ValueError(
                f"A link must be written i-j, source and target counted from 0, got {piece!r}. "
                "Leave out possible links (0?1, 0p1) and scores (0-1:0.7), or write them as i-j."
            )
        links.add((int(link[1]), int(link[2])))
    return sorted(links)


def format_pharaoh(links: Iterable[Link]) -> str:
    """Return the line that links are written in.

    Args:
        links: pairs of source and target, counted from 0.

    Returns:
        Each link once, in order of source, then target, between blanks.

    Raises:
        ValueError: if a number is negative.
    """
    distinct = sorted({(int(source), int(target)) for source, target in links})
    if any(number < 0 for link in distinct for number in link):
        raise ValueError(f"Links count tokens from 0, got {distinct[0]}. Leave such links out.")
    return " ".join(f"{source}-{target}" for source, target in distinct)


def read_pharaoh(path: str | os.PathLike[str]) -> list[list[Link]]:
    """Read the links of many pairs of texts.

    Args:
        path: a text file in the Pharaoh format; decompressed if it ends in .gz.

    Returns:
        The links of each line.

    Raises:
        ValueError: if a line is not as described; the message names file and line.
        FileNotFoundError: if there is no such file.
    """
    path = Path(path)
    rows = []
    for number, line in read_lines(path):
        try:
            rows.append(parse_pharaoh(line))
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
    return rows


def write_pharaoh(path: str | os.PathLike[str], rows: Iterable[Iterable[Link]]) -> None:
    """Write the links of many pairs of texts.

    Args:
        path: the file. Its folder is made.
        rows: the links of each pair.

    Raises:
        ValueError: if a number is negative.
    """
    path = Path(path)
    lines = [format_pharaoh(links) + "\n" for links in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8", newline="\n")
