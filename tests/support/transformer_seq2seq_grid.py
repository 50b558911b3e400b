"""The cases of the transformer encoder-decoder."""

import itertools
from typing import Any

from transformers import AutoModelForSeq2SeqLM

from family_cases import Grid
from rnn_seq2seq_grid import SOURCE, TARGET, make_rows, ties

# Widths that tell a swapped axis: 3 rows, 7 source and 5 target tokens, 4 heads of width 6.
BASE: dict[str, Any] = {
    "vocab_size": 19,
    "decoder_vocab_size": 13,
    "hidden_size": 24,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 22,
    "max_position_embeddings": 32,
    "initializer_range": 0.5,
}

NORMS: dict[str, dict[str, Any]] = {
    f"{position}_{kind}": {"norm_position": position, "norm_type": kind}
    for position, kind in itertools.product(("pre", "post"), ("layer", "rms"))
}
GATED: dict[str, Any] = {"hidden_act": "silu", "gated_mlp": True, "use_bias": False}
SHARED: dict[str, Any] = {"decoder_vocab_size": None, "share_embeddings": True}
HEADS: dict[str, dict[str, Any]] = {
    "all": {},
    "grouped": {"num_key_value_heads": 2},
    "wide": {"num_key_value_heads": 1, "head_dim": 10},
}


def full_grid() -> dict[str, dict[str, dict[str, Any]]]:
    """Return {group: {case: options}}: positions x norms x heads, each with one of the feed-forward
    layers, one group for each kind of positions."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for number, (position, norm, heads) in enumerate(
        itertools.product(("learned", "sinusoidal", "rotary", "alibi"), NORMS, HEADS)
    ):
        options = {"position_embedding": position, **NORMS[norm], **HEADS[heads]}
        options |= GATED if number % 2 else {"hidden_act": "gelu"}
        groups.setdefault(position, {})[f"{position}-{norm}-{heads}"] = options
    return groups


REPRESENTATIVES: dict[str, dict[str, Any]] = {
    # architectures of the literature
    "vaswani": {"norm_position": "post", **SHARED, "tie_word_embeddings": True},
    "marian": {
        "norm_position": "post",
        "hidden_act": "silu",
        "use_output_bias": True,
        "tie_word_embeddings": True,
        "decoder_start_token_id": 0,
    },
    "modern": {
        "position_embedding": "rotary",
        "norm_type": "rms",
        "norm_eps": 1e-6,
        **GATED,
        "num_key_value_heads": 2,
        "scale_embedding": False,
    },
    # options against each other
    "learned": {"position_embedding": "learned", "hidden_act": "gelu_pytorch_tanh"},
    "alibi_deep_encoder": {
        "position_embedding": "alibi",
        "num_attention_heads": 6,
        "num_encoder_layers": 3,
        "num_decoder_layers": 1,
    },
    "rotary_post_wide_heads": {
        "position_embedding": "rotary",
        "rope_theta": 500.0,
        "norm_position": "post",
        "hidden_act": "gelu",
        **HEADS["wide"],
    },
    "alibi_post_rms_grouped": {
        "position_embedding": "alibi",
        **NORMS["post_rms"],
        **HEADS["grouped"],
        "num_encoder_layers": 1,
        "num_decoder_layers": 3,
    },
    "eager": {"attn_implementation": "eager", **HEADS["grouped"]},
    "eager_alibi": {"attn_implementation": "eager", "position_embedding": "alibi"},
    # vocabularies and tables
    "one_vocabulary": {"decoder_vocab_size": None},
    "shared_tables": {**SHARED, "use_output_bias": True},
    "tied_output": {"tie_word_embeddings": True},
    # what only training sees, and what tools read
    "dropout": {"embedding_dropout": 0.3, "hidden_dropout": 0.2, "attention_dropout": 0.25},
    "label_smoothing": {"label_smoothing": 0.2, "chunked_loss": False},
    "guided": {"guided_alignment_weight": 0.3, "guided_alignment_layer": 0},
    "other_ids_and_sizes": {
        "pad_token_id": 12,
        "bos_token_id": 3,
        "eos_token_id": [2, 7],
        "decoder_start_token_id": 4,
        "max_position_embeddings": 77,
        "initializer_range": None,
        "intermediate_size": None,
        "use_cache": False,
    },
}


TRANSFORMER_SEQ2SEQ = Grid(
    model_type="seqmodels_transformer_seq2seq",
    auto_class=AutoModelForSeq2SeqLM,
    sides=(SOURCE, TARGET),
    make_rows=make_rows,
    base=BASE,
    representatives=REPRESENTATIVES,
    full=full_grid(),
    fixed_fields=frozenset({"is_encoder_decoder"}),
    ties=ties,
    no_dropout={"embedding_dropout": 0.0, "hidden_dropout": 0.0, "attention_dropout": 0.0},
    dropout={"embedding_dropout": 0.3, "hidden_dropout": 0.3},
    tiny_vocabulary={"decoder_vocab_size": 5},
    has_reference=False,
)
