"""The recurrent language model against torch's own modules and loops over vectors."""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hf_seqmodels import RnnLMConfig, RnnLMForCausalLM
from padded_rows import real_positions
from plain_recurrence import direction_weights, plain_step

B, T, E, D, V = 3, 6, 5, 7, 11
NO_DROPOUT = {"embedding_dropout": 0.0, "hidden_dropout": 0.0}
CELLS = {
    "elman_tanh": {"cell_type": "elman"},
    "elman_relu": {"cell_type": "elman", "elman_activation": "relu"},
    "gru_after": {"cell_type": "gru"},
    "gru_before": {"cell_type": "gru", "gru_reset": "before"},
    "lstm": {"cell_type": "lstm"},
}
TORCH = {
    "elman_tanh": nn.RNN,
    "elman_relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k),
    "gru_after": nn.GRU,
    "lstm": nn.LSTM,
}


def make_model(**options) -> RnnLMForCausalLM:
    """Return a tiny model in float64 and evaluation mode, without dropout unless asked for."""
    torch.manual_seed(4)
    config = RnnLMConfig(vocab_size=V, embedding_size=E, hidden_size=D, **{**NO_DROPOUT, **options})
    model = RnnLMForCausalLM(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.5, 0.5)
    return model


def make_ids(seed=2, shape=(B, T)):
    """Return token ids."""
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", TORCH)
def test_equals_the_modules_of_torch(kind):
    model = make_model(**CELLS[kind], num_hidden_layers=3)
    rnn = TORCH[kind](E, D, num_layers=3, batch_first=True).double()
    rnn.load_state_dict(
        {
            name.replace("_l0", f"_l{index}"): value
            for index, layer in enumerate(model.model.stack.layers)
            for name, value in layer.rnn.state_dict().items()
        }
    )
    ids = make_ids()
    embedded = F.embedding(ids, model.model.embed_tokens.weight)
    outputs, _ = rnn(embedded)
    logits = F.linear(outputs, model.lm_head.weight, model.lm_head.bias)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    result = model(input_ids=ids, labels=ids)
    torch.testing.assert_close(result.logits, logits, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(result.loss, loss, rtol=1e-12, atol=1e-12)


def plain_top(model, embedded, kind, *, dropped_weights=None, layer_masks=None):
    """Return the top layer's outputs, (B, T, D), by a loop over rows, layers and tokens.

    Args:
        model: whose weights to use.
        embedded: what the first layer reads, (B, T, E).
        kind: of the cell.
        dropped_weights: U of every layer instead of the model's.
        layer_masks: what the input of a layer is multiplied with, {layer: (B, T, .)}.
    """
    rows = []
    for row in range(len(embedded)):
        xs = list(embedded[row])
        for index, layer in enumerate(model.model.stack.layers):
            weights = list(direction_weights(layer.rnn, backwards=False))
            if dropped_weights is not None:
                weights[1] = dropped_weights[index]
            if layer_masks and index in layer_masks:
                xs = [x * m for x, m in zip(xs, layer_masks[index][row], strict=True)]
            state = (torch.zeros(layer.rnn.hidden_size, dtype=torch.float64),) * 2
            state, outputs = state[: 2 if kind == "lstm" else 1], []
            for x in xs:
                state = plain_step(kind, tuple(weights), x, state)
                outputs.append(state[0])
            xs = outputs
        rows.append(torch.stack(xs))
    return torch.stack(rows)


@pytest.mark.parametrize("implementation", ["fast", "reference"])
@pytest.mark.parametrize("kind", CELLS)
def test_weight_dropout_takes_elements_of_u_for_the_whole_pass(kind, implementation):
    model = make_model(**CELLS[kind], weight_dropout=0.4, implementation=implementation).train()
    ids = make_ids()
    torch.manual_seed(7)
    outputs = model.model(input_ids=ids).last_hidden_state
    torch.manual_seed(7)
    dropped = [F.dropout(layer.rnn.weight_hh_l0, 0.4) for layer in model.model.stack.layers]
    embedded = F.embedding(ids, model.model.embed_tokens.weight)
    expected = plain_top(model, embedded, kind, dropped_weights=dropped)
    torch.testing.assert_close(outputs, expected)
    weights = [layer.rnn.weight_hh_l0 for layer in model.model.stack.layers]
    for actual, wanted, mask in zip(
        torch.autograd.grad(outputs.square().sum(), weights, retain_graph=True),
        torch.autograd.grad(expected.square().sum(), weights),
        dropped,
        strict=True,
    ):
        torch.testing.assert_close(actual, wanted)
        assert (actual[mask == 0] == 0).all() and (mask == 0).any()
    model.eval()
    undropped = plain_top(model, embedded, kind)
    torch.testing.assert_close(model.model(input_ids=ids).last_hidden_state, undropped)


def test_weight_dropout_reaches_padded_rows_and_carried_states():
    ids, keep = make_ids(), torch.ones(B, T, dtype=torch.long)
    keep[0, :2] = 0
    results = []
    for implementation in ("fast", "reference"):
        model = make_model(weight_dropout=0.4, implementation=implementation).train()
        torch.manual_seed(7)
        first = model(input_ids=ids, attention_mask=keep, use_cache=True)
        second = model(input_ids=ids, past_key_values=first.past_key_values)
        results.append(torch.cat([first.logits, second.logits], dim=1))
    torch.testing.assert_close(results[0], results[1])


def test_word_dropout_takes_whole_words_wherever_they_stand():
    model = make_model(word_dropout=0.3, num_hidden_layers=1).train()
    ids = make_ids(shape=(5, 60))
    embedded = model.model(input_ids=ids, output_hidden_states=True).hidden_states[0]
    table = model.model.embed_tokens.weight
    kept = []
    for word in range(V):
        vectors = embedded[ids == word]
        is_kept = bool((vectors != 0).any())
        expected = table[word] / 0.7 if is_kept else torch.zeros(E, dtype=torch.float64)
        torch.testing.assert_close(vectors, expected.expand_as(vectors))
        kept.append(is_kept)
    assert 0 < sum(kept) < V
    rates = [
        (model.model(input_ids=ids, output_hidden_states=True).hidden_states[0] == 0)
        .all(-1)
        .double()
        .mean()
        for _ in range(200)
    ]
    assert torch.stack(rates).mean() == pytest.approx(0.3, abs=0.05)
    # the output layer keeps every word, also where the table is tied
    assert (model.eval()(input_ids=ids).logits != 0).all()


def mask_of(rate: float, shape) -> torch.Tensor:
    """Return the mask that a rate and a shape have here, whatever the layout in memory."""
    generator = torch.Generator().manual_seed(int(rate * 100))
    return (torch.rand(tuple(shape), generator=generator) >= rate).double() / (1 - rate)


@pytest.mark.parametrize("variational", [True, False])
def test_each_dropout_acts_at_its_place_with_its_rate(monkeypatch, variational):
    """Embeddings 0.2, between layers 0.3, before the output layer 0.4, by plain loops with the same
    masks."""
    monkeypatch.setattr(
        F,
        "dropout",
        lambda x, p, training=True, inplace=False: x * mask_of(p, x.shape) if training and p else x,
    )
    model = make_model(
        embedding_dropout=0.2,
        hidden_dropout=0.3,
        output_dropout=0.4,
        variational_dropout=variational,
        cell_type="gru",
    ).train()
    ids = make_ids()
    result = model(input_ids=ids, output_hidden_states=True)

    def mask(width, rate):
        if variational:
            return mask_of(rate, (B, width))[:, None].expand(B, T, width)
        return mask_of(rate, (B, T, width))

    embedded = F.embedding(ids, model.model.embed_tokens.weight) * mask(E, 0.2)
    top = plain_top(model, embedded, "gru_after", layer_masks={1: mask(D, 0.3)})
    dropped = top * mask(D, 0.4)
    torch.testing.assert_close(result.hidden_states[0], embedded)
    torch.testing.assert_close(result.hidden_states[-1], top)
    expected = F.linear(dropped, model.lm_head.weight, model.lm_head.bias)
    torch.testing.assert_close(result.logits, expected)


def plain_regularization(top, dropped, rows, alpha, beta):
    """Return alpha sum_t mean (m h_t)^2 + beta sum_t mean (h_t+1 - h_t)^2 over real tokens."""
    total = 0.0
    for row, positions in enumerate(rows):
        for position in positions:
            values = dropped[row, position].tolist()
            total += alpha * sum(value**2 for value in values) / len(values)
        for before, after in itertools.pairwise(positions):
            pairs = zip(top[row, before].tolist(), top[row, after].tolist(), strict=True)
            total += beta * sum((b - a) ** 2 for a, b in pairs) / D
    return total


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("layout", ["none", "right", "left", "holes"])
@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 0.0), (0.0, 1.5), (2.0, 1.0)])
def test_activation_regularization_is_added_to_the_training_loss(alpha, beta, layout, chunked):
    options = {"output_dropout": 0.4, "chunked_loss": chunked}
    model = make_model(
        activation_regularization=alpha, temporal_activation_regularization=beta, **options
    ).train()
    without = make_model(**options).train()
    ids, keep = make_ids(), torch.ones(B, T, dtype=torch.long)
    rows = [list(range(T))] * B
    if layout != "none":
        rows = [real_positions(layout, row, T - row, T).tolist() for row in range(B)]
        keep = torch.tensor([[int(t in row) for t in range(T)] for row in rows])
    inputs = {"input_ids": ids, "attention_mask": keep, "labels": ids.masked_fill(keep == 0, -100)}
    losses = []
    for each in (model, without):
        torch.manual_seed(7)
        losses.append(each(**inputs).loss.item())
    top = without.model(input_ids=ids, attention_mask=keep, use_cache=False).last_hidden_state
    torch.manual_seed(7)
    dropped = without.output_dropout(top)
    expected = plain_regularization(top, dropped, rows, alpha, beta)
    num_targets = sum(len(row) - 1 for row in rows)
    assert losses[0] - losses[1] == pytest.approx(expected / num_targets, rel=1e-9)
    torch.manual_seed(7)
    parts = [each(**inputs, num_items_in_batch=40).loss.item() for each in (model,)]
    assert parts[0] == pytest.approx(losses[0] * num_targets / 40, rel=1e-12)
    # none of it in evaluation
    assert model.eval()(**inputs).loss.item() == without.eval()(**inputs).loss.item()


def test_the_chunked_loss_equals_the_loss_of_all_logits():
    ids = make_ids()
    labels = torch.cat([ids, make_ids(9, (B, 1))], dim=1)
    labels[1, 3:5] = -100
    results = []
    for chunked in (True, False):
        model = make_model(
            tie_word_embeddings=True, label_smoothing=0.2, chunked_loss=chunked
        ).train()
        result = model(input_ids=ids, labels=labels)
        result.loss.backward()
        results.append((result, {n: p.grad for n, p in model.named_parameters()}))
        assert (result.logits is None) == chunked
    (fast, fast_gradients), (plain, gradients) = results
    torch.testing.assert_close(fast.loss, plain.loss)
    for name, gradient in gradients.items():
        torch.testing.assert_close(fast_gradients[name], gradient, msg=name)


def test_what_stands_around_the_output_layer_takes_part_in_the_loss():
    ids, losses = make_ids(), []
    for chunked in (True, False):
        model = make_model(label_smoothing=0.2, chunked_loss=chunked).train()
        model.lm_head = nn.Sequential(model.lm_head, nn.Hardtanh())  # as adapters wrap it
        losses.append(model(input_ids=ids, labels=ids).loss)
    torch.testing.assert_close(*losses)


def test_one_label_more_gives_the_last_position_a_target():
    model = make_model()
    ids = make_ids(shape=(B, T + 1))
    result = model(input_ids=ids[:, :-1], labels=ids)
    expected = F.cross_entropy(result.logits.flatten(0, 1), ids[:, 1:].flatten())
    torch.testing.assert_close(result.loss, expected)


@pytest.mark.parametrize("training", [True, False])
def test_labels_may_come_shifted(training):
    model = make_model().train(training)
    ids = make_ids(shape=(B, T + 1))
    expected = model(input_ids=ids[:, :-1], labels=ids).loss
    torch.testing.assert_close(model(input_ids=ids[:, :-1], shift_labels=ids[:, 1:]).loss, expected)


@pytest.mark.parametrize("kind", CELLS)
def test_a_carried_state_leads_back_in_training_until_it_is_detached(kind):
    model = make_model(**CELLS[kind]).train()
    ids = make_ids(shape=(B, 8))
    windows = [(ids[:, :4], ids[:, :5]), (ids[:, 4:], ids[:, 4:])]
    whole = model(input_ids=ids, labels=ids).loss
    expected = torch.autograd.grad(whole, list(model.parameters()))
    for is_cut in (False, True):
        cache, total = model.model.new_cache(), 0.0
        for window, labels in windows:
            result = model(
                input_ids=window, labels=labels, past_key_values=cache, num_items_in_batch=7 * B
            )
            assert result.past_key_values is cache
            if is_cut:
                cache.detach()
            total = total + result.loss
        torch.testing.assert_close(total, whole)
        gradients = torch.autograd.grad(total, list(model.parameters()))
        same = [torch.allclose(a, b) for a, b in zip(gradients, expected, strict=True)]
        assert all(same) != is_cut


def test_labels_return_no_state_unless_one_was_given_or_asked_for():
    model, ids = make_model(), make_ids()
    assert model(input_ids=ids, labels=ids).past_key_values is None
    assert model(input_ids=ids, labels=ids, use_cache=True).past_key_values is not None
    cache = model(input_ids=ids).past_key_values
    assert model(input_ids=ids, labels=ids, past_key_values=cache).past_key_values is cache


@pytest.mark.parametrize("kind", ["lstm", "gru_after"])
def test_padding_does_not_touch_the_state(kind):
    model, ids = make_model(**CELLS[kind]), make_ids()
    expected = model(input_ids=ids).past_key_values
    for left, right in ((2, 0), (0, 3), (2, 1)):
        padded = F.pad(ids, (left, right), value=4)
        keep = F.pad(torch.ones_like(ids), (left, right))
        cache = model(input_ids=padded, attention_mask=keep).past_key_values
        for actual, wanted in zip(cache.get_states(), expected.get_states(), strict=True):
            torch.testing.assert_close(actual, wanted)
        hidden = model.model(input_ids=padded, attention_mask=keep, use_cache=False)
        assert (hidden.last_hidden_state[keep == 0] == 0).all()


def test_logits_are_computed_where_they_are_asked_for():
    model, ids = make_model(), make_ids()
    whole = model(input_ids=ids, labels=ids)
    for kept in (2, torch.tensor([0, 3])):
        result = model(input_ids=ids, labels=ids, logits_to_keep=kept)
        positions = slice(-kept, None) if isinstance(kept, int) else kept
        torch.testing.assert_close(result.logits, whole.logits[:, positions])
        torch.testing.assert_close(result.loss, whole.loss)


def test_awd_lstm_is_expressible():
    # the published model for Penn Treebank has 24,221,600 parameters
    config = RnnLMConfig(
        vocab_size=10_000,
        embedding_size=400,
        hidden_size=1150,
        last_layer_size=400,
        num_hidden_layers=3,
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = RnnLMForCausalLM(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == 24_221_600
    assert model.output_projection is None


@pytest.mark.parametrize("options", [{"num_beams": 1}, {"num_beams": 3}, {"do_sample": True}])
def test_generation_with_left_padding_equals_generation_without(options):
    model, ids = make_model(eos_token_id=None), make_ids()
    padded = F.pad(ids, (3, 0), value=4)
    keep = F.pad(torch.ones_like(ids), (3, 0))
    written = []
    for inputs in ({"input_ids": ids}, {"input_ids": padded, "attention_mask": keep}):
        torch.manual_seed(5)
        rows = model.generate(**inputs, **options, max_new_tokens=5)
        written.append(rows[:, inputs["input_ids"].shape[1] :])
    assert torch.equal(*written)


def test_what_needs_to_take_tokens_back_or_a_cache_of_fixed_length_is_refused():
    model, ids = make_model(), make_ids(shape=(1, T))
    with pytest.raises(ValueError, match="does not apply to a recurrent model"):
        model.generate(ids, cache_implementation="static", max_new_tokens=2)
    with pytest.raises(ValueError, match="stateful"):
        model.generate(ids, assistant_model=copy.deepcopy(model), max_new_tokens=2)
    with pytest.raises(ValueError, match="ontrastive"):
        model.generate(ids, penalty_alpha=0.6, top_k=4, max_new_tokens=2)


def refuse(message: str, model=None, **arguments):
    """Assert that a call raises ValueError with this text in its message."""
    with pytest.raises(ValueError, match=message):
        (make_model() if model is None else model)(**arguments)


def test_bad_input_is_refused():
    ids = make_ids()
    embeds = torch.zeros(B, T, E, dtype=torch.float64)
    refuse("Pass exactly one of input_ids and inputs_embeds")
    refuse("Pass exactly one of input_ids and inputs_embeds", input_ids=ids, inputs_embeds=embeds)
    refuse(r"input_ids must lie in \[0, 11\), got 11", input_ids=torch.full_like(ids, V))
    refuse(r"the shape \(batch, length, 5\)", inputs_embeds=embeds[..., :3])
    refuse("attention_mask must have the shape", input_ids=ids, attention_mask=torch.ones(B, T + 1))
    refuse("labels must have the length of the input, 6, or", input_ids=ids, labels=ids[:, 1:])
    refuse(r"shift_labels must have the shape .* \(3, 6\), got", input_ids=ids, shift_labels=ids.T)
    for reader in (make_model(), make_model().model):  # both take tokens, in their order
        with pytest.raises(TypeError, match=r"'position_ids': .* Pass each document as a row"):
            reader(input_ids=ids, position_ids=ids)
        with pytest.raises(TypeError, match=r"forward\(\) takes no argument 'kind_ids'"):
            reader(input_ids=ids, kind_ids=ids)
    refuse(
        "labels must hold at least one token that follows another",
        input_ids=ids,
        labels=torch.full_like(ids, -100),
    )
    cache = make_model(num_hidden_layers=1)(input_ids=ids).past_key_values
    refuse("must carry 2 states, got 1", input_ids=ids, past_key_values=cache)
    cache = make_model()(input_ids=ids).past_key_values
    refuse("as many rows as the input, 2, got 3", input_ids=ids[:2], past_key_values=cache)
    refuse("must be the RecurrentCache .* got tuple", input_ids=ids, past_key_values=())
    dropping = make_model(word_dropout=0.1).train()
    refuse("drops words by their ids, which inputs_embeds do not", dropping, inputs_embeds=embeds)
