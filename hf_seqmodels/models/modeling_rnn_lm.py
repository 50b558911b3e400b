"""Recurrent language model: Elman, GRU or LSTM layers under a softmax over the vocabulary.

Shapes: B batch, T tokens, E embedding_size, D width of the top layer, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.utils.generic import can_return_tuple

from .cache_recurrent import RecurrentCache
from .configuration_rnn_lm import RnnLMConfig
from .layers_heads import next_token_targets, predicts_next_token
from .layers_recurrent import (
    RecurrentStack,
    SequenceDropout,
    SequenceLayout,
    State,
    find_cell,
    keep_mask_from,
)
from .layers_vocabulary_loss import output_layer_loss
from .outputs import IGNORED_LABEL, token_loss
from .pretrained_base import (
    SeqModelsPreTrainedModel,
    check_mask,
    check_same_rows,
    check_token_ids,
    check_vectors,
)


class RnnLMPreTrainedModel(SeqModelsPreTrainedModel):
    """Base of the family: how its parts are found, saved and initialised."""

    config_class = RnnLMConfig
    config: RnnLMConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    lora_targets = ("lm_head",)
    _no_split_modules = ["RecurrentLayer"]  # noqa: RUF012 (transformers' own declaration)
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012
    _is_stateful = True

    @property
    def dummy_inputs(self) -> dict[str, Tensor]:
        """Return the smallest batch that the model takes."""
        return {"input_ids": torch.tensor([[0, 1], [1, 0]]) % self.config.vocab_size}

    def _init_weights(self, module: nn.Module):
        if self.config.initializer == "orthogonal":
            super()._init_weights(module)
            return
        width = self.config.initializer_range
        for parameter in module.parameters(recurse=False):
            init.uniform_(parameter, -width, width)


class RnnLMModel(RnnLMPreTrainedModel):
    """Embeddings and recurrent layers, without an output layer."""

    def __init__(self, config: RnnLMConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.word_dropout = nn.Dropout(config.word_dropout)
        self.embedding_dropout = SequenceDropout(
            config.embedding_dropout, variational=config.variational_dropout
        )
        self.stack = RecurrentStack(
            input_size=config.embedding_size,
            hidden_size=config.hidden_size,
            num_layers=config.num_hidden_layers,
            cell=find_cell(
                config.cell_type,
                gru_reset=config.gru_reset,
                elman_activation=config.elman_activation,
            ),
            connection=config.layer_connection,
            dropout=config.hidden_dropout,
            variational=config.variational_dropout,
            last_layer_size=config.last_layer_size,
            weight_dropout=config.weight_dropout,
        )
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return the embedding table."""
        return self.embed_tokens

    def set_input_embeddings(self, value: nn.Module):
        """Replace the embedding table."""
        self.embed_tokens = value

    def new_cache(self) -> RecurrentCache:
        """Return an empty cache with room for the state of every layer."""
        return RecurrentCache(self.config.num_hidden_layers)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPast:
        """Read tokens from left to right.

        Args:
            input_ids: token ids, (B, T).
            attention_mask: 1 at real tokens, anywhere in the row, (B, T) or with the tokens of the
                cache in front; None means no padding. Padding does not touch the state.
            past_key_values: state to continue from, changed in place when `use_cache` asks for the
                new one. In training it leads back to the calls that computed it, until
                `RecurrentCache.detach` cuts it off. None starts from zeros.
            inputs_embeds: embeddings instead of ids, (B, T, E).
            use_cache: return the state after the last token.
            output_attentions: accepted for generate(); this model does not attend.
            output_hidden_states: return embeddings and the outputs of every layer.
            **kwargs: none; what others pass is refused by name.

        Returns:
            Outputs of the top layer, (B, T, D), zero at padding, the state, and what was asked for.

        Raises:
            ValueError: if inputs are missing, doubled, out of range or do not fit, or words are to
                be dropped that are given as embeddings.
            TypeError: if there is no such argument.
        """
        refuse_arguments("RnnLMModel", kwargs)
        embedded = self._embed(input_ids, inputs_embeds)  # (B, T, E)
        self._check_cache(past_key_values, embedded.shape[0])
        attention_mask = self._mask_of_new_tokens(attention_mask, embedded, past_key_values)
        use_cache = self.config.use_cache if use_cache is None else use_cache
        outputs, states = self._run(embedded, attention_mask, past_key_values, use_cache)
        if use_cache:
            past_key_values = self.new_cache() if past_key_values is None else past_key_values
            past_key_values.update_states(states, embedded.shape[1])
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        return BaseModelOutputWithPast(
            last_hidden_state=outputs[-1],  # (B, T, D)
            past_key_values=past_key_values if use_cache else None,
            hidden_states=(embedded, *outputs) if output_hidden_states else None,
        )

    def _embed(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Pass exactly one of input_ids and inputs_embeds.")
        drops_words = self.training and self.word_dropout.p > 0
        if input_ids is not None:
            check_token_ids("input_ids", input_ids, self.config.vocab_size)
            embedded = self.embed_tokens(input_ids)
            if drops_words:
                ones = embedded.new_ones(self.config.vocab_size, 1)
                embedded = embedded * self.word_dropout(ones)[input_ids]
            return self.embedding_dropout(embedded)
        if drops_words:
            raise ValueError(
                f"word_dropout={self.word_dropout.p} drops words by their ids, which "
                "inputs_embeds do not tell. Pass input_ids, set word_dropout=0 or call "
                "model.eval()."
            )
        check_vectors("inputs_embeds", inputs_embeds, self.config.embedding_size, "embedding_size")
        return self.embedding_dropout(inputs_embeds)

    def _check_cache(self, past_key_values: Any, num_rows: int):
        if past_key_values is None:
            return
        if not isinstance(past_key_values, RecurrentCache):
            raise ValueError(
                f"past_key_values must be the RecurrentCache of an earlier call, got "
                f"{type(past_key_values).__name__}. Pass what this model returned."
            )
        if len(past_key_values) != self.config.num_hidden_layers:
            raise ValueError(
                f"past_key_values must carry {self.config.num_hidden_layers} states, got "
                f"{len(past_key_values)}. Pass what this model returned, or model.new_cache()."
            )
        if past_key_values.batch_size != -1:
            check_same_rows("past_key_values", past_key_values.batch_size, "the input", num_rows)

    def _mask_of_new_tokens(
        self, attention_mask: Tensor | None, embedded: Tensor, cache: RecurrentCache | None
    ) -> Tensor | None:
        if attention_mask is None:
            return None
        num_read = 0 if cache is None else cache.get_seq_length()
        if attention_mask.shape[1:] == (num_read + embedded.shape[1],):
            attention_mask = attention_mask[:, num_read:]  # the cache's tokens are read
        check_mask("attention_mask", attention_mask, embedded.shape[:2], "the input")
        return attention_mask

    def _run(
        self,
        embedded: Tensor,
        attention_mask: Tensor | None,
        cache: RecurrentCache | None,
        use_cache: bool,
    ) -> tuple[list[Tensor], list[State]]:
        layout = SequenceLayout(attention_mask, reverse=False, like=embedded)
        states = None if cache is None else cache.get_states()
        if states is not None:
            states = [tuple(part.to(embedded.device) for part in state) for state in states]
        lengths, reference = layout.lengths, self.config.implementation == "reference"
        # Behind the real tokens of a row padding changes its last state alone. Where nobody asks
        # for that, the LSTM reads it, since oneDNN has no kernel for packed sequences.
        reads_padding = (
            lengths is not None
            and not (use_cache or reference)
            and self.config.cell_type == "lstm"
            and embedded.device.type == "cpu"
        )
        outputs, states = self.stack(
            layout.arrange(embedded),
            states,
            lengths=None if reads_padding else lengths,
            reference=reference,
        )
        outputs = [layout.restore(output) for output in outputs]  # (B, T, D) each
        if reads_padding:
            outputs = [output * attention_mask.bool()[:, :, None] for output in outputs]
        return outputs, states


def refuse_arguments(name: str, unknown: dict[str, Any]):
    """Refuse what forward() does not know.

    Args:
        name: of the class.
        unknown: the arguments.

    Raises:
        TypeError: if there is one.
    """
    if "position_ids" in unknown:
        raise TypeError(
            f"{name}.forward() takes no argument 'position_ids': a recurrent model reads the "
            "tokens of a row in their order, as one text. Pass each document as a row of its own, "
            "with an attention_mask where rows are padded."
        )
    if unknown:
        raise TypeError(f"{name}.forward() takes no argument {next(iter(unknown))!r}.")


def last_positions(hidden_states: Tensor, logits_to_keep: int | Tensor) -> Tensor:
    """Return the vectors whose logits are asked for: the last so many, 0 being all, or those at the
    positions of a tensor."""
    if isinstance(logits_to_keep, int):
        return hidden_states[:, -logits_to_keep:]
    return hidden_states[:, logits_to_keep]


def check_shifted(targets: Tensor, hidden_states: Tensor) -> Tensor:
    """Return labels that are shifted already, (B, T), if they fit the vectors (B, T, D)."""
    if targets.shape != hidden_states.shape[:2]:
        raise ValueError(
            f"shift_labels must have the shape of the input, {tuple(hidden_states.shape[:2])}, got "
            f"{tuple(targets.shape)}. Pass what each position is to predict, or labels=input_ids."
        )
    return targets


def mean_over_targets(
    total: Tensor, targets: Tensor, num_items_in_batch: Tensor | int | None
) -> Tensor:
    """Divide a summed loss by its number of targets, or by that of the larger batch.

    Args:
        total: sum over the targets.
        targets: target ids, -100 where there is none.
        num_items_in_batch: targets of the larger batch; None counts these.

    Returns:
        Scalar, in nats per target.

    Raises:
        ValueError: if there is no target and `num_items_in_batch` is None.
    """
    if num_items_in_batch is None:
        num_items_in_batch = (targets != IGNORED_LABEL).sum()
        if num_items_in_batch == 0:
            raise ValueError(
                f"labels must hold at least one token that follows another, got only "
                f"{IGNORED_LABEL} for {targets.numel()} positions. Drop such a batch, or pass "
                "num_items_in_batch if it is one part of a larger batch."
            )
    return total / torch.as_tensor(num_items_in_batch, device=total.device).clamp(min=1)


@predicts_next_token
class RnnLMForCausalLM(RnnLMPreTrainedModel, GenerationMixin):
    """The recurrent language model with an output layer: softmax over the vocabulary, loss and
    generation."""

    def __init__(self, config: RnnLMConfig):
        super().__init__(config)
        self.model = RnnLMModel(config)
        self.output_dropout = SequenceDropout(
            config.top_dropout, variational=config.variational_dropout
        )
        width = config.top_size
        self.output_projection = None
        if config.tie_word_embeddings:
            self._tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
            if width != config.embedding_size:  # the tied table reads vectors of its own width
                self.output_projection = nn.Linear(width, config.embedding_size, bias=False)
            width = config.embedding_size
        self.lm_head = nn.Linear(width, config.vocab_size)
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
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs,
    ) -> CausalLMOutputWithPast:
        """Score the next token at every position, p(x) = prod_t p(x_t | x_<t).

        Args:
            input_ids: token ids, (B, T).
            attention_mask: 1 at real tokens, anywhere in the row, (B, T) or with the tokens of the
                cache in front; None means no padding.
            past_key_values: state to continue from, see `RnnLMModel`.
            inputs_embeds: embeddings instead of ids, (B, T, E).
            labels: the ids that are read, -100 where not to be predicted, (B, T): the loss compares
                position t with label t + 1. With one more label, (B, T + 1), the last position has
                a target too, as truncated backpropagation wants it.
            use_cache: return the state; where it is not said, with labels only if
                `past_key_values` is given.
            output_attentions: accepted for generate(); this model does not attend.
            output_hidden_states: return embeddings and the outputs of every layer.
            logits_to_keep: compute logits of the last so many positions, or of these; 0 is all.
            num_items_in_batch: targets that the loss is divided by, when the batch is one part of a
                larger one.
            **kwargs: `shift_labels` alone, labels that are shifted already, (B, T).

        Returns:
            Loss in nats per target (with labels), logits (B, T, V), and what was asked for. In
            training mode the loss is smoothed and regularised as the config says, so that only
            exp(loss) of an evaluation is a perplexity, and with labels and `chunked_loss` there are
            no logits.

        Raises:
            ValueError: if inputs are missing, doubled, out of range or do not fit, or no label is
                left to predict.
            TypeError: if there is no such argument.
        """
        shifted = kwargs.pop("shift_labels", None)
        refuse_arguments("RnnLMForCausalLM", kwargs)
        scored = labels if shifted is None else shifted
        if scored is not None:
            check_token_ids("labels", scored, self.config.vocab_size, ignored=IGNORED_LABEL)
            if use_cache is None:
                use_cache = past_key_values is not None
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        top = outputs.last_hidden_state  # (B, T, D)
        dropped = self.output_dropout(top)
        logits, loss = None, None
        if scored is None or not (self.training and self.config.chunked_loss):
            logits = self.score_vocabulary(last_positions(dropped, logits_to_keep))  # (B, T, V)
        if scored is not None:
            if attention_mask is not None:  # those of the new tokens
                attention_mask = attention_mask[:, -top.shape[1] :]
            if shifted is None:
                targets = next_token_targets(labels, top.shape[1], attention_mask)  # (B, T)
            else:
                targets = check_shifted(shifted, top)
            total = self._negative_log_likelihood(dropped, logits, targets)
            total = total + self._regularization(top, dropped, attention_mask)
            loss = mean_over_targets(total, targets, num_items_in_batch)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
        )

    def score_vocabulary(self, hidden_states: Tensor) -> Tensor:
        """Return logits: (B, T, D) -> (B, T, V)."""
        if self.output_projection is not None:
            hidden_states = self.output_projection(hidden_states)
        return self.lm_head(hidden_states)

    def _negative_log_likelihood(
        self, dropped: Tensor, logits: Tensor | None, targets: Tensor
    ) -> Tensor:
        smoothing = self.config.label_smoothing if self.training else 0.0
        if logits is not None and logits.shape[:2] == targets.shape:
            return token_loss(logits, targets, smoothing=smoothing, num_items_in_batch=1)
        is_target = targets != IGNORED_LABEL
        read = dropped[is_target]  # (N, D)
        if self.output_projection is not None:
            read = self.output_projection(read)
        chosen = targets[is_target].long()  # (N)
        return output_layer_loss(self.lm_head, read, chosen, smoothing=smoothing)

    def _regularization(
        self, top: Tensor, dropped: Tensor, attention_mask: Tensor | None
    ) -> Tensor | float:
        """Return alpha sum_t mean_d (m h_t)^2 + beta sum_t mean_d (h_t+1 - h_t)^2 over real tokens,
        m the mask of the output dropout; Merity et al. 2017, arXiv:1708.01009, section 4."""
        alpha = self.config.activation_regularization
        beta = self.config.temporal_activation_regularization
        if not self.training:
            return 0.0
        dtype = torch.promote_types(top.dtype, torch.float32)
        total = 0.0
        if alpha:  # outputs are zero at padding
            total = alpha * dropped.to(dtype).square().mean(dim=-1).sum()
        if beta:
            layout = SequenceLayout(attention_mask, reverse=False, like=top)
            in_order = layout.arrange(top).to(dtype)
            change = (in_order[:, 1:] - in_order[:, :-1]).square().mean(dim=-1)  # (B, T - 1)
            if layout.lengths is not None:
                change = change * keep_mask_from(layout.lengths, top)[:, 1:]
            total = total + beta * change.sum()
        return total

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, *args, inputs_embeds: Tensor | None = None, **kwargs
    ) -> dict[str, Any]:
        """Prepare one step of generate(), without the tokenizer that finds stop strings."""
        kwargs.pop("tokenizer", None)  # generate() would hand it to forward()
        # transformers reads off the signature whether embeddings may be given
        return super().prepare_inputs_for_generation(
            input_ids, *args, inputs_embeds=inputs_embeds, **kwargs
        )

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, *args, **kwargs):
        if generation_config.cache_implementation not in (None, "dynamic"):
            raise ValueError(
                f"cache_implementation={generation_config.cache_implementation!r} does not apply "
                "to a recurrent model: its cache is one state per layer whatever the length. Leave "
                "it unset."
            )
        super_decides = (
            model_kwargs.get("past_key_values") is not None or generation_config.use_cache is False
        )
        if super_decides:
            super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        else:
            model_kwargs["past_key_values"] = self.model.new_cache()


__all__ = ["RnnLMForCausalLM", "RnnLMModel", "RnnLMPreTrainedModel"]
