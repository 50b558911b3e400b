"""`update_from_string`, by which scripts of transformers read `--config_overrides`."""

import pytest
from huggingface_hub.errors import StrictDataclassError

from hf_seqmodels import (
    DecoderLMConfig,
    RnnLMConfig,
    RnnSeq2SeqConfig,
    TextEncoderConfig,
    TransformerSeq2SeqConfig,
)

TRANSFORMERS = (DecoderLMConfig, TextEncoderConfig, TransformerSeq2SeqConfig)
every_transformer = pytest.mark.parametrize("config_class", TRANSFORMERS)
OVERRIDES = {
    DecoderLMConfig: {"hidden_size": 24, "num_attention_heads": 3, "gated_mlp": True},
    TextEncoderConfig: {"hidden_dropout": 0.25, "norm_position": "pre", "hidden_size": 20},
    TransformerSeq2SeqConfig: {"hidden_size": 16, "num_attention_heads": 2, "vocab_size": 31},
    RnnLMConfig: {"hidden_size": 14, "cell_type": "gru", "hidden_dropout": 0.5},
    RnnSeq2SeqConfig: {"hidden_size": 14, "attention_scorer": "general", "vocab_size": 31},
}
REFUSED = {
    DecoderLMConfig: ("num_attention_heads=5", "num_attention_heads must divide hidden_size"),
    TextEncoderConfig: ("num_attention_heads=5", "num_attention_heads must divide hidden_size"),
    TransformerSeq2SeqConfig: ("num_key_value_heads=3", "num_key_value_heads"),
    RnnLMConfig: ("hidden_dropout=1.5", "hidden_dropout"),
    RnnSeq2SeqConfig: ("num_attention_heads=2", "num_attention_heads=2 needs attention_scorer"),
}


def as_string(overrides) -> str:
    return ",".join(f"{name}={str(value).lower()}" for name, value in overrides.items())


def plans_of(config):
    return config.base_model_tp_plan, config.base_model_fsdp_plan


@pytest.mark.parametrize("config_class", OVERRIDES)
def test_overridden_config_is_the_one_made_with_these_values(config_class):
    config = config_class()
    config.update_from_string(as_string(OVERRIDES[config_class]))
    made = config_class(**OVERRIDES[config_class])
    assert config.to_dict() == made.to_dict()
    assert plans_of(config) == plans_of(made)


@pytest.mark.parametrize("config_class", REFUSED)
def test_override_that_breaks_a_rule_is_refused(config_class):
    override, message = REFUSED[config_class]
    with pytest.raises((StrictDataclassError, ValueError), match=message):
        config_class().update_from_string(override)


@every_transformer
def test_sizes_that_were_chosen_stay(config_class):
    chosen = {"num_key_value_heads": 2, "head_dim": 7, "intermediate_size": 9}
    config = config_class(num_attention_heads=4, **chosen)
    config.update_from_string("hidden_size=30")
    assert {name: getattr(config, name) for name in chosen} == chosen


@every_transformer
def test_named_override_wins_over_what_would_follow(config_class):
    config = config_class()
    config.update_from_string("hidden_size=24,num_attention_heads=4,intermediate_size=5")
    assert (config.head_dim, config.num_key_value_heads, config.intermediate_size) == (6, 4, 5)


def test_transformers_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="key hidden isn't in the original config"):
        DecoderLMConfig().update_from_string("hidden=3")
