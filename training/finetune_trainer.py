"""The trainer of the fine-tuning scripts, and their losses."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch.nn.functional as F
from batch_trainer import BatchSamplerMixin
from torch import Tensor
from transformers import Trainer

Loss = Callable[..., Tensor]  # of (outputs, labels, num_items_in_batch=None)


class FinetuneTrainer(BatchSamplerMixin, Trainer):
    """Trains on a loss that is a mean over all items of a step, whatever the model is.

    Many classifiers of transformers take any keyword and average over their own batch, so that
    Trainer neither tells them how many items an accumulated step has nor divides by the number of
    batches: gradients come out too large. A loss computed here is right for every model.

    Args:
        loss: computes it from outputs, labels and num_items_in_batch; None leaves it to the model.
        num_outputs: how many of the model's outputs, the loss aside, make up a prediction.
        **kwargs: passed on to the trainer.
    """

    def __init__(self, *, loss: Loss | None = None, num_outputs: int = 1, **kwargs: Any):
        def keep(outputs: Any, labels: Any) -> Any:
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            return outputs[0] if num_outputs == 1 else outputs[:num_outputs]

        super().__init__(compute_loss_func=loss, preprocess_logits_for_metrics=keep, **kwargs)


def cross_entropy(
    outputs: Any, labels: Tensor, num_items_in_batch: Any = None, *, label_smoothing: float = 0.0
) -> Tensor:
    """Return the mean negative log-likelihood of the labels.

    Args:
        outputs: with `logits`, (..., C).
        labels: (...); -100 is skipped.
        num_items_in_batch: what to divide by; None means the labels that count.
        label_smoothing: probability mass spread evenly over the classes.

    Returns:
        Scalar, in nats.
    """
    logits = outputs["logits"].float()
    total = F.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), reduction="sum", label_smoothing=label_smoothing
    )
    return total / _count(labels.ne(-100).sum().clamp(min=1), num_items_in_batch)


def binary_cross_entropy(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
    """Return the mean negative log-likelihood of every yes and no.

    Args:
        outputs: with `logits`, (B, C).
        labels: 0 or 1, (B, C).
        num_items_in_batch: what to divide by; None means B * C.

    Returns:
        Scalar, in nats.
    """
    logits = outputs["logits"].float()
    total = F.binary_cross_entropy_with_logits(logits, labels.float(), reduction="sum")
    return total / _count(labels.numel(), num_items_in_batch)


def squared_error(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
    """Return the mean squared error.

    Args:
        outputs: with `logits`, (B, 1).
        labels: (B,).
        num_items_in_batch: what to divide by; None means B.

    Returns:
        Scalar.
    """
    values = outputs["logits"].float().squeeze(-1)
    total = F.mse_loss(values, labels.float(), reduction="sum")
    return total / _count(labels.numel(), num_items_in_batch)


def _count(own: Any, num_items_in_batch: Any) -> Any:
    return own if num_items_in_batch is None else num_items_in_batch


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities over the last axis.

    Args:
        logits: (..., C).

    Returns:
        The same shape, in float64.
    """
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Return the probability of yes.

    Args:
        logits: any shape.

    Returns:
        The same shape, in float64.
    """
    return 1 / (1 + np.exp(-logits.astype(np.float64)))
