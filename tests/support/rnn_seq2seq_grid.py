"""The cases of the recurrent encoder-decoder."""

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, PreTrainedConfig

from family_cases import Grid, Row, Side

SOURCE = Side(
    tokens="input_ids",
    keep="attention_mask",
    embeds="inputs_embeds",
    outputs=("encoder_last_hidden_state",),
)
TARGET = Side(
    tokens="decoder_input_ids",
    keep="decoder_attention_mask",
    embeds="decoder_inputs_embeds",
    vocab_size="target_vocab_size",
    outputs=("logits",),
    aligned=("labels",),
    is_causal=True,
)

# Widths that tell a swapped axis: 3 rows, 7 source and 5 target tokens, heads of width 6.
BASE: dict[str, Any] = {
    "vocab_size": 19,
    "decoder_vocab_size": 13,
    "embedding_size": 9,
    "hidden_size": 24,
    "encoder_hidden_size": 22,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
}

CELLS: dict[str, dict[str, Any]] = {
    "elman_tanh": {"cell_type": "elman"},
    "elman_relu": {"cell_type": "elman", "elman_activation": "relu"},
    "gru_after": {"cell_type": "gru"},
    "gru_before": {"cell_type": "gru", "gru_reset": "before"},
    "lstm": {"cell_type": "lstm"},
}
SCORERS: dict[str, dict[str, Any]] = {
    "dot": {"attention_scorer": "dot", "encoder_hidden_size": 24},
    "scaled_dot": {"attention_scorer": "scaled_dot", "encoder_hidden_size": 24},
    "general": {"attention_scorer": "general"},
    "additive": {"attention_scorer": "additive"},
    "multi_head": {"attention_scorer": "multi_head", "num_attention_heads": 4},
}
QUERIES: dict[str, dict[str, Any]] = {
    "current": {"attention_query": "current"},
    "feeding": {"attention_query": "current", "input_feeding": True},
    "previous": {"attention_query": "previous"},
}
BRIDGES: dict[str, dict[str, Any]] = {
    "copy": {"bridge": "copy", "encoder_hidden_size": 24},
    "projection": {"bridge": "projection"},
    "zeros": {"bridge": "zeros"},
}
CONNECTIONS = ("none", "residual", "highway", "dense")
NO_ATTENTION: dict[str, Any] = {"attention_scorer": None}
COPY = BRIDGES["copy"]
# room for 4 words behind the vocabulary of 19
POINTER = {
    "decoder_vocab_size": None,
    "pointer_generator": True,
    "max_copied_words": 4,
    "unk_token_id": 3,
}
ONE_LAYER = {"num_encoder_layers": 1, "num_decoder_layers": 1}


def attention_kinds() -> dict[str, dict[str, Any]]:
    """Return {name: options}: no attention, and every scorer with every query."""
    kinds = {
        f"{scorer}_{query}": {**SCORERS[scorer], **QUERIES[query]}
        for scorer, query in itertools.product(SCORERS, QUERIES)
    }
    return {"no_attention": NO_ATTENTION, **kinds}


def full_grid() -> dict[str, dict[str, dict[str, Any]]]:
    """Return {group: {case: options}}: cell x attention x bridge x connection, grouped by the first
    two."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for (cell, cell_options), (kind, kind_options) in itertools.product(
        CELLS.items(), attention_kinds().items()
    ):
        group = groups.setdefault(f"{cell}-{kind}", {})
        for (bridge, bridge_options), connection in itertools.product(BRIDGES.items(), CONNECTIONS):
            options = {**cell_options, **kind_options, **bridge_options}
            options["layer_connection"] = connection
            group[f"{cell}-{kind}-{bridge}-{connection}"] = options
    return groups


def mix(*parts: Mapping[str, Any], **options) -> dict[str, Any]:
    """Join options."""
    joined: dict[str, Any] = {}
    for part in (*parts, options):
        joined |= part
    return joined


def attention(scorer: str, query: str) -> dict[str, Any]:
    """Return the options of a scorer and a query."""
    return SCORERS[scorer] | QUERIES[query]


def representatives() -> dict[str, dict[str, Any]]:
    """Return {case: options} that cover every value of every option at least once."""
    return {
        # architectures of the literature
        "bahdanau": mix(CELLS["gru_before"], attention("additive", "previous"), ONE_LAYER),
        "luong": mix(
            CELLS["lstm"],
            attention("general", "feeding"),
            COPY,
            bidirectional_encoder=False,
            reverse_source=True,
        ),
        "sutskever": mix(
            CELLS["lstm"],
            NO_ATTENTION,
            COPY,
            bidirectional_encoder=False,
            reverse_source=True,
            num_encoder_layers=3,
            num_decoder_layers=3,
        ),
        "cho": mix(CELLS["gru_before"], NO_ATTENTION, ONE_LAYER, bidirectional_encoder=False),
        # cells, scorers, queries, bridges and connections against each other
        "tanh_none_zeros_dense": mix(
            CELLS["elman_tanh"], NO_ATTENTION, BRIDGES["zeros"], layer_connection="dense"
        ),
        "tanh_dot_previous_copy_residual": mix(
            CELLS["elman_tanh"], attention("dot", "previous"), COPY, layer_connection="residual"
        ),
        "relu_additive_current_highway": mix(
            CELLS["elman_relu"], attention("additive", "current"), layer_connection="highway"
        ),
        "relu_scaled_dot_feeding_zeros_dense": mix(
            CELLS["elman_relu"],
            attention("scaled_dot", "feeding"),
            BRIDGES["zeros"],
            layer_connection="dense",
        ),
        "gru_dot_current_copy": mix(CELLS["gru_after"], attention("dot", "current"), COPY),
        "gru_general_feeding_zeros_highway": mix(
            CELLS["gru_after"],
            attention("general", "feeding"),
            BRIDGES["zeros"],
            layer_connection="highway",
        ),
        "gru_multi_head_previous_dense": mix(
            CELLS["gru_after"], attention("multi_head", "previous"), layer_connection="dense"
        ),
        "gru_before_multi_head_feeding_residual": mix(
            CELLS["gru_before"],
            attention("multi_head", "feeding"),
            COPY,
            layer_connection="residual",
        ),
        "gru_before_scaled_dot_current_highway": mix(
            CELLS["gru_before"], attention("scaled_dot", "current"), layer_connection="highway"
        ),
        "lstm_none_highway": mix(CELLS["lstm"], NO_ATTENTION, layer_connection="highway"),
        "lstm_additive_previous_dense": mix(
            CELLS["lstm"], attention("additive", "previous"), COPY, layer_connection="dense"
        ),
        "lstm_dot_feeding_zeros_residual": mix(
            CELLS["lstm"],
            attention("dot", "feeding"),
            BRIDGES["zeros"],
            layer_connection="residual",
        ),
        "lstm_multi_head_current": mix(CELLS["lstm"], attention("multi_head", "current")),
        # depth and direction
        "more_encoder_layers": mix(
            CELLS["lstm"],
            attention("additive", "feeding"),
            num_encoder_layers=3,
            num_decoder_layers=1,
        ),
        "more_decoder_layers": mix(
            CELLS["lstm"],
            attention("general", "previous"),
            num_encoder_layers=1,
            num_decoder_layers=3,
        ),
        "reversed_in_both_directions": mix(attention("additive", "current"), reverse_source=True),
        "one_direction": mix(
            attention("additive", "previous"), bidirectional_encoder=False, encoder_hidden_size=None
        ),
        # vocabularies and tables
        "one_vocabulary": mix(attention("additive", "current"), decoder_vocab_size=None),
        "shared_tables": mix(
            attention("additive", "current"), decoder_vocab_size=None, share_embeddings=True
        ),
        "tied_output": mix(
            attention("dot", "current"), embedding_size=24, tie_word_embeddings=True
        ),
        "tied_output_of_other_width": mix(
            attention("additive", "previous"), tie_word_embeddings=True
        ),
        "all_tied": mix(
            attention("general", "feeding"),
            decoder_vocab_size=None,
            embedding_size=24,
            share_embeddings=True,
            tie_word_embeddings=True,
        ),
        "all_tied_of_other_width": mix(
            NO_ATTENTION,
            decoder_vocab_size=None,
            share_embeddings=True,
            tie_word_embeddings=True,
        ),
        # copying, and attention that knows what it has attended to
        "coverage_previous": mix(
            attention("additive", "previous"), coverage_attention=True, coverage_loss_weight=0.5
        ),
        "coverage_feeding": mix(
            CELLS["lstm"], attention("additive", "feeding"), coverage_attention=True
        ),
        "coverage_loss_alone": mix(
            attention("multi_head", "current"),
            coverage_loss_weight=0.5,
            guided_alignment_weight=0.3,
        ),
        "pointer": mix(attention("additive", "current"), POINTER),
        "pointer_with_coverage": mix(
            CELLS["lstm"],
            attention("additive", "previous"),
            POINTER,
            coverage_attention=True,
            coverage_loss_weight=0.5,
            label_smoothing=0.2,
            max_copied_words=2,
        ),
        "pointer_of_heads": mix(
            attention("multi_head", "feeding"),
            POINTER,
            share_embeddings=True,
            tie_word_embeddings=True,
        ),
        # what only training sees, and what tools read
        "dropout": mix(
            CELLS["lstm"],
            attention("additive", "feeding"),
            embedding_dropout=0.3,
            hidden_dropout=0.2,
            attention_dropout=0.25,
        ),
        "variational_dropout": mix(
            attention("additive", "previous"),
            embedding_dropout=0.3,
            hidden_dropout=0.2,
            variational_dropout=True,
        ),
        "variational_dropout_in_kernels": mix(
            attention("additive", "current"), hidden_dropout=0.2, variational_dropout=True
        ),
        "label_smoothing": mix(attention("additive", "current"), label_smoothing=0.2),
        "reference": mix(attention("additive", "current"), implementation="reference"),
        "other_ids_and_sizes": mix(
            attention("additive", "previous"),
            pad_token_id=12,
            bos_token_id=3,
            eos_token_id=[2, 7],
            decoder_start_token_id=4,
            max_position_embeddings=77,
            initializer_range=0.3,
            use_cache=False,
        ),
    }


def ties(config: PreTrainedConfig) -> list[set[str]]:
    """Return the parameters that the config makes one."""
    source, target = (f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
    tied = set()
    if config.share_embeddings:
        tied |= {source, target}
    if config.tie_word_embeddings:
        tied |= {target, "lm_head.weight"}
    return [tied] if tied else []


LENGTHS = ((7, 2), (4, 5), (1, 3), (6, 1), (3, 4), (5, 2), (2, 5), (7, 3))


def make_rows(config: PreTrainedConfig, num_rows: int = 3) -> list[Row]:
    """Return rows of 1 to 7 source and 1 to 5 target tokens; of three, no two are as long. Where
    words can be copied, a source has some behind the vocabulary, and its target one of them."""
    generator = torch.Generator().manual_seed(7)
    rows = []
    num_ids = config.vocab_size
    if getattr(config, "pointer_generator", False):
        num_ids += config.max_copied_words
    for num_source, num_target in itertools.islice(itertools.cycle(LENGTHS), num_rows):
        labels = torch.randint(config.target_vocab_size, (num_target,), generator=generator)
        start = torch.tensor([config.decoder_start_token_id])
        source = torch.randint(num_ids, (num_source,), generator=generator)
        copied = source[source >= config.vocab_size][:1]
        labels[: len(copied)] = copied
        rows.append(
            {
                "input_ids": source,
                "decoder_input_ids": torch.cat([start, labels[:-1]]),
                "labels": labels,
            }
        )
    return rows


RNN_SEQ2SEQ = Grid(
    model_type="seqmodels_rnn_seq2seq",
    auto_class=AutoModelForSeq2SeqLM,
    sides=(SOURCE, TARGET),
    make_rows=make_rows,
    base=BASE,
    representatives=representatives(),
    full=full_grid(),
    fixed_fields=frozenset({"is_encoder_decoder"}),
    ties=ties,
    no_dropout={
        "embedding_dropout": 0.0,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "coverage_loss_weight": 0.0,
    },
    dropout={"embedding_dropout": 0.3, "hidden_dropout": 0.3},
    tiny_vocabulary={"decoder_vocab_size": 5},
    keeps_ids=lambda config: config.pointer_generator,
    refused_caches=("static", "offloaded", "offloaded_static", "quantized"),
)
