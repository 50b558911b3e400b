"""Exact match and F1 of answers against hand-worked cases and a plain search for the threshold."""

import random

import pytest

from hf_seqmodels.evaluation import load_metric
from hf_seqmodels.evaluation.answer_scores import (
    answer_score,
    corpus_answer_scores,
    normalize_answer,
)


def test_normalising_is_that_of_squad():
    assert normalize_answer("  The U.S. Navy's a-b\tan apple ") == "us navys ab apple"
    assert normalize_answer("theatre another") == "theatre another"  # articles are whole words
    assert normalize_answer("「東京」 Ünïted") == "「東京」 ünïted"  # only ASCII punctuation goes


@pytest.mark.parametrize(
    ("prediction", "references", "exact_match", "f1"),
    [
        ("the Denver Broncos.", ["Denver Broncos", "Broncos"], 1, 1),
        ("Denver Denver", ["Denver Broncos"], 0, 1 / 2),  # a bag: one Denver is in both
        ("in the year 1912", ["1912", "year 1912 or 1913"], 0, 2 * 2 / (3 + 4)),
        ("Carolina", ["Denver", "Broncos"], 0, 0),
        ("", ["Denver"], 0, 0),
        ("Denver", [""], 0, 0),
        ("", [""], 1, 1),
        ("the", [""], 1, 1),  # nothing is left of it
        ("", ["The", "Denver"], 0, 0),
    ],
)
def test_answers_score_as_worked_by_hand(prediction, references, exact_match, f1):
    score = answer_score(prediction, references)
    assert (score.exact_match, score.f1) == (exact_match, pytest.approx(f1))


def test_means_are_in_percent_and_apart_for_questions_without_answer():
    result = load_metric("squad").compute(
        predictions=["a cat", "dog", "", "x y"], references=[["cat"], "", [""], ["x", "z"]]
    )
    assert result["exact_match"] == 50
    assert result["f1"] == pytest.approx(100 * (1 + 0 + 1 + 2 / 3) / 4)
    assert (result["has_answer_items"], result["no_answer_items"]) == (2, 2)
    assert result["has_answer_f1"] == pytest.approx(100 * (1 + 2 / 3) / 2)
    assert result["no_answer_exact_match"] == 50
    assert "best_f1" not in result


def test_no_answer_scores_empty_the_answers_above_the_threshold():
    texts = {"predictions": ["x", "y", "z"], "references": ["x", "y", ""]}
    scores = [0.5, 0.1, 0.9]
    metric = load_metric("squad")
    by_scores = metric.compute(**texts, no_answer_scores=scores, no_answer_threshold=0.4)
    by_hand = metric.compute(predictions=["", "y", ""], references=texts["references"])
    assert {name: by_scores[name] for name in by_hand} == by_hand
    assert by_scores["best_f1"] == 100
    assert 0.5 <= by_scores["best_f1_threshold"] < 0.9


def test_best_threshold_is_found_by_trying_every_one():
    draw = random.Random(3)
    for _ in range(20):
        count = draw.randint(1, 7)
        predictions = [draw.choice(["x", "x y", "z"]) for _ in range(count)]
        references = [draw.choice(["x", "y z", ""]) for _ in range(count)]
        scores = [draw.choice([-1.0, 0.0, 0.5, 2.0]) for _ in range(count)]
        result = corpus_answer_scores(predictions, references, no_answer_scores=scores)
        tried = [
            corpus_answer_scores(
                [
                    "" if score > threshold else text
                    for text, score in zip(predictions, scores, strict=True)
                ],
                references,
            )
            for threshold in (-2.0, *scores)
        ]
        for name in ("exact_match", "f1"):
            assert result[f"best_{name}"] == pytest.approx(max(one[name] for one in tried))
            at_best = corpus_answer_scores(
                predictions,
                references,
                no_answer_scores=scores,
                no_answer_threshold=result[f"best_{name}_threshold"],
            )
            assert at_best[name] == pytest.approx(result[f"best_{name}"])


def test_no_answer_scores_must_fit():
    with pytest.raises(ValueError, match="one number per prediction, got 1 for 2"):
        load_metric("squad").compute(
            predictions=["a", "b"], references=["a", "b"], no_answer_scores=[0.0]
        )
