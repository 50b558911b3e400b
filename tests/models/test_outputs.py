"""The loss against a loop over the targets on Python floats."""

import math

import pytest
import torch

from hf_seqmodels.models.outputs import IGNORED_LABEL, token_loss
from plain_loss import plain_loss

B, T, V = 3, 5, 11
LABELS = torch.tensor([[4, 0, 10, 3, -100], [7, -100, -100, 2, 2], [-100, -100, -100, -100, -100]])
NUM_TARGETS = 7


@pytest.mark.parametrize("num_items", [None, 12, torch.tensor(12)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_loss_is_the_mean_over_counted_targets(smoothing, num_items):
    logits = torch.randn(B, T, V, dtype=torch.float64) * 3
    actual = token_loss(logits, LABELS, smoothing=smoothing, num_items_in_batch=num_items)
    expected = plain_loss(
        logits, LABELS, smoothing=smoothing, num_items=None if num_items is None else 12
    )
    assert actual.dtype == torch.float64
    assert actual.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_gradient_is_probability_less_target(smoothing):
    """dJ/du = softmax(u) - q over N, with q the smoothed target, and zero where skipped."""
    logits = torch.randn(B, T, V, dtype=torch.float64, requires_grad=True)
    (actual,) = torch.autograd.grad(token_loss(logits, LABELS, smoothing=smoothing), logits)
    expected = torch.zeros(B, T, V, dtype=torch.float64)
    for b in range(B):
        for t in range(T):
            if LABELS[b, t] != IGNORED_LABEL:
                exponentials = [math.exp(u) for u in logits[b, t].tolist()]
                for v in range(V):
                    target = (1 - smoothing) * (v == LABELS[b, t]) + smoothing / V
                    expected[b, t, v] = exponentials[v] / sum(exponentials) - target
    torch.testing.assert_close(actual, expected / NUM_TARGETS)


def test_chain_rule_multiplies_the_probabilities_of_the_targets():
    """exp(-N loss) is p(x_1..x_N) = prod_n p(x_n | x_<n)."""
    logits = torch.randn(1, T, V, dtype=torch.float64)
    labels = torch.tensor([[3, 1, 4, 1, 5]])
    product = 1.0
    for scores, target in zip(logits[0].tolist(), labels[0].tolist(), strict=True):
        exponentials = [math.exp(score) for score in scores]
        product *= exponentials[target] / sum(exponentials)
    assert math.exp(-T * token_loss(logits, labels).item()) == pytest.approx(product)


def test_perplexity_is_two_to_the_bits():
    """exp(loss) = 2^J with J in bits; uniform scores have the perplexity V."""
    logits = torch.randn(B, T, V, dtype=torch.float64)
    bits = plain_loss(logits, LABELS) / math.log(2)
    assert math.exp(token_loss(logits, LABELS).item()) == pytest.approx(2**bits)
    assert math.exp(token_loss(torch.zeros(B, T, V), LABELS).item()) == pytest.approx(V)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_computed_in_float32(dtype):
    logits = (torch.randn(B, T, V) * 5).to(dtype)
    loss = token_loss(logits, LABELS)
    assert loss.dtype == torch.float32
    expected = plain_loss(logits.double(), LABELS)
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    in_half = torch.nn.functional.cross_entropy(logits.flatten(0, 1), LABELS.flatten())
    assert abs(in_half.item() - expected) > 1e-4  # what the conversion is for


def test_large_scores_do_not_overflow():
    logits = torch.zeros(1, 1, V)
    logits[0, 0, 3] = 1e4
    assert token_loss(logits, torch.tensor([[3]])).item() == 0.0
    assert token_loss(logits, torch.tensor([[2]])).item() == pytest.approx(1e4)


def test_parts_of_a_batch_add_up_to_the_whole():
    logits = torch.randn(B, T, V, dtype=torch.float64)
    whole = token_loss(logits, LABELS)
    parts = [
        token_loss(logits[b : b + 1], LABELS[b : b + 1], num_items_in_batch=NUM_TARGETS)
        for b in range(B)
    ]
    torch.testing.assert_close(sum(parts), whole)


@pytest.mark.parametrize("num_items", [7, 0, torch.tensor(0)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_part_without_targets_adds_zero(smoothing, num_items):
    logits = torch.randn(B, T, V, requires_grad=True)
    labels = torch.full((B, T), IGNORED_LABEL)
    loss = token_loss(logits, labels, smoothing=smoothing, num_items_in_batch=num_items)
    assert loss.item() == 0.0
    (gradient,) = torch.autograd.grad(loss, logits)
    assert (gradient == 0).all()


def test_a_batch_without_targets_is_an_error():
    with pytest.raises(
        ValueError,
        match=r"at least one target, got only -100 in 15 positions\. Drop such a batch, or pass "
        r"num_items_in_batch",
    ):
        token_loss(torch.randn(B, T, V), torch.full((B, T), IGNORED_LABEL))


def test_one_row_of_one_target():
    logits = torch.randn(1, 1, V)
    expected = plain_loss(logits, torch.tensor([[6]]))
    assert token_loss(logits, torch.tensor([[6]])).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16])
def test_labels_of_any_integer_type_mean_the_same(dtype):
    logits = torch.randn(B, T, V)
    torch.testing.assert_close(token_loss(logits, LABELS.to(dtype)), token_loss(logits, LABELS))
