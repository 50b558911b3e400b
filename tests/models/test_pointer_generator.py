"""Copying and coverage against loops over the equations of See et al. 2017."""

import math

import pytest
import torch

from hf_seqmodels import RnnSeq2SeqConfig, RnnSeq2SeqForConditionalGeneration
from hf_seqmodels.models.layers_attention import coverage_penalty
from hf_seqmodels.models.outputs import mixture_loss

V, X, UNK = 11, 3, 3
SOURCE = torch.tensor([[5, V, 7, V + 1, V, 2], [V, 6, 6, 2, 0, 0]])
KEEP = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
LABELS = torch.tensor([[V + 1, V, 8, 2], [6, V, 2, -100]])


@pytest.fixture(autouse=True)
def in_float64():
    """Compute in float64, so that two ways agree to the last digits."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def make_model(**options) -> RnnSeq2SeqForConditionalGeneration:
    """Return a tiny model with random weights, in evaluation mode."""
    torch.manual_seed(3)
    defaults = {
        "vocab_size": V,
        "embedding_size": 5,
        "hidden_size": 8,
        "encoder_hidden_size": 6,
        "pointer_generator": True,
        "max_copied_words": X,
        "unk_token_id": UNK,
        "initializer_range": 0.7,
    }
    config = RnnSeq2SeqConfig(**{**defaults, **options})
    return RnnSeq2SeqForConditionalGeneration(config).double().eval()


@torch.no_grad()
def plain_mixture(model, source, keep, decoder_input_ids) -> torch.Tensor:
    """Return P as loops over words, from the parts that the model without its head gives."""
    outputs = model.model(
        input_ids=source,
        attention_mask=keep,
        decoder_input_ids=decoder_input_ids,
        output_attentions=True,
        return_dict=True,
    )
    table = model.model.decoder.embed_tokens.weight
    gate = model.pointer.gate
    result = torch.zeros(*decoder_input_ids.shape, V + X)
    for b in range(len(source)):
        for t in range(decoder_input_ids.shape[1]):
            alpha = outputs.cross_attentions[0][b, :, t].mean(dim=0).tolist()
            states = outputs.encoder_last_hidden_state[b]
            context = sum(alpha[j] * states[j] for j in range(len(alpha)))
            last = int(decoder_input_ids[b, t])
            read = torch.cat(
                [context, outputs.last_hidden_state[b, t], table[last if last < V else UNK]]
            )
            g = 1 / (1 + math.exp(-float(gate.weight[0] @ read + gate.bias)))
            written = model.lm_head(outputs.last_hidden_state[b, t]).softmax(dim=-1).tolist()
            for word in range(V):
                result[b, t, word] += g * written[word]
            for j, word in enumerate(source[b].tolist()):
                result[b, t, word] += (1 - g) * alpha[j]
    return result


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"attention_query": "previous", "coverage_attention": True},
        {"attention_scorer": "multi_head", "num_attention_heads": 2, "input_feeding": True},
    ],
)
def test_probabilities_are_those_of_a_loop_over_words(options):
    model = make_model(**options)
    decoder_input_ids = torch.tensor([[1, V + 1, V], [1, 6, V]])
    expected = plain_mixture(model, SOURCE, KEEP, decoder_input_ids)
    logits = model(
        input_ids=SOURCE, attention_mask=KEEP, decoder_input_ids=decoder_input_ids
    ).logits
    torch.testing.assert_close(logits.exp(), expected)
    torch.testing.assert_close(expected.sum(dim=-1), torch.ones(2, 3))
    assert (logits[0, :, V + 2] == torch.finfo(logits.dtype).min).all()  # two words to copy
    assert (logits[1, :, V + 1 :] == torch.finfo(logits.dtype).min).all()  # one


def test_words_to_copy_are_read_as_the_unknown_token():
    model = make_model()
    unknown = SOURCE.masked_fill(SOURCE >= V, UNK)
    read = [
        model.get_encoder()(ids, attention_mask=KEEP).last_hidden_state for ids in (SOURCE, unknown)
    ]
    assert torch.equal(*read)


def test_a_label_that_the_source_does_not_hold_counts_as_unknown():
    model = make_model()
    inputs = {"input_ids": SOURCE, "attention_mask": KEEP}
    lost, unknown = LABELS.clone(), LABELS.clone()
    lost[1, 0], unknown[1, 0] = V + 2, UNK
    assert torch.equal(model(**inputs, labels=lost).loss, model(**inputs, labels=unknown).loss)


def test_the_loss_is_that_of_the_mixture():
    model = make_model(label_smoothing=0.25, hidden_dropout=0.0, embedding_dropout=0.0)
    inputs = {"input_ids": SOURCE, "attention_mask": KEEP, "labels": LABELS}
    shifted = model.prepare_decoder_input_ids_from_labels(LABELS)
    mixture = plain_mixture(model, SOURCE, KEEP, shifted).log()
    for smoothing, mode in ((0.0, False), (0.25, True)):
        total = 0.0
        for b, t in (LABELS != -100).nonzero().tolist():
            spread = sum(mixture[b, t, word].item() for word in range(V)) / V
            total -= (1 - smoothing) * mixture[b, t, LABELS[b, t]].item() + smoothing * spread
        loss = model.train(mode)(**inputs).loss.item()
        assert loss == pytest.approx(total / 7, rel=1e-12)


def test_the_loss_of_a_mixture_divides_like_any_other():
    log_p = torch.randn(2, 4, V).log_softmax(dim=-1)
    whole = mixture_loss(log_p, LABELS.clamp(max=V - 1), vocab_size=V)
    part = mixture_loss(log_p, LABELS.clamp(max=V - 1), vocab_size=V, num_items_in_batch=70)
    torch.testing.assert_close(part * 10, whole)


def test_coverage_penalty_is_a_loop_over_steps():
    weights = torch.rand(2, 4, 5)
    expected = torch.zeros(2, 4)
    for b in range(2):
        covered = [0.0] * 5
        for t in range(4):
            for j in range(5):
                alpha = weights[b, t, j].item()
                expected[b, t] += min(alpha, covered[j])
                covered[j] += alpha
    torch.testing.assert_close(coverage_penalty(weights), expected)


def test_coverage_is_added_to_the_loss_in_training_alone():
    options = {"embedding_dropout": 0.0, "hidden_dropout": 0.0}
    inputs = {"input_ids": SOURCE, "attention_mask": KEEP, "labels": LABELS}
    plain, covered = make_model(**options), make_model(coverage_loss_weight=0.5, **options)
    assert torch.equal(covered(**inputs).loss, plain(**inputs).loss)
    outputs = covered.train()(**inputs, output_attentions=True)
    penalty = coverage_penalty(outputs.cross_attentions[0][:, 0])
    expected = plain.train()(**inputs).loss + 0.5 * penalty[LABELS != -100].sum() / 7
    torch.testing.assert_close(outputs.loss, expected)


@pytest.mark.parametrize("query", ["previous", "current"])
def test_attention_reads_what_it_has_attended_to(query):
    model = make_model(coverage_attention=True, attention_query=query, pointer_generator=False)
    recurrence = model.model.decoder.recurrence
    scorer = recurrence.attention.scorer
    encoded = model.get_encoder()(SOURCE.clamp(max=V - 1), attention_mask=KEEP)
    decoder_input_ids = torch.tensor([[1, 4, 5, 6], [1, 7, 8, 9]])
    outputs = model(
        encoder_outputs=encoded,
        attention_mask=KEEP,
        decoder_input_ids=decoder_input_ids,
        output_attentions=True,
    )
    covered = torch.zeros(SOURCE.shape)
    state = model.model.decoder.bridge(encoded)
    for t in range(4):
        embedded = model.model.decoder.embed_tokens(decoder_input_ids[:, t])
        if query == "current":
            outputs_of_layers, state = recurrence.stack.step(embedded, state)
            asked = outputs_of_layers[-1]
        else:
            asked = state[-1][0]
        scores = torch.zeros(SOURCE.shape)
        for b in range(2):
            for j in range(SOURCE.shape[1]):
                hidden = scorer.query_projection.weight @ asked[b]
                hidden = hidden + scorer.key_projection.weight @ encoded.last_hidden_state[b, j]
                hidden = hidden + scorer.coverage_projection.weight[:, 0] * covered[b, j]
                scores[b, j] = scorer.output_projection.weight[0] @ hidden.tanh()
        weights = scores.masked_fill(KEEP == 0, -math.inf).softmax(dim=-1)
        torch.testing.assert_close(outputs.cross_attentions[0][:, 0, t], weights)
        covered = covered + weights
        if query == "previous":
            context = (weights[:, :, None] * encoded.last_hidden_state).sum(dim=1)
            state = recurrence.stack.step(torch.cat([embedded, context], dim=-1), state)[1]


def test_a_source_without_ids_is_refused():
    model = make_model()
    vectors = torch.randn(2, 6, 5)
    with pytest.raises(ValueError, match=r"source_ids.*Pass input_ids"):
        model(inputs_embeds=vectors, labels=LABELS)
    expected = model(input_ids=SOURCE, labels=LABELS).loss
    table = model.get_input_embeddings()
    vectors = table(SOURCE.masked_fill(SOURCE >= V, UNK))
    assert torch.equal(model(input_ids=SOURCE, inputs_embeds=vectors, labels=LABELS).loss, expected)
    with pytest.raises(ValueError, match=rf"\[0, {V + X}\), got {V + X}"):
        model(input_ids=SOURCE + X, labels=LABELS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decoder_vocab_size": V}, "one vocabulary"),
        ({"unk_token_id": None}, "unk_token_id must lie in"),
        ({"unk_token_id": V}, "unk_token_id must lie in"),
        ({"attention_scorer": None}, "pointer_generator=True needs attention"),
        ({"max_copied_words": 0}, "max_copied_words must be at least 1"),
        ({"coverage_attention": True, "attention_scorer": "general"}, "coverage_attention"),
        ({"coverage_loss_weight": -1.0}, "coverage_loss_weight must be at least 0"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(Exception, match=message):
        make_model(**options)
