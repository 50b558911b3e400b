# pyright: basic
"""The three ways in which a recurrent decoder meets the source.

`FixedContextDecoder` reads one vector for the whole source, `PreviousStateDecoder` attends before
its cell (Bahdanau et al. 2015), `CurrentStateDecoder` after it (Luong et al. 2015). Each has
`step`, one target position as in the equations; `forward` runs all positions, by kernels over the
whole sequence where no step depends on attention, else by a loop of steps.

Shapes: B batch, T target length, S source length, E embedding width, D state width, C context
width.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers_attention import MultiHeadAttention, ScoredAttention
from .layers_recurrent import RecurrentLayer, RecurrentStack, State, keep_rows


class SourceMemory(NamedTuple):
    """What every decoder step may read of the source.

    Args:
        keys: projected keys, from the attention's `project_memory`; None without attention.
        values: values, likewise.
        keep_mask: True at real source tokens, (B, S); None is everywhere.
        summary: last state of the encoder's top layer, (B, C).
    """

    keys: Tensor | None
    values: Tensor | None
    keep_mask: Tensor | None
    summary: Tensor | None


class DecoderState(NamedTuple):
    """What a decoder carries from token to token.

    Args:
        layers: state of every recurrent layer.
        fed: attentional vector of the last step, (B, D), with input feeding; else None.
        coverage: sum of the attention weights of all steps, (B, S), where the attention reads it;
            else None.
    """

    layers: list[State]
    fed: Tensor | None = None
    coverage: Tensor | None = None

    def flatten(self) -> list[Tensor | None]:
        """Return all vectors in one list, `fed` and `coverage` last."""
        return [*(part for layer in self.layers for part in layer), self.fed, self.coverage]

    def carried(self) -> list[State]:
        """Return what a cache holds: the layers, and what else there is."""
        extra = [(part,) for part in (self.fed, self.coverage) if part is not None]
        return [*self.layers, *extra]

    @classmethod
    def unflatten(cls, parts: Sequence[Any], num_layers: int) -> "DecoderState":
        """Undo `flatten`."""
        *layers, fed, coverage = parts
        size = len(layers) // num_layers
        states = [tuple(layers[i : i + size]) for i in range(0, len(layers), size)]
        return cls(states, fed, coverage)


class DecoderStep(NamedTuple):
    """One target position: what the output layer reads (B, D), each layer's output, the new state,
    the weights."""

    readout: Tensor
    layer_outputs: list[Tensor]
    state: DecoderState
    weights: Tensor | None = None


class DecoderRun(NamedTuple):
    """All target positions: readout (B, T, D), each layer's output, the last state, weights (B,
    heads, T, S)."""

    readout: Tensor
    layer_outputs: list[Tensor]
    state: DecoderState
    weights: Tensor | None = None


class HoistedInput(NamedTuple):
    """The part of the first layer's input product that needs no loop.

    Args:
        gates: W_e e_t + b of every step, (B, T, G).
        context_weight: the columns of W that meet the vector known only inside the loop, (G, C).
    """

    gates: Tensor
    context_weight: Tensor

    def at(self, position: int, context: Tensor | None) -> Tensor:
        """Return the whole product at one step, W [e_t ; c_t] + b."""
        gates = self.gates[:, position]
        return gates if context is None else gates + F.linear(context, self.context_weight)

    def part(self, positions: slice) -> "HoistedInput":
        """Return the same for some of the steps."""
        return HoistedInput(self.gates[:, positions], self.context_weight)


class RecurrentDecoder(nn.Module):
    """What the three decoders share: the stack and the loop over target positions.

    With gradient checkpointing the loop runs in parts of about sqrt(T) steps and keeps the states
    between them; the backward pass computes each part again (Chen et al. 2016, arXiv:1604.06174,
    section 4.1).

    Args:
        stack: recurrent layers; the first reads [embedding ; context] or the embedding alone.
        embedding_size: E.
    """

    attention: ScoredAttention | MultiHeadAttention  # FixedContextDecoder has none
    is_sequential = False  # True if a step depends on the attention of the step before
    # set by activation_checkpointing_enable() of transformers
    gradient_checkpointing = False
    _gradient_checkpointing_func: Callable[..., tuple]

    def __init__(self, stack: RecurrentStack, embedding_size: int):
        super().__init__()
        self.stack = stack
        self.embedding_size = embedding_size

    def first_fed(self, like: Tensor) -> Tensor | None:
        """Return what is fed at the first step; None where nothing is."""
        return None

    def first_coverage(self, memory: SourceMemory) -> Tensor | None:
        """Return c_0 = 0, (B, S), where the attention reads coverage; else None."""
        if memory.keys is None or not self.attention.reads_coverage:
            return None
        return memory.keys.new_zeros(memory.keys.shape[:2])

    def attend(
        self, queries: Tensor, memory: SourceMemory, coverage: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return context (B, T, C) and weights (B, heads, T, S) of queries (B, T, D)."""
        arguments = (queries, memory.keys, memory.values, memory.keep_mask)
        return (
            self.attention(*arguments) if coverage is None else self.attention(*arguments, coverage)
        )

    def context_of(
        self, state: DecoderState, memory: SourceMemory
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the vector that enters the cell beside the embedding, (B, C), and attention
        weights if it has any."""
        return None, None

    def step(
        self,
        embedded: Tensor,
        state: DecoderState,
        memory: SourceMemory,
        *,
        masks: list[Tensor | None] | None = None,
        hoisted: HoistedInput | None = None,
        position: int = 0,
    ) -> DecoderStep:
        """Read one target token.

        Args:
            embedded: embedding of the last target token, (B, E).
            state: state after the tokens before it.
            memory: the source.
            masks: dropout masks of the sequence, from the stack's `sequence_masks`.
            hoisted: input products computed for all steps at once; None computes them here.
            position: index of this step in `hoisted`.

        Returns:
            The step's readout, outputs, state and weights.
        """
        context, weights = self.context_of(state, memory)
        inputs = embedded if context is None else torch.cat([embedded, context], dim=-1)
        gates = None if hoisted is None else hoisted.at(position, context)
        outputs, layers = self.stack.step(inputs, state.layers, input_gates=gates, masks=masks)
        state_now = DecoderState(layers, coverage=state.coverage)
        step = self.read_out(outputs, state_now, memory, weights)
        if state.coverage is None or step.weights is None:
            return step
        coverage = state.coverage + step.weights[:, 0, 0]  # (B, S); such attention has one head
        return step._replace(state=step.state._replace(coverage=coverage))

    def read_out(
        self,
        outputs: list[Tensor],
        state: DecoderState,
        memory: SourceMemory,
        weights: Tensor | None,
    ) -> DecoderStep:
        """Return what the output layer reads: here the top layer's output."""
        return DecoderStep(outputs[-1], outputs, state, weights)

    def forward(
        self,
        embedded: Tensor,
        state: DecoderState,
        memory: SourceMemory,
        *,
        keep_mask: Tensor | None = None,
        lengths: Tensor | None = None,
        reference: bool = False,
    ) -> DecoderRun:
        """Read all target tokens.

        Args:
            embedded: embeddings of the decoder input, (B, T, E); real tokens first in every row.
            state: state before the first of them.
            memory: the source.
            keep_mask: True at real decoder inputs, (B, T); None is everywhere. Others leave the
                state as it is.
            lengths: the same as a count per row, (B) on the CPU.
            reference: loop even where a kernel could run.

        Returns:
            Everything, for all positions.
        """
        if self.is_sequential or reference:
            return self._run_loop(embedded, state, memory, keep_mask, reference)
        return self._run_whole(embedded, state, memory, lengths)

    def _run_loop(
        self,
        embedded: Tensor,
        state: DecoderState,
        memory: SourceMemory,
        keep_mask: Tensor | None,
        reference: bool,
    ) -> DecoderRun:
        # The place of a hand-written backward pass: everything that a part needs is passed to it.
        hoisted = None if reference else self._hoist(embedded)
        masks = self.stack.sequence_masks(state.layers)
        num_steps, run_part = embedded.shape[1], self._run_part
        length = num_steps
        if self.gradient_checkpointing and self.training:
            length = math.isqrt(num_steps)
            run_part = partial(self._gradient_checkpointing_func, run_part)
        runs: list[DecoderRun] = []
        for start in range(0, num_steps, length):
            part = slice(start, start + length)
            # one by one: reentrant checkpointing gives no gradient to what lies in a tuple
            results = run_part(
                masks,
                None if keep_mask is None else keep_mask[:, part],
                embedded[:, part],
                *((None, None) if hoisted is None else hoisted.part(part)),
                *memory,
                *state.flatten(),
            )
            runs.append(self._as_run(results))
            state = runs[-1].state
        return runs[0] if len(runs) == 1 else _join_runs(runs)

    def _run_part(
        self,
        masks: list[Tensor | None],
        keep_mask: Tensor | None,
        embedded: Tensor,
        gates: Tensor | None,
        context_weight: Tensor | None,
        *memory_and_state: Any,
    ) -> tuple[Tensor | None, ...]:
        memory = SourceMemory(*memory_and_state[:4])
        state = DecoderState.unflatten(memory_and_state[4:], len(self.stack.layers))
        hoisted = None
        if gates is not None and context_weight is not None:
            hoisted = HoistedInput(gates, context_weight)
        steps: list[DecoderStep] = []
        for t in range(embedded.shape[1]):
            step = self.step(
                embedded[:, t], state, memory, masks=masks, hoisted=hoisted, position=t
            )
            state = (
                step.state if keep_mask is None else _keep_state(keep_mask[:, t], step.state, state)
            )
            steps.append(step)
        layer_outputs = zip(*(step.layer_outputs for step in steps), strict=True)
        weights = [step.weights for step in steps if step.weights is not None]
        return (
            torch.stack([step.readout for step in steps], dim=1),
            torch.cat(weights, dim=2) if weights else None,
            *(torch.stack(outputs, dim=1) for outputs in layer_outputs),
            *state.flatten(),
        )

    def _as_run(self, results: tuple[Any, ...]) -> DecoderRun:
        readout, weights, *others = results
        num_layers = len(self.stack.layers)
        state = DecoderState.unflatten(others[num_layers:], num_layers)
        return DecoderRun(readout, others[:num_layers], state, weights)

    def _hoist(self, embedded: Tensor) -> HoistedInput:
        weight, _, bias, _ = cast(RecurrentLayer, self.stack.layers[0]).weights()
        embedding_weight = weight[:, : self.embedding_size]
        return HoistedInput(
            F.linear(embedded, embedding_weight, bias), weight[:, self.embedding_size :]
        )

    def _run_whole(
        self, embedded: Tensor, state: DecoderState, memory: SourceMemory, lengths: Tensor | None
    ) -> DecoderRun:
        raise NotImplementedError(f"{type(self).__name__} runs step by step.")


def _keep_state(keep: Tensor, new: DecoderState, old: DecoderState) -> DecoderState:
    layers = [keep_rows(keep, *pair) for pair in zip(new.layers, old.layers, strict=True)]
    extra = [
        None if a is None or b is None else torch.where(keep[:, None], a, b)
        for a, b in ((new.fed, old.fed), (new.coverage, old.coverage))
    ]
    return DecoderState(layers, *extra)


def _join_runs(runs: list[DecoderRun]) -> DecoderRun:
    layer_outputs = zip(*(run.layer_outputs for run in runs), strict=True)
    weights = [run.weights for run in runs if run.weights is not None]
    return DecoderRun(
        readout=torch.cat([run.readout for run in runs], dim=1),
        layer_outputs=[torch.cat(outputs, dim=1) for outputs in layer_outputs],
        state=runs[-1].state,
        weights=torch.cat(weights, dim=2) if weights else None,
    )


class FixedContextDecoder(RecurrentDecoder):
    """h_t = g(y_{t-1}, h_{t-1}, c): the classic encoder-decoder, the last encoder state c fed at
    every step.

    Source: Cho et al. 2014, arXiv:1406.1078, section 2.2; Sutskever et al. 2014.
    """

    def context_of(
        self, state: DecoderState, memory: SourceMemory
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return c, the same at every step."""
        return memory.summary, None

    def _run_whole(
        self, embedded: Tensor, state: DecoderState, memory: SourceMemory, lengths: Tensor | None
    ) -> DecoderRun:
        assert memory.summary is not None
        summary = memory.summary[:, None].expand(-1, embedded.shape[1], -1)  # (B, T, C)
        inputs = torch.cat([embedded, summary], dim=-1)
        outputs, layers = self.stack(inputs, state.layers, lengths=lengths)
        return DecoderRun(outputs[-1], outputs, DecoderState(layers))


class PreviousStateDecoder(RecurrentDecoder):
    """h_t = g(y_{t-1}, h_{t-1}, c_t) with c_t = sum_j alpha_tj h^e_j, alpha_t =
    softmax_j(score(h_{t-1}, h^e_j)).

    Source: Bahdanau et al. 2015, arXiv:1409.0473, equations 4 to 6. The query is the top layer's
    state.

    Args:
        stack: recurrent layers; the first reads [embedding ; context].
        embedding_size: E.
        attention: over the encoder states.
    """

    is_sequential = True

    def __init__(
        self,
        stack: RecurrentStack,
        embedding_size: int,
        attention: ScoredAttention | MultiHeadAttention,
    ):
        super().__init__(stack, embedding_size)
        self.attention = attention

    def context_of(
        self, state: DecoderState, memory: SourceMemory
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return c_t (B, C) and alpha_t (B, heads, 1, S)."""
        query = state.layers[-1][0].unsqueeze(1)  # (B, 1, D)
        context, weights = self.attend(query, memory, state.coverage)
        return context.squeeze(1), weights


class CurrentStateDecoder(RecurrentDecoder):
    """s_t = g(y_{t-1}, s_{t-1}), c_t from score(s_t, .), and the attentional vector a_t = tanh(W
    [c_t ; s_t]).

    With input feeding s_t = g([y_{t-1} ; a_{t-1}], s_{t-1}), a_0 = 0.
    Source: Luong et al. 2015, arXiv:1508.04025, equation 5 and section 3.3.

    Args:
        stack: recurrent layers; the first reads the embedding, with input feeding [embedding ;
            a_{t-1}].
        embedding_size: E.
        attention: over the encoder states.
        state_size: D, also the width of a_t.
        input_feeding: feed a_{t-1}.
    """

    def __init__(
        self,
        stack: RecurrentStack,
        embedding_size: int,
        attention: ScoredAttention | MultiHeadAttention,
        *,
        state_size: int,
        input_feeding: bool,
    ):
        super().__init__(stack, embedding_size)
        self.attention = attention
        self.input_feeding = input_feeding
        self.is_sequential = input_feeding or attention.reads_coverage
        self.attentional_projection = nn.Linear(
            attention.context_size + state_size, state_size, bias=False
        )

    def first_fed(self, like: Tensor) -> Tensor | None:
        """Return a_0 = 0, (B, D), with input feeding."""
        return torch.zeros_like(like) if self.input_feeding else None

    def context_of(
        self, state: DecoderState, memory: SourceMemory
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return a_{t-1} with input feeding; nothing else enters the cell."""
        return state.fed, None

    def read_out(
        self,
        outputs: list[Tensor],
        state: DecoderState,
        memory: SourceMemory,
        weights: Tensor | None,
    ) -> DecoderStep:
        """Return a_t, and carry it on with input feeding."""
        attentional, weights = self._attend(outputs[-1].unsqueeze(1), memory, state.coverage)
        attentional = attentional.squeeze(1)
        state = state._replace(fed=attentional if self.input_feeding else None)
        return DecoderStep(attentional, outputs, state, weights)

    def _attend(
        self, states: Tensor, memory: SourceMemory, coverage: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        context, weights = self.attend(states, memory, coverage)
        return torch.tanh(
            self.attentional_projection(torch.cat([context, states], dim=-1))
        ), weights

    def _run_whole(
        self, embedded: Tensor, state: DecoderState, memory: SourceMemory, lengths: Tensor | None
    ) -> DecoderRun:
        outputs, layers = self.stack(embedded, state.layers, lengths=lengths)
        attentional, weights = self._attend(outputs[-1], memory)  # (B, T, D), (B, heads, T, S)
        return DecoderRun(attentional, outputs, DecoderState(layers), weights)
