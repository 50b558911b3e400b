"""Decode a corpus: source texts in, target texts out."""

from collections.abc import Sequence
from typing import Any


def decode_corpus(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    *,
    batch_size: int = 64,
    num_beams: int = 1,
    max_new_tokens: int | None = None,
    max_source_length: int | None = None,
    progress: bool = True,
    device: Any = None,
    **generate_kwargs: Any,
) -> list[str]:
    """Return the model's output text for every source, in the order of the sources."""
    raise NotImplementedError
