"""Log-probabilities of given targets under a model (forced decoding)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TargetScore:
    """Log-probability of one target given its source."""

    token_ids: list[int]
    log_probability: float
    token_log_probabilities: list[float]


def score_targets(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    targets: Sequence[str | Sequence[int]],
    *,
    batch_size: int = 64,
    max_source_length: int | None = None,
    progress: bool = True,
    device: Any = None,
) -> list[TargetScore]:
    """Return the log-probability of each target given its source."""
    raise NotImplementedError
