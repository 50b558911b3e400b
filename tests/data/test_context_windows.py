"""Windows over contexts and the spans of answers, against a plain search in the text."""

import logging

import pytest

from hf_seqmodels.data.context_windows import QuestionCollator, context_tokens, question_windows
from tiny_tokenizers import TEXTS, TOKENIZERS, bert_tokenizer, roberta_tokenizer

QUESTION = "Where was she born ?"
PAIRS = [  # answers at the borders of words, with marks, emoji and right-to-left letters
    (TEXTS[0], "Old York"),
    (TEXTS[0], "Where"),
    (TEXTS[1], "Zoe\u0308"),
    (TEXTS[1], "cafe\u0301"),
    (TEXTS[1], "Kraków with naïve"),
    (TEXTS[2], "日本"),
    (TEXTS[2], "首都は東京"),
    (TEXTS[3], "عاصمة مصر"),
    (TEXTS[4], "नमस्ते"),
    (TEXTS[5], "👩‍👩‍👧"),
    (TEXTS[5], "🇫🇷 and 😀"),
]


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


def spans_of(pairs):
    return [
        (context.index(answer), context.index(answer) + len(answer)) for context, answer in pairs
    ]


def windows_of(tokenizer, pairs=PAIRS, **options):
    contexts = [context for context, _ in pairs]
    options = {"max_length": 24, "doc_stride": 5} | options
    return question_windows(
        tokenizer, [QUESTION] * len(pairs), contexts, spans_of(pairs), **options
    )


def test_labelled_spans_read_as_the_answers(tokenizer):
    columns = windows_of(tokenizer, max_length=64, doc_stride=24)
    seen = set()
    for row, example in enumerate(columns["example"]):
        context, answer = PAIRS[example]
        start, end = columns["start_positions"][row], columns["end_positions"][row]
        first = columns["context_start"][row]
        characters = columns["offsets"][row]
        begin, stop = context.index(answer), context.index(answer) + len(answer)
        if start == columns["no_answer_position"][row] == end:
            shown = [span for span in characters if span[0] < span[1]]
            assert not (shown[0][0] <= begin and stop <= shown[-1][1]), answer
        else:
            seen.add(example)
            span = context[characters[start - first][0] : characters[end - first][1]]
            # of CJK and emoji a token may hold more than the answer, never less
            assert answer in span
            assert len(span) - len(answer) <= 2
            if answer.isascii() or answer in ("Zoe\u0308", "cafe\u0301", "नमस्ते"):
                assert span == answer
    assert seen == set(range(len(PAIRS)))


def test_windows_are_rows_of_the_tokenizer_that_cover_every_token(tokenizer):
    columns = windows_of(tokenizer)
    assert len(columns["example"]) > len(PAIRS) + 1
    whole = context_tokens(columns, len(PAIRS))
    for example, (context, _) in enumerate(PAIRS):
        ids = tokenizer(context, add_special_tokens=False)["input_ids"]
        assert len(whole[example]) == len(ids)
        rows = [row for row, owner in enumerate(columns["example"]) if owner == example]
        last = 0
        for number, row in enumerate(rows):
            first, count = columns["first_token"][row], len(columns["offsets"][row])
            start = columns["context_start"][row]
            row_ids = columns["input_ids"][row]
            assert row_ids[start : start + count] == ids[first : first + count]
            assert first == (last - 5 if number else 0)  # neighbours share doc_stride tokens
            assert len(row_ids) <= 24
            assert row_ids[columns["no_answer_position"][row]] == tokenizer.cls_token_id
            last = first + count
        assert last == len(ids)


def test_short_pairs_are_what_the_tokenizer_makes_of_pairs(tokenizer):
    columns = question_windows(tokenizer, ["Where ?"], [TEXTS[1]], max_length=384)
    plain = tokenizer("Where ?", TEXTS[1])
    for name in tokenizer.model_input_names:
        assert columns[name] == [plain[name]]
    assert "start_positions" not in columns


def test_questions_without_answer_point_at_the_classification_token(tokenizer):
    columns = question_windows(
        tokenizer, ["a", "b"], ["Anna", ""], [None, None], max_length=16, doc_stride=2
    )
    assert columns["example"] == [0, 1]
    assert columns["start_positions"] == columns["end_positions"] == [0, 0]
    assert columns["offsets"][1] == []


def test_byte_tokens_of_one_character_share_it():
    columns = question_windows(
        roberta_tokenizer(), ["a"], ["x 😀 y"], [(2, 3)], max_length=32, doc_stride=2
    )
    offsets = columns["offsets"][0]
    assert offsets.count((2, 3)) > 1
    first = columns["context_start"][0]
    labelled = offsets[
        columns["start_positions"][0] - first : columns["end_positions"][0] + 1 - first
    ]
    assert labelled == [(2, 3)] * offsets.count((2, 3))


def test_batches_are_padded_on_the_right_whatever_the_tokenizer_does(tokenizer):
    columns = windows_of(tokenizer)
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    batch = QuestionCollator(tokenizer)(rows)
    width = max(len(ids) for ids in columns["input_ids"])
    assert set(batch) == {*tokenizer.model_input_names, "start_positions", "end_positions"}
    for row, ids in enumerate(columns["input_ids"]):
        assert batch["input_ids"][row].tolist() == ids + [tokenizer.pad_token_id] * (
            width - len(ids)
        )
        assert batch["attention_mask"][row].sum() == len(ids)
    assert batch["start_positions"].tolist() == columns["start_positions"]
    fixed = QuestionCollator(tokenizer, max_length=64)(rows[:2])
    assert fixed["input_ids"].shape == (2, 64)


def test_long_questions_are_cut_only_where_asked(caplog):
    tokenizer = bert_tokenizer()
    with caplog.at_level(logging.WARNING):
        columns = question_windows(
            tokenizer,
            ["Where was she born ?", "She"],
            ["Anna"] * 2,
            max_length=30,
            doc_stride=2,
            max_question_length=2,
        )
    assert "1 of 2 questions have more than 2 tokens and are cut" in caplog.text
    kept = tokenizer("Where was she born ?", add_special_tokens=False)["input_ids"][:2]
    assert columns["input_ids"][0][1:3] == kept
    with pytest.raises(
        ValueError, match=r"less than the tokens that a row of max_length=8 has.*got 2"
    ):
        question_windows(tokenizer, ["Where was she born ?"], ["Anna"], max_length=8, doc_stride=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a"], ["b", "c"]), "got 1 questions, 2 contexts"),
        (("a", ["b"]), "questions must be a list of texts"),
        ((["a"], [None]), "contexts must be a list of texts"),
        (
            (["a"], ["bc"], [(1, 3)]),
            "must lie in its context of 2 characters, got characters 1 to 3",
        ),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        question_windows(bert_tokenizer(), *arguments)


def test_a_slow_tokenizer_is_refused():
    class Slow:
        is_fast = False

    with pytest.raises(ValueError, match=r"must be a fast one.*got Slow"):
        question_windows(Slow(), ["a"], ["b"])


def test_answers_that_no_window_holds_are_counted(caplog):
    with caplog.at_level(logging.WARNING):
        columns = windows_of(bert_tokenizer(), [(TEXTS[0], TEXTS[0]), (TEXTS[0], "Old York")])
    assert "1 of 2 answers are whole in no window" in caplog.text
    first = [row for row, example in enumerate(columns["example"]) if example == 0]
    assert len(first) > 1
    assert {columns["start_positions"][row] for row in first} == {0}


def test_no_questions_are_no_rows():
    assert question_windows(bert_tokenizer(), [], []) == {}
