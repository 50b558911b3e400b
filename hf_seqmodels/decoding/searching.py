"""Beam search with a length and coverage penalty, groups of beams and phrases to include.

Shapes: B batch, K beams of a group, G groups, R rows (B * G * K), S source length, T tokens so far,
V target vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.generation.utils import (
    GenerateBeamDecoderOnlyOutput,
    GenerateBeamEncoderDecoderOutput,
)

from hf_seqmodels.decoding.beams import NEVER, BeamGroup, BeamSettings, Hypotheses
from hf_seqmodels.decoding.phrases import PhraseAutomaton, make_automata
from hf_seqmodels.decoding.ranking import LengthNormalization, Ranking
from hf_seqmodels.models.pipeline_seq2seq_generation import cross_attention, eager_attention

# what makes a call of generate() one of `beam_search`
OWN_ARGUMENTS = frozenset(
    {
        "coverage_layer",
        "coverage_penalty",
        "diversity_penalty",
        "length_normalization",
        "must_include",
        "num_beam_groups",
    }
)


def beam_search(
    model: Any,
    input_ids: Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    *,
    length_normalization: LengthNormalization = "power",
    coverage_penalty: float = 0.0,
    coverage_layer: int | Literal["mean"] = -1,
    num_beam_groups: int | None = None,
    diversity_penalty: float | None = None,
    must_include: Sequence[Any] | None = None,
    **model_kwargs: Any,
) -> Any:
    """Search with beams, as generate() does, and with what it does not have (any more).

    ```python
    from hf_seqmodels.decoding import beam_search

    model.generate(**batch, custom_generate=beam_search, num_beams=5, coverage_penalty=0.2)
    ```

    Without the arguments below it finds what generate() finds. All arguments of generate() hold,
    logits processors, `prefix_allowed_tokens_fn` and `bad_words_ids` included; a beam of one is
    greedy search. Rows are filled up with the pad token. A hypothesis that does not exist, because
    fewer are possible than were asked for, is a row of pad tokens with the score -inf.

    Penalties: finished hypotheses are ranked by `Ranking` (Wu et al. 2016, arXiv:1609.08144). While
        they grow, beams of one length compete by log-probability alone.
    Groups (diverse beam search, Vijayakumar et al. 2018, arXiv:1610.02424): the beams are divided
        evenly. At each step the groups choose in turn, and group g orders tokens by
        log p(y_t | y_<t, x) - diversity_penalty * (beams of groups 1 .. g-1 that chose y_t in this
        step), summed over the steps. The first group is a beam search of its own; a group that has
        ended costs nothing any more. The groups take turns in
        giving their best hypotheses; `sequences_scores` are the model's own, without that penalty.
    Phrases: every output contains every phrase. The search is that of Post and Vilar 2018; see
        `BeamGroup`. More beams than tokens in the phrases leave room for each number of them met.

    Args:
        model: any model with generate(), handed over by it.
        input_ids: what the decoder starts from, R rows.
        logits_processor: made by generate().
        stopping_criteria: made by generate().
        generation_config: made by generate().
        length_normalization: what log-probabilities are divided by: "power", length **
            length_penalty, or "gnmt", ((5 + length) / 6) ** length_penalty.
        coverage_penalty: weight of the coverage of the source, 0 for none; needs cross-attention.
        coverage_layer: decoder layer whose attention counts, the mean of its heads, or "mean" over
            all layers.
        num_beam_groups: groups that the beams are divided into; None takes that of
            generation_config, or one.
        diversity_penalty: what a token costs a later group, in nats, at least 0; None takes that of
            generation_config, or 0.
        must_include: token ids of phrases for every source, `[[5, 6], [7]]`, or one such list per
            source; `encode_phrases` makes them from texts.
        **model_kwargs: what generate() has prepared for the model.

    Returns:
        As generate() returns from its own beam search.

    Raises:
        ValueError: if an argument is out of its range, phrases do not fit into the length or cannot
            be written, or the model has no cross-attention and coverage is asked for.
    """
    groups = num_beam_groups or getattr(generation_config, "num_beam_groups", None) or 1
    diversity = diversity_penalty
    if diversity is None:
        diversity = getattr(generation_config, "diversity_penalty", None) or 0.0
    ranking = Ranking(generation_config.length_penalty, length_normalization, coverage_penalty)
    check_settings(model, generation_config, groups, diversity, coverage_penalty)
    num_beams = generation_config.num_beams
    automata = make_automata(must_include, input_ids.shape[0] // num_beams)
    check_phrases(automata, model, generation_config, input_ids.shape[1])
    source_mask = None
    if coverage_penalty:
        model_kwargs["output_attentions"] = True
        source_mask = source_mask_of(model_kwargs)[::num_beams]  # (B, S)
    with eager_attention(model) if coverage_penalty else nullcontext():
        search = BeamSearch(
            model, generation_config, input_ids, groups, ranking, automata, source_mask
        )
        search.run(
            model_kwargs,
            logits_processor,
            stopping_criteria,
            diversity=float(diversity),
            coverage_layer=coverage_layer,
        )
    return search.result()


def with_beam_search(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of generate() that call `beam_search` where they need it.

    Args:
        arguments: of generate(), with or without those that only `beam_search` knows.

    Returns:
        The same, with `custom_generate` where one of these is set and nothing else was asked for.
    """
    given = {name for name in OWN_ARGUMENTS & arguments.keys() if arguments[name] is not None}
    return ({"custom_generate": beam_search} if given else {}) | dict(arguments)


def check_settings(
    model: Any, generation_config: Any, groups: int, diversity: float, coverage_penalty: float
) -> None:
    """Refuse settings that do not go together.

    Args:
        model: to search with.
        generation_config: of the call.
        groups: number of groups.
        diversity: penalty of repeated tokens.
        coverage_penalty: weight of coverage.

    Raises:
        ValueError: naming the rule, the value and the way out.
    """
    num_beams = generation_config.num_beams
    if generation_config.do_sample:
        raise ValueError(
            "beam_search does not sample, got do_sample=True. Pass do_sample=False, or leave "
            "custom_generate out to sample."
        )
    if generation_config.num_return_sequences > num_beams:
        raise ValueError(
            f"num_return_sequences must be at most num_beams={num_beams}, got "
            f"{generation_config.num_return_sequences}. Raise num_beams."
        )
    if groups < 1 or num_beams % groups:
        raise ValueError(
            f"num_beam_groups must divide num_beams={num_beams} evenly, got {groups}. "
            "Groups are of one size: num_beams=6 with num_beam_groups=3, for instance."
        )
    if not diversity >= 0:
        raise ValueError(
            f"diversity_penalty must be at least 0, got {diversity}. Pass 0 for independent groups."
        )
    if diversity and groups == 1:
        raise ValueError(
            f"diversity_penalty={diversity} acts between groups, but num_beam_groups is 1. "
            f"Pass num_beam_groups={num_beams}, or another divisor of num_beams."
        )
    if coverage_penalty and not model.config.is_encoder_decoder:
        raise ValueError(
            f"coverage_penalty={coverage_penalty} needs a source to cover, but "
            f"{type(model).__name__} is a decoder alone. Leave it out."
        )


def check_phrases(
    automata: Sequence[PhraseAutomaton | None],
    model: Any,
    generation_config: Any,
    prompt_length: int,
) -> None:
    """Refuse phrases that no output could hold.

    Args:
        automata: the phrases of every source.
        model: to search with.
        generation_config: of the call.
        prompt_length: tokens that the decoder starts from.

    Raises:
        ValueError: if a phrase has a token that ends an output or is not in the vocabulary, or the
            phrases of a source are too long.
    """
    config = model.config
    vocab_size = getattr(config, "decoder_vocab_size", None) or config.vocab_size
    ends = generation_config._eos_token_tensor
    end_ids = [] if ends is None else ends.tolist()
    forced = [generation_config.forced_bos_token_id, generation_config.forced_eos_token_id]
    room = generation_config.max_length - prompt_length - sum(one is not None for one in forced)
    for automaton in automata:
        if automaton is None:
            continue
        for phrase in automaton.phrases:
            if not all(0 <= token < vocab_size and token not in end_ids for token in phrase):
                raise ValueError(
                    f"A phrase must consist of token ids from 0 to {vocab_size - 1} that do not "
                    f"end an output ({end_ids}), got {list(phrase)}. Encode it without special "
                    "tokens, as encode_phrases() does."
                )
        if automaton.num_tokens > room:
            raise ValueError(
                f"The phrases of one source must fit into the output, {room} tokens, but they have "
                f"{automaton.num_tokens}: {[list(phrase) for phrase in automaton.phrases]}. "
                "Raise max_new_tokens or leave phrases out."
            )


def source_mask_of(model_kwargs: dict[str, Any]) -> Tensor:
    """Return the mask of the source that generate() was given, or one of ones, (R, S).

    Args:
        model_kwargs: what generate() has prepared.

    Returns:
        1 = real source token.
    """
    mask = model_kwargs.get("attention_mask")
    if mask is None:
        states = model_kwargs["encoder_outputs"][0]
        mask = torch.ones(states.shape[:2], dtype=torch.long, device=states.device)
    return mask


@dataclass
class StepRecords:
    """What generate() was asked to keep of every step."""

    scores: list[Tensor] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    decoder_attentions: list[Any] = field(default_factory=list)
    cross_attentions: list[Any] = field(default_factory=list)
    decoder_hidden_states: list[Any] = field(default_factory=list)


class BeamSearch:
    """One search over a batch: the loop around the model.

    Args:
        model: any model with generate().
        generation_config: made by generate().
        input_ids: what the decoder starts from, (R, P).
        num_groups: G.
        ranking: of finished hypotheses.
        automata: phrases to include, one entry per source.
        source_mask: 1 = real source token, (B, S), where coverage counts.
    """

    def __init__(
        self,
        model: Any,
        generation_config: Any,
        input_ids: Tensor,
        num_groups: int,
        ranking: Ranking,
        automata: Sequence[PhraseAutomaton | None],
        source_mask: Tensor | None,
    ):
        self.model = model
        self.config = generation_config
        self.num_beams = generation_config.num_beams
        self.prompt_length = input_ids.shape[1]
        self.rows = input_ids  # (R, T)
        self.records = StepRecords()
        self.model_kwargs: dict[str, Any] = {}
        self.has_coverage = source_mask is not None
        ends, pad = generation_config._eos_token_tensor, generation_config._pad_token_tensor
        pad = ends[:1] if pad is None and ends is not None else pad
        settings = BeamSettings(
            num_beams=self.num_beams // num_groups,
            prompt_length=self.prompt_length,
            max_length=generation_config.max_length,
            num_end_tokens=0 if ends is None else len(ends),
            pad_id=0 if pad is None else int(pad),
            early_stopping=generation_config.early_stopping,
            ranking=ranking,
            num_forced_last=int(generation_config.forced_eos_token_id is not None),
        )
        self.pad_id = settings.pad_id
        first_rows = torch.arange(0, len(input_ids), self.num_beams, device=input_ids.device)
        self.groups = [
            BeamGroup(
                input_ids[:: self.num_beams],
                first_rows + group * settings.num_beams,
                settings,
                automata,
                source_mask,
            )
            for group in range(num_groups)
        ]

    def run(
        self,
        model_kwargs: dict[str, Any],
        logits_processor: Any,
        stopping_criteria: Any,
        *,
        diversity: float,
        coverage_layer: int | Literal["mean"],
    ) -> None:
        """Search until no source can get better hypotheses.

        Args:
            model_kwargs: what generate() has prepared for the model.
            logits_processor: made by generate().
            stopping_criteria: made by generate().
            diversity: what a token costs a later group.
            coverage_layer: decoder layer whose attention counts, or "mean".
        """
        model, self.model_kwargs = self.model, model_kwargs
        outputs = model._prefill(self.rows, self.config, model_kwargs)
        while True:
            self.model_kwargs = model._update_model_kwargs_for_generation(
                outputs, self.model_kwargs, is_encoder_decoder=model.config.is_encoder_decoder
            )
            logits = outputs.logits[:, -1].to(self.rows.device, torch.float32, copy=True)  # (R, V)
            log_probabilities = logits_processor(self.rows, F.log_softmax(logits, dim=-1))
            self._record(outputs, logits, log_probabilities)
            attention = None
            if self.has_coverage:
                source_length = self.model_kwargs["encoder_outputs"][0].shape[1]
                # the weights that the last token is written with
                weights = cross_attention(
                    model, outputs, self.rows[:, -1:], source_length, coverage_layer
                )
                attention = weights[:, -1].float()  # (R, S)
            del outputs, logits  # large, and not needed while the next ones are made
            ends_rows = partial(stopping_criteria, scores=self.records.scores or None)
            self._advance(log_probabilities, ends_rows, diversity, attention)
            if all(group.is_done for group in self.groups):
                break
            self._reorder_cache()
            inputs = model.prepare_inputs_for_generation(
                self.rows,
                next_sequence_length=1 if self.model_kwargs["use_cache"] else None,
                **self.model_kwargs,
            )
            outputs = model(**inputs, return_dict=True)

    def _by_group(self, values: Tensor) -> Sequence[Tensor]:
        """Cut what belongs to rows into groups: (R, .) -> G times (B, K, .)."""
        beams = values.unflatten(0, (-1, len(self.groups), self.num_beams // len(self.groups)))
        return beams.unbind(1)

    def _advance(
        self,
        log_probabilities: Tensor,
        ends_rows: Callable[[Tensor], Tensor],
        diversity: float,
        attention: Tensor | None,
    ) -> None:
        """Let each group in turn write one more token."""
        steps = self._by_group(log_probabilities)
        attentions = [None] * len(self.groups) if attention is None else self._by_group(attention)
        penalties = None
        for group, step, weights in zip(self.groups, steps, attentions, strict=True):
            group.advance(step, ends_rows, penalties=penalties, attention=weights)
            if diversity and group is not self.groups[-1]:
                if penalties is None:
                    penalties = step.new_zeros(step.shape[0], step.shape[-1])
                costs = group.is_chosen * diversity  # (B, K)
                penalties = penalties.scatter_add(1, group.chosen, costs)
        self.rows = torch.cat([group.running.tokens for group in self.groups], dim=1).flatten(0, 1)

    def _reorder_cache(self) -> None:
        """Let every row go on with the cache of the beam that it comes from."""
        cache = self.model_kwargs.get("past_key_values")
        if cache is None:
            return
        last = [group.running.rows[:, :, -1] for group in self.groups]  # (B, K) each
        rows = torch.cat(last, dim=1).flatten()  # (R)
        if hasattr(self.model, "_reorder_cache"):
            self.model_kwargs["past_key_values"] = self.model._reorder_cache(cache, rows)
        else:
            cache.reorder_cache(rows)

    def _record(self, outputs: Any, logits: Tensor, log_probabilities: Tensor) -> None:
        """Keep what generate() was asked to return of every step."""
        config, records = self.config, self.records
        if not config.return_dict_in_generate:
            return
        if config.output_scores:
            records.scores.append(log_probabilities.clone())
        if config.output_logits:
            records.logits.append(logits)
        prefix = "decoder_" if self.model.config.is_encoder_decoder else ""
        if config.output_attentions:
            records.decoder_attentions.append(outputs.get(f"{prefix}attentions"))
            records.cross_attentions.append(outputs.get("cross_attentions"))
        if config.output_hidden_states:
            records.decoder_hidden_states.append(outputs.get(f"{prefix}hidden_states"))

    def _best(self) -> Hypotheses:
        """Return the hypotheses asked for, by source, the highest score first: the groups take
        turns."""
        finished = self.groups[0].finished
        for group in self.groups[1:]:
            finished = finished.join(group.finished, self.pad_id)
        if len(self.groups) > 1:
            beams = torch.arange(self.num_beams, device=self.rows.device)
            turns = beams.view(len(self.groups), -1).T.flatten().expand(len(finished.ranks), -1)
            finished = finished.select(turns)
        found = finished.select(
            finished.ranks.eq(NEVER)
            .int()
            .argsort(dim=1, stable=True)[:, : self.config.num_return_sequences]
        )
        is_none = found.ranks.eq(NEVER)
        found.log_probabilities = found.log_probabilities.masked_fill(is_none, NEVER)
        found.rows = found.rows.masked_fill(is_none.unsqueeze(-1), -1)
        found.tokens[:, :, self.prompt_length :].masked_fill_(is_none.unsqueeze(-1), self.pad_id)
        return found.select(found.log_probabilities.argsort(dim=1, descending=True, stable=True))

    def result(self) -> Any:
        """Return what generate() returns.

        Returns:
            Token ids, (B * num_return_sequences, T), or them and what else was asked for.

        Raises:
            ValueError: if some source has no output with all its phrases.
        """
        best = self._best()
        has_none = best.ranks.eq(NEVER).all(dim=1)
        for source, automaton in enumerate(self.groups[0].automata):
            if automaton is not None and has_none[source]:
                raise ValueError(
                    f"No output for source {source} of the batch can hold the phrases "
                    f"{[list(phrase) for phrase in automaton.phrases]}: what else was asked of "
                    "generate() rules their tokens out (bad_words_ids, suppress_tokens, "
                    "prefix_allowed_tokens_fn, no_repeat_ngram_size, a time limit). "
                    "Drop one of the two."
                )
        written = int(best.rows.ge(0).sum(dim=-1).max())
        sequences = best.tokens.flatten(0, 1)[:, : self.prompt_length + written]
        config, records = self.config, self.records
        if not config.return_dict_in_generate:
            return sequences

        def kept(values: Sequence[Any], is_kept: bool | None) -> tuple[Any, ...] | None:
            return tuple(values) if is_kept else None

        common: dict[str, Any] = {
            "sequences": sequences,
            "sequences_scores": best.log_probabilities.flatten() if config.output_scores else None,
            "scores": kept(records.scores, config.output_scores),
            "logits": kept(records.logits, config.output_logits),
            "beam_indices": best.rows.flatten(0, 1)[:, :written].int(),
            "past_key_values": self.model_kwargs.get("past_key_values"),
        }
        attentions = kept(records.decoder_attentions, config.output_attentions)
        hidden_states = kept(records.decoder_hidden_states, config.output_hidden_states)
        if not self.model.config.is_encoder_decoder:
            return GenerateBeamDecoderOnlyOutput(
                **common, attentions=attentions, hidden_states=hidden_states
            )
        encoded = self.model_kwargs["encoder_outputs"]
        return GenerateBeamEncoderDecoderOutput(
            **common,
            encoder_attentions=encoded.get("attentions") if config.output_attentions else None,
            encoder_hidden_states=(
                encoded.get("hidden_states") if config.output_hidden_states else None
            ),
            decoder_attentions=attentions,
            cross_attentions=kept(records.cross_attentions, config.output_attentions),
            decoder_hidden_states=hidden_states,
        )
