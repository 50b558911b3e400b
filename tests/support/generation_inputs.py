"""What generate() gets from a case, and what it wrote."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from family_cases import Case, Row
from padded_rows import alone, pad_rows


def prompt_sides(case: Case):
    """Return the sides that generate() is given: the source, or the prompt of a language model."""
    return case.grid.sides[:1]


def prompts(
    case: Case,
    rows: Sequence[Row] | None = None,
    layout: str = "left",
    *,
    extra: int = 0,
    config: PreTrainedConfig | None = None,
) -> dict[str, Tensor]:
    """Return the arguments of generate() for rows as one batch, for another config where given."""
    sides = prompt_sides(case)
    config = case.config() if config is None else config
    return pad_rows(case, config, layout, rows=rows, sides=sides, extra=extra).batch


def prompt_alone(case: Case, row: Row) -> dict[str, Tensor]:
    """Return the arguments of generate() for one row without padding.

    With a mask: without one transformers would take every pad token of the row for padding.
    """
    inputs = alone(case, row, sides=prompt_sides(case))
    for side in prompt_sides(case):
        inputs[side.keep] = torch.ones_like(inputs[side.tokens])
    return inputs


def written(case: Case, inputs: dict[str, Tensor], sequences: Tensor) -> Tensor:
    """Return the tokens behind the prompt or the start token, (rows, steps)."""
    if len(case.grid.sides) == 1:
        return sequences[:, inputs[case.written_side.tokens].shape[1] :]
    return sequences[:, 1:]


def generate(case: Case, model, inputs: dict[str, Tensor], *, seed: int = 0, **options) -> Tensor:
    """Call generate() and return what it wrote, (rows, steps)."""
    torch.manual_seed(seed)
    return written(case, inputs, model.generate(**inputs, **options))
