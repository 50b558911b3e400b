"""Every recurrent variant, with one vocabulary to read and another to write."""

import itertools

import numpy as np
import pytest
import torch

from hf_seqmodels import RnnSeq2SeqConfig, RnnSeq2SeqForConditionalGeneration
from hf_seqmodels.data import Seq2SeqTokenizer, train_tokenizer
from hf_seqmodels.evaluation import alignments, decode_corpus, n_best, score_targets

SOURCES = ["a b c", "d", "", "e f g h i j a", "k l"]
SCORERS = ("dot", "scaled_dot", "general", "additive", "multi_head", None)
CELLS = ("elman", "gru", "lstm")


def make_model(scorer, cell, query):
    """Separate vocabularies of 17 and 11 tokens; far from uniform."""
    torch.manual_seed(3)
    config = RnnSeq2SeqConfig(
        vocab_size=17,
        decoder_vocab_size=11,
        embedding_size=6,
        hidden_size=8,
        num_decoder_layers=2,
        cell_type=cell,
        attention_scorer=scorer,
        attention_query=query,
        num_attention_heads=2 if scorer == "multi_head" else 1,
        input_feeding=query == "current" and cell == "gru" and scorer is not None,
        reverse_source=cell == "elman",
        layer_connection="residual" if cell == "lstm" else "none",
        initializer_range=1.0,
    )
    model = RnnSeq2SeqForConditionalGeneration(config).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(5.0)
    return model


def variants(scorer):
    queries = ("current",) if scorer is None else ("current", "previous")
    for cell, query in itertools.product(CELLS, queries):
        yield make_model(scorer, cell, query)


@pytest.fixture
def pair():
    """The source reads a to m, the target writes T to Z."""
    source_side = train_tokenizer(["a b c d e f g h i j k l m"], model="symbol")
    target_side = train_tokenizer(["T U V W X Y Z"], model="symbol")
    assert (len(source_side), len(target_side)) == (17, 11)
    return Seq2SeqTokenizer.from_pair(source_side, target_side)


@pytest.mark.parametrize("scorer", SCORERS)
def test_n_best_lists_equal_forced_scoring(pair, scorer):
    for model in variants(scorer):
        lists = n_best(model, pair, SOURCES, num_beams=3, max_new_tokens=6, progress=False)
        for source, hypotheses in zip(SOURCES, lists, strict=True):
            for hypothesis in hypotheses:
                (alone,) = score_targets(
                    model, pair, [source], [hypothesis.token_ids], progress=False
                )
                assert hypothesis.token_log_probabilities == pytest.approx(
                    alone.token_log_probabilities, abs=1e-5
                )
                assert set(hypothesis.text.split()) <= {*"TUVWXYZ"}


@pytest.mark.parametrize("scorer", SCORERS[:-1])
def test_alignments_follow_the_winning_beam(pair, scorer):
    for model in variants(scorer):
        found = alignments(model, pair, SOURCES, num_beams=3, max_new_tokens=6, progress=False)
        for source, alignment in zip(SOURCES, found, strict=True):
            with torch.no_grad():
                output = model.generate(
                    **pair(source, return_tensors="pt", return_token_type_ids=False),
                    num_beams=3,
                    max_new_tokens=6,
                    output_attentions=True,
                    return_dict_in_generate=True,
                )
            expected = [
                weights[0][beam, :, -1].mean(dim=0).numpy()
                for beam, weights in zip(
                    output.beam_indices[0].tolist(), output.cross_attentions, strict=False
                )
            ]
            np.testing.assert_allclose(alignment.weights, expected, atol=1e-5)
            assert alignment.source_tokens == [*source.split(), "</s>"]
            assert set(alignment.target_tokens) <= {*"TUVWXYZ", *pair.all_special_tokens}


def test_texts_are_encoded_and_decoded_by_the_side_they_belong_to(pair):
    model = make_model("general", "gru", "current")
    u, v = pair.target_tokenizer.convert_tokens_to_ids(["U", "V"])
    (score,) = score_targets(model, pair, ["a b"], ["U V"], progress=False)
    assert score.token_ids == [u, v, 2]
    (alignment,) = alignments(model, pair, ["a b"], ["U V"], progress=False)
    assert alignment.source_tokens == ["a", "b", "</s>"]
    assert alignment.target_tokens == ["U", "V", "</s>"]
    texts = decode_corpus(model, pair, SOURCES, max_new_tokens=6, progress=False)
    lists = n_best(model, pair, SOURCES, num_beams=1, max_new_tokens=6, progress=False)
    assert texts == [hypotheses[0].text for hypotheses in lists]
    assert set(" ".join(texts).split()) <= {*"TUVWXYZ"}
    assert any(texts)


@pytest.mark.parametrize("kind", ["char", "symbol", "word", "bpe", "wordpiece", "unigram"])
def test_every_kind_of_tokenizer_of_the_package_serves(kind):
    """Also alone, with one vocabulary; words of an alignment are those of the texts."""
    texts = ["le chat noir dort", "chat chat dort", "un chien noir"]
    tokenizer = train_tokenizer(texts, model=kind, vocab_size=None if kind == "char" else 30)
    torch.manual_seed(0)
    config = RnnSeq2SeqConfig(vocab_size=len(tokenizer), embedding_size=4, hidden_size=6)
    model = RnnSeq2SeqForConditionalGeneration(config).eval()
    for text, score in zip(
        texts, score_targets(model, tokenizer, texts, texts, progress=False), strict=True
    ):
        assert score.token_ids == tokenizer(text)["input_ids"]
        assert tokenizer.decode(score.token_ids, skip_special_tokens=True).strip() == text
    for text, alignment in zip(
        texts, alignments(model, tokenizer, texts, texts, progress=False), strict=True
    ):
        words = alignment.merge_words()
        assert words.source_tokens == words.target_tokens == [*text.split(), "</s>"]
        np.testing.assert_allclose(words.weights.sum(axis=1), 1, atol=1e-5)
    (hypotheses,) = n_best(
        model, tokenizer, ["le chat"], num_beams=2, max_new_tokens=5, progress=False
    )
    assert len(hypotheses) == 2
