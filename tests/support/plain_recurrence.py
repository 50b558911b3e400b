"""Recurrence as loops over vectors: one row, one token, one gate at a time.

The second source for the cells, layers and stacks of `layers_recurrent.py`: no batch, no padding,
no mask, no fused gates. Gradients flow through, so they can be compared too.
"""

import torch
from torch import Tensor

State = tuple[Tensor, ...]
Weights = tuple[Tensor, Tensor, Tensor, Tensor]  # W (G, I), U (G, D), b (G), b' (G)

NUM_GATES = {"elman_tanh": 1, "elman_relu": 1, "gru_after": 3, "gru_before": 3, "lstm": 4}


def plain_step(kind: str, weights: Weights, x: Tensor, state: State) -> State:
    """Return the state after one token, from the equations of each cell.

    Args:
        kind: a key of `NUM_GATES`.
        weights: W, U, b, b', gates stacked as torch does (GRU r, z, n; LSTM i, f, g, o).
        x: input, (I).
        state: (h,) or for the LSTM (h, c), (D) each.
    """
    gates = zip(*(part.chunk(NUM_GATES[kind]) for part in weights), strict=True)
    h = state[0]
    if kind == "lstm":
        i, f, g, o = ((W @ x + b) + (U @ h + b2) for W, U, b, b2 in gates)
        c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c
    if NUM_GATES[kind] == 3:
        (W_r, U_r, b_r, b2_r), (W_z, U_z, b_z, b2_z), (W_n, U_n, b_n, b2_n) = gates
        r = torch.sigmoid(W_r @ x + b_r + U_r @ h + b2_r)
        z = torch.sigmoid(W_z @ x + b_z + U_z @ h + b2_z)
        if kind == "gru_after":
            n = torch.tanh(W_n @ x + b_n + r * (U_n @ h + b2_n))
        else:
            n = torch.tanh(W_n @ x + b_n + U_n @ (r * h) + b2_n)
        return ((1 - z) * n + z * h,)
    ((W, U, b, b2),) = gates
    total = W @ x + b + U @ h + b2
    return (torch.tanh(total) if kind == "elman_tanh" else total.clamp(min=0),)


def plain_direction(
    kind: str, weights: Weights, xs: list[Tensor], state: State, *, backwards: bool
) -> tuple[list[Tensor], State]:
    """Read a row in one direction: outputs in the order of the row, and the last state."""
    outputs = []
    for x in reversed(xs) if backwards else xs:
        state = plain_step(kind, weights, x, state)
        outputs.append(state[0])
    return (outputs[::-1] if backwards else outputs), state


def direction_weights(rnn: torch.nn.RNNBase, *, backwards: bool) -> Weights:
    """Return W, U, b, b' of one direction of a one-layer torch module."""
    suffix = "_l0_reverse" if backwards else "_l0"
    parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return tuple(getattr(rnn, part + suffix) for part in parts)


def plain_layer(
    kind: str, rnn: torch.nn.RNNBase, xs: list[Tensor], state: State | None = None
) -> tuple[list[Tensor], State]:
    """Read a row in every direction that the module has: [h_fwd ; h_bwd] at every token.

    Args:
        kind: a key of `NUM_GATES`.
        rnn: holds the weights.
        xs: inputs, S times (I).
        state: first state, both directions side by side; None is zeros.
    """
    num_directions = 2 if rnn.bidirectional else 1
    if state is None:
        zeros = rnn.weight_hh_l0.new_zeros(rnn.hidden_size * num_directions)
        state = (zeros, zeros) if kind == "lstm" else (zeros,)
    runs = []
    for index in range(num_directions):
        part = slice(index * rnn.hidden_size, (index + 1) * rnn.hidden_size)
        first = tuple(vector[part] for vector in state)
        weights = direction_weights(rnn, backwards=bool(index))
        runs.append(plain_direction(kind, weights, xs, first, backwards=bool(index)))
    outputs = [torch.cat(parts) for parts in zip(*(run[0] for run in runs), strict=True)]
    final = tuple(torch.cat(parts) for parts in zip(*(run[1] for run in runs), strict=True))
    return outputs, final


def plain_connection(connection: str, gate: torch.nn.Linear | None, x: Tensor, y: Tensor) -> Tensor:
    """Join the input x and the output y = F(x) of a layer."""
    if connection == "residual":
        return x + y
    if connection == "highway":
        g = torch.sigmoid(gate.weight @ x + gate.bias)
        return g * y + (1 - g) * x
    return y


def plain_stack(
    kind: str, connection: str, stack, xs: list[Tensor], states: list[State] | None = None
) -> tuple[list[list[Tensor]], list[State]]:
    """Read a row with every layer of a RecurrentStack: outputs of every layer, and last states."""
    below, finals = [xs], []
    for index, layer in enumerate(stack.layers):
        inputs = below[-1]
        if connection == "dense":
            inputs = [torch.cat(parts) for parts in zip(*below, strict=True)]
        outputs, final = plain_layer(kind, layer.rnn, inputs, states[index] if states else None)
        if index:
            gate = getattr(stack.connections[index - 1], "gate", None)
            outputs = [
                plain_connection(connection, gate, x, y)
                for x, y in zip(inputs, outputs, strict=True)
            ]
        below.append(outputs)
        finals.append(final)
    return below[1:], finals


def plain_stack_step(
    kind: str, connection: str, stack, x: Tensor, states: list[State]
) -> tuple[list[Tensor], list[State]]:
    """Read one token with every layer: the output of every layer, and the new states."""
    outputs, finals = plain_stack(kind, connection, stack, [x], states)
    return [layer_outputs[0] for layer_outputs in outputs], finals
