"""The best outputs of each source, with the model's own log-probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Hypothesis:
    """One output of the model for one source."""

    text: str
    token_ids: list[int]
    log_probability: float
    score: float
    token_log_probabilities: list[float]


def n_best(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    *,
    num_beams: int = 5,
    num_return_sequences: int | None = None,
    length_penalty: float = 1.0,
    batch_size: int = 16,
    max_new_tokens: int | None = None,
    max_source_length: int | None = None,
    progress: bool = True,
    device: Any = None,
    **generate_kwargs: Any,
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of every source, best first."""
    raise NotImplementedError
