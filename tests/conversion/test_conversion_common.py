"""What all conversions share."""

from types import SimpleNamespace

import pytest
import torch

from hf_seqmodels.conversion.common import check_choice, check_options, rename_weights

MODULES = {
    "h.*.attn": "layers.*.attention",
    "h.*.mlp.fc": "layers.*.up",
    "wte": "embedding",
    "cls": "head.output",
    "cls.bias": "head.shift",
}


def test_weights_move_with_the_number_of_their_layer():
    names = ["h.0.attn.weight", "h.12.attn.bias", "h.1.mlp.fc.weight", "wte.weight"]
    state = {name: torch.full((2,), float(place)) for place, name in enumerate(names)}
    renamed = rename_weights(state, MODULES)
    assert list(renamed) == [
        "layers.0.attention.weight",
        "layers.12.attention.bias",
        "layers.1.up.weight",
        "embedding.weight",
    ]
    assert all(renamed[new] is state[old] for old, new in zip(state, renamed, strict=True))


def test_a_parameter_named_in_full_does_not_go_with_its_module():
    state = {"cls.weight": torch.zeros(1), "cls.bias": torch.ones(1)}
    renamed = rename_weights(state, MODULES)
    assert list(renamed) == ["head.output.weight", "head.shift"]


def test_a_weight_without_a_counterpart_is_named():
    state = dict.fromkeys(["wte.weight", "h.0.lora.weight", "gate"], torch.zeros(1))
    with pytest.raises(ValueError, match=r"these have none: gate, h\.0\.lora\.weight\. Convert"):
        rename_weights(state, MODULES)


def test_an_option_without_an_equal_is_named_with_its_value():
    config = SimpleNamespace(is_decoder=True, hidden_act="tanh")
    check_options(config, {"is_decoder": True}, "TextEncoder")
    with pytest.raises(ValueError, match=r"with is_decoder=False, got True\. Such a model cannot"):
        check_options(config, {"is_decoder": False}, "TextEncoder")
    check_choice(config, "hidden_act", ("relu", "tanh"), "TextEncoder")
    with pytest.raises(
        ValueError, match=r"hidden_act in 'relu', 'gelu', got 'tanh'\. Such a model"
    ):
        check_choice(config, "hidden_act", ("relu", "gelu"), "TextEncoder")
