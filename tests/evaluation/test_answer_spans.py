"""The best answers against brute force over all spans of all windows, and by a model."""

import math

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForQuestionAnswering, RobertaConfig
from transformers import RobertaForQuestionAnswering as Roberta

from hf_seqmodels.data.context_windows import question_windows
from hf_seqmodels.evaluation import answer_questions, best_answers
from tiny_tokenizers import TEXTS, bert_tokenizer, roberta_tokenizer

TOKENIZERS = {"bert": bert_tokenizer, "roberta": roberta_tokenizer}
CONTEXTS = [TEXTS[0], TEXTS[5], "She", TEXTS[1]]


def logits_for(columns, seed):
    draw = np.random.default_rng(seed)
    width = max(map(len, columns["input_ids"])) + 3  # padding, with logits that must not count
    return (10 * draw.normal(size=(len(columns["input_ids"]), width)) for _ in range(2))


def all_spans(columns, starts, ends, example, context, longest):
    """{(first character, end): best score} by loops over every pair of tokens."""
    found, none = {}, math.inf
    for row, owner in enumerate(columns["example"]):
        if owner != example:
            continue
        place = columns["no_answer_position"][row]
        none = min(none, starts[row][place] + ends[row][place])
        begin, offsets = columns["context_start"][row], columns["offsets"][row]
        for i, one in enumerate(offsets):
            for j, other in enumerate(offsets):
                if i <= j < i + longest and one[0] < one[1] and other[0] < other[1]:
                    score = starts[row][begin + i] + ends[row][begin + j]
                    key = one[0], other[1]
                    found[key] = max(score, found.get(key, -math.inf))
    return found, none


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize(
    ("with_no_answer", "longest", "n_best"), [(0, 30, 3), (1, 4, 50), (1, 1, 2)]
)
def test_answers_are_those_of_brute_force(kind, with_no_answer, longest, n_best):
    columns = question_windows(
        TOKENIZERS[kind](), ["Where ?"] * 4, CONTEXTS, max_length=17, doc_stride=6
    )
    assert len(columns["example"]) > 6
    starts, ends = logits_for(columns, seed=n_best)
    found = best_answers(
        starts,
        ends,
        columns,
        CONTEXTS,
        n_best=n_best,
        max_answer_length=longest,
        with_no_answer=bool(with_no_answer),
    )
    for example, (context, answers) in enumerate(zip(CONTEXTS, found, strict=True)):
        spans, none = all_spans(columns, starts, ends, example, context, longest)
        best = max(spans.values())
        assert answers.no_answer_score == pytest.approx(none - best)
        candidates = dict(spans)
        if with_no_answer:
            candidates[0, 0] = none
        total = sum(math.exp(score - best) for score in candidates.values())
        expected = sorted(candidates.items(), key=lambda item: -item[1])[:n_best]
        assert len(answers.answers) == len(expected)
        for answer, ((start, end), score) in zip(answers.answers, expected, strict=True):
            assert (answer.start, answer.end, answer.text) == (start, end, context[start:end])
            assert answer.score == pytest.approx(score)
            assert answer.probability == pytest.approx(math.exp(score - best) / total)


def test_probabilities_of_all_answers_sum_to_one():
    columns = question_windows(bert_tokenizer(), ["Where ?"], ["She was born"], max_length=30)
    starts, ends = logits_for(columns, seed=1)
    options = {"n_best": 1000, "with_no_answer": True}
    (answers,) = best_answers(starts, ends, columns, ["She was born"], **options)
    assert sum(answer.probability for answer in answers.answers) == pytest.approx(1)
    tokens = len(columns["offsets"][0])
    assert len(answers.answers) == tokens * (tokens + 1) // 2 + 1


@pytest.mark.parametrize(("threshold", "wins"), [(1.5, True), (2.5, False)])
def test_threshold_decides_between_the_best_answer_and_none(threshold, wins):
    columns = question_windows(bert_tokenizer(), ["a"], ["a b"], max_length=30, doc_stride=1)
    start = columns["context_start"][0]
    starts, ends = np.zeros((2, 1, len(columns["input_ids"][0])))
    starts[0, 0], starts[0, start], ends[0, start] = 3.0, 1.0, 0.0  # none is ahead by two
    (answers,) = best_answers(
        starts, ends, columns, ["a b"], with_no_answer=True, no_answer_threshold=threshold
    )
    assert answers.no_answer_score == 2
    assert answers.best.text == ("" if wins else "a")
    assert answers.best_span.text == "a"
    assert [answer.text for answer in answers.answers[:2]] == (["", "a"] if wins else ["a", ""])


def test_a_context_without_a_token_has_the_empty_answer():
    columns = question_windows(bert_tokenizer(), ["a"], [" "], max_length=30)
    starts, ends = logits_for(columns, seed=0)
    (answers,) = best_answers(starts, ends, columns, [" "])
    assert (answers.best.text, answers.best.probability, answers.best_span) == ("", 1, None)
    assert answers.no_answer_score == math.inf


def test_logits_that_are_no_numbers_are_refused():
    columns = question_windows(bert_tokenizer(), ["a"], ["b"], max_length=30)
    bad = np.full((1, 9), np.nan)
    with pytest.raises(ValueError, match=r"not a number \(NaN\)"):
        best_answers(bad, bad, columns, ["b"])
    with pytest.raises(ValueError, match="n_best must be at least 1, got 0"):
        best_answers(bad, bad, columns, ["b"], n_best=0)


def make_model(kind):
    torch.manual_seed(4)
    size = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
    size |= {"intermediate_size": 16, "initializer_range": 1.0}
    if kind == "bert":
        return BertForQuestionAnswering(
            BertConfig(vocab_size=200, max_position_embeddings=26, **size)
        )
    return Roberta(
        RobertaConfig(vocab_size=340, max_position_embeddings=28, type_vocab_size=1, **size)
    )


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_model_answers_as_its_logits_row_by_row_say(kind):
    model, tokenizer = make_model(kind).train(), TOKENIZERS[kind]()
    pairs = [("Where ?", context) for context in CONTEXTS]
    # windows as long as the model's table of positions: 26, of which RoBERTa uses two for pads
    found = answer_questions(model, tokenizer, pairs, n_best=3, batch_size=3, progress=False)
    assert model.training
    columns = question_windows(tokenizer, ["Where ?"] * 4, CONTEXTS, max_length=26, doc_stride=8)
    starts, ends = [], []
    with torch.no_grad():
        for row in range(len(columns["example"])):
            inputs = {
                name: torch.tensor([columns[name][row]]) for name in tokenizer.model_input_names
            }
            output = model.eval()(**inputs)
            starts.append(output.start_logits[0].numpy())
            ends.append(output.end_logits[0].numpy())
    expected = best_answers(starts, ends, columns, CONTEXTS, n_best=3)
    for answers, wanted in zip(found, expected, strict=True):
        for answer, other in zip(answers.answers, wanted.answers, strict=True):
            assert (answer.start, answer.end, answer.text) == (other.start, other.end, other.text)
            assert answer.score == pytest.approx(other.score, abs=1e-4)


def test_helper_refuses_what_it_cannot_answer():
    model, tokenizer = make_model("bert"), bert_tokenizer()
    assert answer_questions(model, tokenizer, []) == []
    with pytest.raises(ValueError, match="pairs of a question and a context, got 'Where"):
        answer_questions(model, tokenizer, ["Where was she?"])
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        answer_questions(model, tokenizer, [("a", "b")], batch_size=0)
    with pytest.raises(ValueError, match=r"must give start_logits and end_logits.*got BertModel"):
        answer_questions(model.bert, tokenizer, [("a", "b")], progress=False)
