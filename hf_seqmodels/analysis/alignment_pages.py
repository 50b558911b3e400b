"""Alignments as a web page: choose a token and see what it attends to, with the weights.

The page is one file that loads nothing from elsewhere. Its layout is alignment_page.html beside
this module. Shapes: S source length, T target length.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hf_seqmodels.analysis.directions import Line
from hf_seqmodels.analysis.labels import make_label

if TYPE_CHECKING:
    from hf_seqmodels.evaluation import Alignment

TEMPLATE = Path(__file__).with_name("alignment_page.html")
LANGUAGE = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")
DIGITS = 4  # of a weight
HINT = "No token is chosen."


def write_alignment_page(
    alignments: Sequence["Alignment"],
    path: str | PathLike,
    *,
    titles: Sequence[str] | None = None,
    page_title: str = "Alignments",
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> None:
    """Write an interactive page of alignments; `render_alignment_page` says what is on it.

    Args:
        alignments: tokens and weights, at least one.
        path: the page, .html. The folder is made.
        titles: one text per alignment; None numbers them.
        page_title: what stands above them all.
        source_lang: language of the sources (BCP 47, such as "de"), for fonts and screen readers.
        target_lang: language of the targets.

    Raises:
        ValueError: if the path does not end in .html, or the page cannot be made.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(
            f"The page must end in .html, got {str(path)!r}. For pictures there is plot_alignments."
        )
    page = render_alignment_page(
        alignments,
        titles=titles,
        page_title=page_title,
        source_lang=source_lang,
        target_lang=target_lang,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8", newline="\n")


def render_alignment_page(
    alignments: Sequence["Alignment"],
    *,
    titles: Sequence[str] | None = None,
    page_title: str = "Alignments",
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> str:
    """Return an interactive page of alignments as HTML, complete in itself.

    A target token under the pointer, the finger or the keyboard shades every source token by its
    weight and shows the number; a source token does so with the target tokens. Under each pair
    there is a table of all weights, to 4 digits. Scripts that run from right to left do so; the
    colours are light or dark as the reader has it; texts are shown as they are, markup in them is
    text. Subwords become words with `Alignment.merge_words`.

    Args:
        alignments: tokens and weights, at least one.
        titles: one text per alignment; None numbers them.
        page_title: what stands above them all.
        source_lang: language of the sources (BCP 47, such as "de"), for fonts and screen readers.
        target_lang: language of the targets.

    Returns:
        The page.

    Raises:
        ValueError: if there is nothing to show, titles are not one per alignment, a weight is no
            number, or a language is no tag.
    """
    alignments = list(alignments)
    if not alignments:
        raise ValueError("alignments must hold at least one alignment, got none.")
    if titles is not None and len(titles) != len(alignments):
        raise ValueError(
            f"titles must be one per alignment, {len(alignments)}, got {len(titles)}. "
            "Leave them out to number the alignments."
        )
    languages = {"source": source_lang or "", "target": target_lang or ""}
    for side, language in languages.items():
        if language and not LANGUAGE.fullmatch(language):
            raise ValueError(
                f"{side}_lang must be a language tag such as 'de' or 'pt-BR', got {language!r}."
            )
    pairs = [
        _pair(f"pair-{number}", f"Pair {number}" if titles is None else title, alignment, languages)
        for number, (alignment, title) in enumerate(
            zip(alignments, titles or [""] * len(alignments), strict=True), start=1
        )
    ]
    page = TEMPLATE.read_text(encoding="utf-8")
    script = page[page.index("<script>") + len("<script>") : page.index("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    page = page.replace("<!--policy-->", policy)
    # what is put in has no "<!--" of its own any more
    page = page.replace("<!--title-->", _text(page_title))
    return page.replace("<!--pairs-->", "\n".join(pairs))


def _pair(name: str, title: str, alignment: "Alignment", languages: dict[str, str]) -> str:
    """Return the section of one alignment; `name` makes its ids unique on the page."""
    if not np.isfinite(alignment.weights).all():
        raise ValueError(
            f"Weights must be numbers, but those of {title!r} hold NaN or infinity. Look for rows "
            "without any source token, or leave the alignment out."
        )
    sides = {
        "source": (alignment.source_tokens, alignment.source_is_special),
        "target": (alignment.target_tokens, alignment.target_is_special),
    }
    lines = []
    for side, (tokens, special) in sides.items():
        line = Line(tokens, special)
        buttons = "".join(_buttons(line, tokens, special)) or '<span class="none">no tokens</span>'
        lines.append(
            f'<div class="side"><span id="{name}-{side}">{side.capitalize()}</span>'
            f'<div class="tokens" role="toolbar" aria-labelledby="{name} {name}-{side}" '
            f'lang="{languages[side]}" dir="{line.direction}">{buttons}</div></div>'
        )
    return (
        f'<section class="pair" aria-labelledby="{name}">\n<h2 id="{name}">{_text(title)}</h2>\n'
        + "\n".join(lines)
        + f'\n<p class="status" role="status">{HINT}</p>\n'
        f"<details><summary>Table of weights</summary>"
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{name}">\n'
        f"{_table(alignment, languages)}\n</div></details>\n</section>"
    )


def _buttons(line: Line, tokens: Sequence[str], special: Sequence[bool]) -> Iterator[str]:
    """Yield a button for every token of a line; Tab reaches the first, arrow keys the others."""
    for kind, value in line.runs():
        if kind == "open":
            yield f'<span class="run" dir="{value}">'
        elif kind == "close":
            yield "</span>"
        else:
            place = int(value)
            yield (
                f'<button type="button" class="token{" special" if special[place] else ""}" '
                f'tabindex="{0 if place == 0 else -1}" aria-pressed="false">'
                f'<bdi>{_text(tokens[place])}</bdi><span class="weight" aria-hidden="true"></span>'
                "</button>"
            )


def _table(alignment: "Alignment", languages: dict[str, str]) -> str:
    """Return all weights as a table, from which the script of the page reads them, too."""

    def head(token: str, is_special: bool, scope: str, language: str) -> str:
        kind = ' class="special"' if is_special else ""
        return f'<th scope="{scope}" lang="{language}"{kind}><bdi>{_text(token)}</bdi></th>'

    columns = zip(alignment.source_tokens, alignment.source_is_special, strict=True)
    rows = [
        head(token, is_special, "row", languages["target"]) + "".join(map(_cell, weights))
        for token, is_special, weights in zip(
            alignment.target_tokens,
            alignment.target_is_special,
            alignment.weights.tolist(),
            strict=True,
        )
    ]
    return (
        f'<table dir="{Line(alignment.source_tokens, alignment.source_is_special).direction}">'
        "<caption>Attention of each target token (row) over the source tokens (columns)</caption>\n"
        "<thead><tr><td></td>"
        + "".join(head(*column, "col", languages["source"]) for column in columns)
        + "</tr></thead>\n<tbody>"
        + "\n".join(f"<tr>{row}</tr>" for row in rows)
        + "</tbody></table>"
    )


def _cell(weight: float) -> str:
    """Return the cell of a weight: shaded by it, and with the number."""
    return f'<td style="--w:{weight:.{DIGITS}f}">{weight:.2f}</td>'


def _text(text: str) -> str:
    """Return any text as it may stand in HTML, in an attribute as well, nothing invisible in it."""
    return escape(make_label(text, longest=None, keep_joiners=True))
