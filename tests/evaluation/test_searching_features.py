"""What `beam_search` adds, through n-best lists, corpus decoding and the pipeline."""

import numpy as np
import pytest
from transformers import pipeline

from hf_seqmodels.decoding import beam_search, encode_phrases
from hf_seqmodels.evaluation import alignments, decode_corpus, n_best

QUIET = {"max_new_tokens": 6, "progress": False}
SOURCES = ["a b c", "d", "", "e f g h i j a"]


@pytest.fixture
def model(make_model):
    return make_model("transformer", 1).eval()


@pytest.mark.parametrize(
    "options",
    [
        {"coverage_penalty": 0.3},
        {"coverage_penalty": 0.2, "length_normalization": "gnmt", "length_penalty": 0.6},
        {"num_beam_groups": 2, "diversity_penalty": 0.5},
    ],
)
def test_scores_of_n_best_lists_are_those_of_the_search(model, tokenizer, options):
    lists = n_best(model, tokenizer, SOURCES, num_beams=4, batch_size=3, **options, **QUIET)
    for source, hypotheses in zip(SOURCES, lists, strict=True):
        outputs = model.generate(
            **tokenizer(source, return_tensors="pt"),
            custom_generate=beam_search,
            num_beams=4,
            num_return_sequences=4,
            max_new_tokens=6,
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )
        assert [one.score for one in hypotheses] == pytest.approx(
            outputs.sequences_scores.tolist(), abs=2e-5
        )
        texts = tokenizer.batch_decode(outputs.sequences, skip_special_tokens=True)
        assert sorted(one.text for one in hypotheses) == sorted(texts)


def test_phrases_go_with_their_sources(model, tokenizer):
    phrases = [["c d"], [], ["m", [5, 6]], ["k", "l"]]
    texts = decode_corpus(
        model, tokenizer, SOURCES, num_beams=3, batch_size=2, must_include=phrases, **QUIET
    )
    lists = n_best(
        model, tokenizer, SOURCES, num_beams=3, batch_size=3, must_include=phrases, **QUIET
    )
    wanted = [["c d"], [], ["m", "b c"], ["k", "l"]]
    for text, hypotheses, parts in zip(texts, lists, wanted, strict=True):
        for output in [text, *(one.text for one in hypotheses)]:
            assert all(f" {part} " in f" {output} " for part in parts)


def test_alignments_are_those_of_the_search(model, tokenizer):
    search = {"num_beams": 3, "coverage_penalty": 0.4, "must_include": [["c d"], [], ["m"], ["k"]]}
    found = alignments(model, tokenizer, SOURCES, batch_size=2, **search, **QUIET)
    lists = n_best(model, tokenizer, SOURCES, num_return_sequences=1, **search, **QUIET)
    rows = [hypotheses[0].token_ids for hypotheses in lists]
    forced = alignments(model, tokenizer, SOURCES, rows, progress=False)
    for one, other in zip(found, forced, strict=True):
        assert one.target_tokens == other.target_tokens
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)
    assert "m" in found[2].target_tokens and "k" in found[3].target_tokens
    with pytest.raises(ValueError, match="nothing is generated, so must_include has no effect"):
        alignments(model, tokenizer, ["a"], ["b"], must_include=[["c"]])


def test_phrases_must_be_lists_by_source(model, tokenizer):
    for wrong in ("a", ["a"]):
        with pytest.raises(ValueError, match="one list of phrases per source, got"):
            n_best(model, tokenizer, ["a"], must_include=wrong)
    with pytest.raises(ValueError, match="one list of phrases per source, 1, got 2"):
        decode_corpus(model, tokenizer, ["a"], must_include=[[], []])


def test_the_pipeline_takes_what_generate_takes(model, tokenizer):
    generate = pipeline("seq2seq-generation", model=model, tokenizer=tokenizer)
    outputs = generate(
        SOURCES,
        batch_size=2,
        custom_generate=beam_search,
        must_include=encode_phrases(tokenizer, ["c d"]),
        num_beams=4,
        num_beam_groups=2,
        diversity_penalty=0.3,
        num_return_sequences=2,
        max_new_tokens=6,
        return_scores=True,
    )
    texts = [one["generated_text"] for source in outputs for one in source]
    assert len(texts) == 8 and all("c d" in text for text in texts)
