"""Contract, line "cache": greedy and beam search find what plain loops over whole prefixes find,
and their scores are those of forced rescoring."""

import copy

import pytest
import torch
import torch.nn.functional as F

from family_cases import Case
from family_grids import representative_cases
from generation_inputs import generate, prompts, written
from plain_search import all_sequences, forced_log_probabilities, greedy, until_end

STEPS = 6
SMALL = ("bahdanau", "luong", "sutskever", "gru_multi_head_previous_dense", "tied_output")


def search(case: Case, model, inputs, **options):
    """Return generate()'s output with scores, and the tokens it wrote, (rows, steps)."""
    outputs = model.generate(
        **inputs, **options, return_dict_in_generate=True, output_scores=True, output_logits=True
    )
    return outputs, written(case, inputs, outputs.sequences)


@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("case", representative_cases("cache", generates=True))
def test_greedy_search_equals_a_loop_of_argmax(case, use_cache):
    model = case.model()
    expected = [greedy(case, model, row, STEPS) for row in case.rows(model.config)]
    options = {"max_new_tokens": STEPS, "use_cache": use_cache}
    for choice in ({"num_beams": 1}, {"do_sample": True, "top_k": 1}):
        rows = generate(case, model, prompts(case), **options, **choice)
        assert [until_end(row, model.config) for row in rows] == expected, choice


@pytest.mark.parametrize("case", representative_cases("cache", generates=True))
def test_beam_search_with_a_cache_equals_beam_search_without(case):
    model = case.model()
    results = []
    for use_cache in (True, False):
        outputs, tokens = search(
            case,
            model,
            prompts(case),
            num_beams=4,
            num_return_sequences=3,
            max_new_tokens=STEPS,
            use_cache=use_cache,
        )
        assert (outputs.past_key_values is not None) == use_cache
        results.append((tokens, outputs.sequences_scores, outputs.beam_indices))
    assert torch.equal(results[0][0], results[1][0])
    torch.testing.assert_close(results[0][1], results[1][1])
    assert torch.equal(results[0][2], results[1][2])


@pytest.mark.parametrize("case", representative_cases("cache", generates=True))
def test_beams_change_places(case):
    """Beams that keep their places would hide a cache that is never reordered."""
    model = case.model()
    outputs, _ = search(
        case,
        model,
        prompts(case),
        num_beams=4,
        num_return_sequences=4,
        max_new_tokens=STEPS,
        suppress_tokens=ending(model),
    )
    places = outputs.beam_indices[:, 1:]
    assert (places[:, 1:] != places[:, :-1]).any()


def ending(model) -> list[int]:
    """Return the ids that end a sequence, to be suppressed."""
    ids = model.generation_config.eos_token_id
    return ids if isinstance(ids, list) else [ids]


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize("case", representative_cases("cache", only=SMALL, generates=True))
def test_a_wide_enough_beam_equals_exhaustive_search(case, length_penalty):
    model = case.model(**case.grid.tiny_vocabulary)
    num_steps, num_best = 3, 12
    rows = case.grid.make_rows(model.config)
    inputs = prompts(case, rows, config=model.config)
    outputs, tokens = search(
        case,
        model,
        inputs,
        num_beams=80,  # as many as there are candidates at the last step
        num_return_sequences=num_best,
        max_new_tokens=num_steps,
        length_penalty=length_penalty,
        early_stopping="never",
    )
    found = tokens.unflatten(0, (len(rows), num_best))
    scores = outputs.sequences_scores.unflatten(0, (len(rows), num_best))
    for row, row_tokens, row_scores in zip(rows, found, scores, strict=True):
        ranked = sorted(
            (
                (log_probability / len(sequence) ** length_penalty, list(sequence))
                for sequence, log_probability in all_sequences(case, model, row, num_steps)
            ),
            reverse=True,
        )
        assert [until_end(one, model.config) for one in row_tokens] == [
            sequence for _, sequence in ranked[:num_best]
        ]
        expected = torch.tensor([score for score, _ in ranked[:num_best]])
        torch.testing.assert_close(row_scores, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("case", representative_cases("cache", generates=True))
def test_beam_scores_equal_forced_rescoring(case, length_penalty):
    model = case.model()
    num_best = 3
    outputs, tokens = search(
        case,
        model,
        prompts(case),
        num_beams=4,
        num_return_sequences=num_best,
        max_new_tokens=STEPS,
        length_penalty=length_penalty,
    )
    transitions = model.compute_transition_scores(
        outputs.sequences, outputs.scores, outputs.beam_indices
    )
    rows = case.rows(model.config)
    for index, one in enumerate(tokens):
        sequence = until_end(one, model.config)
        forced = forced_log_probabilities(case, model, rows[index // num_best], sequence)
        # transformers divides by the number of written tokens, the end token included
        expected = sum(forced) / len(sequence) ** length_penalty
        assert outputs.sequences_scores[index].item() == pytest.approx(expected, abs=1e-5)
        behind = [0.0] * (transitions.shape[1] - len(sequence))
        assert transitions[index].tolist() == pytest.approx(forced + behind, abs=1e-5)


@pytest.mark.parametrize("case", representative_cases("cache", generates=True))
def test_greedy_transition_scores_equal_forced_rescoring(case):
    model = case.model()
    outputs, tokens = search(case, model, prompts(case), max_new_tokens=STEPS)
    transitions = model.compute_transition_scores(
        outputs.sequences, outputs.scores, normalize_logits=True
    )
    for row, one, row_transitions in zip(case.rows(model.config), tokens, transitions, strict=True):
        sequence = until_end(one, model.config)
        forced = forced_log_probabilities(case, model, row, sequence)
        assert row_transitions[: len(sequence)].tolist() == pytest.approx(forced, abs=1e-5)


@pytest.mark.parametrize("case", representative_cases("cache", generates=True))
def test_a_longer_search_continues_from_the_cache_of_a_shorter_one(case):
    model = case.model()
    options = {"suppress_tokens": ending(model), "use_cache": True}
    inputs = prompts(case)
    expected = model.generate(**inputs, **options, max_new_tokens=7)
    first = model.generate(**inputs, **options, max_new_tokens=3, return_dict_in_generate=True)
    side = case.written_side
    keeps = [{}, {side.keep: torch.ones_like(first.sequences)}]
    if len(case.grid.sides) == 1:  # the prompt is part of what was written, padding and all
        keeps = [{side.keep: F.pad(inputs.pop(side.keep), (0, 3), value=1)}]
        del inputs[side.tokens]
    for keep in keeps:
        longer = model.generate(
            **inputs,
            **options,
            **{side.tokens: first.sequences},
            **keep,
            past_key_values=copy.deepcopy(first.past_key_values),
            max_new_tokens=4,
        )
        assert torch.equal(longer, expected)


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("case", representative_cases("cache", only=SMALL, generates=True))
def test_embeddings_of_a_prompt_stand_for_its_ids(case, num_beams):
    model = case.model()
    side = case.grid.sides[0]
    inputs = prompts(case)
    options = {"num_beams": num_beams, "max_new_tokens": STEPS}
    expected = generate(case, model, inputs, **options)
    embedded = {side.keep: inputs[side.keep]}
    embedded[side.embeds] = model.get_input_embeddings()(inputs[side.tokens])
    sequences = model.generate(**embedded, **options)
    assert torch.equal(sequences[:, -expected.shape[1] :], expected)


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("case", representative_cases("cache", generates=True))
def test_an_encoder_output_stands_for_its_source(case, num_beams):
    if len(case.grid.sides) == 1:
        pytest.skip("has no encoder")
    model = case.model()
    source = case.grid.sides[0]
    inputs = prompts(case)
    options = {"num_beams": num_beams, "max_new_tokens": STEPS}
    expected = model.generate(**inputs, **options)
    with torch.no_grad():
        encoded = model.get_encoder()(**inputs, return_dict=True)
        before = {name: value.clone() for name, value in encoded.items()}
        keep = {source.keep: inputs[source.keep]}
        actual = model.generate(encoder_outputs=encoded, **keep, **options)
    assert torch.equal(actual, expected)
    assert encoded.keys() == before.keys()
    assert all(torch.equal(encoded[name], value) for name, value in before.items())
