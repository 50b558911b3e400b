"""Contract, line "loss": the loss is a plain loop over the targets, -100 skipped, divided by
`num_items_in_batch` when given."""

import pytest
import torch

from family_cases import Case
from family_grids import representative_cases
from gradient_checks import assert_same_tensors, loss_gradients
from padded_rows import layouts_of, pad_rows
from plain_loss import plain_loss
from stepping import without_labels


def assert_loss_is_plain(case: Case, model, batch, *, smoothing: float = 0.0):
    """Assert that loss and logits of a batch fit each other."""
    outputs = model(**batch)
    logits = outputs.logits
    if logits is None:  # in training a family may never hold all of them
        logits = model.eval()(**without_labels(batch)).logits
    expected = plain_loss(
        logits.detach(),
        batch["labels"],
        smoothing=smoothing,
        label_shift=case.grid.label_shift,
        keep=batch.get(case.written_side.keep),
        num_smoothed=getattr(model.config, case.written_side.vocab_size),
    )
    assert outputs.loss.item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("layout", ["right", "mixed"])
@pytest.mark.parametrize("case", representative_cases("loss"))
def test_the_loss_equals_a_loop_over_the_targets(case, layout):
    model = case.model()
    assert_loss_is_plain(case, model, pad_rows(case, model.config, layout).batch)


@pytest.mark.parametrize("case", representative_cases("loss"))
def test_padding_leaves_the_loss_as_it_is_wherever_it_stands(case):
    model = case.model()
    expected = model(**pad_rows(case, model.config).batch).loss
    for layout in layouts_of(case):
        batch = pad_rows(case, model.config, layout, extra=2).batch
        torch.testing.assert_close(model(**batch).loss, expected)


@pytest.mark.parametrize("case", representative_cases("loss"))
def test_skipped_labels_count_for_nothing(case):
    model = case.model()
    batch = pad_rows(case, model.config).batch
    labels = batch["labels"].view(-1)
    labels[(labels != -100).nonzero()[::2]] = -100
    assert_loss_is_plain(case, model, batch)


@pytest.mark.parametrize("case", representative_cases("loss"))
def test_labels_alone_are_read_behind_the_start_token(case):
    if len(case.grid.sides) == 1:
        pytest.skip("reads its labels as they are")
    model = case.model()
    batch = pad_rows(case, model.config).batch
    expected = model(**batch)
    side = case.written_side
    alone = {name: value for name, value in batch.items() if name not in (side.tokens, side.keep)}
    actual = model(**alone)
    torch.testing.assert_close(actual.loss, expected.loss)
    keep = batch[side.keep].bool()
    torch.testing.assert_close(actual.logits[keep], expected.logits[keep])
    made = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    assert torch.equal(made[keep], batch[side.tokens][keep])
    assert not (made == -100).any()


@pytest.mark.parametrize("case", representative_cases("loss"))
def test_labels_smooth_the_loss_in_training_alone(case):
    if not hasattr(case.config(), "label_smoothing"):
        pytest.skip("has no label smoothing")
    model = case.model(label_smoothing=0.3, **case.grid.no_dropout)
    batch = pad_rows(case, model.config).batch
    assert_loss_is_plain(case, model.train(), batch, smoothing=0.3)
    assert_loss_is_plain(case, model.eval(), batch)


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("case", representative_cases("loss"))
def test_num_items_in_batch_divides_the_sum(case, as_tensor):
    model = case.model()
    batch = pad_rows(case, model.config).batch
    num_items = torch.tensor(57) if as_tensor else 57
    outputs = model(**batch, num_items_in_batch=num_items)
    expected = plain_loss(
        outputs.logits.detach(),
        batch["labels"],
        num_items=57,
        label_shift=case.grid.label_shift,
        num_smoothed=getattr(model.config, case.written_side.vocab_size),
    )
    assert outputs.loss.item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("case", representative_cases("loss"))
def test_gradients_of_the_parts_of_a_batch_add_up_to_the_whole(case):
    model = case.model()
    rows = case.rows(model.config)
    num_items = sum(int((row["labels"] != -100).sum()) for row in rows)
    if case.grid.label_shift:
        num_items -= len(rows) * case.grid.label_shift
    whole = loss_gradients(model, pad_rows(case, model.config, rows=rows).batch)
    parts = [
        loss_gradients(
            model,
            pad_rows(case, model.config, rows=part).batch,
            num_items_in_batch=num_items,
        )
        for part in (rows[:1], rows[1:])
    ]
    added = {name: parts[0][name] + parts[1][name] for name in whole}
    assert_same_tensors(added, whole, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", representative_cases("loss"))
def test_a_batch_without_targets_is_refused_unless_it_is_a_part(case):
    model = case.model()
    batch = pad_rows(case, model.config).batch
    batch["labels"].fill_(-100)
    with pytest.raises(ValueError, match=r"-100.*num_items_in_batch"):
        model(**batch)
    outputs = model(**batch, num_items_in_batch=11)
    assert outputs.loss.item() == 0.0
    assert model(**batch, num_items_in_batch=torch.tensor(0)).loss.item() == 0.0  # none anywhere
    gradients = loss_gradients(model, batch, num_items_in_batch=torch.tensor(11))
    assert all((gradient == 0).all() for gradient in gradients.values())


@pytest.mark.parametrize("case", representative_cases("loss"))
def test_the_loss_is_a_float32_at_least(case):
    batch = pad_rows(case, case.config()).batch
    for dtype, expected in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        assert case.model(dtype=dtype)(**batch).loss.dtype == expected
