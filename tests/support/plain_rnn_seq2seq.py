"""The recurrent encoder-decoder as loops over vectors: one row without padding, token by token.

The second source for `layers_decoder.py` and `modeling_rnn_seq2seq.py`, written from the equations:
[9.35] to [9.38] of Jurafsky and Martin, Bahdanau et al. 2015 ("previous"), Luong et al. 2015
("current", "feeding"), Cho et al. 2014 ("fixed").
"""

from typing import NamedTuple

import torch
from torch import Tensor

from plain_attention import plain_attention
from plain_recurrence import State, plain_stack, plain_stack_step


class PlainRun(NamedTuple):
    """What a decoder computes over one row.

    Args:
        readouts: vectors that the output layer reads, T times (D).
        layer_outputs: output of every layer, T times L times (D).
        states: last state of every layer.
        fed: last attentional vector, (D); None without input feeding.
        weights: by step, head and source token; none without attention.
    """

    readouts: list[Tensor]
    layer_outputs: list[list[Tensor]]
    states: list[State]
    fed: Tensor | None
    weights: list[list[list[Tensor]]]


def plain_decode(
    decoder,
    embedded: list[Tensor],
    states: list[State],
    encoder_states: list[Tensor],
    *,
    kind: str,
    cell: str,
    connection: str = "none",
    scorer: str | None = None,
    summary: Tensor | None = None,
) -> PlainRun:
    """Run a decoder over one row.

    Args:
        decoder: holds the weights.
        embedded: embeddings of the decoder input, T times (E).
        states: first state of every layer.
        encoder_states: h^e_j of every source token, (C) each.
        kind: "fixed", "previous", "current" or "feeding".
        cell: a key of `plain_recurrence.NUM_GATES`.
        connection: between layers.
        scorer: of the attention.
        summary: the context of "fixed", (C).
    """
    fed = torch.zeros_like(states[0][0]) if kind == "feeding" else None
    run = PlainRun([], [], states, fed, [])
    for e in embedded:
        if kind == "fixed":
            x = torch.cat([e, summary])
        elif kind == "previous":  # c_t from the top state before this step
            c, weights = plain_attention(
                scorer, decoder.attention, run.states[-1][0], encoder_states
            )
            x = torch.cat([e, c])
        else:
            x = e if run.fed is None else torch.cat([e, run.fed])
        outputs, states = plain_stack_step(cell, connection, decoder.stack, x, run.states)
        readout = outputs[-1]
        if kind in ("current", "feeding"):  # c_t from the top output of this step
            c, weights = plain_attention(scorer, decoder.attention, outputs[-1], encoder_states)
            readout = torch.tanh(
                decoder.attentional_projection.weight @ torch.cat([c, outputs[-1]])
            )
        run.readouts.append(readout)
        run.layer_outputs.append(outputs)
        if kind != "fixed":
            run.weights.append(weights)
        run = run._replace(states=states, fed=readout if kind == "feeding" else None)
    return run


class PlainScores(NamedTuple):
    """What the whole model computes over one row.

    Args:
        logits: T times (V).
        encoder_states: of every encoder layer, S times (C), in the order of the input.
        decoder: the decoder's run.
    """

    logits: list[Tensor]
    encoder_states: list[list[Tensor]]
    decoder: PlainRun


CELLS = {
    ("elman", "tanh", "after"): "elman_tanh",
    ("elman", "relu", "after"): "elman_relu",
    ("gru", "tanh", "after"): "gru_after",
    ("gru", "tanh", "before"): "gru_before",
    ("lstm", "tanh", "after"): "lstm",
}


def plain_bridge(config, bridge, finals: list[Tensor], cells: list[Tensor]) -> list[State]:
    """Return the first state of every decoder layer.

    Args:
        config: of the model.
        bridge: holds the weights.
        finals: last output of every encoder layer, (C) each.
        cells: last cell state of every encoder layer; empty unless LSTM.
    """
    if config.bridge == "copy":
        return list(zip(finals, cells, strict=True)) if cells else [(one,) for one in finals]
    size, states = config.hidden_size, []
    for index in range(config.num_decoder_layers):
        rows = slice(index * size, (index + 1) * size)
        state = [torch.zeros(size)] * (2 if cells else 1)
        if config.bridge == "projection":
            linear = bridge.hidden_projection
            state = [torch.tanh(linear.weight[rows] @ finals[-1] + linear.bias[rows])]
            if cells:
                linear = bridge.cell_projection
                state.append(linear.weight[rows] @ cells[-1] + linear.bias[rows])
        states.append(tuple(state))
    return states


def plain_scores(model, source: list[int], target: list[int]) -> PlainScores:
    """Score one row: `source` ids and the decoder's input ids `target`, by the equations.

    Args:
        model: RnnSeq2SeqForConditionalGeneration in float64, without dropout.
        source: ids, at least one.
        target: decoder input ids.
    """
    config, encoder, decoder = model.config, model.model.encoder, model.model.decoder
    cell = CELLS[config.cell_type, config.elman_activation, config.gru_reset]
    xs = [encoder.embed_tokens.weight[token] for token in source]
    if config.reverse_source:
        xs = xs[::-1]
    layers, states = plain_stack(cell, config.layer_connection, encoder.stack, xs)
    half = config.source_state_size // (2 if config.bidirectional_encoder else 1)
    finals = [torch.cat([outputs[-1][:half], outputs[0][half:]]) for outputs in layers]
    if config.reverse_source:
        layers = [outputs[::-1] for outputs in layers]
    kind = "fixed" if config.attention_scorer is None else config.attention_query
    run = plain_decode(
        decoder.recurrence,
        [decoder.embed_tokens.weight[token] for token in target],
        plain_bridge(config, decoder.bridge, finals, [s[1] for s in states if len(s) > 1]),
        layers[-1],
        kind="feeding" if config.input_feeding else kind,
        cell=cell,
        connection=config.layer_connection,
        scorer=config.attention_scorer,
        summary=finals[-1],
    )
    readouts = run.readouts
    if model.output_projection is not None:
        readouts = [model.output_projection.weight @ readout for readout in readouts]
    logits = [model.lm_head.weight @ readout + model.lm_head.bias for readout in readouts]
    return PlainScores(logits, layers, run)
