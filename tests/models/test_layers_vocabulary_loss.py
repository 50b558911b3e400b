"""The loss over a large vocabulary: values and gradients against torch's own cross-entropy."""

import pytest
import torch
import torch.nn.functional as F

from hf_seqmodels.models import layers_products, layers_vocabulary_loss
from hf_seqmodels.models.layers_products import prefers_onednn, product
from hf_seqmodels.models.layers_vocabulary_loss import output_layer_loss, vocabulary_loss

NUM_TARGETS, WIDTH, VOCABULARY = 10, 5, 23


def make_inputs(dtype=torch.float64, num_targets=NUM_TARGETS):
    """Return h, W, b and y."""
    generator = torch.Generator().manual_seed(1)
    shapes = ((num_targets, WIDTH), (VOCABULARY, WIDTH), (VOCABULARY,))
    hidden, weight, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in shapes
    )
    return hidden, weight, bias, torch.randint(VOCABULARY, (num_targets,), generator=generator)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("tokens_at_once", [1, 3, 10, 99])
def test_equals_cross_entropy_over_all_logits(monkeypatch, tokens_at_once, smoothing, with_bias):
    monkeypatch.setattr(layers_vocabulary_loss, "CHUNK_ELEMENTS", tokens_at_once * VOCABULARY + 1)
    hidden, weight, bias, targets = make_inputs()
    parameters = [hidden, weight, bias] if with_bias else [hidden, weight]
    bias = bias if with_bias else None
    expected = F.cross_entropy(
        F.linear(hidden, weight, bias), targets, reduction="sum", label_smoothing=smoothing
    )
    loss = vocabulary_loss(hidden, weight, bias, targets, smoothing=smoothing)
    torch.testing.assert_close(loss, expected)
    # any factor behind the loss reaches the gradients
    for actual, wanted in zip(
        torch.autograd.grad(loss * 0.7, parameters),
        torch.autograd.grad(expected * 0.7, parameters),
        strict=True,
    ):
        torch.testing.assert_close(actual, wanted)


def test_the_gradient_is_the_slope_of_the_loss():
    hidden, weight, bias, targets = make_inputs()
    torch.autograd.gradcheck(
        lambda *parts: vocabulary_loss(*parts, targets, smoothing=0.2), (hidden, weight, bias)
    )


def test_no_more_scores_exist_than_one_part_has(monkeypatch):
    monkeypatch.setattr(layers_vocabulary_loss, "CHUNK_ELEMENTS", 3 * VOCABULARY)
    sizes = []

    def noted(*parts):
        result = product(*parts)
        sizes.append(result.shape)
        return result

    monkeypatch.setattr(layers_vocabulary_loss, "product", noted)
    vocabulary_loss(*make_inputs()).backward()
    scores = [shape for shape in sizes if shape[1] == VOCABULARY]
    assert scores == [(3, VOCABULARY)] * 3 + [(1, VOCABULARY)]


def test_what_needs_no_gradient_gets_none_and_costs_none(monkeypatch):
    hidden, weight, bias, targets = make_inputs()
    loss = vocabulary_loss(hidden.detach(), weight, bias.detach(), targets)
    loss.backward()
    assert hidden.grad is None and bias.grad is None and weight.grad is not None
    products = []
    monkeypatch.setattr(
        layers_vocabulary_loss, "product", lambda *p: products.append(p) or product(*p)
    )
    with torch.no_grad():
        torch.testing.assert_close(vocabulary_loss(hidden, weight, bias, targets), loss.detach())
    assert len(products) == 1


def test_no_targets_give_zero_and_zero_gradients():
    hidden, weight, bias, targets = make_inputs(num_targets=0)
    loss = vocabulary_loss(hidden, weight, bias, targets)
    loss.backward()
    assert loss == 0
    assert (weight.grad == 0).all() and (bias.grad == 0).all() and hidden.grad.shape == (0, WIDTH)


@pytest.mark.parametrize("kind", ["weights", "autocast"])
def test_half_precision_sums_in_single(kind):
    dtype = torch.bfloat16 if kind == "weights" else torch.float32
    hidden, weight, bias, targets = make_inputs(dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
        loss = vocabulary_loss(hidden, weight, bias, targets)
    loss.backward()
    assert loss.dtype == torch.float32
    assert {part.grad.dtype for part in (hidden, weight, bias)} == {dtype}
    exact = vocabulary_loss(*make_inputs()).item()
    assert loss.item() == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("by_onednn", [False, True])
def test_products_equal_linear_for_any_strides(monkeypatch, by_onednn):
    if by_onednn and not prefers_onednn():
        pytest.skip("this machine multiplies by MKL alone")
    monkeypatch.setattr(layers_products, "prefers_onednn", lambda: by_onednn)
    hidden, weight, bias, _ = (part.detach() for part in make_inputs(torch.float32))
    scores = torch.randn(NUM_TARGETS, VOCABULARY)
    torch.testing.assert_close(product(hidden, weight, bias), F.linear(hidden, weight, bias))
    torch.testing.assert_close(product(scores, weight.t()), scores @ weight)
    torch.testing.assert_close(product(scores.t(), hidden.t()), scores.t() @ hidden)


def test_a_weight_of_another_kind_is_left_to_its_layer(monkeypatch):
    class Shard(torch.Tensor):
        """As a DTensor of tensor parallelism, which a plain product refuses."""

    hidden, weight, _, targets = make_inputs()
    layer = torch.nn.Linear(WIDTH, VOCABULARY, bias=False, dtype=torch.float64)
    layer.weight = torch.nn.Parameter(weight.detach().as_subclass(Shard))
    monkeypatch.setattr(layers_vocabulary_loss, "vocabulary_loss", None)
    loss = output_layer_loss(layer, hidden, targets)
    expected = F.cross_entropy(F.linear(hidden, weight), targets, reduction="sum")
    torch.testing.assert_close(loss.as_subclass(torch.Tensor), expected)
