# pyright: basic
"""Greedy search and beam search on numpy, as generate() of transformers does them.

Shapes: B batch, K beams of a row, N candidates of a step, R = B * K rows of the model, T tokens so
far, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

NEVER = -np.inf


def log_softmax(logits: Array) -> Array:
    """Return log-probabilities in nats: (..., V) -> (..., V)."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def write_greedily(
    read: Callable[[Array], Array],
    logits: Array,
    prompts: Array,
    max_length: int,
    ends: Sequence[int],
    pad: int | None,
) -> tuple[Array, Array]:
    """Write the most probable token at every step.

    Args:
        read: reads one more token of every row, (B, 1), and returns logits of the next, (B, V).
        logits: of the first new token, (B, V).
        prompts: (B, P).
        max_length: where rows end at the latest.
        ends: tokens that end a row.
        pad: fills rows up.

    Returns:
        Rows, (B, T), and their log-probabilities in nats, (B).
    """
    rows, is_open = prompts, np.ones(len(prompts), dtype=bool)
    scores = np.zeros(len(prompts), dtype=np.float32)
    while True:
        chosen = logits.argmax(axis=-1)  # (B)
        scores += np.where(
            is_open, np.take_along_axis(log_softmax(logits), chosen[:, None], 1)[:, 0], 0
        )
        new = np.where(is_open, chosen, pad if pad is not None else 0)[:, None]
        rows = np.hstack([rows, new])
        is_open &= ~np.isin(new[:, 0], ends)
        if not is_open.any() or rows.shape[1] >= max_length:
            return rows, scores
        logits = read(np.ascontiguousarray(new))


@dataclass
class Hypotheses:
    """Rows of tokens and their scores; every array begins with (B, K) or (B, N).

    Args:
        scores: what they are ordered by.
        tokens: with the prompt, filled up, (B, K, T).
        lengths: real tokens of a row, (B, K).
        is_finished: whether a row has ended.
    """

    scores: Array
    tokens: Array
    lengths: Array
    is_finished: Array

    def select(self, index: Array) -> "Hypotheses":
        """Return the hypotheses at `index`, (B, M)."""
        rows = np.arange(len(index))[:, None]
        return Hypotheses(*(getattr(self, part.name)[rows, index] for part in fields(self)))

    def join(self, others: "Hypotheses") -> "Hypotheses":
        """Return these and others side by side."""
        pairs = ((getattr(self, part.name), getattr(others, part.name)) for part in fields(self))
        return Hypotheses(*(np.concatenate(pair, axis=1) for pair in pairs))

    def best(self, number: int) -> tuple["Hypotheses", Array]:
        """Return the best so many, the best first, and where they were, (B, number)."""
        index = np.argsort(-self.scores, axis=1, kind="stable")[:, :number]
        return self.select(index), index


class Beams:
    """Beam search as generate() of transformers does it, over all rows of a batch at once.

    Args:
        prompts: what rows begin with, (B, P).
        num_beams: K.
        max_length: where rows end at the latest, prompt included.
        ends: tokens that end a row.
        pad: fills rows up.
        length_penalty: scores are log p / length^this.
        early_stopping: True ends with K finished rows, "never" only where no better one can come,
            False where the best running one is worse at its length.
    """

    def __init__(
        self,
        prompts: Array,
        *,
        num_beams: int,
        max_length: int,
        ends: Sequence[int],
        pad: int,
        length_penalty: float,
        early_stopping: bool | str,
    ):
        batch_size, self.prompt_length = prompts.shape
        self.num_beams, self.max_length = num_beams, max_length
        self.ends, self.length_penalty = list(ends), length_penalty
        self.early_stopping = early_stopping
        self.num_candidates = max(2, 1 + len(self.ends)) * num_beams
        tokens = np.full((batch_size, num_beams, max_length), pad, dtype=np.int64)
        tokens[:, :, : self.prompt_length] = prompts[:, None]
        scores = np.full((batch_size, num_beams), NEVER, dtype=np.float32)
        lengths = np.full((batch_size, num_beams), self.prompt_length)
        self.finished = Hypotheses(scores, tokens, lengths, np.zeros_like(scores, dtype=bool))
        self.running = self.finished.select(np.tile(np.arange(num_beams), (batch_size, 1)))
        self.running.scores[:, 0] = 0  # all beams are alike before the first token
        self.is_open = np.ones((batch_size, 1), dtype=bool)
        self.length = self.prompt_length
        self.is_done = False

    def advance(self, log_probabilities: Array) -> Array:
        """Write one more token on every beam.

        Args:
            log_probabilities: of every next token, (R, V).

        Returns:
            Row of the model that each new beam goes on from, (R).
        """
        batch_size, num_beams = self.running.scores.shape
        vocab_size = log_probabilities.shape[-1]
        scores = (
            log_probabilities.reshape(batch_size, num_beams, -1) + self.running.scores[..., None]
        )
        scores = scores.reshape(batch_size, -1)  # (B, K * V)
        index = best_places(scores, self.num_candidates)  # (B, N)
        parents = index // vocab_size
        candidates = self.running.select(parents)
        candidates.tokens[:, :, self.length] = index % vocab_size
        candidates.scores = np.take_along_axis(scores, index, axis=1)
        self.length += 1
        candidates.lengths[:] = self.length
        ends = np.isin(index % vocab_size, self.ends) | (self.length >= self.max_length)
        self._finish(candidates, ends)
        going_on = candidates.select(np.tile(np.arange(index.shape[1]), (batch_size, 1)))
        going_on.scores = np.where(ends, NEVER, going_on.scores)
        self.running, chosen = going_on.best(num_beams)
        self.is_open &= self._can_improve()
        no_more = not self.is_open.any() or ends.all()
        self.is_done = no_more or (self.early_stopping is True and self.finished.is_finished.all())
        rows = (
            np.take_along_axis(parents, chosen, axis=1) + np.arange(batch_size)[:, None] * num_beams
        )
        return rows.reshape(-1)

    def _finish(self, candidates: Hypotheses, ends: Array) -> None:
        """Take the candidates that end, of the best K, among the finished rows."""
        is_best = np.arange(ends.shape[1]) < self.num_beams
        counts = ends & is_best & self.is_open
        if self.early_stopping is True:
            counts &= ~self.finished.is_finished.all(axis=1, keepdims=True)
        ranks = candidates.scores / (self.length - self.prompt_length) ** self.length_penalty
        ended = Hypotheses(
            np.where(counts, ranks, NEVER).astype(np.float32),
            candidates.tokens,
            candidates.lengths,
            counts,
        )
        self.finished = self.finished.join(ended).best(self.num_beams)[0]

    def _can_improve(self) -> Array:
        """Tell which rows may still get a better finished hypothesis, (B, 1)."""
        is_patient = self.early_stopping == "never" and self.length_penalty > 0
        length = (self.max_length if is_patient else self.length) - self.prompt_length
        possible = self.running.scores[:, :1] / length**self.length_penalty
        worst = self.finished.scores.min(axis=1, keepdims=True)
        return possible > np.where(
            self.finished.is_finished.all(axis=1, keepdims=True), worst, NEVER
        )

    def last_tokens(self) -> Array:
        """Return what the running beams wrote last, (R, 1)."""
        return np.ascontiguousarray(self.running.tokens[:, :, self.length - 1].reshape(-1, 1))

    def best(self, number: int) -> tuple[Array, Array]:
        """Return the best finished rows of every source, (B * number, T), and their scores."""
        kept, _ = self.finished.best(number)
        length = int(kept.lengths.max())
        return kept.tokens[:, :, :length].reshape(-1, length), kept.scores.reshape(-1)


def best_places(scores: Array, number: int) -> Array:
    """Return where the best scores of each row stand, the best first: (B, N) -> (B, number)."""
    number = min(number, scores.shape[1])
    some = np.argpartition(-scores, number - 1, axis=1)[:, :number]
    order = np.argsort(-np.take_along_axis(scores, some, axis=1), axis=1, kind="stable")
    return np.take_along_axis(some, order, axis=1)
