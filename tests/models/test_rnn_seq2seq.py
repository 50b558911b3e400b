"""The whole recurrent encoder-decoder against loops over its equations, and what it returns."""

import math

import pytest
import torch

from hf_seqmodels import RnnSeq2SeqConfig, RnnSeq2SeqForConditionalGeneration, RnnSeq2SeqModel
from hf_seqmodels.models import modeling_rnn_seq2seq
from plain_loss import plain_loss
from plain_rnn_seq2seq import plain_scores
from probed_gradients import assert_same_values_and_gradients

B, S, T, E, C, D, V = 3, 7, 5, 6, 8, 12, 31
SOURCE = torch.randint(4, 29, (B, S), generator=torch.Generator().manual_seed(1))
TARGET = torch.randint(4, V, (B, T), generator=torch.Generator().manual_seed(2))
MASK = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1, 1], [1, 0, 1, 0, 0, 1, 0]])
SAME = {"encoder_hidden_size": D}
TWO_LAYERS = {"num_encoder_layers": 2, "num_decoder_layers": 2}
CONFIGS = {
    "default": {},
    "bahdanau": {"attention_query": "previous"},
    "luong": {
        **SAME,
        **TWO_LAYERS,
        "cell_type": "lstm",
        "bidirectional_encoder": False,
        "attention_scorer": "dot",
        "input_feeding": True,
        "bridge": "copy",
    },
    "cho": {
        **SAME,
        "gru_reset": "before",
        "bidirectional_encoder": False,
        "attention_scorer": None,
    },
    "sutskever": {
        **SAME,
        **TWO_LAYERS,
        "cell_type": "lstm",
        "bidirectional_encoder": False,
        "attention_scorer": None,
        "bridge": "copy",
        "reverse_source": True,
    },
    "elman_residual": {
        **TWO_LAYERS,
        "num_decoder_layers": 3,
        "cell_type": "elman",
        "attention_scorer": "general",
        "bridge": "zeros",
        "layer_connection": "residual",
        "reverse_source": True,
    },
    "relu_highway": {
        **TWO_LAYERS,
        "cell_type": "elman",
        "elman_activation": "relu",
        "attention_scorer": "multi_head",
        "num_attention_heads": 3,
        "attention_query": "previous",
        "layer_connection": "highway",
    },
    "lstm_dense_projection": {
        **TWO_LAYERS,
        "cell_type": "lstm",
        "attention_scorer": "multi_head",
        "num_attention_heads": 2,
        "layer_connection": "dense",
    },
    "scaled_feeding_copy": {
        **SAME,
        **TWO_LAYERS,
        "attention_scorer": "scaled_dot",
        "input_feeding": True,
        "bridge": "copy",
        "layer_connection": "highway",
    },
    "no_attention_lstm_projection": {"cell_type": "lstm", "attention_scorer": None},
    "no_attention_zeros": {"attention_scorer": None, "bridge": "zeros"},
    "tied": {"tie_word_embeddings": True},
    "all_tied": {
        "vocab_size": V,
        "decoder_vocab_size": None,
        "share_embeddings": True,
        "tie_word_embeddings": True,
        "embedding_size": D,
    },
    "shared": {"vocab_size": V, "decoder_vocab_size": None, "share_embeddings": True},
}


def make_model(**options):
    """Return a tiny model in float64 without dropout; all biases are random."""
    sizes = {
        "vocab_size": 29,
        "decoder_vocab_size": V,
        "embedding_size": E,
        "hidden_size": D,
        "encoder_hidden_size": C,
        "embedding_dropout": 0.0,
        "hidden_dropout": 0.0,
    }
    model = RnnSeq2SeqForConditionalGeneration(RnnSeq2SeqConfig(**sizes | options)).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bias" in name:
                parameter.normal_(std=0.3)
    return model


def plain_rows(model, source=SOURCE, mask=MASK, target=TARGET):
    """Score every row alone, without its padding."""
    rows = []
    for ids, keep, written in zip(source, mask, target, strict=True):
        rows.append(plain_scores(model, ids[keep.bool()].tolist(), written.tolist()))
    return rows


@pytest.fixture(autouse=True)
def in_float64():
    """Compute in float64, so that two ways agree to the last digits."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", CONFIGS)
def test_model_is_its_equations(name):
    model = make_model(**CONFIGS[name])
    rows = plain_rows(model)
    expected = []
    for row in rows:
        expected.append(torch.stack(row.logits))
        expected.append(torch.stack(row.encoder_states[-1]))
    for implementation in ("fast", "reference"):
        model.config.implementation = implementation
        outputs = model(input_ids=SOURCE, attention_mask=MASK, decoder_input_ids=TARGET)
        actual = []
        for b in range(B):
            actual.append(outputs.logits[b])
            actual.append(outputs.encoder_last_hidden_state[b, MASK[b].bool()])
        assert_same_values_and_gradients(actual, expected, list(model.parameters()))


@pytest.mark.parametrize("name", ["default", "luong", "no_attention_lstm_projection"])
def test_loss_is_that_of_the_target_behind_the_start_token(name):
    model = make_model(**CONFIGS[name])
    labels = TARGET.masked_fill(
        torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1], [0] * 5]) == 1, -100
    )
    read = [[1, *row[:-1]] for row in labels.tolist()]  # 1 is the start token, 0 fills
    target = torch.tensor([[0 if token == -100 else token for token in row] for row in read])
    logits = torch.stack([torch.stack(row.logits) for row in plain_rows(model, target=target)])
    outputs = model(input_ids=SOURCE, attention_mask=MASK, labels=labels)
    torch.testing.assert_close(outputs.logits, logits)
    assert outputs.loss.item() == pytest.approx(plain_loss(logits, labels), rel=1e-10)
    outputs = model(
        input_ids=SOURCE, attention_mask=MASK, labels=labels, num_items_in_batch=torch.tensor(40)
    )
    assert outputs.loss.item() == pytest.approx(plain_loss(logits, labels, num_items=40))


def test_chain_rule_gives_the_probability_of_a_target():
    """p(y|x) = prod_t p(y_t | y_<t, x), each factor from a run over the prefix alone."""
    model = make_model().eval()
    product = 1.0
    for t in range(T):
        prefix = torch.cat([torch.tensor([[1]]), TARGET[:1, :t]], dim=1)
        scores = model(input_ids=SOURCE[:1], decoder_input_ids=prefix).logits[0, -1]
        product *= scores.softmax(-1)[TARGET[0, t]].item()
    loss = model(input_ids=SOURCE[:1], labels=TARGET[:1]).loss.item()
    assert math.exp(-T * loss) == pytest.approx(product)
    assert math.exp(loss) == pytest.approx(product ** (-1 / T))  # perplexity


def test_smoothing_is_for_training_alone():
    model = make_model(label_smoothing=0.2)
    batch = {"input_ids": SOURCE, "labels": TARGET}
    for training, smoothing in ((True, 0.2), (False, 0.0)):
        outputs = model.train(training)(**batch)
        expected = plain_loss(outputs.logits, TARGET, smoothing=smoothing)
        assert outputs.loss.item() == pytest.approx(expected)


# What the decoder reads


def test_labels_are_shifted_behind_the_start_token_once():
    model = make_model(decoder_start_token_id=3, pad_token_id=2, eos_token_id=None)
    labels = torch.tensor([[5, 6, 7, 8], [9, -100, -100, 10], [-100, 11, 12, -100]])
    expected = [[3, 5, 6, 7], [3, 9, 2, 2], [3, 2, 11, 12]]
    before = labels.clone()
    assert model.prepare_decoder_input_ids_from_labels(labels).tolist() == expected
    assert torch.equal(labels, before)
    logits = model(input_ids=SOURCE, decoder_input_ids=torch.tensor(expected)).logits
    assert torch.equal(model(input_ids=SOURCE, labels=labels).logits, logits)


def test_labels_without_a_padding_token_are_filled_with_the_start_token():
    model = make_model(decoder_start_token_id=3, pad_token_id=None)
    labels = torch.tensor([[5, -100, -100]])
    assert model.prepare_decoder_input_ids_from_labels(labels).tolist() == [[3, 5, 3]]


def test_given_decoder_input_stands_beside_labels():
    model = make_model()
    given = TARGET.flip(0)
    outputs = model(input_ids=SOURCE, decoder_input_ids=given, labels=TARGET)
    logits = model(input_ids=SOURCE, decoder_input_ids=given).logits
    assert torch.equal(outputs.logits, logits)
    assert outputs.loss.item() == pytest.approx(plain_loss(logits, TARGET))
    assert outputs.past_key_values is None


@pytest.mark.parametrize("name", ["default", "sutskever", "elman_residual", "bahdanau"])
def test_reversing_the_source_is_reversing_the_input_by_hand(name):
    options = CONFIGS[name]
    model = make_model(**options | {"reverse_source": True})
    by_hand = make_model(**options | {"reverse_source": False})
    by_hand.load_state_dict(model.state_dict())
    source, mask = torch.zeros_like(SOURCE), torch.zeros_like(MASK)
    for b in range(B):
        ids = SOURCE[b, MASK[b].bool()].flip(0)
        source[b, : len(ids)], mask[b, : len(ids)] = ids, 1
    outputs = model(input_ids=SOURCE, attention_mask=MASK, decoder_input_ids=TARGET)
    expected = by_hand(input_ids=source, attention_mask=mask, decoder_input_ids=TARGET)
    torch.testing.assert_close(outputs.logits, expected.logits)
    for b in range(B):  # the encoder's outputs keep the order of the input
        ours = outputs.encoder_last_hidden_state[b, MASK[b].bool()]
        theirs = expected.encoder_last_hidden_state[b, mask[b].bool()].flip(0)
        torch.testing.assert_close(ours, theirs)


# Bridges


@pytest.mark.parametrize("cell_type", ["gru", "lstm"])
@pytest.mark.parametrize("bridge", ["copy", "projection", "zeros"])
def test_bridge_gives_every_decoder_layer_its_first_state(bridge, cell_type):
    num_layers = {"num_encoder_layers": 2, "num_decoder_layers": 2 if bridge == "copy" else 3}
    model = make_model(**SAME, **num_layers, bridge=bridge, cell_type=cell_type)
    encoder_outputs = model.get_encoder()(SOURCE, attention_mask=MASK)
    states = model.get_decoder().bridge(encoder_outputs)
    assert len(states) == num_layers["num_decoder_layers"]
    for index, state in enumerate(states):
        assert len(state) == (2 if cell_type == "lstm" else 1)
        for part, (vector, projection, function) in enumerate(
            (
                ("final_hidden_state", "hidden_projection", torch.tanh),
                ("final_cell_state", "cell_projection", lambda x: x),
            )[: len(state)]
        ):
            last = encoder_outputs[vector]  # (B, L, C)
            if bridge == "copy":
                expected = last[:, index]
            elif bridge == "zeros":
                expected = torch.zeros(B, D)
            else:
                linear = getattr(model.get_decoder().bridge, projection)
                rows = slice(index * D, (index + 1) * D)
                expected = function(last[:, -1] @ linear.weight[rows].T + linear.bias[rows])
            torch.testing.assert_close(state[part], expected)


# Hidden states, attention weights, states


@pytest.mark.parametrize(
    "name", ["default", "luong", "elman_residual", "lstm_dense_projection", "cho"]
)
def test_hidden_states_are_embeddings_and_the_outputs_of_every_layer(name):
    """The last of the decoder's is what the output layer reads, as in transformers."""
    model = make_model(**CONFIGS[name])
    rows = plain_rows(model)
    outputs = model(
        input_ids=SOURCE, attention_mask=MASK, decoder_input_ids=TARGET, output_hidden_states=True
    )
    encoder, decoder = model.get_encoder(), model.get_decoder()
    states = outputs.encoder_hidden_states
    assert len(states) == 1 + model.config.num_encoder_layers
    torch.testing.assert_close(states[0], encoder.embed_tokens(SOURCE))
    for index, layer_states in enumerate(states[1:]):
        assert layer_states.shape == (B, S, model.config.source_state_size)
        for b, row in enumerate(rows):
            real = layer_states[b, MASK[b].bool()]
            torch.testing.assert_close(real, torch.stack(row.encoder_states[index]))
        assert (layer_states[MASK == 0] == 0).all()
    assert states[-1] is outputs.encoder_last_hidden_state
    states = outputs.decoder_hidden_states
    assert len(states) == 1 + model.config.num_decoder_layers
    torch.testing.assert_close(states[0], decoder.embed_tokens(TARGET))
    for b, row in enumerate(rows):
        torch.testing.assert_close(states[-1][b], torch.stack(row.decoder.readouts))
    torch.testing.assert_close(model.score_vocabulary(states[-1]), outputs.logits)
    for index, layer_states in enumerate(states[1:-1]):
        assert layer_states.shape == (B, T, D)
        for b, row in enumerate(rows):
            expected = torch.stack([step[index] for step in row.decoder.layer_outputs])
            torch.testing.assert_close(layer_states[b], expected)


@pytest.mark.parametrize(
    "name", [n for n, o in CONFIGS.items() if o.get("attention_scorer", 0) is not None]
)
def test_cross_attentions_are_the_weights_over_real_source_tokens(name):
    model = make_model(**CONFIGS[name])
    outputs = model(
        input_ids=SOURCE, attention_mask=MASK, decoder_input_ids=TARGET, output_attentions=True
    )
    (weights,) = outputs.cross_attentions
    heads = model.config.num_attention_heads
    assert weights.shape == (B, heads, T, S)
    for b, row in enumerate(plain_rows(model)):
        expected = torch.tensor(
            [
                [[w.item() for w in step[head]] for step in row.decoder.weights]
                for head in range(heads)
            ]
        )
        torch.testing.assert_close(weights[b][..., MASK[b].bool()], expected)
        assert (weights[b][..., MASK[b] == 0] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, heads, T))


def test_a_model_without_attention_has_no_weights_to_return_and_says_so(monkeypatch):
    model = make_model(**CONFIGS["cho"])
    warnings = []
    monkeypatch.setattr(modeling_rnn_seq2seq.logger, "warning_once", warnings.append)
    outputs = model(input_ids=SOURCE, decoder_input_ids=TARGET, output_attentions=True)
    assert outputs.cross_attentions is None
    assert "attention_scorer is None, so the decoder does not attend" in "".join(warnings)
    model(input_ids=SOURCE, decoder_input_ids=TARGET)
    assert len(warnings) == 1


@pytest.mark.parametrize("query", ["previous", "current"])
def test_hidden_states_begin_and_end_with_what_is_read_under_dropout(query):
    """Embeddings as the first layer reads them; what the output layer reads."""
    model = make_model(attention_query=query, embedding_dropout=0.5, hidden_dropout=0.5).train()
    outputs = model.model(input_ids=SOURCE, decoder_input_ids=TARGET, output_hidden_states=True)
    pairs = {
        "encoder": (model.get_encoder(), SOURCE, outputs.encoder_last_hidden_state),
        "decoder": (model.get_decoder(), TARGET, outputs.last_hidden_state),
    }
    for side, (part, tokens, last) in pairs.items():
        first, *_, top = outputs[f"{side}_hidden_states"]
        assert torch.equal(top, last)
        dropped = first == 0
        assert 0.2 < dropped.float().mean() < 0.8
        kept = part.embed_tokens(tokens)[~dropped] / 0.5
        torch.testing.assert_close(first[~dropped], kept)


def test_nothing_is_returned_that_was_not_asked_for():
    model = make_model()
    outputs = model(input_ids=SOURCE, decoder_input_ids=TARGET, use_cache=False)
    assert set(outputs.keys()) == {"logits", "encoder_last_hidden_state"}
    outputs = model(input_ids=SOURCE, labels=TARGET)
    assert set(outputs.keys()) == {"loss", "logits", "encoder_last_hidden_state"}


@pytest.mark.parametrize("name", ["default", "luong", "bahdanau", "cho"])
def test_cache_holds_the_last_states_of_the_equations(name):
    model = make_model(**CONFIGS[name])
    outputs = model(input_ids=SOURCE, attention_mask=MASK, decoder_input_ids=TARGET, use_cache=True)
    states = outputs.past_key_values.get_states()
    for b, row in enumerate(plain_rows(model)):
        expected = [*row.decoder.states]
        if row.decoder.fed is not None:
            expected.append((row.decoder.fed,))
        assert len(states) == len(expected)
        for one, other in zip(states, expected, strict=True):
            torch.testing.assert_close(tuple(part[b] for part in one), other)


@pytest.mark.parametrize("name", ["default", "luong", "cho"])
def test_final_states_of_the_encoder_are_those_at_the_last_token_of_each_direction(name):
    model = make_model(**CONFIGS[name])
    outputs = model.get_encoder()(SOURCE, attention_mask=MASK)
    directions = 2 if model.config.bidirectional_encoder else 1
    half = model.config.source_state_size // directions
    for b, row in enumerate(plain_rows(model)):
        for index, layer in enumerate(row.encoder_states):
            expected = torch.cat([layer[-1][:half], layer[0][half:]])
            torch.testing.assert_close(outputs.final_hidden_state[b, index], expected)


def test_the_model_without_a_head_gives_what_the_head_reads():
    model = make_model()
    body = RnnSeq2SeqModel(model.config)
    body.load_state_dict(model.model.state_dict())
    outputs = body.double()(input_ids=SOURCE, attention_mask=MASK, decoder_input_ids=TARGET)
    assert outputs.last_hidden_state.shape == (B, T, D)
    expected = model(input_ids=SOURCE, attention_mask=MASK, decoder_input_ids=TARGET).logits
    torch.testing.assert_close(model.score_vocabulary(outputs.last_hidden_state), expected)


# Ties


@pytest.mark.parametrize("name", ["default", "tied", "all_tied", "shared"])
def test_tables_are_tied_as_the_config_says(name):
    model = make_model(**CONFIGS[name])
    source = model.get_encoder().embed_tokens.weight
    target = model.get_decoder().embed_tokens.weight
    assert (source is target) == model.config.share_embeddings
    assert (model.lm_head.weight is target) == model.config.tie_word_embeddings
    assert model.get_input_embeddings().weight is source
    assert model.get_output_embeddings() is model.lm_head


def test_a_tied_output_of_another_width_is_projected():
    model = make_model(tie_word_embeddings=True)
    assert model.output_projection.weight.shape == (E, D)
    assert make_model(tie_word_embeddings=True, embedding_size=D).output_projection is None
    assert make_model().output_projection is None


def test_smallest_batch_is_taken():
    model = make_model()
    outputs = model(**model.dummy_inputs)
    assert outputs.logits.shape == (2, 2, V)
