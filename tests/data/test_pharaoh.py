"""Links of words, written and read."""

import gzip
import re

import pytest

from hf_seqmodels.data import format_pharaoh, parse_pharaoh, read_pharaoh, write_pharaoh

ROWS = [[(0, 0), (1, 2), (10, 3)], [], [(0, 1)]]


def test_lines_are_pairs_of_source_and_target():
    assert parse_pharaoh("0-0 1-2\t10-3 1-2\n") == ROWS[0]
    assert parse_pharaoh("") == parse_pharaoh("  ") == []
    assert format_pharaoh([(10, 3), (0, 0), (1, 2), (0, 0)]) == "0-0 1-2 10-3"
    assert format_pharaoh([]) == ""


def test_files_come_back_as_they_were(tmp_path):
    path = tmp_path / "new" / "links.txt"
    write_pharaoh(path, ROWS)
    assert path.read_bytes() == b"0-0 1-2 10-3\n\n0-1\n"
    assert read_pharaoh(path) == ROWS
    compressed = tmp_path / "links.txt.gz"
    compressed.write_bytes(gzip.compress(b"0-0 1-2 10-3\r\n\r\n0-1"))
    assert read_pharaoh(str(compressed)) == ROWS


@pytest.mark.parametrize(
    "piece", ["1", "1-", "-1-2", "1-2-3", "a-b", "0?1", "0p1", "0-1:0.7", "١-٢"]
)
def test_what_is_no_link_is_refused_with_its_place(tmp_path, piece):
    path = tmp_path / "links.txt"
    path.write_text(f"0-0\n0-1 {piece}\n", encoding="utf-8")
    message = rf"{re.escape(str(path))}:2: A link must be written i-j, .*{re.escape(repr(piece))}"
    with pytest.raises(ValueError, match=message):
        read_pharaoh(path)


def test_negative_numbers_are_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"count tokens from 0, got \(-1, 2\)"):
        write_pharaoh(tmp_path / "links.txt", [[(3, 4), (-1, 2)]])
    assert not list(tmp_path.iterdir())
