"""Fonts of this machine that have the glyphs of texts, for labels that matplotlib draws."""

from collections.abc import Iterable
from functools import lru_cache

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

from hf_seqmodels.analysis.labels import LONGEST_LABEL, is_drawn, make_label

BASE_FONT = "DejaVu Sans"  # comes with matplotlib
# They have glyphs for everything, none of them readable, or draw in colours, which Agg cannot.
UNREADABLE_FONTS = ("last resort", "lastresort", "emoji", "symbols", "nonunicode")


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
    wanted = {ord(character) for text in texts for character in text if is_drawn(character)}
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
