"""Labels of tokens: what is invisible made visible, and nothing too long."""

import unicodedata
from collections.abc import Collection

LONGEST_LABEL = 24
LONGEST_TITLE = 60
VISIBLE_BLANK = "␣"
CARRIER = "◌"  # what a mark without a letter is drawn on
JOINERS = "\u200c\u200d"  # they have no form of their own but change that of their neighbours


def make_label(
    text: str,
    missing: Collection[int] = (),
    *,
    longest: int | None = LONGEST_LABEL,
    keep_joiners: bool = False,
) -> str:
    """Return a text as it can be drawn: blanks and marks visible, nothing invisible, not too long.

    Args:
        text: any text.
        missing: code points without a glyph.
        longest: longest label, in characters; more is cut off. None cuts nothing.
        keep_joiners: whether joiners and non-joiners inside the text stay what they are, for what
            draws letters in the forms of their script.

    Returns:
        One line.
    """
    if not text:
        return "∅"
    if not text.strip(" "):
        return VISIBLE_BLANK * len(text[:longest])
    inside = range(1, len(text) - 1) if keep_joiners else range(0)
    label = "".join(
        character
        if (is_drawn(character) or (character in JOINERS and place in inside))
        and ord(character) not in missing
        else code_point(character)
        for place, character in enumerate(text)
    )
    if unicodedata.category(text[0]).startswith("M") and ord(text[0]) not in missing:
        label = CARRIER + label
    return label if longest is None or len(label) <= longest else label[: longest - 1] + "…"


def code_point(character: str) -> str:
    """Return the escape of a character that cannot be drawn, backslash u and four digits."""
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def is_drawn(character: str) -> bool:
    """Tell whether a character has a visible form: no control, format, surrogate or odd blank."""
    return character == " " or unicodedata.category(character)[0] not in "CZ"
