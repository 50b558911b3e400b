# pyright: basic
"""Attention of a decoder over encoder states: scorers, weights, context.

Shapes: B batch, T target length, S source length, H heads, P head width, A scorer width, C context
width.
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

CHUNK_ELEMENTS = 2**24  # of the additive scorer at a time: 64 MB in float32


class DotScorer(nn.Module):
    """score(q, k) = q . k, over queries and keys of one width.

    Source: Luong et al. 2015, arXiv:1508.04025, section 3.1.

    Args:
        query_size: width of a query.
        key_size: width of a key, the same.
    """

    def __init__(self, *, query_size: int, key_size: int):
        super().__init__()
        assert query_size == key_size, (query_size, key_size)

    def project_keys(self, keys: Tensor) -> Tensor:
        """Do the part that is the same at every target step: nothing here, (B, S, key_size)."""
        return keys

    def forward(self, queries: Tensor, projected_keys: Tensor) -> Tensor:
        """Return unnormalised scores: (B, T, query_size), (B, S, query_size) -> (B, T, S)."""
        return queries @ projected_keys.transpose(-1, -2)


class ScaledDotScorer(DotScorer):
    """score(q, k) = q . k / sqrt(width). Source: Vaswani et al. 2017, equation 1."""

    def forward(self, queries: Tensor, projected_keys: Tensor) -> Tensor:
        """Return unnormalised scores: (B, T, query_size), (B, S, query_size) -> (B, T, S)."""
        return super().forward(queries, projected_keys) / queries.shape[-1] ** 0.5


class GeneralScorer(nn.Module):
    """score(q, k) = q W k, over queries and keys of any width.

    Source: Luong et al. 2015, section 3.1 ("general").

    Args:
        query_size: width of a query.
        key_size: width of a key.
    """

    def __init__(self, *, query_size: int, key_size: int):
        super().__init__()
        self.key_projection = nn.Linear(key_size, query_size, bias=False)

    def project_keys(self, keys: Tensor) -> Tensor:
        """Do the part that is the same at every target step: (B, S, key_size) -> (B, S,
        query_size)."""
        return self.key_projection(keys)

    def forward(self, queries: Tensor, projected_keys: Tensor) -> Tensor:
        """Return unnormalised scores: (B, T, query_size), (B, S, query_size) -> (B, T, S)."""
        return queries @ projected_keys.transpose(-1, -2)


class AdditiveScorer(nn.Module):
    """Score every key against every query with a one-hidden-layer network, as wide as the query.

    score(q, k) = v . tanh(W q + U k)
    Source: Bahdanau et al. 2015, arXiv:1409.0473, appendix A.1.2.

    The sum has B * T * S * A elements. Where that is more than `CHUNK_ELEMENTS`, it is taken for
    some queries at a time, and computed again for the backward pass.

    Args:
        query_size: width of a query, and the hidden width A.
        key_size: width of a key.
    """

    def __init__(self, *, query_size: int, key_size: int):
        super().__init__()
        self.query_projection = nn.Linear(query_size, query_size, bias=False)
        self.key_projection = nn.Linear(key_size, query_size, bias=False)
        self.output_projection = nn.Linear(query_size, 1, bias=False)

    def project_keys(self, keys: Tensor) -> Tensor:
        """Do the part that is the same at every target step: (B, S, key_size) -> (B, S, A)."""
        return self.key_projection(keys)

    def forward(self, queries: Tensor, projected_keys: Tensor) -> Tensor:
        """Return unnormalised scores: (B, T, query_size), (B, S, A) -> (B, T, S)."""
        queries = self.query_projection(queries)  # (B, T, A)
        num_queries = max(1, CHUNK_ELEMENTS // projected_keys.numel())
        if queries.shape[1] <= num_queries:
            return self._score(queries, projected_keys)
        scores = [
            checkpoint(
                self._score, part, projected_keys, use_reentrant=False, preserve_rng_state=False
            )
            if torch.is_grad_enabled()
            else self._score(part, projected_keys)
            for part in queries.split(num_queries, dim=1)
        ]
        return torch.cat(scores, dim=1)

    def _score(self, queries: Tensor, keys: Tensor) -> Tensor:
        hidden = torch.tanh(queries.unsqueeze(2) + keys.unsqueeze(1))  # (B, T, S, A)
        return self.output_projection(hidden).squeeze(-1)  # (B, T, S)


SCORERS = {
    "dot": DotScorer,
    "scaled_dot": ScaledDotScorer,
    "general": GeneralScorer,
    "additive": AdditiveScorer,
}


def attention_weights(scores: Tensor, keep_mask: Tensor | None) -> Tensor:
    """Turn scores into weights that sum to 1 over the source, alpha_ij = softmax_j(score_ij).

    Args:
        scores: unnormalised, (..., S).
        keep_mask: True at positions that may be attended to, broadcastable to the scores; None is
            everywhere.

    Returns:
        Weights like the scores, zero outside the mask; a row without any allowed position is all
        zero.
    """
    if keep_mask is None:
        return scores.softmax(dim=-1)
    weights = scores.masked_fill(~keep_mask, torch.finfo(scores.dtype).min).softmax(dim=-1)
    return weights.masked_fill(~keep_mask, 0.0)


class ScoredAttention(GradientCheckpointingLayer):
    """Attention with one set of weights: alpha = softmax(score(q, k)), c = sum_j alpha_j h_j.

    Source: Bahdanau et al. 2015, equations 5 and 6.

    Args:
        scorer: a key of `SCORERS`.
        query_size: width of a query.
        key_size: width C of an encoder state, and of the context.
        dropout: rate on the weights.
    """

    def __init__(self, *, scorer: str, query_size: int, key_size: int, dropout: float):
        super().__init__()
        self.scorer = SCORERS[scorer](query_size=query_size, key_size=key_size)
        self.dropout = nn.Dropout(dropout)
        self.context_size = key_size

    def project_memory(self, encoder_states: Tensor) -> tuple[Tensor, Tensor]:
        """Return projected keys (B, S, .) and values (B, S, C), the same at every target step."""
        return self.scorer.project_keys(encoder_states), encoder_states

    def forward(
        self, queries: Tensor, keys: Tensor, values: Tensor, keep_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attend from every query.

        Args:
            queries: (B, T, query_size).
            keys: from `project_memory`.
            values: from `project_memory`.
            keep_mask: True at real source tokens, (B, S); None is everywhere.

        Returns:
            Context (B, T, C) and weights before dropout (B, 1, T, S).
        """
        scores = self.scorer(queries, keys)  # (B, T, S)
        weights = attention_weights(scores, None if keep_mask is None else keep_mask[:, None, :])
        return self.dropout(weights) @ values, weights.unsqueeze(1)


class MultiHeadAttention(GradientCheckpointingLayer):
    """Scaled dot-product attention in several subspaces, [head_1; ..; head_H] W^O.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2; no biases, as there.

    Args:
        query_size: width of a query and of the context, a multiple of `num_heads`.
        key_size: width of an encoder state.
        num_heads: H.
        dropout: rate on the weights.
    """

    def __init__(self, *, query_size: int, key_size: int, num_heads: int, dropout: float):
        super().__init__()
        self.num_heads = num_heads
        self.query_projection = nn.Linear(query_size, query_size, bias=False)
        self.key_projection = nn.Linear(key_size, query_size, bias=False)
        self.value_projection = nn.Linear(key_size, query_size, bias=False)
        self.output_projection = nn.Linear(query_size, query_size, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.context_size = query_size

    def _split_heads(self, vectors: Tensor) -> Tensor:
        return vectors.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, H, length, P)

    def project_memory(self, encoder_states: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values by head, (B, H, S, P) each, the same at every target step."""
        keys = self._split_heads(self.key_projection(encoder_states))
        return keys, self._split_heads(self.value_projection(encoder_states))

    def forward(
        self, queries: Tensor, keys: Tensor, values: Tensor, keep_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attend from every query.

        Args:
            queries: (B, T, query_size).
            keys: from `project_memory`.
            values: from `project_memory`.
            keep_mask: True at real source tokens, (B, S); None is everywhere.

        Returns:
            Context (B, T, query_size) and weights before dropout (B, H, T, S).
        """
        query_heads = self._split_heads(self.query_projection(queries))  # (B, H, T, P)
        scores = query_heads @ keys.transpose(-1, -2) / keys.shape[-1] ** 0.5
        weights = attention_weights(
            scores, None if keep_mask is None else keep_mask[:, None, None, :]
        )
        context = (self.dropout(weights) @ values).transpose(1, 2).flatten(2)
        return self.output_projection(context), weights


def make_attention(
    *, scorer: str, query_size: int, key_size: int, num_heads: int, dropout: float
) -> ScoredAttention | MultiHeadAttention:
    """Return the attention with that scorer, a key of `SCORERS` or "multi_head"."""
    if scorer == "multi_head":
        return MultiHeadAttention(
            query_size=query_size, key_size=key_size, num_heads=num_heads, dropout=dropout
        )
    return ScoredAttention(scorer=scorer, query_size=query_size, key_size=key_size, dropout=dropout)
