"""What heads share: labels of a language model, the token that stands for a row, losses over
classes.

Shapes: B batch, T length, C classes.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from .outputs import IGNORED_LABEL

PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")


def predicts_next_token(model_class: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """Tell transformers' Trainer that the model shifts its labels, as a class decorator.

    Trainer smooths labels outside the model (`label_smoothing_factor`). It shifts them first where
    the class stands in a table of names, which `AutoModelForCausalLM.register` does not write; for
    others it would train, without a word, to repeat the token that was read.

    Args:
        model_class: with a `config_class`.

    Returns:
        The class.
    """
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_class.config_class.model_type] = model_class.__name__
    return model_class


def next_token_targets(labels: Tensor, length: int, attention_mask: Any = None) -> Tensor:
    """Return what each token is to predict: the label of the next real token of its row.

    Padding predicts nothing and is skipped over, so that a row has the same targets wherever its
    padding stands.

    Args:
        labels: ids of the tokens, -100 where skipped, (B, T), and possibly of the one behind them,
            (B, T + 1).
        length: T.
        attention_mask: 1 at real tokens, (B, K) with K >= T; anything else counts every token.

    Returns:
        Targets, -100 where there is none, (B, T).

    Raises:
        ValueError: if the labels have another length.
    """
    if labels.shape[1] not in (length, length + 1):
        raise ValueError(
            f"labels must have the length of the input, {length}, or one more, the token that "
            f"follows it, got {labels.shape[1]}. Pass labels=input_ids: the model shifts them."
        )
    labels = F.pad(labels, (0, length + 1 - labels.shape[1]), value=IGNORED_LABEL)  # (B, T + 1)
    if not isinstance(attention_mask, Tensor) or attention_mask.dim() != 2:
        return labels[:, 1:]
    is_real = attention_mask[:, -length:].to(labels.device).bool()
    places = torch.arange(length, device=labels.device).where(is_real, length)  # (B, T)
    first_from = places.flip(-1).cummin(dim=-1).values.flip(-1)  # first real token at t or behind
    next_real = F.pad(first_from[:, 1:], (0, 1), value=length)
    return labels.gather(1, next_real).masked_fill(~is_real, IGNORED_LABEL)


def last_tokens(
    input_ids: Tensor | None, attention_mask: Tensor | None, pad_token_id: int | None, length: int
) -> Tensor:
    """Return where the last real token of every row stands.

    Args:
        input_ids: ids, (B, T); None where embeddings took their place.
        attention_mask: 1 at real tokens, (B, T); None takes every id but `pad_token_id` for real,
            as transformers does.
        pad_token_id: None means that there is no padding.
        length: T.

    Returns:
        Positions, (B), or (1) where every row has the same; T - 1 for a row of padding alone.
    """
    if attention_mask is None and (input_ids is None or pad_token_id is None):
        return torch.tensor([length - 1])
    is_real = attention_mask.bool() if attention_mask is not None else input_ids != pad_token_id
    from_the_end = is_real.flip(-1).int().argmax(dim=-1)  # the first of the largest
    return length - 1 - from_the_end


def infer_problem_type(problem_type: str | None, num_labels: int, labels: Tensor) -> str:
    """Return the kind of problem, as transformers infers it where the config does not say.

    Args:
        problem_type: of the config.
        num_labels: C.
        labels: numbers mean several labels a row, integers one.

    Returns:
        One of PROBLEM_TYPES.

    Raises:
        ValueError: if `problem_type` is another word.
    """
    if problem_type is None:
        if num_labels == 1:
            return "regression"
        return PROBLEM_TYPES[2] if labels.is_floating_point() else PROBLEM_TYPES[1]
    if problem_type not in PROBLEM_TYPES:
        raise ValueError(f"problem_type must be one of {PROBLEM_TYPES}, got {problem_type!r}.")
    return problem_type


def classification_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    problem_type: str | None,
    num_items_in_batch: Tensor | int | None = None,
) -> Tensor:
    """Return the loss of one prediction a row: squared error, cross-entropy, or one binary
    cross-entropy for each label, averaged over what `labels` holds.

    Args:
        logits: (B, C).
        labels: classes, (B); numbers to predict, (B) or (B, C); or 1 for every label that applies
            and 0 else, (B, C).
        problem_type: None infers it.
        num_items_in_batch: entries of all labels, when the batch is one part of a larger one.

    Returns:
        Scalar; in nats for classes.

    Raises:
        ValueError: if `problem_type` is unknown or the shapes do not fit.
    """
    kind = infer_problem_type(problem_type, logits.shape[-1], labels)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    wanted = logits.shape[:1] if kind == PROBLEM_TYPES[1] else logits.shape
    if labels.numel() != wanted.numel():
        raise ValueError(
            f"labels of {kind} must have the shape {tuple(wanted)}, got {tuple(labels.shape)}. Set "
            f"num_labels and problem_type of the config to fit the data."
        )
    labels = labels.to(logits.device).view(wanted)
    if kind == "regression":
        total = F.mse_loss(logits, labels.to(logits.dtype), reduction="sum")
    elif kind == "single_label_classification":
        total = F.cross_entropy(logits, labels.long(), reduction="sum")
    else:
        labels = labels.to(logits.dtype)
        total = F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
    if num_items_in_batch is None:
        num_items_in_batch = labels.numel()
    return total / torch.as_tensor(num_items_in_batch, device=total.device).clamp(min=1)
