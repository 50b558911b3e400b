"""Phrases that an output must contain: what each hypothesis has of them, and what is missing."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from hf_seqmodels.models.pipeline_seq2seq_generation import target_side


class PhraseState(NamedTuple):
    """What one hypothesis has written of the phrases.

    Args:
        matched: its last tokens as far as they begin a phrase.
        missing: the phrases that it does not contain yet.
    """

    matched: tuple[int, ...]
    missing: frozenset[tuple[int, ...]]


class PhraseAutomaton:
    """Follow a hypothesis token by token and know which phrases it contains.

    A phrase is met where its tokens stand one behind the other, wherever that is; phrases may
    overlap (Aho and Corasick 1975). A phrase that is part of another, or comes twice, is met with
    it. From every state there is a token after which fewer are needed, so a hypothesis with room
    for `tokens_needed` tokens can always be completed.

    Args:
        phrases: token ids of each phrase, at least one per phrase.

    Raises:
        ValueError: if a phrase is empty.
    """

    def __init__(self, phrases: Sequence[Sequence[int]]):
        distinct = dict.fromkeys(tuple(int(token) for token in phrase) for phrase in phrases)
        if () in distinct:
            raise ValueError(
                "A phrase that must be included needs at least one token, got an empty one. "
                "Leave it out."
            )
        self.phrases = [
            phrase
            for phrase in distinct
            if not any(other != phrase and _contains(other, phrase) for other in distinct)
        ]
        self._prefixes = {phrase[:end] for phrase in self.phrases for end in range(len(phrase) + 1)}
        self.start = PhraseState((), frozenset(self.phrases))
        # a beam asks for the same few states again and again
        self.advance = cache(self.advance)
        self.tokens_needed = cache(self.tokens_needed)
        self.next_tokens = cache(self.next_tokens)

    def advance(self, state: PhraseState, token: int) -> PhraseState:
        """Return the state after one more token.

        Args:
            state: what the hypothesis had.
            token: the token.

        Returns:
            What it has now.
        """
        if not state.missing:
            return state
        written = (*state.matched, token)
        missing = frozenset(phrase for phrase in state.missing if written[-len(phrase) :] != phrase)
        while written not in self._prefixes:  # the empty one is always there
            written = written[1:]
        return PhraseState(written, missing)

    def tokens_needed(self, state: PhraseState) -> int:
        """Return how many tokens complete the hypothesis at the most: the missing phrases one after
        the other, beginning with the one that has got furthest."""
        begun = max((len(phrase) - len(rest) for phrase, rest in self._rests(state)), default=0)
        return sum(len(phrase) for phrase in state.missing) - begun

    def next_tokens(self, state: PhraseState) -> list[int]:
        """Return the tokens that begin or go on with a missing phrase, in order."""
        return sorted({rest[0] for _, rest in self._rests(state)})

    @property
    def num_tokens(self) -> int:
        """Tokens of all phrases together."""
        return sum(len(phrase) for phrase in self.phrases)

    def _rests(self, state: PhraseState) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return every way to go on with a missing phrase: the phrase, and what is left of it."""
        return [
            (phrase, phrase[begun:])
            for phrase in state.missing
            for begun in range(min(len(phrase) - 1, len(state.matched)) + 1)
            if state.matched[len(state.matched) - begun :] == phrase[:begun]
        ]


def _contains(tokens: tuple[int, ...], part: tuple[int, ...]) -> bool:
    width = len(part)
    return any(tokens[at : at + width] == part for at in range(len(tokens) - width + 1))


def make_automata(
    must_include: Sequence[Any] | None, num_sources: int
) -> list[PhraseAutomaton | None]:
    """Return an automaton for every source, None where a source has no phrases.

    Args:
        must_include: token ids of phrases, `[[5, 6], [7]]`, for every source; or a list of such
            lists, one per source, `[[[5, 6]], [], [[7], [8]]]`.
        num_sources: sources in the batch.

    Returns:
        One entry per source.

    Raises:
        ValueError: if the lists are nested in another way, or their number is not that of the
            sources.
    """
    if not must_include:
        return [None] * num_sources
    per_source = [list(entry) for entry in must_include]
    if all(isinstance(token, int) for entry in per_source for token in entry) and any(per_source):
        per_source = [per_source] * num_sources
    elif not all(isinstance(phrase, list | tuple) for entry in per_source for phrase in entry):
        raise ValueError(
            "must_include takes token ids of phrases, [[5, 6], [7]], or such a list for every "
            f"source, [[[5, 6], [7]], []], got {must_include!r}. encode_phrases() makes them from "
            "texts."
        )
    if len(per_source) != num_sources:
        raise ValueError(
            "must_include must have one list of phrases per source, "
            f"{num_sources}, got {len(per_source)}. A source without phrases has an empty list."
        )
    return [PhraseAutomaton(phrases) if phrases else None for phrases in per_source]


def encode_phrases(tokenizer: Any, phrases: Sequence[str]) -> list[list[int]]:
    """Return the token ids of phrases as they stand inside a target text.

    Args:
        tokenizer: the tokenizer, or the pair of tokenizers (`Seq2SeqTokenizer`).
        phrases: texts, for instance terms and their translations.

    Returns:
        Token ids of each phrase, without special tokens, for `must_include`.

    Raises:
        ValueError: if phrases is a bare text, or one has no tokens or unknown ones.
    """
    if isinstance(phrases, str):
        raise ValueError(f"phrases must be a list of texts, got one text. Pass [{phrases!r}].")
    side = target_side(tokenizer)
    encoded = [_encode(tokenizer, phrase) for phrase in phrases]
    for phrase, ids in zip(phrases, encoded, strict=True):
        if not _is_known(side, ids):
            raise ValueError(
                f"A phrase must consist of tokens that the model can write, got {phrase!r}: "
                f"{side.convert_ids_to_tokens(ids)}. Leave it out or spell it otherwise."
            )
    return encoded


def _encode(tokenizer: Any, text: str) -> list[int]:
    """Return the token ids of a text of the target side, without special tokens."""
    side = target_side(tokenizer)
    call = {"text": text} if side is not tokenizer else {"text_target": text}
    return list(side(**call, add_special_tokens=False)["input_ids"])


def _is_known(side: Any, ids: list[int]) -> bool:
    """Say whether there are tokens, and no unknown one among them."""
    return bool(ids) and (side.unk_token_id is None or side.unk_token_id not in ids)


def encode_bad_words(tokenizer: Any, words: Sequence[str]) -> list[list[int]]:
    """Return the token ids of words that an output must not contain, for `bad_words_ids` of
    generate().

    A word is encoded as it stands at the beginning of a text and behind a blank: byte-level
    tokenizers write the two in different tokens. Other spellings (upper case, other pieces of the
    same letters) are other words.

    Args:
        tokenizer: the tokenizer, or the pair of tokenizers (`Seq2SeqTokenizer`).
        words: texts.

    Returns:
        Token ids, each sequence once.

    Raises:
        ValueError: if words is a bare text, or one has no tokens or unknown ones.
    """
    if isinstance(words, str):
        raise ValueError(f"words must be a list of texts, got one text. Pass [{words!r}].")
    forms = encode_phrases(tokenizer, words)
    behind_blanks = [_encode(tokenizer, f" {word.lstrip()}") for word in words]
    forms += [ids for ids in behind_blanks if _is_known(target_side(tokenizer), ids)]
    return [list(ids) for ids in dict.fromkeys(map(tuple, forms))]
