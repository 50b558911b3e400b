"""The grids of all families, and the parameters that a contract test runs over."""

import pytest

from decoder_lm_grid import DECODER_LM
from family_cases import Grid, full_groups_of, representatives_of
from hf_seqmodels.auto_classes import CONTRACT
from rnn_lm_grid import RNN_LM
from rnn_seq2seq_grid import RNN_SEQ2SEQ
from text_encoder_grid import TEXT_ENCODER
from transformer_seq2seq_grid import TRANSFORMER_SEQ2SEQ

GRIDS: tuple[Grid, ...] = (RNN_SEQ2SEQ, TRANSFORMER_SEQ2SEQ, DECODER_LM, RNN_LM, TEXT_ENCODER)


def _marks(grid: Grid, line: str):
    assert line in CONTRACT, f"{line!r} is no line of CONTRACT: {', '.join(CONTRACT)}"
    reason = grid.family.unkept_promises.get(line)
    return [pytest.mark.skip(reason=f"{grid.model_type} does not promise this: {reason}")] * bool(
        reason
    )


def representative_cases(
    line: str, *, only: tuple[str, ...] = (), generates: bool = False, has_reference: bool = False
):
    """Return the parameters of a test of one line of the contract.

    Args:
        line: key of CONTRACT; a family that does not promise it is skipped, with its reason.
        only: names of cases to run; empty is all. A family without any of these runs its first.
        generates: leave out families without generate().
        has_reference: leave out families without two implementations.
    """
    parameters = []
    for grid in GRIDS:
        if (generates and not grid.generates) or (has_reference and not grid.has_reference):
            continue
        cases = representatives_of(grid)
        chosen = [case for case in cases if case.id in only] or (cases[:1] if only else cases)
        parameters += [
            pytest.param(case, id=f"{grid.model_type}-{case.id}", marks=_marks(grid, line))
            for case in chosen
        ]
    return parameters


def full_groups(line: str, *, generates: bool = False, has_reference: bool = False):
    """Return the parameters of a test of one line that runs the whole product of the options.

    Args:
        line: key of CONTRACT; a family that does not promise it is skipped, with its reason.
        generates: leave out families without generate().
        has_reference: leave out families without two implementations.
    """
    return [
        pytest.param(group, id=f"{grid.model_type}-{group.id}", marks=_marks(grid, line))
        for grid in GRIDS
        if (grid.generates or not generates) and (grid.has_reference or not has_reference)
        for group in full_groups_of(grid)
    ]
