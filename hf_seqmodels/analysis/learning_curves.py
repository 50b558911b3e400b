"""Learning curves from the log history of a Trainer."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any


def plot_learning_curve(
    log_history: Sequence[Mapping[str, Any]],
    path: str | PathLike,
    *,
    metric: str | None = None,
    title: str | None = None,
) -> None:
    """Draw losses and the evaluation metric over the training steps and save the picture at `path`."""
    raise NotImplementedError
