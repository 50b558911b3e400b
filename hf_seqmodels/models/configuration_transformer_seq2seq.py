# pyright: basic
"""Settings of the transformer encoder-decoder."""

import copy
from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig


@strict
class TransformerSeq2SeqConfig(PreTrainedConfig):
    """Settings of the transformer encoder-decoder (Vaswani et al. 2017, arXiv:1706.03762).

    Sizes are widths of vectors, rates are probabilities in [0, 1). A combination that cannot be
    honoured raises when the config is made. The model of the paper is `norm_position="post",
    share_embeddings=True, tie_word_embeddings=True` with the other options as they are.

    Args:
        vocab_size: number of source tokens.
        decoder_vocab_size: number of target tokens; None means one vocabulary for both sides.
        hidden_size: width of embeddings and of every layer's output.
        num_encoder_layers: blocks of the encoder.
        num_decoder_layers: blocks of the decoder.
        num_attention_heads: heads of the queries, in every attention.
        num_key_value_heads: heads of keys and values, a divisor of `num_attention_heads`; each
            serves several heads of the queries (grouped queries, Ainslie et al. 2023). None means
            `num_attention_heads`.
        head_dim: width of a head; None means `hidden_size / num_attention_heads`.
        intermediate_size: width inside the feed-forward layer; None means 4 * `hidden_size`.
        hidden_act: f in W_2 f(W_1 x); "gelu_pytorch_tanh" is GPT-2's approximation, computed in one
            kernel.
        gated_mlp: W_2 (f(W_g x) * W_1 x) instead (Shazeer 2020, arXiv:2002.05202).
        use_bias: linear layers and layer normalisation add a bias; RMS normalisation never does.
        use_output_bias: the output layer adds a bias.
        position_embedding: "learned" table or "sinusoidal" (Vaswani et al. 2017, section 3.5), both
            added to the embeddings; "rotary" (Su et al. 2021), which turns queries and keys;
            "alibi" (Press et al. 2022), linear biases on the scores, by the distance to either side
            in the encoder. All are for self-attention; attention to the source has no positions of
            its own. All but "learned" go on behind `max_position_embeddings`.
        rope_theta: base of the wave lengths; only "rotary" reads it.
        scale_embedding: multiply embeddings by sqrt(`hidden_size`) before positions are added
            (Vaswani et al. 2017, section 3.4).
        norm_position: "pre" x + F(N(x)) with one more normalisation on top of either side, or
            "post" N(x + F(x)).
        norm_type: "layer" (Ba et al. 2016) or "rms" (Zhang and Sennrich 2019).
        norm_eps: added to the variance, or to the mean square.
        share_embeddings: one embedding table for source and target; needs one vocabulary.
        tie_word_embeddings: the output layer uses the target embedding table.
        embedding_dropout: rate on the sum of embeddings and positions, on both sides.
        hidden_dropout: rate on what attention and feed-forward layers add.
        attention_dropout: rate on attention weights.
        label_smoothing: probability mass spread evenly over the target vocabulary in the loss in
            training mode; the loss in evaluation mode is never smoothed.
        guided_alignment_weight: weight of the distance between the attention of a decoder layer
            over the source (the mean of its heads) and the `alignments` of a batch in the loss in
            training mode (Chen et al. 2016).
        guided_alignment_layer: that layer, counted from 0 or from the end.
        chunked_loss: compute the training loss and its gradients some tokens at a time, so that the
            scores of all tokens are never held; in training mode there are then no logits beside a
            loss. Same numbers.
        max_position_embeddings: longest length of either side, in tokens; only "learned" positions
            have no room for more.
        initializer_range: standard deviation of the embedding tables at initialisation; None means
            1 / sqrt(`hidden_size`), so that scaled embeddings and tied outputs have variance 1.
        use_cache: return keys and values for generation.
        pad_token_id: id that fills batches of both sides and follows the end of generated rows.
        bos_token_id: id of the begin token.
        eos_token_id: id or ids that end a sequence.
        decoder_start_token_id: first decoder input.
        is_encoder_decoder: fixed; tells generate() to encode first.
    """

    model_type = "seqmodels_transformer_seq2seq"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012 (transformers' own declaration)
    attribute_map = {"num_hidden_layers": "num_encoder_layers"}  # noqa: RUF012

    vocab_size: int = 8000
    decoder_vocab_size: int | None = None
    hidden_size: int = 256
    num_encoder_layers: int = 4
    num_decoder_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int | None = None
    hidden_act: Literal["gelu", "gelu_pytorch_tanh", "relu", "silu"] = "relu"
    gated_mlp: bool = False
    use_bias: bool = True
    use_output_bias: bool = False
    position_embedding: Literal["learned", "sinusoidal", "rotary", "alibi"] = "sinusoidal"
    rope_theta: float | int = 10000.0
    scale_embedding: bool = True
    norm_position: Literal["pre", "post"] = "pre"
    norm_type: Literal["layer", "rms"] = "layer"
    norm_eps: float = 1e-5
    share_embeddings: bool = False
    tie_word_embeddings: bool = False
    embedding_dropout: float | int = 0.1
    hidden_dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    label_smoothing: float | int = 0.0
    guided_alignment_weight: float | int = 0.0
    guided_alignment_layer: int = -1
    chunked_loss: bool = True
    max_position_embeddings: int = 1024
    initializer_range: float | int | None = None
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1
    is_encoder_decoder: bool = True

    def __post_init__(self, **kwargs):
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.head_dim is None:
            self.head_dim = self._share_of_a_head()
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        if self.initializer_range is None:
            self.initializer_range = max(1, self.hidden_size) ** -0.5
        self._plan_parallelism()
        super().__post_init__(**kwargs)

    def _share_of_a_head(self) -> int:
        if self.num_attention_heads < 1 or self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"num_attention_heads must divide hidden_size={self.hidden_size}, got "
                f"{self.num_attention_heads}. Change one of them or set head_dim."
            )
        return self.hidden_size // self.num_attention_heads

    def _plan_parallelism(self):
        """Name the modules that exist with these options; the plans are never saved."""
        self.base_model_tp_plan: dict[str, str] = {}
        self.base_model_fsdp_plan: dict[str, str] = {}
        for side, attentions in (
            ("encoder", ["self_attn"]),
            ("decoder", ["self_attn", "cross_attn"]),
        ):
            block = f"{side}.layers.*."
            if self.position_embedding == "alibi":
                attentions.remove("self_attn")  # a bias per head, the same on every process
            for attention in attentions:
                for name in ("q_proj", "k_proj", "v_proj"):
                    self.base_model_tp_plan[f"{block}{attention}.{name}"] = "colwise"
                self.base_model_tp_plan[f"{block}{attention}.o_proj"] = "rowwise"
            for name in ("up_proj", "gate_proj") if self.gated_mlp else ("up_proj",):
                self.base_model_tp_plan[f"{block}mlp.{name}"] = "colwise"
            self.base_model_tp_plan[f"{block}mlp.down_proj"] = "rowwise"
            self.base_model_fsdp_plan[f"{side}.embed_tokens"] = "free_full_weight"
            self.base_model_fsdp_plan[f"{side}.layers.*"] = "free_full_weight"
            if self.norm_position == "pre":
                self.base_model_fsdp_plan[f"{side}.norm"] = "keep_full_weight"

    @property
    def target_vocab_size(self) -> int:
        """Number of target tokens, V in the shapes of the model."""
        return self.vocab_size if self.decoder_vocab_size is None else self.decoder_vocab_size

    def get_text_config(
        self, decoder: bool | None = None, encoder: bool | None = None
    ) -> PreTrainedConfig:
        """Return this config; for the decoder alone, with the target's vocabulary as `vocab_size`
        and the decoder's layers as `num_hidden_layers`.

        transformers' own version drops the prefixes of `decoder_...` and `encoder_...` fields,
        which would write None into `vocab_size` here. Caches count the layers of what it returns.

        Args:
            decoder: ask for the decoder's side.
            encoder: ask for the encoder's side.

        Returns:
            This object, or a copy where the two sides differ.
        """
        is_same = (
            self.target_vocab_size == self.vocab_size
            and self.num_decoder_layers == self.num_encoder_layers
        )
        if not decoder or encoder or is_same:
            return self
        decoder_config = copy.copy(self)
        decoder_config.vocab_size = self.target_vocab_size
        decoder_config.num_encoder_layers = self.num_decoder_layers  # `num_hidden_layers` maps here
        return decoder_config

    def update_from_string(self, update_str: str):
        """Change fields as transformers does, and with them those that follow from others.

        A field with the value that None means for it, such as `head_dim`, gets the value that None
        means afterwards, unless it is named itself. `--config_overrides` of scripts comes here.

        Args:
            update_str: `name=value,name=value`.

        Raises:
            ValueError: if a name is unknown, or the fields do not fit together.
        """
        meant_by_none = {
            "num_key_value_heads": self.num_attention_heads,
            "head_dim": self.hidden_size / self.num_attention_heads,
            "intermediate_size": 4 * self.hidden_size,
            "initializer_range": self.hidden_size**-0.5,
        }
        following = [name for name, value in meant_by_none.items() if getattr(self, name) == value]
        super().update_from_string(update_str)
        named = [change.partition("=")[0] for change in update_str.split(",")]
        for name in following:
            if name not in named:
                setattr(self, name, None)
        made = type(self).from_dict(self.to_dict())  # checks, and fills in what None means
        plans = [f"base_model_{kind}_plan" for kind in ("tp", "fsdp", "pp")]
        for name in (*meant_by_none, *plans):
            setattr(self, name, getattr(made, name))

    def validate_sizes(self):
        """Check that every count and width is positive."""
        for name in (
            "vocab_size",
            "decoder_vocab_size",
            "hidden_size",
            "num_encoder_layers",
            "num_decoder_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "intermediate_size",
            "max_position_embeddings",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        for name in ("initializer_range", "norm_eps", "rope_theta"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}.")

    def validate_rates(self):
        """Check that every dropout and the label smoothing is a probability below 1."""
        for name in ("embedding_dropout", "hidden_dropout", "attention_dropout", "label_smoothing"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ValueError(f"{name} must be in [0, 1), got {value}.")

    def validate_guided_alignment(self):
        """Check that the layer exists whose attention is guided."""
        if not self.guided_alignment_weight >= 0:
            raise ValueError(
                f"guided_alignment_weight must be at least 0, got {self.guided_alignment_weight}."
            )
        num_layers = max(self.num_decoder_layers, 1)  # none is for validate_sizes to refuse
        if not -num_layers <= self.guided_alignment_layer < num_layers:
            raise ValueError(
                f"guided_alignment_layer must be one of {num_layers} decoder layers, got "
                f"{self.guided_alignment_layer}. They count from 0, or from the end, -1."
            )

    def validate_heads(self):
        """Check that heads of keys and values divide those of the queries."""
        if self.num_attention_heads % (self.num_key_value_heads or 1):
            raise ValueError(
                f"num_key_value_heads must divide num_attention_heads={self.num_attention_heads}, "
                f"got {self.num_key_value_heads}. Each head of keys serves as many heads of "
                f"queries as any other."
            )

    def validate_positions(self):
        """Check that the options of positions fit the kind."""
        is_rotary = self.position_embedding == "rotary"
        if is_rotary and (self.head_dim or 0) % 2:
            raise ValueError(
                f"position_embedding='rotary' turns pairs of numbers: head_dim must be even, got "
                f"{self.head_dim}. Choose another head_dim or number of heads."
            )
        if self.rope_theta != 10000 and not is_rotary:
            raise ValueError(
                f"rope_theta={self.rope_theta} needs position_embedding='rotary', got "
                f"{self.position_embedding!r}. Leave rope_theta at 10000 or change the positions."
            )

    def validate_vocabularies(self):
        """Check that shared tables have one size, that special ids exist on the target side, and
        the id of padding on both."""
        if self.share_embeddings and self.target_vocab_size != self.vocab_size:
            raise ValueError(
                f"share_embeddings needs one vocabulary, got vocab_size={self.vocab_size} and "
                f"decoder_vocab_size={self.decoder_vocab_size}. Set share_embeddings=False or "
                f"decoder_vocab_size=None."
            )
        if self.decoder_start_token_id is None:
            raise ValueError("decoder_start_token_id must be set: it is the first decoder input.")
        ends = self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        for token_id in (self.pad_token_id, self.bos_token_id, self.decoder_start_token_id, *ends):
            if token_id is not None and not 0 <= token_id < self.target_vocab_size:
                raise ValueError(
                    f"Special token ids must lie in the target vocabulary [0, "
                    f"{self.target_vocab_size}), got {token_id}. Pass the ids of your tokenizer."
                )
        if self.pad_token_id is not None and self.pad_token_id >= self.vocab_size:
            raise ValueError(
                f"pad_token_id fills sources as well, so it must lie in the source vocabulary "
                f"[0, {self.vocab_size}), got {self.pad_token_id}. Give both tokenizers the same "
                f"padding id."
            )

    def validate_direction(self):
        """Check that the family stays an encoder-decoder."""
        if not self.is_encoder_decoder:
            raise ValueError("is_encoder_decoder is fixed to True for this family, got False.")


__all__ = ["TransformerSeq2SeqConfig"]
