"""Settings of the transformer language model."""

from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig


@strict
class DecoderLMConfig(PreTrainedConfig):
    """Settings of the transformer language model, a stack of blocks that attend to the past.

    Sizes are widths of vectors, rates are probabilities in [0, 1). A combination that cannot be
    honoured raises when the config is made. GPT-2 (Radford et al. 2019) is
    `hidden_act="gelu_pytorch_tanh"` with the other options as they are; Llama (Touvron et al. 2023)
    is `position_embedding="rotary", norm_type="rms", hidden_act="silu", gated_mlp=True,
    use_bias=False`; the layers of Vaswani et al. 2017 are `position_embedding="sinusoidal",
    scale_embedding=True, norm_position="post", hidden_act="relu"`.

    Args:
        vocab_size: number of tokens.
        hidden_size: width of embeddings and of every layer's output.
        num_hidden_layers: blocks of the stack.
        num_attention_heads: heads of the queries.
        num_key_value_heads: heads of keys and values, a divisor of `num_attention_heads`; each
            serves several heads of the queries (grouped queries, Ainslie et al. 2023). None means
            `num_attention_heads`.
        head_dim: width of a head; None means `hidden_size / num_attention_heads`.
        intermediate_size: width inside the feed-forward layer; None means 4 * `hidden_size`.
        hidden_act: f in W_2 f(W_1 x); "gelu_pytorch_tanh" is GPT-2's approximation, computed in one
            kernel.
        gated_mlp: W_2 (f(W_g x) * W_1 x) instead (Shazeer 2020, arXiv:2002.05202).
        use_bias: linear layers and layer normalisation add a bias; RMS normalisation never does,
            nor does the output layer.
        position_embedding: "learned" table or "sinusoidal" (Vaswani et al. 2017, section 3.5), both
            added to the embeddings; "rotary" (Su et al. 2021), which turns queries and keys;
            "alibi" (Press et al. 2022), linear biases on the scores. All but "learned" go on behind
            `max_position_embeddings`.
        rope_theta: base of the wave lengths; only "rotary" reads it.
        scale_embedding: multiply embeddings by sqrt(`hidden_size`) before positions are added
            (Vaswani et al. 2017, section 3.4).
        norm_position: "pre" x + F(N(x)) with one more normalisation on top, or "post" N(x + F(x)).
        norm_type: "layer" (Ba et al. 2016) or "rms" (Zhang and Sennrich 2019).
        norm_eps: added to the variance, or to the mean square.
        sliding_window: a token attends to itself and the `sliding_window` - 1 tokens before it;
            None means to all.
        tie_word_embeddings: the output layer uses the embedding table.
        embedding_dropout: rate on the sum of embeddings and positions.
        hidden_dropout: rate on what attention and feed-forward layer add, and before a classifier.
        attention_dropout: rate on attention weights.
        label_smoothing: probability mass spread evenly over the vocabulary in the loss in training
            mode; the loss in evaluation mode is never smoothed. Language modelling alone reads it.
        max_position_embeddings: longest length, in tokens; only "learned" positions have no room
            for more.
        initializer_range: standard deviation of embeddings and linear layers at initialisation.
        scaled_residual_init: divide it by sqrt(2 * `num_hidden_layers`) in the layers whose outputs
            are added up, two in a block (Radford et al. 2019, section 2.3).
        use_cache: return keys and values for generation.
        pad_token_id: id that fills batches and follows the end of generated rows.
        bos_token_id: id of the begin token.
        eos_token_id: id or ids that end a sequence.
        is_encoder_decoder: fixed; there is one side.
    """

    model_type = "seqmodels_decoder_lm"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012 (transformers' own declaration)

    vocab_size: int = 8000
    hidden_size: int = 256
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int | None = None
    hidden_act: Literal["gelu", "gelu_pytorch_tanh", "relu", "silu"] = "gelu"
    gated_mlp: bool = False
    use_bias: bool = True
    position_embedding: Literal["learned", "sinusoidal", "rotary", "alibi"] = "learned"
    rope_theta: float | int = 10000.0
    scale_embedding: bool = False
    norm_position: Literal["pre", "post"] = "pre"
    norm_type: Literal["layer", "rms"] = "layer"
    norm_eps: float = 1e-5
    sliding_window: int | None = None
    tie_word_embeddings: bool = True
    embedding_dropout: float | int = 0.1
    hidden_dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    label_smoothing: float | int = 0.0
    max_position_embeddings: int = 1024
    initializer_range: float | int = 0.02
    scaled_residual_init: bool = True
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    is_encoder_decoder: bool = False

    def __post_init__(self, **kwargs):
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.head_dim is None:
            self.head_dim = self._share_of_a_head()
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
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
        blocks = "layers.*."
        mlp = {f"{blocks}mlp.up_proj": "colwise", f"{blocks}mlp.down_proj": "rowwise"}
        if self.gated_mlp:
            mlp[f"{blocks}mlp.gate_proj"] = "colwise"
        attention = {
            f"{blocks}self_attn.q_proj": "colwise",
            f"{blocks}self_attn.k_proj": "colwise",
            f"{blocks}self_attn.v_proj": "colwise",
            f"{blocks}self_attn.o_proj": "rowwise",
        }
        has_bias_per_head = self.position_embedding == "alibi"  # the same on every process
        self.base_model_tp_plan = mlp if has_bias_per_head else attention | mlp
        self.base_model_fsdp_plan = {
            "embed_tokens": "free_full_weight",
            "layers.*": "free_full_weight",
        }
        self.base_model_pp_plan = {
            "embed_tokens": (["input_ids"], ["inputs_embeds"]),
            "layers": (["hidden_states", "attention_mask"], ["hidden_states"]),
        }
        if self.norm_position == "pre":
            self.base_model_fsdp_plan["norm"] = "keep_full_weight"
            self.base_model_pp_plan["norm"] = (["hidden_states"], ["hidden_states"])

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
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "intermediate_size",
            "sliding_window",
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

    def validate_special_ids(self):
        """Check that special ids exist."""
        ends = self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        for token_id in (self.pad_token_id, self.bos_token_id, *ends):
            if token_id is not None and not 0 <= token_id < self.vocab_size:
                raise ValueError(
                    f"Special token ids must lie in the vocabulary [0, {self.vocab_size}), got "
                    f"{token_id}. Pass the ids of your tokenizer."
                )

    def validate_direction(self):
        """Check that the family stays a decoder alone."""
        if self.is_encoder_decoder:
            raise ValueError("is_encoder_decoder is fixed to False for this family, got True.")


__all__ = ["DecoderLMConfig"]
