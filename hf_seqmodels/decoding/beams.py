"""The hypotheses of one group of beams: what a step of beam search does to them.

Shapes: B batch, K beams of the group, N candidates of a step, S source length, T tokens so far
with what the decoder started from, V target vocabulary.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hf_seqmodels.decoding.phrases import PhraseAutomaton
from hf_seqmodels.decoding.ranking import Ranking

NEVER = float("-inf")


@dataclass(frozen=True)
class BeamSettings:
    """Settings of a search.

    Args:
        num_beams: K.
        prompt_length: tokens that the decoder started from.
        max_length: longest row, prompt included.
        num_end_tokens: how many tokens end an output.
        pad_id: fills rows behind their end.
        early_stopping: as in generate(): True ends with K finished hypotheses, "never" only where
            no better one can come, False where the best running one is worse at its length.
        ranking: of finished hypotheses.
        num_forced_last: last positions that something else than the search decides on.
    """

    num_beams: int
    prompt_length: int
    max_length: int
    num_end_tokens: int
    pad_id: int
    early_stopping: bool | Literal["never"]
    ranking: Ranking
    num_forced_last: int = 0


@dataclass
class Hypotheses:
    """Rows of tokens and what is known of each; every tensor begins with (B, K) or (B, N).

    Args:
        ranks: what the search orders by, -inf where there is no such hypothesis.
        log_probabilities: of the model; less what the search adds to its ranks.
        tokens: with the prompt, (B, K, T).
        rows: row of the model that each written token came from, -1 behind the end, (B, K, t).
    """

    ranks: Tensor
    log_probabilities: Tensor
    tokens: Tensor
    rows: Tensor

    def select(self, index: Tensor) -> "Hypotheses":
        """Return the hypotheses at `index`, (B, M)."""
        return Hypotheses(*(gather_beams(getattr(self, part.name), index) for part in fields(self)))

    def join(self, others: "Hypotheses", pad_id: int) -> "Hypotheses":
        """Return these and others, (B, K + N), the shorter tokens filled up."""
        longest = max(self.rows.shape[-1], others.rows.shape[-1])

        def lengthened(one: "Hypotheses") -> list[Tensor]:
            short = (0, longest - one.rows.shape[-1])
            tokens, rows = F.pad(one.tokens, short, value=pad_id), F.pad(one.rows, short, value=-1)
            return [one.ranks, one.log_probabilities, tokens, rows]

        pairs = zip(lengthened(self), lengthened(others), strict=True)
        return Hypotheses(*(torch.cat(pair, dim=1) for pair in pairs))


@dataclass
class Candidates:
    """Possible next tokens of all beams, the best first.

    Args:
        hypotheses: the beams with that token behind, (B, N).
        parents: which beam each goes on from, (B, N).
        ends: whether it is over with that token, (B, N).
    """

    hypotheses: Hypotheses
    parents: Tensor
    ends: Tensor


def gather_beams(values: Tensor, index: Tensor) -> Tensor:
    """Return the beams at `index`: (B, K, ...), (B, M) -> (B, M, ...)."""
    for _ in range(values.dim() - 2):
        index = index.unsqueeze(-1)
    return values.gather(1, index.expand(-1, -1, *values.shape[2:]))


class BeamGroup:
    """K beams of every source, searched together.

    At every step the best continuations of all beams of a source become its beams; one that ends
    moves to the finished hypotheses if it is among the K best. With phrases to include (see
    `PhraseAutomaton`) the candidates are those of Post and Vilar 2018, arXiv:1804.06609: the best
    of all beams, the best of each beam, and whatever goes on with a phrase. They lie in banks by
    the tokens that are still needed, and the banks take turns (Hu et al. 2019, N19-1090). A
    candidate that could not be completed in the room that is left is no candidate.

    Args:
        prompts: what the decoder starts from, (B, P).
        first_rows: row of the model that holds the first beam of each source, (B).
        settings: of the search.
        automata: phrases to include, one entry per source.
        source_mask: 1 = real source token, (B, S); needed for coverage alone.
    """

    def __init__(
        self,
        prompts: Tensor,
        first_rows: Tensor,
        settings: BeamSettings,
        automata: Sequence[PhraseAutomaton | None],
        source_mask: Tensor | None = None,
    ):
        self.settings = settings
        self.automata = automata
        self.has_phrases = any(automaton is not None for automaton in automata)
        self.states: list[list[Any]] = [
            [automaton and automaton.start] * settings.num_beams for automaton in automata
        ]
        self.first_rows = first_rows.unsqueeze(1)
        self.source_mask = source_mask
        shape = (prompts.shape[0], settings.num_beams)
        ranks = torch.full(shape, NEVER, dtype=torch.float32, device=prompts.device)
        self.finished = Hypotheses(
            ranks,
            ranks,
            prompts.unsqueeze(1).expand(-1, settings.num_beams, -1),
            first_rows.new_empty(*shape, 0),
        )
        # All beams are alike before the first token, so that one of them goes on.
        self.running = self.finished.select(self._first(settings.num_beams))
        self.running.ranks = ranks.clone()
        self.running.ranks[:, 0] = 0
        self.running.log_probabilities = self.running.ranks
        self.attention_sums = torch.zeros(
            (), device=prompts.device
        )  # (B, K, S) from the first step
        self.is_open = torch.ones(shape[0], dtype=torch.bool, device=prompts.device)
        # the K best tokens of the last step, ends included, where the source was still open
        self.chosen, self.is_chosen = prompts[:, :0], ranks.gt(NEVER)[:, :0]

    @property
    def is_done(self) -> bool:
        """Whether no source can get a better hypothesis."""
        return not bool(self.is_open.any())

    def advance(
        self,
        log_probabilities: Tensor,
        ends_rows: Callable[[Tensor], Tensor],
        *,
        penalties: Tensor | None = None,
        attention: Tensor | None = None,
    ) -> None:
        """Write one more token on every beam.

        Args:
            log_probabilities: of every next token, (B, K, V).
            ends_rows: says of rows of tokens whether they are over: (R, T) -> (R).
            penalties: what the ranks of tokens are lowered by in this step, (B, V).
            attention: that the next token is written with, (B, K, S); needed for coverage alone.
        """
        coverage = None
        if attention is not None:
            assert self.source_mask is not None
            self.attention_sums = self.attention_sums + attention
            coverage = self.settings.ranking.coverage(
                self.attention_sums, self.source_mask.unsqueeze(1)
            )  # (B, K)
        candidates, states = self._candidates(log_probabilities, ends_rows, penalties)
        best = candidates.hypotheses
        self.chosen = best.tokens[:, : self.settings.num_beams, -1]
        self.is_chosen = best.ranks[:, : self.settings.num_beams].gt(NEVER)
        self.is_chosen &= self.is_open.unsqueeze(1)
        self._finish(candidates, coverage)
        over = candidates.ends | candidates.hypotheses.ranks.eq(NEVER)
        chosen = over.int().argsort(dim=1, stable=True)[:, : self.settings.num_beams]
        candidates.hypotheses.ranks = candidates.hypotheses.ranks.masked_fill(over, NEVER)
        self.running = candidates.hypotheses.select(chosen)
        if attention is not None:
            parents = gather_beams(candidates.parents, chosen)
            self.attention_sums = gather_beams(self.attention_sums, parents)
        if self.has_phrases:
            self.states = [
                [row[index] for index in indices] if row else self.states[source]
                for source, (row, indices) in enumerate(zip(states, chosen.tolist(), strict=True))
            ]
        self._close()

    def _first(self, count: int) -> Tensor:
        """Return the positions 0 .. count - 1 for every source, (B, count)."""
        positions = torch.arange(count, device=self.first_rows.device)
        return positions.expand(self.first_rows.shape[0], -1)

    def _candidates(
        self,
        log_probabilities: Tensor,
        ends_rows: Callable[[Tensor], Tensor],
        penalties: Tensor | None,
    ) -> tuple[Candidates, list[list[Any]]]:
        """Return what may come next, the best first, and the state of its phrases by source."""
        vocab_size = log_probabilities.shape[-1]
        ranks = self.running.ranks.unsqueeze(-1) + log_probabilities  # (B, K, V)
        if penalties is not None:
            ranks = ranks - penalties.unsqueeze(1)
        # enough to go on with K of them whatever number ends
        wanted = max(2, 1 + self.settings.num_end_tokens) * self.settings.num_beams
        num_best = min(wanted, ranks[0].numel())
        index = ranks.flatten(1).topk(num_best, dim=1).indices  # (B, N)
        if self.has_phrases:
            index = torch.cat([index, self._extra(ranks)], dim=1)
        parents = index // vocab_size
        before = self.running.select(parents)
        found = Hypotheses(
            ranks.flatten(1).gather(1, index),
            before.log_probabilities + log_probabilities.flatten(1).gather(1, index),
            torch.cat([before.tokens, (index % vocab_size).unsqueeze(-1)], dim=-1),
            torch.cat([before.rows, (self.first_rows + parents).unsqueeze(-1)], dim=-1),
        )
        ends = ends_rows(found.tokens.flatten(0, 1)).view(index.shape)
        candidates = Candidates(found, parents, ends)
        return self._in_banks(candidates, num_best) if self.has_phrases else (candidates, [])

    def _extra(self, ranks: Tensor) -> Tensor:
        """Return the best token of each beam and all that go on with a phrase, (B, E): where they
        stand among the tokens of all beams, repeats where a source has fewer."""
        vocab_size = ranks.shape[-1]
        best = ranks.argmax(dim=-1) + vocab_size * self._first(ranks.shape[1])  # (B, K)
        going_on = [
            []
            if automaton is None
            else [
                beam * vocab_size + token
                for beam, state in enumerate(states)
                for token in automaton.next_tokens(state)
            ]
            for automaton, states in zip(self.automata, self.states, strict=True)
        ]
        width = max(map(len, going_on))
        filled = [
            row + [int(first)] * (width - len(row))
            for row, first in zip(going_on, best[:, 0], strict=True)
        ]
        return torch.cat([best, torch.tensor(filled, dtype=torch.long, device=best.device)], dim=1)

    def _in_banks(
        self, candidates: Candidates, num_best: int
    ) -> tuple[Candidates, list[list[Any]]]:
        """Order the candidates by turns of the banks, and rule out what could not be completed."""
        found = candidates.hypotheses
        room = self.settings.max_length - self.settings.num_forced_last - found.tokens.shape[-1]
        columns = zip(
            found.ranks.tolist(),
            candidates.parents.tolist(),
            found.tokens[:, :, -1].tolist(),
            candidates.ends.tolist(),
            strict=True,
        )
        orders, possible, all_states = [], [], []
        for automaton, states, (ranks, parents, tokens, ends) in zip(
            self.automata, self.states, columns, strict=True
        ):
            if automaton is None:  # without the extra ones it is plain beam search
                orders.append(list(range(len(ranks))))
                possible.append([True] * num_best + [False] * (len(ranks) - num_best))
                all_states.append([])
                continue
            turns, reached, seen, banks = [], {}, set(), Counter()
            for index in sorted(range(len(ranks)), key=lambda index: -ranks[index]):
                choice = parents[index], tokens[index]
                if choice in seen or ranks[index] == NEVER:
                    continue
                seen.add(choice)
                state = automaton.advance(states[parents[index]], tokens[index])
                needed = automaton.tokens_needed(state)
                if needed > (0 if ends[index] else max(room, 0)):
                    continue
                turns.append((banks[needed], needed, index))
                banks[needed] += 1
                reached[index] = state
            order = [index for _, _, index in sorted(turns)]
            order += [index for index in range(len(ranks)) if index not in reached]
            orders.append(order)
            possible.append([index in reached for index in order])
            all_states.append([reached.get(index, automaton.start) for index in order])
        order = torch.tensor(orders, device=found.ranks.device)
        ordered = found.select(order)
        mask = torch.tensor(possible, device=found.ranks.device)
        ordered.ranks = ordered.ranks.masked_fill(~mask, NEVER)
        parents, ends = gather_beams(candidates.parents, order), candidates.ends.gather(1, order)
        return Candidates(ordered, parents, ends), all_states

    def _finish(self, candidates: Candidates, coverage: Tensor | None) -> None:
        """Move what ends among the K best to the finished hypotheses, and keep the best K."""
        found, num_beams = candidates.hypotheses, self.settings.num_beams
        is_new = candidates.ends & found.ranks.gt(NEVER) & self.is_open.unsqueeze(1)
        is_new[:, num_beams:] = False
        if not is_new.any():
            return
        ranking = self.settings.ranking
        divisor = ranking.divisor(found.tokens.shape[-1] - self.settings.prompt_length)
        ranks, scores = found.ranks / divisor, found.log_probabilities / divisor
        if coverage is not None:
            covered = gather_beams(coverage, candidates.parents)
            ranks, scores = ranks + covered, scores + covered
        new = Hypotheses(ranks.masked_fill(~is_new, NEVER), scores, found.tokens, found.rows)
        merged = self.finished.join(new, self.settings.pad_id)
        self.finished = merged.select(merged.ranks.topk(num_beams, dim=1).indices)

    def _close(self) -> None:
        """Close the sources that cannot get a better hypothesis; the rule is that of generate()."""
        settings = self.settings
        is_full = self.finished.ranks.gt(NEVER).all(dim=1)
        best_running = self.running.ranks.amax(dim=1)
        length = self.running.tokens.shape[-1]
        if settings.early_stopping == "never" and settings.ranking.length_penalty > 0:
            length = settings.max_length
        hope = best_running / settings.ranking.divisor(length - settings.prompt_length)
        self.is_open &= best_running.gt(NEVER)
        self.is_open &= ~is_full | hope.gt(self.finished.ranks.amin(dim=1))
        # a beam of one is greedy search: its first end is the end
        if settings.early_stopping is True or settings.num_beams == 1:
            self.is_open &= ~is_full
