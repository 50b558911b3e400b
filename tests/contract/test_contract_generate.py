"""Contract, line "cache": every mode of generate() runs with and without a cache, keeps its
promise, ends at an end token and pads behind it."""

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from family_cases import Case
from family_grids import representative_cases
from generation_inputs import generate, prompt_alone, prompts, written
from hf_seqmodels.data import train_tokenizer
from plain_search import end_ids, greedy, until_end

STEPS = 8
FEW = (
    "bahdanau",
    "luong",
    "sutskever",
    "gru_multi_head_previous_dense",
    "all_tied",
    "other_ids_and_sizes",
    "gpt2",
    "press",
)
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beam": {"num_beams": 3},
    "beam_short": {"num_beams": 3, "length_penalty": -1.0},
    "beam_long": {"num_beams": 3, "length_penalty": 2.0},
    "beam_early": {"num_beams": 3, "early_stopping": True},
    "beam_never": {"num_beams": 3, "early_stopping": "never"},
    "beam_several": {"num_beams": 3, "num_return_sequences": 2},
    "beam_sample": {"num_beams": 3, "do_sample": True},
    "sample": {"do_sample": True},
    "sample_several": {"do_sample": True, "num_return_sequences": 4},
    "temperature": {"do_sample": True, "temperature": 0.5},
    "top_k": {"do_sample": True, "top_k": 3},
    "top_p": {"do_sample": True, "top_p": 0.6, "top_k": 0},
    "min_p": {"do_sample": True, "min_p": 0.4, "top_k": 0},
    "repetition_penalty": {"repetition_penalty": 1.8},
    "bad_words": {"bad_words_ids": [[5], [6], [8, 9]], "num_beams": 2},
    "prefix": {"prefix_allowed_tokens_fn": lambda row, ids: [2, 4, 6, 8], "num_beams": 2},
    "no_repeat": {"no_repeat_ngram_size": 2, "num_beams": 2},
    "min_length": {"min_new_tokens": 5},
}


@dataclass
class Written:
    """What one call of generate() gave.

    Args:
        outputs: the whole answer.
        tokens: what was written, (rows, steps).
    """

    outputs: Any
    tokens: torch.Tensor

    def sequences(self, config) -> list[list[int]]:
        """Return every row up to its end token."""
        return [until_end(row, config) for row in self.tokens]


def write(case: Case, model, **options) -> Written:
    """Call generate() on the rows of a case, seeded."""
    torch.manual_seed(0)
    inputs = prompts(case)
    outputs = model.generate(
        **inputs,
        max_new_tokens=STEPS,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
        **options,
    )
    return Written(outputs, written(case, inputs, outputs.sequences))


def assert_ended_and_padded(result: Written, config, *, is_beam: bool):
    """Assert that nothing but padding follows an end token, and that only the limit ends a row
    without one."""
    fillers = {config.pad_token_id}
    if is_beam and config.pad_token_id == 0:
        fillers |= end_ids(config)  # transformers takes the pad id 0 for none
    for row, sequence in zip(result.tokens.tolist(), result.sequences(config), strict=True):
        assert set(row[len(sequence) :]) <= fillers
        assert sequence[-1] in end_ids(config) or len(sequence) == STEPS


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", representative_cases("cache", only=FEW, generates=True))
def test_a_mode_writes_the_same_with_and_without_a_cache_and_pads_behind_the_end(case, mode):
    model = case.model()
    options = MODES[mode]
    results = [write(case, model, **options, use_cache=use_cache) for use_cache in (True, False)]
    num_rows = len(case.rows()) * options.get("num_return_sequences", 1)
    for result in results:
        assert result.tokens.shape[0] == num_rows
        assert_ended_and_padded(result, model.config, is_beam=options.get("num_beams", 1) > 1)
    assert torch.equal(results[0].tokens, results[1].tokens)


@pytest.mark.parametrize("case", representative_cases("cache", generates=True))
def test_sampled_rows_of_one_batch_end_early_and_late(case):
    model = case.model()
    result = write(case, model, do_sample=True, num_return_sequences=30)
    assert_ended_and_padded(result, model.config, is_beam=False)
    lengths = {len(sequence) for sequence in result.sequences(model.config)}
    assert len(lengths) > 1


few_cases = pytest.mark.parametrize("case", representative_cases("cache", only=FEW, generates=True))


def sampled_distributions(result: Written, config) -> list[tuple[int, torch.Tensor]]:
    """Return (token, distribution before any filter) of every step of every row up to its end."""
    steps = []
    for index, sequence in enumerate(result.sequences(config)):
        for token, logits in zip(sequence, result.outputs.logits, strict=False):
            steps.append((token, logits[index].softmax(dim=-1)))
    return steps


@few_cases
def test_top_k_samples_among_the_k_likeliest(case):
    model = case.model()
    result = write(case, model, **MODES["top_k"], num_return_sequences=5)
    for token, distribution in sampled_distributions(result, model.config):
        assert token in distribution.topk(3).indices


@few_cases
def test_top_p_samples_in_the_smallest_set_with_that_mass(case):
    model = case.model()
    result = write(case, model, **MODES["top_p"], num_return_sequences=5)
    for token, distribution in sampled_distributions(result, model.config):
        likelier = distribution[distribution > distribution[token]]
        assert likelier.sum() < 0.6


@few_cases
def test_min_p_samples_no_token_far_below_the_likeliest(case):
    model = case.model()
    result = write(case, model, **MODES["min_p"], num_return_sequences=5)
    for token, distribution in sampled_distributions(result, model.config):
        assert distribution[token] >= 0.4 * distribution.max()


@few_cases
def test_a_temperature_divides_the_logits(case):
    model = case.model()
    result = write(case, model, **MODES["temperature"], top_k=0)
    for scores, logits in zip(result.outputs.scores, result.outputs.logits, strict=True):
        torch.testing.assert_close(scores, logits / 0.5)
    cold = generate(case, model, prompts(case), do_sample=True, temperature=1e-3, max_new_tokens=4)
    expected = [greedy(case, model, row, 4) for row in case.rows()]
    assert [until_end(row, model.config) for row in cold] == expected


@few_cases
def test_samples_follow_the_distribution_of_the_model(case):
    model = case.model()
    num_samples = 3000
    outputs = model.generate(
        **prompts(case, case.rows()[:1]),
        do_sample=True,
        top_k=0,
        num_return_sequences=num_samples,
        max_new_tokens=1,
        return_dict_in_generate=True,
        output_logits=True,
    )
    distribution = outputs.logits[0][0].softmax(dim=-1)
    counts = torch.bincount(outputs.sequences[:, -1], minlength=len(distribution))
    spread = (distribution * (1 - distribution) / num_samples).sqrt()
    assert ((counts / num_samples - distribution).abs() <= 5 * spread + 1e-3).all()


@few_cases
def test_a_repetition_penalty_lowers_what_was_written_before(case):
    model = case.model()
    for row in case.rows(model.config):
        outputs = model.generate(
            **prompt_alone(case, row),
            repetition_penalty=1.8,
            max_new_tokens=STEPS,
            return_dict_in_generate=True,
            output_scores=True,
            output_logits=True,
        )
        (sequence,) = outputs.sequences
        prompt_length = len(sequence) - len(outputs.scores)
        for step, (scores, logits) in enumerate(zip(outputs.scores, outputs.logits, strict=True)):
            expected = logits[0].clone()
            for seen in set(sequence[: prompt_length + step].tolist()):
                expected[seen] *= 1.8 if expected[seen] < 0 else 1 / 1.8
            torch.testing.assert_close(scores[0], expected)


@few_cases
def test_bad_words_are_never_written(case):
    model = case.model()
    wanted = [greedy(case, model, row, STEPS) for row in case.rows()]
    banned = {sequence[0] for sequence in wanted} - end_ids(model.config)
    pairs = {pair for sequence in wanted for pair in itertools.pairwise(sequence[:-1])}
    for num_beams in (1, 3):
        words = [[token] for token in sorted(banned)]
        result = write(case, model, bad_words_ids=words or None, num_beams=num_beams)
        assert not banned & {token for s in result.sequences(model.config) for token in s}
        words = [list(pair) for pair in sorted(pairs)]
        result = write(case, model, bad_words_ids=words or None, num_beams=num_beams)
        for sequence in result.sequences(model.config):
            assert not pairs & set(itertools.pairwise(sequence))


@few_cases
def test_a_prefix_function_limits_what_is_written_to_what_it_allows(case):
    model = case.model()
    ends = sorted(end_ids(model.config))
    seen_rows = set()

    def allow(row: int, ids: torch.Tensor) -> list[int]:
        seen_rows.add(row)
        return [5 + row, 8 + row] if len(ids) < 5 else ends

    for num_beams in (1, 3):
        result = write(case, model, prefix_allowed_tokens_fn=allow, num_beams=num_beams)
        for row, sequence in enumerate(result.sequences(model.config)):
            assert set(sequence[:-1]) <= {5 + row, 8 + row}
            assert sequence[-1] in ends
    assert seen_rows == set(range(len(case.rows())))


@few_cases
def test_several_beams_differ_and_come_best_first(case):
    model = case.model()
    result = write(case, model, num_beams=5, num_return_sequences=4)
    scores = result.outputs.sequences_scores.unflatten(0, (-1, 4))
    assert (scores[:, :-1] >= scores[:, 1:]).all()
    sequences = result.sequences(model.config)
    for start in range(0, len(sequences), 4):
        assert len({tuple(one) for one in sequences[start : start + 4]}) == 4


@few_cases
def test_a_minimal_and_a_maximal_length_hold(case):
    model = case.model()
    shortest = write(case, model, min_new_tokens=5).sequences(model.config)
    assert all(len(sequence) >= 5 for sequence in shortest)
    inputs = prompts(case)
    for num_beams in (1, 2):
        assert generate(case, model, inputs, num_beams=num_beams, max_new_tokens=1).shape[1] == 1


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("case", representative_cases("cache", generates=True))
def test_generate_returns_states_and_weights_of_every_step(case, num_beams):
    model = case.model()
    result = write(
        case,
        model,
        num_beams=num_beams,
        use_cache=True,
        output_attentions=True,
        output_hidden_states=True,
    )
    outputs = result.outputs
    num_steps = len(outputs.scores)
    num_rows = len(case.rows()) * num_beams
    assert result.tokens.shape[1] <= num_steps <= STEPS
    vocab_size = getattr(model.config, case.written_side.vocab_size)
    if case.grid.keeps_ids(model.config):
        vocab_size += model.config.max_copied_words
    for scores in (*outputs.scores, *outputs.logits):
        assert scores.shape == (num_rows, vocab_size)
    if len(case.grid.sides) == 1:
        num_read = prompts(case)[case.written_side.tokens].shape[1]
        assert len(outputs.hidden_states) == num_steps
        for step, states in enumerate(outputs.hidden_states):
            assert len(states) > 1
            assert all(state.shape[:2] == (num_rows, 1 if step else num_read) for state in states)
        return
    num_source = max(row[case.grid.sides[0].tokens].shape[0] for row in case.rows())
    assert len(outputs.decoder_hidden_states) == num_steps
    for states in outputs.decoder_hidden_states:
        assert all(state.shape[:2] == (num_rows, 1) for state in states)
    assert all(state.shape[1] == num_source for state in outputs.encoder_hidden_states)
    for weights in (weights for step in outputs.cross_attentions for weights in step or ()):
        assert weights.shape[0] == num_rows
        assert weights.shape[2:] == (1, num_source)
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones_like(weights.sum(dim=-1)))


@pytest.mark.parametrize("case", representative_cases("cache", only=FEW[:1], generates=True))
def test_a_cache_of_another_kind_is_refused_by_name(case):
    model = case.model()
    for name in case.grid.refused_caches:
        with pytest.raises(ValueError, match=name):
            generate(case, model, prompts(case), cache_implementation=name, max_new_tokens=2)


@few_cases
def test_generate_leaves_the_model_as_it_was(case):
    model = case.model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    config, generation_config = model.config.to_dict(), model.generation_config.to_dict()
    first = write(case, model, num_beams=2)
    again = write(case, model, num_beams=2)
    assert torch.equal(first.tokens, again.tokens)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.config.to_dict() == config
    assert model.generation_config.to_dict() == generation_config
    assert not model.training


@pytest.mark.parametrize("case", representative_cases("cache", only=FEW, generates=True))
def test_a_stop_string_ends_a_row(case):
    tokenizer = train_tokenizer(["abcdefghijklmnopqrstuvwxyz"], model="char", append_eos=False)
    model = case.model()
    inputs = prompt_alone(case, case.rows(model.config)[0])
    options = {"max_new_tokens": STEPS, "min_new_tokens": STEPS, "suppress_tokens": [0, 1, 2, 3]}
    free = generate(case, model, inputs, **options)[0].tolist()
    assert len(free) == STEPS
    stop, last = tokenizer.decode(free[2]), free.index(free[2])
    stopped = generate(case, model, inputs, **options, stop_strings=[stop], tokenizer=tokenizer)
    assert stopped[0].tolist() == free[: last + 1]
