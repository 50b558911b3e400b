"""Reading sentences whose words have tags, in the column form of the CoNLL shared tasks."""

from collections.abc import Iterator
from pathlib import Path

from hf_seqmodels.data.table_files import Row, file_ending, read_lines

TAGGED_ENDINGS = (".conll", ".bio", ".iob", ".txt")
DOCUMENT_START = "-DOCSTART-"


def is_tagged_file(path: Path) -> bool:
    """Tell from its name whether a file has a word on each line.

    Args:
        path: of the file; .gz may follow its ending.

    Returns:
        True for .conll, .bio, .iob and .txt.
    """
    return file_ending(path) in TAGGED_ENDINGS


def read_tagged_sentences(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield the sentences of a file with a word on each line and blank lines between sentences.

    A line holds columns with blanks or tabs between, the word first and the tag last; what is
    between is passed over, and so are lines that begin documents (-DOCSTART-).

    Args:
        path: of the file, decompressed if it ends in .gz.

    Yields:
        Number of the first line, counted from 1, and {"tokens": words, "ner_tags": tags}.

    Raises:
        ValueError: if a line has one column only, or the file is not UTF-8.
        FileNotFoundError: if there is no such file.
    """
    words: list[str] = []
    tags: list[str] = []
    number = first = 0
    for number, line in read_lines(path):
        cells = line.split()
        if not cells or cells[0] == DOCUMENT_START:
            if words:
                yield first, {"tokens": words, "ner_tags": tags}
            words, tags = [], []
            continue
        if len(cells) < 2:
            raise ValueError(
                f"{path}:{number}: a line must hold a word and its tag with a blank between, got "
                f"{line!r}. Write O as the tag of a word outside of all entities."
            )
        first = first if words else number
        words.append(cells[0])
        tags.append(cells[-1])
    if words:
        yield first, {"tokens": words, "ner_tags": tags}
