"""Cross-entropy over a large vocabulary without holding all scores.

Shapes: N target tokens, D width of what the output layer reads, V vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers_products import product

CHUNK_ELEMENTS = 2**21  # scores at a time: 8 MB, so that they stay in a processor's cache
PLAIN_TENSORS = (nn.Parameter, Tensor)


class VocabularyLoss(torch.autograd.Function):
    """Sum over the targets of -(1 - s) log p(y_n) - s/V sum_v log p(v), p = softmax(W h_n + b).

    Loss and gradients are computed together, some tokens at a time: with q = (1 - s) onehot(y) +
    s/V the gradient of the scores is p - q, from which the gradients of h, W and b follow before
    the next tokens are looked at.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        with_gradients: bool,
    ) -> Tensor:
        """Compute the sum and its gradients.

        Args:
            ctx: of the function.
            hidden: h, (N, D).
            weight: W, (V, D), of the same type.
            bias: b, (V).
            targets: y, (N).
            smoothing: s.
            with_gradients: whether `backward` may follow.

        Returns:
            The sum, in nats.
        """
        wanted = [with_gradients and needed for needed in ctx.needs_input_grad[:3]]
        needs_hidden, needs_weight, needs_bias = wanted
        # each chunk adds to a gradient of V * D numbers, which few tokens would not be worth
        size = max(1, CHUNK_ELEMENTS // weight.shape[0], weight.shape[1] // 2)
        sums = GradientSums()
        total = hidden.new_zeros((), dtype=torch.promote_types(weight.dtype, torch.float32))
        hidden_grad = torch.zeros_like(hidden) if needs_hidden else None
        for start in range(0, hidden.shape[0], size):
            part = hidden[start : start + size]
            scores = product(part, weight, bias).to(total.dtype)
            loss, score_grad = _loss_and_gradient(scores, targets[start : start + size], smoothing)
            total += loss
            if needs_bias:
                sums.add("bias", score_grad.sum(dim=0))
            score_grad = score_grad.to(weight.dtype)
            if needs_hidden:
                hidden_grad[start : start + size] = product(score_grad, weight.t())
            if needs_weight:
                sums.add("weight", product(score_grad.t(), part.t()).to(total.dtype))
        ctx.gradients = (
            hidden_grad,
            sums.get("weight", weight) if needs_weight else None,
            sums.get("bias", bias) if needs_bias else None,
        )
        return total

    @staticmethod
    def backward(ctx: Any, loss_grad: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients that `forward` has left.

        Args:
            ctx: of the function.
            loss_grad: gradient of the sum.

        Returns:
            Gradients of h, W and b, None where none is wanted.
        """
        scaled = [
            None if gradient is None else gradient * loss_grad.to(gradient.dtype)
            for gradient in ctx.gradients
        ]
        return (*scaled, None, None, None)


class GradientSums:
    """Gradients that are summed over parts, in float32 at least."""

    def __init__(self):
        self.sums: dict[str, Tensor] = {}

    def add(self, name: str, part: Tensor):
        """Add a part, which must not be used again."""
        if name in self.sums:
            self.sums[name] += part
        else:
            self.sums[name] = part

    def get(self, name: str, like: Tensor) -> Tensor:
        """Return a sum in the type of its parameter; zeros if nothing was added."""
        return self.sums[name].to(like.dtype) if name in self.sums else torch.zeros_like(like)


def _loss_and_gradient(scores: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the sum of the losses and its gradient (N, V) in the scores."""
    log_probabilities = scores.log_softmax(dim=-1)
    loss = -(1 - smoothing) * log_probabilities.gather(1, targets[:, None]).sum()
    if smoothing:
        loss = loss - smoothing * log_probabilities.mean(dim=-1).sum()
    gradient = log_probabilities.exp_()
    if smoothing:
        gradient.sub_(smoothing / scores.shape[1])
    at_targets = gradient.new_full((len(targets), 1), smoothing - 1)
    return loss, gradient.scatter_add_(1, targets[:, None], at_targets)


def vocabulary_loss(
    hidden_states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    smoothing: float = 0.0,
) -> Tensor:
    """Return the summed loss of targets under an output layer, see `VocabularyLoss`.

    Equal to `cross_entropy(linear(hidden_states, weight, bias), targets, reduction="sum")`, which
    holds N * V scores and as many gradients; this holds some rows of them. Gradients of gradients
    do not exist.

    Args:
        hidden_states: h, (N, D).
        weight: W, (V, D).
        bias: b, (V); None is zero.
        targets: y, (N), every one to be counted.
        smoothing: probability mass s spread evenly over the V tokens, in [0, 1).

    Returns:
        Scalar, in nats, float32 at least.
    """
    device_type = hidden_states.device.type
    dtype = weight.dtype
    if torch.is_autocast_enabled(device_type):
        dtype = torch.get_autocast_dtype(device_type)
    with torch.autocast(device_type, enabled=False):
        return VocabularyLoss.apply(
            hidden_states.to(dtype),
            weight.to(dtype),
            None if bias is None else bias.to(dtype),
            targets,
            smoothing,
            torch.is_grad_enabled(),
        )


def is_plain_linear(layer: nn.Module) -> bool:
    """Say whether a layer's weight may be read beside its forward pass.

    Not where something stands in between: adapters, shards, weights on another device.

    Args:
        layer: an output layer.

    Returns:
        True for a torch layer with nothing added.
    """
    has_hooks = bool(layer._forward_pre_hooks or layer._forward_hooks or hasattr(layer, "_hf_hook"))
    # a tensor parallel layer is a Linear still, whose weight is a DTensor
    return type(layer) is nn.Linear and not has_hooks and type(layer.weight) in PLAIN_TENSORS


def output_layer_loss(
    output_layer: nn.Module, hidden_states: Tensor, targets: Tensor, *, smoothing: float = 0.0
) -> Tensor:
    """Return the summed loss of targets under an output layer: by `vocabulary_loss` if it is plain,
    else from all of its scores.

    Args:
        output_layer: (N, D) -> (N, V).
        hidden_states: h, (N, D).
        targets: y, (N), every one to be counted.
        smoothing: probability mass spread evenly over the V tokens, in [0, 1).

    Returns:
        Scalar, in nats, float32 at least.
    """
    if is_plain_linear(output_layer):
        weight, bias = output_layer.weight, output_layer.bias
        return vocabulary_loss(hidden_states, weight, bias, targets, smoothing=smoothing)
    scores = output_layer(hidden_states)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return F.cross_entropy(scores, targets, label_smoothing=smoothing, reduction="sum")
