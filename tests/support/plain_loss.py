"""The loss as a loop over the targets, in Python's floats."""

import math

import torch
from torch import Tensor


def plain_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    smoothing: float = 0.0,
    num_items: int | None = None,
    label_shift: int = 0,
    keep: Tensor | None = None,
    num_smoothed: int | None = None,
) -> float:
    """Return - sum_t [(1 - s) log p(y_t) + s/V sum_v log p(v)] / N over the targets that count.

    Args:
        logits: (B, T, V), or (B, V) for one target a row.
        labels: (B, T) or (B); -100 does not count.
        smoothing: s.
        num_items: N; None counts the targets.
        label_shift: the logits at t score the label at t + label_shift.
        keep: 1 at real tokens, which alone have logits and labels, (B, T); None is everywhere.
        num_smoothed: V, where there are more scores than tokens to spread over; None is all.
    """
    if logits.dim() == 2:
        logits, labels = logits[:, None], labels[:, None]
    total, count = 0.0, 0
    keep = torch.ones_like(labels) if keep is None else keep
    for row_logits, row_labels, row_keep in zip(logits, labels, keep.bool(), strict=True):
        targets = row_labels[row_keep].tolist()[label_shift:]
        for scores, label in zip(row_logits[row_keep].tolist(), targets, strict=False):
            if label == -100:
                continue
            largest = max(scores)
            log_sum = largest + math.log(sum(math.exp(score - largest) for score in scores))
            smoothed = scores[:num_smoothed]
            spread = sum(log_sum - score for score in smoothed) / len(smoothed)
            total += (1 - smoothing) * (log_sum - scores[label]) + smoothing * spread
            count += 1
    return total / (count if num_items is None else num_items)
