"""The cases of the recurrent language model."""

import itertools
from typing import Any

from transformers import AutoModelForCausalLM

from family_cases import Grid
from language_model_rows import TOKENS, make_rows, ties

# Widths that tell a swapped axis: 3 rows, 5 tokens.
BASE: dict[str, Any] = {
    "vocab_size": 19,
    "embedding_size": 9,
    "hidden_size": 12,
    "num_hidden_layers": 2,
}

CELLS: dict[str, dict[str, Any]] = {
    "elman_tanh": {"cell_type": "elman"},
    "elman_relu": {"cell_type": "elman", "elman_activation": "relu"},
    "gru_after": {"cell_type": "gru"},
    "gru_before": {"cell_type": "gru", "gru_reset": "before"},
    "lstm": {"cell_type": "lstm"},
}
CONNECTIONS = ("none", "residual", "highway", "dense")
TIES: dict[str, dict[str, Any]] = {
    "untied": {},
    "projected": {"tie_word_embeddings": True},
}
AWD_LSTM: dict[str, Any] = {
    "num_hidden_layers": 3,
    "last_layer_size": 9,
    "tie_word_embeddings": True,
    "variational_dropout": True,
    "word_dropout": 0.1,
    "embedding_dropout": 0.4,
    "hidden_dropout": 0.25,
    "output_dropout": 0.4,
    "weight_dropout": 0.5,
    "activation_regularization": 2.0,
    "temporal_activation_regularization": 1.0,
}


def full_grid() -> dict[str, dict[str, dict[str, Any]]]:
    """Return {group: {case: options}}: cell x connection x tie, grouped by the first."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for (cell, cell_options), connection, (tie, tie_options) in itertools.product(
        CELLS.items(), CONNECTIONS, TIES.items()
    ):
        options = {**cell_options, **tie_options, "layer_connection": connection}
        groups.setdefault(cell, {})[f"{cell}-{connection}-{tie}"] = options
    return groups


REPRESENTATIVES: dict[str, dict[str, Any]] = {
    # architectures of the literature
    "mikolov": {**CELLS["elman_tanh"], "num_hidden_layers": 1},
    "zaremba": {**CELLS["lstm"], "initializer": "uniform", "initializer_range": 0.05},
    "awd_lstm": {**CELLS["lstm"], **AWD_LSTM},
    # cells, connections, widths and ties against each other
    "relu_residual_tied": {
        **CELLS["elman_relu"],
        "layer_connection": "residual",
        "tie_word_embeddings": True,
    },
    "gru_highway": {**CELLS["gru_after"], "layer_connection": "highway"},
    "gru_before_dense_narrow_top": {
        **CELLS["gru_before"],
        "layer_connection": "dense",
        "num_hidden_layers": 3,
        "last_layer_size": 7,
    },
    "lstm_wide_top_tied": {"last_layer_size": 15, "tie_word_embeddings": True},
    # what only training sees, other forms, and what tools read
    "dropout": {"embedding_dropout": 0.3, "hidden_dropout": 0.2, "weight_dropout": 0.25},
    "gru_before_weight_dropout": {**CELLS["gru_before"], "weight_dropout": 0.3},
    "label_smoothing": {"label_smoothing": 0.2},
    "whole_logits": {"chunked_loss": False},
    "reference": {**CELLS["lstm"], "implementation": "reference", "layer_connection": "dense"},
    "other_ids_and_sizes": {
        "pad_token_id": 12,
        "bos_token_id": 3,
        "eos_token_id": [2, 7],
        "max_position_embeddings": 77,
        "initializer_range": 0.3,
        "use_cache": False,
    },
}


RNN_LM = Grid(
    model_type="seqmodels_rnn_lm",
    auto_class=AutoModelForCausalLM,
    sides=(TOKENS,),
    make_rows=make_rows,
    base=BASE,
    representatives=REPRESENTATIVES,
    full=full_grid(),
    fixed_fields=frozenset({"is_encoder_decoder"}),
    ties=ties,
    no_dropout={
        "word_dropout": 0.0,
        "embedding_dropout": 0.0,
        "hidden_dropout": 0.0,
        "output_dropout": 0.0,
        "weight_dropout": 0.0,
        "activation_regularization": 0.0,
        "temporal_activation_regularization": 0.0,
    },
    dropout={"embedding_dropout": 0.3, "hidden_dropout": 0.3, "weight_dropout": 0.3},
    tiny_vocabulary={"vocab_size": 5},
    refused_caches=("static", "offloaded", "offloaded_static", "quantized"),
    label_shift=1,
)
