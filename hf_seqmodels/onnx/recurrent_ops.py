# pyright: basic
"""Recurrent layers that torch.export and ONNX can express: one operator for a whole layer.

`torch.nn.LSTM` on packed sequences has control flow that depends on the data. Here a layer over
padded rows is one opaque operator, which runs the layer's own code in torch and becomes the
operator RNN, GRU or LSTM of ONNX, whose `sequence_lens` are the lengths of the rows.

Shapes: B batch, S length, I input width, D output width, N directions, G gates times D / N.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from hf_seqmodels.models.layers_recurrent import RecurrentLayer, State, find_cell, keep_rows

# {kind of cell: options of `find_cell`}
CELLS: dict[str, dict[str, str]] = {
    "elman_tanh": {"cell_type": "elman"},
    "elman_relu": {"cell_type": "elman", "elman_activation": "relu"},
    "gru_after": {"cell_type": "gru"},
    "gru_before": {"cell_type": "gru", "gru_reset": "before"},
    "lstm": {"cell_type": "lstm"},
}
KINDS: dict[Callable, str] = {find_cell(**options).step: kind for kind, options in CELLS.items()}
WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
# gates in the order that ONNX stacks them, by their place in torch's
GATE_ORDER = {"gru_after": (1, 0, 2), "gru_before": (1, 0, 2), "lstm": (0, 3, 1, 2)}


def weight_names(num_directions: int) -> list[str]:
    """Return the parameters of a torch recurrent layer, forwards first."""
    suffixes = ("_l0", "_l0_reverse")[:num_directions]
    return [f"{name}{suffix}" for suffix in suffixes for name in WEIGHTS]


def _run(
    inputs: Tensor, lengths: Tensor, state: State, weights: Sequence[Tensor], kind: str
) -> tuple[Tensor, ...]:
    num_directions = len(weights) // len(WEIGHTS)
    with torch.device("meta"):
        layer = RecurrentLayer(
            input_size=inputs.shape[-1],
            hidden_size=state[0].shape[-1],
            bidirectional=num_directions == 2,
            cell=find_cell(**CELLS[kind]),
        )
    names = (f"rnn.{name}" for name in weight_names(num_directions))
    parameters = dict(zip(names, weights, strict=True))
    outputs = functional_call(layer, parameters, (inputs, *state), {"lengths": lengths.cpu()})
    return tuple(output.clone() for output in outputs)


# schemas in words: torch 2.6 does not read list[Tensor]
@torch.library.custom_op(
    "hf_seqmodels::recurrent_layer",
    mutates_args=(),
    schema="(Tensor inputs, Tensor lengths, Tensor hidden, Tensor[] weights, str kind) "
    "-> (Tensor, Tensor)",
)
def recurrent_layer(
    inputs: Tensor, lengths: Tensor, hidden: Tensor, weights: list[Tensor], kind: str
) -> tuple[Tensor, Tensor]:
    """Run an Elman or GRU layer over rows that are padded on the right.

    Args:
        inputs: (B, S, I).
        lengths: real tokens per row, at least 1, (B).
        hidden: state before the first token, (B, D).
        weights: W, U, b, b' of every direction, as torch stacks them.
        kind: a key of `CELLS`.

    Returns:
        Outputs, zero at padding, (B, S, D), and the state after the last token, (B, D).
    """
    outputs, last = _run(inputs, lengths, (hidden,), weights, kind)
    return outputs, last


@torch.library.custom_op(
    "hf_seqmodels::lstm_layer",
    mutates_args=(),
    schema="(Tensor inputs, Tensor lengths, Tensor hidden, Tensor cell, Tensor[] weights) "
    "-> (Tensor, Tensor, Tensor)",
)
def lstm_layer(
    inputs: Tensor, lengths: Tensor, hidden: Tensor, cell: Tensor, weights: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Run an LSTM layer over rows that are padded on the right.

    Args:
        inputs: (B, S, I).
        lengths: real tokens per row, at least 1, (B).
        hidden: hidden state before the first token, (B, D).
        cell: cell state before the first token, (B, D).
        weights: W, U, b, b' of every direction, as torch stacks them.

    Returns:
        Outputs, zero at padding, (B, S, D), and both states after the last token, (B, D) each.
    """
    outputs, last_hidden, last_cell = _run(inputs, lengths, (hidden, cell), weights, "lstm")
    return outputs, last_hidden, last_cell


@recurrent_layer.register_fake
def _(inputs, lengths, hidden, weights, kind):
    return inputs.new_empty(*inputs.shape[:2], hidden.shape[1]), torch.empty_like(hidden)


@lstm_layer.register_fake
def _(inputs, lengths, hidden, cell, weights):
    outputs = inputs.new_empty(*inputs.shape[:2], hidden.shape[1])
    return outputs, torch.empty_like(hidden), torch.empty_like(cell)


class ExportedRecurrentLayer(RecurrentLayer):
    """A recurrent layer that calls one of the operators above, with the weights of another.

    Args:
        layer: that is to be exported.
    """

    def __init__(self, layer: RecurrentLayer):
        torch.nn.Module.__init__(self)
        self.cell = layer.cell
        self.weight_dropout = torch.nn.Dropout(0.0)
        self.num_directions = layer.num_directions
        self.rnn = layer.rnn
        self.eval()

    def forward(
        self,
        inputs: Tensor,
        *state: Tensor,
        lengths: Tensor | None = None,
        reference: bool = False,
    ) -> tuple[Tensor, ...]:
        """Run over whole sequences, padded on the right, see `RecurrentLayer`.

        Args:
            inputs: (B, S, I).
            *state: state before the first token; none is zeros.
            lengths: real tokens per row, (B); None means no padding.
            reference: read by no one: both forms compute the same.

        Returns:
            Outputs (B, S, D), zero at padding, then the state after the last real token.
        """
        first = state or self.zero_state(inputs)
        weights = [getattr(self.rnn, name) for name in weight_names(self.num_directions)]
        ones = torch.ones_like(inputs[:, 0, 0], dtype=torch.int64)  # (B)
        read = ones * inputs.shape[1] if lengths is None else lengths.clamp(min=1)
        kind = KINDS[self.cell.step]
        if kind == "lstm":
            outputs, *final = torch.ops.hf_seqmodels.lstm_layer(inputs, read, *first, weights)
        else:
            outputs, *final = torch.ops.hf_seqmodels.recurrent_layer(
                inputs, read, *first, weights, kind
            )
        if lengths is None:
            return (outputs, *final)
        has_tokens = lengths > 0
        outputs = outputs * has_tokens[:, None, None]
        return (outputs, *keep_rows(has_tokens, tuple(final), first))


def translations() -> dict[Any, Callable]:
    """Return {operator: how ONNX computes it}, for `torch.onnx.export`."""
    from onnxscript import opset18  # only who exports to ONNX needs it

    op: Any = opset18  # whose types are those of values, not of what is traced

    def reordered(weight: Any, kind: str) -> Any:
        """Stack the gates of a weight as ONNX does."""
        if kind not in GATE_ORDER:
            return weight
        order = GATE_ORDER[kind]
        size = int(weight.shape[0]) // len(order)
        rows = [place * size + row for place in order for row in range(size)]
        return op.Gather(weight, op.Constant(value_ints=rows), axis=0)

    def stacked(directions: Sequence[Any]) -> Any:
        """Put directions side by side on a first axis."""
        axis = op.Constant(value_ints=[0])
        parts = [op.Unsqueeze(part, axis) for part in directions]
        return parts[0] if len(parts) == 1 else op.Concat(*parts, axis=0)

    def arguments(
        inputs: Any, lengths: Any, states: Sequence[Any], weights: Sequence[Any], kind: str
    ):
        """Return the arguments of an operator of ONNX, and its options."""
        num_directions = len(weights) // len(WEIGHTS)
        ordered = [reordered(weight, kind) for weight in weights]
        by_direction = [ordered[start : start + 4] for start in range(0, len(ordered), 4)]
        input_weights = stacked([part[0] for part in by_direction])  # (N, G, I)
        recurrent_weights = stacked([part[1] for part in by_direction])  # (N, G, D / N)
        biases = stacked([op.Concat(*part[2:], axis=0) for part in by_direction])  # (N, 2 * G)
        shape = op.Constant(value_ints=[0, num_directions, -1])
        first = [op.Transpose(op.Reshape(state, shape), perm=[1, 0, 2]) for state in states]
        values = (
            op.Transpose(inputs, perm=[1, 0, 2]),  # (S, B, I)
            input_weights,
            recurrent_weights,
            biases,
            op.Cast(lengths, to=6),  # int32
            *first,  # (N, B, D / N) each
        )
        return values, {
            "hidden_size": int(weights[1].shape[1]),
            "direction": "bidirectional" if num_directions == 2 else "forward",
        }

    def restored(outputs: Any, *states: Any) -> tuple[Any, ...]:
        """Return outputs (B, S, D) and states (B, D) from those of ONNX."""
        flat = op.Constant(value_ints=[0, 0, -1])
        outputs = op.Reshape(op.Transpose(outputs, perm=[2, 0, 1, 3]), flat)  # from (S, N, B, .)
        flat = op.Constant(value_ints=[0, -1])
        return outputs, *(op.Reshape(op.Transpose(s, perm=[1, 0, 2]), flat) for s in states)

    def translated_recurrent_layer(inputs, lengths, hidden, weights: Sequence[Any], kind: str):
        values, options = arguments(inputs, lengths, [hidden], weights, kind)
        if kind.startswith("gru"):
            after = int(kind == "gru_after")
            return restored(*op.GRU(*values, **options, linear_before_reset=after))
        activation = "Relu" if kind == "elman_relu" else "Tanh"
        activations = [activation] * (len(weights) // len(WEIGHTS))
        return restored(*op.RNN(*values, **options, activations=activations))

    def translated_lstm_layer(inputs, lengths, hidden, cell, weights: Sequence[Any]):
        values, options = arguments(inputs, lengths, [hidden, cell], weights, "lstm")
        return restored(*op.LSTM(*values, **options))

    return {
        torch.ops.hf_seqmodels.recurrent_layer.default: translated_recurrent_layer,
        torch.ops.hf_seqmodels.lstm_layer.default: translated_lstm_layer,
    }
