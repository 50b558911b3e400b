"""Contract, line "fast_form": the fast form equals the reference form, values and gradients.

The batch has padding of every layout on every side, and a row of padding alone.
"""

import pytest
import torch

from family_cases import Case
from family_grids import full_groups, representative_cases
from gradient_checks import assert_same_tensors, gradients_after, loss_gradients
from padded_rows import cut, pad_rows
from stepping import run_in_chunks

TOLERANCES = {"rtol": 1e-9, "atol": 1e-11}


def make_batch(case: Case, config):
    """Return a batch with labels, its last row padding alone."""
    rows = case.rows(config)
    batch = pad_rows(case, config, "mixed", rows=[*rows, rows[0]], extra=1).batch
    for side in case.grid.sides:
        batch[side.keep][-1] = 0
        for name in side.aligned:
            batch[name][-1] = -100
    return batch


def real_outputs(case: Case, outputs, batch) -> dict[str, torch.Tensor]:
    """Return the loss and what the model puts out at real tokens; the rest means nothing."""
    real = {"loss": outputs.loss}
    for side in case.grid.sides:
        real |= {name: outputs[name][batch[side.keep].bool()] for name in side.outputs}
    for index, weights in enumerate(outputs.get("cross_attentions") or ()):
        keep = batch[case.written_side.keep].bool()
        real[f"cross_attentions.{index}"] = weights.transpose(1, 2)[keep]
    return real


def assert_forms_agree(case: Case):
    """Assert that both forms give the same outputs, and the same gradient to every parameter."""
    fast, reference = (case.model(implementation=name) for name in ("fast", "reference"))
    batch = make_batch(case, fast.config)
    outputs = [model(**batch, output_attentions=True) for model in (fast, reference)]
    real = [real_outputs(case, output, batch) for output in outputs]
    assert_same_tensors(*real, **TOLERANCES)
    fast_gradients = gradients_after(fast, outputs[0].loss)
    assert_same_tensors(fast_gradients, gradients_after(reference, outputs[1].loss), **TOLERANCES)


@pytest.mark.parametrize("group", full_groups("fast_form", has_reference=True))
def test_fast_form_equals_reference_in_any_combination(group):
    for case in group.cases:
        with case.named():
            assert_forms_agree(case)


@pytest.mark.parametrize("case", representative_cases("fast_form", has_reference=True))
def test_fast_form_equals_reference(case):
    assert_forms_agree(case)


@pytest.mark.parametrize("case", representative_cases("fast_form", has_reference=True))
def test_fast_form_equals_reference_without_padding(case):
    fast, reference = (case.model(implementation=name) for name in ("fast", "reference"))
    length = 2 + case.grid.label_shift
    long_enough = [
        row for row in case.rows(fast.config) if row[case.written_side.tokens].shape[0] >= length
    ]
    rows = [cut(case, row, length) for row in long_enough[:2]]
    batch = pad_rows(case, fast.config, rows=rows).batch
    for side in case.grid.sides:
        assert batch.pop(side.keep).all()
    assert_same_tensors(
        *(loss_gradients(model, batch) for model in (fast, reference)), **TOLERANCES
    )


@pytest.mark.parametrize(
    "case", representative_cases("fast_form", generates=True, has_reference=True)
)
def test_fast_form_equals_reference_from_a_cache(case):
    fast, reference = (case.model(implementation=name) for name in ("fast", "reference"))
    batch = pad_rows(case, fast.config, "mixed").batch
    with torch.no_grad():
        logits = [run_in_chunks(case, model, batch, (2, 1, 2)) for model in (fast, reference)]
    keep = batch[case.written_side.keep].bool()
    fast_logits, reference_logits = (torch.cat(chunks, dim=1)[keep] for chunks in logits)
    torch.testing.assert_close(fast_logits, reference_logits, **TOLERANCES)


@pytest.mark.parametrize("case", representative_cases("fast_form", has_reference=True))
def test_fast_form_is_the_default_and_changes_no_weight(case):
    assert case.grid.family.config_class().implementation == "fast"
    fast, reference = (case.model(implementation=name) for name in ("fast", "reference"))
    assert_same_tensors(dict(fast.state_dict()), dict(reference.state_dict()), rtol=0, atol=0)
