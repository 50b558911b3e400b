"""The cases of the transformer language model."""

import itertools
from typing import Any

from transformers import AutoModelForCausalLM

from family_cases import Grid
from language_model_rows import TOKENS, make_rows, ties

# Widths that tell a swapped axis: 3 rows, 5 tokens, 4 heads of width 6, 22 inside.
BASE: dict[str, Any] = {
    "vocab_size": 19,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 22,
    "max_position_embeddings": 32,
    "initializer_range": 0.5,
}

POSITIONS = ("learned", "sinusoidal", "rotary", "alibi")
NORMS: dict[str, dict[str, Any]] = {
    f"{position}_{kind}": {"norm_position": position, "norm_type": kind}
    for position, kind in itertools.product(("pre", "post"), ("layer", "rms"))
}
FEED_FORWARD: dict[str, dict[str, Any]] = {
    "plain": {"hidden_act": "gelu"},
    "gated": {"hidden_act": "silu", "gated_mlp": True, "use_bias": False},
}
HEADS: dict[str, dict[str, Any]] = {
    "all": {},
    "grouped": {"num_key_value_heads": 2},
    "wide": {"num_key_value_heads": 1, "head_dim": 10},
}


def full_grid() -> dict[str, dict[str, dict[str, Any]]]:
    """Return {group: {case: options}}: positions x norms x feed-forward x heads, grouped by the
    first two."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for position, (norm, norm_options) in itertools.product(POSITIONS, NORMS.items()):
        group = groups.setdefault(f"{position}-{norm}", {})
        for (kind, mlp), (heads, head_options) in itertools.product(
            FEED_FORWARD.items(), HEADS.items()
        ):
            options = {"position_embedding": position, **norm_options, **mlp, **head_options}
            group[f"{position}-{norm}-{kind}-{heads}"] = options
    return groups


REPRESENTATIVES: dict[str, dict[str, Any]] = {
    # architectures of the literature
    "gpt2": {"hidden_act": "gelu_pytorch_tanh", "intermediate_size": None},
    "llama": {
        "position_embedding": "rotary",
        "norm_type": "rms",
        "norm_eps": 1e-6,
        **FEED_FORWARD["gated"],
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
        "scaled_residual_init": False,
    },
    "vaswani": {
        "position_embedding": "sinusoidal",
        "scale_embedding": True,
        "norm_position": "post",
        "hidden_act": "relu",
    },
    "press": {"position_embedding": "alibi", "num_attention_heads": 6, "use_bias": False},
    # options against each other
    "alibi_post_rms_grouped": {
        "position_embedding": "alibi",
        **NORMS["post_rms"],
        **HEADS["grouped"],
    },
    "rotary_post_wide_heads": {
        "position_embedding": "rotary",
        "rope_theta": 500.0,
        "norm_position": "post",
        **HEADS["wide"],
    },
    "learned_window": {"sliding_window": 3},
    "rotary_window_grouped": {
        "position_embedding": "rotary",
        "sliding_window": 3,
        **HEADS["grouped"],
    },
    "alibi_window": {"position_embedding": "alibi", "sliding_window": 3},
    "eager": {"attn_implementation": "eager", "position_embedding": "rotary"},
    "eager_alibi": {"attn_implementation": "eager", "position_embedding": "alibi"},
    # what only training sees, and what tools read
    "dropout": {"embedding_dropout": 0.3, "hidden_dropout": 0.2, "attention_dropout": 0.25},
    "label_smoothing": {"label_smoothing": 0.2},
    "other_ids_and_sizes": {
        "pad_token_id": 12,
        "bos_token_id": 3,
        "eos_token_id": [2, 7],
        "max_position_embeddings": 77,
        "initializer_range": 0.3,
        "use_cache": False,
    },
}


DECODER_LM = Grid(
    model_type="seqmodels_decoder_lm",
    auto_class=AutoModelForCausalLM,
    sides=(TOKENS,),
    make_rows=make_rows,
    base=BASE,
    representatives=REPRESENTATIVES,
    full=full_grid(),
    fixed_fields=frozenset({"is_encoder_decoder"}),
    ties=ties,
    no_dropout={"embedding_dropout": 0.0, "hidden_dropout": 0.0, "attention_dropout": 0.0},
    dropout={"embedding_dropout": 0.3, "hidden_dropout": 0.3},
    tiny_vocabulary={"vocab_size": 5},
    has_holes=lambda config: config.sliding_window is None,
    label_shift=1,
    has_reference=False,
)
