# pyright: basic
"""Transformer encoder-decoder.

Shapes: B batch, S source length, T target tokens read now, K target tokens so far, D hidden_size, H
heads, V target vocabulary.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    Cache,
    DynamicCache,
    EncoderDecoderCache,
    GenerationMixin,
    PreTrainedConfig,
)
from transformers import initialization as init
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.processing_utils import Unpack  # pyright: ignore[reportAttributeAccessIssue]
from transformers.utils.generic import (
    TransformersKwargs,
    can_return_tuple,
    merge_with_config_defaults,
)
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .configuration_transformer_seq2seq import TransformerSeq2SeqConfig
from .layers_positions import (
    ADDED_POSITIONS,
    alibi_biases,
    check_alibi_implementation,
    compared_positions,
    count_positions,
    is_padding_mask,
    join_biases_and_mask,
    rotary_waves,
)
from .layers_transformer import (
    BLOCKS,
    DECODER_BLOCKS,
    NORMS,
    CrossAttention,
    PreNormBlock,
    PreNormDecoderBlock,
    SelfAttention,
    make_feed_forward,
)
from .layers_vocabulary_loss import output_layer_loss
from .outputs import IGNORED_LABEL, alignment_loss, count_targets, token_loss
from .pretrained_base import (
    Seq2SeqHeadMixin,
    SeqModelsPreTrainedModel,
    TwoVocabulariesMixin,
    check_mask,
    check_same_rows,
    check_token_ids,
    check_vectors,
    count_unread,
)


def make_norm(config: TransformerSeq2SeqConfig) -> nn.Module:
    """Return a normalisation of the kind that the config names."""
    make = NORMS[config.norm_type]
    return make(config.hidden_size, eps=config.norm_eps, use_bias=config.use_bias)


def attention_options(config: TransformerSeq2SeqConfig) -> dict[str, Any]:
    """Return what all attentions of the model have in common."""
    return {
        "hidden_size": config.hidden_size,
        "num_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "use_bias": config.use_bias,
        "dropout": config.attention_dropout,
    }


def block_options(config: TransformerSeq2SeqConfig) -> dict[str, Any]:
    """Return the parts of a block beside its attentions."""
    return {
        "mlp": make_feed_forward(
            gated=config.gated_mlp,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            hidden_act=config.hidden_act,
            use_bias=config.use_bias,
        ),
        "attention_norm": make_norm(config),
        "mlp_norm": make_norm(config),
        "dropout": config.hidden_dropout,
    }


def make_encoder_block(config: TransformerSeq2SeqConfig, layer_idx: int) -> PreNormBlock:
    """Return block number `layer_idx` of the encoder, as the config describes it."""
    attention = SelfAttention(config, layer_idx, is_causal=False, **attention_options(config))
    return BLOCKS[config.norm_position](self_attn=attention, **block_options(config))


def make_decoder_block(config: TransformerSeq2SeqConfig, layer_idx: int) -> PreNormDecoderBlock:
    """Return block number `layer_idx` of the decoder, as the config describes it."""
    return DECODER_BLOCKS[config.norm_position](
        self_attn=SelfAttention(config, layer_idx, **attention_options(config)),
        cross_attn=CrossAttention(config, layer_idx, **attention_options(config)),
        cross_attention_norm=make_norm(config),
        **block_options(config),
    )


class TransformerSeq2SeqPreTrainedModel(SeqModelsPreTrainedModel):
    """Base of the family's models.

    Initialisation, each only where no weight was loaded: embeddings and learned positions
    N(0, initializer_range); linear layers Xavier uniform with zero bias; normalisation by 1.
    """

    config_class = TransformerSeq2SeqConfig
    config: TransformerSeq2SeqConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    lora_targets = ("q_proj", "v_proj")
    _no_split_modules = [  # noqa: RUF012 (transformers' own declarations, here and below)
        "PreNormBlock",
        "PostNormBlock",
        "PreNormDecoderBlock",
        "PostNormDecoderBlock",
    ]
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True

    def _init_weights(self, module: nn.Module):
        super()._init_weights(module)
        if isinstance(module, nn.LayerNorm | nn.RMSNorm):
            init.ones_(module.weight)
            bias = getattr(module, "bias", None)
            if isinstance(bias, Tensor):
                init.zeros_(bias)

    @property
    def dummy_inputs(self) -> dict[str, Tensor]:
        """Return the smallest batch that the model takes."""
        input_ids = torch.tensor([[0, 1], [1, 0]]) % self.config.vocab_size
        return {
            "input_ids": input_ids,
            "decoder_input_ids": input_ids % self.config.target_vocab_size,
        }


class TransformerSeq2SeqSide(TransformerSeq2SeqPreTrainedModel):
    """What encoder and decoder have in common: embeddings, positions, blocks and the norm on top.

    Args:
        config: of the model.
        vocab_size: number of tokens of this side.
        layers: blocks of this side.
    """

    def __init__(
        self, config: TransformerSeq2SeqConfig, *, vocab_size: int, layers: Sequence[nn.Module]
    ):
        super().__init__(config)
        if config.position_embedding == "alibi":
            check_alibi_implementation(config._attn_implementation)
        self.embed_tokens = nn.Embedding(vocab_size, config.hidden_size)
        self.embedding_scale = config.hidden_size**0.5 if config.scale_embedding else None
        self.positions = None
        if config.position_embedding in ADDED_POSITIONS:
            make_positions = ADDED_POSITIONS[config.position_embedding]
            self.positions = make_positions(config.max_position_embeddings, config.hidden_size)
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.layers = nn.ModuleList(layers)
        self.norm = make_norm(config) if config.norm_position == "pre" else None
        self.gradient_checkpointing = False
        self.post_init()
        # the plans of the config name modules of the whole model; transformers adds the table here
        plan = self._tp_plan or {}
        self._tp_plan = {name: how for name, how in plan.items() if name == "embed_tokens"}
        self._fsdp_plan = {}

    def look_up(
        self, prefix: str, input_ids: Tensor | None, inputs_embeds: Tensor | None
    ) -> Tensor:
        """Return the embeddings of tokens, or those that were given, (B, T, D).

        Args:
            prefix: of the arguments' names, for messages.
            input_ids: (B, T).
            inputs_embeds: (B, T, D).

        Returns:
            Embeddings, not scaled.

        Raises:
            ValueError: unless exactly one is given, in range.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(
                f"Pass {prefix}input_ids or {prefix}inputs_embeds, one of the two: "
                f"got {'neither' if input_ids is None else 'both'}."
            )
        if inputs_embeds is not None:
            width = self.config.hidden_size
            check_vectors(f"{prefix}inputs_embeds", inputs_embeds, width, "hidden_size")
            return inputs_embeds
        assert input_ids is not None
        check_token_ids(f"{prefix}input_ids", input_ids, self.embed_tokens.num_embeddings)
        return self.embed_tokens(input_ids)

    def place(self, inputs_embeds: Tensor, position_ids: Tensor) -> Tensor:
        """Return what the first block reads: embeddings with positions, after dropout.

        Args:
            inputs_embeds: (B, T, D).
            position_ids: where tokens stand, (B, T).

        Returns:
            (B, T, D).
        """
        if self.embedding_scale is not None:
            inputs_embeds = inputs_embeds * self.embedding_scale
        if self.positions is not None:
            inputs_embeds = inputs_embeds + self.positions(position_ids).to(inputs_embeds.dtype)
        return self.dropout(inputs_embeds)

    def make_waves(self, position_ids: Tensor, like: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return cosines and sines for rotary positions, None for others."""
        head_dim = self.config.head_dim
        if self.config.position_embedding != "rotary" or head_dim is None:
            return None
        return rotary_waves(
            position_ids,
            head_dim=head_dim,
            theta=self.config.rope_theta,
            dtype=like.dtype,
        )

    def add_biases(
        self, mask: Any, config: PreTrainedConfig, positions: tuple[Tensor, Tensor], like: Tensor
    ) -> tuple[Any, dict[str, Any]]:
        """Return what tells self-attention where to look, with the linear biases of ALiBi.

        Args:
            mask: which keys may be seen, in the form that the attention implementation wants.
            config: names the implementation.
            positions: of queries, (B or 1, T), and of keys, (B or 1, K).
            like: embeddings, (B, T, D).

        Returns:
            The mask, and arguments of the blocks for biases that are not in it.
        """
        if config.position_embedding != "alibi":
            return mask, {}
        check_alibi_implementation(config._attn_implementation)
        queries, keys = positions
        biases = alibi_biases(queries, keys, num_heads=config.num_attention_heads, dtype=like.dtype)
        if config._attn_implementation == "flex_attention":
            return mask, {"position_bias": biases.to(like.dtype).expand(like.shape[0], -1, -1, -1)}
        return join_biases_and_mask(biases, mask, like.dtype), {}

    def attending_config(self, output_attentions: bool | None) -> PreTrainedConfig:
        """Return the config with the attention implementation of one forward pass.

        Only the plain form returns its weights, so it runs when they are asked for.
        """
        implementation = self.config._attn_implementation
        if not output_attentions or implementation == "eager":
            return self.config
        config = copy.copy(self.config)
        config._attn_implementation = "eager"
        return config


class TransformerSeq2SeqEncoder(TransformerSeq2SeqSide):
    """Read the source: every token attends to all."""

    _can_record_outputs = {"hidden_states": PreNormBlock, "attentions": SelfAttention}  # noqa: RUF012

    def __init__(self, config: TransformerSeq2SeqConfig):
        layers = [make_encoder_block(config, index) for index in range(config.num_encoder_layers)]
        super().__init__(config, vocab_size=config.vocab_size, layers=layers)

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        **kwargs,
    ) -> BaseModelOutput:
        """Encode a batch of sources.

        Args:
            input_ids: source ids, (B, S).
            attention_mask: 1 at real tokens, anywhere in the row, (B, S); None means no padding.
            inputs_embeds: source embeddings instead of ids, (B, S, D).
            output_attentions: return the weights of every block, (B, H, S, S); attention then runs
                in its plain form.
            **kwargs: `output_hidden_states`; others go to the attention implementation.

        Returns:
            One vector for each token, (B, S, D), and what was asked for.

        Raises:
            ValueError: if inputs are missing, doubled, out of range or do not fit.
        """
        embedded = self.look_up("", input_ids, inputs_embeds)  # (B, S, D)
        if attention_mask is not None and is_padding_mask(attention_mask):
            check_mask("attention_mask", attention_mask, embedded.shape[:2], "the encoder input")
        config = self.attending_config(output_attentions)
        mask = create_bidirectional_mask(
            config=config,
            inputs_embeds=embedded,
            attention_mask=attention_mask,
            allow_is_bidirectional_skip=config.position_embedding != "alibi",
        )
        position_ids = count_positions(
            attention_mask, num_read=0, num_new=embedded.shape[1], device=embedded.device
        )
        mask, biases = self.add_biases(mask, config, (position_ids, position_ids), embedded)
        hidden_states = self.place(embedded, position_ids)
        waves = self.make_waves(position_ids, hidden_states)
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                attention_mask=mask,
                rotary_waves=waves,
                attn_implementation=config._attn_implementation,
                **biases,
                **without_cache(kwargs),
            )
        if self.norm is not None:
            hidden_states = self.norm(hidden_states)
        return BaseModelOutput(last_hidden_state=hidden_states)


def without_cache(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of an encoder without those that concern a cache alone."""
    return {name: value for name, value in kwargs.items() if name != "use_cache"}


class TransformerSeq2SeqDecoder(TransformerSeq2SeqSide):
    """Write the target: every token attends to those before it and to the source."""

    _can_record_outputs = {  # noqa: RUF012
        "hidden_states": PreNormDecoderBlock,
        "attentions": OutputRecorder(SelfAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(CrossAttention, index=1, layer_name="cross_attn"),
    }

    def __init__(self, config: TransformerSeq2SeqConfig):
        layers = [make_decoder_block(config, index) for index in range(config.num_decoder_layers)]
        super().__init__(config, vocab_size=config.target_vocab_size, layers=layers)

    def new_cache(self) -> EncoderDecoderCache:
        """Return an empty cache, one half for each attention."""
        return EncoderDecoderCache(
            DynamicCache(config=self.config), DynamicCache(config=self.config)
        )

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        inputs_embeds: Tensor | None = None,
        position_ids: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Run the decoder over given target tokens.

        Args:
            input_ids: target ids, (B, T).
            attention_mask: 1 at real target tokens, of those read before too, (B, K); None means no
                padding. A mask of four axes is taken as it is.
            encoder_hidden_states: outputs of the encoder, (B, S, D).
            encoder_attention_mask: 1 at real source tokens, (B, S).
            past_key_values: keys and values of the tokens read before, and of the source.
            inputs_embeds: target embeddings instead of ids, (B, T, D).
            position_ids: where the new tokens stand, (B, T); None counts the real tokens.
            use_cache: return keys and values.
            output_attentions: return the weights of every block over the target, (B, H, T, K), and
                over the source, (B, H, T, S); attention then runs in its plain form.
            **kwargs: `output_hidden_states`; others go to the attention implementation.

        Returns:
            One vector for each token, (B, T, D), and what was asked for.

        Raises:
            ValueError: if inputs are missing, doubled, out of range or do not fit.
        """
        embedded = self.look_up("decoder_", input_ids, inputs_embeds)  # (B, T, D)
        self._check_source(embedded, encoder_hidden_states, encoder_attention_mask)
        if use_cache and past_key_values is None:
            past_key_values = self.new_cache()
        self._check_cache(past_key_values)
        num_read = 0 if past_key_values is None else past_key_values.get_seq_length()
        config = self.attending_config(output_attentions)
        cache = None if past_key_values is None else past_key_values.self_attention_cache
        mask, biases = self._make_mask(embedded, attention_mask, cache, num_read, config)
        source_mask = create_bidirectional_mask(
            config=config,
            inputs_embeds=embedded,
            attention_mask=encoder_attention_mask,
            encoder_hidden_states=encoder_hidden_states,
        )
        if position_ids is None:
            position_ids = count_positions(
                attention_mask, num_read=num_read, num_new=embedded.shape[1], device=embedded.device
            )
        hidden_states = self.place(embedded, position_ids)
        waves = self.make_waves(position_ids, hidden_states)
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                encoder_hidden_states,  # by place: its gradient passes through checkpointing
                attention_mask=mask,
                encoder_attention_mask=source_mask,
                rotary_waves=waves,
                past_key_values=past_key_values,
                use_cache=use_cache,
                attn_implementation=config._attn_implementation,
                **biases,
                **kwargs,
            )
        if self.norm is not None:
            hidden_states = self.norm(hidden_states)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=hidden_states, past_key_values=past_key_values if use_cache else None
        )

    def _check_source(self, embedded, encoder_hidden_states, encoder_attention_mask):
        if encoder_hidden_states is None:
            raise ValueError("The decoder needs encoder_hidden_states, got None.")
        num_rows, num_source = encoder_hidden_states.shape[:2]
        check_vectors(
            "encoder_hidden_states", encoder_hidden_states, self.config.hidden_size, "hidden_size"
        )
        check_same_rows("The decoder input", embedded.shape[0], "the source", num_rows)
        if is_padding_mask(encoder_attention_mask):
            shape = (num_rows, num_source)
            check_mask("attention_mask", encoder_attention_mask, shape, "the encoder output")

    def _check_cache(self, past_key_values):
        if past_key_values is not None and not isinstance(past_key_values, EncoderDecoderCache):
            raise ValueError(
                f"past_key_values must be an EncoderDecoderCache, with keys of the target and of "
                f"the source, got {type(past_key_values).__name__}. Pass what this model returned, "
                f"or EncoderDecoderCache(cache, DynamicCache())."
            )

    def _make_mask(self, embedded, attention_mask, cache: Cache | None, num_read, config):
        """Return what tells self-attention where to look, None for plainly all tokens before, and
        arguments of the blocks for biases that are not in it."""
        is_alibi = config.position_embedding == "alibi"
        batch_size, num_new = embedded.shape[:2]
        if is_padding_mask(attention_mask) and isinstance(num_read, int):
            shape = (batch_size, num_read + num_new)
            check_mask("decoder_attention_mask", attention_mask, shape, "all target tokens")
        mask = create_causal_mask(
            config=config,
            inputs_embeds=embedded,
            attention_mask=attention_mask,
            past_key_values=cache,
            allow_is_causal_skip=not is_alibi,
        )
        if not is_alibi:
            return mask, {}
        places = compared_positions(
            attention_mask, None, cache, num_new=num_new, device=embedded.device
        )
        return self.add_biases(mask, config, places, embedded)


class TransformerSeq2SeqModel(TwoVocabulariesMixin, TransformerSeq2SeqPreTrainedModel):
    """The encoder-decoder without an output layer."""

    def __init__(self, config: TransformerSeq2SeqConfig):
        super().__init__(config)
        self.encoder = TransformerSeq2SeqEncoder(config)
        self.decoder = TransformerSeq2SeqDecoder(config)
        if config.share_embeddings:
            self._tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}
            self._keys_to_ignore_on_save = set(self._tied_weights_keys)  # Trainer expects no others
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        """Encode a source and run the decoder over a given target.

        Args:
            input_ids: source ids, (B, S).
            attention_mask: 1 at real source tokens, (B, S); None means no padding.
            decoder_input_ids: target ids, (B, T).
            decoder_attention_mask: 1 at real target tokens, of those read before too, (B, K).
            encoder_outputs: an earlier result of the encoder, instead of a source.
            past_key_values: keys and values of earlier calls.
            inputs_embeds: source embeddings instead of ids, (B, S, D).
            decoder_inputs_embeds: target embeddings instead of ids, (B, T, D).
            decoder_position_ids: where the new target tokens stand, (B, T); None counts the real
                tokens.
            use_cache: return keys and values.
            **kwargs: `output_attentions` and `output_hidden_states`, of both sides; others go to
                the attention implementation.

        Returns:
            The vectors that an output layer reads, (B, T, D), and what was asked for.
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                **kwargs,
            )
        encoder_outputs = as_encoder_output(encoder_outputs)
        decoded = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            position_ids=decoder_position_ids,
            use_cache=use_cache,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoded.last_hidden_state,
            past_key_values=decoded.past_key_values,
            decoder_hidden_states=decoded.hidden_states,
            decoder_attentions=decoded.attentions,
            cross_attentions=decoded.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )


def as_encoder_output(encoder_outputs: Any) -> BaseModelOutput:
    """Return what the user passed as `encoder_outputs` in one class.

    Args:
        encoder_outputs: a BaseModelOutput, a mapping with fields of the same names, a tuple that
            begins with the last hidden state, or that alone.

    Returns:
        A BaseModelOutput.

    Raises:
        ValueError: if the last hidden state is missing.
    """
    if isinstance(encoder_outputs, Tensor):
        encoder_outputs = (encoder_outputs,)
    known = ("last_hidden_state", "hidden_states", "attentions")
    if not hasattr(encoder_outputs, "items"):
        encoder_outputs = dict(zip(known, encoder_outputs, strict=False))
    if not isinstance(encoder_outputs, BaseModelOutput):
        encoder_outputs = BaseModelOutput(**{name: encoder_outputs.get(name) for name in known})
    if encoder_outputs.last_hidden_state is None:
        raise ValueError(
            "encoder_outputs must hold last_hidden_state. Pass what model.get_encoder() returned."
        )
    return encoder_outputs


class TransformerSeq2SeqForConditionalGeneration(
    Seq2SeqHeadMixin, TransformerSeq2SeqPreTrainedModel, GenerationMixin
):
    """The encoder-decoder with an output layer: softmax over the target vocabulary, loss and
    generation."""

    _tp_plan = {"lm_head": "colwise_gather_output"}  # noqa: RUF012
    _fsdp_plan = {"lm_head": "keep_full_weight"}  # noqa: RUF012

    def __init__(self, config: TransformerSeq2SeqConfig):
        super().__init__(config)
        self.model = TransformerSeq2SeqModel(config)
        if config.tie_word_embeddings:
            table = "encoder" if config.share_embeddings else "decoder"
            self._tied_weights_keys = {"lm_head.weight": f"model.{table}.embed_tokens.weight"}
            self._keys_to_ignore_on_save = set(self._tied_weights_keys)
        self.lm_head = nn.Linear(
            config.hidden_size, config.target_vocab_size, bias=config.use_output_bias
        )
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        alignments: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqLMOutput:
        """Score a target given a source, p(y|x) = prod_t p(y_t | y_<t, x).

        Args:
            input_ids: source ids, (B, S).
            attention_mask: 1 at real source tokens, (B, S); None means no padding.
            decoder_input_ids: target ids, (B, T); None takes `labels` shifted right.
            decoder_attention_mask: 1 at real target tokens, of those read before too, (B, K).
            encoder_outputs: an earlier result of the encoder, instead of a source.
            past_key_values: keys and values of earlier calls.
            inputs_embeds: source embeddings instead of ids, (B, S, D).
            decoder_inputs_embeds: target embeddings instead of ids, (B, T, D).
            labels: target ids to predict, -100 where skipped, (B, T).
            use_cache: return keys and values; off while there are labels.
            num_items_in_batch: targets that the loss is divided by, when the batch is one part of a
                larger one.
            alignments: which source tokens each target token belongs to, (B, T, S), for
                `guided_alignment_weight`; see `alignment_loss`.
            **kwargs: see `TransformerSeq2SeqModel`.

        Returns:
            Loss in nats per target token (with labels), logits (B, T, V), and what was asked for.
            In training mode the loss is smoothed and alignment added as the config says, so that
            only exp(loss) of an evaluation is a perplexity, and with labels and `chunked_loss`
            there are no logits.

        Raises:
            ValueError: if inputs are missing, doubled, out of range or do not fit, or no label is
                left to predict.
        """
        if labels is not None:
            check_token_ids("labels", labels, self.config.target_vocab_size, ignored=IGNORED_LABEL)
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            raise ValueError(
                "Pass labels, decoder_input_ids or decoder_inputs_embeds: the decoder has nothing "
                "to read. (Trainer's label_smoothing_factor takes labels away: set label_smoothing "
                "in the config instead, or let the collator make decoder_input_ids.)"
            )
        shows_weights = kwargs.get("output_attentions")
        if shows_weights is None:
            shows_weights = self.config.output_attentions
        guidance = self.config.guided_alignment_weight
        if not self.training or guidance == 0 or labels is None:
            alignments = None
        if alignments is not None:
            kwargs = {**kwargs, "output_attentions": True}
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            **{**kwargs, "return_dict": True},
        )
        logits, loss = None, None
        if labels is None or not (self.training and self.config.chunked_loss):
            logits = self.lm_head(outputs.last_hidden_state)  # (B, T, V)
        if labels is not None:
            loss = self._loss(outputs.last_hidden_state, logits, labels, num_items_in_batch)
            if alignments is not None:
                weights = outputs.cross_attentions[self.config.guided_alignment_layer].mean(dim=1)
                loss = loss + guidance * alignment_loss(
                    weights, alignments, labels, num_items_in_batch
                )
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions if shows_weights else None,
            cross_attentions=outputs.cross_attentions if shows_weights else None,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions if shows_weights else None,
        )

    def _loss(
        self,
        hidden_states: Tensor,
        logits: Tensor | None,
        labels: Tensor,
        num_items_in_batch: Tensor | int | None,
    ) -> Tensor:
        if labels.shape != hidden_states.shape[:2]:
            raise ValueError(
                f"labels must have the shape of the decoder input, "
                f"{tuple(hidden_states.shape[:2])}, got {tuple(labels.shape)}. Leave "
                f"decoder_input_ids out, and the model makes them from the labels."
            )
        smoothing = self.config.label_smoothing if self.training else 0.0
        if logits is not None:
            return token_loss(
                logits, labels, smoothing=smoothing, num_items_in_batch=num_items_in_batch
            )
        labels = labels.to(hidden_states.device)
        is_target = labels != IGNORED_LABEL
        targets = labels[is_target].long()  # (N)
        total = output_layer_loss(
            self.lm_head, hidden_states[is_target], targets, smoothing=smoothing
        )
        return total / count_targets(labels, num_items_in_batch)

    # What generate() needs to know

    def prepare_inputs_for_generation(
        self,
        input_ids,
        next_sequence_length=None,
        past_key_values=None,
        decoder_attention_mask=None,
        **kwargs,
    ) -> dict[str, Any]:
        """Prepare one step of generate(); a padded target has its tokens counted before a cache of
        fixed size makes another mask of its padding."""
        num_read = 0 if past_key_values is None else past_key_values.get_seq_length()
        if decoder_attention_mask is None:
            if next_sequence_length is None and num_read:
                # generate() finds the new tokens of a continued target by the length of that mask
                next_sequence_length = count_unread(input_ids, num_read)
        elif is_padding_mask(decoder_attention_mask):
            num_new = next_sequence_length or input_ids.shape[1]
            kwargs["decoder_position_ids"] = count_positions(
                decoder_attention_mask,
                num_read=num_read,
                num_new=num_new,
                device=decoder_attention_mask.device,
            )
        return super().prepare_inputs_for_generation(  # pyright: ignore[reportAttributeAccessIssue]
            input_ids,
            next_sequence_length=next_sequence_length,
            past_key_values=past_key_values,
            decoder_attention_mask=decoder_attention_mask,
            **kwargs,
        )

    def _expand_inputs_for_generation(self, *args, encoder_outputs=None, **kwargs):
        if encoder_outputs is not None:  # rows are repeated in it: not in the caller's own
            kwargs["encoder_outputs"] = BaseModelOutput(**as_encoder_output(encoder_outputs))
        expand = super()._expand_inputs_for_generation  # pyright: ignore[reportAttributeAccessIssue]
        return expand(*args, **kwargs)


__all__ = [
    "TransformerSeq2SeqForConditionalGeneration",
    "TransformerSeq2SeqModel",
    "TransformerSeq2SeqPreTrainedModel",
]
