"""Attention as loops over queries, keys and units: one row, no batch, no mask.

The second source for `layers_attention.py`. Masked keys are left out of the lists, not masked.
"""

import torch
from torch import Tensor


def plain_score(scorer: str, module, query: Tensor, key: Tensor) -> Tensor:
    """Return score(q, k) of one query and one key, from the formula of each scorer.

    Args:
        scorer: "dot", "scaled_dot", "general" or "additive".
        module: holds the weights.
        query: (Q).
        key: (K).
    """
    if scorer == "dot":
        return sum(q * k for q, k in zip(query, key, strict=True))
    if scorer == "scaled_dot":
        return sum(q * k for q, k in zip(query, key, strict=True)) / len(query) ** 0.5
    if scorer == "general":
        bilinear = module.key_projection.weight  # (Q, K)
        return sum(q * (row @ key) for q, row in zip(query, bilinear, strict=True))
    W, U = module.query_projection.weight, module.key_projection.weight
    (v,) = module.output_projection.weight
    return sum(
        v_a * torch.tanh(W_a @ query + U_a @ key) for v_a, W_a, U_a in zip(v, W, U, strict=True)
    )


def plain_softmax(scores: list[Tensor]) -> list[Tensor]:
    """Return alpha_j = exp(score_j) / sum_i exp(score_i)."""
    exponentials = [torch.exp(score) for score in scores]
    return [one / sum(exponentials) for one in exponentials]


def plain_attention(
    scorer: str, attention, query: Tensor, keys: list[Tensor]
) -> tuple[Tensor, list[list[Tensor]]]:
    """Attend from one query over the encoder states of one row: context, and weights by head.

    Args:
        scorer: of a config.
        attention: ScoredAttention or MultiHeadAttention, for its weights.
        query: (Q).
        keys: encoder states at real tokens, each (K); none give the context zero.
    """
    if scorer == "multi_head":
        return plain_heads(attention, query, keys)
    if not keys:
        return torch.zeros(attention.context_size), [[]]
    weights = plain_softmax([plain_score(scorer, attention.scorer, query, key) for key in keys])
    return sum(weight * key for weight, key in zip(weights, keys, strict=True)), [weights]


def plain_heads(attention, query: Tensor, keys: list[Tensor]) -> tuple[Tensor, list[list[Tensor]]]:
    """Attend with every head in its own subspace and join them, [head_1; ..; head_H] W^O."""
    width = attention.context_size // attention.num_heads
    heads, all_weights = [], []
    for head in range(attention.num_heads):
        rows = slice(head * width, (head + 1) * width)
        W_q = attention.query_projection.weight[rows]
        W_k = attention.key_projection.weight[rows]
        W_v = attention.value_projection.weight[rows]
        scores = [(W_q @ query) @ (W_k @ key) / width**0.5 for key in keys]
        weights = plain_softmax(scores)
        values = [weight * (W_v @ key) for weight, key in zip(weights, keys, strict=True)]
        heads.append(sum(values) if values else torch.zeros(width))
        all_weights.append(weights)
    return attention.output_projection.weight @ torch.cat(heads), all_weights
