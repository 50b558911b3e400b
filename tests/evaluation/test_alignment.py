"""Pharaoh format, words and readable tokens, worked out by hand."""

from html.parser import HTMLParser

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_seqmodels.data import parse_pharaoh
from hf_seqmodels.evaluation import Alignment
from hf_seqmodels.models.pipeline_seq2seq_generation import readable_tokens
from read_alignment_page import Page

WEIGHTS = np.array(
    [
        [0.1, 0.6, 0.2, 0.1],
        [0.5, 0.3, 0.1, 0.1],
        [0.2, 0.1, 0.1, 0.6],
        [0.0, 0.0, 0.3, 0.7],
    ]
)


@pytest.fixture
def alignment():
    """Four source tokens, the last one an end token; so with the target."""
    return Alignment(
        source_tokens=["un", "chat", "noir", "</s>"],
        target_tokens=["cat", "a", "black", "</s>"],
        weights=WEIGHTS,
        source_is_special=[False, False, False, True],
        target_is_special=[False, False, False, True],
    )


class Frame(HTMLParser):
    """The attributes of the one element that a notebook gets."""

    def handle_starttag(self, tag, attrs):
        assert tag == "iframe" and not hasattr(self, "attributes")
        self.attributes = dict(attrs)


def test_a_notebook_shows_the_page_in_a_frame(alignment):
    """What the tokens are must not end the frame, and the page may run its script but no more."""
    alignment.source_tokens[0] = """"'></iframe><b>&amp;"""
    frame = Frame()
    frame.feed(alignment._repr_html_())
    assert frame.attributes["sandbox"] == "allow-scripts"
    page = Page(frame.attributes["srcdoc"])
    assert page.tokens(0) == (alignment.source_tokens, alignment.target_tokens)
    np.testing.assert_allclose(page.weights(0), WEIGHTS)


def test_pharaoh_links_the_largest_weight_of_each_target_token(alignment):
    """ "black" attends most to the end token, so it has no link."""
    assert alignment.to_pharaoh() == "0-1 1-0"


def test_pharaoh_links_all_weights_from_the_threshold_on(alignment):
    assert alignment.to_pharaoh(threshold=0.3) == "0-1 1-0 1-1"
    assert alignment.to_pharaoh(threshold=0.2) == "0-1 0-2 1-0 1-1 2-0"
    assert alignment.to_pharaoh(threshold=1.0) == ""


def test_pharaoh_keeps_special_tokens_where_asked(alignment):
    assert alignment.to_pharaoh(keep_special=True) == "0-1 1-0 3-2 3-3"


def test_pharaoh_counts_the_tokens_of_the_text_alone():
    """Special tokens in front shift the others down."""
    alignment = Alignment(
        source_tokens=["<s>", "x", "y"],
        target_tokens=["<s>", "u"],
        weights=np.array([[1.0, 0.0, 0.0], [0.1, 0.2, 0.7]]),
        source_is_special=[True, False, False],
        target_is_special=[True, False],
    )
    assert alignment.to_pharaoh() == "1-0"
    assert alignment.to_pharaoh(keep_special=True) == "0-0 2-1"


def test_pharaoh_of_nothing_is_empty():
    assert Alignment([], [], np.zeros((0, 0))).to_pharaoh() == ""
    assert Alignment(["a"], [], np.zeros((0, 1))).to_pharaoh() == ""
    assert Alignment([], ["a"], np.zeros((1, 0))).to_pharaoh() == ""


def test_links_come_back_from_their_pharaoh_line(alignment):
    for options in ({}, {"threshold": 0.2}, {"keep_special": True}):
        links = alignment.links(**options)
        assert all(type(number) is int for link in links for number in link)
        assert parse_pharaoh(alignment.to_pharaoh(**options)) == links
    assert alignment.links() == [(0, 1), (1, 0)]


def test_links_of_words_count_words():
    special = [False, False, False, True]
    tokens = ["▁un", "▁ch", "at", "</s>"], ["▁c", "at", "▁a", "</s>"]
    words = Alignment(*tokens, WEIGHTS, special, special).merge_words()
    assert words.to_pharaoh() == "1-0", "by hand: cat 0.3 0.6 0.1, a 0.2 0.2 0.6"
    assert words.to_pharaoh(threshold=0.2) == "0-0 0-1 1-0 1-1"


@pytest.mark.parametrize("threshold", [0, -0.1, 1.5])
def test_thresholds_that_are_no_weights_are_refused(alignment, threshold):
    with pytest.raises(ValueError, match=r"threshold must be in \(0, 1\], got"):
        alignment.to_pharaoh(threshold=threshold)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"one column per source token, \(1, 2\), got \(2, 1\)"):
        Alignment(["a", "b"], ["c"], np.ones((2, 1)))
    with pytest.raises(
        ValueError, match="target_is_special must have one flag per token, 1, got 2"
    ):
        Alignment(["a", "b"], ["c"], np.ones((1, 2)), target_is_special=[True, False])


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (["▁un", "▁ch", "at", "</s>"], ["▁c", "at", "▁a", "</s>"]),
        (["un", "ch", "##at", "</s>"], ["c", "##at", "a", "</s>"]),
        (["un", " ch", "at", "</s>"], ["c", "at", " a", "</s>"]),
    ],
    ids=["metaspace", "wordpiece", "blank"],
)
def test_words_add_up_source_tokens_and_average_target_tokens(source, target):
    special = [False, False, False, True]
    words = Alignment(source, target, WEIGHTS, special, special).merge_words()
    assert words.source_tokens == ["un", "chat", "</s>"]
    assert words.target_tokens == ["cat", "a", "</s>"]
    assert words.source_is_special == words.target_is_special == [False, False, True]
    by_hand = [[0.3, 0.6, 0.1], [0.2, 0.2, 0.6], [0.0, 0.3, 0.7]]
    np.testing.assert_allclose(words.weights, by_hand)


def test_tokens_without_signs_of_words_are_words():
    words = Alignment(["1", "2"], ["a", "b", "c"], np.full((3, 2), 0.5)).merge_words()
    assert (words.source_tokens, words.target_tokens) == (["1", "2"], ["a", "b", "c"])


def test_a_word_does_not_reach_over_a_special_token():
    special = [True, False, False, True, False]
    tokens = ["<de>", "▁a", "b", "</s>", "c"]
    words = Alignment(tokens, ["x"], np.full((1, 5), 0.2), special).merge_words()
    assert words.source_tokens == ["<de>", "ab", "</s>", "c"]
    np.testing.assert_allclose(words.weights, [[0.2, 0.4, 0.2, 0.2]])


def test_words_of_nothing_are_nothing():
    words = Alignment([], [], np.zeros((0, 0))).merge_words()
    assert (words.source_tokens, words.target_tokens) == ([], [])


def test_byte_level_tokens_are_shown_as_characters():
    backend = Tokenizer(models.BPE({"Ġ": 0, "Ã": 1, "©": 2, "Ã©": 3, "ĠÃ©": 4}, [], unk_token="Ġ"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert readable_tokens(tokenizer, [3, 4, 0]) == ["é", "▁é", "▁"]
    assert readable_tokens(tokenizer, [1, 2]) == ["Ã", "©"], "pieces of a character stay"
