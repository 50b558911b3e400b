"""A page of alignments in Chromium: pointer, finger and keyboard show the weights of the arrays."""

import json

import numpy as np
import pytest

from hf_seqmodels.analysis import write_alignment_page
from hf_seqmodels.evaluation import Alignment

headless_browser = pytest.importorskip("headless_browser", reason="pipes are those of POSIX")

pytestmark = pytest.mark.slow

HARM = ["<script>window.harm = 1</script>", "<img src=x onerror='window.harm = 1'>", '"', "'"]
ITEMS = [
    (["▁Das", "▁Haus", "▁steht", "▁alt", "</s>"], ["▁the", "▁house", "▁is", "</s>"]),
    (["می\u200cخواهم", "کتاب", "بخوانم"], ["I", "want", "a", "book"]),
    (HARM, [*HARM[::-1], "x"]),
]


def make_items():
    random = np.random.default_rng(0)
    return [
        Alignment(source, target, random.dirichlet(np.full(len(source), 0.4), len(target)))
        for source, target in ITEMS
    ]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A browser, and the page of the items."""
    program = headless_browser.find_chromium()
    if program is None:
        pytest.skip(f"no Chromium on this machine, looked for {headless_browser.NAMES}")
    folder = tmp_path_factory.mktemp("browser")
    path = folder / "page.html"
    write_alignment_page(make_items(), path, titles=HARM[:3], page_title=HARM[0])
    try:
        browser = headless_browser.Browser(program, folder / "profile")
    except (ConnectionError, TimeoutError) as reason:
        pytest.skip(f"{program} does not start: {reason}")
    with browser:
        yield browser, path


@pytest.fixture
def page(browser):
    """The page as it is when it has just been opened."""
    window, path = browser
    window.show_as()
    window.open(path)
    return window


def token(pair, side, place):
    """A selector, everything counted from 0."""
    line = {"source": 2, "target": 3}[side]
    return f".pair:nth-of-type({pair + 1}) > :nth-child({line}) .token:nth-child({place + 1})"


def shown(page, pair, side):
    """The numbers beside the tokens of one side."""
    line = {"source": 2, "target": 3}[side]
    return page.run(
        f"[...document.querySelectorAll('.pair:nth-of-type({pair + 1}) > :nth-child({line}) "
        ".weight')].map((one) => one.textContent)"
    )


def numbers(weights):
    return [f"{weight:.2f}" if weight >= 0.005 else "" for weight in weights.tolist()]


def shades(page, pair, side):
    line = {"source": 2, "target": 3}[side]
    colors = page.run(
        f"[...document.querySelectorAll('.pair:nth-of-type({pair + 1}) > :nth-child({line}) "
        ".token')].map((one) => getComputedStyle(one).backgroundColor)"
    )
    parts = [color.strip("rgba()").replace("/", " ").replace(",", " ").split() for color in colors]
    return [float(part[3]) if len(part) == 4 else 1.0 for part in parts]


def chosen(page):
    """The text of the token with the keyboard's focus."""
    return page.run("document.activeElement.querySelector('bdi')?.textContent")


def test_the_pointer_on_a_token_shows_the_weights_of_the_arrays(page):
    for pair, item in enumerate(make_items()):
        for place in range(len(item.target_tokens)):
            page.hover(token(pair, "target", place))
            assert shown(page, pair, "source") == numbers(item.weights[place])
            assert not any(shown(page, pair, "target"))
        np.testing.assert_allclose(shades(page, pair, "source"), item.weights[-1], atol=0.006)
        for place in range(len(item.source_tokens)):
            page.hover(token(pair, "source", place))
            assert shown(page, pair, "target") == numbers(item.weights[:, place])
            assert not any(shown(page, pair, "source"))
    page.hover("h1")
    assert not any(number for pair in range(3) for number in shown(page, pair, "target"))


def test_the_line_below_names_the_largest_weights(page):
    weights = make_items()[0].weights[1]
    page.hover(token(0, "target", 1))
    best = [int(place) for place in np.argsort(-weights) if weights[place] >= 0.005]
    expected = ", ".join(f"{ITEMS[0][0][place]} {weights[place]:.2f}" for place in best)
    line = page.run("document.querySelector('.status').textContent")
    assert line == f"▁house looks at {expected}"


def test_a_click_keeps_a_token_and_escape_lets_go(page):
    item = make_items()[0]
    page.click(token(0, "target", 2))
    page.hover("h1")
    assert shown(page, 0, "source") == numbers(item.weights[2])
    page.hover(token(0, "source", 0))
    assert shown(page, 0, "target") == numbers(item.weights[:, 0])
    page.hover("h1")
    assert shown(page, 0, "source") == numbers(item.weights[2])
    pressed = "document.querySelectorAll('[aria-pressed=true]').length"
    assert page.run(pressed) == 1
    page.press("Escape")
    assert page.run(pressed) == 0
    page.click(token(0, "target", 0))
    page.click(token(0, "target", 0))
    page.hover("h1")
    assert page.run(pressed) == 0


def test_a_finger_chooses_a_token(page):
    page.tap(token(0, "target", 3))
    assert shown(page, 0, "source") == numbers(make_items()[0].weights[3])


def test_the_keyboard_reaches_every_token(page):
    first, second = make_items()[:2]
    page.press("Tab")
    assert (chosen(page), shown(page, 0, "target")) == ("▁Das", numbers(first.weights[:, 0]))
    page.press("ArrowRight")
    assert (chosen(page), shown(page, 0, "target")) == ("▁Haus", numbers(first.weights[:, 1]))
    page.press("Tab")
    assert (chosen(page), shown(page, 0, "source")) == ("▁the", numbers(first.weights[0]))
    page.press("End")
    assert (chosen(page), shown(page, 0, "source")) == ("</s>", numbers(first.weights[3]))
    page.press("ArrowRight")
    assert chosen(page) == "</s>", "there is no further one"
    page.press("Tab")  # the table
    page.press("Tab")
    assert chosen(page) == ITEMS[1][0][0]
    assert not any(shown(page, 0, "source")), "what lost the focus shows nothing"
    page.press("ArrowLeft")
    assert chosen(page) == ITEMS[1][0][1], "onwards is to the left"
    assert shown(page, 1, "target") == numbers(second.weights[:, 1])
    page.press("Home")
    assert chosen(page) == ITEMS[1][0][0]


def test_texts_do_no_harm_and_nothing_is_asked_for(page):
    page.hover(token(2, "source", 0))
    assert page.run("window.harm === undefined && document.images.length === 0")
    assert page.run("document.title") == HARM[0]
    assert page.run("document.querySelector('.pair:nth-of-type(3) bdi').textContent") == HARM[0]
    assert page.complaints() == []
    assert {url.rpartition("/")[2] for url in page.requests()} == {"page.html"}


MIXED = [
    "אב 29 גד",
    "אב 12/11/2003 גד",
    "ع 29-1-2003 ر",
    "٤ مارس ٢٠٢١",
    "אב cd ef גה",
    "ab אב 29 גד cd",
    "אב (12.5%) $7 x-3",
]


def order(page, function):
    """What stands where, from left to right, of boxes that a function of JavaScript returns."""
    left = page.run(f"({function})().map((box) => box.getBoundingClientRect().left)")
    return sorted(range(len(left)), key=left.__getitem__)


def test_letters_and_digits_stand_where_the_browser_puts_them_in_a_text(browser, tmp_path):
    items = [Alignment([*text], ["x"], np.full((1, len(text)), 1 / len(text))) for text in MIXED]
    write_alignment_page(items, tmp_path / "mixed.html")
    window, _ = browser
    window.show_as(width=1400)
    window.open(tmp_path / "mixed.html")
    for pair, text in enumerate(MIXED):
        line = f"document.querySelectorAll('.pair')[{pair}].querySelector('.tokens')"
        tokens = order(window, f"() => [...{line}.querySelectorAll('.token')]")
        letters = order(
            window,
            "() => { const line = document.body.appendChild(document.createElement('p'));"
            f"line.dir = {line}.dir; line.textContent = {json.dumps(text)};"
            "return [...line.textContent].map((_, place) => { const one = new Range();"
            "one.setStart(line.firstChild, place); one.setEnd(line.firstChild, place + 1);"
            "return one; }); }",
        )
        assert tokens == letters, text


def luminance(color):
    """Of the Web Content Accessibility Guidelines 2.2, of an opaque colour."""
    parts = [float(part) / 255 for part in color.strip("rgb()").split(",")]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_texts_are_readable_in_light_and_dark(page):
    papers = []
    for scheme in ("light", "dark"):
        page.show_as(scheme=scheme)
        paper, ink, faint, shade = (
            page.run(
                "(() => { const probe = document.body.appendChild(document.createElement('p'));"
                f"probe.style.color = '{value}';"
                "const color = getComputedStyle(probe).color; probe.remove(); return color; })()"
            )
            for value in ("var(--panel)", "var(--ink)", "var(--faint)", "rgb(var(--shade))")
        )
        assert contrast(ink, paper) > 7
        assert contrast(faint, paper) > 4.5
        assert contrast(ink, shade) > 4.5, "the number in the darkest shade"
        papers.append(page.run("getComputedStyle(document.body).backgroundColor"))
    assert luminance(papers[0]) > 0.9 and luminance(papers[1]) < 0.05


def test_a_narrow_window_cuts_nothing_off(page):
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    for width in (320, 1000):
        page.show_as(width=width)
        assert page.run("document.documentElement.scrollWidth") <= width
