"""A forward pass over given tokens in chunks, each continuing from the cache of the last."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from family_cases import Case


@dataclass
class Progress:
    """What one chunk hands to the next.

    Args:
        cache: states after the tokens so far.
        batch: arguments of the model, of all tokens.
        encoded: output of the encoder; None for a decoder alone.
    """

    cache: Any
    batch: dict[str, Tensor]
    encoded: Any

    def select_rows(self, rows: Tensor) -> None:
        """Go on with the given rows; the cache is left to the caller."""
        self.batch = select_rows(self.batch, rows)
        if self.encoded is not None:
            self.encoded = type(self.encoded)(**select_rows(self.encoded, rows))


def select_rows(batch, rows: Tensor) -> dict[str, Tensor]:
    """Return a batch of the given rows."""
    return {name: value[rows] for name, value in batch.items()}


def without_labels(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return what a model reads."""
    return {name: value for name, value in batch.items() if name != "labels"}


def run_in_chunks(
    case: Case,
    model,
    batch: dict[str, Tensor],
    chunks: Sequence[int],
    *,
    between: Callable[[Progress], None] | None = None,
) -> list[Tensor]:
    """Return the logits of every chunk, (B, t, V), computed with a cache.

    Args:
        case: names the sides.
        model: with a cache.
        batch: of the case.
        chunks: tokens of each chunk.
        between: changes the progress after a chunk, when there is another to come.
    """
    side = case.written_side
    now = Progress(None, without_labels(batch), None)
    if len(case.grid.sides) == 2:
        source = case.grid.sides[0]
        kept = {name: batch[name] for name in (source.tokens, source.keep) if name in batch}
        now.encoded = model.get_encoder()(**kept, return_dict=True)
        now.batch.pop(source.tokens)
    logits, start = [], 0
    for size in chunks:
        if start and between is not None:
            between(now)
        arguments = dict(now.batch)
        arguments[side.tokens] = now.batch[side.tokens][:, start : start + size]
        if side.keep in now.batch:
            arguments[side.keep] = now.batch[side.keep][:, : start + size]
        if now.encoded is not None:
            arguments["encoder_outputs"] = now.encoded
        outputs = model(**arguments, past_key_values=now.cache, use_cache=True)
        logits.append(outputs.logits)
        now.cache = outputs.past_key_values
        start += size
    return logits
