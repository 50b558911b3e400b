"""Heat maps of alignments: source tokens across, target tokens down, attention as darkness."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from hf_seqmodels.analysis.fonts import BASE_FONT, draw_with
from hf_seqmodels.analysis.labels import LONGEST_TITLE

if TYPE_CHECKING:
    from hf_seqmodels.evaluation import Alignment

# Lengths in inches, font sizes in points.
CELL = 0.27
SMALLEST_CELL = 0.04
FONT_SIZE = 8.5
UPRIGHT = 2  # longest label of a column, in characters, that is not turned
GAP = 0.3
MARGIN = 0.15
BAR_ROOM = 0.75
PAGE_WIDTH = 14.0
LONGEST_PAGE = 100.0

INK = "#222222"
FAINT = "#8a8a8a"
COLORS = "Blues"


def plot_alignment(
    alignment: "Alignment", path: str | PathLike | None = None, *, title: str | None = None
) -> Figure:
    """Draw one alignment as a heat map.

    Args:
        alignment: tokens and weights.
        path: the picture; its ending chooses the format (.png, .svg, .pdf). The folder is made.
            None writes nothing.
        title: text above the map, or None.

    Returns:
        The figure, which a notebook shows.
    """
    return plot_alignments([alignment], path, titles=None if title is None else [title])


def plot_alignments(
    alignments: Sequence["Alignment"],
    path: str | PathLike | None = None,
    *,
    titles: Sequence[str] | None = None,
    num_columns: int | None = None,
) -> Figure:
    """Draw several alignments as heat maps in one picture, with one scale from 0 to 1.

    Cells have one size, so that a longer text has a larger map; very many or very long ones make
    all cells smaller. Characters that no font of the machine has are drawn as their code points.

    Args:
        alignments: tokens and weights, at least one.
        path: the picture; its ending chooses the format (.png, .svg, .pdf). The folder is made.
            None writes nothing.
        titles: one text per alignment, or None.
        num_columns: maps side by side; None takes as many as fit on a page.

    Returns:
        The figure, which a notebook shows.

    Raises:
        ValueError: if there is nothing to draw, or the titles are not one per alignment.
    """
    alignments = list(alignments)
    if not alignments:
        raise ValueError("alignments must hold at least one alignment, got none.")
    if titles is not None and len(titles) != len(alignments):
        raise ValueError(
            f"titles must be one per alignment, {len(alignments)}, got {len(titles)}. "
            "Use '' where there is none."
        )
    if num_columns is not None and num_columns < 1:
        raise ValueError(f"num_columns must be at least 1, got {num_columns}.")
    titles = [""] * len(alignments) if titles is None else list(titles)
    tokens = [
        token
        for alignment in alignments
        for token in (*alignment.source_tokens, *alignment.target_tokens)
    ]
    families, label_of = draw_with(tokens)
    title_families, title_of = draw_with(titles, longest=LONGEST_TITLE)
    panels = [
        Panel(alignment, label_of, title_of[title] if title else "")
        for alignment, title in zip(alignments, titles, strict=True)
    ]
    cell = CELL
    rows = flow(panels, cell, num_columns)
    while cell > SMALLEST_CELL and not fits_page(rows, cell):
        cell *= 0.9
        rows = flow(panels, cell, num_columns)
    figure = draw_rows(rows, cell, families, title_families)
    if path is not None:
        save(figure, path)
    return figure


class Panel:
    """One heat map before it is drawn: its labels and the room that it takes.

    Args:
        alignment: tokens and weights.
        label_of: what is drawn for each token.
        title: text above the map, or "".
    """

    def __init__(self, alignment: "Alignment", label_of: dict[str, str], title: str):
        self.alignment = alignment
        self.title = title
        self.columns = [label_of[token] for token in alignment.source_tokens]
        self.rows = [label_of[token] for token in alignment.target_tokens]
        self.longest_column = max(map(display_width, self.columns), default=0)
        self.longest_row = max(map(display_width, self.rows), default=0)

    def left(self, cell: float) -> float:
        """Return the room for the labels of the rows, in inches."""
        return text_width(self.longest_row, font_size(cell)) + 0.08

    def top(self, cell: float) -> float:
        """Return the room for title and labels of the columns, in inches."""
        labels = text_width(max(self.longest_column, UPRIGHT), font_size(cell)) + 0.08
        return labels + (0.3 if self.title else 0)

    def width(self, cell: float) -> float:
        """Return the width with all labels, in inches."""
        title_width = 0.85 * text_width(display_width(self.title), FONT_SIZE + 1)
        return self.left(cell) + max(cell * max(len(self.columns), 1), title_width)


def display_width(text: str) -> int:
    """Return the width of a text in Latin characters; Chinese, Japanese, Korean ones take two."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def font_size(cell: float) -> float:
    """Return the size of labels, in points, that fits beside cells of a size in inches."""
    return min(FONT_SIZE, cell * 72 * 0.8)


def text_width(num_characters: int, size: float) -> float:
    """Return the room that a text of a size in points takes, in inches."""
    return num_characters * 0.64 * size / 72


def flow(panels: Sequence[Panel], cell: float, num_columns: int | None) -> list[list[Panel]]:
    """Break the panels into rows like words into lines.

    Args:
        panels: all panels in order.
        cell: size of a cell, in inches.
        num_columns: panels per row; None takes as many as the page is wide.

    Returns:
        The rows.
    """
    rows: list[list[Panel]] = []
    for panel in panels:
        row = rows[-1] if rows else None
        if row is not None and num_columns is not None:
            has_room = len(row) < num_columns
        else:
            has_room = row is not None and row_width([*row, panel], cell) <= PAGE_WIDTH
        if row is not None and has_room:
            row.append(panel)
        else:
            rows.append([panel])
    return rows


def row_width(row: Sequence[Panel], cell: float) -> float:
    """Return the width of panels side by side, in inches."""
    return sum(panel.width(cell) for panel in row) + GAP * (len(row) - 1)


def row_height(row: Sequence[Panel], cell: float) -> float:
    """Return the height of panels side by side, in inches."""
    return row_top(row, cell) + cell * max(max(len(panel.rows), 1) for panel in row)


def row_top(row: Sequence[Panel], cell: float) -> float:
    """Return the room above the maps of one row, which begin at one height, in inches."""
    return max(panel.top(cell) for panel in row)


def fits_page(rows: Sequence[Sequence[Panel]], cell: float) -> bool:
    """Tell whether the picture is neither too wide nor too long."""
    height = sum(row_height(row, cell) + GAP for row in rows)
    return max(row_width(row, cell) for row in rows) <= PAGE_WIDTH and height <= LONGEST_PAGE


def draw_rows(
    rows: Sequence[Sequence[Panel]],
    cell: float,
    families: Sequence[str],
    title_families: Sequence[str],
) -> Figure:
    """Draw the panels where they were laid out, and one colour bar at the right.

    Args:
        rows: panels by row.
        cell: size of a cell, in inches.
        families: fonts of the labels.
        title_families: fonts of the titles.

    Returns:
        The figure.
    """
    width = max(row_width(row, cell) for row in rows) + 2 * MARGIN + BAR_ROOM
    heights = [row_height(row, cell) for row in rows]
    height = sum(heights) + GAP * (len(rows) - 1) + 2 * MARGIN
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    image: Any = None
    top = height - MARGIN
    for row, row_room in zip(rows, heights, strict=True):
        left = MARGIN
        for panel in row:
            box = (
                left + panel.left(cell),
                top - row_top(row, cell) - cell * max(len(panel.rows), 1),
                cell * max(len(panel.columns), 1),
                cell * max(len(panel.rows), 1),
            )
            axes = figure.add_axes(scale_box(box, width, height))
            image = draw_map(axes, panel, cell, families, title_families)
            left += panel.width(cell) + GAP
        top -= row_room + GAP
    bar_height = min(2.2, height - 2 * MARGIN - 0.1)
    bar_box = (width - MARGIN - BAR_ROOM + 0.25, height - MARGIN - bar_height, 0.1, bar_height)
    bar = figure.colorbar(image, cax=figure.add_axes(scale_box(bar_box, width, height)))
    bar.set_label("attention", fontsize=FONT_SIZE, color=INK)
    bar.set_ticks([0, 0.5, 1], labels=["0", "0.5", "1"])
    bar.ax.tick_params(labelsize=FONT_SIZE - 1, labelfontfamily=BASE_FONT, length=2, colors=INK)
    bar.outline.set_visible(False)
    return figure


def scale_box(
    box: tuple[float, float, float, float], width: float, height: float
) -> tuple[float, float, float, float]:
    """Turn left, bottom, width, height from inches into shares of the figure."""
    return box[0] / width, box[1] / height, box[2] / width, box[3] / height


def draw_map(
    axes: Axes, panel: Panel, cell: float, families: Sequence[str], title_families: Sequence[str]
) -> AxesImage:
    """Draw one heat map with its labels; special tokens are paler.

    Args:
        axes: where.
        panel: what.
        cell: size of a cell, in inches.
        families: fonts of the labels.
        title_families: fonts of the title.

    Returns:
        What a colour bar needs.
    """
    num_rows, num_columns = len(panel.rows), len(panel.columns)
    weights = panel.alignment.weights
    if weights.size == 0:
        weights = np.full((max(num_rows, 1), max(num_columns, 1)), np.nan)
    image = axes.imshow(weights, cmap=COLORS, vmin=0, vmax=1, aspect="auto", interpolation="none")
    axes.xaxis.tick_top()
    size = font_size(cell)
    style = {"fontsize": size, "fontfamily": list(families), "parse_math": False}
    axes.set_xticks(range(num_columns), panel.columns, **style)
    for label in axes.get_xticklabels():
        label.set_rotation(0 if display_width(label.get_text()) <= UPRIGHT else 90)
    axes.set_yticks(range(num_rows), panel.rows, **style)
    special = [*panel.alignment.source_is_special, *panel.alignment.target_is_special]
    ticks = [*axes.get_xticklabels(), *axes.get_yticklabels()]
    for label, is_special in zip(ticks, special, strict=True):
        label.set_color(FAINT if is_special else INK)
    axes.set_xticks(np.arange(-0.5, num_columns), minor=True)
    axes.set_yticks(np.arange(-0.5, num_rows), minor=True)
    axes.grid(which="minor", color="white", linewidth=min(0.8, cell * 3))
    axes.tick_params(which="both", length=0, pad=2)
    for spine in axes.spines.values():
        spine.set(color="#cccccc", linewidth=0.6)
    if panel.title:
        axes.set_title(
            panel.title,
            loc="left",
            fontsize=FONT_SIZE + 1,
            fontfamily=list(title_families),
            color=INK,
            parse_math=False,
        )
    return image


def save(figure: Figure, path: str | PathLike) -> None:
    """Write the picture, and its folder where there is none.

    Args:
        figure: what was drawn.
        path: the picture; its ending chooses the format.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
