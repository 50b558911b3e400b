"""The best outputs of each source, with the model's own log-probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from hf_seqmodels.decoding.ranking import Ranking
from hf_seqmodels.decoding.searching import with_beam_search
from hf_seqmodels.evaluation.model_inputs import (
    SourceBatch,
    batch_phrases,
    check_generate_arguments,
    check_model,
    check_texts_to_encode,
    evaluation_mode,
    pad_id_of,
    phrases_by_source,
    source_batches,
    target_side,
)
from hf_seqmodels.models.pipeline_seq2seq_generation import (
    cross_attention,
    decode_rows,
    forced_pass,
    generate_rows,
    rows_log_coverage,
    token_log_probabilities,
)


@dataclass(frozen=True)
class Hypothesis:
    """One output of the model for one source.

    Args:
        text: the output without special tokens.
        token_ids: what was generated, up to and including the end token if one was reached.
        log_probability: log p(token_ids | source) in nats, the sum over its tokens.
        score: log_probability / len(token_ids) ** length_penalty, the number that beam search ranks
            by; with other normalisations and with coverage what `Ranking` says.
        token_log_probabilities: log p(token | tokens before it, source) in nats, one per token.
    """

    text: str
    token_ids: list[int]
    log_probability: float
    score: float
    token_log_probabilities: list[float]


def n_best(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    *,
    num_beams: int = 5,
    num_return_sequences: int | None = None,
    length_penalty: float = 1.0,
    batch_size: int = 16,
    max_new_tokens: int | None = None,
    max_source_length: int | None = None,
    must_include: Sequence[Sequence[Any]] | None = None,
    progress: bool = True,
    device: Any = None,
    **generate_kwargs: Any,
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of every source, the highest score first.

    Hypotheses are found by generate() and then scored by one forced pass over them, so every number
    is that of the model's own distribution: equal to `score_targets` on the same token ids. For
    plain beam search `score` equals generate's `sequences_scores`; with arguments that bend the
    distribution (forced tokens, a repetition penalty, temperature, top-k, ...) the search follows
    the bent one and the numbers here stay the model's own.

    Sampling: with `do_sample=True, num_beams=1` the outputs are independent draws, so one may come
        twice.
    Beam search finds fewer than asked for only where no more exist (few tokens allowed, one token
    long): then the list is shorter.

    Memory: the search keeps batch_size x num_beams x target vocabulary scores per step.

    Args:
        model: any encoder-decoder with generate().
        tokenizer: its tokenizer, or a pair of tokenizers (`Seq2SeqTokenizer`).
        sources: the texts.
        num_beams: width of the beam; 1 with `do_sample=True` samples.
        num_return_sequences: hypotheses per source; None means `num_beams`. Without sampling at
            most `num_beams`.
        length_penalty: exponent of the length in `score`; above 0 favours long outputs.
        batch_size: sources per batch.
        max_new_tokens: longest output in tokens, the end token included; None takes the limit of
            the model's generation_config.
        max_source_length: longest source in tokens; the rest is cut off. None keeps everything.
        must_include: phrases that every output of a source has to contain, one list of texts or of
            token ids per source; see `hf_seqmodels.decoding.beam_search`.
        progress: whether to show a progress bar.
        device: where to compute, for instance "cuda"; None computes where the model is.
        **generate_kwargs: passed on to generate(), for instance early_stopping, do_sample, top_p,
            or to `beam_search`: coverage_penalty, length_normalization, num_beam_groups, ...

    Returns:
        One list per source, in the order of the sources.

    Raises:
        ValueError: if more hypotheses are asked for than beams, sources are not texts, the
            tokenizer cannot pad, the model is no encoder-decoder, or an argument cannot be passed
            on.
    """
    sources = check_texts_to_encode("sources", sources)
    check_model(model)
    check_generate_arguments(generate_kwargs, refused={})
    num_return_sequences = num_beams if num_return_sequences is None else num_return_sequences
    samples = generate_kwargs.get("do_sample", model.generation_config.do_sample)
    if num_return_sequences > num_beams and not (samples and num_beams == 1):
        raise ValueError(
            f"num_return_sequences must be at most num_beams={num_beams}, got "
            f"{num_return_sequences}. Raise num_beams, or sample with do_sample=True, num_beams=1."
        )
    phrases = phrases_by_source(tokenizer, must_include, len(sources))
    lists: list[list[Hypothesis]] = [[] for _ in sources]
    with evaluation_mode(model, device) as place:
        for batch in source_batches(
            tokenizer,
            sources,
            batch_size=batch_size,
            max_source_length=max_source_length,
            device=place,
            progress=progress,
            task="Searching",
        ):
            hypotheses = _search(
                model,
                tokenizer,
                batch,
                length_penalty=length_penalty,
                max_new_tokens=max_new_tokens,
                num_beams=num_beams,
                num_return_sequences=num_return_sequences,
                **with_beam_search(generate_kwargs | batch_phrases(phrases, batch)),
            )
            for position, found in zip(batch.positions, hypotheses, strict=True):
                lists[position] = found
    return lists


def _search(
    model: Any,
    tokenizer: Any,
    batch: SourceBatch,
    *,
    length_penalty: float,
    num_return_sequences: int,
    num_beams: int,
    **generate_kwargs: Any,
) -> list[list[Hypothesis]]:
    """Search and score the hypotheses of one batch."""
    num_sources = len(batch.positions)
    if num_beams > 1:  # generate() warns about settings of beam search where there is none
        generate_kwargs["length_penalty"] = length_penalty
    found = generate_rows(
        model,
        batch.select(range(num_sources)),
        num_beams=num_beams,
        num_return_sequences=num_return_sequences,
        keep_scores=num_beams > 1,
        **generate_kwargs,
    )
    kept = [row for row, possible in enumerate(found.is_possible) if possible]
    lists: list[list[Hypothesis]] = [[] for _ in range(num_sources)]
    ranking = Ranking(
        length_penalty,
        generate_kwargs.get("length_normalization") or "power",
        generate_kwargs.get("coverage_penalty") or 0.0,
    )
    for start in range(0, len(kept), num_sources):  # as many rows at once as the user asked for
        rows = kept[start : start + num_sources]
        sources = [row // num_return_sequences for row in rows]
        hypotheses = _scored(
            model,
            tokenizer,
            batch.select(sources),
            [batch.sources[source] for source in sources],
            found.prompts[rows],
            [found.token_ids[row] for row in rows],
            ranking,
            layer=generate_kwargs.get("coverage_layer", -1),
        )
        for source, hypothesis in zip(sources, hypotheses, strict=True):
            lists[source].append(hypothesis)
    return [sorted(found, key=lambda hypothesis: -hypothesis.score) for found in lists]


def _scored(
    model: Any,
    tokenizer: Any,
    inputs: dict[str, Tensor],
    sources: Sequence[str],
    prompts: Tensor,
    token_rows: list[list[int]],
    ranking: Ranking,
    *,
    layer: int | Literal["mean"],
) -> list[Hypothesis]:
    """Return the hypotheses that rows of tokens are, by one forced pass; attention counts as in the
    decoder layer that coverage is taken of."""
    side = target_side(tokenizer)
    wants = {"output_attentions": True} if ranking.coverage_penalty else {}
    outputs, targets = forced_pass(model, inputs, prompts, token_rows, pad_id_of(side), **wants)
    log_probabilities = token_log_probabilities(outputs, targets).tolist()  # (R, T)
    coverage = [0.0] * len(token_rows)
    if wants:
        source_mask = inputs["attention_mask"]  # (R, S)
        weights = cross_attention(model, outputs, targets, source_mask.shape[1], layer)
        coverage = rows_log_coverage(weights, token_rows, source_mask)  # (R)
        coverage = (ranking.coverage_penalty * coverage).tolist()
    texts = decode_rows(tokenizer, token_rows, sources, skip_special_tokens=True)
    hypotheses = []
    for tokens, text, values, covered in zip(
        token_rows, texts, log_probabilities, coverage, strict=True
    ):
        values = values[: len(tokens)]
        score = sum(values) / ranking.divisor(max(len(tokens), 1)) + covered
        hypotheses.append(Hypothesis(text, list(tokens), sum(values), score, values))
    return hypotheses
