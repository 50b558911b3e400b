"""The loop that decodes with graphs writes what generate() writes; here torch runs the graphs."""

import itertools

import numpy as np
import pytest
import torch
from transformers import GenerationConfig

from family_grids import representative_cases
from generation_inputs import prompts
from graph_sessions import eager_graphs
from hf_seqmodels import RnnLMConfig, RnnLMForCausalLM
from hf_seqmodels.decoding import beam_search
from hf_seqmodels.models.pretrained_base import BEAMS_READ_CONFIG
from hf_seqmodels.onnx.searching import Beams

# every option that a graph could get wrong, once
CASES = (
    # recurrent encoder-decoders
    "bahdanau",
    "luong",
    "sutskever",
    "cho",
    "tanh_none_zeros_dense",
    "tanh_dot_previous_copy_residual",
    "relu_scaled_dot_feeding_zeros_dense",
    "gru_general_feeding_zeros_highway",
    "gru_multi_head_previous_dense",
    "lstm_additive_previous_dense",
    "more_decoder_layers",
    "reversed_in_both_directions",
    "all_tied_of_other_width",
    "coverage_feeding",
    "pointer_with_coverage",
    "pointer_of_heads",
    "reference",
    "other_ids_and_sizes",
    # transformer encoder-decoders
    "vaswani",
    "marian",
    "modern",
    "learned",
    "alibi_post_rms_grouped",
    # language models
    "gpt2",
    "llama",
    "learned_window",
    "rotary_window_grouped",
    "alibi_window",
    "mikolov",
    "awd_lstm",
    "gru_before_dense_narrow_top",
    "relu_residual_tied",
)
PAD = 12  # not 0, for which beam search of transformers fills rows with the end token


def tiny_language_model(**generation):
    torch.manual_seed(0)
    config = RnnLMConfig(vocab_size=19, embedding_size=9, hidden_size=12, num_hidden_layers=1)
    model = RnnLMForCausalLM(config).eval()
    model.generation_config.update(**generation)
    return model


@pytest.mark.parametrize("case", representative_cases("cache", generates=True, only=CASES))
def test_search_on_graphs_writes_what_generate_writes(case):
    model = case.model(dtype=torch.float32, pad_token_id=PAD)
    if BEAMS_READ_CONFIG and getattr(model.config, "pointer_generator", False):
        pytest.skip("this transformers cuts beams by a vocabulary without the words to copy")
    inputs = prompts(case, config=model.config, extra=1)
    inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
    graphs = eager_graphs(model)
    for options in (
        {"max_new_tokens": 7},
        {"max_new_tokens": 6, "num_beams": 3, "num_return_sequences": 2},
    ):
        expected = model.generate(**inputs, **options, use_cache=True)
        np.testing.assert_array_equal(graphs.generate(**arrays, **options), expected)


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, -0.7, 2.0])
def test_beams_rank_and_stop_as_generate_does(early_stopping, length_penalty):
    model = tiny_language_model(pad_token_id=PAD, eos_token_id=[3, 5, 7])
    torch.nn.init.normal_(model.lm_head.weight, std=2.0)
    ids = torch.tensor([[1, 4, 6], [8, 2, 9], [1, 1, 10], [11, 13, 2]])
    options = {
        "num_beams": 4,
        "num_return_sequences": 3,
        "max_length": 12,
        "early_stopping": early_stopping,
        "length_penalty": length_penalty,
    }
    expected = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        **options,
        return_dict_in_generate=True,
        output_scores=True,
    )
    rows, scores = eager_graphs(model).generate(ids.numpy(), return_scores=True, **options)
    np.testing.assert_array_equal(rows, expected.sequences)
    np.testing.assert_allclose(scores, expected.sequences_scores, atol=1e-5)


def test_finished_rows_are_filled_with_a_pad_token_of_zero():
    model = tiny_language_model(pad_token_id=0, eos_token_id=[3, 5, 7])
    torch.nn.init.normal_(model.lm_head.weight, std=2.0)
    ids = torch.tensor([[1, 4, 6], [8, 2, 9], [1, 1, 10]])
    expected = model.generate(
        ids, attention_mask=torch.ones_like(ids), num_beams=3, max_new_tokens=9,
        custom_generate=beam_search,
    )  # fmt: skip
    rows = eager_graphs(model).generate(ids.numpy(), num_beams=3, max_new_tokens=9)
    assert (rows[:, -1] == 0).any() and (rows[:, -1] != 0).any()
    np.testing.assert_array_equal(rows, expected)


def test_a_wide_beam_finds_the_best_of_all_rows():
    log_probabilities = np.log(np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 3)))

    def exact(rows):
        pairs = enumerate(itertools.pairwise(rows))
        return sum(log_probabilities[place, last, new] for place, (last, new) in pairs)

    beams = Beams(
        np.array([[0], [2]]), num_beams=27, max_length=4, ends=[], pad=-1,
        length_penalty=0.0, early_stopping=False,
    )  # fmt: skip
    last = np.repeat([0, 2], 27)
    for place in range(3):
        beams.advance(log_probabilities[place][last])
        last = beams.last_tokens()[:, 0]
    assert beams.is_done
    rows, scores = beams.best(1)
    grid = np.stack(np.meshgrid(*[range(3)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    for row, score in zip(rows, scores, strict=True):
        values = [exact([row[0], *others]) for others in grid]
        np.testing.assert_array_equal(row[1:], grid[int(np.argmax(values))])
        assert score == pytest.approx(max(values), abs=1e-5)


def test_exported_settings_are_those_of_the_generation_config():
    model = tiny_language_model(num_beams=3, max_new_tokens=5, pad_token_id=PAD)
    ids = torch.tensor([[1, 4], [6, 2]])
    expected = model.generate(ids, attention_mask=torch.ones_like(ids))
    graphs = eager_graphs(model)
    np.testing.assert_array_equal(graphs.generate(ids.numpy()), expected)
    assert graphs.generate(ids.numpy(), max_length=4, eos_token_id=[]).shape == (2, 4)


def test_without_settings_twenty_tokens_are_written():
    model = tiny_language_model()
    model.generation_config = GenerationConfig()
    model.config.max_position_embeddings = 21
    graphs = eager_graphs(model)
    assert graphs.generate([[4]]).shape == (1, 21)
    assert graphs.generate([[4, 5, 6]]).shape == (1, 21)


def test_settings_that_the_search_does_not_know_are_refused():
    model = tiny_language_model(no_repeat_ngram_size=2)
    with pytest.raises(ValueError, match=r"no_repeat_ngram_size.*before its export"):
        eager_graphs(model).generate([[4]])
    graphs = eager_graphs(tiny_language_model())
    with pytest.raises(ValueError, match=r"knows the options.*got temperature"):
        graphs.generate([[4]], temperature=0.5)
    with pytest.raises(ValueError, match="num_return_sequences must lie between 1 and num_beams"):
        graphs.generate([[4]], num_return_sequences=2)
    with pytest.raises(ValueError, match="early_stopping must be"):
        graphs.generate([[4]], num_beams=2, early_stopping="soon")
    with pytest.raises(ValueError, match="room behind the 3 tokens"):
        graphs.generate([[4, 5, 6]], max_length=3)


@pytest.mark.parametrize("ids", [[], [[]], [[-1, 3]], [3, 4]])
def test_ids_that_are_no_rows_are_refused(ids):
    with pytest.raises(ValueError, match="input_ids must be rows of whole numbers"):
        eager_graphs(tiny_language_model()).generate(ids)
