"""Links between words become links between tokens, and those a batch of alignments."""

import pytest
import torch

from hf_seqmodels.data import Seq2SeqCollator, Seq2SeqTokenizer, link_tokens, train_tokenizer

SOURCES = ["das  Haus", "ab c"]
TARGETS = ["the house is", "x yz"]


def pair(source_model: str, target_model: str) -> Seq2SeqTokenizer:
    """Return a pair of tokenizers."""
    return Seq2SeqTokenizer.from_pair(
        train_tokenizer(SOURCES, model=source_model), train_tokenizer(TARGETS, model=target_model)
    )


def test_words_that_are_tokens_keep_their_links():
    links = [[(0, 0), (1, 1)], [(1, 0)]]
    assert link_tokens(pair("symbol", "symbol"), SOURCES, TARGETS, links) == links


def test_each_token_of_a_word_is_linked_with_each_of_the_other():
    links = [[(1, 1)], [(0, 1), (1, 0)]]
    found = link_tokens(pair("char", "symbol"), SOURCES, TARGETS, links)
    assert found[0] == [(5, 1), (6, 1), (7, 1), (8, 1)]  # H a u s, behind two blanks
    assert found[1] == [(0, 1), (1, 1), (3, 0)]
    found = link_tokens(pair("word", "char"), ["das Haus"], ["the house is"], [[(1, 2)]])
    assert found == [[(1, 10), (1, 11)]]


def test_links_that_do_not_fit_are_refused():
    tokenizer = pair("symbol", "symbol")
    with pytest.raises(ValueError, match="word 2 of 2 with word 0 of 3"):
        link_tokens(tokenizer, SOURCES[:1], TARGETS[:1], [[(2, 0)]])
    with pytest.raises(ValueError, match="2 sources, 2 targets and 1 lists"):
        link_tokens(tokenizer, SOURCES, TARGETS, [[]])
    assert link_tokens(tokenizer, [], [], []) == []


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_batch_holds_the_links_where_its_tokens_stand(side):
    tokenizer = pair("symbol", "symbol")
    rows = [
        {"input_ids": [4, 5, 6, 2], "labels": [4, 2], "alignments": [0, 0, 3, 1]},
        {"input_ids": [4, 2], "labels": [5, 6, 2], "alignments": [0, 2, 1, 0]},
    ]
    batch = Seq2SeqCollator(tokenizer, padding_side=side)(rows)
    expected = torch.zeros(2, 3, 4)
    shift = 2 if side == "left" else 0
    for row, target, source in ((0, 0, 0), (0, 1, 3), (1, 2, shift), (1, 0, 1 + shift)):
        expected[row, target, source] = 1
    assert torch.equal(batch["alignments"], expected)
    cut = Seq2SeqCollator(tokenizer, max_source_length=2, max_target_length=1)(rows)
    assert cut["alignments"].tolist() == [[[1.0, 0.0]], [[0.0, 1.0]]]
    no_links = Seq2SeqCollator(tokenizer)([{**row, "alignments": []} for row in rows])
    assert no_links["alignments"].sum() == 0
