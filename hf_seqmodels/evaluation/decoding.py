"""Decode a corpus: source texts in, target texts out."""

from collections.abc import Sequence
from typing import Any

from hf_seqmodels.decoding.searching import with_beam_search
from hf_seqmodels.evaluation.model_inputs import (
    batch_phrases,
    check_generate_arguments,
    check_model,
    check_texts_to_encode,
    evaluation_mode,
    phrases_by_source,
    source_batches,
)
from hf_seqmodels.models.pipeline_seq2seq_generation import decode_rows, generate_rows


def decode_corpus(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    *,
    batch_size: int = 64,
    num_beams: int = 1,
    max_new_tokens: int | None = None,
    max_source_length: int | None = None,
    must_include: Sequence[Sequence[Any]] | None = None,
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
        must_include: phrases that the output of each source has to contain, one list of texts or of
            token ids per source; see `hf_seqmodels.decoding.beam_search`.
        progress: whether to show a progress bar.
        device: where to compute, for instance "cuda"; None computes where the model is.
        **generate_kwargs: passed on to generate(), or, with coverage_penalty, num_beam_groups and
            the like, to `beam_search`.

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
    phrases = phrases_by_source(tokenizer, must_include, len(sources))
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
                **with_beam_search(generate_kwargs | batch_phrases(phrases, batch)),
            )
            decoded = decode_rows(
                tokenizer, rows.token_ids, batch.sources, skip_special_tokens=True
            )
            for position, text in zip(batch.positions, decoded, strict=True):
                texts[position] = text
    return texts


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
