"""Cells, layers and stacks against torch's own modules and against loops over the equations."""

import math

import accelerate
import pytest
import torch
from torch import nn

from hf_seqmodels.models.layers_recurrent import (
    RecurrentLayer,
    RecurrentStack,
    SequenceDropout,
    find_cell,
)
from plain_recurrence import plain_layer, plain_stack, plain_stack_step, plain_step
from probed_gradients import assert_same_values_and_gradients

B, S, I, D = 4, 6, 5, 8  # noqa: E741 (the legend of the package)
KINDS = {
    "elman_tanh": {"cell_type": "elman"},
    "elman_relu": {"cell_type": "elman", "elman_activation": "relu"},
    "gru_after": {"cell_type": "gru"},
    "gru_before": {"cell_type": "gru", "gru_reset": "before"},
    "lstm": {"cell_type": "lstm"},
}
TORCH_CELLS = {
    "elman_tanh": lambda: nn.RNNCell(I, D),
    "elman_relu": lambda: nn.RNNCell(I, D, nonlinearity="relu"),
    "gru_after": lambda: nn.GRUCell(I, D),
    "lstm": lambda: nn.LSTMCell(I, D),
}
TORCH_LAYERS = {
    "elman_tanh": lambda **options: nn.RNN(I, **options),
    "elman_relu": lambda **options: nn.RNN(I, nonlinearity="relu", **options),
    "gru_after": lambda **options: nn.GRU(I, **options),
    "lstm": lambda **options: nn.LSTM(I, **options),
}


@pytest.fixture(autouse=True)
def in_float64():
    """Compute in float64, so that two ways agree to the last digits."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def make_layer(kind: str, *, bidirectional: bool = False) -> RecurrentLayer:
    """Return a layer with torch's own random weights, biases included."""
    return RecurrentLayer(
        input_size=I, hidden_size=D, bidirectional=bidirectional, cell=find_cell(**KINDS[kind])
    )


def make_stack(kind: str, connection: str, **options) -> RecurrentStack:
    """Return a stack of three layers."""
    return RecurrentStack(
        input_size=I,
        hidden_size=D,
        num_layers=3,
        cell=find_cell(**KINDS[kind]),
        connection=connection,
        **options,
    )


def random_state(kind: str, num_rows: int = B) -> tuple[torch.Tensor, ...]:
    """Return a state that requires gradients, (B, D) per vector."""
    return tuple(
        torch.randn(num_rows, D, requires_grad=True) for _ in range(2 if kind == "lstm" else 1)
    )


def row(state, index: int):
    """Return one row of a state."""
    return tuple(part[index] for part in state)


# One step


@pytest.mark.parametrize("kind", KINDS)
def test_step_is_the_equation_of_its_cell(kind):
    layer = make_layer(kind)
    inputs, state = torch.randn(B, I, requires_grad=True), random_state(kind)
    actual = layer.step(inputs, state)
    rows = [plain_step(kind, layer.weights(), inputs[b], row(state, b)) for b in range(B)]
    expected = [torch.stack(parts) for parts in zip(*rows, strict=True)]
    assert_same_values_and_gradients(actual, expected, [inputs, *state, *layer.parameters()])


@pytest.mark.parametrize("kind", TORCH_CELLS)
def test_step_is_the_cell_of_torch(kind):
    layer, cell = make_layer(kind), TORCH_CELLS[kind]()
    cell.load_state_dict({k[:-3]: v for k, v in layer.rnn.state_dict().items()})
    inputs, state = torch.randn(B, I, requires_grad=True), random_state(kind)
    expected = cell(inputs, state if kind == "lstm" else state[0])
    expected = expected if kind == "lstm" else (expected,)
    assert_same_values_and_gradients(layer.step(inputs, state), expected, [inputs, *state])


@pytest.mark.parametrize("kind", KINDS)
def test_step_takes_input_gates_in_place_of_the_input(kind):
    layer = make_layer(kind)
    inputs, state = torch.randn(B, I), random_state(kind)
    weight, _, bias, _ = layer.weights()
    gates = inputs @ weight.T + bias
    expected = layer.step(inputs, state)
    actual = layer.step(torch.full((B, I), math.nan), state, gates)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other)


def sigma(number: float) -> float:
    """Return the logistic function of a number."""
    return 1 / (1 + math.exp(-number))


def dot(vector, other) -> float:
    """Return the inner product of two lists."""
    return sum(a * b for a, b in zip(vector, other, strict=True))


def test_reset_before_the_product_is_the_gru_of_cho_et_al():
    """Equations 5 to 8 of arXiv:1406.1078 on Python floats, unit by unit; z keeps the old state."""
    layer = make_layer("gru_before")
    inputs, (hidden,) = torch.randn(B, I), random_state("gru_before")
    W, U, b, b2 = (part.tolist() for part in layer.weights())
    for index in range(B):
        x, h = inputs[index].tolist(), hidden[index].tolist()
        r = [sigma(dot(W[j], x) + b[j] + dot(U[j], h) + b2[j]) for j in range(D)]
        z = [sigma(dot(W[j], x) + b[j] + dot(U[j], h) + b2[j]) for j in range(D, 2 * D)]
        reset = [r[j] * h[j] for j in range(D)]
        new = [
            math.tanh(dot(W[j], x) + b[j] + dot(U[j], reset) + b2[j]) for j in range(2 * D, 3 * D)
        ]
        expected = [z[j] * h[j] + (1 - z[j]) * new[j] for j in range(D)]
        (actual,) = layer.step(inputs[index : index + 1], (hidden[index : index + 1],))
        assert actual[0].tolist() == pytest.approx(expected, rel=1e-12)


def test_the_two_resets_differ():
    before, after = make_layer("gru_before"), make_layer("gru_after")
    after.load_state_dict(before.state_dict())
    inputs, state = torch.randn(B, I), random_state("gru_after")
    assert (before.step(inputs, state)[0] - after.step(inputs, state)[0]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["gru_after", "gru_before"])
def test_an_open_update_gate_keeps_the_old_state(kind):
    """The convention of the package: h_t = (1 - z) * candidate + z * h_{t-1}."""
    layer = make_layer(kind)
    with torch.no_grad():
        layer.rnn.bias_ih_l0[D : 2 * D] = 50.0
    (hidden,) = random_state(kind)
    torch.testing.assert_close(layer.step(torch.randn(B, I), (hidden,))[0], hidden)


@pytest.mark.parametrize(
    "options",
    [
        {"cell_type": "rnn"},
        {"cell_type": "lstm", "gru_reset": "before"},
        {"cell_type": "gru", "elman_activation": "relu"},
    ],
)
def test_unknown_cell_is_no_default_cell(options):
    with pytest.raises(KeyError):
        find_cell(**options)


# Whole sequences


@pytest.mark.parametrize("given_state", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("kind", TORCH_LAYERS)
def test_layer_is_the_module_of_torch(kind, reference, bidirectional, given_state):
    layer = make_layer(kind, bidirectional=bidirectional)
    directions = 2 if bidirectional else 1
    options = {"hidden_size": D // directions, "bidirectional": bidirectional, "batch_first": True}
    module = TORCH_LAYERS[kind](**options)
    module.load_state_dict(layer.rnn.state_dict())
    inputs = torch.randn(B, S, I, requires_grad=True)
    state = random_state(kind) if given_state else ()
    actual = layer(inputs, *state, reference=reference)
    # torch: directions first, ours: side by side
    first = [part.unflatten(1, (directions, -1)).transpose(0, 1).contiguous() for part in state]
    first = (tuple(first) if kind == "lstm" else first[0]) if first else None
    outputs, final = module(inputs, first)
    final = final if kind == "lstm" else (final,)
    expected = [outputs, *(torch.cat(list(part), dim=-1) for part in final)]
    assert_same_values_and_gradients(actual, expected, [inputs, *state])
    probe = torch.randn(B, S, D)
    ours = torch.autograd.grad((actual[0] * probe).sum(), list(layer.parameters()))
    theirs = torch.autograd.grad((outputs * probe).sum(), list(module.parameters()))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def plain_rows(kind, layer, inputs, lengths, state):
    """Read every row alone, without its padding; zeros behind it: what a layer must return."""
    outputs, finals = [], []
    for b, length in enumerate(lengths):
        first = row(state, b) if state else None
        xs = list(inputs[b, :length])
        if xs:
            row_outputs, final = plain_layer(kind, layer.rnn, xs, first)
        else:
            zeros = (torch.zeros(D),) * (2 if kind == "lstm" else 1)
            row_outputs, final = [], first or zeros
        outputs.append(torch.stack(row_outputs + [torch.zeros(D)] * (S - length)))
        finals.append(final)
    return [torch.stack(outputs), *(torch.stack(parts) for parts in zip(*finals, strict=True))]


@pytest.mark.parametrize("lengths", [(6, 3, 1, 4), (2, 0, 5, 0), (0, 0, 0, 0)])
@pytest.mark.parametrize("given_state", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_layer_reads_each_row_as_if_alone(kind, reference, bidirectional, given_state, lengths):
    layer = make_layer(kind, bidirectional=bidirectional)
    inputs = torch.randn(B, S, I, requires_grad=True)
    state = random_state(kind) if given_state else ()
    actual = layer(inputs, *state, lengths=torch.tensor(lengths), reference=reference)
    expected = plain_rows(kind, layer, inputs, lengths, state)
    if any(lengths):
        leaves = [inputs, *layer.parameters(), *state]
        assert_same_values_and_gradients(actual, expected, leaves)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_layer_reads_one_row_of_one_token(kind, reference):
    layer = make_layer(kind)
    inputs, state = torch.randn(1, 1, I, requires_grad=True), random_state(kind, num_rows=1)
    outputs, *final = layer(inputs, *state, reference=reference)
    expected = plain_step(kind, layer.weights(), inputs[0, 0], row(state, 0))
    assert outputs.shape == (1, 1, D)
    torch.testing.assert_close(outputs[0, 0], expected[0])
    for one, other in zip(final, expected, strict=True):
        torch.testing.assert_close(one[0], other)


@pytest.mark.parametrize("kind", KINDS)
def test_reading_in_two_parts_equals_reading_at_once(kind):
    layer = make_layer(kind)
    inputs = torch.randn(B, S, I)
    outputs, *final = layer(inputs)
    first, *state = layer(inputs[:, :2])
    second, *last = layer(inputs[:, 2:], *state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), outputs)
    for one, other in zip(last, final, strict=True):
        torch.testing.assert_close(one, other)


# Stacks


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("connection", ["none", "residual", "highway", "dense"])
@pytest.mark.parametrize("kind", ["elman_tanh", "gru_before", "lstm"])
def test_stack_connects_its_layers(kind, connection, bidirectional):
    stack = make_stack(kind, connection, bidirectional=bidirectional)
    lengths = [6, 2, 4, 1]
    inputs = torch.randn(B, S, I, requires_grad=True)
    states = [random_state(kind) for _ in range(3)]
    rows = [
        plain_stack(
            kind, connection, stack, list(inputs[b, :n]), [row(state, b) for state in states]
        )
        for b, n in enumerate(lengths)
    ]
    leaves = [inputs, *stack.parameters(), *(part for state in states for part in state)]
    for reference in (False, True):
        outputs, finals = stack(inputs, states, lengths=torch.tensor(lengths), reference=reference)
        actual, expected = [], []
        for b, n in enumerate(lengths):
            row_outputs, row_finals = rows[b]
            actual += [output[b, :n] for output in outputs]
            expected += [torch.stack(output) for output in row_outputs]
            actual += [part[b] for final in finals for part in final]
            expected += [part for final in row_finals for part in final]
            assert all((output[b, n:] == 0).all() for output in outputs)
        assert_same_values_and_gradients(actual, expected, leaves)


@pytest.mark.parametrize("connection", ["none", "residual", "highway", "dense"])
@pytest.mark.parametrize("kind", KINDS)
def test_step_of_a_stack_connects_its_layers(kind, connection):
    stack = make_stack(kind, connection)
    inputs = torch.randn(B, I, requires_grad=True)
    states = [random_state(kind) for _ in range(3)]
    outputs, finals = stack.step(inputs, states)
    rows = [
        plain_stack_step(kind, connection, stack, inputs[b], [row(state, b) for state in states])
        for b in range(B)
    ]
    actual = [*outputs, *(part for state in finals for part in state)]
    flat = [
        [*plain_outputs, *(p for s in plain_finals for p in s)]
        for plain_outputs, plain_finals in rows
    ]
    expected = [torch.stack(parts) for parts in zip(*flat, strict=True)]
    leaves = [inputs, *stack.parameters(), *(part for state in states for part in state)]
    assert_same_values_and_gradients(actual, expected, leaves)


def test_every_layer_but_the_first_reads_through_dropout():
    stack = make_stack("gru_after", "none", dropout=0.5)
    inputs = torch.randn(B, S, I)
    stack.eval()
    quiet, _ = stack(inputs)
    stack.train()
    noisy, _ = stack(inputs)
    torch.testing.assert_close(noisy[0], quiet[0])
    assert (noisy[1] - quiet[1]).abs().max() > 1e-3


@pytest.mark.parametrize("connection", ["residual", "highway"])
def test_a_connection_carries_its_input_without_dropout(connection):
    """y = x + F(dropout(x)): with layers that put out zero, x goes through as it is."""
    stack = make_stack("elman_tanh", connection, dropout=0.5).train()
    for layer in list(stack.layers)[1:]:
        nn.init.zeros_(layer.rnn.weight_ih_l0)
        nn.init.zeros_(layer.rnn.weight_hh_l0)
        nn.init.zeros_(layer.rnn.bias_ih_l0)
        nn.init.zeros_(layer.rnn.bias_hh_l0)
    for joined in stack.connections:
        if connection == "highway":
            nn.init.constant_(joined.gate.bias, -1e3)  # closed
    inputs = torch.randn(B, S, I)
    (expected, _, actual), _ = stack(inputs)
    torch.testing.assert_close(actual, expected)
    assert (actual != 0).all()
    (expected, _, actual), _ = stack.step(inputs[:, 0], [random_state("elman_tanh")] * 3)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("connection", ["none", "dense"])
def test_masks_of_a_sequence_make_steps_equal_the_whole(connection, monkeypatch):
    """Variational dropout with given masks: the loop of steps is the whole-sequence form."""
    stack = make_stack("lstm", connection, dropout=0.4, variational=True).train()
    inputs = torch.randn(B, S, I)
    states = [random_state("lstm") for _ in range(3)]
    masks = stack.sequence_masks(states)
    assert masks[0] is None
    handed_out = iter(masks[1:])
    monkeypatch.setattr(stack.dropout, "sequence_mask", lambda like: next(handed_out))
    whole, finals = stack(inputs, states)
    for t in range(S):
        outputs, states = stack.step(inputs[:, t], states, masks=masks)
        for one, other in zip(outputs, whole, strict=True):
            torch.testing.assert_close(one, other[:, t])
    torch.testing.assert_close(states[-1], finals[-1])


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", TORCH_LAYERS)
def test_kernels_run_on_weights_that_accelerate_offloads(kind, bidirectional):
    layer, inputs = make_layer(kind, bidirectional=bidirectional), torch.randn(B, S, I)
    expected = layer(inputs)
    accelerate.cpu_offload(layer, execution_device=torch.device("cpu"))
    assert all(parameter.is_meta for parameter in layer.parameters())
    for one, other in zip(layer(inputs), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_printed_dropout_says_its_rate_and_kind():
    shown = repr(SequenceDropout(0.3, variational=True))
    assert shown == "SequenceDropout(p=0.3, variational=True)"
