"""Order of reading in padded batches, last outputs, and dropout on sequences."""

import pytest
import torch

from hf_seqmodels.models.layers_recurrent import (
    SequenceDropout,
    SequenceLayout,
    keep_mask_from,
    keep_rows,
    last_outputs,
)

B, S, I, D = 4, 6, 5, 8  # noqa: E741 (the legend of the package)
MASKS = {
    "right": [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]],
    "left": [[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 1, 1]],
    "holes": [[1, 0, 1, 1, 0, 1], [0, 1, 0, 1, 0, 0], [0, 0, 1, 0, 0, 0], [1, 1, 0, 0, 1, 1]],
    "empty_rows": [[0, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [0] * 6, [0, 1, 0, 1, 0, 1]],
    "all_empty": [[0] * 6] * 4,
    "none": [[1] * 6] * 4,
}


@pytest.mark.parametrize("dtype", [torch.long, torch.bool, torch.float32])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_real_tokens_come_first_in_reading_order(mask, reverse, dtype):
    inputs = torch.randn(B, S, I)
    attention_mask = torch.tensor(MASKS[mask]).to(dtype)
    layout = SequenceLayout(attention_mask, reverse=reverse, like=inputs)
    arranged = layout.arrange(inputs)
    for b, row in enumerate(MASKS[mask]):
        real = [s for s in range(S) if row[s]]
        expected = [inputs[b, s] for s in (reversed(real) if reverse else real)]
        if layout.lengths is None:
            assert len(real) == S
        else:
            assert layout.lengths[b] == len(real)
        assert all(torch.equal(arranged[b, i], one) for i, one in enumerate(expected))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_restoring_undoes_arranging(mask, reverse):
    inputs = torch.randn(B, S, I)
    layout = SequenceLayout(torch.tensor(MASKS[mask]), reverse=reverse, like=inputs)
    wide = torch.cat([layout.arrange(inputs)] * 2, dim=-1)  # another width than the input's
    assert torch.equal(layout.restore(wide), torch.cat([inputs] * 2, dim=-1))


@pytest.mark.parametrize("mask", [None, "none"])
def test_a_batch_without_padding_stays_as_it_is(mask):
    inputs = torch.randn(B, S, I)
    attention_mask = None if mask is None else torch.tensor(MASKS[mask])
    layout = SequenceLayout(attention_mask, reverse=False, like=inputs)
    assert (layout.keep_mask, layout.lengths, layout.order) == (None, None, None)
    assert layout.arrange(inputs) is inputs
    assert layout.restore(inputs) is inputs


def test_reversing_without_padding_flips_the_rows():
    inputs = torch.randn(B, S, I)
    layout = SequenceLayout(None, reverse=True, like=inputs)
    assert layout.lengths is None
    assert torch.equal(layout.arrange(inputs), inputs.flip(1))


def test_a_layout_of_one_token_is_that_token():
    inputs = torch.randn(1, 1, I)
    for attention_mask in (None, torch.ones(1, 1), torch.zeros(1, 1)):
        layout = SequenceLayout(attention_mask, reverse=True, like=inputs)
        assert torch.equal(layout.restore(layout.arrange(inputs)), inputs)


@pytest.mark.parametrize("num_directions", [1, 2])
@pytest.mark.parametrize("lengths", [None, (6, 2, 1, 4), (3, 0, 6, 0)])
def test_last_outputs_are_those_at_the_last_token_each_direction_read(lengths, num_directions):
    outputs = torch.randn(B, S, D)
    for b, length in enumerate(lengths or ()):
        outputs[b, length:] = 0  # as layers return it
    actual = last_outputs(
        outputs, None if lengths is None else torch.tensor(lengths), num_directions
    )
    width = D // num_directions
    for b in range(B):
        length = S if lengths is None else lengths[b]
        expected = torch.zeros(D)
        if length:
            expected[:width] = outputs[b, length - 1, :width]
            expected[width:] = outputs[b, 0, width:]  # read from the right: the first comes last
        assert torch.equal(actual[b], expected)


def test_keep_mask_marks_the_first_positions():
    actual = keep_mask_from(torch.tensor([3, 0, 6, 1]), torch.zeros(B, S, I))
    assert actual.tolist() == [[s < n for s in range(S)] for n in (3, 0, 6, 1)]


def test_keep_rows_takes_new_rows_where_true():
    new, old = (torch.randn(B, D), torch.randn(B, D)), (torch.randn(B, D), torch.randn(B, D))
    kept = keep_rows(torch.tensor([True, False, False, True]), new, old)
    for part, one, other in zip(kept, new, old, strict=True):
        assert torch.equal(part, torch.stack([one[0], other[1], other[2], one[3]]))


# Dropout on sequences

RATE = 0.3
LONG = torch.ones(40, 50, 60)  # enough elements for a frequency to be known to a per cent


def variational(rate: float = RATE) -> SequenceDropout:
    """Return a dropout with one mask per sequence."""
    return SequenceDropout(rate, variational=True)


@pytest.mark.parametrize("is_variational", [False, True])
def test_dropout_zeroes_at_its_rate_and_keeps_the_mean(is_variational):
    dropped = SequenceDropout(RATE, variational=is_variational).train()(LONG)
    values = dropped.unique()
    torch.testing.assert_close(values, torch.tensor([0.0, 1 / (1 - RATE)]))
    # one mask per sequence leaves 40 * 60 independent draws: four standard deviations
    spread = 4 * (RATE * (1 - RATE) / (40 * 60)) ** 0.5
    assert (dropped == 0).float().mean().item() == pytest.approx(RATE, abs=spread)
    assert dropped.mean().item() == pytest.approx(1.0, abs=spread / (1 - RATE))


def test_one_mask_holds_for_a_whole_sequence_and_differs_between_sequences():
    dropped = variational().train()(LONG)
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert not torch.equal(dropped[0], dropped[1])


def test_elementwise_dropout_draws_anew_at_every_step():
    dropped = SequenceDropout(RATE, variational=False).train()(LONG)
    assert not torch.equal(dropped[:, 0], dropped[:, 1])


@pytest.mark.parametrize("is_variational", [False, True])
def test_evaluation_and_rate_zero_change_nothing(is_variational):
    inputs = torch.randn(B, S, I)
    for dropout in (
        SequenceDropout(RATE, variational=is_variational).eval(),
        SequenceDropout(0.0, variational=is_variational).train(),
    ):
        assert torch.equal(dropout(inputs), inputs)
        assert dropout.sequence_mask(inputs[:, 0]) is None
        assert torch.equal(dropout.step(inputs[:, 0], None), inputs[:, 0])


def test_steps_with_the_mask_of_a_sequence_equal_the_whole():
    dropout, inputs = variational().train(), torch.randn(B, S, I)
    torch.manual_seed(3)
    whole = dropout(inputs)
    torch.manual_seed(3)
    mask = dropout.sequence_mask(inputs[:, 0])
    steps = [dropout.step(inputs[:, t], mask) for t in range(S)]
    torch.testing.assert_close(torch.stack(steps, dim=1), whole)


def test_elementwise_steps_have_no_mask_and_draw_their_own():
    dropout = SequenceDropout(RATE, variational=False).train()
    assert dropout.sequence_mask(LONG[:, 0]) is None
    steps = torch.stack([dropout.step(LONG[:, t], None) for t in range(10)], dim=1)
    assert (steps == 0).float().mean().item() == pytest.approx(RATE, abs=0.02)
    assert not torch.equal(steps[:, 0], steps[:, 1])


@pytest.mark.parametrize("is_variational", [False, True])
def test_gradient_passes_through_what_is_kept(is_variational):
    inputs = torch.randn(B, S, I, requires_grad=True)
    dropped = SequenceDropout(RATE, variational=is_variational).train()(inputs)
    (gradient,) = torch.autograd.grad(dropped.sum(), inputs)
    expected = torch.where(dropped == 0, 0.0, 1 / (1 - RATE))
    torch.testing.assert_close(gradient, expected)
