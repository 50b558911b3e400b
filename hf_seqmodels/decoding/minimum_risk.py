"""Minimum Bayes risk: of several candidates the one that is most like all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, fsum, isfinite
from typing import Any, Literal

from hf_seqmodels.evaluation.error_rates import count_edits
from hf_seqmodels.evaluation.n_best_lists import n_best

Utility = Callable[[str, str], float]


def chrf_utility(candidate: str, reference: str) -> float:
    """Return sentence-level chrF of sacrebleu, 0 to 100.

    Args:
        candidate: what is judged.
        reference: what it is judged by.

    Returns:
        The score.
    """
    return _scorer("CHRF").sentence_score(candidate, [reference]).score


def bleu_utility(candidate: str, reference: str) -> float:
    """Return sentence-level BLEU of sacrebleu, 0 to 100: orders that a text is too short for are
    left out, others smoothed exponentially.

    Args:
        candidate: what is judged.
        reference: what it is judged by.

    Returns:
        The score.
    """
    return _scorer("BLEU", effective_order=True).sentence_score(candidate, [reference]).score


def edit_utility(candidate: str, reference: str) -> float:
    """Return minus the number of characters to insert, delete or replace.

    Args:
        candidate: what is judged.
        reference: what it is judged by.

    Returns:
        At most 0.
    """
    return -float(count_edits([(candidate, reference)], "character")[0].edits)


def exact_utility(candidate: str, reference: str) -> float:
    """Return 1 for the same text and 0 for another: the most probable candidate wins.

    Args:
        candidate: what is judged.
        reference: what it is judged by.

    Returns:
        0 or 1.
    """
    return float(candidate == reference)


UTILITIES: dict[str, Utility] = {
    "chrf": chrf_utility,
    "bleu": bleu_utility,
    "edit": edit_utility,
    "exact": exact_utility,
}


@dataclass(frozen=True)
class RiskChoice:
    """The candidate of minimum risk, and how all of them compare.

    Args:
        text: the candidate chosen.
        candidates: the different candidates, the highest expected utility first.
        expected_utilities: sum_r p(r) u(h, r) of each.
        weights: p(r) of each, their sum is 1.
    """

    text: str
    candidates: list[str]
    expected_utilities: list[float]
    weights: list[float]


def minimum_bayes_risk(
    candidates: Sequence[str],
    *,
    weights: Sequence[float] | None = None,
    utility: str | Utility = "chrf",
) -> RiskChoice:
    """Return the candidate of the highest expected utility.

    h* = argmax_h sum_r p(r) u(h, r), h and r over the candidates.
    Source: Kumar and Byrne 2004, N04-1022; on samples, Eikema and Aziz 2020, arXiv:2005.10283.

    A candidate that comes several times counts several times. Of equal ones the first wins.

    Args:
        candidates: texts, for instance samples of the model.
        weights: a number of at least 0 for each, divided by their sum, for instance probabilities;
            None weighs all alike, which is right for samples.
        utility: "chrf", "bleu" (sentence level, sacrebleu), "edit" (minus the edit distance in
            characters), "exact", or a function of candidate and reference.

    Returns:
        The choice.

    Raises:
        ValueError: if there are no candidates, the weights do not fit, or the utility is unknown.
    """
    if isinstance(candidates, str) or not len(candidates):
        raise ValueError(f"candidates must be a list of at least one text, got {candidates!r}.")
    if isinstance(utility, str) and utility not in UTILITIES:
        raise ValueError(
            f"utility must be one of {', '.join(UTILITIES)} or a function, got {utility!r}."
        )
    score = UTILITIES[utility] if isinstance(utility, str) else utility
    weights = [1.0] * len(candidates) if weights is None else list(weights)
    is_right = all(weight >= 0 and isfinite(weight) for weight in weights) and any(weights)
    if len(weights) != len(candidates) or not is_right:
        raise ValueError(
            "weights must hold a number of at least 0 for each candidate, "
            f"{len(candidates)}, and one above 0, got {weights}."
        )
    shares: dict[str, float] = dict.fromkeys(candidates, 0.0)
    total = fsum(weights)
    for text, weight in zip(candidates, weights, strict=True):
        shares[text] += weight / total
    expected = {
        text: fsum(share * score(text, other) for other, share in shares.items() if share)
        for text in shares
    }
    ranked = sorted(expected, key=lambda text: -expected[text])
    return RiskChoice(
        ranked[0], ranked, [expected[text] for text in ranked], [shares[text] for text in ranked]
    )


def decode_minimum_risk(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    *,
    candidates: Literal["samples", "n_best"] = "samples",
    num_candidates: int = 32,
    utility: str | Utility = "chrf",
    **search_kwargs: Any,
) -> list[RiskChoice]:
    """Decode every source by minimum Bayes risk.

    Args:
        model: any encoder-decoder with generate().
        tokenizer: its tokenizer, or a pair of tokenizers (`Seq2SeqTokenizer`).
        sources: the texts.
        candidates: "samples" draws from the model's own distribution (set the seed before), each
            draw counts once; "n_best" takes the best of beam search, each with its probability
            under the model.
        num_candidates: draws or beams.
        utility: see `minimum_bayes_risk`.
        **search_kwargs: passed on to `n_best`: batch_size, max_new_tokens, temperature, ... Without
            top_k and top_p samples are not cut off.

    Returns:
        One choice per source, in the order of the sources.

    Raises:
        ValueError: if an argument is out of its range or cannot be passed on.
    """
    if candidates not in ("samples", "n_best"):
        raise ValueError(f"candidates must be 'samples' or 'n_best', got {candidates!r}.")
    if num_candidates < 1:
        raise ValueError(f"num_candidates must be at least 1, got {num_candidates}.")
    for name in ("num_beams", "num_return_sequences", "do_sample"):
        if name in search_kwargs:
            raise ValueError(f"{name} follows from candidates and num_candidates: leave it out.")
    if candidates == "samples":
        search_kwargs = {"top_k": 0, "top_p": 1.0, "do_sample": True} | search_kwargs
        beams = 1
    else:
        beams = num_candidates
    lists = n_best(
        model,
        tokenizer,
        sources,
        num_beams=beams,
        num_return_sequences=num_candidates,
        **search_kwargs,
    )
    choices = []
    for hypotheses in lists:
        weights = None
        if candidates == "n_best":
            best = max(hypothesis.log_probability for hypothesis in hypotheses)
            weights = [exp(hypothesis.log_probability - best) for hypothesis in hypotheses]
        texts = [hypothesis.text for hypothesis in hypotheses]
        choices.append(minimum_bayes_risk(texts, weights=weights, utility=utility))
    return choices


def _scorer(name: str, **options: Any) -> Any:
    """Return a metric of sacrebleu, made once."""
    key = name, *sorted(options.items())
    if key not in _SCORERS:
        from sacrebleu import metrics

        _SCORERS[key] = getattr(metrics, name)(**options)
    return _SCORERS[key]


_SCORERS: dict[Any, Any] = {}
