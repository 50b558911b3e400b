"""Texts with one word masked, to show what a model fills in."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from hf_seqmodels.data import WordStarts

SAMPLE_TOKENS = 24  # of a text, at most
LEAST_LETTERS = 4  # of a masked word: shorter ones are told from grammar alone


def texts_with_a_mask(
    documents: Sequence[str], tokenizer: PreTrainedTokenizerBase, count: int
) -> list[str]:
    """Return the beginnings of some texts spread over a corpus, each with one word masked.

    Args:
        documents: the texts; those without a word that is one token are passed over.
        tokenizer: of the model.
        count: how many.

    Returns:
        Texts with the mask token of the tokenizer; none if it does not tell where words begin.
    """
    try:
        starts_words = WordStarts(tokenizer)
    except ValueError:
        return []
    found: list[str] = []
    wanted = max(count, 1)
    spread = documents[:: max(len(documents) // (4 * wanted), 1)]  # some of them are of no use
    for document in spread if count else ():
        text = _masked(document, tokenizer, starts_words)
        if text is not None and text not in found:
            found.append(text)
    return found[:: max(len(found) // wanted, 1)][:count]


def _masked(
    document: str, tokenizer: PreTrainedTokenizerBase, starts_words: WordStarts
) -> str | None:
    """Mask the word nearest to the middle of a text that is long enough and one token."""
    encoded = tokenizer(
        document[: 20 * SAMPLE_TOKENS],
        add_special_tokens=False,
        return_offsets_mapping=True,
        return_tensors="np",
        verbose=False,
    )
    ids, offsets = encoded["input_ids"][0], encoded["offset_mapping"][0].tolist()
    ids, offsets = ids[:SAMPLE_TOKENS], offsets[:SAMPLE_TOKENS]
    starts = [*starts_words(ids).tolist(), True]
    places = []
    for place, (start, end) in enumerate(offsets[:-1]):
        word = document[start:end].strip()
        if starts[place] and starts[place + 1] and word.isalpha() and len(word) >= LEAST_LETTERS:
            places.append(place)
    if not places:
        return None
    place = min(places, key=lambda place: abs(place - len(ids) // 2))
    start, end = offsets[place]
    start += len(document[start:end]) - len(document[start:end].lstrip())
    last = max((i for i in range(len(ids)) if starts[i + 1]), default=len(ids) - 1)
    return document[:start] + str(tokenizer.mask_token) + document[end : offsets[last][1]]
