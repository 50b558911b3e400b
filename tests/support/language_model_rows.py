"""What the grids of all language models share: the one side, rows of text, the tied table."""

import itertools

import torch
from transformers import PreTrainedConfig

from family_cases import Row, Side

TOKENS = Side(
    tokens="input_ids",
    keep="attention_mask",
    embeds="inputs_embeds",
    outputs=("logits",),
    aligned=("labels",),
    is_causal=True,
)
LENGTHS = (5, 2, 4, 3)


def make_rows(config: PreTrainedConfig, num_rows: int = 3) -> list[Row]:
    """Return rows of 2 to 5 tokens, which are their own labels; of four, no two are as long."""
    generator = torch.Generator().manual_seed(7)
    rows = []
    for num_tokens in itertools.islice(itertools.cycle(LENGTHS), num_rows):
        tokens = torch.randint(config.vocab_size, (num_tokens,), generator=generator)
        rows.append({"input_ids": tokens, "labels": tokens})
    return rows


def ties(config: PreTrainedConfig) -> list[set[str]]:
    """Return the parameters that the config makes one."""
    tied = {"model.embed_tokens.weight", "lm_head.weight"}
    return [tied] if config.tie_word_embeddings else []
