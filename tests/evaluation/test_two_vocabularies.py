"""Every recurrent variant, with one vocabulary to read and another to write."""

import itertools

import numpy as np
import pytest
import torch

from hf_seqmodels import RnnSeq2SeqConfig, RnnSeq2SeqForConditionalGeneration
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
def pair(request):
    """A tokenizer with a target side, as `Seq2SeqTokenizer` has one; here with other words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    def make(words):
        vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
        vocabulary |= {word: 4 + index for index, word in enumerate(words)}
        backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        backend.post_processor = processors.TemplateProcessing(
            single="$A </s>", special_tokens=[("</s>", 2)]
        )
        return PreTrainedTokenizerFast(
            tokenizer_object=backend,
            pad_token="<pad>",
            bos_token="<s>",
            eos_token="</s>",
            unk_token="<unk>",
        )

    source_side = make("abcdefghijklm")
    source_side.target_tokenizer = make("TUVWXYZ")
    return source_side


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
    (score,) = score_targets(model, pair, ["a b"], ["U V"], progress=False)
    assert score.token_ids == [5, 6, 2]
    (alignment,) = alignments(model, pair, ["a b"], ["U V"], progress=False)
    assert alignment.source_tokens == ["a", "b", "</s>"]
    assert alignment.target_tokens == ["U", "V", "</s>"]
    texts = decode_corpus(model, pair, SOURCES, max_new_tokens=6, progress=False)
    lists = n_best(model, pair, SOURCES, num_beams=1, max_new_tokens=6, progress=False)
    assert texts == [hypotheses[0].text for hypotheses in lists]
    assert set(" ".join(texts).split()) <= {*"TUVWXYZ"}
    assert any(texts)
