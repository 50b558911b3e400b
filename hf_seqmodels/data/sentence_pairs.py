"""Pairs of texts for next-sentence prediction, and templates that put texts into rows of tokens.

Source: Devlin et al. 2019, arXiv:1810.04805, appendix A.2, and the data code published with it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

TokenIds = Sequence[int]
TRIES = 10  # draws of a second text that differs from the true one
FOLLOWS, IS_RANDOM = 0, 1  # next_sentence_label, as transformers has it


@dataclass(frozen=True)
class RowTemplate:
    """What a tokenizer writes around a text or a pair of texts.

    Args:
        prefix: ids before the first text.
        suffix: ids behind a text that is alone.
        between: ids between the texts of a pair.
        pair_suffix: ids behind the second text.
        type_ids: whether rows have `token_type_ids`.
        between_types: `token_type_ids` of `between`.
        second_type: that of the second text and of what is behind it.
    """

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    between: tuple[int, ...]
    pair_suffix: tuple[int, ...]
    type_ids: bool
    between_types: tuple[int, ...]
    second_type: int

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> "RowTemplate":
        """Find out what a tokenizer does.

        Args:
            tokenizer: any fast tokenizer.

        Returns:
            The template.

        Raises:
            ValueError: if the tokenizer does not tell which of its tokens belong to a text.
        """
        if not tokenizer.is_fast:
            raise ValueError(
                f"rows are put together with a fast tokenizer, got {type(tokenizer).__name__}. "
                "Convert it, or load it with AutoTokenizer."
            )
        word = _some_text(tokenizer)
        single, pair = tokenizer(word), tokenizer(word, word)
        texts: Any = pair.sequence_ids()  # None for a special token
        ids: list[int] = list(pair["input_ids"])
        types = list(pair.get("token_type_ids", [0] * len(ids)))
        first = [place for place, text in enumerate(texts) if text == 0]
        second = [place for place, text in enumerate(texts) if text == 1]
        alone: Any = [place for place, text in enumerate(single.sequence_ids()) if text == 0]
        between = slice(first[-1] + 1, second[0])
        return cls(
            prefix=tuple(ids[: first[0]]),
            suffix=tuple(single["input_ids"][alone[-1] + 1 :]),
            between=tuple(ids[between]),
            pair_suffix=tuple(ids[second[-1] + 1 :]),
            type_ids="token_type_ids" in pair,
            between_types=tuple(types[between]),
            second_type=types[second[0]],
        )

    def room(self, max_tokens: int, *, pair: bool) -> int:
        """Return how many tokens of text a row has room for.

        Args:
            max_tokens: length of a row.
            pair: whether it holds a pair.

        Returns:
            Number of tokens; of both texts together for a pair.
        """
        around = self.between + self.pair_suffix if pair else self.suffix
        return max_tokens - len(self.prefix) - len(around)

    def single(self, text: TokenIds) -> dict[str, list[int]]:
        """Return the row of one text; its token types are all 0 and left out.

        Args:
            text: ids without special tokens.

        Returns:
            `input_ids`.
        """
        return {"input_ids": [*self.prefix, *text, *self.suffix]}

    def pair(self, first: TokenIds, second: TokenIds) -> dict[str, list[int]]:
        """Return the row of a pair.

        Args:
            first: ids without special tokens.
            second: the same.

        Returns:
            `input_ids`, and `token_type_ids` if the tokenizer gives them.
        """
        row = {"input_ids": [*self.prefix, *first, *self.between, *second, *self.pair_suffix]}
        if self.type_ids:
            before = [0] * (len(self.prefix) + len(first))
            behind = [self.second_type] * (len(second) + len(self.pair_suffix))
            row["token_type_ids"] = [*before, *self.between_types, *behind]
        return row


def _some_text(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a short text of ordinary tokens."""
    special = set(tokenizer.all_special_ids)
    for token_id in reversed(range(len(tokenizer))):
        text = str(tokenizer.decode([token_id])).strip()
        encoded = tokenizer(text, add_special_tokens=False)["input_ids"]
        if encoded and special.isdisjoint(encoded):
            return text
    raise ValueError("the tokenizer must know a token that is not special, but has none.")


@dataclass(frozen=True)
class SentencePair:
    """Two texts and whether the second follows the first.

    Args:
        first: token ids.
        second: token ids.
        is_random: whether the second text is from another document.
        document: number of the document of the first text.
    """

    first: list[int]
    second: list[int]
    is_random: bool
    document: int


def next_sentence_pairs(
    documents: Sequence[Sequence[TokenIds]],
    max_tokens: int,
    *,
    random_probability: float = 0.5,
    short_probability: float = 0.1,
    seed: int = 0,
    epoch: int = 0,
) -> Iterator[SentencePair]:
    """Cut documents into pairs of texts that follow one another or do not.

    Sentences of a document are taken together until they fill a row, and parted in two at a random
    place between sentences. With `random_probability` the second part is replaced by sentences from
    another document, any of them with the same chance, and goes back to be used for what comes
    next. So every sentence stands once in a first text or in a true second text. The last sentence
    of a document, where it is left alone, is followed by another document in any case.

    Two things differ from BERT's code. No text is cut off to fit, but for the end of a replacing
    one: a sentence that is longer than half a row counts as several. And the length of short rows
    is drawn for each row instead of for each document, which matters where documents are long.

    Args:
        documents: sentences of each document as token ids without special tokens; empty sentences
            and documents are passed over.
        max_tokens: of both texts together, see `RowTemplate.room`.
        random_probability: share of pairs whose second text is from elsewhere.
        short_probability: share of rows whose length is drawn from 2 to `max_tokens`, so that
            short texts are seen too.
        seed: of all draws.
        epoch: gives other pairs, as another seed would.

    Yields:
        The pairs, document by document.

    Raises:
        ValueError: if there is no other document to draw from, or a number is out of range.
    """
    _check_pair_options(max_tokens, random_probability, short_probability)
    sentences = [
        [piece for sentence in document for piece in _pieces(sentence, max_tokens // 2)]
        for document in documents
    ]
    sentences = [document for document in sentences if document]
    if len(sentences) < 2:
        raise ValueError(
            "a random next sentence comes from another document, so there must be 2 documents at "
            f"least, got {len(sentences)} with text. Check what separates documents (blank lines)."
        )
    random = np.random.default_rng((seed, epoch))
    for number, document in enumerate(sentences):
        start = 0
        while start < len(document):
            target = max_tokens
            if random.random() < short_probability:
                target = int(random.integers(2, max_tokens + 1))
            end = _end_of_row(document, start, target)
            split = start + 1 if end - start < 3 else int(random.integers(start + 1, end))
            first = _joined(document[start:split])
            second = _joined(document[split:end])
            drawn = None
            if split == end or random.random() < random_probability:
                true_next = document[split] if split < len(document) else None
                sizes = target - len(first), max_tokens - len(first)
                drawn = _other_text(sentences, number, true_next, sizes, random)
            yield SentencePair(first, drawn or second, drawn is not None, number)
            start = end if drawn is None else split


def _pieces(sentence: TokenIds, size: int) -> list[list[int]]:
    """Cut a sentence into pieces of at most so many tokens."""
    return [list(sentence[start : start + size]) for start in range(0, len(sentence), size)]


def _joined(sentences: Sequence[TokenIds]) -> list[int]:
    return [token_id for sentence in sentences for token_id in sentence]


def _end_of_row(document: Sequence[TokenIds], start: int, target: int) -> int:
    """Return the end of the sentences that fill a row: two at least, where there are two."""
    total, end = 0, start
    while end < len(document):
        total += len(document[end])
        if total > target and end - start >= 2:
            break
        end += 1
    return end


def _other_text(
    documents: Sequence[Sequence[TokenIds]],
    number: int,
    true_next: TokenIds | None,
    sizes: tuple[int, int],
    random: np.random.Generator,
) -> list[int] | None:
    """Return sentences of another document that do not begin as what truly follows.

    Args:
        documents: all of them.
        number: of the document not to draw from.
        true_next: the sentence that truly follows, if there is one.
        sizes: tokens wanted, and tokens at most.
        random: numbers.

    Returns:
        Token ids; None if all that was drawn is what truly follows, such as a refrain.
    """
    wanted, limit = sizes
    for _ in range(TRIES):
        other = int(random.integers(len(documents) - 1))
        document = documents[other + (other >= number)]
        start = end = int(random.integers(len(document)))
        if document[start] == true_next:
            continue
        total = 0
        while end < len(document) and (end == start or total + len(document[end]) <= wanted):
            total += len(document[end])
            end += 1
        return _joined(document[start:end])[:limit]
    return None


def _check_pair_options(
    max_tokens: int, random_probability: float, short_probability: float
) -> None:
    if max_tokens < 2:
        raise ValueError(
            f"max_tokens must be at least 2, a token of each text, got {max_tokens}. Usual sizes "
            "are 128 to 512."
        )
    named = {"random_probability": random_probability, "short_probability": short_probability}
    for name, value in named.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be between 0 and 1, got {value}.")
