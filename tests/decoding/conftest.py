"""Tiny random encoder-decoders of several families, and sources for them."""

import pytest
import torch

from tiny_encoder_decoders import MODELS, make_tokenizer

NAMES = ["bart", "transformer", "rnn_without_attention"]
ATTENTION_NAMES = ["marian", "transformer", "rnn_lstm_previous_general"]


def make(name, seed=1):
    torch.manual_seed(seed)
    return MODELS[name]().eval()


@pytest.fixture(params=NAMES)
def model(request):
    """One model of each family."""
    return make(request.param)


@pytest.fixture(params=ATTENTION_NAMES)
def attention_model(request):
    """Models that attend, one of each family."""
    return make(request.param)


@pytest.fixture
def rnn():
    return make("rnn_gru_additive")


@pytest.fixture
def bart():
    return make("bart")


@pytest.fixture
def tokenizer():
    return make_tokenizer()


@pytest.fixture
def sources():
    """Token ids of sources of different lengths."""
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(3, 17, (length,), generator=generator) for length in (6, 3, 4)]


@pytest.fixture
def pad():
    """A function that makes a batch of sources, padded on one side."""

    def pad_sources(sources, side="right"):
        longest = max(map(len, sources))
        ids = torch.zeros(len(sources), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, source in enumerate(sources):
            place = slice(0, len(source)) if side == "right" else slice(longest - len(source), None)
            ids[row, place], mask[row, place] = source, 1
        return {"input_ids": ids, "attention_mask": mask}

    return pad_sources
