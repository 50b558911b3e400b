"""Minimum Bayes risk against sums worked by hand and by loops."""

import pytest
import torch

from hf_seqmodels.decoding import decode_minimum_risk, minimum_bayes_risk
from hf_seqmodels.decoding.minimum_risk import UTILITIES
from hf_seqmodels.evaluation import n_best


def distance(one, other):
    """Levenshtein distance, by its recursion."""
    if not one or not other:
        return len(one) + len(other)
    return min(
        distance(one[1:], other[1:]) + (one[0] != other[0]),
        distance(one[1:], other) + 1,
        distance(one, other[1:]) + 1,
    )


def test_expected_utility_is_the_weighted_sum():
    candidates, weights = ["abc", "abk", "x", "abc", "xbk"], [1.0, 2.0, 4.0, 0.5, 0.0]
    choice = minimum_bayes_risk(candidates, weights=weights, utility="edit")
    for text, found in zip(choice.candidates, choice.expected_utilities, strict=True):
        expected = sum(
            weight / 7.5 * -distance(text, other)
            for other, weight in zip(candidates, weights, strict=True)
        )
        assert found == pytest.approx(expected)
    assert choice.expected_utilities == sorted(choice.expected_utilities, reverse=True)
    assert dict(zip(choice.candidates, choice.weights, strict=True)) == pytest.approx(
        {"abc": 0.2, "abk": 2 / 7.5, "x": 4 / 7.5, "xbk": 0.0}
    )


def test_the_choice_is_in_the_middle_and_not_the_most_frequent():
    texts = ["the cat sat on", "the cat sat in", "the cat sat up", "z", "z"]
    assert minimum_bayes_risk(texts, utility="exact").text == "z"
    for utility in ("chrf", "edit"):
        assert minimum_bayes_risk(texts, utility=utility).text == "the cat sat on"
    assert minimum_bayes_risk(texts, utility=lambda one, other: -len(one)).text == "z"


def test_utilities_are_those_of_sacrebleu():
    import sacrebleu

    pair = "the cat sat down", "a cat sat on it"
    assert UTILITIES["chrf"](*pair) == sacrebleu.sentence_chrf(pair[0], [pair[1]]).score
    assert UTILITIES["bleu"](*pair) == sacrebleu.sentence_bleu(pair[0], [pair[1]]).score


@pytest.mark.parametrize("kind", ["samples", "n_best"])
def test_decoding_chooses_among_what_the_model_writes(rnn, tokenizer, kind):
    sources = ["a b c", "", "d"]
    options = {"max_new_tokens": 5, "progress": False, "batch_size": 2}
    torch.manual_seed(0)
    choices = decode_minimum_risk(
        rnn, tokenizer, sources, candidates=kind, num_candidates=5, utility="edit", **options
    )
    torch.manual_seed(0)
    search = {"num_beams": 5} if kind == "n_best" else {"num_beams": 1, "do_sample": True}
    search |= {} if kind == "n_best" else {"top_k": 0}
    lists = n_best(rnn, tokenizer, sources, num_return_sequences=5, **search, **options)
    for choice, hypotheses in zip(choices, lists, strict=True):
        texts = [one.text for one in hypotheses]
        weights = None
        if kind == "n_best":
            weights = torch.tensor([one.log_probability for one in hypotheses]).softmax(0).tolist()
        expected = minimum_bayes_risk(texts, weights=weights, utility="edit")
        assert choice.text == expected.text
        assert choice.expected_utilities == pytest.approx(expected.expected_utilities, rel=1e-5)


def test_what_has_no_meaning_is_refused(rnn, tokenizer):
    with pytest.raises(ValueError, match="at least one text, got"):
        minimum_bayes_risk([])
    with pytest.raises(ValueError, match="chrf, bleu, edit, exact or a function, got 'ter'"):
        minimum_bayes_risk(["a"], utility="ter")
    for weights in ([1.0], [-1.0, 2.0], [0.0, 0.0]):
        with pytest.raises(ValueError, match="of at least 0 for each candidate, 2, and one above"):
            minimum_bayes_risk(["a", "b"], weights=weights)
    with pytest.raises(ValueError, match="'samples' or 'n_best', got 'beams'"):
        decode_minimum_risk(rnn, tokenizer, ["a"], candidates="beams")
    with pytest.raises(ValueError, match="num_candidates must be at least 1, got 0"):
        decode_minimum_risk(rnn, tokenizer, ["a"], num_candidates=0)
    with pytest.raises(ValueError, match="num_beams follows from candidates"):
        decode_minimum_risk(rnn, tokenizer, ["a"], num_beams=3)
