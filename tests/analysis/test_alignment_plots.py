"""What the heat maps show, and that nothing overlaps, is cut off or warned about."""

import itertools
import sys
import warnings
from collections import Counter

import numpy as np
import pytest
from matplotlib import font_manager

from hf_seqmodels.analysis import alignment_plots, fonts, labels, plot_alignment, plot_alignments
from hf_seqmodels.evaluation import Alignment

SCRIPTS = [
    "March 4",
    "4 มี.ค. 2564",
    "٤ مارس",
    "2021年3月4日",
    "मार्च",
    "Ԫ ქ $x_1$ %s \\n",
    "😀\U0010ffff",
]


def make_alignment(source, target):
    """Random weights over the characters of two texts, with end tokens."""
    source_tokens, target_tokens = [*source, "</s>"], [*target, "</s>"]
    weights = np.random.default_rng(0).dirichlet(np.ones(len(source_tokens)), len(target_tokens))
    ends = [[token == "</s>" for token in tokens] for tokens in (source_tokens, target_tokens)]
    return Alignment(source_tokens, target_tokens, weights, *ends)


@pytest.fixture
def drawn(monkeypatch):
    """Collect the figures that are saved."""
    figures = []
    save = alignment_plots.save
    monkeypatch.setattr(
        alignment_plots, "save", lambda figure, path: figures.append(figure) or save(figure, path)
    )
    return figures


def visible_texts(figure):
    """Every text of the figure with its box in pixels."""
    figure.canvas.draw()  # saving left positions for another resolution
    renderer = figure.canvas.get_renderer()
    for axes in figure.axes:
        candidates = [*axes.get_xticklabels(), *axes.get_yticklabels(), *axes.texts]
        candidates += [axes.title, axes._left_title, axes.yaxis.label]
        for text in candidates:
            if text.get_text() and text.get_visible():
                yield text, text.get_window_extent(renderer)


def assert_nothing_is_cut_or_overlaps(figure):
    boxes = [box for _, box in visible_texts(figure)]
    for box in boxes:
        assert box.x0 >= 0 and box.y0 >= 0, box
        assert box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1, box
    maps = [axes.get_window_extent() for axes in figure.axes]
    for left, right in itertools.combinations([*boxes, *maps], 2):
        shared_width = min(left.x1, right.x1) - max(left.x0, right.x0)
        shared_height = min(left.y1, right.y1) - max(left.y0, right.y0)
        assert shared_width < 2 or shared_height < 2, (left, right)


def test_a_plot_is_returned_and_written_only_where_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alignment = make_alignment("ab", "c")
    figure = plot_alignment(alignment)
    np.testing.assert_array_equal(figure.axes[0].images[0].get_array(), alignment.weights)
    assert not list(tmp_path.iterdir())
    assert plot_alignment(alignment, "one.svg") is not None
    assert (tmp_path / "one.svg").stat().st_size > 0


def test_a_map_shows_weights_and_tokens(tmp_path, drawn):
    alignment = make_alignment(["das", "Haus"], ["the", "house"])
    plot_alignment(alignment, tmp_path / "one.png", title="das Haus")
    (figure,) = drawn
    axes, bar = figure.axes
    np.testing.assert_array_equal(axes.images[0].get_array(), alignment.weights)
    assert axes.images[0].get_clim() == (0, 1)
    assert [label.get_text() for label in axes.get_xticklabels()] == alignment.source_tokens
    assert [label.get_text() for label in axes.get_yticklabels()] == alignment.target_tokens
    assert axes.get_title(loc="left") == "das Haus"
    assert bar.get_ylabel() == "attention"
    words, end = axes.get_xticklabels()[0], axes.get_xticklabels()[-1]
    assert (words.get_color(), end.get_color()) == (alignment_plots.INK, alignment_plots.FAINT)
    assert_nothing_is_cut_or_overlaps(figure)


@pytest.mark.parametrize("num_columns", [None, 1, 2])
def test_many_maps_of_different_sizes_do_not_overlap(tmp_path, drawn, num_columns):
    items = [
        make_alignment("lorem ipsum dolor"[: 3 * n % 17], "sit amet"[: n % 8]) for n in range(1, 12)
    ]
    items.append(make_alignment(["<en_US>", "averyveryverylongtokenindeedlonger"], ["x"]))
    titles = [f"number {n} of twelve" for n in range(12)]
    plot_alignments(items, tmp_path / "many.png", titles=titles, num_columns=num_columns)
    (figure,) = drawn
    assert len(figure.axes) == 12 + 1
    assert_nothing_is_cut_or_overlaps(figure)
    rows = Counter(round(axes.get_position().y1, 4) for axes in figure.axes[:-1])
    assert num_columns is None or set(rows.values()) == {num_columns}


def test_cells_have_one_size_and_shrink_to_the_page(tmp_path, drawn):
    plot_alignments(
        [make_alignment("ab", "c"), make_alignment("abcdefgh", "cd")], tmp_path / "a.png"
    )
    plot_alignment(make_alignment("x" * 150, "y" * 40), tmp_path / "b.png")
    small, large = drawn

    def cells(figure):
        for axes in figure.axes[:-1]:
            box = axes.get_window_extent()
            rows, columns = axes.images[0].get_array().shape
            yield from (box.width / columns / figure.dpi, box.height / rows / figure.dpi)

    assert list(cells(small)) == pytest.approx([alignment_plots.CELL] * 4)
    assert 0.05 < max(cells(large)) < 0.12
    assert large.get_size_inches()[0] < 16
    assert_nothing_is_cut_or_overlaps(large)


@pytest.mark.parametrize("script", SCRIPTS)
def test_any_script_is_drawn_without_a_warning(tmp_path, drawn, script):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_alignment(make_alignment(script, script), tmp_path / "script.png", title=script)
        plot_alignment(make_alignment(script.split(), ["x"]), tmp_path / "words.svg")
    assert_nothing_is_cut_or_overlaps(drawn[0])


def test_empty_sides_are_drawn(tmp_path, drawn):
    for index, (source, target) in enumerate([([], []), (["a"], []), ([], ["b"])]):
        weights = np.zeros((len(target), len(source)))
        plot_alignment(Alignment(source, target, weights), tmp_path / f"{index}.png")
    assert all(len(figure.axes) == 2 for figure in drawn)


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_ending_chooses_the_format_and_the_folder_is_made(tmp_path, ending):
    path = tmp_path / "new" / "folder" / f"picture.{ending}"
    plot_alignment(make_alignment("ab", "c"), str(path))
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert path.read_bytes().startswith(start)


def test_bad_input_is_refused(tmp_path):
    alignment = make_alignment("ab", "c")
    with pytest.raises(ValueError, match="at least one alignment, got none"):
        plot_alignments([], tmp_path / "x.png")
    with pytest.raises(ValueError, match="titles must be one per alignment, 2, got 1"):
        plot_alignments([alignment] * 2, tmp_path / "x.png", titles=["a"])
    with pytest.raises(ValueError, match="num_columns must be at least 1, got 0"):
        plot_alignments([alignment], tmp_path / "x.png", num_columns=0)
    assert not list(tmp_path.iterdir())


def test_no_global_state_of_pyplot_is_touched(tmp_path):
    before = sys.modules.pop("matplotlib.pyplot", None)
    plot_alignment(make_alignment("ab", "c"), tmp_path / "x.png")
    assert "matplotlib.pyplot" not in sys.modules
    if before is not None:
        sys.modules["matplotlib.pyplot"] = before


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("", "∅"),
        (" ", "␣"),
        ("   ", "␣␣␣"),
        ("a b", "a b"),
        ("\t", "\\u0009"),
        ("a\nb", "a\\u000ab"),
        ("\u200f", "\\u200f"),
        ("\u202f", "\\u202f"),
        ("\u0301", "◌\u0301"),
        ("e\u0301", "e\u0301"),
        ("x" * 30, "x" * 23 + "…"),
    ],
)
def test_labels_are_visible(text, label):
    assert labels.make_label(text) == label


def test_characters_without_a_font_are_escaped(monkeypatch):
    monkeypatch.setattr(fonts, "installed_fonts", list)
    families, label_of = fonts.draw_with(["年", "a年b", "\U0001f600", "c"])
    assert families == ["DejaVu Sans"]
    assert label_of == {"年": "\\u5e74", "a年b": "a\\u5e74b", "\U0001f600": "😀", "c": "c"} or (
        label_of["\U0001f600"] == "\\U0001f600"
    )


def test_a_font_that_has_the_characters_is_used(monkeypatch, tmp_path, drawn):
    """The font of last resort stands for a Chinese one: it has all glyphs and comes along."""
    paths = [f.fname for f in font_manager.fontManager.ttflist if "Last Resort" in f.name]
    if not paths:
        pytest.skip("this matplotlib comes without a font of last resort")
    path = paths[0]
    family = font_manager.get_font(path).family_name
    monkeypatch.setattr(fonts, "installed_fonts", lambda: [(family, path)])
    assert fonts.draw_with(["a年", "b"]) == (["DejaVu Sans", family], {"a年": "a年", "b": "b"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_alignment(make_alignment("年月", "ab"), tmp_path / "x.png")
    assert drawn[0].axes[0].get_xticklabels()[0].get_text() == "年"


def test_unreadable_fonts_are_never_chosen():
    names = [name.lower() for name, _ in fonts.installed_fonts()]
    assert not [name for name in names if "resort" in name or "emoji" in name]
