"""Every rule of TextEncoderConfig: what it refuses, in which words, and what it fills in."""

import re

import pytest
from huggingface_hub.errors import StrictDataclassError

from hf_seqmodels import TextEncoderConfig

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
RATES = (
    "embedding_dropout",
    "hidden_dropout",
    "attention_dropout",
    "classifier_dropout",
    "label_smoothing",
)


def refuse(message: str, **options):
    """Assert that the config refuses options with this text in its message."""
    with pytest.raises((StrictDataclassError, ValueError), match=re.escape(message)):
        TextEncoderConfig(**options)


@pytest.mark.parametrize("name", COUNTS)
def test_a_count_below_one_is_refused(name):
    refuse(f"{name} must be at least 1, got 0.", **{name: 0})


@pytest.mark.parametrize("value", [1.0, -0.1, float("nan")])
@pytest.mark.parametrize("name", RATES)
def test_a_rate_outside_its_range_is_refused(name, value):
    refuse(f"{name} must be in [0, 1), got {value}.", **{name: value})


@pytest.mark.parametrize("name", ["initializer_range", "norm_eps", "rope_theta"])
def test_what_must_be_positive_is(name):
    options = {"position_embedding": "rotary", name: 0.0}
    refuse(f"{name} must be positive, got 0.0.", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"type_vocab_size": -1}, "type_vocab_size must be at least 0, which has no token types"),
        ({"num_attention_heads": 3}, "num_attention_heads must divide hidden_size=256, got 3."),
        ({"num_attention_heads": 0}, "got 0"),
        ({"num_key_value_heads": 3}, "num_key_value_heads must divide num_attention_heads=4"),
        ({"position_embedding": "rotary", "head_dim": 5}, "head_dim must be even, got 5"),
        ({"rope_theta": 5.0}, "rope_theta=5.0 needs position_embedding='rotary'"),
        ({"global_attention_every": 3}, "global_attention_every=3 needs a sliding_window"),
        (
            {"global_attention_every": 1, "sliding_window": 2},
            "global_attention_every must be at least 2, got 1.",
        ),
        ({"pad_token_id": 8000}, "vocabulary [0, 8000), got 8000"),
        ({"eos_token_id": [1, -1]}, "vocabulary [0, 8000), got -1"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder is fixed to False"),
        ({"pooling": "max"}, "pooling"),
        ({"padding_free": True}, "padding_free"),
        ({"hidden_act": "swish"}, "hidden_act"),
        ({"norm_position": "both"}, "norm_position"),
        ({"norm_type": "batch"}, "norm_type"),
        ({"position_embedding": "none"}, "position_embedding"),
    ],
)
def test_what_cannot_be_honoured_is_refused(options, message):
    refuse(message, **options)


def test_sizes_left_out_follow_from_others():
    config = TextEncoderConfig(hidden_size=24, hidden_dropout=0.3)
    assert (config.num_key_value_heads, config.head_dim, config.intermediate_size) == (4, 6, 96)
    assert config.classifier_dropout == 0.3
    assert config.norm_embedding
    assert not TextEncoderConfig(norm_position="pre").norm_embedding
    assert TextEncoderConfig(norm_position="pre", norm_embedding=True).norm_embedding


def test_local_layers_are_those_between_the_global_ones():
    every = {"sliding_window": 2, "global_attention_every": 3}
    for options, expected in (
        ({}, [False] * 5),
        ({"sliding_window": 2}, [True] * 5),
        (every, [False, True, True, False, True]),
    ):
        config = TextEncoderConfig(**options)
        assert [config.is_local(layer) for layer in range(5)] == expected


def test_plans_of_parallelism_name_what_there_is():
    config = TextEncoderConfig(gated_mlp=True, norm_position="pre")
    assert config.base_model_tp_plan["layers.*.mlp.gate_proj"] == "colwise"
    assert config.base_model_tp_plan["layers.*.self_attn.o_proj"] == "rowwise"
    assert "norm" in config.base_model_fsdp_plan
    assert "norm" in config.base_model_pp_plan
    with_biases = TextEncoderConfig(position_embedding="alibi")  # the same on every process
    assert not any("self_attn" in name for name in with_biases.base_model_tp_plan)
    assert "norm" not in with_biases.base_model_fsdp_plan
    assert "base_model_tp_plan" not in config.to_dict()
