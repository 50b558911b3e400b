"""Tiny random encoder-decoders of several families, and tokenizers for them."""

import pytest
import torch

from tiny_encoder_decoders import MODELS, make_bart, make_tokenizer


@pytest.fixture(params=MODELS)
def model(request):
    """One model of each family, in training mode, as a Trainer would hand it over."""
    torch.manual_seed(1)
    return MODELS[request.param]().train()


@pytest.fixture(params=[name for name in MODELS if name != "rnn_without_attention"])
def attention_model(request):
    """One model of each family that attends."""
    torch.manual_seed(1)
    return MODELS[request.param]().eval()


@pytest.fixture
def make_model():
    """A function that makes a model of some family from a seed, options where it takes any."""

    def make(name, seed, **options):
        torch.manual_seed(seed)
        return MODELS[name](**options)

    return make


@pytest.fixture
def bart():
    torch.manual_seed(1)
    return make_bart().eval()


@pytest.fixture
def tokenizer():
    return make_tokenizer()


@pytest.fixture
def sources():
    """Texts of different lengths, out of order, one of them empty."""
    return ["a b c", "d", "", "e f g h i j a", "k l", "a b c m"]
