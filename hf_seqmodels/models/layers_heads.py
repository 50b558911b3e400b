"""What heads share: labels of a language model, what stands for a row, losses over classes and
spans.

Shapes: B batch, T length, D hidden size, C classes, V vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import ACT2FN
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from .layers_vocabulary_loss import output_layer_loss
from .outputs import IGNORED_LABEL, count_targets

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


class FirstTokenPooler(nn.Module):
    """tanh(W h_1 + b), what stands for a row. Source: Devlin et al. 2019, arXiv:1810.04805, and the
    code published with it.

    Args:
        hidden_size: width D.
    """

    def __init__(self, hidden_size: int):
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states: Tensor, keep_mask: Tensor | None = None) -> Tensor:
        """Return one vector for every row: (B, T, D) -> (B, D).

        Args:
            hidden_states: (B, T, D).
            keep_mask: nonzero at real tokens, (B, T); None means no padding.

        Returns:
            (B, D).
        """
        if keep_mask is None:
            first_states = hidden_states[:, 0]
        else:
            first = keep_mask.bool().int().argmax(dim=-1)  # (B), the first of the largest
            rows = torch.arange(first.shape[0], device=first.device)
            first_states = hidden_states[rows, first]  # (B, D)
        return torch.tanh(self.dense(first_states))


class MeanPooler(nn.Module):
    """Mean of a row's tokens; 0 for a row without any.

    Args:
        hidden_size: read by no one, a mean has no weights.
    """

    def __init__(self, hidden_size: int):
        super().__init__()

    def forward(self, hidden_states: Tensor, keep_mask: Tensor | None = None) -> Tensor:
        """Return one vector for every row: (B, T, D) -> (B, D).

        Args:
            hidden_states: (B, T, D).
            keep_mask: nonzero at real tokens, (B, T); None means no padding.

        Returns:
            (B, D).
        """
        if keep_mask is None:
            return hidden_states.mean(dim=1)
        is_real = keep_mask.bool()[..., None]  # (B, T, 1)
        total = hidden_states.masked_fill(~is_real, 0.0).sum(dim=1)
        return total / is_real.sum(dim=1).clamp(min=1)


POOLERS: dict[str, type[nn.Module]] = {"cls": FirstTokenPooler, "mean": MeanPooler}


class PredictionTransform(nn.Module):
    """N(f(W h + b)), between a masked language model's stack and its output layer.

    Source: Devlin et al. 2019, in the code published with it.

    Args:
        hidden_size: width D.
        hidden_act: name of f in transformers' table.
        use_bias: add b.
        norm: N.
    """

    def __init__(self, *, hidden_size: int, hidden_act: str, use_bias: bool, norm: nn.Module):
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size, bias=use_bias)
        self.activation = ACT2FN[hidden_act]
        self.norm = norm

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Map each token: (.., D) -> (.., D)."""
        return self.norm(self.activation(self.dense(hidden_states)))


def masked_token_loss(
    hidden_states: Tensor,
    targets: Tensor,
    *,
    transform: nn.Module,
    output_layer: nn.Module,
    smoothing: float = 0.0,
    num_items_in_batch: Tensor | int | None = None,
) -> Tensor:
    """Return the loss of the chosen tokens, with scores for those alone.

    Equal to `token_loss(output_layer(transform(hidden_states)), targets)`.

    Args:
        hidden_states: outputs of the stack, (B, T, D).
        targets: ids of the chosen tokens, -100 elsewhere, (B, T).
        transform: (N, D) -> (N, D).
        output_layer: (N, D) -> (N, V).
        smoothing: probability mass spread evenly over the V tokens, in [0, 1).
        num_items_in_batch: targets that the loss is divided by, when the batch is one part of a
            larger one.

    Returns:
        Scalar, in nats per chosen token.

    Raises:
        ValueError: if no token is chosen and `num_items_in_batch` is None.
    """
    targets = targets.to(hidden_states.device)
    num_items = count_targets(targets, num_items_in_batch)
    is_target = targets != IGNORED_LABEL
    chosen = transform(hidden_states[is_target])  # (N, D)
    targets = targets[is_target].long()
    total = output_layer_loss(output_layer, chosen, targets, smoothing=smoothing)
    return total / num_items


def span_loss(
    start_logits: Tensor,
    end_logits: Tensor,
    start_positions: Tensor,
    end_positions: Tensor,
    *,
    num_items_in_batch: Tensor | int | None = None,
) -> Tensor:
    """Return the mean of two cross-entropies over the tokens of a row: where a span starts and
    where it ends.

    Source: Devlin et al. 2019, section 4.2. A position behind the row is not counted.

    Args:
        start_logits: (B, T).
        end_logits: (B, T).
        start_positions: (B).
        end_positions: (B).
        num_items_in_batch: spans that the loss is divided by, when the batch is one part of a
            larger one.

    Returns:
        Scalar, in nats per span and end of it.
    """
    length = start_logits.shape[1]
    losses = []
    for logits, positions in ((start_logits, start_positions), (end_logits, end_positions)):
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        positions = positions.to(logits.device).long().flatten()
        targets = positions.masked_fill(positions >= length, IGNORED_LABEL)
        total = F.cross_entropy(logits, targets, ignore_index=IGNORED_LABEL, reduction="sum")
        num_items = num_items_in_batch
        if num_items is None:
            num_items = (targets != IGNORED_LABEL).sum()
        losses.append(total / torch.as_tensor(num_items, device=total.device).clamp(min=1))
    return (losses[0] + losses[1]) / 2
