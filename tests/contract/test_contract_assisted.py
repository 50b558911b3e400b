"""Contract, line "cache": drafts, plain answers and empty prompts change nothing of what generate()
writes. With the other tests of generate() here, this covers what transformers checks of its own
models."""

import pytest
import torch

from family_grids import representative_cases
from generation_inputs import generate, prompts

STEPS = 8
ATTENTION_CASES = ("gpt2", "llama", "vaswani", "modern")
MODES = {
    "greedy": {},
    "beam_several": {"num_beams": 3, "num_return_sequences": 2},
    "sample_several": {"do_sample": True, "num_return_sequences": 2},
}


def attention_cases():
    """Return the cases of the families that can take back what they have read."""
    return [
        parameter
        for parameter in representative_cases("cache", only=ATTENTION_CASES, generates=True)
        if "static" not in parameter.values[0].grid.refused_caches
    ]


def language_model_cases():
    """Return a case of every family without a source."""
    return [
        parameter
        for parameter in representative_cases("cache", only=("gpt2",), generates=True)
        if len(parameter.values[0].grid.sides) == 1
    ]


@pytest.mark.parametrize("case", attention_cases())
def test_a_drafting_model_changes_nothing_of_what_is_written(case):
    model = case.model()
    torch.manual_seed(1)
    stranger = type(model)(model.config).eval()
    for row in case.rows():
        inputs = prompts(case, [row])
        expected = generate(case, model, inputs, max_new_tokens=STEPS)
        for assistant in (stranger, case.model()):
            assisted = generate(
                case, model, inputs, assistant_model=assistant, max_new_tokens=STEPS
            )
            assert torch.equal(assisted, expected)


@pytest.mark.parametrize("case", attention_cases())
def test_drafts_from_the_prompt_change_nothing_of_what_is_written(case):
    model = case.model()
    inputs = prompts(case, case.rows()[:1])
    expected = generate(case, model, inputs, max_new_tokens=STEPS)
    drafted = generate(case, model, inputs, prompt_lookup_num_tokens=2, max_new_tokens=STEPS)
    assert torch.equal(drafted, expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", representative_cases("cache", only=("gpt2",), generates=True))
def test_a_plain_answer_holds_the_sequences_of_the_whole_one(case, mode):
    model = case.model()
    inputs = prompts(case)
    plain, whole = [], []
    for use_cache in (True, False):
        options = {**MODES[mode], "max_new_tokens": STEPS, "use_cache": use_cache}
        torch.manual_seed(0)
        plain.append(model.generate(**inputs, **options, return_dict_in_generate=False))
        torch.manual_seed(0)
        whole.append(model.generate(**inputs, **options, return_dict_in_generate=True))
    assert all(isinstance(sequences, torch.Tensor) for sequences in plain)
    assert all(torch.equal(plain[0], sequences) for sequences in plain[1:])
    assert all(torch.equal(plain[0], outputs.sequences) for outputs in whole)
    assert whole[0].past_key_values is not None


@pytest.mark.parametrize("case", language_model_cases())
def test_a_language_model_without_a_prompt_begins_at_the_begin_token(case):
    model = case.model()
    begin = torch.tensor([[model.config.bos_token_id]])
    expected = model.generate(begin, attention_mask=torch.ones_like(begin), max_new_tokens=STEPS)
    assert torch.equal(model.generate(max_new_tokens=STEPS), expected)
