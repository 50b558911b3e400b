"""Cross-attention of each output token over the source tokens.

Shapes: B batch, S source length, T target length.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from torch import Tensor

from hf_seqmodels.decoding.searching import with_beam_search
from hf_seqmodels.evaluation.alignment import Alignment
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
from hf_seqmodels.evaluation.target_scoring import check_pairs, start_prompts
from hf_seqmodels.models.pipeline_seq2seq_generation import (
    cross_attention,
    forced_pass,
    generate_rows,
    readable_tokens,
)


def alignments(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    targets: Sequence[str | Sequence[int]] | None = None,
    *,
    num_beams: int = 1,
    layer: int | Literal["mean"] = -1,
    head: int | Literal["mean"] = "mean",
    batch_size: int = 16,
    max_new_tokens: int | None = None,
    max_source_length: int | None = None,
    must_include: Sequence[Sequence[Any]] | None = None,
    progress: bool = True,
    device: Any = None,
    **generate_kwargs: Any,
) -> list[Alignment]:
    """Return, for every source, the attention of each output token over the source tokens.

    The outputs are those of generate() (the winning beam) or the given targets. The weights come
    from one forced pass over them: row t is the attention with which token t was predicted, as
    along the winning beam. All tokens take part, the end tokens included; padding does not. By
    default the weights are the mean over the heads of the last decoder layer; each row is a
    distribution over the source.

    A model whose attention implementation does not return weights is switched to "eager" for the
    pass.

    Args:
        model: any encoder-decoder with generate() and cross-attention.
        tokenizer: its tokenizer, or a pair of tokenizers (`Seq2SeqTokenizer`).
        sources: the source texts.
        targets: one target per source, a text or token ids; None decodes.
        num_beams: width of the beam when decoding.
        layer: decoder layer, counted from 0 or from the end, or "mean" over all.
        head: attention head, counted from 0 or from the end, or "mean" over all.
        batch_size: sources per batch.
        max_new_tokens: longest output in tokens, the end token included; None takes the limit of
            the model's generation_config.
        max_source_length: longest source in tokens; the rest is cut off. None keeps everything.
        must_include: phrases that the output of each source has to contain; see `decode_corpus`.
        progress: whether to show a progress bar.
        device: where to compute, for instance "cuda"; None computes where the model is.
        **generate_kwargs: passed on to generate(), or, with coverage_penalty, num_beam_groups and
            the like, to `beam_search`.

    Returns:
        One alignment per source, in the order given.

    Raises:
        ValueError: if the model has no cross-attention or not the layer or head asked for, the
            inputs do not fit together, or an argument cannot be passed on.
    """
    token_rows: list[list[int]] | None = None
    phrases: list[list[list[int]]] | None = None
    if targets is None:
        sources = check_texts_to_encode("sources", sources)
        check_model(model)
        check_generate_arguments(
            generate_kwargs, refused={"num_return_sequences": "each source has one alignment"}
        )
        generate_kwargs |= {"num_beams": num_beams, "max_new_tokens": max_new_tokens}
        phrases = phrases_by_source(tokenizer, must_include, len(sources))
    else:
        sources, token_rows = check_pairs(model, tokenizer, sources, targets)
        if must_include is not None:
            generate_kwargs["must_include"] = must_include
        if generate_kwargs:
            raise ValueError(
                "With targets nothing is generated, so "
                f"{next(iter(generate_kwargs))} has no effect. Leave out the one or the other."
            )
    results: list[Any] = [None] * len(sources)
    with evaluation_mode(model, device) as place:
        for batch in source_batches(
            tokenizer,
            sources,
            batch_size=batch_size,
            max_source_length=max_source_length,
            device=place,
            progress=progress,
            task="Aligning",
        ):
            inputs = batch.select(range(len(batch.positions)))
            if token_rows is None:
                search = with_beam_search(generate_kwargs | batch_phrases(phrases, batch))
                found = generate_rows(model, inputs, num_return_sequences=1, **search)
                prompts, rows = found.prompts, found.token_ids
            else:
                prompts = start_prompts(model, len(batch.positions), place)
                rows = [token_rows[position] for position in batch.positions]
            pad_id = pad_id_of(target_side(tokenizer))
            outputs, given = forced_pass(
                model, inputs, prompts, rows, pad_id, output_attentions=True
            )
            weights = cross_attention(
                model, outputs, given, batch.input_ids.shape[1], layer=layer, head=head
            )
            for position, row in zip(
                batch.positions, _cut_rows(tokenizer, batch, rows, weights), strict=True
            ):
                results[position] = row
    return results


def _cut_rows(
    tokenizer: Any, batch: SourceBatch, token_rows: Sequence[Sequence[int]], weights: Tensor
) -> Iterator[Alignment]:
    """Yield the alignment of every row of a batch, without its padding."""
    target_tokenizer = target_side(tokenizer)
    source_special, target_special = (
        set(tokenizer.all_special_ids),
        set(target_tokenizer.all_special_ids),
    )
    for index, row in enumerate(token_rows):
        real = batch.attention_mask[index].bool()
        source_ids, source = batch.input_ids[index][real].tolist(), batch.sources[index]
        yield Alignment(
            source_tokens=readable_tokens(tokenizer, source_ids, source),
            target_tokens=readable_tokens(target_tokenizer, row, source),
            weights=weights[index, : len(row)][:, real].float().cpu().numpy(),
            source_is_special=[token in source_special for token in source_ids],
            target_is_special=[token in target_special for token in row],
        )
