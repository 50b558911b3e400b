"""Forced scoring against a loop over the chain rule, for every family."""

import pytest
import torch

from hf_seqmodels.evaluation import score_targets


def score_step_by_step(model, tokenizer, source, token_ids, start):
    """log p(y_t | y_<t, x) one prefix at a time, one row at a time, without padding."""
    encoded = tokenizer(source, return_tensors="pt", return_token_type_ids=False)
    log_probabilities = []
    with torch.no_grad():
        for step, token in enumerate(token_ids):
            prefix = torch.tensor([[start, *token_ids[:step]]])
            logits = model(**encoded, decoder_input_ids=prefix, use_cache=False).logits[0, -1]
            log_probabilities.append(logits.double().log_softmax(dim=-1)[token].item())
    return log_probabilities


def test_equals_the_chain_rule_one_prefix_at_a_time(model, tokenizer, sources):
    targets = ["b", "", "c d e", "a a a a", "f", "g h"]
    scores = score_targets(model, tokenizer, sources, targets, batch_size=4, progress=False)
    model.eval()
    start = model.generation_config.decoder_start_token_id
    for source, target, score in zip(sources, targets, scores, strict=True):
        assert score.token_ids == tokenizer(target)["input_ids"]
        expected = score_step_by_step(model, tokenizer, source, score.token_ids, start)
        assert score.token_log_probabilities == pytest.approx(expected, abs=1e-5)
        assert score.log_probability == pytest.approx(sum(expected), abs=1e-5)


def test_batches_and_padding_side_change_nothing(model, tokenizer, sources):
    targets = ["b", "", "c d e", "a a a a", "f", "g h"]
    expected = score_targets(model, tokenizer, sources, targets, batch_size=1, progress=False)
    tokenizer.padding_side = "left"
    scores = score_targets(model, tokenizer, sources, targets, batch_size=6, progress=False)
    for score, alone in zip(scores, expected, strict=True):
        assert score.token_log_probabilities == pytest.approx(
            alone.token_log_probabilities, abs=1e-5
        )


def test_probabilities_of_all_short_targets_sum_to_one(bart, tokenizer):
    """All tokens at the first step, and all continuations of one of them."""
    every_token = [[token] for token in range(bart.config.vocab_size)]
    scores = score_targets(bart, tokenizer, ["a b"] * len(every_token), every_token, progress=False)
    total = sum(torch.tensor(score.log_probability).exp() for score in scores)
    assert total.item() == pytest.approx(1.0, abs=1e-5)


def test_token_ids_are_taken_as_they_are(bart, tokenizer):
    as_text, as_ids = score_targets(bart, tokenizer, ["a", "a"], ["b c", [5, 6, 2]], progress=False)
    assert as_text.token_ids == as_ids.token_ids == [5, 6, 2]
    assert as_text.log_probability == pytest.approx(as_ids.log_probability, abs=1e-6)
    (unfinished,) = score_targets(bart, tokenizer, ["a"], [[5, 6]], progress=False)
    assert unfinished.token_log_probabilities == pytest.approx(
        as_ids.token_log_probabilities[:2], abs=1e-5
    )


def test_an_empty_target_without_end_token_is_certain(bart, tokenizer):
    score, _ = score_targets(bart, tokenizer, ["a", "b"], [[], [5, 2]], progress=False)
    assert (score.token_ids, score.log_probability, score.token_log_probabilities) == ([], 0, [])
    (score,) = score_targets(bart, tokenizer, ["a"], [[]], progress=False)
    assert score.log_probability == 0


def test_only_one_target_per_source_is_taken(bart, tokenizer):
    with pytest.raises(ValueError, match="one target per source, got 2 sources and 1 targets"):
        score_targets(bart, tokenizer, ["a", "b"], ["c"])
    with pytest.raises(ValueError, match=r"targets must be a list of texts, got one text"):
        score_targets(bart, tokenizer, ["a", "b"], "cd")


def test_no_pairs_have_no_scores(bart, tokenizer):
    assert score_targets(bart, tokenizer, [], [], progress=False) == []


def test_a_model_without_start_token_is_refused(bart, tokenizer):
    for config in (bart.generation_config, bart.config):
        config.decoder_start_token_id = config.bos_token_id = None
    with pytest.raises(ValueError, match="needs decoder_start_token_id to score targets"):
        score_targets(bart, tokenizer, ["a"], ["b"], progress=False)
