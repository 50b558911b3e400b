"""Beam search as loops over Python lists, one source at a time: the second source for our own.

Groups, penalties and the coverage of the source are written from the papers; a step scores whole
prefixes, without a cache, without padding.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import torch


@dataclass
class Beam:
    """One hypothesis.

    Args:
        rank: what the search orders by.
        log_probability: of the model.
        tokens: written so far.
        attention: that each source token has received in all.
    """

    rank: float
    log_probability: float
    tokens: list[int]
    attention: list[float]


@dataclass
class Group:
    """Beams that compete with one another alone."""

    running: list[Beam]
    finished: list[tuple[float, Beam]] = field(default_factory=list)
    is_open: bool = True


def step_of(model, source, *, source_mask=None) -> Callable[[tuple[int, ...]], tuple]:
    """Return a function of a prefix: log p of every next token, and the attention over the source.

    Args:
        model: an encoder-decoder.
        source: token ids, (S).
        source_mask: None without padding.
    """
    model = model.eval()
    model.config._attn_implementation = "eager"
    start = model.generation_config.decoder_start_token_id

    @functools.cache
    def score(prefix: tuple[int, ...]):
        with torch.no_grad():
            outputs = model(
                input_ids=source[None],
                attention_mask=source_mask,
                decoder_input_ids=torch.tensor([[start, *prefix]]),
                use_cache=False,
                output_attentions=True,
            )
        layers = [weights for weights in outputs.cross_attentions or () if weights is not None]
        attention = layers[-1][0].mean(dim=0)[-1].tolist() if layers else [0.0] * len(source)
        return outputs.logits[0, -1].double().log_softmax(dim=-1).tolist(), attention

    return score


def gnmt_score(beam: Beam, *, alpha: float, beta: float) -> float:
    """Equation 14 of Wu et al. 2016."""
    length = ((5 + len(beam.tokens)) ** alpha) / ((5 + 1) ** alpha)
    coverage = sum(math.log(min(total, 1.0)) for total in beam.attention) if beta else 0.0
    return beam.log_probability / length + beta * coverage


def power_score(beam: Beam, *, alpha: float, beta: float) -> float:
    """The score of generate(), and coverage."""
    coverage = sum(math.log(min(total, 1.0)) for total in beam.attention) if beta else 0.0
    return beam.log_probability / len(beam.tokens) ** alpha + beta * coverage


def plain_beam_search(
    score,
    *,
    num_beams: int,
    max_new_tokens: int,
    end_ids: set[int],
    num_groups: int = 1,
    diversity: float = 0.0,
    final=power_score,
    alpha: float = 1.0,
    beta: float = 0.0,
    num_source_tokens: int,
) -> list[Group]:
    """Search with every group of beams in turn; what is finished is in the groups."""
    width = num_beams // num_groups
    nothing = [0.0] * num_source_tokens
    groups = [Group([Beam(0.0, 0.0, [], nothing)]) for _ in range(num_groups)]
    for _ in range(max_new_tokens):
        used = Counter()
        for group in groups:
            candidates = []
            for beam in group.running:
                log_probabilities, attention = score(tuple(beam.tokens))
                received = [a + b for a, b in zip(beam.attention, attention, strict=True)]
                for token, value in enumerate(log_probabilities):
                    candidates.append(
                        Beam(
                            beam.rank + value - diversity * used[token],
                            beam.log_probability + value,
                            [*beam.tokens, token],
                            received,
                        )
                    )
            candidates.sort(key=lambda beam: -beam.rank)
            over = [
                beam.tokens[-1] in end_ids or len(beam.tokens) == max_new_tokens
                for beam in candidates
            ]
            if group.is_open:
                used.update(beam.tokens[-1] for beam in candidates[:width])
                for beam, ends in list(zip(candidates, over, strict=True))[:width]:
                    if ends:
                        own = beam.log_probability
                        beam.log_probability = beam.rank  # the search ranks by the penalised sum
                        group.finished.append((final(beam, alpha=alpha, beta=beta), beam))
                        beam.log_probability = own
                group.finished.sort(key=lambda pair: -pair[0])
                del group.finished[width:]
            going_on = [beam for beam, ends in zip(candidates, over, strict=True) if not ends]
            group.running = going_on[:width]
            if len(group.finished) == width and group.running:
                best = Beam(0.0, group.running[0].rank, group.running[0].tokens, [1.0])
                hope = final(best, alpha=alpha, beta=0.0)
                group.is_open &= hope > group.finished[-1][0] and width > 1
        if not any(group.is_open and group.running for group in groups):
            break
    return groups
