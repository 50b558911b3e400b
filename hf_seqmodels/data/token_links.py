"""Word alignments as links between the tokens of a model."""

import re
from collections.abc import Sequence
from typing import Any

from hf_seqmodels.data.pharaoh import Link

WORD = re.compile(r"\S+")


def link_tokens(
    tokenizer: Any,
    sources: Sequence[str],
    targets: Sequence[str],
    links: Sequence[Sequence[Link]],
) -> list[list[Link]]:
    """Return the links between tokens that links between words stand for.

    A word is what stands between blanks, counted from 0, as aligners count. Each token of a source
    word is linked with each token of the target word; special tokens and blanks have no links.

    Args:
        tokenizer: fast, called with sources, and with targets as `text_target`.
        sources: the source texts.
        targets: one target text per source.
        links: pairs of source and target word, per pair of texts; `parse_pharaoh` reads them.

    Returns:
        Pairs of source and target token, in order, per pair of texts.

    Raises:
        ValueError: if the numbers of rows differ, the tokenizer does not tell places in the text,
            or a link names a word that is not there.
    """
    if not len(sources) == len(targets) == len(links):
        raise ValueError(
            "There must be one target and one list of links per source, got "
            f"{len(sources)} sources, {len(targets)} targets and {len(links)} lists of links."
        )
    if not tokenizer.is_fast:
        raise ValueError(
            "Places of tokens in the text need a fast tokenizer, got "
            f"{type(tokenizer).__name__}. Load it with AutoTokenizer."
        )
    if not sources:
        return []
    options = {"return_offsets_mapping": True, "truncation": False, "verbose": False}
    offsets = (
        tokenizer(list(sources), **options)["offset_mapping"],
        tokenizer(text_target=list(targets), **options)["offset_mapping"],
    )
    rows = []
    for index, texts in enumerate(zip(sources, targets, strict=True)):
        words = [
            _tokens_of_words(text, side[index]) for text, side in zip(texts, offsets, strict=True)
        ]
        linked = set()
        for source_word, target_word in links[index]:
            if source_word >= len(words[0]) or target_word >= len(words[1]):
                raise ValueError(
                    f"Row {index} links word {source_word} of {len(words[0])} with word "
                    f"{target_word} of {len(words[1])}: {texts[0]!r}, {texts[1]!r}. Words are what "
                    "stands between blanks, counted from 0: align the texts as they are here."
                )
            tokens = ((s, t) for s in words[0][source_word] for t in words[1][target_word])
            linked.update(tokens)
        rows.append(sorted(linked))
    return rows


def _tokens_of_words(text: str, offsets: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the positions of the tokens of each word of a text."""
    spans = [match.span() for match in WORD.finditer(text)]
    tokens: list[list[int]] = [[] for _ in spans]
    for position, (start, end) in enumerate(offsets):
        start += len(text[start:end]) - len(text[start:end].lstrip())
        for word, (first, last) in enumerate(spans):
            if start < end and first <= start < last:
                tokens[word].append(position)
    return tokens
