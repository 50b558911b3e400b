"""Tiny language models of characters, for the programs of others that train and score them."""

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hf_seqmodels import DecoderLMConfig, DecoderLMForCausalLM, RnnLMConfig, RnnLMForCausalLM
from hf_seqmodels.data import train_tokenizer

NO_DROPOUT = {
    "decoder_lm": {"embedding_dropout": 0.0, "hidden_dropout": 0.0, "attention_dropout": 0.0},
    "rnn_lm": {"embedding_dropout": 0.0, "hidden_dropout": 0.0},
}
LANGUAGE_MODELS = tuple(NO_DROPOUT)


def character_tokenizer() -> PreTrainedTokenizerBase:
    """Return a tokenizer of the letters a, b, c and the space, which adds no special tokens."""
    return train_tokenizer(["abc", "ba c"], model="char", append_eos=False)


def make_language_model(family: str, tokenizer: PreTrainedTokenizerBase, **options):
    """Return a new model in evaluation mode.

    Args:
        family: "decoder_lm" or "rnn_lm".
        tokenizer: whose ids it has.
        options: of the config.
    """
    torch.manual_seed(0)
    options = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "max_position_embeddings": 64,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        **options,
    }
    if family == "decoder_lm":
        return DecoderLMForCausalLM(DecoderLMConfig(num_attention_heads=2, **options)).eval()
    return RnnLMForCausalLM(RnnLMConfig(**{"embedding_size": 16, **options})).eval()


def log_probabilities(model, ids: list[int]) -> Tensor:
    """Return log p(x_t | x_<t) of every token but the first, (T - 1), in float64, of a row alone
    and without padding."""
    row = torch.tensor([ids])
    scores = model(input_ids=row).logits.double().log_softmax(dim=-1)  # (1, T, V)
    return scores[0, :-1].gather(1, row[0, 1:, None])[:, 0]
