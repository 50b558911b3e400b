# pyright: basic
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false
"""Transformer text encoder: a stack of blocks in which every token sees all, with heads of BERT.

Shapes: B batch, T length, D hidden_size, H heads, P head width, V vocabulary, C classes.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.masking_utils import (
    create_bidirectional_mask,
    create_bidirectional_sliding_window_mask,
    find_packed_sequence_indices,
    packed_sequence_mask_function,
)
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    NextSentencePredictorOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.processing_utils import Unpack  # pyright: ignore[reportAttributeAccessIssue]
from transformers.utils.generic import (
    TransformersKwargs,
    can_return_tuple,
    merge_with_config_defaults,
)
from transformers.utils.output_capturing import capture_outputs

from .configuration_text_encoder import TextEncoderConfig
from .layers_heads import (
    POOLERS,
    PredictionTransform,
    classification_loss,
    masked_token_loss,
    span_loss,
)
from .layers_padding_free import (
    GROUPED_IMPLEMENTATIONS,
    RealTokens,
    SequenceGroups,
    find_real_tokens,
    is_flash,
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
from .outputs import IGNORED_LABEL, PreTrainingOutput, token_loss
from .pretrained_base import (
    SeqModelsPreTrainedModel,
    check_mask,
    check_same_rows,
    check_token_ids,
    check_vectors,
)


def make_norm(config: TextEncoderConfig) -> nn.Module:
    """Return a normalisation of the kind that the config names."""
    make = NORMS[config.norm_type]
    return make(config.hidden_size, eps=config.norm_eps, use_bias=config.use_bias)


def make_block(config: TextEncoderConfig, layer_idx: int) -> PreNormBlock:
    """Return block number `layer_idx` of the stack, as the config describes it."""
    window = None
    if config.is_local(layer_idx):
        # kernels of transformers' table count the token itself
        window = (config.sliding_window or 0) + 1
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
            sliding_window=window,
            is_causal=False,
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


class TextEncoderPreTrainedModel(SeqModelsPreTrainedModel):
    """Base of the family's models.

    Initialisation, each only where no weight was loaded: embeddings and linear layers
    N(0, initializer_range), with `scaled_residual_init` those whose outputs are added up
    N(0, initializer_range / sqrt(2 L)) with L layers; zero bias; normalisation by 1.
    """

    config_class = TextEncoderConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    lora_targets = ("q_proj", "v_proj")
    _no_split_modules = ["PreNormBlock", "PostNormBlock"]  # noqa: RUF012
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


class TextEncoderModel(TextEncoderPreTrainedModel):
    """The stack of blocks, without a head: one vector for each token, and one for each row.

    Args:
        config: settings.
        add_pooling_layer: return a vector for each row, which `pooling` of the config describes.
    """

    def __init__(self, config: TextEncoderConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        if config.position_embedding == "alibi":
            check_alibi_implementation(config._attn_implementation)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embedding_scale = config.hidden_size**0.5 if config.scale_embedding else None
        self.positions = None
        if config.position_embedding in ADDED_POSITIONS:
            make_positions = ADDED_POSITIONS[config.position_embedding]
            self.positions = make_positions(config.max_position_embeddings, config.hidden_size)
        self.token_types = None
        if config.type_vocab_size:
            self.token_types = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.embedding_norm = make_norm(config) if config.norm_embedding else None
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.layers = nn.ModuleList(
            make_block(config, index) for index in range(config.num_hidden_layers)
        )
        self.norm = make_norm(config) if config.norm_position == "pre" else None
        self.pooler = POOLERS[config.pooling](config.hidden_size) if add_pooling_layer else None
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        """Read tokens, each attending to all of its row.

        Args:
            input_ids: ids, (B, T).
            attention_mask: 1 at real tokens, (B, T); None means no padding. A mask of four axes is
                taken as it is.
            token_type_ids: kinds of tokens, (B, T); None is 0 everywhere.
            position_ids: where tokens stand, (B, T); None counts the real tokens. Without a mask,
                positions that start again begin another document, and no token attends across.
            inputs_embeds: embeddings instead of ids, (B, T, D).
            **kwargs: `output_attentions` and `output_hidden_states`; others go to the attention
                implementation.

        Returns:
            One vector for each token, (B, T, D), which means nothing at padding; one for each row,
            (B, D), unless the model is without a pooler; and what was asked for.

        Raises:
            ValueError: if inputs are missing, doubled, out of range or do not fit.
        """
        inputs_embeds = self._embed(input_ids, inputs_embeds)
        self._check_places(inputs_embeds, attention_mask, token_type_ids, position_ids)
        if is_padding_mask(attention_mask):
            attention_mask = attention_mask.to(inputs_embeds.device)
        tokens = self._find_tokens(inputs_embeds, attention_mask, position_ids, kwargs)
        if tokens is None:
            masks, options = self._make_masks(inputs_embeds, attention_mask, position_ids)
        else:
            masks, options = self._make_separate_masks(tokens, inputs_embeds)
        if position_ids is None:
            length = inputs_embeds.shape[1]
            position_ids = count_positions(
                attention_mask, num_read=0, num_new=length, device=inputs_embeds.device
            )
        if tokens is not None:
            inputs_embeds = tokens.flatten(inputs_embeds)  # (1, N, D)
            position_ids = tokens.flatten(position_ids)
            token_type_ids = None if token_type_ids is None else tokens.flatten(token_type_ids)
        hidden_states = self._add_embeddings(inputs_embeds, token_type_ids, position_ids)
        waves = self._make_waves(position_ids, hidden_states)
        for index, layer in enumerate(self.layers):
            hidden_states = layer(
                hidden_states,
                attention_mask=masks[self.config.is_local(index)],
                rotary_waves=waves,
                position_ids=position_ids,
                **options,
                **kwargs,
            )
        if self.norm is not None:
            hidden_states = self.norm(hidden_states)
        if tokens is not None:
            hidden_states = tokens.restore(hidden_states)
        pooled = None
        if self.pooler is not None:
            keep_mask = attention_mask if is_padding_mask(attention_mask) else None
            pooled = self.pooler(hidden_states, keep_mask)
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)

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

    def _check_places(self, inputs_embeds, attention_mask, token_type_ids, position_ids):
        shape = tuple(inputs_embeds.shape[:2])
        if is_padding_mask(attention_mask):
            check_mask("attention_mask", attention_mask, shape, "the input")
            if self.config.sliding_window is not None:
                check_no_holes(attention_mask)
        if position_ids is not None and position_ids.shape[-1] != shape[1]:
            raise ValueError(
                f"position_ids must have one value for each of the {shape[1]} tokens, got the "
                f"shape {tuple(position_ids.shape)}. Leave them out, and the model counts."
            )
        if token_type_ids is not None:
            check_mask("token_type_ids", token_type_ids, shape, "the input")
            num_types = self.config.type_vocab_size
            check_token_ids(
                "token_type_ids",
                token_type_ids,
                max(1, num_types),  # zeros say nothing, also to a model without types
                way_out=f"The model was made with type_vocab_size={num_types}. Pass no "
                "token_type_ids, or make it with more.",
            )

    def _add_embeddings(self, inputs_embeds, token_type_ids, position_ids) -> Tensor:
        """Return embeddings plus positions plus types, normalised where the config says so."""
        hidden_states = inputs_embeds
        if self.embedding_scale is not None:
            hidden_states = hidden_states * self.embedding_scale
        if self.token_types is not None:
            if token_type_ids is None:
                token_type_ids = torch.zeros_like(position_ids)
            hidden_states = hidden_states + self.token_types(token_type_ids)
        if self.positions is not None:
            hidden_states = hidden_states + self.positions(position_ids).to(hidden_states.dtype)
        if self.embedding_norm is not None:
            hidden_states = self.embedding_norm(hidden_states)
        return self.dropout(hidden_states)  # (B, T, D)

    def _find_tokens(self, inputs_embeds, attention_mask, position_ids, asked) -> RealTokens | None:
        """Return where the tokens stand if sequences are to be computed on one behind the other,
        else None. A flash kernel can tell the documents of a row apart in no other way."""
        implementation, wish = self.config._attn_implementation, self.config.padding_free
        is_dense = implementation in GROUPED_IMPLEMENTATIONS and wish != "off"
        is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
        can_leave_out = (
            (is_dense or is_flash(implementation))
            and (attention_mask is None or is_padding_mask(attention_mask))
            and not is_traced
        )
        for name in ("output_attentions", "output_hidden_states"):
            wanted = asked.get(name, getattr(self.config, name))
            can_leave_out &= wanted is None or wanted is False  # what is asked for has padding
        if self.config.position_embedding == "alibi":
            check_alibi_implementation(implementation)
        if not can_leave_out:
            return None
        shape = inputs_embeds.shape[:2]
        tokens = find_real_tokens(attention_mask, position_ids, shape=shape)
        if tokens is None or tokens.places is None:
            return tokens
        return tokens if wish == "on" or (wish == "auto" and tokens.is_worthwhile()) else None

    def _make_separate_masks(self, tokens: RealTokens, inputs_embeds: Tensor):
        """Return {is it a local layer: masks} for sequences that stand one behind the other, and
        the arguments that tell attention where they begin and end."""
        device = inputs_embeds.device
        if is_flash(self.config._attn_implementation):
            return {True: None, False: None}, tokens.kernel_arguments(device)
        groups = SequenceGroups(tokens.lengths, device)
        by_group = []
        for group in groups.groups:
            like = inputs_embeds.new_empty(()).expand(*group.shape, 1)
            masks, _ = self._make_masks(like, group.keep_mask, None)
            by_group.append(masks)
        masks = {kind: [masks[kind] for masks in by_group] for kind in by_group[0]}
        return masks, {"attend_in_groups": groups.attend}

    def _make_masks(self, inputs_embeds, attention_mask, position_ids):
        """Return {is it a local layer: what tells attention where to look}, with None for plainly
        everywhere, and the biases that a flex kernel adds, by their name."""
        is_alibi = self.config.position_embedding == "alibi"
        options: dict[str, Any] = {"allow_is_bidirectional_skip": not is_alibi}
        if attention_mask is None and position_ids is not None:
            num_rows = inputs_embeds.shape[0]  # no len(), which an export would take for a constant
            documents = find_packed_sequence_indices(position_ids.expand(num_rows, -1))
            if documents is not None:
                options["and_mask_function"] = packed_sequence_mask_function(documents)
        makers = {False: create_bidirectional_mask, True: create_bidirectional_sliding_window_mask}
        kinds = {self.config.is_local(index) for index in range(self.config.num_hidden_layers)}
        masks = {
            kind: makers[kind](self.config, inputs_embeds, attention_mask, **options)
            for kind in kinds
        }
        if not is_alibi:
            return masks, {}
        places = compared_positions(
            attention_mask,
            position_ids,
            None,
            num_new=inputs_embeds.shape[1],
            device=inputs_embeds.device,
        )
        dtype = inputs_embeds.dtype
        biases = alibi_biases(*places, num_heads=self.config.num_attention_heads, dtype=dtype)
        if self.config._attn_implementation == "flex_attention":
            biases = biases.to(dtype).expand(inputs_embeds.shape[0], -1, -1, -1)
            return masks, {"position_bias": biases}
        return {kind: join_biases_and_mask(biases, masks[kind], dtype) for kind in kinds}, {}

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


def row_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    problem_type: str | None = "single_label_classification",
    num_items_in_batch: Tensor | int | None = None,
) -> Tensor:
    """Return the loss of one prediction a row, see `classification_loss`.

    Args:
        logits: (B, C).
        labels: one a row, or (B, C).
        problem_type: None infers it.
        num_items_in_batch: entries of all labels, when the batch is one part of a larger one.

    Returns:
        Scalar.

    Raises:
        ValueError: if there are not as many labels as rows, or they do not fit.
    """
    check_same_rows("labels", labels.shape[0], "the input", logits.shape[0])
    return classification_loss(
        logits, labels, problem_type=problem_type, num_items_in_batch=num_items_in_batch
    )


class TextEncoderHead(TextEncoderPreTrainedModel):
    """What heads share that read a batch and its labels: the stack below, and the forward pass."""

    output_class: type[Any]

    def answer(
        self,
        outputs: BaseModelOutputWithPooling,
        labels: Tensor | None,
        num_items_in_batch: Tensor | int | None,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Make of the stack's outputs what the head makes.

        Args:
            outputs: of the stack.
            labels: as the class describes them.
            num_items_in_batch: targets of all parts, when the batch is one part of a larger one.

        Returns:
            Loss (with labels) and logits.
        """
        raise NotImplementedError(f"{type(self).__name__} must say what it makes of the stack.")

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Any:
        """Read tokens and score what the head scores.

        Args:
            input_ids: ids, (B, T).
            attention_mask: 1 at real tokens, (B, T); None means no padding.
            token_type_ids: kinds of tokens, (B, T); None is 0 everywhere.
            position_ids: where tokens stand, (B, T); see `TextEncoderModel`.
            inputs_embeds: embeddings instead of ids, (B, T, D).
            labels: what should be scored highest, as the class describes it.
            num_items_in_batch: labels that the loss is divided by, when the batch is one part of a
                larger one.
            **kwargs: see `TextEncoderModel`.

        Returns:
            Loss (with labels) and logits, as the class describes them, and what was asked for.

        Raises:
            ValueError: if inputs are missing, doubled, out of range or do not fit, or no label is
                left.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        loss, logits = self.answer(outputs, labels, num_items_in_batch)
        return self.output_class(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class TextEncoderForMaskedLM(TextEncoderHead):
    """The stack with an output layer that guesses masked tokens (Devlin et al. 2019, section 3.1).

    Labels are the ids of the masked tokens, -100 elsewhere, (B, T); the loss is in nats per masked
    token, the logits are (B, T, V). In training mode the loss is smoothed as the config says, so
    that only exp(loss) of an evaluation is a perplexity, and with labels and `chunked_loss` there
    are no logits.

    Args:
        config: settings.
        add_pooling_layer: as in `TextEncoderModel`.
    """

    output_class = MaskedLMOutput
    _tp_plan = {"lm_head": "colwise_gather_output"}  # noqa: RUF012
    _fsdp_plan = {"lm_head": "keep_full_weight"}  # noqa: RUF012

    def __init__(self, config: TextEncoderConfig, add_pooling_layer: bool = False):
        super().__init__(config)
        self.model = TextEncoderModel(config, add_pooling_layer=add_pooling_layer)
        self.transform = PredictionTransform(
            hidden_size=config.hidden_size,
            hidden_act=config.hidden_act,
            use_bias=config.use_bias,
            norm=make_norm(config),
        )
        if config.tie_word_embeddings:
            self._tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        """Return the output layer."""
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module):
        """Replace the output layer."""
        self.lm_head = new_embeddings

    def answer(self, outputs, labels, num_items_in_batch):
        """Return the loss of masked tokens, and logits unless the loss is chunked."""
        hidden_states = outputs.last_hidden_state
        smoothing = self.config.label_smoothing if self.training else 0.0
        if labels is not None:
            check_mask("labels", labels, tuple(hidden_states.shape[:2]), "the input")
            check_token_ids("labels", labels, self.config.vocab_size, ignored=IGNORED_LABEL)
            if self.training and self.config.chunked_loss:
                loss = masked_token_loss(
                    hidden_states,
                    labels,
                    transform=self.transform,
                    output_layer=self.lm_head,
                    smoothing=smoothing,
                    num_items_in_batch=num_items_in_batch,
                )
                return loss, None
        logits = self.lm_head(self.transform(hidden_states))  # (B, T, V)
        if labels is None:
            return None, logits
        options = {"smoothing": smoothing, "num_items_in_batch": num_items_in_batch}
        return token_loss(logits, labels, **options), logits


class TextEncoderForPreTraining(TextEncoderForMaskedLM):
    """The stack with the two heads of BERT's pretraining: masked tokens and next sentences.

    Args:
        config: settings.
    """

    def __init__(self, config: TextEncoderConfig):
        super().__init__(config, add_pooling_layer=True)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> PreTrainingOutput:
        """Score the vocabulary at every token, and whether the second text follows the first.

        Source: Devlin et al. 2019, section 3.1 and appendix A.2: the sum of the two mean losses.

        Args:
            input_ids: ids, (B, T).
            attention_mask: 1 at real tokens, (B, T); None means no padding.
            token_type_ids: kinds of tokens, (B, T); None is 0 everywhere.
            position_ids: where tokens stand, (B, T); see `TextEncoderModel`.
            inputs_embeds: embeddings instead of ids, (B, T, D).
            labels: ids of the masked tokens, -100 elsewhere, (B, T).
            next_sentence_label: 0 where the second text follows the first, 1 where not, (B).
            num_items_in_batch: masked tokens of all parts, when the batch is one part of a larger
                one; the rows of this part then weigh as its masked tokens do.
            **kwargs: see `TextEncoderModel`.

        Returns:
            Loss (with labels of either kind), both kinds of logits, and what was asked for; see
            `TextEncoderForMaskedLM` for the loss in training mode.

        Raises:
            ValueError: if inputs are missing, doubled, out of range or do not fit, or no label is
                left.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        loss, logits = self.answer(outputs, labels, num_items_in_batch)
        relationship = self.seq_relationship(outputs.pooler_output)  # (B, 2)
        if next_sentence_label is not None:
            next_sentence_loss = row_loss(relationship, next_sentence_label)
            if labels is not None and num_items_in_batch is not None:
                share = (labels != IGNORED_LABEL).sum() / num_items_in_batch
                next_sentence_loss = next_sentence_loss * share
            loss = next_sentence_loss if loss is None else loss + next_sentence_loss
        return PreTrainingOutput(
            loss=loss,
            prediction_logits=logits,
            seq_relationship_logits=relationship,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class TextEncoderForNextSentencePrediction(TextEncoderHead):
    """The stack with a classifier that says whether the second text of a pair follows the first.

    Labels are 0 where it does and 1 where not, (B); the loss is in nats per row, the logits are
    (B, 2).
    """

    output_class = NextSentencePredictorOutput
    _fsdp_plan = {"seq_relationship": "keep_full_weight"}  # noqa: RUF012

    def __init__(self, config: TextEncoderConfig):
        super().__init__(config)
        self.model = TextEncoderModel(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)
        self.post_init()

    def answer(self, outputs, labels, num_items_in_batch):
        """Return the loss of rows, and scores of "follows" and "does not follow"."""
        logits = self.seq_relationship(outputs.pooler_output)  # (B, 2)
        if labels is None:
            return None, logits
        return row_loss(logits, labels, num_items_in_batch=num_items_in_batch), logits


class TextEncoderForSequenceClassification(TextEncoderHead):
    """The stack with a classifier on what stands for a row, see `pooling` of the config.

    Labels are classes, (B); numbers to predict, (B) or (B, C); or 1 for every label that applies
    and 0 else, (B, C). `problem_type` of the config says which; None infers it. The logits are
    (B, C).
    """

    output_class = SequenceClassifierOutput
    _fsdp_plan = {"score": "keep_full_weight"}  # noqa: RUF012

    def __init__(self, config: TextEncoderConfig):
        super().__init__(config)
        self.model = TextEncoderModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.score = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def answer(self, outputs, labels, num_items_in_batch):
        """Return the loss of rows, and scores of the classes."""
        logits = self.score(self.dropout(outputs.pooler_output))  # (B, C)
        if labels is None:
            return None, logits
        kind = self.config.problem_type
        options = {"problem_type": kind, "num_items_in_batch": num_items_in_batch}
        return row_loss(logits, labels, **options), logits


class TextEncoderForTokenClassification(TextEncoderHead):
    """The stack with a classifier on every token.

    Labels are classes, -100 where skipped, (B, T); the loss is in nats per labelled token, the
    logits are (B, T, C).
    """

    output_class = TokenClassifierOutput
    _fsdp_plan = {"score": "keep_full_weight"}  # noqa: RUF012

    def __init__(self, config: TextEncoderConfig):
        super().__init__(config)
        self.model = TextEncoderModel(config, add_pooling_layer=False)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.score = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def answer(self, outputs, labels, num_items_in_batch):
        """Return the loss of labelled tokens, and scores of the classes."""
        logits = self.score(self.dropout(outputs.last_hidden_state))  # (B, T, C)
        if labels is None:
            return None, logits
        check_mask("labels", labels, tuple(logits.shape[:2]), "the input")
        check_token_ids("labels", labels, self.config.num_labels, ignored=IGNORED_LABEL)
        return token_loss(logits, labels, num_items_in_batch=num_items_in_batch), logits


class TextEncoderForMultipleChoice(TextEncoderPreTrainedModel):
    """The stack with a score for every choice, and a softmax over the choices of a question."""

    _fsdp_plan = {"score": "keep_full_weight"}  # noqa: RUF012

    def __init__(self, config: TextEncoderConfig):
        super().__init__(config)
        self.model = TextEncoderModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.score = nn.Linear(config.hidden_size, 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MultipleChoiceModelOutput:
        """Score the choices of every question.

        Args:
            input_ids: ids of question and choice, one row for each choice, (B, C, T).
            attention_mask: 1 at real tokens, (B, C, T); a choice without any is none, and scores
                the lowest number. None means no padding.
            token_type_ids: kinds of tokens, (B, C, T); None is 0 everywhere.
            position_ids: where tokens stand, (B, C, T); see `TextEncoderModel`.
            inputs_embeds: embeddings instead of ids, (B, C, T, D).
            labels: the right choice, (B).
            num_items_in_batch: questions of all parts, when the batch is one part of a larger one.
            **kwargs: see `TextEncoderModel`.

        Returns:
            Loss in nats per question (with labels), logits (B, C), and what was asked for.

        Raises:
            ValueError: if inputs are missing, doubled, out of range or do not fit.
        """
        given = input_ids if inputs_embeds is None else inputs_embeds
        wanted = 3 if inputs_embeds is None else 4
        if given is not None and given.dim() != wanted:
            raise ValueError(
                f"A question has several choices: inputs must have the shape (batch, choices, "
                f"length), got {tuple(given.shape)}. Pass one row for each choice."
            )
        outputs = self.model(
            input_ids=flatten_choices(input_ids),
            attention_mask=flatten_choices(attention_mask),
            token_type_ids=flatten_choices(token_type_ids),
            position_ids=flatten_choices(position_ids),
            inputs_embeds=flatten_choices(inputs_embeds),
            **kwargs,
        )
        scores = self.score(self.dropout(outputs.pooler_output))  # (B * C, 1)
        logits = scores.view(given.shape[:2])  # (B, C)
        if attention_mask is not None:
            is_choice = attention_mask.to(logits.device).bool().any(dim=-1)
            logits = logits.masked_fill(~is_choice, torch.finfo(logits.dtype).min)
        loss = None
        if labels is not None:
            loss = row_loss(logits, labels, num_items_in_batch=num_items_in_batch)
        return MultipleChoiceModelOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


def flatten_choices(values: Tensor | None) -> Tensor | None:
    """Make a row of every choice: (B, C, ..) -> (B * C, ..)."""
    return None if values is None else values.flatten(0, 1)


class TextEncoderForQuestionAnswering(TextEncoderPreTrainedModel):
    """The stack with two scores for every token: that an answer starts, and that it ends there."""

    _fsdp_plan = {"qa_outputs": "keep_full_weight"}  # noqa: RUF012

    def __init__(self, config: TextEncoderConfig):
        super().__init__(config)
        self.model = TextEncoderModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> QuestionAnsweringModelOutput:
        """Score where the answer starts and where it ends (Devlin et al. 2019, section 4.2).

        Args:
            input_ids: ids, (B, T).
            attention_mask: 1 at real tokens, (B, T); no answer starts or ends at padding, which
                scores the lowest number. None means no padding.
            token_type_ids: kinds of tokens, (B, T); None is 0 everywhere.
            position_ids: where tokens stand, (B, T); see `TextEncoderModel`.
            inputs_embeds: embeddings instead of ids, (B, T, D).
            start_positions: first token of the answer, (B); not counted where it is T or more.
            end_positions: last token of the answer, (B); not counted where it is T or more.
            num_items_in_batch: spans of all parts, when the batch is one part of a larger one.
            **kwargs: see `TextEncoderModel`.

        Returns:
            Loss in nats per end of a span (with both positions), logits of starts and ends, each
            (B, T), and what was asked for.

        Raises:
            ValueError: if inputs are missing, doubled, out of range or do not fit.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        logits = self.qa_outputs(outputs.last_hidden_state)  # (B, T, 2)
        if is_padding_mask(attention_mask):
            is_padding = ~attention_mask.to(logits.device).bool()[..., None]
            logits = logits.masked_fill(is_padding, torch.finfo(logits.dtype).min)
        start_logits, end_logits = (part.contiguous() for part in logits.unbind(dim=-1))
        if (start_positions is None) != (end_positions is None):
            raise ValueError(
                "A span has two ends: pass both start_positions and end_positions or neither, got "
                f"{'end' if start_positions is None else 'start'}_positions alone."
            )
        loss = None
        if start_positions is not None:
            for name, ends in (("start", start_positions), ("end", end_positions)):
                check_same_rows(f"{name}_positions", len(ends), "the input", len(logits))
            loss = span_loss(
                start_logits,
                end_logits,
                start_positions,
                end_positions,
                num_items_in_batch=num_items_in_batch,
            )
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits,
            end_logits=end_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


__all__ = [
    "TextEncoderForMaskedLM",
    "TextEncoderForMultipleChoice",
    "TextEncoderForNextSentencePrediction",
    "TextEncoderForPreTraining",
    "TextEncoderForQuestionAnswering",
    "TextEncoderForSequenceClassification",
    "TextEncoderForTokenClassification",
    "TextEncoderModel",
    "TextEncoderPreTrainedModel",
]
