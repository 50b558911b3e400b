"""Parts of a block: attention, feed-forward layers and normalisation against plain loops."""

import math

import pytest
import torch
from torch import nn
from transformers.activations import ACT2FN

from hf_seqmodels import DecoderLMConfig
from hf_seqmodels.models.layers_transformer import NORMS, SelfAttention, make_feed_forward


def make_attention(**options) -> SelfAttention:
    """Return a layer of width 10 with 4 heads of width 3, in float64, with random biases."""
    options = {"num_heads": 4, "num_key_value_heads": 2, "head_dim": 3, **options}
    config = DecoderLMConfig(attn_implementation="eager")
    layer = SelfAttention(config, 0, hidden_size=10, use_bias=True, dropout=0.0, **options)
    return layer.double().eval()


@pytest.mark.parametrize("num_key_value_heads", [1, 2, 4])
def test_attention_is_its_equations(num_key_value_heads):
    layer = make_attention(num_key_value_heads=num_key_value_heads)
    inputs = torch.randn(2, 5, 10, dtype=torch.float64)  # (B, T, D)
    lowest = torch.finfo(torch.float64).min
    mask = torch.full((5, 5), lowest, dtype=torch.float64).triu(1)[None, None]
    actual, weights = layer(inputs, attention_mask=mask)
    for row in range(2):
        for step in range(5):
            heads = []
            for head in range(4):
                shared = head * num_key_value_heads // 4  # neighbours share keys and values

                def slice_of(projection, place, index, row=row):
                    return projection(inputs[row, place])[3 * index : 3 * index + 3]

                query = slice_of(layer.q_proj, step, head)
                scores = [
                    (query @ slice_of(layer.k_proj, place, shared)).item() / math.sqrt(3)
                    for place in range(step + 1)
                ]
                exponentials = [math.exp(score) for score in scores]
                probabilities = [one / sum(exponentials) for one in exponentials]
                assert weights[row, head, step, : step + 1].tolist() == pytest.approx(probabilities)
                assert (weights[row, head, step, step + 1 :] == 0).all()
                heads.append(
                    sum(
                        probability * slice_of(layer.v_proj, place, shared)
                        for place, probability in enumerate(probabilities)
                    )
                )
            torch.testing.assert_close(actual[row, step], layer.o_proj(torch.cat(heads)))


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_pytorch_tanh", "relu", "silu"])
@pytest.mark.parametrize("gated", [False, True])
def test_feed_forward_is_its_equation(hidden_act, gated):
    options = {"hidden_size": 4, "intermediate_size": 7, "hidden_act": hidden_act}
    layer = make_feed_forward(gated=gated, use_bias=True, **options).double()
    inputs = torch.randn(2, 3, 4, dtype=torch.float64)
    plain = {
        "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
        "gelu_pytorch_tanh": ACT2FN["gelu_new"],  # GPT-2's own chain of operations
        "relu": lambda x: x.clamp(min=0),
        "silu": lambda x: x / (1 + torch.exp(-x)),
    }[hidden_act]

    def linear(module, x):
        return x @ module.weight.T + module.bias

    inner = linear(layer.up_proj, inputs)
    inner = plain(linear(layer.gate_proj, inputs)) * inner if gated else plain(inner)
    torch.testing.assert_close(layer(inputs), linear(layer.down_proj, inner))


@pytest.mark.parametrize("use_bias", [False, True])
def test_norms_are_their_formulas(use_bias):
    inputs = torch.randn(2, 3, 5, dtype=torch.float64)
    for name, make in NORMS.items():
        norm = make(5, eps=0.1, use_bias=use_bias).double()
        for parameter in norm.parameters():
            nn.init.uniform_(parameter)
        mean = inputs.mean(dim=-1, keepdim=True) if name == "layer" else 0.0
        deviation = ((inputs - mean).square().mean(dim=-1, keepdim=True) + 0.1).sqrt()
        expected = norm.weight * (inputs - mean) / deviation
        if name == "layer" and use_bias:
            expected = expected + norm.bias
        else:
            assert getattr(norm, "bias", None) is None
        torch.testing.assert_close(norm(inputs), expected)


def test_a_printed_layer_says_what_its_projections_do_not():
    shown = repr(make_attention(num_key_value_heads=2, sliding_window=3)).splitlines()[1].strip()
    assert shown == "num_heads=4, num_key_value_heads=2, is_causal=True, sliding_window=3"
