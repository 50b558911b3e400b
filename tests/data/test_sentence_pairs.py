"""Pairs for next-sentence prediction: all text once, no true pair called random; templates."""

import math

import numpy as np
import pytest
from transformers import RobertaTokenizerFast

from hf_seqmodels.data import RowTemplate, next_sentence_pairs, train_tokenizer


def documents(count, seed=0, longest=9):
    """Documents whose tokens all differ, so that a token tells where it is from."""
    random, token, made = np.random.default_rng(seed), 0, []
    for _ in range(count):
        made.append([])
        for size in random.integers(1, longest + 1, random.integers(1, 30)):
            made[-1].append(list(range(token, token + size)))
            token += int(size)
    return made


@pytest.mark.parametrize("longest", [6, 40])
def test_all_text_stands_once_in_a_first_or_a_true_second_text(longest):
    texts = documents(20, longest=longest)
    pairs = list(next_sentence_pairs(texts, 24, seed=1))
    used = [id_ for pair in pairs for id_ in pair.first + ([] if pair.is_random else pair.second)]
    expected = [token for document in texts for sentence in document for token in sentence]
    assert used == expected
    for pair in pairs:
        assert pair.first and pair.second and len(pair.first) + len(pair.second) <= 24
        own = {token for sentence in texts[pair.document] for token in sentence}
        assert set(pair.first) <= own
        if pair.is_random:
            assert not own & set(pair.second)
        else:  # it begins where the first text ends
            assert pair.second[0] == pair.first[-1] + 1


def test_half_of_the_pairs_are_random_and_some_are_short():
    texts = [document * 12 for document in documents(30, seed=2) if len(document) > 9]
    pairs = list(next_sentence_pairs(texts, 40))
    share = sum(pair.is_random for pair in pairs) / len(pairs)
    assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(len(pairs)) + len(texts) / len(pairs)
    sources = {pair.second[0] for pair in pairs if pair.is_random}
    assert len(sources) > 100  # from all over the documents
    short = [len(pair.first) + len(pair.second) < 24 for pair in pairs]
    assert 0.02 < np.mean(short) < 0.12
    long = list(next_sentence_pairs(texts, 40, short_probability=0.0, random_probability=0.0))
    full = [len(pair.first) + len(pair.second) for pair in long]
    assert np.mean([size > 31 for size in full]) > 0.9


def test_pairs_follow_from_seed_and_epoch():
    texts = documents(12)
    first = list(next_sentence_pairs(texts, 20, seed=3))
    assert list(next_sentence_pairs(texts, 20, seed=3)) == first
    assert list(next_sentence_pairs(texts, 20, seed=4)) != first
    assert list(next_sentence_pairs(texts, 20, seed=3, epoch=1)) != first


def test_what_truly_follows_is_never_called_random():
    texts = [[[1, 2]] * 40, [[1, 2]] * 40]  # nothing else can be drawn
    pairs = list(next_sentence_pairs(texts, 8, random_probability=1.0))
    assert len(pairs) > 10
    assert sum(pair.is_random for pair in pairs) <= 2  # where a document ends


def test_templates_are_what_tokenizers_write():
    bert = train_tokenizer(["the cat sat on the mat"], model="wordpiece", style="bert")
    ids = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4, "a": 5, "b": 6}
    roberta = RobertaTokenizerFast(vocab=ids, merges=[])
    for tokenizer, first, second in ((bert, "the cat", "sat on"), (roberta, "ab", "b")):
        template = RowTemplate.of(tokenizer)
        alone = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (first, second)]
        assert template.single(alone[0])["input_ids"] == tokenizer(first)["input_ids"]
        expected = tokenizer(first, second)
        del expected["attention_mask"]
        assert template.pair(*alone) == dict(expected)
        assert template.room(20, pair=False) == 18
        used = len(expected["input_ids"]) - sum(map(len, alone))
        assert template.room(20, pair=True) == 20 - used


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([[[1]]], 8), "must be 2 documents at least, got 1 with text"),
        (([[[1]], [[]]], 8), "got 1 with text. Check what separates documents"),
        (([[[1]], [[2]]], 1), "max_tokens must be at least 2"),
    ],
)
def test_documents_that_make_no_pairs_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        list(next_sentence_pairs(*given))
    with pytest.raises(ValueError, match="short_probability must be between 0 and 1, got 2"):
        list(next_sentence_pairs([[[1]], [[2]]], 8, short_probability=2))
