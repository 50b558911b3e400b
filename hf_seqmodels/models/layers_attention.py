# pyright: basic
"""Attention of a decoder over encoder states: scorers, weights, context.

Shapes: B batch, T target length, S source length, H heads, P head width, A scorer width, C context
width.
"""

import torch
import torch.nn.functional as F
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

    score(q, k) = v . tanh(W q + U k), with coverage v . tanh(W q + U k + w c_k)
    Source: Bahdanau et al. 2015, arXiv:1409.0473, appendix A.1.2; See et al. 2017,
    arXiv:1704.04368, equation 11.

    The sum has B * T * S * A elements. Where that is more than `CHUNK_ELEMENTS`, it is taken for
    some queries at a time, and computed again for the backward pass.

    Args:
        query_size: width of a query, and the hidden width A.
        key_size: width of a key.
        with_coverage: whether the score depends on how much a key has been attended to.
    """

    def __init__(self, *, query_size: int, key_size: int, with_coverage: bool = False):
        super().__init__()
        self.query_projection = nn.Linear(query_size, query_size, bias=False)
        self.key_projection = nn.Linear(key_size, query_size, bias=False)
        self.coverage_projection = nn.Linear(1, query_size, bias=False) if with_coverage else None
        self.output_projection = nn.Linear(query_size, 1, bias=False)

    def project_keys(self, keys: Tensor) -> Tensor:
        """Do the part that is the same at every target step: (B, S, key_size) -> (B, S, A)."""
        return self.key_projection(keys)

    def forward(
        self, queries: Tensor, projected_keys: Tensor, coverage: Tensor | None = None
    ) -> Tensor:
        """Return unnormalised scores: (B, T, query_size), (B, S, A), coverage (B, S) of the keys
        -> (B, T, S)."""
        queries = self.query_projection(queries)  # (B, T, A)
        if self.coverage_projection is not None and coverage is not None:
            projected_keys = projected_keys + self.coverage_projection(coverage.unsqueeze(-1))
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
        with_coverage: whether the scores depend on the attention so far; for "additive" alone.
    """

    def __init__(
        self,
        *,
        scorer: str,
        query_size: int,
        key_size: int,
        dropout: float,
        with_coverage: bool = False,
    ):
        super().__init__()
        sizes = {"query_size": query_size, "key_size": key_size}
        if with_coverage:
            self.scorer = AdditiveScorer(**sizes, with_coverage=True)
        else:
            self.scorer = SCORERS[scorer](**sizes)
        self.dropout = nn.Dropout(dropout)
        self.context_size = key_size
        self.reads_coverage = with_coverage

    def project_memory(self, encoder_states: Tensor) -> tuple[Tensor, Tensor]:
        """Return projected keys (B, S, .) and values (B, S, C), the same at every target step."""
        return self.scorer.project_keys(encoder_states), encoder_states

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        keep_mask: Tensor | None = None,
        coverage: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend from every query.

        Args:
            queries: (B, T, query_size).
            keys: from `project_memory`.
            values: from `project_memory`.
            keep_mask: True at real source tokens, (B, S); None is everywhere.
            coverage: sum of the weights of all steps before these, (B, S), for `with_coverage`.

        Returns:
            Context (B, T, C) and weights before dropout (B, 1, T, S).
        """
        covered = () if coverage is None else (coverage,)
        scores = self.scorer(queries, keys, *covered)  # (B, T, S)
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

    reads_coverage = False

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
    *,
    scorer: str,
    query_size: int,
    key_size: int,
    num_heads: int,
    dropout: float,
    with_coverage: bool = False,
) -> ScoredAttention | MultiHeadAttention:
    """Return the attention with that scorer, a key of `SCORERS` or "multi_head"."""
    if scorer == "multi_head":
        return MultiHeadAttention(
            query_size=query_size, key_size=key_size, num_heads=num_heads, dropout=dropout
        )
    return ScoredAttention(
        scorer=scorer,
        query_size=query_size,
        key_size=key_size,
        dropout=dropout,
        with_coverage=with_coverage,
    )


class PointerGenerator(nn.Module):
    """Write a word of the vocabulary, or copy one of the source along the attention.

    P(w) = g P_vocabulary(w) + (1 - g) sum_{j: x_j = w} alpha_tj, over the vocabulary and the words
    of this source that it lacks, with g = sigmoid(w_c . c_t + w_s . s_t + w_e . e_t + b): the
    context c_t = sum_j alpha_tj h_j, the vector s_t that the output layer reads, and the embedding
    e_t of the token before.
    Source: See et al. 2017, arXiv:1704.04368, equations 8 and 9.

    Args:
        source_size: width C of an encoder state.
        state_size: width D of s_t.
        embedding_size: E.
        num_extra: ids behind the vocabulary, X.
    """

    def __init__(self, *, source_size: int, state_size: int, embedding_size: int, num_extra: int):
        super().__init__()
        self.gate = nn.Linear(source_size + state_size + embedding_size, 1)
        self.num_extra = num_extra

    def forward(
        self,
        logits: Tensor,
        weights: Tensor,
        source_ids: Tensor,
        source_states: Tensor,
        states: Tensor,
        embedded: Tensor,
    ) -> Tensor:
        """Mix the two distributions.

        Args:
            logits: scores of the vocabulary, (B, T, V).
            weights: alpha, the mean of the heads, zero at padding, (B, T, S).
            source_ids: the source, unknown words with ids of their own in [V, V + X), (B, S).
            source_states: h, (B, S, C).
            states: s, (B, T, D).
            embedded: e, (B, T, E).

        Returns:
            log P in nats, (B, T, V + X), in float32 at least; the smallest number that the logits'
            type has at words that this source does not hold.
        """
        context = weights.to(source_states.dtype) @ source_states  # (B, T, C)
        gate = self.gate(torch.cat([context, states, embedded], dim=-1))  # (B, T, 1)
        gate = gate.to(torch.promote_types(gate.dtype, torch.float32))
        vocab_size, index = logits.shape[-1], source_ids[:, None].expand_as(weights)
        copied = gate.new_zeros(*logits.shape[:-1], vocab_size + self.num_extra)
        copied = copied.scatter_add(-1, index, weights.to(copied.dtype))
        # the smallest number instead of 0: the gradient of log 0 is not finite
        copied = copied.clamp(min=torch.finfo(copied.dtype).tiny).log() + F.logsigmoid(-gate)
        written = F.logsigmoid(gate) + logits.to(gate.dtype).log_softmax(dim=-1)
        in_vocabulary = torch.logaddexp(written, copied[..., :vocab_size])
        is_held = held_words(source_ids, vocab_size, self.num_extra)  # (B, X)
        never = torch.finfo(logits.dtype).min
        extra = copied[..., vocab_size:].masked_fill(~is_held[:, None], never)
        return torch.cat([in_vocabulary, extra], dim=-1)


def held_words(source_ids: Tensor, vocab_size: int, num_extra: int) -> Tensor:
    """Tell which ids behind the vocabulary each source holds: (B, S) -> (B, X)."""
    ids = torch.arange(vocab_size, vocab_size + num_extra, device=source_ids.device)
    return (source_ids[:, :, None] == ids).any(dim=1)


def coverage_penalty(weights: Tensor) -> Tensor:
    """Return how much each step attends to what has been attended to, sum_j min(alpha_tj, c_tj).

    c_t = sum_{t' < t} alpha_t'. Source: See et al. 2017, equations 10 and 12.

    Args:
        weights: alpha, zero at padding, (B, T, S).

    Returns:
        In [0, 1], (B, T).
    """
    coverage = weights.cumsum(dim=1) - weights
    return torch.minimum(weights, coverage).sum(dim=-1)
