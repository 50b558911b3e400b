"""Every rule of DecoderLMConfig: what it refuses, in which words, and what it fills in."""

import json
import re

import pytest
from huggingface_hub.errors import StrictDataclassError

from hf_seqmodels import DecoderLMConfig

COUNTS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "sliding_window",
    "max_position_embeddings",
)
RATES = ("embedding_dropout", "hidden_dropout", "attention_dropout", "label_smoothing")
CHOICES = {
    "hidden_act": ("gelu", "gelu_pytorch_tanh", "relu", "silu"),
    "position_embedding": ("learned", "sinusoidal", "rotary", "alibi"),
    "norm_position": ("pre", "post"),
    "norm_type": ("layer", "rms"),
}


def refuse(message: str, **options):
    """Assert that the config refuses options with this text in its message."""
    with pytest.raises((StrictDataclassError, ValueError), match=re.escape(message)):
        DecoderLMConfig(**options)


@pytest.mark.parametrize("value", [0, -4])
@pytest.mark.parametrize("name", COUNTS)
def test_a_count_below_one_is_refused(name, value):
    refuse(f"{name} must be at least 1, got {value}.", **{name: value})


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("head_dim", [None, 8])
def test_no_heads_are_refused(value, head_dim):
    refuse(f"got {value}", num_attention_heads=value, head_dim=head_dim)


@pytest.mark.parametrize("value", [1.0, 1, -0.1, float("nan")])
@pytest.mark.parametrize("name", RATES)
def test_a_rate_outside_its_range_is_refused(name, value):
    refuse(f"{name} must be in [0, 1), got {value}.", **{name: value})


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
@pytest.mark.parametrize("name", ["initializer_range", "norm_eps", "rope_theta"])
def test_what_must_be_positive_is(name, value):
    options = {"position_embedding": "rotary", name: value}
    refuse(f"{name} must be positive, got {value}.", **options)


@pytest.mark.parametrize("name", CHOICES)
def test_an_unknown_choice_is_refused_and_every_known_one_taken(name):
    refuse(name, **{name: "unheard_of"})
    for value in CHOICES[name]:
        assert getattr(DecoderLMConfig(**{name: value}), name) == value


def test_values_of_another_type_are_refused():
    for name, value in {"hidden_size": 1.5, "gated_mlp": "yes", "norm_eps": "small"}.items():
        refuse(name, **{name: value})


def test_heads_divide_what_they_share():
    refuse("num_attention_heads must divide hidden_size=256, got 3", num_attention_heads=3)
    refuse("num_key_value_heads must divide num_attention_heads=4, got 3", num_key_value_heads=3)
    config = DecoderLMConfig(num_attention_heads=3, head_dim=10)
    assert (config.head_dim, config.num_key_value_heads) == (10, 3)


def test_options_of_positions_fit_their_kind():
    refuse("head_dim must be even, got 3", position_embedding="rotary", head_dim=3)
    refuse("rope_theta=50.0 needs position_embedding='rotary', got 'alibi'", rope_theta=50.0,
           position_embedding="alibi")  # fmt: skip
    assert DecoderLMConfig(position_embedding="rotary", rope_theta=50).rope_theta == 50


@pytest.mark.parametrize("name", ["pad_token_id", "bos_token_id", "eos_token_id"])
def test_special_ids_lie_in_the_vocabulary(name):
    for value in (9, -1) if name != "eos_token_id" else (9, [2, 9]):
        refuse("must lie in the vocabulary [0, 9)", vocab_size=9, **{name: value})
    assert getattr(DecoderLMConfig(vocab_size=9, **{name: None}), name) is None


def test_the_direction_is_fixed():
    refuse("is_encoder_decoder is fixed to False", is_encoder_decoder=True)


def test_sizes_left_out_follow_from_others():
    config = DecoderLMConfig(hidden_size=24, num_attention_heads=6)
    assert (config.head_dim, config.num_key_value_heads, config.intermediate_size) == (4, 6, 96)


def test_plans_of_parallel_runs_stay_out_of_the_file(tmp_path):
    config = DecoderLMConfig(gated_mlp=True)
    assert "layers.*.mlp.gate_proj" in config.base_model_tp_plan
    config.save_pretrained(tmp_path)
    assert not [
        name for name in json.loads((tmp_path / "config.json").read_text()) if "plan" in name
    ]
