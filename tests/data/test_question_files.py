"""Questions and tagged sentences read from files, in the forms in which they are published."""

import gzip
import json

import pytest

from hf_seqmodels.data.question_files import question_of_row, read_question_rows
from hf_seqmodels.data.tagged_files import is_tagged_file, read_tagged_sentences

CONTEXT = "Zoe\u0308 met 😀 Ann."
ANSWERS = [{"text": "Ann", "answer_start": 11}, {"text": "😀 Ann", "answer_start": 9}]
PUBLISHED = {
    "version": "v2.0",
    "data": [
        {
            "title": "Meetings",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        {"id": "q1", "question": "Who?", "answers": ANSWERS},
                        {"id": "q2", "question": "Why?", "answers": [], "is_impossible": True},
                    ],
                }
            ],
        },
        {
            "title": "Other",
            "paragraphs": [{"context": "b", "qas": [{"id": 3, "question": "c", "answers": []}]}],
        },
    ],
}


@pytest.mark.parametrize("name", ["train.json", "train.json.gz"])
@pytest.mark.parametrize("indent", [None, 1])
def test_published_form_and_flat_rows_say_the_same(tmp_path, name, indent):
    path, flat = tmp_path / name, tmp_path / "flat.jsonl"
    text = json.dumps(PUBLISHED, indent=indent)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    rows = list(read_question_rows(path))
    assert [number for number, _ in rows] == [1, 2, 3]
    questions = [question_of_row(row, f"{number}") for number, row in rows]
    assert [question.name for question in questions] == ["q1", "q2", "3"]
    assert questions[0].answers == ["Ann", "😀 Ann"]
    assert CONTEXT[slice(*questions[0].span)] == "Ann"
    assert (questions[1].answers, questions[1].span, questions[2].context) == ([], None, "b")
    by_column = [
        {
            "id": question.name,
            "context": question.context,
            "question": question.text,
            "answers": {"text": question.answers, "answer_start": question.starts},
        }
        for question in questions
    ]
    flat.write_text("".join(json.dumps(row) + "\n" for row in by_column), encoding="utf-8")
    assert [question_of_row(row, "") for _, row in read_question_rows(flat)] == questions
    listed = tmp_path / "listed.json"
    listed.write_text(json.dumps(by_column), encoding="utf-8")
    assert [question_of_row(row, "") for _, row in read_question_rows(listed)] == questions


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "a"}, "there: the column 'context' must hold a text, got None"),
        (
            {"question": "a", "context": "bcd", "answers": {"text": ["d"], "answer_start": [1]}},
            "there: an answer must stand in its context.*is 'c' at character 1 instead of 'd'",
        ),
        (
            {"question": "a", "context": "b", "answers": {"text": [""], "answer_start": [0]}},
            "instead of ''",
        ),
        (
            {"question": "a", "context": "b", "answers": {"text": ["b"]}},
            "there: answers must be .*with as many of both",
        ),
        ({"question": "a", "context": "b", "answers": ["b"]}, "answers must be"),
        ({"question": "a", "context": "b", "answers": "b"}, "answers must be"),
    ],
)
def test_rows_that_are_not_right_are_refused(row, message):
    with pytest.raises(ValueError, match=message):
        question_of_row(row, "there")


def test_an_incomplete_article_is_refused(tmp_path):
    path = tmp_path / "bad.json"
    path.write_text('{"data": [{"paragraphs": [{"qas": [{"question": "a"}]}]}]}')
    with pytest.raises(ValueError, match=r"data > paragraphs.*after question 1 .*'context'"):
        list(read_question_rows(path))


def test_sentences_of_conll_files(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text(
        "-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n\n\n-DOCSTART- O\n"
        "Ann\tB-PER\n",
        encoding="utf-8",
    )
    assert is_tagged_file(path)
    assert not is_tagged_file(tmp_path / "train.jsonl.gz")
    assert list(read_tagged_sentences(path)) == [
        (3, {"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]}),
        (8, {"tokens": ["Ann"], "ner_tags": ["B-PER"]}),
    ]
    path.write_text("Ann B-PER\nand\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"train.txt:2: a line must hold a word and its tag"):
        list(read_tagged_sentences(path))
