"""Exact match and F1 of answers, as SQuAD's own evaluation scripts define them."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

ARTICLES = re.compile(r"\b(a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class AnswerScore:
    """How good one predicted answer is.

    Args:
        exact_match: 1.0 if it is a reference, else 0.0.
        f1: overlap of words with the closest reference, 0 to 1.
        has_answer: whether there is anything to answer.
    """

    exact_match: float
    f1: float
    has_answer: bool


def normalize_answer(text: str) -> str:
    """Return an answer in lower case, without ASCII punctuation, English articles, extra blanks.

    Args:
        text: the answer.

    Returns:
        What two answers are compared by.
    """
    text = text.lower().translate(WITHOUT_PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", text).split())


def answer_score(prediction: str, references: Sequence[str]) -> AnswerScore:
    """Compare an answer with the references, the best of which counts.

    Words are compared as a bag, F1 = 2 P R / (P + R). The empty text stands for "no answer", and
    agrees only with itself. A reference of which nothing is left after normalising is passed over,
    unless there is no other.

    Source: Rajpurkar et al. 2016, arXiv:1606.05250, section 6.1; Rajpurkar et al. 2018,
    arXiv:1806.03822, for questions without an answer.

    Args:
        prediction: the answer, or "".
        references: texts any of which would be right; [""] where there is no answer.

    Returns:
        The score.
    """
    predicted = normalize_answer(prediction)
    right = [text for text in map(normalize_answer, references) if text] or [""]
    return AnswerScore(
        exact_match=float(predicted in right),
        f1=max(_overlap(predicted.split(), text.split()) for text in right),
        has_answer=any(references),
    )


def _overlap(predicted: list[str], right: list[str]) -> float:
    if not predicted or not right:
        return float(predicted == right)
    num_same = sum((Counter(predicted) & Counter(right)).values())
    return 2 * num_same / (len(predicted) + len(right))


def corpus_answer_scores(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    no_answer_scores: Sequence[float] | None = None,
    no_answer_threshold: float = 0.0,
) -> dict[str, Any]:
    """Return the mean scores of a corpus, in percent.

    Args:
        predictions: one answer per question; "" for none.
        references: at least one text per question, [""] where there is no answer.
        no_answer_scores: how sure the model is that there is no answer, one number per question;
            `predictions` then hold its best answers other than none.
        no_answer_threshold: questions with a higher no-answer score count as answered with none.

    Returns:
        exact_match and f1; where some questions have no answer also the means of both kinds of
        question; with no-answer scores also the best means that any threshold gives, and that
        threshold.

    Raises:
        ValueError: if there is not one no-answer score per question.
    """
    scores = [answer_score(*item) for item in zip(predictions, references, strict=True)]
    figures = {name: [getattr(score, name) for score in scores] for name in ("exact_match", "f1")}
    has_answer = [score.has_answer for score in scores]
    best: dict[str, Any] = {}
    if no_answer_scores is not None:
        if len(no_answer_scores) != len(predictions):
            raise ValueError(
                "no_answer_scores must hold one number per prediction, got "
                f"{len(no_answer_scores)} for {len(predictions)} predictions."
            )
        for name, values in figures.items():
            best |= _best_threshold(name, values, predictions, has_answer, no_answer_scores)
            figures[name] = [
                float(not answerable) if no_answer > no_answer_threshold else value
                for value, answerable, no_answer in zip(
                    values, has_answer, no_answer_scores, strict=True
                )
            ]
    result: dict[str, Any] = {name: _percent(values) for name, values in figures.items()}
    if not all(has_answer):
        for kind, wanted in (("has_answer", True), ("no_answer", False)):
            rows = [row for row, answerable in enumerate(has_answer) if answerable == wanted]
            for name, values in figures.items():
                result[f"{kind}_{name}"] = _percent([values[row] for row in rows])
            result[f"{kind}_items"] = len(rows)
    return result | best


def _percent(values: Sequence[float]) -> float:
    return 100 * sum(values) / max(len(values), 1)


def _best_threshold(
    name: str,
    values: Sequence[float],
    predictions: Sequence[str],
    has_answer: Sequence[bool],
    no_answer_scores: Sequence[float],
) -> dict[str, float]:
    """Find the threshold that would have given the best mean; equal scores go together."""
    total = best = float(sum(not answerable for answerable in has_answer))
    threshold = min(no_answer_scores, default=0.0) - 1.0  # nothing is answered
    order = sorted(range(len(values)), key=lambda row: no_answer_scores[row])
    for place, row in enumerate(order):
        total += values[row] if has_answer[row] else values[row] - 1.0
        is_last = place + 1 == len(order)
        parts = is_last or no_answer_scores[order[place + 1]] > no_answer_scores[row]
        if parts and total > best:
            best, threshold = total, no_answer_scores[row]
    return {
        f"best_{name}": 100 * best / max(len(values), 1),
        f"best_{name}_threshold": float(threshold),
    }
