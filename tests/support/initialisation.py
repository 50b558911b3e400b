"""Whether a parameter looks as its documented initialisation says.

The rules are those in the docstring of SeqModelsPreTrainedModel; a family with other layers
adds its own here.
"""

import torch
from torch import Tensor, nn

NUM_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}


def assert_initialised(model, name: str):
    """Assert that a parameter was drawn as documented.

    Args:
        model: with `config.initializer_range`.
        name: of the parameter.

    Raises:
        AssertionError: if it was not, or if no rule is known for it.
    """
    path, _, local_name = name.rpartition(".")
    module = model.get_submodule(path)
    values = module.get_parameter(local_name).detach().double()
    assert values.isfinite().all(), name
    if hasattr(model.config, "scaled_residual_init"):
        assert_transformer(name, local_name, values, module, model.config)
    elif getattr(model.config, "initializer", None) == "uniform":
        assert_uniform(name, values, model.config.initializer_range)
    elif isinstance(module, nn.Embedding):
        assert_normal(name, values, model.config.initializer_range)
    elif isinstance(module, nn.Linear):
        is_gate = hasattr(module, "initialize_parameters")
        assert_linear(name, local_name, values, is_gate=is_gate)
    elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
        assert (values == (0.0 if local_name == "bias" else 1.0)).all(), name
    elif isinstance(module, nn.RNNBase):
        assert_recurrent(name, local_name, values, module.mode)
    else:
        raise AssertionError(f"no rule for {name}, a parameter of {type(module).__name__}")


def assert_transformer(name: str, local_name: str, values: Tensor, module, config):
    """Assert the rules of GPT-2: normal weights, narrower where outputs are added up."""
    if local_name == "bias" or isinstance(module, nn.LayerNorm | nn.RMSNorm):
        assert (values == (0.0 if local_name == "bias" else 1.0)).all(), name
        return
    std = config.initializer_range
    if config.scaled_residual_init and name.endswith(("o_proj.weight", "down_proj.weight")):
        std /= (2 * config.num_hidden_layers) ** 0.5
    assert_normal(name, values, std)


def assert_normal(name: str, values: Tensor, std: float):
    """Assert N(0, std), five standard errors wide."""
    size = values.numel()
    assert size >= 400, f"{name} is too small to tell: {size}"
    assert abs(values.mean()) <= 5 * std / size**0.5, name
    assert abs(values.std() / std - 1) <= 5 / (2 * size) ** 0.5, name
    assert values.abs().max() > 2.2 * std, name  # a uniform distribution would end at 1.73


def assert_xavier(name: str, values: Tensor):
    """Assert U(-b, b) with b = sqrt(6 / (fan in + fan out))."""
    assert_uniform(name, values, (6 / sum(values.shape)) ** 0.5)


def assert_uniform(name: str, values: Tensor, bound: float):
    """Assert U(-bound, bound), five standard errors wide."""
    size = values.numel()
    assert values.abs().max() <= bound * (1 + 1e-2), name  # a hundredth is bfloat16's rounding
    assert values.abs().max() >= bound * (1 - 8 / size) - 1e-2 * bound, name
    # the variance of the squares of a uniform distribution is 4/5 of its squared variance
    assert abs(values.square().mean() / (bound**2 / 3) - 1) <= 5 * (0.8 / size) ** 0.5 + 1e-2, name
    assert abs(values.mean()) <= 5 * bound / (3 * size) ** 0.5 + 1e-3, name


def assert_linear(name: str, local_name: str, values: Tensor, *, is_gate: bool):
    """Assert Xavier weights, and a bias of 0, or of -1 where a gate starts towards closed."""
    if local_name == "weight":
        assert_xavier(name, values)
    else:
        assert (values == (-1.0 if is_gate else 0.0)).all(), name


def assert_recurrent(name: str, local_name: str, values: Tensor, mode: str):
    """Assert Xavier from the input and orthogonal between states, gate by gate; biases of 0, the
    LSTM's forget gate 1 in all."""
    for index, gate in enumerate(values.chunk(NUM_GATES[mode])):
        if local_name.startswith("weight_ih"):
            assert_xavier(f"{name}, gate {index}", gate)
        elif local_name.startswith("weight_hh"):
            identity = torch.eye(len(gate), dtype=gate.dtype)
            torch.testing.assert_close(gate @ gate.T, identity, rtol=0, atol=2e-2)
        else:
            is_forget_gate = mode == "LSTM" and index == 1 and local_name.startswith("bias_ih")
            assert (gate == (1.0 if is_forget_gate else 0.0)).all(), name
