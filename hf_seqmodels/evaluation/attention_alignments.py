"""Cross-attention of each output token over the source tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Alignment:
    """Attention of the target tokens over the source tokens."""

    source_tokens: list[str]
    target_tokens: list[str]
    weights: np.ndarray

    def to_pharaoh(self, *, threshold: float | None = None) -> str:
        """Return the links as `i-j` pairs, source-target, counted from zero."""
        raise NotImplementedError


def alignments(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    targets: Sequence[str | Sequence[int]] | None = None,
    *,
    num_beams: int = 1,
    layer: int | str = -1,
    head: int | str = "mean",
    batch_size: int = 16,
    max_new_tokens: int | None = None,
    max_source_length: int | None = None,
    progress: bool = True,
    device: Any = None,
    **generate_kwargs: Any,
) -> list[Alignment]:
    """Return the alignment of every source with its output (or with the given target)."""
    raise NotImplementedError
