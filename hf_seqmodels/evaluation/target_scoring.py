"""Log-probabilities of given targets under a model (forced decoding).

Shapes: R rows, S source length, T target length, V target vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hf_seqmodels.evaluation.decoding import decoder_start_id
from hf_seqmodels.evaluation.model_inputs import (
    check_model,
    check_texts_to_encode,
    encode_targets,
    evaluation_mode,
    pad_id_of,
    source_batches,
    target_side,
)
from hf_seqmodels.models.pipeline_seq2seq_generation import forced_pass, token_log_probabilities


@dataclass(frozen=True)
class TargetScore:
    """Log-probability of one target given its source, in nats.

    Args:
        token_ids: the target, with its end token.
        log_probability: log p(target | source), the sum over its tokens.
        token_log_probabilities: log p(token | tokens before it, source), one per token.
    """

    token_ids: list[int]
    log_probability: float
    token_log_probabilities: list[float]


def score_targets(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    targets: Sequence[str | Sequence[int]],
    *,
    batch_size: int = 64,
    max_source_length: int | None = None,
    progress: bool = True,
    device: Any = None,
) -> list[TargetScore]:
    """Return the log-probability of each target given its source.

    log p(y | x) = sum_t log p(y_t | y_<t, x), the model's own distribution: no temperature, no
    length penalty, no restriction that generate() would apply. The decoder reads its start token
    and then the target.

    Args:
        model: any encoder-decoder with generate().
        tokenizer: its tokenizer, or a pair of tokenizers (`Seq2SeqTokenizer`).
        sources: the source texts.
        targets: one target per source: a text, encoded as labels are (so usually with an end
            token), or token ids, taken as they are, for instance those of a `Hypothesis`.
        batch_size: pairs per batch.
        max_source_length: longest source in tokens; the rest is cut off. None keeps everything.
        progress: whether to show a progress bar.
        device: where to compute, for instance "cuda"; None computes where the model is.

    Returns:
        One score per pair, in the order given.

    Raises:
        ValueError: if the counts differ, sources are not texts, the tokenizer cannot pad, or the
            model is no encoder-decoder or has no start token.
    """
    sources, token_rows = check_pairs(model, tokenizer, sources, targets)
    scores: list[Any] = [None] * len(sources)
    with evaluation_mode(model, device) as place:
        for batch in source_batches(
            tokenizer,
            sources,
            batch_size=batch_size,
            max_source_length=max_source_length,
            device=place,
            progress=progress,
            task="Scoring",
            extra_lengths=[len(row) for row in token_rows],
        ):
            rows = [token_rows[position] for position in batch.positions]
            prompts = start_prompts(model, len(rows), place)
            inputs = batch.select(range(len(rows)))
            row_scores = score_rows(model, inputs, prompts, rows, pad_id_of(target_side(tokenizer)))
            for position, score in zip(batch.positions, row_scores, strict=True):
                scores[position] = score
    return scores


def check_pairs(
    model: Any, tokenizer: Any, sources: Sequence[str], targets: Sequence[str | Sequence[int]]
) -> tuple[list[str], list[list[int]]]:
    """Return sources and encoded targets.

    Args:
        model: any encoder-decoder with generate().
        tokenizer: its tokenizer, or a pair of tokenizers.
        sources: the source texts.
        targets: one target per source.

    Returns:
        The sources as a list, and the token ids of the targets.

    Raises:
        ValueError: if the counts differ or something is not what it should be.
    """
    check_model(model)
    sources = check_texts_to_encode("sources", sources)
    if len(sources) != len(targets):
        raise ValueError(
            f"There must be one target per source, got {len(sources)} sources and {len(targets)} "
            "targets. Repeat a source to score several targets of it."
        )
    return sources, encode_targets(tokenizer, targets, sources)


def start_prompts(model: Any, num_rows: int, device: torch.device) -> Tensor:
    """Return the decoder's start token for every row, (R, 1)."""
    return torch.full((num_rows, 1), decoder_start_id(model), dtype=torch.long, device=device)


def score_rows(
    model: Any,
    inputs: dict[str, Tensor],
    prompts: Tensor,
    token_rows: Sequence[Sequence[int]],
    pad_id: int,
) -> list[TargetScore]:
    """Return the score of every row of one batch; arguments as in `forced_pass`."""
    outputs, targets = forced_pass(model, inputs, prompts, token_rows, pad_id)
    log_probabilities = token_log_probabilities(outputs, targets).tolist()  # (R, T)
    return [
        TargetScore(list(row), sum(values[: len(row)]), values[: len(row)])
        for row, values in zip(token_rows, log_probabilities, strict=True)
    ]
