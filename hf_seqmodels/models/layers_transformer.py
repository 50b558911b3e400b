"""Transformer blocks and their parts: attention to tokens of the same side or of the source,
feed-forward layers, normalisation, and their initialisation.

Shapes: B batch, S source length, T tokens read now, K keys so far, D hidden size, H heads, G heads
of keys and values, P head width, F feed-forward width.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Cache, EncoderDecoderCache, PreTrainedConfig
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

    A query that may see no key at all gets weights of zero, as from torch's own kernels.
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
    if attention_mask is not None:
        is_hidden = attention_mask <= torch.finfo(attention_mask.dtype).min
        weights = weights.masked_fill(is_hidden, 0)
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
        self.attention_dropout = nn.Dropout(dropout)
        self.sliding_window = sliding_window
        self.is_causal = is_causal
        self.q_proj = nn.Linear(hidden_size, num_heads * head_dim, bias=use_bias)
        self.k_proj = nn.Linear(hidden_size, num_key_value_heads * head_dim, bias=use_bias)
        self.v_proj = nn.Linear(hidden_size, num_key_value_heads * head_dim, bias=use_bias)
        self.o_proj = nn.Linear(num_heads * head_dim, hidden_size, bias=use_bias)
        self.o_proj.adds_to_residual = True

    def extra_repr(self) -> str:
        """Say what the printed model shows of the layer."""
        shown = [
            f"num_heads={self.q_proj.out_features // self.head_dim}",
            f"num_key_value_heads={self.k_proj.out_features // self.head_dim}",
            f"is_causal={self.is_causal}",
        ]
        if self.sliding_window is not None:
            shown.append(f"sliding_window={self.sliding_window}")
        return ", ".join(shown)

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
            **kwargs: see `attend`.

        Returns:
            Outputs, (B, T, D), and weights, (B, H, T, K), where the implementation has them.
        """
        query = self.split_heads(self.q_proj(hidden_states))  # (B, H, T, P)
        key = self.split_heads(self.k_proj(hidden_states))  # (B, G, T, P)
        value = self.split_heads(self.v_proj(hidden_states))  # (B, G, T, P)
        if rotary_waves is not None:
            query, key = rotate(query, rotary_waves), rotate(key, rotary_waves)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)  # (B, G, K, P)
        return self.attend(query, key, value, attention_mask, **kwargs)

    def split_heads(self, projected: Tensor) -> Tensor:
        """Return one vector for each head: (B, T, H * P) -> (B, H, T, P)."""
        return projected.view(*projected.shape[:-1], -1, self.head_dim).transpose(1, 2)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        attn_implementation: str | None = None,
        attend_in_groups: Callable[..., tuple[Tensor, None]] | None = None,
        **kwargs,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend with every head and project what they see.

        Args:
            query: (B, H, T, P).
            key: (B, G, K, P).
            value: (B, G, K, P).
            attention_mask: in the form that the attention implementation wants.
            attn_implementation: name of the implementation; None takes that of the config.
            attend_in_groups: runs the implementation, its first argument, on one group of sequences
                after the other, with `attention_mask` a list; None runs it once.
            **kwargs: passed on to the implementation.

        Returns:
            Outputs, (B, T, D), and weights, (B, H, T, K), where the implementation has them.
        """
        run = ALL_ATTENTION_FUNCTIONS.get_interface(
            attn_implementation or self.config._attn_implementation, plain_attention
        )
        if attend_in_groups is not None:
            run = partial(attend_in_groups, run)
        contexts, weights = run(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.attention_dropout.p if self.training else 0.0,
            scaling=self.scaling,
            sliding_window=self.sliding_window,
            **kwargs,
        )  # (B, T, H, P)
        return self.o_proj(contexts.reshape(query.shape[0], query.shape[2], -1)), weights


class CrossAttention(SelfAttention):
    """Attention whose keys and values come from the outputs of an encoder.

    Source: Vaswani et al. 2017, section 3.2.3. With a cache, keys and values of the source are
    computed once and kept in its half for cross-attention.

    Args:
        config: read for the attention implementation alone, which may change at any time.
        layer_idx: number of the layer, its place in the cache.
        **options: as in `SelfAttention`; keys are never hidden by their place.
    """

    def __init__(self, config: PreTrainedConfig, layer_idx: int, **options):
        super().__init__(config, layer_idx, is_causal=False, **options)

    def forward(
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        **kwargs,
    ) -> tuple[Tensor, Tensor | None]:
        """Let every target token attend to the source.

        Args:
            hidden_states: (B, T, D).
            encoder_hidden_states: outputs of the encoder, (B, S, D); not read where the cache holds
                their keys and values.
            attention_mask: in the form that the attention implementation wants.
            past_key_values: keys and values so far; gains those of the source.
            **kwargs: see `attend`.

        Returns:
            Outputs, (B, T, D), and weights, (B, H, T, S), where the implementation has them.
        """
        query = self.split_heads(self.q_proj(hidden_states))  # (B, H, T, P)
        if past_key_values is not None and past_key_values.is_updated.get(self.layer_idx):
            kept = past_key_values.cross_attention_cache.layers[self.layer_idx]
            key, value = kept.keys, kept.values
        else:
            key = self.split_heads(self.k_proj(encoder_hidden_states))  # (B, G, S, P)
            value = self.split_heads(self.v_proj(encoder_hidden_states))  # (B, G, S, P)
            if past_key_values is not None:
                cache = past_key_values.cross_attention_cache
                key, value = cache.update(key, value, self.layer_idx)
                past_key_values.is_updated[self.layer_idx] = True
        num_source = encoder_hidden_states.shape[1]  # a cache of fixed size may have more room
        key, value = key[:, :, :num_source], value[:, :, :num_source]
        return self.attend(query, key, value, attention_mask, **kwargs)


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


class PreNormDecoderBlock(GradientCheckpointingLayer):
    """Pre-norm: z = x + SelfAttention(N(x)), u = z + CrossAttention(N(z)), y = u + FFN(N(u)).

    Args:
        self_attn: attention to the target tokens so far.
        cross_attn: attention to the source.
        mlp: feed-forward layer.
        attention_norm: N beside the self-attention.
        cross_attention_norm: N beside the attention to the source.
        mlp_norm: N beside the feed-forward layer.
        dropout: rate on what the three add.
    """

    def __init__(
        self,
        *,
        self_attn: SelfAttention,
        cross_attn: CrossAttention,
        mlp: FeedForward,
        attention_norm: nn.Module,
        cross_attention_norm: nn.Module,
        mlp_norm: nn.Module,
        dropout: float,
    ):
        super().__init__()
        self.self_attn = self_attn
        self.cross_attn = cross_attn
        self.mlp = mlp
        self.attention_norm = attention_norm
        self.cross_attention_norm = cross_attention_norm
        self.mlp_norm = mlp_norm
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        rotary_waves: tuple[Tensor, Tensor] | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        position_bias: Tensor | None = None,
        **kwargs,
    ) -> Tensor:
        """Let target tokens attend to those before and to the source, then map each.

        Args:
            hidden_states: x, (B, T, D).
            encoder_hidden_states: outputs of the encoder, (B, S, D); by place, so that a gradient
                passes through checkpointing.
            attention_mask: of the self-attention.
            encoder_attention_mask: of the attention to the source.
            rotary_waves: cosines and sines for the self-attention, (B, 1, T, P).
            past_key_values: keys and values so far; the name that checkpointing takes away.
            position_bias: added to the scores of the self-attention by a flex kernel.
            **kwargs: arguments of both attentions.

        Returns:
            y, (B, T, D).
        """
        cache = None if past_key_values is None else past_key_values.self_attention_cache
        biases = {} if position_bias is None else {"position_bias": position_bias}

        def attend_to_target(states: Tensor) -> Tensor:
            options = {"rotary_waves": rotary_waves, "past_key_values": cache, **biases, **kwargs}
            return self.self_attn(states, attention_mask, **options)[0]

        def attend_to_source(states: Tensor) -> Tensor:
            options = {"past_key_values": past_key_values, **kwargs}
            mask = encoder_attention_mask
            return self.cross_attn(states, encoder_hidden_states, mask, **options)[0]

        hidden_states = self._add(hidden_states, self.attention_norm, attend_to_target)
        hidden_states = self._add(hidden_states, self.cross_attention_norm, attend_to_source)
        return self._add(hidden_states, self.mlp_norm, self.mlp)

    def _add(self, states: Tensor, norm: nn.Module, layer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return x + F(N(x))."""
        return states + self.dropout(layer(norm(states)))


class PostNormDecoderBlock(PreNormDecoderBlock):
    """Post-norm: z = N(x + SelfAttention(x)), u = N(z + CrossAttention(z)), y = N(u + FFN(u)).

    Source: Vaswani et al. 2017, section 3.1.
    """

    def _add(self, states: Tensor, norm: nn.Module, layer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return N(x + F(x))."""
        return norm(states + self.dropout(layer(states)))


DECODER_BLOCKS = {"pre": PreNormDecoderBlock, "post": PostNormDecoderBlock}


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
