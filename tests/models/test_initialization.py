"""How new parameters are drawn: every kind against its documented distribution, seeded."""

import math

import pytest
import torch
from torch import Tensor, nn

from hf_seqmodels import RnnSeq2SeqConfig, RnnSeq2SeqForConditionalGeneration
from hf_seqmodels.models.layers_recurrent import HighwayConnection
from hf_seqmodels.models.pretrained_base import initialize_recurrent

GATES = {"elman": 1, "gru": 3, "lstm": 4}


def make_model(seed: int = 0, **options):
    """Return a new model, wide enough for its numbers to show a distribution."""
    torch.manual_seed(seed)
    sizes = {
        "vocab_size": 190,
        "decoder_vocab_size": 210,
        "embedding_size": 40,
        "hidden_size": 48,
        "encoder_hidden_size": 56,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
    }
    return RnnSeq2SeqForConditionalGeneration(RnnSeq2SeqConfig(**sizes | options))


def distance(values: Tensor, distribution_function) -> float:
    """Return Kolmogorov's distance of a sample from a distribution, scaled by sqrt(n).

    A value of 2.2 is passed by chance once in eight thousand times.
    """
    ordered = values.detach().flatten().double().sort().values
    n = len(ordered)
    expected = distribution_function(ordered)
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    gap = torch.maximum((expected - steps[:-1]).abs(), (expected - steps[1:]).abs())
    return float(gap.max()) * n**0.5


def assert_normal(values: Tensor, std: float):
    """Assert N(0, std)."""
    assert distance(values, lambda x: (1 + torch.erf(x / (std * 2**0.5))) / 2) < 2.2


def assert_xavier(weight: Tensor):
    """Assert U(-b, b) with b = sqrt(6 / (fan_in + fan_out)), Glorot and Bengio 2010."""
    bound = math.sqrt(6 / (weight.shape[0] + weight.shape[1]))
    assert 0.97 * bound <= weight.abs().max() <= bound * 1.0001
    assert distance(weight, lambda x: (x + bound) / (2 * bound)) < 2.2


@pytest.mark.parametrize("std", [0.1, 0.02])
def test_embeddings_are_normal_with_the_initial_spread(std):
    model = make_model(initializer_range=std)
    assert_normal(model.get_encoder().embed_tokens.weight, std)
    assert_normal(model.get_decoder().embed_tokens.weight, std)


@pytest.mark.parametrize(
    "options",
    [
        {"attention_scorer": "additive"},
        {"attention_scorer": "general"},
        {"attention_scorer": "multi_head", "num_attention_heads": 4},
        {"cell_type": "lstm", "attention_query": "previous"},
    ],
)
def test_linear_layers_are_xavier_uniform_with_zero_bias(options):
    model = make_model(**options)
    layers = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    assert "lm_head" in layers
    assert "model.decoder.bridge.hidden_projection" in layers
    assert any("attention" in name for name in layers)
    for layer in layers.values():
        assert_xavier(layer.weight)
        assert layer.bias is None or (layer.bias == 0).all()


def test_a_tied_output_layer_is_drawn_as_an_embedding():
    model = make_model(tie_word_embeddings=True)
    assert model.lm_head.weight is model.get_decoder().embed_tokens.weight
    assert_normal(model.lm_head.weight, 0.1)
    assert_xavier(model.output_projection.weight)


@pytest.mark.parametrize("cell_type", GATES)
def test_recurrent_layers_are_xavier_and_orthogonal_gate_by_gate(cell_type):
    model = make_model(cell_type=cell_type)
    layers = [m for m in model.modules() if isinstance(m, nn.RNNBase)]
    assert len(layers) == 4
    for layer in layers:
        for name, parameter in layer.named_parameters():
            gates = parameter.detach().chunk(GATES[cell_type])
            if name.startswith("weight"):  # every gate is a draw of its own
                assert len({float(gate[0, 0]) for gate in gates}) == GATES[cell_type]
            for index, gate in enumerate(gates):
                if name.startswith("weight_ih"):
                    assert_xavier(gate)
                elif name.startswith("weight_hh"):
                    identity = torch.eye(len(gate))
                    torch.testing.assert_close(gate @ gate.T, identity, rtol=0, atol=1e-5)
                else:
                    forget = cell_type == "lstm" and index == 1 and name.startswith("bias_ih")
                    assert (gate == (1.0 if forget else 0.0)).all()


def test_the_forget_gate_starts_open():
    """Both biases together: sigma(1) = 0.73, with every other gate at one half."""
    layer = make_model(cell_type="lstm").get_encoder().stack.layers[0]
    _, _, bias, second_bias = (part.detach() for part in layer.weights())
    gates = torch.sigmoid(bias + second_bias).chunk(4)  # i, f, g, o
    assert [round(float(gate.mean()), 2) for gate in gates] == [0.5, 0.73, 0.5, 0.5]


def test_orthogonal_weights_keep_the_length_of_a_vector():
    rnn = nn.RNN(7, 30)
    initialize_recurrent(rnn)
    first = last = torch.randn(30)
    for _ in range(50):
        last = rnn.weight_hh_l0.detach() @ last
    torch.testing.assert_close(last.norm(), first.norm(), rtol=1e-4, atol=0)


def test_a_highway_starts_towards_carrying_its_input():
    model = make_model(layer_connection="highway")
    gates = [m.gate for m in model.modules() if isinstance(m, HighwayConnection)]
    assert len(gates) == 2
    for gate in gates:
        assert_xavier(gate.weight)
        assert (gate.bias == -1).all()


def test_every_kind_of_parameter_is_drawn_here():
    """No parameter of any part keeps what torch itself draws: each rule above reaches it."""
    covered = (nn.Linear, nn.Embedding, nn.RNNBase)
    for options in (
        {"layer_connection": "highway", "tie_word_embeddings": True, "cell_type": "lstm"},
        {"attention_scorer": None},
        {"attention_scorer": "multi_head", "num_attention_heads": 4, "attention_query": "previous"},
    ):
        model = make_model(**options)
        for module in model.modules():
            if any(True for _ in module.parameters(recurse=False)):
                assert isinstance(module, covered), type(module)


def test_a_seed_decides_every_parameter():
    one, same, other = (make_model(seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(value, same[name]) for name, value in one.items())
    drawn = [name for name in one if "weight" in name]
    assert all(not torch.equal(one[name], other[name]) for name in drawn)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_recurrent_weights_of_any_type_are_orthogonal(dtype):
    module = nn.GRU(7, 12).to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(float("nan"))
    initialize_recurrent(module)
    assert all(parameter.isfinite().all() for parameter in module.parameters())
    for gate in module.weight_hh_l0.detach().double().chunk(3):
        tolerance = 1e-6 if dtype == torch.float64 else 2e-2
        torch.testing.assert_close(
            gate @ gate.T, torch.eye(12, dtype=torch.float64), rtol=0, atol=tolerance
        )


def test_loaded_weights_are_left_alone():
    module = nn.LSTM(7, 12)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    for name in ("weight_hh_l0", "bias_ih_l0"):
        getattr(module, name)._is_hf_initialized = True
    initialize_recurrent(module)
    for name, value in module.state_dict().items():
        is_loaded = name in ("weight_hh_l0", "bias_ih_l0")
        assert torch.equal(value, before[name]) == is_loaded, name
