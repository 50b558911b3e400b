"""Transformer blocks and their parts: self-attention, feed-forward layers, normalisation, and their
initialisation.

Shapes: B batch, T tokens read now, K keys so far, D hidden size, H heads, G heads of keys and
values, P head width, F feed-forward width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Cache, PreTrainedConfig
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .layers_positions import rotate


def plain_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[Tensor, Tensor]:
    """Attend as the formula says: softmax(Q K^T / sqrt(P) + mask) V, with the weights returned.

    Source: Vaswani et al. 2017, equation 1. Signature: transformers' attention interface; this is
    its "eager" form.

    Args:
        module: names `num_key_value_groups`, and whether this is training.
        query: (B, H, T, P).
        key: (B, G, K, P).
        value: (B, G, K, P).
        attention_mask: added to the scores, (B, 1 or H, T, K); None adds nothing.
        scaling: 1 / sqrt(P).
        dropout: rate on the weights.
        **kwargs: options of other forms.

    Returns:
        Contexts, (B, T, H, P), and weights, (B, H, T, K).
    """
    key, value = (
        states.repeat_interleave(module.num_key_value_groups, dim=1)  # (B, H, K, P)
        if module.num_key_value_groups != 1
        else states
        for states in (key, value)
    )
    scores = query @ key.transpose(-1, -2) * scaling  # (B, H, T, K)
    if attention_mask is not None:
        scores = scores + attention_mask
    exact = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.softmax(dim=-1, dtype=exact).to(query.dtype)
    weights = F.dropout(weights, dropout, module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights


class SelfAttention(nn.Module):
    """Multi-head self-attention, [head_1 ; .. ; head_H] W^O, with grouped queries.

    Source: Vaswani et al. 2017, section 3.2; heads of keys and values shared by groups of queries:
    Ainslie et al. 2023, arXiv:2305.13245.

    Args:
        config: read for the attention implementation alone, which may change at any time.
        layer_idx: number of the layer, its place in the cache.
        hidden_size: width D.
        num_heads: H.
        num_key_value_heads: G, a divisor of H.
        head_dim: P.
        use_bias: add biases to the four projections.
        dropout: rate on the weights.
        sliding_window: tokens that a token sees, itself included; None is all.
        is_causal: whether later tokens are hidden where no mask is given.
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        layer_idx: int,
        *,
        hidden_size: int,
        num_heads: int,
        num_key_value_heads: int,
        head_dim: int,
        use_bias: bool,
        dropout: float,
        sliding_window: int | None = None,
        is_causal: bool = True,
    ):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = head_dim
        self.num_key_value_groups = num_heads // num_key_value_heads
        self.scaling = head_dim**-0.5
        self.attention_dropout = dropout
        self.sliding_window = sliding_window
        self.is_causal = is_causal
        self.q_proj = nn.Linear(hidden_size, num_heads * head_dim, bias=use_bias)
        self.k_proj = nn.Linear(hidden_size, num_key_value_heads * head_dim, bias=use_bias)
        self.v_proj = nn.Linear(hidden_size, num_key_value_heads * head_dim, bias=use_bias)
        self.o_proj = nn.Linear(num_heads * head_dim, hidden_size, bias=use_bias)
        self.o_proj.adds_to_residual = True

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        rotary_waves: tuple[Tensor, Tensor] | None = None,
        past_key_values: Cache | None = None,
        **kwargs,
    ) -> tuple[Tensor, Tensor | None]:
        """Let every token attend to those it may see.

        Args:
            hidden_states: (B, T, D).
            attention_mask: in the form that the attention implementation wants.
            rotary_waves: cosines and sines that turn queries and keys, (B, 1, T, P).
            past_key_values: keys and values so far; gains those of this call.
            **kwargs: passed on to the attention implementation.

        Returns:
            Outputs, (B, T, D), and weights, (B, H, T, K), where the implementation has them.
        """
        split = (*hidden_states.shape[:-1], -1, self.head_dim)
        query = self.q_proj(hidden_states).view(split).transpose(1, 2)  # (B, H, T, P)
        key = self.k_proj(hidden_states).view(split).transpose(1, 2)  # (B, G, T, P)
        value = self.v_proj(hidden_states).view(split).transpose(1, 2)  # (B, G, T, P)
        if rotary_waves is not None:
            query, key = rotate(query, rotary_waves), rotate(key, rotary_waves)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)  # (B, G, K, P)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, plain_attention
        )
        contexts, weights = attend(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.attention_dropout if self.training else 0.0,
            scaling=self.scaling,
            sliding_window=self.sliding_window,
            **kwargs,
        )  # (B, T, H, P)
        return self.o_proj(contexts.reshape(*hidden_states.shape[:-1], -1)), weights


class FeedForward(nn.Module):
    """W_2 f(W_1 x + b_1) + b_2. Source: Vaswani et al. 2017, equation 2.

    Args:
        hidden_size: width D of input and output.
        intermediate_size: width F in between.
        hidden_act: name of f in transformers' table.
        use_bias: add the biases.
    """

    def __init__(
        self, *, hidden_size: int, intermediate_size: int, hidden_act: str, use_bias: bool
    ):
        super().__init__()
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=use_bias)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=use_bias)
        self.down_proj.adds_to_residual = True
        self.activation = ACT2FN[hidden_act]

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Map each token: (B, T, D) -> (B, T, D)."""
        return self.down_proj(self.activation(self.up_proj(hidden_states)))


class GatedFeedForward(FeedForward):
    """W_2 (f(W_g x) * W_1 x), with biases or without.

    Source: Shazeer 2020, arXiv:2002.05202, equation 6.

    Args:
        hidden_size: width D of input and output.
        intermediate_size: width F in between.
        hidden_act: name of f in transformers' table.
        use_bias: add the biases.
    """

    def __init__(
        self, *, hidden_size: int, intermediate_size: int, hidden_act: str, use_bias: bool
    ):
        super().__init__(
            hidden_size=hidden_size,
            intermediate_size=intermediate_size,
            hidden_act=hidden_act,
            use_bias=use_bias,
        )
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=use_bias)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Map each token: (B, T, D) -> (B, T, D)."""
        gates = self.activation(self.gate_proj(hidden_states))  # (B, T, F)
        return self.down_proj(gates * self.up_proj(hidden_states))


def make_feed_forward(*, gated: bool, **options) -> FeedForward:
    """Return the feed-forward layer of a block, gated or plain.

    Args:
        gated: which of the two.
        **options: arguments of the class.

    Returns:
        The layer.
    """
    return GatedFeedForward(**options) if gated else FeedForward(**options)


def make_layer_norm(width: int, *, eps: float, use_bias: bool) -> nn.Module:
    """Return gamma (x - mean) / sqrt(variance + eps) + beta (Ba et al. 2016).

    Args:
        width: of the vectors.
        eps: added to the variance.
        use_bias: add beta.

    Returns:
        The layer.
    """
    return nn.LayerNorm(width, eps=eps, bias=use_bias)


def make_rms_norm(width: int, *, eps: float, use_bias: bool) -> nn.Module:
    """Return gamma x / sqrt(mean of x^2 + eps) (Zhang and Sennrich 2019, arXiv:1910.07467).

    Args:
        width: of the vectors.
        eps: added to the mean square.
        use_bias: read by no one, this normalisation has no bias.

    Returns:
        The layer.
    """
    return nn.RMSNorm(width, eps=eps)


NORMS = {"layer": make_layer_norm, "rms": make_rms_norm}


class PreNormBlock(GradientCheckpointingLayer):
    """Pre-norm: z = x + SelfAttention(N(x)), y = z + FFN(N(z)).

    Args:
        self_attn: attention of the block.
        mlp: feed-forward layer.
        attention_norm: N beside the attention.
        mlp_norm: N beside the feed-forward layer.
        dropout: rate on what the two add.
    """

    def __init__(
        self,
        *,
        self_attn: SelfAttention,
        mlp: FeedForward,
        attention_norm: nn.Module,
        mlp_norm: nn.Module,
        dropout: float,
    ):
        super().__init__()
        self.self_attn = self_attn
        self.mlp = mlp
        self.attention_norm = attention_norm
        self.mlp_norm = mlp_norm
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden_states: Tensor, **kwargs) -> Tensor:
        """Let tokens attend, then map each: (B, T, D) -> (B, T, D).

        Args:
            hidden_states: x, (B, T, D).
            **kwargs: arguments of the attention; the cache must be called `past_key_values`, which
                gradient checkpointing takes away.

        Returns:
            y, (B, T, D).
        """
        attended, _ = self.self_attn(self.attention_norm(hidden_states), **kwargs)
        hidden_states = hidden_states + self.dropout(attended)
        return hidden_states + self.dropout(self.mlp(self.mlp_norm(hidden_states)))


class PostNormBlock(PreNormBlock):
    """Post-norm: z = N(x + SelfAttention(x)), y = N(z + FFN(z)) (Vaswani et al. 2017, 3.1)."""

    def forward(self, hidden_states: Tensor, **kwargs) -> Tensor:
        """Let tokens attend, then map each: (B, T, D) -> (B, T, D).

        Args:
            hidden_states: x, (B, T, D).
            **kwargs: arguments of the attention.

        Returns:
            y, (B, T, D).
        """
        attended, _ = self.self_attn(hidden_states, **kwargs)
        hidden_states = self.attention_norm(hidden_states + self.dropout(attended))
        return self.mlp_norm(hidden_states + self.dropout(self.mlp(hidden_states)))


BLOCKS = {"pre": PreNormBlock, "post": PostNormBlock}


def initialize_transformer(module: nn.Module, *, std: float, residual_std: float):
    """Initialise a part whose weights were not loaded, as GPT-2 does.

    Embeddings and linear layers from N(0, std), with zero bias; linear layers whose outputs are
    added to the residual stream from N(0, residual_std); normalisation with gamma 1 and beta 0.
    Source: Radford et al. 2019, section 2.3, and the code published with it.

    Args:
        module: of any class; others stay as they are.
        std: standard deviation.
        residual_std: standard deviation where outputs are added up.
    """
    if isinstance(module, nn.Linear | nn.Embedding):
        is_added = getattr(module, "adds_to_residual", False)
        init.normal_(module.weight, mean=0.0, std=residual_std if is_added else std)
    elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
        init.ones_(module.weight)
    if getattr(module, "bias", None) is not None and isinstance(module, nn.Linear | nn.LayerNorm):
        init.zeros_(module.bias)
