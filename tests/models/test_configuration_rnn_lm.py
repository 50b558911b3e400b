"""RnnLMConfig: what it derives, and what it refuses with rule, value and way out."""

import re

import pytest

from hf_seqmodels import RnnLMConfig


def test_what_follows_from_the_options():
    config = RnnLMConfig(num_hidden_layers=3, hidden_size=12, hidden_dropout=0.3)
    assert config.layer_types == ["linear_attention"] * 3
    assert config.top_size == 12 and config.top_dropout == 0.3
    config = RnnLMConfig(hidden_size=12, last_layer_size=7, hidden_dropout=0.3, output_dropout=0.0)
    assert config.top_size == 7 and config.top_dropout == 0.0
    assert "layer_types" not in config.to_diff_dict()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 0}, "vocab_size must be at least 1, got 0"),
        ({"last_layer_size": 0}, "last_layer_size must be at least 1, got 0"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be at least 1, got 0"),
        (
            {"layer_connection": "residual", "hidden_size": 8, "last_layer_size": 6},
            "layer_connection='residual' adds the input of a layer to its output, which needs one "
            "width, got hidden_size=8 and last_layer_size=6. Leave last_layer_size at None",
        ),
        ({"word_dropout": 1.0}, "word_dropout must be in [0, 1), got 1.0"),
        ({"output_dropout": -0.1}, "output_dropout must be in [0, 1), got -0.1"),
        ({"weight_dropout": 1}, "weight_dropout must be in [0, 1), got 1"),
        ({"label_smoothing": 1.5}, "label_smoothing must be in [0, 1), got 1.5"),
        (
            {"activation_regularization": -2.0},
            "activation_regularization must not be negative, got -2.0",
        ),
        ({"initializer_range": 0}, "initializer_range must be positive, got 0"),
        ({"gru_reset": "before"}, "gru_reset='before' needs cell_type='gru', got 'lstm'"),
        (
            {"elman_activation": "relu"},
            "elman_activation='relu' needs cell_type='elman', got 'lstm'. Leave elman_activation",
        ),
        (
            {"vocab_size": 5, "eos_token_id": [2, 5]},
            "must lie in the vocabulary [0, 5), got 5. Pass the ids of your tokenizer, or None",
        ),
        ({"is_encoder_decoder": True}, "fixed to False for this family, got True"),
        ({"cell_type": "qrnn"}, "qrnn"),
        ({"initializer": "normal"}, "normal"),
        ({"hidden_size": "wide"}, "wide"),
    ],
)
def test_what_cannot_be_honoured_is_refused(options, message):
    with pytest.raises(Exception, match=re.escape(message)):
        RnnLMConfig(**options)


def test_neighbours_of_what_is_refused_are_taken():
    for options in (
        {"layer_connection": "dense", "last_layer_size": 6},
        {"layer_connection": "residual", "last_layer_size": 256},
        {"layer_connection": "residual", "last_layer_size": 6, "num_hidden_layers": 1},
        {"cell_type": "gru", "gru_reset": "before"},
        {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None},
    ):
        RnnLMConfig(**options)
