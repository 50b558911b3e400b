"""Several encoder-decoders as one model: at every step the mean of their probabilities.

Shapes: B batch, R rows (B times beams), S source length, T target length, V target vocabulary.
"""

import copy
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AutoModelForSeq2SeqLM,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.cache_utils import Cache
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils.generic import ModelOutput, can_return_tuple

from hf_seqmodels.evaluation.ensemble_checks import (
    check_agreement,
    check_saved_tokenizers,
    share_weights,
)
from hf_seqmodels.evaluation.model_inputs import check_model
from hf_seqmodels.models.outputs import IGNORED_LABEL, token_loss


@dataclass
class EnsembleEncoderOutput(ModelOutput):
    """What the encoders of an ensemble hand to their decoders.

    Args:
        last_hidden_state: of the first member; generate() reads the batch size from it.
        members: the output of every member's own encoder.
    """

    last_hidden_state: torch.FloatTensor | None = None
    members: tuple[ModelOutput, ...] | None = None


class EnsembleCache(Cache):
    """The caches of all members, in order; what is done to it is done to each of them.

    Args:
        members: the cache of every member.
    """

    def __init__(self, members: Iterable[Cache]):
        super().__init__(layers=[])
        self.members = list(members)

    def __len__(self) -> int:
        return sum(len(cache) for cache in self.members)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of target tokens read, the same in every member."""
        return self.members[0].get_seq_length(layer_idx)

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Let row i go on from row `beam_idx[i]`, in every member."""
        for cache in self.members:
            cache.reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row `repeats` times, in every member."""
        for cache in self.members:
            cache.batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the rows at `indices`, in every member."""
        for cache in self.members:
            cache.batch_select_indices(indices)

    def reset(self) -> None:
        """Forget everything, in every member."""
        for cache in self.members:
            cache.reset()


class _MemberEncoders:
    """The encoders of all members in the place where generate() looks for one."""

    def __init__(self, models: Iterable[Any]):
        self.encoders = [model.get_encoder() for model in models]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool = True,
    ) -> EnsembleEncoderOutput:
        """Encode (B, S) with every member; return_dict is always taken as True."""
        arguments = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "output_attentions": output_attentions,
            "output_hidden_states": output_hidden_states,
        }
        return join_encoder_outputs(
            encoder(**_known_arguments(encoder.forward, arguments), return_dict=True)
            for encoder in self.encoders
        )

    __call__ = forward


class EnsembleForSeq2SeqLM(PreTrainedModel, GenerationMixin):
    """Several encoder-decoders as one: their probabilities are averaged at every step.

    p(y_t | y_<t, x) = sum_m w_m p_m(y_t | y_<t, x), with weights w_m that sum to one. The logits
    are the logarithm of that, computed in float32 at least, so that generate() in all its forms,
    `decode_corpus`, `n_best`, `score_targets` and `alignments` work as with a single model. Every
    member has its own encoder outputs and its own cache, and the members run one after the other:
    time and memory are the sum over them.

    The members may be of different families. What they read and write must mean the same: the same
    source ids, one target vocabulary, the same start, end and pad tokens. Other settings of
    generate() (max_length and so on) are those of the first member. An ensemble is not a checkpoint
    of its own, and it is not made for training.

    Args:
        models: the members, each an encoder-decoder with generate().
        weights: one positive number per member, divided by their sum; None weighs all alike.

    Raises:
        ValueError: if there are no models, one is no encoder-decoder, they disagree on the target
            vocabulary or a special token, or the weights do not fit.
    """

    main_input_name = "input_ids"
    _is_stateful = True  # assisted decoding would have to take tokens back

    def __init__(self, models: Sequence[Any], weights: Sequence[float] | None = None):
        models = list(models)
        if not models:
            raise ValueError("An ensemble needs at least one model, got none. Pass [model, ...].")
        for model in models:
            check_model(model)
        common = check_agreement(models)
        config: Any = PreTrainedConfig(is_encoder_decoder=True)
        config.vocab_size = common["target vocabulary size"]
        config.decoder_start_token_id = common["decoder start token"]
        config.pad_token_id = common["pad token"]
        limits = [getattr(model.config, "max_position_embeddings", None) for model in models]
        config.max_position_embeddings = min(filter(None, limits), default=None)
        super().__init__(config)
        self.members: Any = nn.ModuleList(models)
        self.log_weights = [math.log(weight) for weight in share_weights(weights, len(models))]
        self.generation_config: Any = copy.deepcopy(models[0].generation_config)
        self.training = self.members.training = any(model.training for model in models)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: Sequence[str | PathLike],
        weights: Sequence[float] | None = None,
        **kwargs: Any,
    ) -> "EnsembleForSeq2SeqLM":
        """Load every member by its name and check that the tokenizers saved with them agree.

        Args:
            pretrained_model_name_or_path: folders or names on the Hub.
            weights: one positive number per member; None weighs all alike.
            **kwargs: passed on to AutoModelForSeq2SeqLM.from_pretrained.

        Returns:
            The ensemble, in evaluation mode.

        Raises:
            ValueError: if a single name is given instead of a list, a member has no tokenizer, or
                members or their tokenizers disagree.
        """
        if isinstance(pretrained_model_name_or_path, str | PathLike):
            raise ValueError(
                "An ensemble is loaded from a list of folders or names, got "
                f"{str(pretrained_model_name_or_path)!r}. Put it into a list, or load a single "
                "model with AutoModelForSeq2SeqLM."
            )
        names = [str(name) for name in pretrained_model_name_or_path]
        check_saved_tokenizers(names, **kwargs)
        models = [AutoModelForSeq2SeqLM.from_pretrained(name, **kwargs) for name in names]
        return cls(models, weights)

    def save_pretrained(self, *args: Any, **kwargs: Any):
        """Refuse: an ensemble is not a checkpoint of its own.

        Args:
            *args: as in transformers.
            **kwargs: as in transformers.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            f"An ensemble of {len(self.members)} models is no checkpoint of its own, so it cannot "
            "be saved. Save its members one by one, ensemble.members[0].save_pretrained(folder), "
            "and load them with EnsembleForSeq2SeqLM.from_pretrained([folder, ...])."
        )

    def get_encoder(self, modality: str | None = None) -> Any:
        """Return what encodes a source with every member; `modality` takes part in the signature
        alone."""
        return _MemberEncoders(self.members)

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Return what the decoders read to predict `labels`: (B, T) shifted right behind the start
        token."""
        shifted = F.pad(labels[:, :-1], (1, 0), value=self.config.decoder_start_token_id)
        filler = self.config.pad_token_id
        filler = self.config.decoder_start_token_id if filler is None else filler
        return shifted.masked_fill(shifted == IGNORED_LABEL, filler)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: EnsembleEncoderOutput | None = None,
        past_key_values: EnsembleCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        member_inputs: Sequence[dict[str, Any]] | None = None,
    ) -> Seq2SeqLMOutput:
        """Score a target given a source.

        Args:
            input_ids: source ids, (B, S).
            attention_mask: 1 at real source tokens, (B, S).
            decoder_input_ids: target ids, (B, T); None takes `labels` shifted right.
            decoder_attention_mask: 1 at real target tokens, (B, T).
            encoder_outputs: an earlier result of `get_encoder()`, instead of a source.
            past_key_values: what an earlier call returned.
            labels: target ids to predict, -100 where skipped, (B, T).
            use_cache: return the members' caches; off while there are labels.
            output_attentions: return the weighted mean of the members' cross-attentions.
            output_hidden_states: refused: hidden states of different models have no mean.
            num_items_in_batch: targets that the loss is divided by.
            member_inputs: all inputs of every member, as `prepare_inputs_for_generation` makes
                them; with them nothing but `labels` is given.

        Returns:
            Log-probabilities as logits (B, T, V), and what was asked for; with labels the loss in
            nats per target token.

        Raises:
            ValueError: if something is asked for that the members do not share, or encoder outputs
                or caches are not those of this ensemble.
        """
        if output_hidden_states:
            raise ValueError(
                "output_hidden_states=True asks for hidden states, but those of different models "
                "have no mean. Ask a single member: ensemble.members[0]."
            )
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if member_inputs is None:
            shared = {
                "input_ids": input_ids,
                "attention_mask": attention_mask,
                "decoder_input_ids": decoder_input_ids,
                "decoder_attention_mask": decoder_attention_mask,
                "use_cache": use_cache,
                "output_attentions": output_attentions,
            }
            member_inputs = [
                _known_arguments(member.forward, {**shared, **own})
                for member, own in zip(
                    self.members, self._own_inputs(encoder_outputs, past_key_values), strict=True
                )
            ]
        logits, caches, attentions = self._run_members(member_inputs)
        loss = None
        if labels is not None:
            loss = token_loss(logits, labels, num_items_in_batch=num_items_in_batch)
        cache: Any = None if any(part is None for part in caches) else EnsembleCache(caches)
        wants_attentions = any(inputs.get("output_attentions") for inputs in member_inputs)
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=cache,
            cross_attentions=self._mean_attentions(attentions) if wants_attentions else None,
        )

    def _run_members(
        self, member_inputs: Sequence[dict[str, Any]]
    ) -> tuple[Any, list[Any], list[Any]]:
        """Return the log of the mean probabilities (R, T, V), all caches and all attentions."""
        logits, caches, attentions = None, [], []
        for member, log_weight, inputs in zip(
            self.members, self.log_weights, member_inputs, strict=True
        ):
            output = member(**{**inputs, "return_dict": True})
            precision = torch.promote_types(output.logits.dtype, torch.float32)
            weighed = output.logits.log_softmax(dim=-1, dtype=precision) + log_weight
            logits = weighed if logits is None else torch.logaddexp(logits, weighed)
            caches.append(output.get("past_key_values"))
            attentions.append(output.get("cross_attentions"))
        return logits, caches, attentions

    def _mean_attentions(self, attentions: Sequence[Any]) -> tuple[Tensor, ...] | None:
        """Return the weighted mean of the members' attentions, each (R, heads, T, S), by layer."""
        layers = [[layer for layer in member or () if layer is not None] for member in attentions]
        shapes = [[tuple(layer.shape) for layer in member] for member in layers]
        if any(shape != shapes[0] for shape in shapes):
            counts = [f"{len(shape)} of {shape[0] if shape else 'none'}" for shape in shapes]
            raise ValueError(
                "The mean of the members' attentions needs layers of the same shapes "
                f"(rows, heads, T, S), got {', '.join(counts)}. "
                "Ask a single member: ensemble.members[0]."
            )
        if not layers[0]:
            return None
        weights = [math.exp(log_weight) for log_weight in self.log_weights]
        return tuple(
            torch.stack([weight * part for weight, part in zip(weights, parts, strict=True)]).sum(0)
            for parts in zip(*layers, strict=True)
        )

    def _own_inputs(self, encoder_outputs: Any, cache: Any) -> list[dict[str, Any]]:
        """Return for every member the encoder outputs and the cache that are its own."""
        for name, value, kind in (
            ("encoder_outputs", encoder_outputs, EnsembleEncoderOutput),
            ("past_key_values", cache, EnsembleCache),
        ):
            count = len(getattr(value, "members", None) or ())
            if value is not None and (not isinstance(value, kind) or count != len(self.members)):
                raise ValueError(
                    f"{name} must hold one part for each of the {len(self.members)} members, got "
                    f"{type(value).__name__} with {count}. Pass what this ensemble returned."
                )
        nothing = [None] * len(self.members)
        parts = (
            nothing if encoder_outputs is None else encoder_outputs.members,
            nothing if cache is None else cache.members,
        )
        return [
            {"encoder_outputs": output, "past_key_values": part}
            for output, part in zip(*parts, strict=True)
        ]

    # What generate() needs to know: each step is prepared by the members themselves

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        past_key_values: EnsembleCache | None = None,
        encoder_outputs: EnsembleEncoderOutput | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Prepare one step of generate() in every member.

        Args:
            input_ids: target ids so far, (R, T).
            past_key_values: the caches of the members.
            encoder_outputs: the encoder outputs of the members.
            **kwargs: passed on to every member.

        Returns:
            `member_inputs` for `forward`.

        Raises:
            ValueError: if encoder outputs or caches are not those of this ensemble.
        """
        member_inputs = [
            member.prepare_inputs_for_generation(input_ids, **own, **kwargs)
            for member, own in zip(
                self.members, self._own_inputs(encoder_outputs, past_key_values), strict=True
            )
        ]
        return {
            "member_inputs": member_inputs,
            "output_hidden_states": kwargs.get("output_hidden_states"),
        }

    def _expand_inputs_for_generation(
        self,
        expand_size: int = 1,
        is_encoder_decoder: bool = False,
        input_ids: Tensor | None = None,
        encoder_outputs: Any = None,
        **model_kwargs: Any,
    ) -> tuple[Any, dict[str, Any]]:
        expanded = [
            member._expand_inputs_for_generation(
                expand_size=expand_size, is_encoder_decoder=True, **own
            )[1]["encoder_outputs"]
            for member, own in zip(
                self.members, self._own_inputs(encoder_outputs, None), strict=True
            )
        ]
        parent: Any = super()
        input_ids, model_kwargs = parent._expand_inputs_for_generation(
            expand_size=expand_size, input_ids=input_ids, **model_kwargs
        )
        return input_ids, {**model_kwargs, "encoder_outputs": join_encoder_outputs(expanded)}

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        if model_kwargs.get("past_key_values") is not None or generation_config.use_cache is False:
            parent: Any = super()
            return parent._prepare_cache_for_generation(
                generation_config, model_kwargs, *args, **kwargs
            )
        caches = []
        for member, own in zip(
            self.members, self._own_inputs(model_kwargs["encoder_outputs"], None), strict=True
        ):
            member_kwargs = {**model_kwargs, **own}
            member._prepare_cache_for_generation(generation_config, member_kwargs, *args, **kwargs)
            if member_kwargs["past_key_values"] is None:
                raise ValueError(
                    "generate() with a cache needs one of every member, but "
                    f"{type(member).__name__} has none. Pass use_cache=False."
                )
            caches.append(member_kwargs["past_key_values"])
        model_kwargs["past_key_values"] = EnsembleCache(caches)


def join_encoder_outputs(outputs: Iterable[ModelOutput]) -> EnsembleEncoderOutput:
    """Return the encoder outputs of all members as one.

    Args:
        outputs: one per member, (R, S, .) each.

    Returns:
        The joint output.
    """
    members = tuple(outputs)
    return EnsembleEncoderOutput(last_hidden_state=members[0][0], members=members)


def _known_arguments(function: Callable, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that are set, without a None that the function may not know."""
    parameters = inspect.signature(function).parameters
    return {
        name: value for name, value in arguments.items() if value is not None or name in parameters
    }
