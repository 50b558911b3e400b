"""What a page of alignments holds: every weight, every text as text, and nothing from elsewhere."""

import base64
import hashlib
import importlib
import re
import sys

import numpy as np
import pytest
import torch

from hf_seqmodels.analysis import labels, render_alignment_page, write_alignment_page
from hf_seqmodels.evaluation import Alignment, alignments
from read_alignment_page import Page
from tiny_encoder_decoders import MODELS, make_tokenizer

HARMFUL = [
    "<script>alert(1)</script>",
    '" onpointerenter="alert(1)',
    "'><img src=x onerror=alert(1)>",
    "</section></main><!--pairs-->",
    "&lt;b&gt; &amp;",
    "<!--",
]


def make_alignment(source, target, *, seed=0):
    """Random weights, with end tokens."""
    source, target = [*source, "</s>"], [*target, "</s>"]
    weights = np.random.default_rng(seed).dirichlet(np.ones(len(source)), len(target))
    ends = [[token == "</s>" for token in tokens] for tokens in (source, target)]
    return Alignment(source, target, weights, *ends)


def test_a_page_holds_every_token_and_weight_of_every_pair(tmp_path):
    items = [make_alignment(["un", "chat"], ["the", "cat", "sat"], seed=n) for n in range(3)]
    items.append(make_alignment("abcdefg", "xy", seed=3))
    path = tmp_path / "new" / "page.html"
    write_alignment_page(items, path, titles=list("ABCD"), page_title="Some pairs")
    page = Page(path.read_text(encoding="utf-8"))
    assert [pair["title"] for pair in page.pairs] == list("ABCD")
    assert [text for tags, text in page.texts if tags[-1:] in (("h1",), ("title",))] == [
        "Some pairs",
        "Some pairs",
    ]
    for index, item in enumerate(items):
        assert page.tokens(index) == (item.source_tokens, item.target_tokens)
        assert page.pairs[index]["columns"] == item.source_tokens
        assert page.pairs[index]["rows"] == item.target_tokens
        np.testing.assert_allclose(page.weights(index), item.weights, atol=5.1e-5)
    shown = [text for tags, text in page.texts if tags[-1:] == ("td",)]
    assert shown[:3] == [f"{weight:.2f}" for weight in items[0].weights[0]]
    assert Page(render_alignment_page(items[:2])).pairs[1]["title"] == "Pair 2"


@pytest.mark.parametrize("name", ["rnn_gru_additive", "transformer", "marian", "t5"])
def test_a_page_of_a_model_holds_its_attention(name):
    torch.manual_seed(1)
    model = MODELS[name]().eval()
    items = alignments(
        model, make_tokenizer(), ["a b c", "d"], num_beams=2, max_new_tokens=6, progress=False
    )
    page = Page(render_alignment_page(items))
    for index, item in enumerate(items):
        assert page.tokens(index) == (item.source_tokens, item.target_tokens)
        np.testing.assert_allclose(page.weights(index), item.weights, atol=5.1e-5)
        np.testing.assert_allclose(page.weights(index).sum(axis=1), 1, atol=1e-3)


def test_a_page_loads_nothing_and_lets_no_other_script_run():
    text = render_alignment_page([make_alignment("ab", "c")])
    page = Page(text)
    assert not {"link", "img", "iframe", "object", "base", "form"} & {tag for tag, _ in page.tags}
    attributes = {name for _, attrs in page.tags for name in attrs}
    assert not {"src", "href", "srcset", "data"} & attributes
    assert "url(" not in text and "@import" not in text
    (script,) = [text for tags, text in page.texts if tags[-1:] == ("script",)]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [attrs["content"] for _, attrs in page.tags if "http-equiv" in attrs]
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    )


def test_markup_in_texts_is_text():
    plain = Page(render_alignment_page([make_alignment("abcdef", "ghijkl")], titles=["t"]))
    item = make_alignment(HARMFUL, HARMFUL[::-1])
    for title in HARMFUL:
        page = Page(render_alignment_page([item], titles=[title], page_title=title))
        assert page.pairs[0]["title"] == title
        assert page.tokens(0) == (item.source_tokens, item.target_tokens)
        assert page.pairs[0]["columns"] == item.source_tokens
        assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
        assert [list(attrs) for _, attrs in page.tags] == [list(attrs) for _, attrs in plain.tags]


def test_right_to_left_texts_run_so():
    persian = make_alignment(["می\u200cخواهم", "کتاب", "x"], ["I", "want", "کتاب"])
    page = Page(render_alignment_page([persian], source_lang="fa", target_lang="en-GB"))
    sides = [(attrs["dir"], attrs["lang"]) for attrs, _ in page.pairs[0]["lines"]]
    assert sides == [("rtl", "fa"), ("ltr", "en-GB")]
    assert [attrs["dir"] for tag, attrs in page.tags if tag == "table"] == ["rtl"]
    assert page.tokens(0)[0][0] == "می\u200cخواهم", "letters keep their forms"
    special = Alignment(["א", "</source>"], ["b"], np.full((1, 2), 0.5), [False, True])
    attrs, _ = Page(render_alignment_page([special])).pairs[0]["lines"][0]
    assert attrs["dir"] == "rtl", "special tokens have no say"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("👩\u200d🔬", "👩\u200d🔬"),
        ("\u200d", "\\u200d"),
        ("می\u200c", "می\\u200c"),
        ("a\u202eb", "a\\u202eb"),
        ("\u0e34x", "◌\u0e34x"),
        ("y" * 90, "y" * 90),
        ("   ", "␣␣␣"),
        ("\ud800", "\\ud800"),
    ],
)
def test_tokens_are_shown_whole_and_nothing_in_them_is_invisible(text, label):
    assert labels.make_label(text, longest=None, keep_joiners=True) == label
    page = Page(render_alignment_page([Alignment([text], ["a"], np.ones((1, 1)))]))
    assert page.tokens(0) == ([label], ["a"])


def test_keyboards_and_screen_readers_find_their_way():
    items = [make_alignment("abc", "de"), make_alignment("f", "gh")]
    page = Page(render_alignment_page(items))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    named = [
        attrs["aria-labelledby"].split() for _, attrs in page.tags if "aria-labelledby" in attrs
    ]
    assert named and {name for names in named for name in names} <= set(ids)
    stops = [attrs["tabindex"] for tag, attrs in page.tags if tag == "button"]
    assert stops == [stop for length in (4, 3, 2, 3) for stop in ("0", *("-1",) * (length - 1))]
    assert {attrs["scope"] for tag, attrs in page.tags if tag == "th"} == {"row", "col"}
    assert sum(attrs.get("role") == "status" for _, attrs in page.tags) == 2


def test_pairs_without_tokens_have_a_page():
    items = [
        Alignment(source, target, np.zeros((len(target), len(source))))
        for source, target in (([], []), (["a"], []), ([], ["b"]))
    ]
    page = Page(render_alignment_page(items))
    assert [page.tokens(index) for index in range(3)] == [([], []), (["a"], []), ([], ["b"])]
    assert sum(text == "no tokens" for _, text in page.texts) == 4


def test_what_cannot_be_shown_is_refused(tmp_path):
    item = make_alignment("ab", "c")
    with pytest.raises(ValueError, match="at least one alignment, got none"):
        write_alignment_page([], tmp_path / "a.html")
    with pytest.raises(ValueError, match=r"must end in .html, got .*a.png'. For pictures"):
        write_alignment_page([item], tmp_path / "a.png")
    with pytest.raises(ValueError, match="titles must be one per alignment, 2, got 1"):
        render_alignment_page([item] * 2, titles=["a"])
    with pytest.raises(ValueError, match="source_lang must be a language tag such as 'de'"):
        render_alignment_page([item], source_lang='de" onload="x')
    item.weights[0, 0] = np.nan
    with pytest.raises(ValueError, match="those of 'Pair 1' hold NaN or infinity"):
        write_alignment_page([item], tmp_path / "a.html")
    assert not list(tmp_path.iterdir())


def test_pages_need_no_matplotlib(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("hf_seqmodels.analysis.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    pages = importlib.import_module("hf_seqmodels.analysis.alignment_pages")
    assert re.match("<!DOCTYPE html>", pages.render_alignment_page([make_alignment("a", "b")]))
