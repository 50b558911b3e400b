"""Output classes that transformers does not have."""

from dataclasses import dataclass

import torch
from transformers.utils import ModelOutput


@dataclass
class RecurrentEncoderOutput(ModelOutput):
    """What a recurrent encoder hands to its decoder. Every tensor has the batch first, so that
    generate() can repeat rows for beams.

    Args:
        last_hidden_state: outputs of the top layer, zero at padding, (B, S, D).
        hidden_states: embeddings and the outputs of every layer, each (B, S, .), when asked for.
        attentions: always None; encoders of this package that recur do not attend.
        final_hidden_state: output of every layer at the last token that each direction read, (B, L,
            D); the last hidden state where layers are plainly stacked. Zero for a row without
            tokens.
        final_cell_state: last cell state of every layer, (B, L, D); LSTM only.
        attention_keys: keys projected once per sentence, kept through generation.
        attention_values: values projected once per sentence, kept through generation.
    """

    last_hidden_state: torch.FloatTensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None
    final_hidden_state: torch.FloatTensor | None = None
    final_cell_state: torch.FloatTensor | None = None
    attention_keys: torch.FloatTensor | None = None
    attention_values: torch.FloatTensor | None = None
