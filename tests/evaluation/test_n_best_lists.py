"""n-best lists: checked by forced scoring, by generate() and by enumeration."""

import itertools

import pytest
import torch

from hf_seqmodels.evaluation import n_best, score_targets


def assert_equal_to_forced_scoring(lists, model, tokenizer, sources, length_penalty=1.0):
    """Every number, from forced scoring of one pair at a time, without padding."""
    for source, hypotheses in zip(sources, lists, strict=True):
        for hypothesis in hypotheses:
            (alone,) = score_targets(
                model, tokenizer, [source], [hypothesis.token_ids], progress=False
            )
            expected = alone.token_log_probabilities
            assert hypothesis.token_log_probabilities == pytest.approx(expected, rel=5e-6, abs=1e-5)
            assert hypothesis.log_probability == pytest.approx(sum(expected), rel=5e-6, abs=1e-5)
            assert hypothesis.score == pytest.approx(
                sum(expected) / len(expected) ** length_penalty, rel=5e-6, abs=1e-5
            )


@pytest.mark.parametrize("length_penalty", [1.0, 0.3, -0.5, 2.0])
def test_equals_forced_rescoring(model, tokenizer, sources, length_penalty):
    lists = n_best(
        model,
        tokenizer,
        sources,
        num_beams=4,
        length_penalty=length_penalty,
        max_new_tokens=8,
        batch_size=4,
        progress=False,
    )
    assert [len(hypotheses) for hypotheses in lists] == [4] * len(sources)
    assert_equal_to_forced_scoring(lists, model, tokenizer, sources, length_penalty)
    lengths = {len(hypothesis.token_ids) for hypothesis in itertools.chain(*lists)}
    assert length_penalty > 0.5 or len(lengths) > 1, "short outputs, or nothing is tested"


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize("length_penalty", [1.0, 0.5])
def test_scores_and_texts_are_those_of_generate(
    model, tokenizer, sources, early_stopping, length_penalty
):
    settings = {"num_beams": 4, "length_penalty": length_penalty, "early_stopping": early_stopping}
    lists = n_best(
        model,
        tokenizer,
        sources,
        max_new_tokens=7,
        num_return_sequences=3,
        progress=False,
        **settings,
    )
    model.eval()
    for source, hypotheses in zip(sources, lists, strict=True):
        output = model.generate(
            **tokenizer(source, return_tensors="pt", return_token_type_ids=False),
            max_new_tokens=7,
            num_return_sequences=3,
            return_dict_in_generate=True,
            output_scores=True,
            **settings,
        )
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == pytest.approx(output.sequences_scores.tolist(), rel=5e-6, abs=1e-5)
        texts = tokenizer.batch_decode(output.sequences[:, 1:], skip_special_tokens=True)
        assert [hypothesis.text for hypothesis in hypotheses] == texts


def test_hypotheses_are_distinct_ordered_and_end_once(model, tokenizer, sources):
    lists = n_best(model, tokenizer, sources, num_beams=5, max_new_tokens=8, progress=False)
    for hypotheses in lists:
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(hypothesis.token_ids) for hypothesis in hypotheses}) == 5
        for hypothesis in hypotheses:
            ends = [token == 2 for token in hypothesis.token_ids]
            assert not any(ends[:-1])
            assert ends[-1] or len(ends) == 8
            assert len(hypothesis.token_log_probabilities) == len(ends)


def test_wide_beam_is_exhaustive_search(tokenizer):
    """All 1 + 5 * 6 outputs of at most two tokens, scored one by one, give the same best ten."""
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(
        vocab_size=6,
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
        init_std=0.7,
    )
    model = BartForConditionalGeneration(config)
    others = [token for token in range(6) if token != 2]
    outputs = [[2], *([first, second] for first in others for second in range(6))]
    scored = score_targets(model, tokenizer, ["a b"] * len(outputs), outputs, progress=False)
    expected = sorted(scored, key=lambda score: -score.log_probability)[:10]
    (hypotheses,) = n_best(
        model,
        tokenizer,
        ["a b"],
        num_beams=31,
        num_return_sequences=10,
        max_new_tokens=2,
        length_penalty=0.0,
        early_stopping="never",
        progress=False,
    )
    assert [hypothesis.token_ids for hypothesis in hypotheses] == [s.token_ids for s in expected]
    assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx(
        [score.log_probability for score in expected], rel=5e-6, abs=1e-5
    )


@pytest.mark.parametrize(
    "bending",
    [
        {"forced_bos_token_id": 7},
        {"forced_eos_token_id": 2},
        {"forced_bos_token_id": 7, "forced_eos_token_id": 2},
        {"repetition_penalty": 1.7},
        {"no_repeat_ngram_size": 1},
        {"min_new_tokens": 4},
        {"suppress_tokens": [5, 6]},
        {"exponential_decay_length_penalty": (2, 1.5)},
        {"use_cache": False},
        {"eos_token_id": [2, 5]},
        {"do_sample": True, "temperature": 0.7, "top_k": 6},
    ],
    ids=lambda bending: "_".join(bending),
)
def test_numbers_stay_the_models_own_where_the_search_is_bent(bart, tokenizer, sources, bending):
    lists = n_best(
        bart, tokenizer, sources, num_beams=3, max_new_tokens=6, progress=False, **bending
    )
    assert_equal_to_forced_scoring(lists, bart, tokenizer, sources)
    for hypothesis in itertools.chain(*lists):
        if "forced_bos_token_id" in bending:
            assert hypothesis.token_ids[0] == 7
        if "forced_eos_token_id" in bending:
            assert hypothesis.token_ids[-1] == 2
            assert hypothesis.token_log_probabilities[-1] < -1e-3, "forced, yet not certain"
        if "min_new_tokens" in bending:
            assert len(hypothesis.token_ids) >= 4
        if "eos_token_id" in bending:
            assert not {2, 5} & set(hypothesis.token_ids[:-1])


def test_sampling_scores_draws_under_the_unscaled_distribution(model, tokenizer, sources):
    lists = n_best(
        model,
        tokenizer,
        sources,
        num_beams=1,
        do_sample=True,
        num_return_sequences=6,
        temperature=0.5,
        top_p=0.9,
        max_new_tokens=6,
        progress=False,
    )
    assert [len(hypotheses) for hypotheses in lists] == [6] * len(sources)
    assert_equal_to_forced_scoring(lists, model, tokenizer, sources)


def test_greedy_is_a_list_of_one(model, tokenizer, sources):
    lists = n_best(model, tokenizer, sources, num_beams=1, max_new_tokens=6, progress=False)
    assert [len(hypotheses) for hypotheses in lists] == [1] * len(sources)
    assert_equal_to_forced_scoring(lists, model, tokenizer, sources)


def test_lists_are_shorter_where_no_more_outputs_exist(bart, tokenizer):
    """Two tokens allowed for one step: stock beam search fills up with what it ruled out."""

    def allow_two(batch_id, ids):
        return [5, 6]

    for beams in (2, 5):
        (hypotheses,) = n_best(
            bart,
            tokenizer,
            ["a b"],
            num_beams=beams,
            max_new_tokens=1,
            prefix_allowed_tokens_fn=allow_two,
            progress=False,
        )
        assert sorted(hypothesis.token_ids for hypothesis in hypotheses) == [[5], [6]]
    (hypotheses,) = n_best(
        bart,
        tokenizer,
        ["a b"],
        num_beams=6,
        max_new_tokens=2,
        length_penalty=3.0,
        prefix_allowed_tokens_fn=allow_two,
        progress=False,
    )
    found = sorted(hypothesis.token_ids for hypothesis in hypotheses)
    assert found == [[5, 5], [5, 6], [6, 5], [6, 6]]


@pytest.mark.parametrize("length_penalty", [1.0, 6.0, -6.0])
def test_one_allowed_sequence_is_a_list_of_one(bart, tokenizer, length_penalty):
    """The penalty scales what generate() subtracts to rule a hypothesis out, too."""
    path = [5, 6, 7, 2]

    def follow(batch_id, ids):
        step = len(ids) - 1
        return [path[step]] if step < len(path) else [2]

    (hypotheses,) = n_best(
        bart,
        tokenizer,
        ["a b"],
        num_beams=4,
        max_new_tokens=6,
        length_penalty=length_penalty,
        prefix_allowed_tokens_fn=follow,
        progress=False,
    )
    assert [hypothesis.token_ids for hypothesis in hypotheses] == [path]


def test_more_hypotheses_than_beams_are_refused(bart, tokenizer):
    with pytest.raises(ValueError, match=r"at most num_beams=3, got 4. Raise num_beams, or sample"):
        n_best(bart, tokenizer, ["a"], num_beams=3, num_return_sequences=4)


def test_arguments_that_have_no_meaning_here_are_refused(bart, tokenizer):
    with pytest.raises(ValueError, match="input_ids cannot be passed on"):
        n_best(bart, tokenizer, ["a"], input_ids=torch.ones(1, 1))
    with pytest.raises(ValueError, match=r"generation_config cannot be passed on.*one by one"):
        n_best(bart, tokenizer, ["a"], generation_config=bart.generation_config)


def test_no_sources_have_no_hypotheses(bart, tokenizer):
    assert n_best(bart, tokenizer, [], progress=False) == []
