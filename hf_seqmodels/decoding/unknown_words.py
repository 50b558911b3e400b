"""Words that the model could not write, taken over from the source along the attention."""

from collections.abc import Mapping, Sequence
from typing import Any

from hf_seqmodels.evaluation.attention_alignments import alignments
from hf_seqmodels.evaluation.model_inputs import check_texts_to_encode, target_side
from hf_seqmodels.evaluation.n_best_lists import n_best
from hf_seqmodels.models.pipeline_seq2seq_generation import copies_words


def replace_unknown_words(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    targets: Sequence[Sequence[int]] | None = None,
    *,
    dictionary: Mapping[str, str] | None = None,
    num_beams: int = 1,
    max_new_tokens: int | None = None,
    max_source_length: int | None = None,
    batch_size: int = 16,
    layer: Any = -1,
    head: Any = "mean",
    progress: bool = True,
    device: Any = None,
    **generate_kwargs: Any,
) -> list[str]:
    """Return texts in which every unknown token is replaced by the source word it attended to.

    y_t = dictionary[x_i], or x_i itself, with i = argmax_i alpha_ti over the words of the source.
    Source: Luong et al. 2015, arXiv:1410.8206, section 3; by attention, Jean et al. 2015,
    arXiv:1412.2007, section 4.1.

    The source word is what stands in the source text between blanks, whether the source tokenizer
    knows it or not; special tokens and blanks receive no word. Attention over the tokens of a word
    is added up.

    Args:
        model: any encoder-decoder with generate() and cross-attention.
        tokenizer: its fast tokenizer, or a pair of them (`Seq2SeqTokenizer`), with an unknown token
            on the target side.
        sources: the source texts.
        targets: token ids of one target per source, for instance of a `Hypothesis`; None decodes.
        dictionary: target words by source word; a word that it lacks is copied.
        num_beams: width of the beam when decoding.
        max_new_tokens: longest output in tokens when decoding.
        max_source_length: longest source in tokens; the rest is cut off.
        batch_size: sources per batch.
        layer: decoder layer whose attention counts; see `alignments`.
        head: attention head, or "mean"; see `alignments`.
        progress: whether to show a progress bar.
        device: where to compute; None computes where the model is.
        **generate_kwargs: passed on to generate().

    Returns:
        One text per source, without special tokens.

    Raises:
        ValueError: if the target side has no unknown token, the tokenizer is one that copies, the
            source side gives no places in the text, or the model has no cross-attention.
    """
    sources = check_texts_to_encode("sources", sources)
    side = target_side(tokenizer)
    if side.unk_token_id is None:
        raise ValueError(
            "There are unknown words only where the target tokenizer has an unknown token, got "
            "unk_token=None. Decode with decode_corpus instead."
        )
    if copies_words(tokenizer):
        raise ValueError(
            "A model with a pointer-generator copies unknown words itself, so there is nothing to "
            "replace. Decode with decode_corpus instead."
        )
    if not tokenizer.is_fast:
        raise ValueError(
            "Places of tokens in the source text need a fast tokenizer, got "
            f"{type(tokenizer).__name__}. Load it with AutoTokenizer."
        )
    common = {
        "batch_size": batch_size,
        "max_source_length": max_source_length,
        "progress": progress,
        "device": device,
    }
    if targets is None:
        found = n_best(
            model,
            tokenizer,
            sources,
            num_beams=num_beams,
            num_return_sequences=1,
            max_new_tokens=max_new_tokens,
            **common,
            **generate_kwargs,
        )
        targets = [hypotheses[0].token_ids for hypotheses in found]
    elif generate_kwargs:
        raise ValueError(
            "With targets nothing is generated, so "
            f"{next(iter(generate_kwargs))} has no effect. Leave out the one or the other."
        )
    rows = [list(target) for target in targets]
    affected = [index for index, row in enumerate(rows) if side.unk_token_id in row]
    texts = side.batch_decode(rows, skip_special_tokens=True)
    aligned = alignments(
        model,
        tokenizer,
        [sources[index] for index in affected],
        [rows[index] for index in affected],
        layer=layer,
        head=head,
        **common,
    )
    for index, alignment in zip(affected, aligned, strict=True):
        words = source_words(tokenizer, sources[index], alignment.weights.shape[1])
        replacements = []
        for token, weights in zip(rows[index], alignment.weights, strict=True):
            if token == side.unk_token_id:
                word = attended_word(words, weights.tolist())
                replacements.append((dictionary or {}).get(word, word))
        texts[index] = put_in(side, rows[index], replacements)
    return texts


def source_words(tokenizer: Any, source: str, num_tokens: int) -> list[tuple[int, str] | None]:
    """Return the word of the text that each source token belongs to.

    Args:
        tokenizer: the tokenizer, source side, fast.
        source: the text.
        num_tokens: tokens that the model has read of it.

    Returns:
        Where the word begins, and the word; None for special tokens and blanks.
    """
    encoded = tokenizer(source, return_offsets_mapping=True, truncation=True, max_length=num_tokens)
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    words: list[tuple[int, str] | None] = []
    for token, (start, end) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        text = source[start:end]
        if token in special or not text.strip():
            words.append(None)
            continue
        start += len(text) - len(text.lstrip())
        while start and not source[start - 1].isspace():
            start -= 1
        words.append((start, source[start:].split(maxsplit=1)[0]))
    return words + [None] * (num_tokens - len(words))


def attended_word(words: Sequence[tuple[int, str] | None], weights: Sequence[float]) -> str:
    """Return the word of the highest weight, summed over its tokens; of equal ones the first.

    Args:
        words: the word of every source token.
        weights: attention over them.

    Returns:
        The word, empty where there is none.
    """
    sums: dict[tuple[int, str], float] = {}
    for word, weight in zip(words, weights, strict=True):
        if word is not None:
            sums[word] = sums.get(word, 0.0) + weight
    return max(sums, key=lambda word: sums[word])[1] if sums else ""


def put_in(tokenizer: Any, token_ids: Sequence[int], replacements: Sequence[str]) -> str:
    """Return the text of token ids with words in place of the unknown tokens.

    Args:
        tokenizer: the tokenizer, target side.
        token_ids: the target.
        replacements: one word per unknown token, in order.

    Returns:
        The text, without special tokens.
    """
    unknown = tokenizer.unk_token_id
    special = set(tokenizer.all_special_ids) - {unknown}
    text = tokenizer.decode([token for token in token_ids if token not in special])
    pieces = text.split(tokenizer.unk_token)
    assert len(pieces) == len(replacements) + 1, f"{text!r} does not show its unknown tokens"
    joined = pieces[0]
    for word, piece in zip(replacements, pieces[1:], strict=True):
        joined += word + piece
    return joined.strip()
