"""Figures of classes and values against plain counts."""

import math
import random

import pytest

from hf_seqmodels.evaluation.class_scores import (
    confusions,
    multi_label_scores,
    regression_scores,
    single_label_scores,
)


def plain_f1(pairs, name):
    """F1 of one class from (right, predicted) pairs."""
    hits = sum(right == found == name for right, found in pairs)
    total = sum((right == name) + (found == name) for right, found in pairs)
    return 2 * hits / total if total else 0.0


def draw(classes, seed=0, count=40):
    numbers = random.Random(seed)
    return [(numbers.randrange(classes), numbers.randrange(classes)) for _ in range(count)]


@pytest.mark.parametrize("classes", [2, 3])
def test_single_labels_are_counted(classes):
    pairs = draw(classes)
    right, found = zip(*pairs, strict=True)
    scores = single_label_scores(right, found, classes=classes)
    hits = sum(a == b for a, b in pairs) / len(pairs)
    assert scores["accuracy"] == scores["micro_f1"] == pytest.approx(100 * hits)
    f1 = [plain_f1(pairs, name) for name in range(classes)]
    assert scores["macro_f1"] == pytest.approx(100 * sum(f1) / classes)
    assert ("f1" in scores) == (classes == 2)
    table = confusions(right, found, classes=classes)
    assert table == [[pairs.count((a, b)) for b in range(classes)] for a in range(classes)]
    if classes == 2:
        assert scores["f1"] == pytest.approx(100 * f1[1])
        (tn, fp), (fn, tp) = table
        correlation = (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
        assert scores["matthews"] == pytest.approx(100 * correlation)


def test_several_labels_are_counted():
    right = [[1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 0, 0]]
    found = [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 0]]
    scores = multi_label_scores(right, found)
    assert scores["accuracy"] == 50.0
    assert scores["micro_f1"] == pytest.approx(100 * 2 * 3 / (5 + 3))
    assert scores["macro_f1"] == pytest.approx(100 * (2 / 3 + 1 + 2 / 3) / 3)


def test_values_are_compared():
    right, found = [0.0, 1.0, 2.0, 4.0], [0.5, 0.0, 2.0, 9.0]
    scores = regression_scores(right, found)
    assert scores["mse"] == pytest.approx((0.25 + 1 + 0 + 25) / 4)
    assert scores["mae"] == pytest.approx((0.5 + 1 + 0 + 5) / 4)
    assert scores["spearman"] == pytest.approx(80.0)  # ranks 2, 1, 3, 4
    a = [value - 1.75 for value in right]
    b = [value - 2.875 for value in found]
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    norms = math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    assert scores["pearson"] == pytest.approx(100 * dot / norms)


def test_figures_that_are_undefined_are_zero():
    assert single_label_scores([1, 1], [1, 1], classes=2)["matthews"] == 0.0
    constant = regression_scores([1.0, 2.0], [3.0, 3.0])
    assert (constant["pearson"], constant["spearman"]) == (0.0, 0.0)


def test_numbers_of_items_must_agree():
    with pytest.raises(ValueError, match=r"at least one, got shapes \(0,\) and \(0,\)"):
        regression_scores([], [])
    with pytest.raises(ValueError, match=r"as many, .* got shapes \(2,\) and \(1,\)"):
        single_label_scores([1, 0], [1], classes=2)
