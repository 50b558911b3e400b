"""Documents come out of files as they went in."""

import gzip
import json

import pytest

from hf_seqmodels.data import read_documents
from hf_seqmodels.data.documents import document_text_bytes

TEXT = "one  line \n\nü second\nthird\n \n\nlast"


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("unit", "documents"),
    [
        ("line", ["one  line ", "", "ü second", "third", " ", "", "last"]),
        ("paragraph", ["one  line ", "ü second\nthird", "last"]),
        ("file", [TEXT]),
    ],
)
def test_a_text_file_is_cut_by_its_unit(text_file, unit, documents):
    assert list(read_documents(text_file, text_unit=unit)) == documents
    compressed = text_file.with_name("text.txt.gz")
    compressed.write_bytes(gzip.compress(text_file.read_bytes()))
    assert list(read_documents(compressed, text_unit=unit)) == documents


def test_a_data_file_gives_one_column(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"body": "a\n\nb", "other": 1}, {"body": "", "other": 2}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for unit in ("line", "file"):
        assert list(read_documents(path, column="body", text_unit=unit)) == ["a\n\nb", ""]
    with pytest.raises(ValueError, match=r"rows.jsonl:1: .*'text', got None.* body, other"):
        list(read_documents(path))


def test_each_document_counts_with_the_line_end_that_closes_it(text_file):
    lines = list(read_documents(text_file))
    assert document_text_bytes(lines) == (len(TEXT.encode()) + 1, len(TEXT) + 1)


def test_unknown_units_and_broken_files_are_refused(tmp_path, text_file):
    with pytest.raises(ValueError, match="one of line, paragraph, file, got 'page'"):
        list(read_documents(text_file, text_unit="page"))
    with pytest.raises(FileNotFoundError, match="not there"):
        list(read_documents(tmp_path / "missing.txt"))
    latin = tmp_path / "latin.txt"
    latin.write_bytes("good\nschön".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin.txt:2: text must be UTF-8"):
        list(read_documents(latin))
