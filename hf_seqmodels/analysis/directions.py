"""In which direction the tokens of a line run, where scripts and numbers of both directions meet.

Arabic and Hebrew run from right to left, the numbers in them from left to right, also where every
digit is a token. What follows is the Unicode Bidirectional Algorithm (UAX #9) without its controls,
which tokens show as code points, and without pairs of brackets (rule N0).
"""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Literal

from hf_seqmodels.models.pipeline_seq2seq_generation import WORD_START

Direction = Literal["ltr", "rtl"]
STRONG = ("L", "R", "AL")
NEUTRAL = "ON"


def direction(texts: Sequence[str]) -> Direction:
    """Return the direction of most letters, from left to right where there are none.

    Args:
        texts: tokens of one side.

    Returns:
        "rtl" or "ltr".
    """
    classes = [unicodedata.bidirectional(letter) for text in texts for letter in text]
    return "rtl" if sum(name in ("R", "AL") for name in classes) > classes.count("L") else "ltr"


def character_levels(text: str, base: Direction) -> list[int]:
    """Return the embedding level of each character: odd ones run from right to left.

    Source: Unicode Standard Annex #9, rules W1 to W7, N1, N2, I1, I2.

    Args:
        text: one line.
        base: direction of the line.

    Returns:
        As many levels as characters.
    """
    outside = "R" if base == "rtl" else "L"
    kinds = _weak([unicodedata.bidirectional(letter) or NEUTRAL for letter in text], outside)
    kinds = _neutral(kinds, outside)
    level = 1 if base == "rtl" else 0
    above = {"R": 1, "L": 0, "EN": 2, "AN": 2} if level == 0 else {"R": 0, "L": 1, "EN": 1, "AN": 1}
    return [level + above[kind] for kind in kinds]


def _weak(kinds: list[str], outside: str) -> list[str]:
    """Settle marks, numbers and what stands in them (W1 to W7)."""
    for place, kind in enumerate(kinds):
        if kind == "NSM":
            kinds[place] = kinds[place - 1] if place else outside
    for place, strong in enumerate(_strong_before(kinds, outside)):
        if kinds[place] == "EN" and strong == "AL":
            kinds[place] = "AN"
    kinds = ["R" if kind == "AL" else kind for kind in kinds]
    for place in range(1, len(kinds) - 1):
        before, kind, after = kinds[place - 1 : place + 2]
        joins = ("EN", "AN") if kind == "CS" else ("EN",) if kind == "ES" else ()
        if before == after and before in joins:
            kinds[place] = before
    for start, end in _sequences(kinds, ("ET",)):
        if "EN" in (*kinds[max(start - 1, 0) : start], *kinds[end : end + 1]):
            kinds[start:end] = ["EN"] * (end - start)
    for place, strong in enumerate(_strong_before(kinds, outside)):
        if kinds[place] == "EN" and strong == "L":
            kinds[place] = "L"
    return [kind if kind in ("L", "R", "EN", "AN") else NEUTRAL for kind in kinds]


def _neutral(kinds: list[str], outside: str) -> list[str]:
    """Give what has no direction that of its neighbours on both sides, or of the line (N1, N2)."""
    sides = ["R" if kind in ("EN", "AN") else kind for kind in [outside, *kinds, outside]]
    for start, end in _sequences(kinds, (NEUTRAL,)):
        left, right = sides[start], sides[end + 1]  # shifted by the first one
        kinds[start:end] = [left if left == right else outside] * (end - start)
    return kinds


def _strong_before(kinds: Sequence[str], outside: str) -> list[str]:
    """Return for every character the last letter before it that has a direction."""
    found, last = [], outside
    for kind in kinds:
        found.append(last)
        last = kind if kind in STRONG else last
    return found


def _sequences(kinds: Sequence[str], wanted: Sequence[str]) -> list[tuple[int, int]]:
    """Return begin and end of each unbroken sequence of some kinds."""
    places = {place for place, kind in enumerate(kinds) if kind in wanted}
    starts = sorted(place for place in places if place - 1 not in places)
    ends = sorted(place + 1 for place in places if place + 1 not in places)
    return list(zip(starts, ends, strict=True))


class Line:
    """The tokens of one side as they run.

    Args:
        tokens: in the order of the text.
        is_special: which of them are special; these have no direction of their own.
    """

    def __init__(self, tokens: Sequence[str], is_special: Sequence[bool]):
        texts = [
            "\ufffc" if special or not token else token.replace(WORD_START, " ")
            for token, special in zip(tokens, is_special, strict=True)
        ]
        self.direction: Direction = direction(texts)
        levels = character_levels("".join(texts), self.direction)
        self.levels: list[int] = []  # of the tokens
        self.gaps: list[int] = []  # the lowest level between a token and the one before
        before: list[int] = []
        for text in texts:
            own, levels = levels[: len(text)], levels[len(text) :]
            core = [place for place, letter in enumerate(text) if not letter.isspace()] or [0]
            self.levels.append(own[core[0]])
            self.gaps.append(min([*before, *own[: core[0] + 1]]))
            before = own[core[-1] :]

    def runs(self) -> Iterator[tuple[Literal["open", "close", "token"], Direction | int]]:
        """Yield places of tokens in order, and where runs of the other direction begin and end.

        A run is opened with its direction inside of what is open already.

        Yields:
            "token" with a place, "open" and "close" with a direction.
        """
        base = depth = 1 if self.direction == "rtl" else 0
        for place, level in enumerate(self.levels):
            lowest = max(min(self.gaps[place], level), base)
            while depth > lowest:
                yield "close", _direction_of(depth)
                depth -= 1
            while depth < level:
                depth += 1
                yield "open", _direction_of(depth)
            yield "token", place
        while depth > base:
            yield "close", _direction_of(depth)
            depth -= 1


def _direction_of(level: int) -> Direction:
    return "rtl" if level % 2 else "ltr"
