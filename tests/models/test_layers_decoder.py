"""The three decoders against loops over their equations, values and gradients, in float64."""

from functools import partial

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from hf_seqmodels.models.layers_attention import make_attention
from hf_seqmodels.models.layers_decoder import (
    CurrentStateDecoder,
    DecoderState,
    FixedContextDecoder,
    PreviousStateDecoder,
    RecurrentDecoder,
    SourceMemory,
)
from hf_seqmodels.models.layers_recurrent import RecurrentStack, find_cell
from plain_rnn_seq2seq import PlainRun, plain_decode
from probed_gradients import assert_same_values_and_gradients

B, S, T, E, D, C, H = 3, 5, 4, 6, 8, 7, 2
DECODERS = ("fixed", "previous", "current", "feeding")
CELLS = {
    "elman_tanh": {"cell_type": "elman"},
    "elman_relu": {"cell_type": "elman", "elman_activation": "relu"},
    "gru_after": {"cell_type": "gru"},
    "gru_before": {"cell_type": "gru", "gru_reset": "before"},
    "lstm": {"cell_type": "lstm"},
}
SOURCE_KEEP = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 1], [1, 1, 0, 0, 0]], dtype=torch.bool)


@pytest.fixture(autouse=True)
def in_float64():
    """Compute in float64, so that two ways agree to the last digits."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class Setting:
    """A decoder with random weights, and what it reads.

    Args:
        kind: of `DECODERS`.
        cell: a key of `CELLS`.
        scorer: of the attention; "fixed" has none.
        connection: between layers.
        num_layers: of the stack.
        dropout: between layers, variational.
    """

    def __init__(
        self,
        kind,
        *,
        cell="gru_after",
        scorer="additive",
        connection="none",
        num_layers=2,
        dropout=0.0,
    ):
        self.kind, self.cell, self.connection, self.num_layers = kind, cell, connection, num_layers
        self.scorer = None if kind == "fixed" else scorer
        self.context_size = D if scorer in ("dot", "scaled_dot") else C
        self.decoder = self.make_decoder(dropout)
        num_states = 2 if cell == "lstm" else 1
        self.embedded = torch.randn(B, T, E, requires_grad=True)
        self.encoder_states = torch.randn(B, S, self.context_size, requires_grad=True)
        self.summary = torch.randn(B, self.context_size, requires_grad=True)
        self.layers = [
            tuple(torch.randn(B, D, requires_grad=True) for _ in range(num_states))
            for _ in range(num_layers)
        ]

    def make_decoder(self, dropout) -> RecurrentDecoder:
        """Return the decoder."""
        attention = None
        if self.scorer:
            num_heads = H if self.scorer == "multi_head" else 1
            attention = make_attention(
                scorer=self.scorer,
                query_size=D,
                key_size=self.context_size,
                num_heads=num_heads,
                dropout=0.0,
            )
        beside = {
            "fixed": self.context_size,
            "previous": attention.context_size if attention else 0,
            "current": 0,
            "feeding": D,
        }[self.kind]
        stack = RecurrentStack(
            input_size=E + beside,
            hidden_size=D,
            num_layers=self.num_layers,
            cell=find_cell(**CELLS[self.cell]),
            connection=self.connection,
            dropout=dropout,
            variational=True,
        )
        if self.kind == "fixed":
            return FixedContextDecoder(stack, E)
        if self.kind == "previous":
            return PreviousStateDecoder(stack, E, attention)
        return CurrentStateDecoder(
            stack, E, attention, state_size=D, input_feeding=self.kind == "feeding"
        )

    def first_state(self) -> DecoderState:
        """Return the state before the first token."""
        return DecoderState(self.layers, self.decoder.first_fed(self.layers[-1][0]))

    def memory(self, keep=SOURCE_KEEP) -> SourceMemory:
        """Return the source as the decoder reads it."""
        if self.kind == "fixed":
            return SourceMemory(None, None, keep, self.summary)
        keys, values = self.decoder.attention.project_memory(self.encoder_states)
        return SourceMemory(keys, values, keep, None)

    def plain(self, b: int, num_tokens: int = T, keep=SOURCE_KEEP) -> PlainRun:
        """Run one row by the equations."""
        return plain_decode(
            self.decoder,
            list(self.embedded[b, :num_tokens]),
            [tuple(part[b] for part in state) for state in self.layers],
            [self.encoder_states[b, s] for s in range(S) if keep is None or keep[b, s]],
            kind=self.kind,
            cell=self.cell,
            connection=self.connection,
            scorer=self.scorer,
            summary=self.summary[b],
        )

    def leaves(self):
        """Return everything that a gradient flows to."""
        source = self.summary if self.kind == "fixed" else self.encoder_states
        states = [part for state in self.layers for part in state]
        return [self.embedded, source, *states, *self.decoder.parameters()]


def values_of_row(run, b: int, num_tokens: int) -> list[torch.Tensor]:
    """Return all values of one row of a DecoderRun, up to its last token."""
    values = [run.readout[b, :num_tokens]]
    values += [output[b, :num_tokens] for output in run.layer_outputs]
    values += [part[b] for state in run.state.layers for part in state]
    if run.state.fed is not None:
        values.append(run.state.fed[b])
    if run.weights is not None:
        values += [run.weights[b, :, :num_tokens][..., SOURCE_KEEP[b]]]
    return values


def values_of_plain(run: PlainRun) -> list[torch.Tensor]:
    """Return the same of a PlainRun."""
    values = [torch.stack(run.readouts)]
    values += [torch.stack(outputs) for outputs in zip(*run.layer_outputs, strict=True)]
    values += [part for state in run.states for part in state]
    if run.fed is not None:
        values.append(run.fed)
    if run.weights:
        by_step = [[torch.stack(head) for head in step] for step in run.weights]
        values.append(torch.stack([torch.stack(step) for step in by_step]).transpose(0, 1))
    return values


def assert_equals_plain(setting: Setting, lengths=(T, T, T)):
    """Assert that both forms of the decoder give what the loop over the equations gives."""
    counts = torch.tensor(lengths)
    padded = {"keep_mask": torch.arange(T) < counts[:, None], "lengths": counts}
    options = padded if min(lengths) < T else {}
    expected = [
        value
        for b, length in enumerate(lengths)
        for value in values_of_plain(setting.plain(b, length))
    ]
    for reference in (False, True):
        run = setting.decoder(
            setting.embedded,
            setting.first_state(),
            setting.memory(),
            reference=reference,
            **options,
        )
        actual = [
            value for b, length in enumerate(lengths) for value in values_of_row(run, b, length)
        ]
        assert_same_values_and_gradients(actual, expected, setting.leaves())


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("kind", DECODERS)
def test_decoder_is_its_equations_with_every_cell(kind, cell):
    assert_equals_plain(Setting(kind, cell=cell))


@pytest.mark.parametrize("scorer", ["dot", "scaled_dot", "general", "multi_head"])
@pytest.mark.parametrize("kind", DECODERS[1:])
def test_decoder_is_its_equations_with_every_scorer(kind, scorer):
    assert_equals_plain(Setting(kind, scorer=scorer, num_layers=1))


@pytest.mark.parametrize("connection", ["residual", "highway", "dense"])
@pytest.mark.parametrize("kind", DECODERS)
def test_decoder_is_its_equations_with_every_connection(kind, connection):
    assert_equals_plain(Setting(kind, connection=connection, cell="lstm", num_layers=3))


@pytest.mark.parametrize("cell", ["gru_before", "lstm"])
@pytest.mark.parametrize("kind", DECODERS)
def test_decoder_reads_each_padded_row_as_if_alone(kind, cell):
    assert_equals_plain(Setting(kind, cell=cell), lengths=(3, 1, 4))


@pytest.mark.parametrize("kind", DECODERS)
def test_steps_equal_the_whole(kind):
    setting = Setting(kind, cell="lstm")
    run = setting.decoder(setting.embedded, setting.first_state(), setting.memory())
    state, memory = setting.first_state(), setting.memory()
    for t in range(T):
        step = setting.decoder.step(setting.embedded[:, t], state, memory)
        torch.testing.assert_close(step.readout, run.readout[:, t])
        for one, other in zip(step.layer_outputs, run.layer_outputs, strict=True):
            torch.testing.assert_close(one, other[:, t])
        if run.weights is None:
            assert step.weights is None
        else:
            torch.testing.assert_close(step.weights, run.weights[:, :, t : t + 1])
        state = step.state
    torch.testing.assert_close(state, run.state)


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("kind", DECODERS)
def test_padded_tokens_leave_the_state_alone(kind, reference):
    setting = Setting(kind)
    keep = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
    state = setting.decoder(
        setting.embedded,
        setting.first_state(),
        setting.memory(),
        keep_mask=keep,
        lengths=keep.sum(1),
        reference=reference,
    ).state
    first = setting.first_state()
    for one, other in zip(state.layers, first.layers, strict=True):
        torch.testing.assert_close(one[0][1], other[0][1])
    if kind == "feeding":
        assert (state.fed[1] == 0).all()


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("kind", DECODERS)
def test_one_row_one_target_token_and_one_source_token(kind, reference):
    setting = Setting(kind)
    memory = setting.memory(None)
    memory = SourceMemory(
        *(None if part is None else part[:1, :1] for part in (memory.keys, memory.values)),
        None,
        None if memory.summary is None else memory.summary[:1],
    )
    first = setting.first_state()
    first = DecoderState(
        [tuple(part[:1] for part in state) for state in first.layers],
        None if first.fed is None else first.fed[:1],
    )
    run = setting.decoder(setting.embedded[:1, :1], first, memory, reference=reference)
    plain = setting.plain(0, 1, keep=torch.eye(S, dtype=torch.bool)[:1])
    torch.testing.assert_close(run.readout[0, 0], plain.readouts[0])


@pytest.mark.parametrize("kind", DECODERS)
def test_decoder_without_any_source_token_stays_finite(kind):
    setting = Setting(kind)
    keep = torch.zeros_like(SOURCE_KEEP)
    run = setting.decoder(setting.embedded, setting.first_state(), setting.memory(keep))
    assert run.readout.isfinite().all()
    gradients = torch.autograd.grad(
        run.readout.sum(), setting.leaves(), allow_unused=True, materialize_grads=True
    )
    assert all(gradient.isfinite().all() for gradient in gradients)
    for b in range(B):
        expected = torch.stack(setting.plain(b, keep=keep).readouts)
        torch.testing.assert_close(run.readout[b], expected)


@pytest.mark.parametrize("kind", DECODERS)
def test_nothing_is_changed_in_place(kind):
    setting = Setting(kind, cell="lstm")
    tensors = setting.leaves()
    before = [tensor.clone() for tensor in tensors]
    state = setting.first_state()
    layers = [tuple(state_of_layer) for state_of_layer in state.layers]
    with torch.no_grad():
        setting.decoder(setting.embedded, state, setting.memory())
    for one, other in zip(tensors, before, strict=True):
        assert torch.equal(one, other)
    assert all(
        a is b
        for one, two in zip(state.layers, layers, strict=True)
        for a, b in zip(one, two, strict=True)
    )


@pytest.mark.parametrize("kind", ["previous", "feeding"])
def test_one_dropout_mask_holds_for_a_whole_target(kind):
    """With constant inputs and zero recurrent weights every step computes the same."""
    setting = Setting(kind, num_layers=2, dropout=0.5)
    decoder = setting.decoder.train()
    with torch.no_grad():
        for layer in decoder.stack.layers:
            layer.rnn.weight_hh_l0.zero_()
        decoder.stack.layers[0].rnn.weight_ih_l0[:, E:].zero_()  # no context either
        for layer in decoder.stack.layers:  # z = 0: nothing of the old state
            layer.rnn.bias_ih_l0[D : 2 * D] = -60.0
    constant = setting.embedded[:, :1].expand(-1, T, -1)
    run = decoder(constant, setting.first_state(), setting.memory())
    top = run.layer_outputs[-1]
    torch.testing.assert_close(top, top[:, :1].expand_as(top))
    again = decoder(constant, setting.first_state(), setting.memory()).layer_outputs[-1]
    assert (again - top).abs().max() > 1e-3


def test_a_decoder_without_a_kernel_says_so():
    decoder = RecurrentDecoder(Setting("current").decoder.stack, E)
    with pytest.raises(NotImplementedError, match="RecurrentDecoder runs step by step"):
        decoder(torch.randn(B, T, E), Setting("current").first_state(), SourceMemory(*[None] * 4))


def enable_checkpointing(decoder, **options):
    """Do what transformers does to every module that can checkpoint."""
    for module in decoder.modules():
        if hasattr(module, "gradient_checkpointing"):
            module.gradient_checkpointing = True
            module._gradient_checkpointing_func = partial(checkpoint, **options)


def run_long(setting, num_tokens: int):
    """Run a decoder over a long target, the rows of different lengths."""
    torch.manual_seed(3)
    embedded = torch.randn(B, num_tokens, E, requires_grad=True)
    keep_mask = torch.arange(num_tokens) < torch.tensor([num_tokens, 5, 1])[:, None]
    run = setting.decoder(embedded, setting.first_state(), setting.memory(), keep_mask=keep_mask)
    return embedded, run


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("kind", ["previous", "feeding"])
def test_checkpointed_parts_give_the_values_and_gradients_of_the_whole_loop(kind, use_reentrant):
    """With dropout, an odd number of steps, the LSTM's two states and rows of different lengths."""
    setting = Setting(kind, cell="lstm", dropout=0.5)
    results = []
    for checkpointing in (False, True):
        if checkpointing:
            enable_checkpointing(setting.decoder, use_reentrant=use_reentrant)
        embedded, run = run_long(setting, 11)
        values = [run.readout, run.weights, *run.layer_outputs]
        values += [part for part in run.state.flatten() if part is not None]
        leaves = [embedded, setting.encoder_states, *(p for s in setting.layers for p in s)]
        leaves += setting.decoder.parameters()
        sum(value.pow(2).sum() for value in values).backward()
        results.append([*values, *(leaf.grad.clone() for leaf in leaves)])
        for leaf in leaves:
            leaf.grad = None
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", ["previous", "feeding"])
def test_checkpointed_parts_keep_few_numbers_of_a_long_target(kind):
    """Four times the steps keep far less than four times the numbers inside a cell."""

    def count_kept(num_tokens: int) -> int:
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()), id):
            run_long(setting, num_tokens)
        return sum(sizes)

    setting = Setting(kind, cell="lstm")
    without = count_kept(64)
    enable_checkpointing(setting.decoder, use_reentrant=False)
    assert count_kept(64) < without / 10
