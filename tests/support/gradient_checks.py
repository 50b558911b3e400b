"""Gradients of a model, by parameter."""

import torch
from torch import Tensor


def loss_gradients(model, batch: dict[str, Tensor], **arguments) -> dict[str, Tensor]:
    """Return {parameter: gradient of the loss} of one batch; see `gradients_after`.

    Args:
        model: with a loss.
        batch: with labels.
        arguments: further ones of the model.
    """
    return gradients_after(model, model(**batch, **arguments).loss)


def gradients_after(model, loss: Tensor) -> dict[str, Tensor]:
    """Return {parameter: gradient of the loss}; every parameter must have one.

    Args:
        model: that computed the loss.
        loss: scalar.

    Raises:
        AssertionError: if a parameter has no gradient, or one that is not finite.
    """
    model.zero_grad()
    loss.backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not without, f"parameters without a gradient: {without}"
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    infinite = [name for name, gradient in gradients.items() if not gradient.isfinite().all()]
    assert not infinite, f"parameters with a gradient that is not finite: {infinite}"
    return gradients


def assert_same_tensors(actual: dict[str, Tensor], expected: dict[str, Tensor], **tolerances):
    """Assert that two dictionaries hold the same names and values, and name the one that does
    not."""
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(
            actual[name], tensor, **tolerances, msg=lambda message, name=name: f"{name}: {message}"
        )
