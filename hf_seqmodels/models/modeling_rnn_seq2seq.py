# pyright: basic
"""Recurrent encoder-decoder with or without attention.

Shapes: B batch, S source length, T target length, E embedding_size, C encoder_hidden_size, D
hidden_size, V target vocabulary, L layers.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.utils import logging
from transformers.utils.generic import can_return_tuple

from .cache_recurrent import RecurrentCache
from .configuration_rnn_seq2seq import RnnSeq2SeqConfig
from .layers_attention import PointerGenerator, coverage_penalty, held_words, make_attention
from .layers_decoder import (
    CurrentStateDecoder,
    DecoderState,
    FixedContextDecoder,
    PreviousStateDecoder,
    RecurrentDecoder,
    SourceMemory,
)
from .layers_recurrent import (
    RecurrentStack,
    SequenceDropout,
    SequenceLayout,
    State,
    find_cell,
    last_outputs,
)
from .outputs import (
    IGNORED_LABEL,
    RecurrentEncoderOutput,
    alignment_loss,
    count_targets,
    mixture_loss,
    token_loss,
)
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

logger = logging.get_logger(__name__)


class RnnSeq2SeqPreTrainedModel(SeqModelsPreTrainedModel):
    """Base of the family: how its parts are found, saved and initialised."""

    config_class = RnnSeq2SeqConfig
    config: RnnSeq2SeqConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    lora_targets = (
        *("query_projection", "key_projection", "value_projection"),
        *("attentional_projection", "hidden_projection", "cell_projection"),
    )
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012 (transformers' declaration)
    _is_stateful = True

    @property
    def dummy_inputs(self) -> dict[str, Tensor]:
        """Return the smallest batch that the model takes."""
        input_ids = torch.tensor([[0, 1], [1, 0]]) % self.config.vocab_size
        return {
            "input_ids": input_ids,
            "decoder_input_ids": input_ids % self.config.target_vocab_size,
        }


def given(value: Any) -> Any:
    """Return what an earlier check has found to be there."""
    assert value is not None
    return value


def num_ids(config: RnnSeq2SeqConfig, vocab_size: int) -> int:
    """Return how many ids there are: those of a vocabulary, and of words that can be copied."""
    return vocab_size + (config.max_copied_words if config.pointer_generator else 0)


def within_vocabulary(token_ids: Tensor, config: RnnSeq2SeqConfig) -> Tensor:
    """Return ids that have an embedding: those of words to copy become that of the unknown one."""
    if not config.pointer_generator:
        return token_ids
    return token_ids.masked_fill(token_ids >= config.vocab_size, given(config.unk_token_id))


def make_stack(config: RnnSeq2SeqConfig, *, input_size: int, side: str) -> RecurrentStack:
    """Return the recurrent layers of one side, "encoder" or "decoder"."""
    is_encoder = side == "encoder"
    return RecurrentStack(
        input_size=input_size,
        hidden_size=config.source_state_size if is_encoder else config.hidden_size,
        num_layers=config.num_encoder_layers if is_encoder else config.num_decoder_layers,
        cell=find_cell(
            config.cell_type, gru_reset=config.gru_reset, elman_activation=config.elman_activation
        ),
        bidirectional=is_encoder and config.bidirectional_encoder,
        connection=config.layer_connection,
        dropout=config.hidden_dropout,
        variational=config.variational_dropout,
    )


class RnnSeq2SeqEncoder(RnnSeq2SeqPreTrainedModel):
    """Read the source: embeddings, then recurrent layers, in one or both directions."""

    def __init__(self, config: RnnSeq2SeqConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.embedding_dropout = SequenceDropout(
            config.embedding_dropout, variational=config.variational_dropout
        )
        self.stack = make_stack(config, input_size=config.embedding_size, side="encoder")
        self.post_init()
        self._fsdp_plan = {}  # the plan of the config names modules of the whole model

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> RecurrentEncoderOutput:
        """Encode a batch of sources.

        Args:
            input_ids: source ids, (B, S).
            attention_mask: 1 at real tokens, anywhere in the row, (B, S); None means no padding.
            inputs_embeds: source embeddings instead of ids, (B, S, E).
            output_attentions: accepted for generate(); this encoder does not attend.
            output_hidden_states: return the embeddings as the first layer reads them and the
                outputs of every layer.

        Returns:
            Outputs (B, S, C), in the order of the input also when the source is read in reverse,
            and the last state of every layer. A row without tokens gives zeros.

        Raises:
            ValueError: unless exactly one of `input_ids` and `inputs_embeds` is given, with a
                fitting mask; with `pointer_generator` both may be, the ids of what can be copied
                beside the embeddings of what is read.
        """
        copies = self.config.pointer_generator
        is_doubled = input_ids is not None and inputs_embeds is not None and not copies
        if is_doubled or (input_ids is None and inputs_embeds is None):
            raise ValueError("Pass exactly one of input_ids and inputs_embeds to the encoder.")
        if input_ids is not None:
            check_token_ids("input_ids", input_ids, num_ids(self.config, self.config.vocab_size))
            if inputs_embeds is None:
                inputs_embeds = self.embed_tokens(within_vocabulary(input_ids, self.config))
        embedded = given(inputs_embeds)  # (B, S, E)
        check_vectors("inputs_embeds", embedded, self.config.embedding_size, "embedding_size")
        if attention_mask is not None:
            check_mask("attention_mask", attention_mask, embedded.shape[:2], "the encoder input")
        embedded = self.embedding_dropout(embedded)
        layout = SequenceLayout(attention_mask, reverse=self.config.reverse_source, like=embedded)
        outputs, states = self.stack(
            layout.arrange(embedded),
            lengths=layout.lengths,
            reference=self.config.implementation == "reference",
        )
        num_directions = 2 if self.config.bidirectional_encoder else 1
        final = [last_outputs(output, layout.lengths, num_directions) for output in outputs]
        outputs = [layout.restore(output) for output in outputs]  # (B, S, C) each
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        return RecurrentEncoderOutput(
            last_hidden_state=outputs[-1],
            hidden_states=(embedded, *outputs) if output_hidden_states else None,
            final_hidden_state=torch.stack(final, dim=1),  # (B, L, C)
            final_cell_state=torch.stack([s[1] for s in states], dim=1)
            if len(states[0]) > 1
            else None,
            source_ids=input_ids if copies else None,
        )


class CopyBridge(nn.Module):
    """Decoder layer i starts from the last state of encoder layer i, h^d_0 = h^e_n."""

    def __init__(self, config: RnnSeq2SeqConfig):
        super().__init__()

    def forward(self, encoder_outputs: RecurrentEncoderOutput) -> list[State]:
        """Return the first state of every decoder layer."""
        parts = [encoder_outputs.final_hidden_state, encoder_outputs.final_cell_state]
        return list(zip(*(part.unbind(dim=1) for part in parts if part is not None), strict=True))


class ProjectionBridge(nn.Module):
    """Every decoder layer starts from the encoder's top layer, h^d_0 = tanh(W h^e_n), and c^d_0 =
    W' c^e_n for the LSTM.

    Source: Bahdanau et al. 2015, appendix A.2.2.
    """

    def __init__(self, config: RnnSeq2SeqConfig):
        super().__init__()
        self.num_layers = config.num_decoder_layers
        width = self.num_layers * config.hidden_size
        self.hidden_projection = nn.Linear(config.source_state_size, width)
        self.cell_projection = (
            nn.Linear(config.source_state_size, width) if config.cell_type == "lstm" else None
        )

    def forward(self, encoder_outputs: RecurrentEncoderOutput) -> list[State]:
        """Return the first state of every decoder layer."""
        top = given(encoder_outputs.final_hidden_state)[:, -1]
        hidden = torch.tanh(self.hidden_projection(top))
        parts = [hidden.chunk(self.num_layers, dim=-1)]
        if self.cell_projection is not None:
            cell = self.cell_projection(given(encoder_outputs.final_cell_state)[:, -1])
            parts.append(cell.chunk(self.num_layers, dim=-1))
        return list(zip(*parts, strict=True))


class ZeroBridge(nn.Module):
    """Every decoder layer starts from zero; the source is seen through the context alone."""

    def __init__(self, config: RnnSeq2SeqConfig):
        super().__init__()
        self.num_layers = config.num_decoder_layers
        self.hidden_size = config.hidden_size
        self.num_states = find_cell(config.cell_type).num_states

    def forward(self, encoder_outputs: RecurrentEncoderOutput) -> list[State]:
        """Return the first state of every decoder layer."""
        source = given(encoder_outputs.last_hidden_state)
        return [
            (source.new_zeros(source.shape[0], self.hidden_size),) * self.num_states
        ] * self.num_layers


BRIDGES = {"copy": CopyBridge, "projection": ProjectionBridge, "zeros": ZeroBridge}


def make_decoder(config: RnnSeq2SeqConfig) -> RecurrentDecoder:
    """Return the recurrence that the config's attention options name, see layers_decoder.py."""
    embedding_size, state_size = config.embedding_size, config.hidden_size
    if config.attention_scorer is None:
        stack = make_stack(
            config, input_size=embedding_size + config.source_state_size, side="decoder"
        )
        return FixedContextDecoder(stack, embedding_size)
    attention = make_attention(
        scorer=config.attention_scorer,
        query_size=state_size,
        key_size=config.source_state_size,
        num_heads=config.num_attention_heads,
        dropout=config.attention_dropout,
        with_coverage=config.coverage_attention,
    )
    if config.attention_query == "previous":
        stack = make_stack(
            config, input_size=embedding_size + attention.context_size, side="decoder"
        )
        return PreviousStateDecoder(stack, embedding_size, attention)
    fed_size = state_size if config.input_feeding else 0
    stack = make_stack(config, input_size=embedding_size + fed_size, side="decoder")
    return CurrentStateDecoder(
        stack, embedding_size, attention, state_size=state_size, input_feeding=config.input_feeding
    )


class RnnSeq2SeqDecoder(RnnSeq2SeqPreTrainedModel):
    """Write the target: embeddings, a bridge from the encoder's last state, and one of three
    recurrences."""

    def __init__(self, config: RnnSeq2SeqConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.target_vocab_size, config.embedding_size)
        self.embedding_dropout = SequenceDropout(
            config.embedding_dropout, variational=config.variational_dropout
        )
        self.bridge = BRIDGES[config.bridge](config)
        self.recurrence = make_decoder(config)
        self.output_dropout = SequenceDropout(
            config.hidden_dropout, variational=config.variational_dropout
        )
        self._no_split_modules = {type(self.recurrence).__name__}  # its steps cross all its layers
        self.post_init()
        self._fsdp_plan = {}

    def new_cache(self) -> RecurrentCache:
        """Return an empty cache with room for every carried state."""
        config = self.config
        return RecurrentCache(
            config.num_decoder_layers + config.input_feeding + config.coverage_attention
        )

    def project_memory(
        self, encoder_outputs: RecurrentEncoderOutput
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return keys and values of the source, computed once if the encoder output does not hold
        them yet."""
        if self.config.attention_scorer is None:
            return None, None
        if encoder_outputs.attention_keys is not None:
            return encoder_outputs.attention_keys, encoder_outputs.attention_values
        return self.recurrence.attention.project_memory(given(encoder_outputs.last_hidden_state))

    def _source_memory(
        self, encoder_outputs: RecurrentEncoderOutput, mask: Tensor | None
    ) -> SourceMemory:
        if mask is not None:
            check_mask(
                "attention_mask",
                mask,
                given(encoder_outputs.last_hidden_state).shape[:2],
                "the encoder output",
            )
            mask = mask.bool()
        keys, values = self.project_memory(encoder_outputs)
        summary = None
        if self.config.attention_scorer is None:
            summary = given(encoder_outputs.final_hidden_state)[:, -1]
        return SourceMemory(keys, values, mask, summary)

    def _first_state(
        self,
        encoder_outputs: RecurrentEncoderOutput,
        memory: SourceMemory,
        cache: RecurrentCache | None,
    ) -> DecoderState:
        carried = None if cache is None else cache.get_states()
        if carried is not None:
            device = given(encoder_outputs.last_hidden_state).device
            carried = [tuple(part.to(device) for part in state) for state in carried]
            num_layers = self.config.num_decoder_layers
            return DecoderState(
                carried[:num_layers],
                carried[num_layers][0] if self.config.input_feeding else None,
                carried[-1][0] if self.config.coverage_attention else None,
            )
        layers = self.bridge(encoder_outputs)
        return DecoderState(
            layers,
            self.recurrence.first_fed(layers[-1][0]),
            self.recurrence.first_coverage(memory),
        )

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_outputs: RecurrentEncoderOutput | None = None,
        encoder_attention_mask: Tensor | None = None,
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Run the decoder over given target tokens.

        Args:
            input_ids: target ids, (B, T).
            attention_mask: 1 at real target tokens, (B, T) or with the tokens of the cache in
                front; None is all.
            encoder_outputs: what the encoder returned.
            encoder_attention_mask: 1 at real source tokens, (B, S).
            past_key_values: states to continue from; None starts from the bridge.
            inputs_embeds: target embeddings instead of ids, (B, T, E).
            use_cache: return the states after the last token.
            output_attentions: return the attention weights over the source; None with a warning if
                the decoder does not attend (models without attention give None in transformers).
            output_hidden_states: return the embeddings as the first layer reads them, the outputs
                of the layers, and as the last of them what the output layer reads: after dropout,
                and with attention_query="current" the attentional vector.

        Returns:
            What the output layer reads, (B, T, D), the states, and what was asked for.

        Raises:
            ValueError: if inputs are missing, doubled or do not fit.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(
                "Pass exactly one of decoder_input_ids and decoder_inputs_embeds to the decoder."
            )
        if input_ids is not None:
            limit = num_ids(self.config, self.config.target_vocab_size)
            check_token_ids("decoder_input_ids", input_ids, limit)
            inputs_embeds = self.embed_tokens(within_vocabulary(input_ids, self.config))
        if encoder_outputs is None:
            raise ValueError("The decoder needs encoder_outputs, got None.")
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if output_attentions and self.config.attention_scorer is None:
            logger.warning_once(
                "output_attentions=True gives no attention weights: attention_scorer is None, so "
                "the decoder does not attend. Leave it out, or train a model with a scorer."
            )
        embedded = given(inputs_embeds)  # (B, T, E)
        self._check_inputs(embedded, encoder_outputs, past_key_values)
        embedded = self.embedding_dropout(embedded)
        run = self._run(
            embedded, attention_mask, encoder_outputs, encoder_attention_mask, past_key_values
        )
        return self._make_output(
            run, embedded, past_key_values, use_cache, output_attentions, output_hidden_states
        )

    def _check_inputs(self, inputs_embeds, encoder_outputs, past_key_values):
        config, num_rows = self.config, encoder_outputs.last_hidden_state.shape[0]
        check_vectors(
            "decoder_inputs_embeds", inputs_embeds, config.embedding_size, "embedding_size"
        )
        check_same_rows("The decoder input", inputs_embeds.shape[0], "the source", num_rows)
        if past_key_values is None:
            return
        if not isinstance(past_key_values, RecurrentCache):
            raise ValueError(
                f"past_key_values must be the RecurrentCache of an earlier call, got "
                f"{type(past_key_values).__name__}. Pass what this model returned."
            )
        if len(past_key_values) != len(self.new_cache()):
            raise ValueError(
                f"past_key_values must carry {len(self.new_cache())} states, got "
                f"{len(past_key_values)}. Pass what this model returned, or decoder.new_cache()."
            )
        if past_key_values.batch_size != -1:
            check_same_rows("past_key_values", past_key_values.batch_size, "the source", num_rows)

    def _run(
        self,
        embedded,
        attention_mask,
        encoder_outputs,
        encoder_attention_mask,
        past_key_values,
    ):
        num_read = 0 if past_key_values is None else past_key_values.get_seq_length()
        if attention_mask is not None and attention_mask.shape[1:] == (
            num_read + embedded.shape[1],
        ):
            attention_mask = attention_mask[:, num_read:]  # the cache's tokens are read
        if attention_mask is not None:
            check_mask(
                "decoder_attention_mask", attention_mask, embedded.shape[:2], "the decoder input"
            )
        layout = SequenceLayout(attention_mask, reverse=False, like=embedded)
        memory = self._source_memory(encoder_outputs, encoder_attention_mask)
        run = self.recurrence(
            layout.arrange(embedded),
            self._first_state(encoder_outputs, memory, past_key_values),
            memory,
            keep_mask=None
            if layout.keep_mask is None
            else layout.arrange(layout.keep_mask[:, :, None])[:, :, 0],
            lengths=layout.lengths,
            reference=self.config.implementation == "reference",
        )
        weights = run.weights
        if weights is not None and layout.order is not None:
            weights = layout.restore(weights.permute(0, 2, 1, 3).flatten(2)).unflatten(
                2, (weights.shape[1], -1)
            )
            weights = weights.permute(0, 2, 1, 3)
        return run._replace(
            readout=layout.restore(run.readout),
            layer_outputs=[layout.restore(output) for output in run.layer_outputs],
            weights=weights,
        )

    def _make_output(
        self,
        run,
        embedded,
        past_key_values,
        use_cache,
        output_attentions,
        output_hidden_states,
    ):
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if use_cache:
            past_key_values = self.new_cache() if past_key_values is None else past_key_values
            past_key_values.update_states(run.state.carried(), embedded.shape[1])
        readout = self.output_dropout(run.readout)  # (B, T, D)
        hidden_states = (embedded, *run.layer_outputs[:-1], readout)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=readout,
            past_key_values=past_key_values if use_cache else None,
            hidden_states=hidden_states if output_hidden_states else None,
            cross_attentions=(run.weights,)
            if output_attentions and run.weights is not None
            else None,
        )


class RnnSeq2SeqModel(TwoVocabulariesMixin, RnnSeq2SeqPreTrainedModel):
    """The encoder-decoder without an output layer."""

    def __init__(self, config: RnnSeq2SeqConfig):
        super().__init__(config)
        self.encoder = RnnSeq2SeqEncoder(config)
        self.decoder = RnnSeq2SeqDecoder(config)
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
        encoder_outputs: RecurrentEncoderOutput | tuple | None = None,
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> Seq2SeqModelOutput:
        """Encode a source and run the decoder over a given target.

        Args:
            input_ids: source ids, (B, S).
            attention_mask: 1 at real source tokens, (B, S); None means no padding.
            decoder_input_ids: target ids, (B, T).
            decoder_attention_mask: 1 at real target tokens, (B, T).
            encoder_outputs: an earlier result of the encoder, instead of a source.
            past_key_values: decoder states to continue from.
            inputs_embeds: source embeddings instead of ids, (B, S, E).
            decoder_inputs_embeds: target embeddings instead of ids, (B, T, E).
            use_cache: return the decoder states.
            output_attentions: return cross-attention weights, one tensor (B, 1 or heads, T, S).
            output_hidden_states: return embeddings and the outputs of every layer of both sides.

        Returns:
            The vectors that an output layer reads, (B, T, D), and what was asked for.
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                output_hidden_states=output_hidden_states,
                return_dict=True,
            )
        encoder_outputs = as_encoder_output(encoder_outputs, self.config)
        decoded = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoded.last_hidden_state,
            past_key_values=decoded.past_key_values,
            decoder_hidden_states=decoded.hidden_states,
            cross_attentions=decoded.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
        )


def as_encoder_output(encoder_outputs: Any, config: RnnSeq2SeqConfig) -> RecurrentEncoderOutput:
    """Return what the user passed as `encoder_outputs` in the family's own class.

    Args:
        encoder_outputs: a RecurrentEncoderOutput, or another output or mapping with fields of the
            same names.
        config: tells whether the last states are needed.

    Returns:
        A RecurrentEncoderOutput.

    Raises:
        ValueError: if the states that the decoder starts from are missing.
    """
    if not isinstance(encoder_outputs, RecurrentEncoderOutput):
        if isinstance(encoder_outputs, Tensor):
            encoder_outputs = (encoder_outputs,)
        if not hasattr(encoder_outputs, "items"):
            encoder_outputs = {"last_hidden_state": encoder_outputs[0]} if encoder_outputs else {}
        known = RecurrentEncoderOutput.__dataclass_fields__
        encoder_outputs = RecurrentEncoderOutput(
            **{k: v for k, v in encoder_outputs.items() if k in known}
        )
    if encoder_outputs.last_hidden_state is None:
        raise ValueError(
            "encoder_outputs must hold last_hidden_state. Pass what model.get_encoder() returned."
        )
    check_vectors(
        "encoder_outputs.last_hidden_state",
        encoder_outputs.last_hidden_state,
        config.source_state_size,
        "encoder_hidden_size",
    )
    needs_state = config.bridge != "zeros" or config.attention_scorer is None
    needs_cell = config.bridge != "zeros" and config.cell_type == "lstm"
    for name, is_needed in (("final_hidden_state", needs_state), ("final_cell_state", needs_cell)):
        if is_needed and getattr(encoder_outputs, name) is None:
            raise ValueError(
                f"The decoder starts from the encoder's last state (bridge={config.bridge!r}, "
                f"attention_scorer={config.attention_scorer!r}), but encoder_outputs has no "
                f"{name}. Pass what model.get_encoder()(..., return_dict=True) returned."
            )
    if config.pointer_generator and encoder_outputs.source_ids is None:
        raise ValueError(
            "pointer_generator copies words of the source, so it must know their ids, but "
            "encoder_outputs has no source_ids. Pass input_ids, beside inputs_embeds too, or what "
            "model.get_encoder()(input_ids, return_dict=True) returned."
        )
    return encoder_outputs


class RnnSeq2SeqForConditionalGeneration(
    Seq2SeqHeadMixin, RnnSeq2SeqPreTrainedModel, GenerationMixin
):
    """The encoder-decoder with an output layer: softmax over the target vocabulary, loss and
    generation."""

    def __init__(self, config: RnnSeq2SeqConfig):
        super().__init__(config)
        self.model = RnnSeq2SeqModel(config)
        width = config.hidden_size
        self.output_projection = None
        if config.tie_word_embeddings:
            table = "encoder" if config.share_embeddings else "decoder"
            self._tied_weights_keys = {"lm_head.weight": f"model.{table}.embed_tokens.weight"}
            self._keys_to_ignore_on_save = set(self._tied_weights_keys)
            if width != config.embedding_size:  # the tied table reads vectors of its own width
                self.output_projection = nn.Linear(width, config.embedding_size, bias=False)
            width = config.embedding_size
        self.lm_head = nn.Linear(width, config.target_vocab_size)
        self.pointer = None
        if config.pointer_generator:
            self.pointer = PointerGenerator(
                source_size=config.source_state_size,
                state_size=config.hidden_size,
                embedding_size=config.embedding_size,
                num_extra=config.max_copied_words,
            )
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: RecurrentEncoderOutput | tuple | None = None,
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        alignments: Tensor | None = None,
    ) -> Seq2SeqLMOutput:
        """Score a target given a source, p(y|x) = prod_t p(y_t | y_<t, x).

        Args:
            input_ids: source ids, (B, S).
            attention_mask: 1 at real source tokens, (B, S); None means no padding.
            decoder_input_ids: target ids, (B, T); None takes `labels` shifted right.
            decoder_attention_mask: 1 at real target tokens, (B, T).
            encoder_outputs: an earlier result of the encoder, instead of a source.
            past_key_values: decoder states to continue from.
            inputs_embeds: source embeddings instead of ids, (B, S, E).
            decoder_inputs_embeds: target embeddings instead of ids, (B, T, E).
            labels: target ids to predict, -100 where skipped, (B, T).
            use_cache: return the decoder states; off while there are labels.
            output_attentions: return cross-attention weights, one tensor (B, 1 or heads, T, S).
            output_hidden_states: return embeddings and the outputs of every layer of both sides.
            num_items_in_batch: targets that the loss is divided by, when the batch is one part of a
                larger one.
            alignments: which source tokens each target token belongs to, (B, T, S), for
                `guided_alignment_weight`; see `alignment_loss`.

        Returns:
            Loss in nats per target token (with labels), logits (B, T, V), and what was asked for.
            The loss is smoothed, and coverage and alignment added, in training mode only, so that
            exp(loss) of an evaluation is a perplexity. With `pointer_generator` the logits are
            log-probabilities over the vocabulary and the words to copy, (B, T, V +
            max_copied_words), the smallest number there is at those that the source does not hold;
            such a label counts as the unknown token.

        Raises:
            ValueError: if inputs are missing, doubled, out of range or do not fit, or no label is
                left to predict.
        """
        if labels is not None:
            limit = num_ids(self.config, self.config.target_vocab_size)
            check_token_ids("labels", labels, limit, ignored=IGNORED_LABEL)
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            raise ValueError(
                "Pass labels, decoder_input_ids or decoder_inputs_embeds: the decoder has nothing "
                "to read. (Trainer's label_smoothing_factor takes labels away: set label_smoothing "
                "in the config instead, or let the collator make decoder_input_ids.)"
            )
        config, has_pointer = self.config, self.pointer is not None
        if has_pointer and encoder_outputs is None:
            encoder_outputs = self.model.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                output_hidden_states=output_hidden_states,
                return_dict=True,
            )
        is_guided = config.guided_alignment_weight > 0 and alignments is not None
        watches = self.training and (is_guided or config.coverage_loss_weight > 0)
        reads_weights = has_pointer or watches
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
            output_attentions=reads_weights or output_attentions,
            output_hidden_states=has_pointer or output_hidden_states,
            return_dict=True,
        )
        logits = self.score_vocabulary(outputs.last_hidden_state)  # (B, T, V)
        loss, source_ids, dtype = None, None, logits.dtype
        if self.pointer is not None:
            source_ids = as_encoder_output(encoder_outputs, config).source_ids
            logits = self.pointer(
                logits,
                given(outputs.cross_attentions)[0].mean(dim=1),
                source_ids,
                outputs.encoder_last_hidden_state,
                outputs.last_hidden_state,
                given(outputs.decoder_hidden_states)[0],
            )  # (B, T, V + X), log-probabilities
        if labels is not None:
            if labels.shape != logits.shape[:2]:
                raise ValueError(
                    f"labels must have the shape of the decoder input, {tuple(logits.shape[:2])}, "
                    f"got {tuple(labels.shape)}. Leave decoder_input_ids out, and the model makes "
                    f"them from the labels."
                )
            loss = self._loss(logits, labels, source_ids, num_items_in_batch)
            if watches:
                weights = given(outputs.cross_attentions)[0].mean(dim=1)  # (B, T, S)
                loss = loss + self._attention_loss(weights, labels, alignments, num_items_in_batch)
        with_attentions, with_states = (
            getattr(config, name) if asked is None else asked
            for name, asked in (
                ("output_attentions", output_attentions),
                ("output_hidden_states", output_hidden_states),
            )
        )
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits.to(dtype),
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states if with_states else None,
            cross_attentions=outputs.cross_attentions if with_attentions else None,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
        )

    def _loss(
        self,
        logits: Tensor,
        labels: Tensor,
        source_ids: Tensor | None,
        num_items_in_batch: Tensor | int | None,
    ) -> Tensor:
        config = self.config
        smoothing = config.label_smoothing if self.training else 0.0
        if source_ids is None:
            loss = token_loss(
                logits, labels, smoothing=smoothing, num_items_in_batch=num_items_in_batch
            )
        else:
            is_held = held_words(source_ids, config.vocab_size, config.max_copied_words)  # (B, X)
            copied = (labels - config.vocab_size).clamp(min=0)
            is_lost = (labels >= config.vocab_size) & ~is_held.gather(1, copied)
            loss = mixture_loss(
                logits,
                labels.masked_fill(is_lost, given(config.unk_token_id)),
                vocab_size=config.vocab_size,
                smoothing=smoothing,
                num_items_in_batch=num_items_in_batch,
            )
        return loss

    def _attention_loss(
        self,
        weights: Tensor,
        labels: Tensor,
        alignments: Tensor | None,
        num_items_in_batch: Tensor | int | None,
    ) -> Tensor:
        config, loss = self.config, weights.new_zeros(())
        if config.coverage_loss_weight > 0:
            repeated = coverage_penalty(weights)  # (B, T)
            total = repeated.masked_fill(labels == IGNORED_LABEL, 0.0).sum()
            total = total / count_targets(labels, num_items_in_batch)
            loss = loss + config.coverage_loss_weight * total
        if config.guided_alignment_weight > 0 and alignments is not None:
            distance = alignment_loss(weights, alignments, labels, num_items_in_batch)
            loss = loss + config.guided_alignment_weight * distance
        return loss

    def score_vocabulary(self, hidden_states: Tensor) -> Tensor:
        """Return logits: (B, T, D) -> (B, T, V)."""
        if self.output_projection is not None:
            hidden_states = self.output_projection(hidden_states)
        return self.lm_head(hidden_states)

    # What generate() needs to know

    def prepare_inputs_for_generation(
        self,
        input_ids,
        next_sequence_length=None,
        past_key_values=None,
        encoder_outputs=None,
        decoder_attention_mask=None,
        **kwargs,
    ) -> dict[str, Any]:
        """Prepare one step of generate(); the keys of the source are projected once and kept beside
        its states."""
        kwargs.pop("tokenizer", None)  # finds stop strings; generate() would hand it to forward()
        if encoder_outputs is not None:
            encoder_outputs = as_encoder_output(encoder_outputs, self.config)
            if encoder_outputs.attention_keys is None and self.config.attention_scorer is not None:
                keys, values = self.model.decoder.project_memory(encoder_outputs)
                encoder_outputs["attention_keys"], encoder_outputs["attention_values"] = (
                    keys,
                    values,
                )
        num_read = 0 if past_key_values is None else past_key_values.get_seq_length()
        if num_read and next_sequence_length is None and decoder_attention_mask is None:
            # generate() finds the new tokens of a continued target by the length of that mask
            next_sequence_length = count_unread(input_ids, num_read)
        return super().prepare_inputs_for_generation(  # pyright: ignore[reportAttributeAccessIssue]
            input_ids,
            next_sequence_length=next_sequence_length,
            past_key_values=past_key_values,
            encoder_outputs=encoder_outputs,
            decoder_attention_mask=decoder_attention_mask,
            **kwargs,
        )

    def _expand_inputs_for_generation(self, *args, encoder_outputs=None, **kwargs):
        if encoder_outputs is not None:  # rows and keys are written into it: not the caller's own
            encoder_outputs = as_encoder_output(encoder_outputs, self.config)
            kwargs["encoder_outputs"] = RecurrentEncoderOutput(**encoder_outputs)
        expand = super()._expand_inputs_for_generation  # pyright: ignore[reportAttributeAccessIssue]
        return expand(*args, **kwargs)

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, *args, **kwargs):
        if generation_config.cache_implementation not in (None, "dynamic"):
            raise ValueError(
                f"cache_implementation={generation_config.cache_implementation!r} does not apply "
                f"to a recurrent "
                "decoder: its cache is one state per layer whatever the length. Leave it unset."
            )
        if model_kwargs.get("past_key_values") is not None or generation_config.use_cache is False:
            prepare = super()._prepare_cache_for_generation  # pyright: ignore[reportAttributeAccessIssue]
            prepare(generation_config, model_kwargs, *args, **kwargs)
        else:
            model_kwargs["past_key_values"] = self.model.decoder.new_cache()


__all__ = [
    "RnnSeq2SeqForConditionalGeneration",
    "RnnSeq2SeqModel",
    "RnnSeq2SeqPreTrainedModel",
]
