"""Labels that any machine can draw: fonts that have the glyphs, else the code points."""

import unicodedata
from collections.abc import Collection, Iterable
from functools import lru_cache

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

BASE_FONT = "DejaVu Sans"  # comes with matplotlib
LONGEST_LABEL = 24
LONGEST_TITLE = 60
# They have glyphs for everything, none of them readable, or draw in colours, which Agg cannot.
UNREADABLE_FONTS = ("last resort", "lastresort", "emoji", "symbols", "nonunicode")
VISIBLE_BLANK = "␣"
CARRIER = "◌"  # what a mark without a letter is drawn on


def draw_with(
    texts: Iterable[str], *, longest: int = LONGEST_LABEL
) -> tuple[list[str], dict[str, str]]:
    """Find fonts for texts, and what to draw in place of each text.

    Args:
        texts: what is to be drawn.
        longest: longest label, in characters; more is cut off.

    Returns:
        Font families, the first one for what it has and so on, and {text: label}. A character that
        no font has is written as its code point, backslash u and four digits.
    """
    texts = list(dict.fromkeys(texts))
    wanted = {ord(character) for text in texts for character in text if _is_drawn(character)}
    families = [BASE_FONT]
    missing = wanted - glyphs_of(font_manager.findfont(BASE_FONT))
    if missing:
        for family, path in installed_fonts():
            found = missing & glyphs_of(path)
            if found:
                families.append(family)
                missing -= found
            if not missing:
                break
    return families, {text: make_label(text, missing, longest=longest) for text in texts}


def make_label(text: str, missing: Collection[int] = (), *, longest: int = LONGEST_LABEL) -> str:
    """Return a text as it can be drawn: blanks and marks visible, nothing invisible, not too long.

    Args:
        text: any text.
        missing: code points without a glyph.
        longest: longest label, in characters; more is cut off.

    Returns:
        One line.
    """
    if not text:
        return "∅"
    if not text.strip(" "):
        return VISIBLE_BLANK * min(len(text), longest)
    pieces = [
        character
        if _is_drawn(character) and ord(character) not in missing
        else code_point(character)
        for character in text
    ]
    label = "".join(pieces)
    if unicodedata.category(text[0]).startswith("M") and ord(text[0]) not in missing:
        label = CARRIER + label
    return label if len(label) <= longest else label[: longest - 1] + "…"


def code_point(character: str) -> str:
    """Return the escape of a character that cannot be drawn, backslash u and four digits."""
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _is_drawn(character: str) -> bool:
    """Tell whether a character has a visible form: no control, format, surrogate or odd blank."""
    return character == " " or unicodedata.category(character)[0] not in "CZ"


@lru_cache(maxsize=1)
def installed_fonts() -> list[tuple[str, str]]:
    """Return family and file of every upright text font of the machine, sans serif first."""
    fonts = {
        (font.name, font.fname)
        for font in font_manager.fontManager.ttflist
        if font.style == "normal" and font.name != BASE_FONT
    }
    readable = [
        font for font in fonts if not any(word in font[0].lower() for word in UNREADABLE_FONTS)
    ]
    return sorted(readable, key=lambda font: ("sans" not in font[0].lower(), font))


@lru_cache(maxsize=256)
def glyphs_of(path: str) -> frozenset[int]:
    """Return the code points that a font file has, or none where it cannot be read."""
    try:
        return frozenset(FT2Font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()
