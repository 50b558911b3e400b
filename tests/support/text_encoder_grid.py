"""The cases of the transformer text encoder: its masked language model."""

import itertools
from typing import Any

import torch
from transformers import AutoModelForMaskedLM, PreTrainedConfig

from family_cases import Grid, Row, Side

TOKENS = Side(
    tokens="input_ids",
    keep="attention_mask",
    embeds="inputs_embeds",
    outputs=("logits",),
    aligned=("labels",),
    kinds=("token_type_ids",),
)
LENGTHS = (5, 2, 4, 3)

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

REPRESENTATIVES: dict[str, dict[str, Any]] = {
    # architectures of the literature
    "bert": {"intermediate_size": None},
    "modernbert": {
        "position_embedding": "rotary",
        "rope_theta": 500.0,
        "norm_position": "pre",
        "norm_embedding": True,
        "norm_eps": 1e-5,
        "gated_mlp": True,
        "use_bias": False,
        "type_vocab_size": 0,
        "sliding_window": 2,
        "global_attention_every": 3,
        "num_hidden_layers": 3,
        "tie_word_embeddings": False,
    },
    "vaswani": {
        "position_embedding": "sinusoidal",
        "scale_embedding": True,
        "norm_embedding": False,
        "hidden_act": "relu",
        "type_vocab_size": 0,
    },
    # options against each other
    "alibi_pre_rms_grouped": {
        "position_embedding": "alibi",
        "norm_position": "pre",
        "norm_type": "rms",
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "scaled_residual_init": True,
    },
    "alibi_window_eager": {
        "attn_implementation": "eager",
        "position_embedding": "alibi",
        "sliding_window": 2,
        "hidden_act": "gelu_pytorch_tanh",
        "padding_free": "off",
    },
    "rotary_wide_heads_padding_free": {
        "position_embedding": "rotary",
        "num_key_value_heads": 1,
        "head_dim": 10,
        "padding_free": "on",
    },
    # what only training or another head sees, and what tools read
    "dropout": {
        "embedding_dropout": 0.3,
        "hidden_dropout": 0.2,
        "attention_dropout": 0.25,
        "classifier_dropout": 0.4,
        "pooling": "mean",
    },
    "label_smoothing": {"label_smoothing": 0.2, "chunked_loss": False},
    "other_ids_and_sizes": {
        "pad_token_id": 12,
        "bos_token_id": 3,
        "eos_token_id": [2, 7],
        "type_vocab_size": 3,
        "max_position_embeddings": 77,
        "initializer_range": 0.3,
        "padding_free": "on",
    },
}


def make_rows(config: PreTrainedConfig, num_rows: int = 3) -> list[Row]:
    """Return rows of 2 to 5 tokens, the first and about half of the others to be guessed."""
    generator = torch.Generator().manual_seed(7)
    rows = []
    for num_tokens in itertools.islice(itertools.cycle(LENGTHS), num_rows):
        tokens, guessed = torch.randint(config.vocab_size, (2, num_tokens), generator=generator)
        is_guessed = torch.rand(num_tokens, generator=generator) < 0.5
        is_guessed[0] = True
        row = {"input_ids": tokens, "labels": guessed.masked_fill(~is_guessed, -100)}
        if config.type_vocab_size:
            types = torch.randint(config.type_vocab_size, (num_tokens,), generator=generator)
            row["token_type_ids"] = types
        rows.append(row)
    return rows


def ties(config: PreTrainedConfig) -> list[set[str]]:
    """Return the parameters that the config makes one."""
    tied = {"model.embed_tokens.weight", "lm_head.weight"}
    return [tied] if config.tie_word_embeddings else []


TEXT_ENCODER = Grid(
    model_type="seqmodels_text_encoder",
    auto_class=AutoModelForMaskedLM,
    sides=(TOKENS,),
    make_rows=make_rows,
    base=BASE,
    representatives=REPRESENTATIVES,
    fixed_fields=frozenset({"is_encoder_decoder"}),
    ties=ties,
    no_dropout={"embedding_dropout": 0.0, "hidden_dropout": 0.0, "attention_dropout": 0.0},
    dropout={"embedding_dropout": 0.3, "hidden_dropout": 0.3},
    has_holes=lambda config: config.sliding_window is None,
    generates=False,
    has_reference=False,
)
