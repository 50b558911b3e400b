"""Transformer language model: a stack of blocks that attend to the past.

Shapes: B batch, T tokens read now, K keys so far, D hidden_size, H heads, P head width, V
vocabulary, C classes.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache, GenerationMixin
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    SequenceClassifierOutputWithPast,
    TokenClassifierOutput,
)
from transformers.processing_utils import Unpack  # pyright: ignore[reportAttributeAccessIssue]
from transformers.utils.generic import (
    TransformersKwargs,
    can_return_tuple,
    merge_with_config_defaults,
)
from transformers.utils.output_capturing import capture_outputs

from .configuration_decoder_lm import DecoderLMConfig
from .layers_heads import (
    classification_loss,
    last_tokens,
    next_token_targets,
    predicts_next_token,
)
from .layers_positions import (
    ADDED_POSITIONS,
    alibi_biases,
    check_alibi_implementation,
    check_no_holes,
    compared_positions,
    count_positions,
    is_padding_mask,
    join_biases_and_mask,
    rotary_waves,
)
from .layers_transformer import (
    BLOCKS,
    NORMS,
    PreNormBlock,
    SelfAttention,
    initialize_transformer,
    make_feed_forward,
)
from .outputs import IGNORED_LABEL, token_loss
from .pretrained_base import (
    SeqModelsPreTrainedModel,
    check_mask,
    check_same_rows,
    check_token_ids,
    check_vectors,
)


def make_norm(config: DecoderLMConfig) -> nn.Module:
    """Return a normalisation of the kind that the config names."""
    make = NORMS[config.norm_type]
    return make(config.hidden_size, eps=config.norm_eps, use_bias=config.use_bias)


def make_block(config: DecoderLMConfig, layer_idx: int) -> PreNormBlock:
    """Return block number `layer_idx` of the stack, as the config describes it."""
    return BLOCKS[config.norm_position](
        self_attn=SelfAttention(
            config,
            layer_idx,
            hidden_size=config.hidden_size,
            num_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            use_bias=config.use_bias,
            dropout=config.attention_dropout,
            sliding_window=config.sliding_window,
        ),
        mlp=make_feed_forward(
            gated=config.gated_mlp,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            hidden_act=config.hidden_act,
            use_bias=config.use_bias,
        ),
        attention_norm=make_norm(config),
        mlp_norm=make_norm(config),
        dropout=config.hidden_dropout,
    )


class DecoderLMPreTrainedModel(SeqModelsPreTrainedModel):
    """Base of the family's models.

    Initialisation, each only where no weight was loaded: embeddings and linear layers
    N(0, initializer_range), those whose outputs are added up N(0, initializer_range / sqrt(2 L))
    with L layers; zero bias; normalisation by 1.
    """

    config_class = DecoderLMConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    lora_targets = ("q_proj", "v_proj")
    _no_split_modules = ["PreNormBlock", "PostNormBlock"]  # noqa: RUF012
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _can_record_outputs = {"hidden_states": PreNormBlock, "attentions": SelfAttention}  # noqa: RUF012

    def _init_weights(self, module: nn.Module):
        std = self.config.initializer_range
        residual_std = std
        if self.config.scaled_residual_init:
            residual_std /= (2 * self.config.num_hidden_layers) ** 0.5
        initialize_transformer(module, std=std, residual_std=residual_std)


class DecoderLMModel(DecoderLMPreTrainedModel):
    """The stack of blocks, without a head: from tokens to one vector for each."""

    def __init__(self, config: DecoderLMConfig):
        super().__init__(config)
        if config.position_embedding == "alibi":
            check_alibi_implementation(config._attn_implementation)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embedding_scale = config.hidden_size**0.5 if config.scale_embedding else None
        self.positions = None
        if config.position_embedding in ADDED_POSITIONS:
            make_positions = ADDED_POSITIONS[config.position_embedding]
            self.positions = make_positions(config.max_position_embeddings, config.hidden_size)
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.layers = nn.ModuleList(
            make_block(config, index) for index in range(config.num_hidden_layers)
        )
        self.norm = make_norm(config) if config.norm_position == "pre" else None
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        """Read tokens, each attending to itself and what stands before it.

        Args:
            input_ids: ids, (B, T).
            attention_mask: 1 at real tokens, of those read before too, (B, K); None means no
                padding. A mask of four axes is taken as it is.
            position_ids: where tokens stand, (B, T); None counts the real tokens. Without a mask
                and a cache, positions that start again begin another document, and no token
                attends across.
            past_key_values: keys and values of the tokens read before.
            inputs_embeds: embeddings instead of ids, (B, T, D).
            use_cache: return keys and values.
            **kwargs: `output_attentions` and `output_hidden_states`; others go to the attention
                implementation.

        Returns:
            One vector for each token, (B, T, D), and what was asked for.

        Raises:
            ValueError: if inputs are missing, doubled, out of range or do not fit.
        """
        inputs_embeds = self._embed(input_ids, inputs_embeds)
        num_new = inputs_embeds.shape[1]
        num_read = 0 if past_key_values is None else past_key_values.get_seq_length()
        self._check_places(attention_mask, position_ids, inputs_embeds, num_read)
        mask, biases = self._make_mask(inputs_embeds, attention_mask, position_ids, past_key_values)
        if biases is not None:
            kwargs["position_bias"] = biases
        if position_ids is None:
            position_ids = count_positions(
                attention_mask, num_read=num_read, num_new=num_new, device=inputs_embeds.device
            )
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)

        hidden_states = inputs_embeds
        if self.embedding_scale is not None:
            hidden_states = hidden_states * self.embedding_scale
        if self.positions is not None:
            hidden_states = hidden_states + self.positions(position_ids).to(hidden_states.dtype)
        hidden_states = self.dropout(hidden_states)
        waves = self._make_waves(position_ids, hidden_states)
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                attention_mask=mask,
                rotary_waves=waves,
                past_key_values=past_key_values,
                use_cache=use_cache,
                position_ids=position_ids,
                **kwargs,
            )
        if self.norm is not None:
            hidden_states = self.norm(hidden_states)
        return BaseModelOutputWithPast(
            last_hidden_state=hidden_states, past_key_values=past_key_values if use_cache else None
        )

    def _embed(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(
                "Pass input_ids or inputs_embeds, one of the two: "
                f"got {'neither' if input_ids is None else 'both'}."
            )
        if inputs_embeds is None:
            check_token_ids("input_ids", input_ids, self.embed_tokens.num_embeddings)
            return self.embed_tokens(input_ids)
        check_vectors("inputs_embeds", inputs_embeds, self.config.hidden_size, "hidden_size")
        return inputs_embeds

    def _check_places(self, attention_mask, position_ids, inputs_embeds, num_read):
        batch_size, num_new = inputs_embeds.shape[:2]
        if is_padding_mask(attention_mask) and isinstance(num_read, int):
            check_mask(
                "attention_mask", attention_mask, (batch_size, num_read + num_new), "all tokens"
            )
            if self.config.sliding_window is not None:
                check_no_holes(attention_mask)
        if position_ids is not None and position_ids.shape[-1] != num_new:
            raise ValueError(
                f"position_ids must have one value for each of the {num_new} tokens, got the shape "
                f"{tuple(position_ids.shape)}. Leave them out, and the model counts."
            )

    def _make_mask(self, inputs_embeds, attention_mask, position_ids, past_key_values):
        """Return what tells attention where to look, None for plainly all tokens before, and the
        biases that a flex kernel adds."""
        is_alibi = self.config.position_embedding == "alibi"
        is_windowed = self.config.sliding_window is not None
        make_mask = create_sliding_window_causal_mask if is_windowed else create_causal_mask
        mask = make_mask(
            config=self.config,
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            position_ids=position_ids,
            allow_is_causal_skip=not is_alibi,
        )
        if not is_alibi:
            return mask, None
        check_alibi_implementation(self.config._attn_implementation)
        batch_size, num_new = inputs_embeds.shape[:2]
        places = compared_positions(
            attention_mask,
            position_ids,
            past_key_values,
            num_new=num_new,
            device=inputs_embeds.device,
        )
        dtype = inputs_embeds.dtype
        biases = alibi_biases(*places, num_heads=self.config.num_attention_heads, dtype=dtype)
        if self.config._attn_implementation == "flex_attention":
            return mask, biases.to(dtype).expand(batch_size, -1, -1, -1)
        return join_biases_and_mask(biases, mask, dtype), None

    def _make_waves(self, position_ids, hidden_states):
        """Return cosines and sines for rotary positions, None for others."""
        if self.config.position_embedding != "rotary":
            return None
        return rotary_waves(
            position_ids,
            head_dim=self.config.head_dim,
            theta=self.config.rope_theta,
            dtype=hidden_states.dtype,
        )


@predicts_next_token
class DecoderLMForCausalLM(DecoderLMPreTrainedModel, GenerationMixin):
    """The stack with an output layer: softmax over the vocabulary, loss and generation."""

    _tp_plan = {"lm_head": "colwise_gather_output"}  # noqa: RUF012
    _fsdp_plan = {"lm_head": "keep_full_weight"}  # noqa: RUF012
    _pp_plan: Any = {"lm_head": (["hidden_states"], ["logits"])}  # noqa: RUF012

    def __init__(self, config: DecoderLMConfig):
        super().__init__(config)
        self.model = DecoderLMModel(config)
        if config.tie_word_embeddings:
            self._tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        """Return the output layer."""
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module):
        """Replace the output layer."""
        self.lm_head = new_embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> CausalLMOutputWithPast:
        """Score every next token, p(x_1 .. x_T) = prod_t p(x_t | x_<t).

        Args:
            input_ids: ids, (B, T).
            attention_mask: 1 at real tokens, of those read before too, (B, K); None means no
                padding.
            position_ids: where tokens stand, (B, T); see `DecoderLMModel`.
            past_key_values: keys and values of the tokens read before.
            inputs_embeds: embeddings instead of ids, (B, T, D).
            labels: `input_ids` again, -100 where skipped, (B, T); shifted here, so that a token
                predicts the next one of its row. Where documents are packed, skip the first token
                of each, as transformers' collator does.
            use_cache: return keys and values; off while there are labels.
            logits_to_keep: score so many last tokens alone, or those at these positions, (K,); 0 is
                all.
            num_items_in_batch: targets that the loss is divided by, when the batch is one part of a
                larger one.
            **kwargs: see `DecoderLMModel`; also `shift_labels`, labels that are shifted already.

        Returns:
            Loss in nats per target token (with labels), logits (B, T, V), and what was asked for.
            The loss is smoothed in training mode only, so that exp(loss) of an evaluation is a
            perplexity.

        Raises:
            ValueError: if inputs are missing, doubled, out of range or do not fit, or no label is
                left to predict.
        """
        targets = kwargs.pop("shift_labels", None)
        if targets is None and labels is not None:
            check_token_ids("labels", labels, self.config.vocab_size, ignored=IGNORED_LABEL)
            length = (inputs_embeds if input_ids is None else input_ids).shape[1]
            targets = next_token_targets(labels, length, attention_mask)  # (B, T)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache if targets is None else False,
            **kwargs,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, kept])  # (B, T, V)
        loss = None
        if targets is not None:
            if targets.shape != logits.shape[:2]:
                raise ValueError(
                    f"A loss scores every token: labels must have the shape of the logits, "
                    f"{tuple(logits.shape[:2])}, got {tuple(targets.shape)}. Leave logits_to_keep "
                    f"out."
                )
            loss = token_loss(
                logits,
                targets,
                smoothing=self.config.label_smoothing if self.training else 0.0,
                num_items_in_batch=num_items_in_batch,
            )
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class DecoderLMForSequenceClassification(DecoderLMPreTrainedModel):
    """The stack with a classifier on the last token of a row, the one that has read them all."""

    _fsdp_plan = {"score": "keep_full_weight"}  # noqa: RUF012

    def __init__(self, config: DecoderLMConfig):
        super().__init__(config)
        self.model = DecoderLMModel(config)
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.score = nn.Linear(config.hidden_size, config.num_labels, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutputWithPast:
        """Score the classes of every row.

        Args:
            input_ids: ids, (B, T).
            attention_mask: 1 at real tokens, (B, T); None takes every id but `pad_token_id` for
                real when the last token is looked for.
            position_ids: where tokens stand, (B, T); see `DecoderLMModel`.
            past_key_values: keys and values of the tokens read before.
            inputs_embeds: embeddings instead of ids, (B, T, D).
            labels: classes, (B); numbers to predict, (B) or (B, C); or 1 for every label that
                applies and 0 else, (B, C). `problem_type` of the config says which; None infers it.
            use_cache: return keys and values; off while there are labels.
            num_items_in_batch: entries of all labels, when the batch is one part of a larger one.
            **kwargs: see `DecoderLMModel`.

        Returns:
            Loss (with labels), logits (B, C), and what was asked for.

        Raises:
            ValueError: if inputs are missing, doubled, out of range or do not fit.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache if labels is None else False,
            **kwargs,
        )
        hidden_states = outputs.last_hidden_state  # (B, T, D)
        batch_size, num_new = hidden_states.shape[:2]
        mask = attention_mask[:, -num_new:] if is_padding_mask(attention_mask) else None
        last = last_tokens(input_ids, mask, self.config.pad_token_id, num_new)
        rows = torch.arange(batch_size, device=hidden_states.device)
        last_states = hidden_states[rows, last.to(hidden_states.device)]  # (B, D)
        logits = self.score(self.dropout(last_states))  # (B, C)
        loss = None
        if labels is not None:
            check_same_rows("labels", labels.shape[0], "the input", batch_size)
            loss = classification_loss(
                logits,
                labels,
                problem_type=self.config.problem_type,
                num_items_in_batch=num_items_in_batch,
            )
        return SequenceClassifierOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class DecoderLMForTokenClassification(DecoderLMPreTrainedModel):
    """The stack with a classifier on every token, which has seen the tokens before it."""

    _fsdp_plan = {"score": "keep_full_weight"}  # noqa: RUF012

    def __init__(self, config: DecoderLMConfig):
        super().__init__(config)
        self.model = DecoderLMModel(config)
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.score = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TokenClassifierOutput:
        """Score the classes of every token.

        Args:
            input_ids: ids, (B, T).
            attention_mask: 1 at real tokens, (B, T); None means no padding.
            position_ids: where tokens stand, (B, T); see `DecoderLMModel`.
            past_key_values: keys and values of the tokens read before.
            inputs_embeds: embeddings instead of ids, (B, T, D).
            labels: classes, -100 where skipped, (B, T).
            use_cache: fill `past_key_values`; off while there are labels.
            num_items_in_batch: targets that the loss is divided by, when the batch is one part of a
                larger one.
            **kwargs: see `DecoderLMModel`.

        Returns:
            Loss in nats per labelled token (with labels), logits (B, T, C), and what was asked for.

        Raises:
            ValueError: if inputs are missing, doubled, out of range or do not fit, or no label is
                left.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache if labels is None else False,
            **kwargs,
        )
        logits = self.score(self.dropout(outputs.last_hidden_state))  # (B, T, C)
        loss = None
        if labels is not None:
            check_mask("labels", labels, tuple(logits.shape[:2]), "the input")
            check_token_ids("labels", labels, self.config.num_labels, ignored=IGNORED_LABEL)
            loss = token_loss(logits, labels, num_items_in_batch=num_items_in_batch)
        return TokenClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


__all__ = [
    "DecoderLMForCausalLM",
    "DecoderLMForSequenceClassification",
    "DecoderLMForTokenClassification",
    "DecoderLMModel",
    "DecoderLMPreTrainedModel",
]
