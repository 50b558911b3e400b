"""Sub-words drawn anew at every reading."""

import pytest
from tokenizers import models

from hf_seqmodels.data import (
    ResampledPairs,
    Seq2SeqCollator,
    Seq2SeqTokenizer,
    train_tokenizer,
    with_bpe_dropout,
)

TEXTS = ["lower lowest slow", "newer newest wide", "slower wider low new"] * 3


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, model="bpe", vocab_size=40)


@pytest.fixture(scope="module")
def pair(tokenizer):
    return Seq2SeqTokenizer.from_pair(train_tokenizer(TEXTS, model="char"), tokenizer)


def test_every_reading_cuts_anew_and_means_the_same_text(tokenizer):
    rows = ResampledPairs(TEXTS, TEXTS, with_bpe_dropout(tokenizer, 0.5))
    readings = [rows[0]["input_ids"] for _ in range(20)]
    assert len({tuple(one) for one in readings}) > 1
    for ids in readings:
        assert ids[-1] == tokenizer.eos_token_id
        assert tokenizer.decode(ids, skip_special_tokens=True) == TEXTS[0]
    assert max(map(len, readings)) > len(tokenizer(TEXTS[0])["input_ids"])


def test_the_tokenizer_itself_keeps_every_merge(tokenizer, tmp_path):
    before = tokenizer(TEXTS)["input_ids"]
    with_bpe_dropout(tokenizer, 0.9)(TEXTS)
    assert tokenizer(TEXTS)["input_ids"] == before
    tokenizer.save_pretrained(tmp_path)
    assert '"dropout": null' in (tmp_path / "tokenizer.json").read_text(encoding="utf-8")


def test_rows_are_those_of_a_dataset_and_are_cut_to_their_limits(pair):
    rows = ResampledPairs(
        TEXTS, TEXTS[::-1], with_bpe_dropout(pair, 0.3), max_source_length=5, max_target_length=4
    )
    assert len(rows) == len(TEXTS)
    batch = rows.__getitems__([2, 0])
    for row, number in zip(batch, (2, 0), strict=True):
        cut = pair([TEXTS[number]], truncation=True, max_length=5)["input_ids"][0]
        assert row["input_ids"] == cut  # characters have no merges
        assert row["attention_mask"] == [1] * 5
        assert len(row["labels"]) <= 4
    assert Seq2SeqCollator(pair)(batch)["labels"].shape[0] == 2


def test_of_a_pair_the_sides_that_merge_leave_out_merges(pair):
    dropped = with_bpe_dropout(pair, 0.25)
    assert isinstance(dropped.target_tokenizer.backend_tokenizer.model, models.BPE)
    assert dropped.target_tokenizer.backend_tokenizer.model.dropout == 0.25
    assert pair.target_tokenizer.backend_tokenizer.model.dropout is None


def test_what_cannot_be_honoured_is_refused(tokenizer):
    for rate in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match="bpe_dropout must lie between 0 and 1"):
            with_bpe_dropout(tokenizer, rate)
    with pytest.raises(ValueError, match="only a fast BPE tokenizer has, got WordLevel"):
        with_bpe_dropout(train_tokenizer(TEXTS, model="char"), 0.1)
    with pytest.raises(ValueError, match="got 1 for 2"):
        ResampledPairs(["a", "b"], ["a"], tokenizer)


@pytest.mark.parametrize("model", ["bpe", "unigram"])
def test_punctuation_can_be_kept_apart_from_words(model):
    texts = ["A dog runs.", "Two dogs run, one sleeps.", "It's a well-known dog."] * 4
    joined = train_tokenizer(texts, model=model, vocab_size=60)
    apart = train_tokenizer(texts, model=model, vocab_size=60, split_punctuation=True)
    for text in texts[:3]:
        assert apart.decode(apart(text)["input_ids"], skip_special_tokens=True) == text
    edge = [
        token for token in apart.get_vocab() if token.strip("\u2581")[:-1] and token[-1] in ".,"
    ]
    assert not edge
    assert any(token[-1] == "." and len(token) > 2 for token in joined.get_vocab())
    with pytest.raises(ValueError, match="for the models bpe and unigram, got 'word'"):
        train_tokenizer(texts, model="word", split_punctuation=True)
