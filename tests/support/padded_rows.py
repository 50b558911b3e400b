"""Batches of rows in every layout of padding.

Padding holds random ids of the vocabulary, never the pad token alone: what stands there must not
matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedConfig

from family_cases import Case, Row, Side

LAYOUTS = ("right", "left", "holes", "mixed")


def layouts_of(case: Case) -> tuple[str, ...]:
    """Return the layouts that the case takes."""
    has_holes = case.grid.has_holes(case.config())
    return LAYOUTS if has_holes else tuple(name for name in LAYOUTS if name != "holes")


def skip_unless_taken(case: Case, layout: str):
    """Skip a test of a layout that the case does not take."""
    if layout not in layouts_of(case):
        pytest.skip("refuses padding between tokens")


@dataclass(frozen=True)
class PaddedRows:
    """A batch and where its rows are.

    Args:
        batch: arguments of the model.
        positions: {argument of the ids: positions of the real tokens of each row}.
    """

    batch: dict[str, Tensor]
    positions: dict[str, list[Tensor]]


def real_positions(
    layout: str, row: int, num_real: int, length: int, *, has_holes: bool = True
) -> Tensor:
    """Return where the real tokens of a row stand, in ascending order.

    Args:
        layout: "right" and "left" name the side of the padding, "holes" scatters it, "mixed" takes
            one of the three for each row.
        row: number of the row.
        num_real: tokens of the row.
        length: of the batch.
        has_holes: whether "mixed" may scatter it.
    """
    if layout == "mixed":
        layout = LAYOUTS[row % (3 if has_holes else 2)]
    if layout == "right":
        return torch.arange(num_real)
    if layout == "left":
        return torch.arange(length - num_real, length)
    assert layout == "holes", layout
    generator = torch.Generator().manual_seed(100 + row)
    return torch.randperm(length, generator=generator)[:num_real].sort().values


def pad_side(
    rows: Sequence[Row],
    side: Side,
    layout: str,
    *,
    vocab_size: int,
    length: int,
    has_holes: bool = True,
):
    """Return the arguments of one side, padded to `length`, and the positions of the rows."""
    generator = torch.Generator().manual_seed(length)
    num_rows = len(rows)
    tokens = torch.randint(vocab_size, (num_rows, length), generator=generator)
    keep = torch.zeros(num_rows, length, dtype=torch.long)
    fillers = dict.fromkeys(side.aligned, -100) | dict.fromkeys(side.kinds, 0)
    aligned = {
        name: torch.full_like(tokens, filler) for name, filler in fillers.items() if name in rows[0]
    }
    positions = []
    for index, row in enumerate(rows):
        real = real_positions(layout, index, row[side.tokens].shape[0], length, has_holes=has_holes)
        tokens[index, real] = row[side.tokens]
        keep[index, real] = 1
        for name, values in aligned.items():
            values[index, real] = row[name]
        positions.append(real)
    return {side.tokens: tokens, side.keep: keep, **aligned}, positions


def pad_rows(
    case: Case,
    config: PreTrainedConfig,
    layout: str = "right",
    *,
    rows: Sequence[Row] | None = None,
    sides: Sequence[Side] | None = None,
    extra: int = 0,
) -> PaddedRows:
    """Return rows as one batch.

    Args:
        case: names the sides and makes the rows.
        config: of the model at hand.
        layout: of the padding, on every side.
        rows: without padding; None takes those of the case.
        sides: those to put into the batch; None is all.
        extra: positions of padding that every row gets beyond the longest one.
    """
    batch: dict[str, Tensor] = {}
    positions = {}
    rows = case.rows(config) if rows is None else rows
    sides = case.grid.sides if sides is None else sides
    for side in sides:
        length = max(row[side.tokens].shape[0] for row in rows) + extra
        arguments, positions[side.tokens] = pad_side(
            rows,
            side,
            layout,
            vocab_size=getattr(config, side.vocab_size),
            length=length,
            has_holes=case.grid.has_holes(config),
        )
        batch |= arguments
    for name in rows[0]:
        if name not in names_of(case.grid.sides):
            batch[name] = torch.stack([row[name] for row in rows])
    return PaddedRows(batch, positions)


def names_of(sides: Sequence[Side]) -> set[str]:
    """Return the names of what a row has once per token."""
    return {name for side in sides for name in (side.tokens, *side.aligned, *side.kinds)}


def cut(case: Case, row: Row, length: int) -> Row:
    """Return the first tokens of a row, on every side."""
    per_token = names_of(case.grid.sides)
    return {name: value[:length] if name in per_token else value for name, value in row.items()}


def alone(case: Case, row: Row, *, sides: Sequence[Side] | None = None) -> dict[str, Tensor]:
    """Return one row as a batch of one, without any padding and without a mask."""
    left_out = names_of(case.grid.sides) - names_of(case.grid.sides if sides is None else sides)
    return {name: values[None] for name, values in row.items() if name not in left_out}
