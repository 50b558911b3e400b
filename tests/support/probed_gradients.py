"""Values and gradients of two computations of the same thing."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def assert_same_values_and_gradients(
    actual: Sequence[Tensor], expected: Sequence[Tensor], leaves: Iterable[Tensor], **tolerances
):
    """Assert that two lists of tensors agree, and the gradients of every leaf through them.

    Each tensor is weighted by its own random tensor, so that no two errors cancel. A leaf that a
    computation does not use has the gradient zero.

    Args:
        actual: results of the code under test.
        expected: results of the second source, from the same leaves.
        leaves: parameters and inputs that require a gradient.
        tolerances: of torch.testing.assert_close; the default fits float64.
    """
    tolerances = tolerances or {"rtol": 1e-9, "atol": 1e-11}
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, **tolerances)
    leaves = list(leaves)
    probes = [torch.randn_like(tensor) for tensor in expected]
    gradients = [
        torch.autograd.grad(
            sum((tensor * probe).sum() for tensor, probe in zip(results, probes, strict=True)),
            leaves,
            allow_unused=True,
            materialize_grads=True,
            retain_graph=True,
        )
        for results in (actual, expected)
    ]
    assert all(gradient.abs().max() > 0 for gradient in gradients[1]), "a leaf has no influence"
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, **tolerances)
