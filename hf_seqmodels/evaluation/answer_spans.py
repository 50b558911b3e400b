"""The best answers to each question, from the logits of all windows of its context."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from hf_seqmodels.data.context_windows import context_tokens


@dataclass(frozen=True)
class Answer:
    """A piece of a context, or no answer.

    Args:
        text: context[start:end]; "" for no answer.
        start: first character in the context.
        end: character after the last; 0, as start, for no answer.
        score: logit of the start plus logit of the end.
        probability: exp(score), divided by its sum over all answers that were possible.
    """

    text: str
    start: int
    end: int
    score: float
    probability: float


@dataclass(frozen=True)
class Answers:
    """What a model answers to one question.

    Args:
        answers: the final answer first, then the others by falling score.
        no_answer_score: score of no answer minus that of the best other answer; the higher, the
            surer the model is that there is none. Infinite if the context offers no other.
    """

    answers: list[Answer]
    no_answer_score: float

    @property
    def best(self) -> Answer:
        """The final answer."""
        return self.answers[0]

    @property
    def best_span(self) -> Answer | None:
        """The best answer other than none, if the context offers any."""
        return next((answer for answer in self.answers if answer.text), None)


def best_answers(
    start_logits: Sequence[Any] | np.ndarray,
    end_logits: Sequence[Any] | np.ndarray,
    columns: Mapping[str, Sequence[Any]],
    contexts: Sequence[str],
    *,
    n_best: int = 20,
    max_answer_length: int = 30,
    with_no_answer: bool = False,
    no_answer_threshold: float = 0.0,
) -> list[Answers]:
    """Return the best answers to each question over all windows of its context.

    An answer begins and ends at tokens of one window, ends no sooner than it begins, and has at
    most max_answer_length tokens. Its score is the best that any window gives it, and different
    spans of tokens with the same characters are one answer. No answer scores what the windows agree
    on least: the minimum over them of both logits of the classification token.

    Source: Devlin et al. 2019, arXiv:1810.04805, section 4.3: none is predicted if its score
    exceeds that of the best answer by more than a threshold.

    Args:
        start_logits: of each row, one number per token, (rows, T); further ones are for padding.
        end_logits: the same for ends.
        columns: what `question_windows` returned.
        contexts: what it was given.
        n_best: answers per question.
        max_answer_length: in tokens.
        with_no_answer: whether a question may have no answer (SQuAD 2.0).
        no_answer_threshold: by how much no answer must beat the best answer.

    Returns:
        One list per question. Where the context offers no answer, the empty one.

    Raises:
        ValueError: if a number is out of range or a logit is not a number.
    """
    for name, value in (("n_best", n_best), ("max_answer_length", max_answer_length)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    tokens = context_tokens(columns, len(contexts))
    grids = [np.full((len(offsets), max_answer_length), -np.inf) for offsets in tokens]
    no_answer = np.full(len(contexts), np.inf)
    for row, example in enumerate(columns["example"]):
        starts, ends = (
            np.asarray(logits[row], dtype=np.float64) for logits in (start_logits, end_logits)
        )
        place = columns["no_answer_position"][row]
        no_answer[example] = min(no_answer[example], starts[place] + ends[place])
        first, begin = columns["first_token"][row], columns["context_start"][row]
        count = len(columns["offsets"][row])
        window = slice(begin, begin + count)
        scores = _span_scores(starts[window], ends[window], max_answer_length)
        part = grids[example][first : first + count]
        np.maximum(part, scores, out=part)
    return [
        _ranked(grid, offsets, score, context, n_best, with_no_answer, no_answer_threshold)
        for grid, offsets, score, context in zip(grids, tokens, no_answer, contexts, strict=True)
    ]


def _span_scores(starts: np.ndarray, ends: np.ndarray, max_answer_length: int) -> np.ndarray:
    """Return starts[i] + ends[i + k] at (i, k), -inf where the end is not in the window."""
    if np.isnan(starts).any() or np.isnan(ends).any():
        raise ValueError(
            "a logit is not a number (NaN), so no answer can be found. Check the weights and the "
            "precision that the model is computed in."
        )
    behind = np.full(max_answer_length - 1, -np.inf)
    if not len(starts):
        return np.empty((0, max_answer_length))
    return starts[:, None] + sliding_window_view(np.concatenate([ends, behind]), max_answer_length)


def _ranked(
    grid: np.ndarray,
    offsets: Sequence[tuple[int, int]],
    no_answer: float,
    context: str,
    n_best: int,
    with_no_answer: bool,
    no_answer_threshold: float,
) -> Answers:
    """Rank the answers of one question.

    Args:
        grid: score of the span from token i to token i + k, (tokens, max_answer_length).
        offsets: characters of each token.
        no_answer: score of no answer.
        context: the text.
        n_best: how many to return.
        with_no_answer: whether no answer is one of them.
        no_answer_threshold: by how much it must beat the others.

    Returns:
        The answers.
    """
    scores, starts, ends = _character_spans(grid, offsets)
    order = np.lexsort((ends, starts, -scores))[: n_best + 1]  # equal scores: the first in the text
    best = scores[order[0]] if len(order) else -np.inf
    takes_none = with_no_answer or not len(order)
    possible = np.append(scores, no_answer) if takes_none else scores
    highest = possible.max()
    log_total = highest + np.log(np.exp(possible - highest).sum())

    def answer(start: int, end: int, score: float) -> Answer:
        probability = float(np.exp(score - log_total))
        return Answer(context[start:end], start, end, float(score), probability)

    answers = [answer(int(starts[i]), int(ends[i]), float(scores[i])) for i in order.tolist()]
    if takes_none:
        none = answer(0, 0, no_answer)
        rank = sum(other.score >= none.score for other in answers)
        if no_answer - best > no_answer_threshold:
            rank = 0
        elif answers:
            rank = max(rank, 1)
        answers.insert(rank, none)
    return Answers(answers[:n_best], float(no_answer - best))


def _character_spans(
    grid: np.ndarray, offsets: Sequence[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return score, first character and end of every distinct answer; the best of equal ones."""
    characters = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    first, steps = np.nonzero(np.isfinite(grid))
    starts, ends = characters[first, 0], characters[first + steps, 1]
    is_text = (characters[:, 0] < characters[:, 1])[[first, first + steps]].all(axis=0)
    is_text &= starts < ends
    scores, starts, ends = grid[first, steps][is_text], starts[is_text], ends[is_text]
    is_distinct = all(len(np.unique(side)) == len(side) for side in characters.T)
    if not is_distinct:  # several tokens for one character, such as the bytes of an emoji
        order = np.lexsort((-scores, ends, starts))
        scores, starts, ends = scores[order], starts[order], ends[order]
        is_first = np.append(True, (np.diff(starts) != 0) | (np.diff(ends) != 0))[: len(scores)]
        scores, starts, ends = scores[is_first], starts[is_first], ends[is_first]
    return scores, starts, ends
