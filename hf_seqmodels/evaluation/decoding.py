"""Decode a corpus: source texts in, target texts out.

Shapes: B batch, T target length, P prompt length (the decoder's start), R rows (B times outputs per
    source).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from hf_seqmodels.evaluation.model_inputs import (
    check_generate_arguments,
    check_model,
    check_texts_to_encode,
    evaluation_mode,
    source_batches,
    target_side,
)


def decode_corpus(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    *,
    batch_size: int = 64,
    num_beams: int = 1,
    max_new_tokens: int | None = None,
    max_source_length: int | None = None,
    progress: bool = True,
    device: Any = None,
    **generate_kwargs: Any,
) -> list[str]:
    """Return the model's output text for every source, in the order of the sources.

    Sources are sorted by length for decoding, so that batches hold little padding. An empty source
    is decoded like any other. The model's place and its training or evaluation mode are left as
    found.

    Args:
        model: any encoder-decoder with generate().
        tokenizer: its tokenizer, or a pair of tokenizers (`Seq2SeqTokenizer`).
        sources: the texts.
        batch_size: sources per batch.
        num_beams: width of the beam; 1 is greedy (or sampling with `do_sample=True`).
        max_new_tokens: longest output in tokens, the end token included; None takes the limit of
            the model's generation_config.
        max_source_length: longest source in tokens; the rest is cut off. None keeps everything.
        progress: whether to show a progress bar.
        device: where to compute, for instance "cuda"; None computes where the model is.
        **generate_kwargs: passed on to generate().

    Returns:
        One text per source, without special tokens.

    Raises:
        ValueError: if sources are not texts, the tokenizer cannot pad, the model is no
            encoder-decoder, or an argument cannot be passed on.
    """
    sources = check_texts_to_encode("sources", sources)
    check_model(model)
    check_generate_arguments(
        generate_kwargs,
        refused={
            "num_return_sequences": "the result is one text per source; use n_best() for more"
        },
    )
    texts = [""] * len(sources)
    with evaluation_mode(model, device) as place:
        for batch in source_batches(
            tokenizer,
            sources,
            batch_size=batch_size,
            max_source_length=max_source_length,
            device=place,
            progress=progress,
            task="Decoding",
        ):
            rows = generate_rows(
                model,
                batch.select(range(len(batch.positions))),
                max_new_tokens=max_new_tokens,
                num_beams=num_beams,
                num_return_sequences=1,
                **generate_kwargs,
            )
            decoded = target_side(tokenizer).batch_decode(rows.token_ids, skip_special_tokens=True)
            for position, text in zip(batch.positions, decoded, strict=True):
                texts[position] = text
    return texts


@dataclass
class GeneratedRows:
    """What generate() wrote.

    Args:
        prompts: what each row of the decoder started from, (R, P).
        token_ids: what was generated after it, up to and including the end token.
        is_possible: False where beam search had fewer hypotheses than asked for and filled up with
            something it had ruled out.
    """

    prompts: Tensor
    token_ids: list[list[int]]
    is_possible: list[bool]


def generate_rows(
    model: Any,
    inputs: dict[str, Tensor],
    *,
    max_new_tokens: int | None,
    keep_scores: bool = False,
    **generate_kwargs: Any,
) -> GeneratedRows:
    """Call generate() and cut its rows where they end.

    Args:
        model: any encoder-decoder with generate().
        inputs: source ids and mask.
        max_new_tokens: longest output, or None.
        keep_scores: whether to have beam search keep its scores, which tell the rows that it ruled
            out. They take (B x beams x V) floats per step.
        **generate_kwargs: passed on to generate().

    Returns:
        The rows, B times num_return_sequences.
    """
    if max_new_tokens is not None:
        # One start token. This way generate() does not complain about the model's own max_length.
        generate_kwargs |= {"max_length": max_new_tokens + 1, "max_new_tokens": None}
    output = model.generate(
        **inputs, **generate_kwargs, return_dict_in_generate=True, output_scores=keep_scores
    )
    sequences = output.sequences  # (R, P + T)
    beam_indices = getattr(output, "beam_indices", None)  # (R, T), -1 after the end
    if beam_indices is None:
        ends = end_token_ids(model, generate_kwargs)
        filler = pad_token_id(model, generate_kwargs)
        prompt_length = 1
        token_ids = [cut_at_end(row, ends, filler) for row in sequences[:, 1:].tolist()]
        is_possible = [True] * len(token_ids)
    else:
        prompt_length = sequences.shape[1] - beam_indices.shape[1]
        # Finished rows may be filled with the end token, so their length is taken from the beams.
        lengths = (beam_indices >= 0).sum(dim=1).tolist()
        rows = sequences[:, prompt_length:].tolist()
        token_ids = [row[:length] for row, length in zip(rows, lengths, strict=True)]
        is_possible = [length > 0 for length in lengths]
        if keep_scores:
            penalty = generate_kwargs.get("length_penalty", 1.0)
            scores = output.sequences_scores.tolist()
            is_possible = [
                length > 0 and not is_ruled_out(score, length, penalty)
                for length, score in zip(lengths, scores, strict=True)
            ]
    return GeneratedRows(sequences[:, :prompt_length], token_ids, is_possible)


def is_ruled_out(score: float, length: int, length_penalty: float) -> bool:
    """Tell whether beam search returned something only because it had nothing else.

    generate() subtracts 1e9 from the log-probability of what must not win, before or after it
    divides by the length; no real log-probability comes near.

    Args:
        score: of beam search.
        length: of the row, in tokens.
        length_penalty: exponent of the length in the score.

    Returns:
        True for a row that is no hypothesis.
    """
    return min(score, score * length**length_penalty) < -1e8


def cut_at_end(row: Sequence[int], end_ids: set[int], filler: int | None) -> list[int]:
    """Return the row up to and including its first end token, or without the filling at its end.

    Args:
        row: generated ids.
        end_ids: ids that end a row.
        filler: id that fills rows up, or None.

    Returns:
        The ids that were generated.
    """
    for index, token in enumerate(row):
        if token in end_ids:
            return list(row[: index + 1])
    length = len(row)
    while length and row[length - 1] == filler:
        length -= 1
    return list(row[:length])


def end_token_ids(model: Any, generate_kwargs: dict[str, Any]) -> set[int]:
    """Return the ids that end an output: those of the call, else those of the model."""
    ids = generate_kwargs.get("eos_token_id")
    ids = model.generation_config.eos_token_id if ids is None else ids
    if isinstance(ids, Tensor):
        ids = ids.tolist()
    return set() if ids is None else {ids} if isinstance(ids, int) else set(ids)


def pad_token_id(model: Any, generate_kwargs: dict[str, Any]) -> int | None:
    """Return the id that generate() fills finished rows with, if one is set."""
    given = generate_kwargs.get("pad_token_id")
    return model.generation_config.pad_token_id if given is None else given


def decoder_start_id(model: Any) -> int:
    """Return the id that the decoder starts from.

    Args:
        model: any encoder-decoder.

    Returns:
        The decoder's start token of the generation config, else of the config, else the begin
        token.

    Raises:
        ValueError: if there is none of them.
    """
    for name in ("decoder_start_token_id", "bos_token_id"):
        for config in (model.generation_config, model.config):
            value = getattr(config, name, None)
            if value is not None:
                return value
    raise ValueError(
        "The model needs decoder_start_token_id to score targets, got None. "
        "Set model.generation_config.decoder_start_token_id to what it was trained with."
    )
