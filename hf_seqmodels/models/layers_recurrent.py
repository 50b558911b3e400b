# pyright: basic
"""Recurrent cells, layers and stacks.

Shapes: B batch, S length, I input width, D hidden width of one direction, G gates times D, L
layers. A state is a tuple of vectors, the hidden state first and for the LSTM the cell state
second, (B, D) each.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer

State = tuple[Tensor, ...]


def elman_step(
    input_gates: Tensor, state: State, weight: Tensor, bias: Tensor, activation: Callable
) -> State:
    """h_t = f(W x_t + U h_{t-1} + b).

    Source: Elman 1990.

    Args:
        input_gates: W x_t + b, (B, D).
        state: (h_{t-1},).
        weight: U, (D, D).
        bias: second bias of torch's parametrisation, (D).
        activation: f.

    Returns:
        (h_t,).
    """
    (hidden,) = state
    return (activation(input_gates + F.linear(hidden, weight, bias)),)


def elman_tanh_step(input_gates: Tensor, state: State, weight: Tensor, bias: Tensor) -> State:
    """Elman cell with f = tanh."""
    return elman_step(input_gates, state, weight, bias, torch.tanh)


def elman_relu_step(input_gates: Tensor, state: State, weight: Tensor, bias: Tensor) -> State:
    """Elman cell with f = relu."""
    return elman_step(input_gates, state, weight, bias, torch.relu)


def gru_step(input_gates: Tensor, state: State, weight: Tensor, bias: Tensor) -> State:
    """GRU with the reset gate after the recurrent product; z keeps the old state.

    r = sigma(W_r x + U_r h + b_r), z = sigma(W_z x + U_z h + b_z)
    n = tanh(W_n x + b_n + r * (U_n h + b'_n)), h_t = (1 - z) * n + z * h
    Source: Cho et al. 2014 as torch and cuDNN compute it; gates stacked r, z, n.

    Args:
        input_gates: W x_t + b for the three gates, (B, 3 * D).
        state: (h_{t-1},).
        weight: U, (3 * D, D).
        bias: b', (3 * D).

    Returns:
        (h_t,).
    """
    (hidden,) = state
    input_reset, input_update, input_new = input_gates.chunk(3, dim=-1)
    hidden_reset, hidden_update, hidden_new = F.linear(hidden, weight, bias).chunk(3, dim=-1)
    reset = torch.sigmoid(input_reset + hidden_reset)
    update = torch.sigmoid(input_update + hidden_update)
    candidate = torch.tanh(input_new + reset * hidden_new)
    return ((1 - update) * candidate + update * hidden,)


def gru_reset_before_step(input_gates: Tensor, state: State, weight: Tensor, bias: Tensor) -> State:
    """GRU with the reset gate before the recurrent product; z keeps the old state.

    As `gru_step`, but n = tanh(W_n x + U_n (r * h) + b_n).
    Source: Cho et al. 2014, arXiv:1406.1078, equations 5 to 8.

    Args:
        input_gates: W x_t + b for the three gates, (B, 3 * D).
        state: (h_{t-1},).
        weight: U, (3 * D, D).
        bias: a second bias of every gate, (3 * D).

    Returns:
        (h_t,).
    """
    (hidden,) = state
    size = hidden.shape[-1]
    input_reset, input_update, input_new = input_gates.chunk(3, dim=-1)
    hidden_gates = F.linear(hidden, weight[: 2 * size], bias[: 2 * size])
    hidden_reset, hidden_update = hidden_gates.chunk(2, dim=-1)
    reset = torch.sigmoid(input_reset + hidden_reset)
    update = torch.sigmoid(input_update + hidden_update)
    candidate = torch.tanh(
        input_new + F.linear(reset * hidden, weight[2 * size :], bias[2 * size :])
    )
    return ((1 - update) * candidate + update * hidden,)


def lstm_step(input_gates: Tensor, state: State, weight: Tensor, bias: Tensor) -> State:
    """LSTM with forget gate.

    i, f, o = sigma(W x + U h + b), g = tanh(W x + U h + b), c_t = f * c + i * g, h_t = o *
    tanh(c_t)
    Source: Hochreiter and Schmidhuber 1997; Gers et al. 2000. Gates stacked i, f, g, o.

    Args:
        input_gates: W x_t + b for the four gates, (B, 4 * D).
        state: (h_{t-1}, c_{t-1}).
        weight: U, (4 * D, D).
        bias: second bias of torch's parametrisation, (4 * D).

    Returns:
        (h_t, c_t).
    """
    hidden, cell = state
    gates = input_gates + F.linear(hidden, weight, bias)
    input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
    cell = torch.sigmoid(forget_gate) * cell + torch.sigmoid(input_gate) * torch.tanh(candidate)
    return torch.sigmoid(output_gate) * torch.tanh(cell), cell


class Cell(NamedTuple):
    """A kind of recurrence: the torch module that holds its weights, one step, and the size of its
    state."""

    torch_layer: Callable[..., nn.RNNBase]
    step: Callable[[Tensor, State, Tensor, Tensor], State]
    num_states: int = 1
    has_kernel: bool = True


def find_cell(cell_type: str, *, gru_reset: str = "after", elman_activation: str = "tanh") -> Cell:
    """Return the cell of that name and variant."""
    cells = {
        ("elman", "after", "tanh"): Cell(nn.RNN, elman_tanh_step),
        ("elman", "after", "relu"): Cell(
            lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k), elman_relu_step
        ),
        ("gru", "after", "tanh"): Cell(nn.GRU, gru_step),
        ("gru", "before", "tanh"): Cell(nn.GRU, gru_reset_before_step, has_kernel=False),
        ("lstm", "after", "tanh"): Cell(nn.LSTM, lstm_step, num_states=2),
    }
    return cells[cell_type, gru_reset, elman_activation]


class RecurrentLayer(GradientCheckpointingLayer):
    """One recurrent layer over a batch of sequences, in one or both directions.

    Weights lie in a torch module under torch's names, so they move to and from nn.RNN, nn.GRU,
    nn.LSTM as they are.

    Args:
        input_size: width I of the input.
        hidden_size: width of the output; both directions share it, half each.
        bidirectional: read in both directions, y_t = [h_fwd_t ; h_bwd_t].
        cell: kind of recurrence, from `find_cell`.
        weight_dropout: rate on the elements of U in training, one mask per call (DropConnect: Wan
            et al. 2013; on recurrent weights: Merity et al. 2018, section 2).
    """

    def __init__(
        self,
        *,
        input_size: int,
        hidden_size: int,
        bidirectional: bool,
        cell: Cell,
        weight_dropout: float = 0.0,
    ):
        super().__init__()
        self.cell = cell
        self.weight_dropout = nn.Dropout(weight_dropout)
        self.num_directions = 2 if bidirectional else 1
        self.rnn: nn.RNNBase = cell.torch_layer(
            input_size,
            hidden_size // self.num_directions,
            batch_first=True,
            bidirectional=bidirectional,
        )

    def __setattr__(self, name: str, value: Any):
        if name == "rnn" and type(value).__module__.startswith("peft."):
            raise ValueError(
                f"peft cannot wrap the {type(self.rnn).__name__} of a layer: what computes reads "
                "its weights past a wrapper. Leave 'rnn' out of target_parameters and "
                "modules_to_save, and train whole recurrent stacks with modules_to_save=['stack']."
            )
        super().__setattr__(name, value)

    def weights(self, direction: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return W (G, I), U (G, D), b (G), b' (G) of a direction, 0 forward and 1 backward.

        Where accelerate offloads weights, it brings those of a module for a call of that module
        alone: here its hook is run for what is read without a call.
        """
        if not isinstance(self.rnn, nn.RNNBase):
            raise ValueError(
                f"A quantised {type(self.rnn).__name__} does not give its weights out, which a "
                "decoder reads whose attention enters the cell. Quantise the linear layers of the "
                "model, and recurrent layers of model.get_encoder() alone."
            )
        suffix = "_reverse" if direction else ""
        hook = getattr(self.rnn, "_hf_hook", None)
        if hook is not None:
            hook.pre_forward(self.rnn)
        weights = (
            getattr(self.rnn, f"weight_ih_l0{suffix}"),
            getattr(self.rnn, f"weight_hh_l0{suffix}"),
            getattr(self.rnn, f"bias_ih_l0{suffix}"),
            getattr(self.rnn, f"bias_hh_l0{suffix}"),
        )
        if hook is not None:
            hook.post_forward(self.rnn, None)
        return weights

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights; what torch has quantised holds none, and reads float32."""
        weight = next(self.rnn.parameters(), None)
        return torch.float32 if weight is None else weight.dtype

    def zero_state(self, inputs: Tensor) -> State:
        """Return the state before the first token: zeros, (B, D) per state vector."""
        size = self.rnn.hidden_size * self.num_directions
        zeros = inputs.new_zeros(inputs.shape[0], size)  # weights may be offloaded
        return (zeros,) * self.cell.num_states

    def step(self, inputs: Tensor, state: State, input_gates: Tensor | None = None) -> State:
        """Advance a one-directional layer by one token.

        Args:
            inputs: x_t, (B, I); not read when `input_gates` is given.
            state: state after the last token.
            input_gates: W x_t + b if the caller has it already, (B, G).

        Returns:
            The new state.
        """
        input_weight, recurrent_weight, input_bias, recurrent_bias = self.weights()
        if input_gates is None:
            input_gates = F.linear(inputs, input_weight, input_bias)
        return self.cell.step(input_gates, state, recurrent_weight, recurrent_bias)

    def forward(
        self,
        inputs: Tensor,
        *state: Tensor,
        lengths: Tensor | None = None,
        reference: bool = False,
    ) -> tuple[Tensor, ...]:
        """Run over whole sequences, padded on the right.

        State vectors are passed and returned one by one, since reentrant checkpointing gives no
        gradient to what lies in a tuple.

        Args:
            inputs: (B, S, I).
            *state: state before the first token, both directions side by side; none is zeros.
            lengths: real tokens per row, (B) on the CPU, zero allowed; None means no padding.
            reference: loop over time instead of calling the kernel.

        Returns:
            Outputs (B, S, D), zero at padding, then the vectors of the state after the last real
            token of each row (of each direction's own reading order); a row without tokens keeps
            its first state.
        """
        inputs = inputs.to(self.dtype)
        state = state or self.zero_state(inputs)
        run = self._run_loop if reference or not self.cell.has_kernel else self._run_kernel
        outputs, final_state = run(inputs, state, lengths)
        return (outputs, *final_state)

    def _run_loop(
        self, inputs: Tensor, state: State, lengths: Tensor | None
    ) -> tuple[Tensor, State]:
        keep = None if lengths is None else keep_mask_from(lengths, inputs)  # (B, S)
        results = [
            self._run_direction(inputs, state, keep, direction)
            for direction in range(self.num_directions)
        ]
        outputs = torch.cat([outputs for outputs, _ in results], dim=-1)  # (B, S, D)
        final = zip(*(final for _, final in results), strict=True)
        return outputs, tuple(torch.cat(parts, dim=-1) for parts in final)

    def _run_direction(
        self, inputs: Tensor, state: State, keep: Tensor | None, direction: int
    ) -> tuple[Tensor, State]:
        input_weight, recurrent_weight, input_bias, recurrent_bias = self.weights(direction)
        recurrent_weight = self.weight_dropout(recurrent_weight)
        input_gates = F.linear(inputs, input_weight, input_bias)  # (B, S, G)
        state = tuple(part.chunk(self.num_directions, dim=-1)[direction] for part in state)
        outputs: list[Tensor] = [inputs] * inputs.shape[1]
        positions = range(inputs.shape[1])
        for t in reversed(positions) if direction else positions:
            new_state = self.cell.step(input_gates[:, t], state, recurrent_weight, recurrent_bias)
            state = new_state if keep is None else keep_rows(keep[:, t], new_state, state)
            outputs[t] = state[0] if keep is None else state[0] * keep[:, t, None]
        return torch.stack(outputs, dim=1), state

    def _run_kernel(
        self, inputs: Tensor, state: State, lengths: Tensor | None
    ) -> tuple[Tensor, State]:
        first = self._to_torch_state(state)
        if lengths is None:
            outputs, final = self._call_kernel(inputs, first)
            return outputs, self._from_torch_state(final)
        packed = pack_padded_sequence(
            inputs, lengths.clamp(min=1), batch_first=True, enforce_sorted=False
        )
        packed, final = self._call_kernel(packed, first)
        outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=inputs.shape[1])
        final_state = self._from_torch_state(final)
        if (lengths == 0).any():
            has_tokens = (lengths > 0).to(inputs.device)
            outputs = outputs * has_tokens[:, None, None]
            final_state = keep_rows(has_tokens, final_state, state)
        return outputs, final_state

    def _call_kernel(self, inputs: Any, first: Tensor | State) -> Any:
        if not (self.training and self.weight_dropout.p):
            return self.rnn(inputs, first)
        names = ["weight_hh_l0", "weight_hh_l0_reverse"][: self.num_directions]
        dropped = {name: self.weight_dropout(getattr(self.rnn, name)) for name in names}
        return functional_call(self.rnn, dropped, (inputs, first))

    def _to_torch_state(self, state: State) -> Tensor | State:
        parts = tuple(
            part.to(self.dtype)
            .view(part.shape[0], self.num_directions, -1)
            .transpose(0, 1)
            .contiguous()
            for part in state
        )  # (directions, B, D) each
        hidden, *others = parts
        return parts if others else hidden

    def _from_torch_state(self, state: Tensor | State) -> State:
        parts = state if isinstance(state, tuple) else (state,)
        return tuple(part.transpose(0, 1).flatten(1) for part in parts)


def keep_rows(keep: Tensor, new_state: State, old_state: State) -> State:
    """Take the new state where `keep` (B) is True, the old one elsewhere."""
    return tuple(
        torch.where(keep[:, None], new, old) for new, old in zip(new_state, old_state, strict=True)
    )


def keep_mask_from(lengths: Tensor, inputs: Tensor) -> Tensor:
    """Return True at the first `lengths` positions of each row, (B, S), on the device of
    `inputs`."""
    positions = torch.arange(inputs.shape[1])
    return (positions[None, :] < lengths[:, None]).to(inputs.device)


def last_outputs(outputs: Tensor, lengths: Tensor | None, num_directions: int) -> Tensor:
    """Return what each direction put out at the last token it read: (B, S, D) -> (B, D).

    Args:
        outputs: of a layer, right-padded with zeros.
        lengths: real tokens per row, (B) on the CPU; None means no padding.
        num_directions: 2 if the second half of D was read backwards.

    Returns:
        [forward at the last real token ; backward at the first]; zero for a row without tokens.
    """
    forward, *backward = outputs.chunk(num_directions, dim=-1)
    if lengths is None:
        ends = [forward[:, -1]]
    else:
        rows = torch.arange(outputs.shape[0], device=outputs.device)
        ends = [forward[rows, (lengths - 1).clamp(min=0).to(outputs.device)]]
    return torch.cat([*ends, *(part[:, 0] for part in backward)], dim=-1)


class SequenceLayout:
    """Where the real tokens of a padded batch are, and the way to the order in which they are read
    and back.

    Args:
        attention_mask: 1 at real tokens, anywhere in the row, (B, S); None means no padding.
        reverse: read every row from its last real token to its first.
        like: (B, S, ...) tensor that gives size and device.
    """

    def __init__(self, attention_mask: Tensor | None, *, reverse: bool, like: Tensor):
        batch_size, length = like.shape[:2]
        self.keep_mask: Tensor | None = None  # True at real tokens, in the order of the input
        self.lengths: Tensor | None = None  # real tokens per row, on the CPU
        self.order: Tensor | None = None  # input position of the i-th token read
        order = torch.arange(length).expand(batch_size, length)
        lengths = torch.full((batch_size,), length)
        if attention_mask is not None:
            keep = attention_mask.bool().cpu()
            lengths = keep.sum(dim=1)
            if not keep.all():
                self.keep_mask = attention_mask.bool()
                self.lengths = lengths
                order = torch.argsort(~keep, dim=1, stable=True)  # real tokens first
        if reverse:
            mirrored = lengths[:, None] - 1 - torch.arange(length)
            order = order.gather(1, torch.where(mirrored >= 0, mirrored, torch.arange(length)))
        if not (order == torch.arange(length)).all():
            self.order = order.to(like.device)

    def arrange(self, inputs: Tensor) -> Tensor:
        """Bring (B, S, I) into reading order, real tokens first."""
        if self.order is None:
            return inputs
        return inputs.gather(1, self.order[:, :, None].expand_as(inputs))

    def restore(self, outputs: Tensor) -> Tensor:
        """Bring (B, S, D) back into the order of the input."""
        if self.order is None:
            return outputs
        back = torch.argsort(self.order, dim=1)
        return outputs.gather(1, back[:, :, None].expand_as(outputs))


class SequenceDropout(nn.Dropout):
    """Dropout on sequences of vectors, by element or with one mask per sequence.

    Source: Srivastava et al. 2014; one mask per sequence: Gal and Ghahramani 2016,
    arXiv:1512.05287.

    Args:
        rate: probability of a zero.
        variational: draw one mask per sequence and use it at every step.
    """

    def __init__(self, rate: float, *, variational: bool):
        super().__init__(rate)
        self.variational = variational

    def extra_repr(self) -> str:
        """Say what the printed model shows of the layer."""
        return f"p={self.p}, variational={self.variational}"

    def forward(self, inputs: Tensor) -> Tensor:
        """Drop elements of (B, T, D)."""
        if not self.variational:
            return super().forward(inputs)
        mask = self.sequence_mask(inputs[:, 0])
        return inputs if mask is None else inputs * mask[:, None]

    def sequence_mask(self, like: Tensor) -> Tensor | None:
        """Draw the scaled mask of a whole sequence, (B, D) as `like`; None where each step draws
        its own."""
        if not (self.variational and self.training and self.p):
            return None
        return super().forward(torch.ones_like(like))

    def step(self, inputs: Tensor, mask: Tensor | None) -> Tensor:
        """Drop elements of one step, (B, D), with the mask of its sequence if there is one."""
        return super().forward(inputs) if mask is None else inputs * mask


class PlainConnection(nn.Module):
    """y = F(x): a layer's output replaces its input."""

    reads_all_below = False

    def __init__(self, size: int):
        super().__init__()

    def forward(self, layer_input: Tensor, layer_output: Tensor) -> Tensor:
        """Join x and F(x), both (..., D)."""
        return layer_output


class ResidualConnection(PlainConnection):
    """y = x + F(x). Source: He et al. 2016; between recurrent layers: Wu et al. 2016, section
    3.1."""

    def forward(self, layer_input: Tensor, layer_output: Tensor) -> Tensor:
        """Join x and F(x), both (..., D)."""
        return layer_input + layer_output


class HighwayGate(nn.Linear):
    """W x + b of a highway connection; b starts at -1."""

    def initialize_parameters(self):
        """Start with the gate mostly closed."""
        init.constant_(self.bias, -1.0)


class HighwayConnection(PlainConnection):
    """y = g * F(x) + (1 - g) * x with g = sigma(W x + b); b starts at -1, towards carrying x.

    Source: Srivastava et al. 2015, arXiv:1505.00387.

    Args:
        size: width D.
    """

    def __init__(self, size: int):
        super().__init__(size)
        self.gate = HighwayGate(size, size)

    def forward(self, layer_input: Tensor, layer_output: Tensor) -> Tensor:
        """Join x and F(x), both (..., D)."""
        gate = torch.sigmoid(self.gate(layer_input))
        return gate * layer_output + (1 - gate) * layer_input


class DenseConnection(PlainConnection):
    """Layer i reads the input and the outputs of all layers below, side by side.

    Source: Huang et al. 2017, arXiv:1608.06993; recurrent: Godin et al. 2017, arXiv:1707.06130.
    """

    reads_all_below = True


CONNECTIONS = {
    "none": PlainConnection,
    "residual": ResidualConnection,
    "highway": HighwayConnection,
    "dense": DenseConnection,
}


class RecurrentStack(nn.Module):
    """Recurrent layers on top of each other; layer i reads layer i-1, or all below with dense
    connections.

    Args:
        input_size: width of what the first layer reads.
        hidden_size: width of every layer's output.
        num_layers: L.
        cell: kind of recurrence, from `find_cell`.
        bidirectional: every layer reads in both directions.
        connection: how a layer's input and output are joined, a key of `CONNECTIONS`; from the
            second layer on.
        dropout: rate on what every layer but the first reads; a connection carries its input
            without dropout, y = x + F(dropout(x)).
        variational: one dropout mask per sequence.
        last_layer_size: width of the top layer's output; None is `hidden_size`, which residual and
            highway connections need.
        weight_dropout: rate on the recurrent weights, see `RecurrentLayer`.
    """

    def __init__(
        self,
        *,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        cell: Cell,
        bidirectional: bool = False,
        connection: str = "none",
        dropout: float = 0.0,
        variational: bool = False,
        last_layer_size: int | None = None,
        weight_dropout: float = 0.0,
    ):
        super().__init__()
        connection_class = CONNECTIONS[connection]
        self.reads_all_below = connection_class.reads_all_below
        self.layers = nn.ModuleList()
        for index in range(num_layers):
            below = input_size + index * hidden_size if self.reads_all_below else hidden_size
            is_top = index == num_layers - 1
            self.layers.append(
                RecurrentLayer(
                    input_size=below if index else input_size,
                    hidden_size=last_layer_size if is_top and last_layer_size else hidden_size,
                    bidirectional=bidirectional,
                    cell=cell,
                    weight_dropout=weight_dropout,
                )
            )
        self.connections = nn.ModuleList(
            connection_class(hidden_size) for _ in range(num_layers - 1)
        )
        self.dropout = SequenceDropout(dropout, variational=variational)

    def _typed_layers(self) -> list[RecurrentLayer]:
        return cast(list[RecurrentLayer], list(self.layers))

    def _layer_input(self, below: list[Tensor]) -> Tensor:
        return torch.cat(below, dim=-1) if self.reads_all_below else below[-1]

    def forward(
        self,
        inputs: Tensor,
        states: list[State] | None = None,
        *,
        lengths: Tensor | None = None,
        reference: bool = False,
    ) -> tuple[list[Tensor], list[State]]:
        """Run all layers over whole sequences, padded on the right.

        Args:
            inputs: (B, S, I).
            states: first state of every layer; None is zeros.
            lengths: real tokens per row, (B) on the CPU; None means no padding.
            reference: loop over time instead of calling the kernels.

        Returns:
            The output of every layer, L times (B, S, D), and the last state of every layer.
        """
        below, final_states = [inputs], []
        for index, layer in enumerate(self.layers):
            layer_input = self._layer_input(below)
            read = self.dropout(layer_input) if index else layer_input  # connections carry it whole
            state = () if states is None else states[index]
            output, *final_state = layer(read, *state, lengths=lengths, reference=reference)
            if index:
                output = self.connections[index - 1](layer_input, output)
            below.append(output)
            final_states.append(tuple(final_state))
        return below[1:], final_states

    def sequence_masks(self, states: list[State]) -> list[Tensor | None]:
        """Draw the dropout masks that a loop of `step` calls uses for one batch of sequences.

        Args:
            states: state of every layer.

        Returns:
            One mask per layer, None where each step draws its own (and for the first layer).
        """
        hidden = states[0][0]
        masks: list[Tensor | None] = [None]
        for layer in self._typed_layers()[1:]:
            layer_input = hidden.new_empty(hidden.shape[0], layer.rnn.input_size)
            masks.append(self.dropout.sequence_mask(layer_input))
        return masks

    def step(
        self,
        inputs: Tensor,
        states: list[State],
        *,
        input_gates: Tensor | None = None,
        masks: list[Tensor | None] | None = None,
    ) -> tuple[list[Tensor], list[State]]:
        """Advance every (one-directional) layer by one token.

        Args:
            inputs: what the first layer reads, (B, I).
            states: state of every layer.
            input_gates: W x_t + b of the first layer, if the caller has it already, (B, G).
            masks: from `sequence_masks`.

        Returns:
            The output of every layer, L times (B, D), and the new states.
        """
        below, new_states = [inputs], []
        for index, layer in enumerate(self._typed_layers()):
            read = layer_input = self._layer_input(below)
            if index:
                read = self.dropout.step(layer_input, masks[index] if masks else None)
            state = layer.step(read, states[index], None if index else input_gates)
            output = self.connections[index - 1](layer_input, state[0]) if index else state[0]
            below.append(output)
            new_states.append(state)
        return below[1:], new_states
