# pyright: basic
"""What models put out where transformers has no class for it, and the loss on token scores.

Shapes: B batch, S source length, T target length, D width, L layers, V vocabulary.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.utils.generic import ModelOutput

IGNORED_LABEL = -100


@dataclass
class RecurrentEncoderOutput(ModelOutput):
    """What a recurrent encoder hands to its decoder. Every tensor has the batch first, so that
    generate() can repeat rows for beams.

    Args:
        last_hidden_state: outputs of the top layer, zero at padding, (B, S, D).
        hidden_states: embeddings and the outputs of every layer, each (B, S, .), when asked for.
        attentions: always None; encoders of this package that recur do not attend.
        final_hidden_state: output of every layer at the last token that each direction read, (B, L,
            D); the last hidden state where layers are plainly stacked. Zero for a row without
            tokens.
        final_cell_state: last cell state of every layer, (B, L, D); LSTM only.
        attention_keys: keys projected once per sentence, kept through generation.
        attention_values: values projected once per sentence, kept through generation.
        source_ids: the source, (B, S), where its words can be copied.
    """

    last_hidden_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    final_hidden_state: Tensor | None = None
    final_cell_state: Tensor | None = None
    attention_keys: Tensor | None = None
    attention_values: Tensor | None = None
    source_ids: Tensor | None = None


@dataclass
class PreTrainingOutput(ModelOutput):
    """What an encoder in pretraining puts out, under the names that BERT has in transformers.

    Args:
        loss: of masked tokens, in nats per token, plus that of next sentences, in nats per row.
        prediction_logits: scores of the vocabulary, (B, T, V).
        seq_relationship_logits: scores of "follows" and "does not follow", (B, 2).
        hidden_states: embeddings and the outputs of every layer, each (B, T, D), when asked for.
        attentions: weights of every layer, each (B, H, T, T), when asked for.
    """

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


def token_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    smoothing: float = 0.0,
    num_items_in_batch: Tensor | int | None = None,
) -> Tensor:
    """Return the negative log-likelihood of the target tokens, averaged over the counted ones.

    loss = - sum_t [(1 - s) log p(y_t) + s/V sum_v log p(v)] / N
    Source: cross-entropy; smoothing s as in Szegedy et al. 2016, section 7.

    Args:
        logits: scores before softmax, (B, T, V); softmax is taken in float32 at least.
        labels: target token ids, (B, T); positions equal to -100 are skipped.
        smoothing: probability mass s spread evenly over the V tokens, in [0, 1).
        num_items_in_batch: N when the batch is one part of a larger one (gradient accumulation,
            several processes); None counts the targets of this batch.

    Returns:
        Scalar, in nats per counted token.

    Raises:
        ValueError: if every position is skipped and `num_items_in_batch` is None.
    """
    logits = logits.flatten(0, -2)  # (B * T, V)
    labels = labels.flatten().to(logits.device, torch.long)  # (B * T)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    total = F.cross_entropy(
        logits, labels, ignore_index=IGNORED_LABEL, label_smoothing=smoothing, reduction="sum"
    )
    return total / count_targets(labels, num_items_in_batch)


def mixture_loss(
    log_probabilities: Tensor,
    labels: Tensor,
    *,
    vocab_size: int,
    smoothing: float = 0.0,
    num_items_in_batch: Tensor | int | None = None,
) -> Tensor:
    """Return the loss of `token_loss` under a distribution that is no softmax of one layer.

    Args:
        log_probabilities: log p in nats, (B, T, V + X); p may be 0 behind the first V.
        labels: target token ids, (B, T); positions equal to -100 are skipped.
        vocab_size: V, the tokens that `smoothing` is spread over.
        smoothing: as in `token_loss`.
        num_items_in_batch: as in `token_loss`.

    Returns:
        Scalar, in nats per counted token.
    """
    labels = labels.to(log_probabilities.device, torch.long)
    is_counted = labels != IGNORED_LABEL
    chosen = log_probabilities.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)  # (B, T)
    total = -(1 - smoothing) * chosen.masked_fill(~is_counted, 0.0).sum()
    if smoothing:
        means = log_probabilities[..., :vocab_size].mean(dim=-1)  # (B, T)
        total = total - smoothing * means.masked_fill(~is_counted, 0.0).sum()
    return total / count_targets(labels, num_items_in_batch)


def alignment_loss(
    weights: Tensor,
    alignments: Tensor,
    labels: Tensor,
    num_items_in_batch: Tensor | int | None = None,
) -> Tensor:
    """Return how far attention is from given alignments, - sum_t sum_j A_tj log alpha_tj / N.

    Each row of A is divided by its sum; rows of zeros count for nothing, and neither do targets
    that are skipped.
    Source: Chen et al. 2016, arXiv:1607.01628, section 3 (guided alignment).

    Args:
        weights: alpha, the mean of the heads, (B, T, S).
        alignments: A, what each target token belongs to, none below 0, (B, T, S).
        labels: targets, (B, T); positions equal to -100 are skipped.
        num_items_in_batch: N, as in `token_loss`.

    Returns:
        Scalar, in nats per counted target token.

    Raises:
        ValueError: if the shapes differ.
    """
    if alignments.shape != weights.shape:
        raise ValueError(
            "alignments must have the shape (batch, target length, source length), "
            f"{tuple(weights.shape)}, got {tuple(alignments.shape)}. Seq2SeqCollator makes them of "
            "links between tokens."
        )
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    alignments = alignments.to(weights)
    alignments = alignments / alignments.sum(dim=-1, keepdim=True).clamp(min=1e-9)
    logs = weights.clamp(min=torch.finfo(weights.dtype).tiny).log()
    crossed = -(alignments * logs).sum(dim=-1)  # (B, T)
    is_skipped = (labels == IGNORED_LABEL).to(crossed.device)
    return crossed.masked_fill(is_skipped, 0.0).sum() / count_targets(labels, num_items_in_batch)


def count_targets(labels: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor:
    """Return what a summed loss is divided by.

    Args:
        labels: targets; those equal to -100 are skipped.
        num_items_in_batch: targets of the larger batch, where this is one part of it; None counts
            those of this one.

    Returns:
        Scalar, at least 1, so that a whole batch without targets gives 0 and not 0 / 0.

    Raises:
        ValueError: if every position is skipped and `num_items_in_batch` is None.
    """
    if num_items_in_batch is None:
        num_items_in_batch = (labels != IGNORED_LABEL).sum()
        if num_items_in_batch == 0:
            raise ValueError(
                f"labels must hold at least one target, got only {IGNORED_LABEL} in "
                f"{labels.numel()} positions. "
                "Drop such a batch, or pass num_items_in_batch if it is one part of a larger batch."
            )
    return torch.as_tensor(num_items_in_batch, device=labels.device).clamp(min=1)
