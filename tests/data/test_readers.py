"""Files of pairs: what may be in them, and what each defect is called, with file and line."""

import gzip
import json
import re
import sys

import pytest

from hf_seqmodels.data import read_pairs, read_texts

PAIRS = [("Wort", "v ɔ ʁ t"), ('ein "Zitat"', "a, b"), ("", "leer"), ("ünïcödé", "")]


@pytest.fixture
def write(tmp_path):
    """Write a file, compressed if its name ends in .gz, and return its path."""

    def write_file(name, content):
        data = content.encode() if isinstance(content, str) else content
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write_file


def pairs(dataset):
    return list(zip(dataset["source"], dataset["target"], strict=True))


def json_lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


ROWS = [{"source": source, "target": target} for source, target in PAIRS]
FORMS = {
    "data.jsonl": json_lines(ROWS),
    "lines.json": json_lines(ROWS),
    "list.json": json.dumps(ROWS),
    "indented.json": "\n" + json.dumps(ROWS, indent=2) + "\n",
    "header.tsv": "source\ttarget\n" + "".join(f"{s}\t{t}\n" for s, t in PAIRS),
    "headerless.tsv": "".join(f"{s}\t{t}\n" for s, t in PAIRS),
    "header.csv": 'target,source\n"v ɔ ʁ t",Wort\n"a, b","ein ""Zitat"""\nleer,\n,ünïcödé\n',
    "headerless.csv": 'Wort,v ɔ ʁ t\n"ein ""Zitat""","a, b"\n,leer\nünïcödé,\n',
}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_pairs(write, name, compressed):
    dataset = read_pairs(write(name + ".gz" * compressed, FORMS[name]))
    assert pairs(dataset) == PAIRS
    assert sorted(dataset.column_names) == ["source", "target"]


@pytest.mark.parametrize("name", FORMS)
def test_line_ends_marks_and_a_missing_last_end_change_nothing(write, name):
    content = FORMS[name].rstrip("\n")
    for changed in (
        content,
        content + "\n\n \n\n",
        "\ufeff" + content + "\n",
        content.replace("\n", "\r\n") + "\r\n",
    ):
        assert pairs(read_pairs(str(write("other-" + name, changed)))) == PAIRS


def test_the_ending_may_be_written_in_capitals(write):
    assert pairs(read_pairs(write("DATA.TSV", "a\tb\n"))) == [("a", "b")]


def test_named_columns_are_found_and_the_others_kept(write):
    table = "id\tword\tphonemes\ttag\n1\tab\ta b\tX\n2\tc\tk\t\n"
    rows = [{"id": 1, "word": "ab", "phonemes": "a b", "tag": {"x": [1]}}, {"word": "c"}]
    rows[1]["phonemes"] = "k"
    for name, content in (("t.tsv", table), ("t.csv", table.replace("\t", ","))):
        dataset = read_pairs(write(name, content), source_column="word", target_column="phonemes")
        assert dataset.to_dict() == {
            "source": ["ab", "c"],
            "target": ["a b", "k"],
            "id": ["1", "2"],
            "tag": ["X", ""],
        }
    dataset = read_pairs(
        write("t.jsonl", json_lines(rows)), source_column="word", target_column="phonemes"
    )
    assert dataset.to_dict() == {
        "source": ["ab", "c"],
        "target": ["a b", "k"],
        "id": [1, None],
        "tag": [{"x": [1]}, None],
    }


def test_one_named_column_is_enough_and_may_serve_twice(write):
    path = write("t.tsv", "word\ttarget\nab\ta b\n")
    assert pairs(read_pairs(path, source_column="word")) == [("ab", "a b")]
    path = write("t.tsv", "word\tid\nab\t7\n")
    same = read_pairs(path, source_column="word", target_column="word")
    assert same.to_dict() == {"source": ["ab"], "target": ["ab"], "id": ["7"]}


def test_a_header_is_one_only_if_named_or_if_it_says_source_and_target(write):
    table = "word\tphonemes\nab\ta b\n"
    assert pairs(read_pairs(write("t.tsv", table))) == [("word", "phonemes"), ("ab", "a b")]
    named = read_pairs(write("t.tsv", table), source_column="word", target_column="phonemes")
    assert pairs(named) == [("ab", "a b")]
    more = "id\ttarget\tsource\n7\tb\ta\n"
    assert read_pairs(write("m.tsv", more)).to_dict() == {
        "source": ["a"],
        "target": ["b"],
        "id": ["7"],
    }


def test_quotes_are_text_in_tsv_and_quotes_in_csv(write):
    assert pairs(read_pairs(write("t.tsv", '"a\t"b" c\n'))) == [('"a', '"b" c')]
    assert pairs(read_pairs(write("t.csv", '"a\nb","c, d"\r\n"e",f\r\n'))) == [
        ("a\nb", "c, d"),
        ("e", "f"),
    ]


def test_only_line_feeds_end_lines(write):
    content = "a\u2028b\tc\x85d\ne\x0cf\tg\u2029\n"
    assert pairs(read_pairs(write("t.tsv", content))) == [
        ("a\u2028b", "c\x85d"),
        ("e\x0cf", "g\u2029"),
    ]


def test_translations_are_chosen_by_language(write):
    rows = [{"translation": {"de": "ja", "en": "yes", "fr": "oui"}, "id": 3}]
    for name in ("t.jsonl", "t.json"):
        path = write(name, json_lines(rows))
        dataset = read_pairs(path, source_lang="de", target_lang="en")
        assert dataset.to_dict() == {"source": ["ja"], "target": ["yes"], "id": [3]}
        back = read_pairs(path, source_lang="fr", target_lang="de")
        assert pairs(back) == [("oui", "ja")]


def test_columns_beside_a_translation_object_can_be_named(write):
    rows = [{"translation": {"de": "ja"}, "a": "x", "b": "y"}]
    dataset = read_pairs(write("t.jsonl", json_lines(rows)), source_column="a", target_column="b")
    assert pairs(dataset) == [("x", "y")]


def test_several_references_are_rows_or_lists(write):
    rows = [{"source": "a", "target": "b"}, {"source": "a", "target": ["c", "", "d"]}]
    assert pairs(read_pairs(write("t.jsonl", json_lines(rows)))) == [
        ("a", ["b"]),
        ("a", ["c", "", "d"]),
    ]
    rows = [{"translation": {"x": "a", "y": ["b", "c"]}}]
    path = write("t.jsonl", json_lines(rows))
    assert pairs(read_pairs(path, source_lang="x", target_lang="y")) == [("a", ["b", "c"])]
    assert pairs(read_pairs(write("t.tsv", "a\tb\na\tc\n"))) == [("a", "b"), ("a", "c")]


GOOD = '{"source": "a", "target": "b"}\n'
DEFECTS = {  # name of the file, content, what the message must say after the path
    "empty file": ("t.tsv", "", ": a data file must hold at least one row, got none. Check"),
    "blank file": ("t.jsonl", "\n\n", ": a data file must hold at least one row, got none"),
    "header alone": ("t.csv", "source,target\n", ": a data file must hold at least one row"),
    "empty list": ("t.json", " [ ] ", ": a data file must hold at least one row"),
    "empty gzip": ("t.tsv.gz", "", ": a data file must hold at least one row"),
    "ending": ("t.txt", "a\tb\n", ": a data file must end in .jsonl, .json, .csv, .tsv, which .gz"),
    "no ending": ("t", "a\tb\n", ": a data file must end in .jsonl"),
    "too few columns": (
        "t.tsv",
        "a\tb\nc\td\ne\n",
        ":3: a row must have 2 columns (source, target), got 1: 'e'. Columns are separated by",
    ),
    "too many columns": ("t.csv", "a,b\nc,d,e\n", ":2: a row must have 2 columns (source, target)"),
    "ragged named": (
        "t.tsv",
        "source\ttarget\tid\na\tb\n",
        ":2: a row must have 3 columns (source",
    ),
    "one column": ("t.tsv", "a b\n", ":1: a file without column names must have two columns"),
    "three columns": ("t.csv", "a,b,c\n", ":1: a file without column names must have two columns"),
    "header twice": ("t.tsv", "source\ttarget\tsource\n", ":1: column names must differ, got 'sou"),
    "blank inside": ("t.tsv", "a\tb\n\nc\td\n", ":2: a blank line is no row, and may only stand"),
    "blank inside csv": ("t.csv", "a,b\n\n\nc,d\n", ":2: a blank line is no row"),
    "blank inside json": ("t.jsonl", GOOD + "\n" + GOOD, ":2: a blank line is no row"),
    "open quote": ("t.csv", 'a,b\nc,"d\ne,f\n', ":2: the row that begins here is not CSV: unexpec"),
    "text after quote": ("t.csv", 'a,b\n"c" d,e\n', ":2: the row that begins here is not CSV: "),
    "row after long row": ("t.csv", '"a\nb\n",c\nd\n', ":4: a row must have 2 columns"),
    "latin 1": (
        "t.tsv",
        b"a\tb\n" + "c\tdé\n".encode("latin-1"),
        ":2: text must be UTF-8, got byte 0xe9 at position 4 of the line. Convert",
    ),
    "latin 1 in gzip": ("t.tsv.gz", b"a\tb\n\xe9\tc\n", ":2: text must be UTF-8, got byte 0xe9"),
    "cut in a character": (
        "t.jsonl",
        GOOD.encode() + b'{"source": "\xc3',
        ":2: text must be UTF-8",
    ),
    "utf-16": (
        "t.tsv",
        "a\tb\n".encode("utf-16"),
        ":1: text must be UTF-8, but this file is UTF",
    ),
    "utf-16 without mark": ("t.tsv", "a\tb\n".encode("utf-16-le"), ":1: text must not hold the ch"),
    "nul": (
        "t.csv",
        "a,b\nc\0,d\n",
        ":2: text must not hold the character NUL, got one at position 2",
    ),
    "not json": ("t.jsonl", GOOD + '{"source": "a", \n', ":2: a line must be one JSON object, but"),
    "two objects": ("t.jsonl", GOOD.strip() + GOOD, ":1: a line must be one JSON object"),
    "indented object": ("t.json", '{\n  "source": "a"\n}\n', ":1: a line must be one JSON object"),
    "not an object": ("t.jsonl", GOOD + '["a", "b"]\n', ":2: a row must be a JSON object such as"),
    "item no object": (
        "t.json",
        '[{"source": "a", "target": "b"},\n\n"c"]',
        ":3: a row must be a J",
    ),
    "list cut off": (
        "t.json",
        '[{"source": "a",\n "target": "b"}\n',
        ":2: a file that begins with [",
    ),
    "list broken": (
        "t.json",
        '[\n{"source": "a",\n target: "b"}]',
        ":3: a file that begins with [ ",
    ),
    "list without comma": ("t.json", "[" + GOOD + GOOD + "]", ":2: a file that begins with [ must"),
    "list and more": (
        "t.json",
        "[" + GOOD + "]\nx",
        ":3: a file that begins with [ must be one JSON",
    ),
    "list after comma": ("t.json", "[" + GOOD + ",]", ":2: a file that begins with [ must be one"),
    "column missing": (
        "t.jsonl",
        GOOD + '{"source": "a"}\n',
        ":2: there is no 'target' here, only",
    ),
    "number": ("t.jsonl", '{"source": 3, "target": "b"}\n', ":1: 'source' must hold a text, got 3"),
    "null": (
        "t.jsonl",
        '{"source": "a", "target": null}\n',
        ":1: 'target' must hold a text, got N",
    ),
    "list as source": (
        "t.jsonl",
        '{"source": ["a"], "target": "b"}\n',
        ":1: 'source' must hold a ",
    ),
    "no reference": ("t.jsonl", '{"source": "a", "target": []}\n', ":1: a list of references must"),
    "bad reference": ("t.jsonl", '{"source": "a", "target": ["b", 1]}\n', ":1: 'target' must hold"),
    "surrogate": (
        "t.jsonl",
        '{"source": "\\ud83d", "target": "b"}\n',
        ":1: 'source' must hold val",
    ),
    "languages needed": (
        "t.jsonl",
        '{"translation": {"de": "a", "en": "b"}}\n',
        ":1: a `translation` object needs source_lang and target_lang, got none. It holds 'de'",
    ),
    "mixed column": (
        "t.jsonl",
        '{"source": "a", "target": "b", "id": 1}\n{"source": "a", "target": "b", "id": "x"}\n',
        ": a column must hold values of one kind, but 'id' holds int in line 1 and str in line 2.",
    ),
    "huge number": (
        "t.jsonl",
        '{"source": "a", "target": "b", "id": 1}\n{"source": "a", "target": "b", "id": 1e400}\n'
        '{"source": "a", "target": "b", "id": 99999999999999999999}\n',
        ": a column holds values that do not fit together",
    ),
}


@pytest.mark.parametrize("case", DEFECTS)
def test_defects_are_named_with_file_and_line(write, case):
    name, content, message = DEFECTS[case]
    path = write(name, content)
    with pytest.raises(ValueError, match="^" + re.escape(str(path) + message)):
        read_pairs(path)


@pytest.mark.parametrize("cut", [-5, 60, 15])
def test_a_truncated_gzip_file_is_an_error(write, tmp_path, cut):
    whole = write("whole.tsv.gz", "".join(f"{number}\tb{number**3}\n" for number in range(500)))
    path = tmp_path / "cut.tsv.gz"
    path.write_bytes(whole.read_bytes()[:cut])
    with pytest.raises(ValueError, match=r"cut.tsv.gz: not a complete gzip file, good up to line"):
        read_pairs(path)


def test_a_damaged_gzip_file_is_an_error(write, tmp_path):
    data = bytearray(write("t.tsv.gz", "a\tb\n" * 500).read_bytes())
    data[14] ^= 255
    for content in (bytes(data), b"a\tb\n"):
        path = tmp_path / "bad.tsv.gz"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"bad.tsv.gz: not a complete gzip file"):
            read_pairs(path)


def test_a_missing_file_and_a_folder_are_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none.tsv is not there. Check the path"):
        read_pairs(tmp_path / "none.tsv")
    (tmp_path / "folder.tsv").mkdir()
    with pytest.raises(FileNotFoundError, match=r"folder.tsv is a folder, not a file"):
        read_pairs(tmp_path / "folder.tsv")


def test_options_that_contradict_each_other_are_refused(write):
    path = write("t.jsonl", '{"translation": {"de": "a", "en": "b"}, "source": "x"}\n')
    refusals = [
        ({"source_lang": "de"}, "belong together, got 'de' and None"),
        ({"source_lang": "de", "target_lang": "en", "source_column": "x"}, "exclude each other"),
        ({"source_lang": "de", "target_lang": "fr"}, r":1: there is no 'fr' here, only 'de', 'en'"),
        ({"source_lang": "de", "target_lang": "en"}, r"another column 'source'. Rename or remove"),
        ({"source_column": "word"}, r":1: there is no 'word' here, only 'translation', 'source'"),
    ]
    for options, message in refusals:
        with pytest.raises(ValueError, match=message):
            read_pairs(path, **options)
    languages = {"source_lang": "de", "target_lang": "en"}
    with pytest.raises(ValueError, match=r"t.tsv: source_lang and target_lang choose from the"):
        read_pairs(write("t.tsv", "de\ten\n"), **languages)
    with pytest.raises(ValueError, match=r":1: languages choose from .* the row has none"):
        read_pairs(write("t.jsonl", GOOD), **languages)
    with pytest.raises(ValueError, match=r":2: there is no 'word' here, only 'a', 'b'"):
        read_pairs(write("t.tsv", "a\tb\nc\td\n"), source_column="word", target_column="b")
    with pytest.raises(ValueError, match=r":2: .* but the file has another column 'source'"):
        read_pairs(
            write("t.tsv", "source\tword\ttarget\nwiki\ta\tb\n"),
            source_column="word",
            target_column="target",
        )


def test_without_datasets_the_way_to_get_it_is_told(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"datasets library, which is not installed. Install it"):
        read_pairs(write("t.tsv", "a\tb\n"))
    assert read_texts(write("t.txt", "a\n")) == ["a"]


def test_texts_are_lines_or_a_column(write):
    assert read_texts(write("t.txt", "a b\n\n c\r\nd")) == ["a b", " c", "d"]
    assert read_texts(write("t.txt.gz", "\ufeffa\nb\n")) == ["a", "b"]
    assert read_texts(write("t", '{"a": 1}\n')) == ['{"a": 1}']
    assert read_texts(write("t.tsv", "x\ty\na\tb\n\tc\n"), column="x") == ["a", ""]
    assert read_texts(write("t.csv", 'x,y\n"a,b",c\n'), column="x") == ["a,b"]
    rows = [{"x": "a"}, {"x": ["b", "c"]}]
    assert read_texts(write("t.jsonl", json_lines(rows)), column="x") == ["a", "b", "c"]


def test_texts_that_are_not_there_are_errors(write):
    refusals = [
        ("t.txt", "\n \n", None, r"t.txt: a file to learn from must hold at least one text"),
        ("t.txt", b"a\n\xff\n", None, r"t.txt:2: text must be UTF-8"),
        ("t.txt", "a\n", "x", r"got column='x'. Leave the column out"),
        ("t.tsv", "x\ty\na\tb\n", None, r"got column=None. Name the column that holds the texts"),
        ("t.tsv", "x\ty\na\tb\n", "z", r"t.tsv:2: there is no 'z' here, only 'x', 'y'"),
        ("t.jsonl", '{"x": 1}\n', "x", r"t.jsonl:1: 'x' must hold a text, got 1"),
    ]
    for name, content, column, message in refusals:
        with pytest.raises(ValueError, match=message):
            read_texts(write(name, content), column=column)
