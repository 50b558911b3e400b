"""The heads of TextEncoder: losses against plain loops, what padding and missing choices score, and
what they say of bad input."""

import math

import pytest
import torch

from family_cases import randomize
from gradient_checks import assert_same_tensors, loss_gradients
from hf_seqmodels import (
    TextEncoderConfig,
    TextEncoderForMaskedLM,
    TextEncoderForMultipleChoice,
    TextEncoderForNextSentencePrediction,
    TextEncoderForPreTraining,
    TextEncoderForQuestionAnswering,
    TextEncoderForSequenceClassification,
    TextEncoderForTokenClassification,
    TextEncoderModel,
)
from plain_loss import plain_loss

SIZES = {"vocab_size": 19, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
NO_DROPOUT = {"embedding_dropout": 0.0, "hidden_dropout": 0.0, "attention_dropout": 0.0}
IDS = torch.tensor([[3, 4, 5, 6, 7], [9, 1, 1, 4, 18], [2, 2, 6, 11, 0]])  # (B, T)
KEEP = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
MASKED = torch.tensor(
    [[-100, 4, -100, 6, -100], [-100, 1, -100, -100, -100], [2, 2, -100, -100, -100]]
)
LOWEST = torch.finfo(torch.float64).min


def make_model(model_class, **options):
    """Return a model in float64 with random parameters, in evaluation mode."""
    model = model_class(TextEncoderConfig(**SIZES | options)).double().eval()
    randomize(model, seed=1)
    return model


def cross_entropy(scores, label) -> float:
    """Return - log softmax(scores)[label], as a sum of floats."""
    scores = scores.tolist()
    largest = max(scores)
    total = sum(math.exp(score - largest) for score in scores)
    return largest + math.log(total) - scores[label]


def test_masked_tokens_are_scored_by_a_transform_and_the_table():
    model = make_model(TextEncoderForMaskedLM)
    hidden = model.model(IDS, attention_mask=KEEP).last_hidden_state
    dense, norm = model.transform.dense, model.transform.norm
    changed = hidden @ dense.weight.T + dense.bias
    changed = changed * 0.5 * (1 + torch.erf(changed / 2**0.5))  # the exact GELU
    centred = changed - changed.mean(dim=-1, keepdim=True)
    normed = centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-12).sqrt()
    normed = normed * norm.weight + norm.bias
    expected = normed @ model.model.embed_tokens.weight.T + model.lm_head.bias
    torch.testing.assert_close(model(IDS, attention_mask=KEEP).logits, expected)


@pytest.mark.parametrize("num_items", [None, 7])
@pytest.mark.parametrize("is_adapted", [False, True])
def test_the_chunked_loss_is_the_loss_of_all_scores(is_adapted, num_items):
    found = []
    for chunked in (True, False):
        model = make_model(
            TextEncoderForMaskedLM, chunked_loss=chunked, label_smoothing=0.3, **NO_DROPOUT
        ).train()
        if is_adapted:  # something stands around the layer, so that its weight may not be read
            model.lm_head.register_forward_hook(lambda module, args, output: output * 2)
        batch = {"input_ids": IDS, "attention_mask": KEEP, "labels": MASKED}
        outputs = model(**batch, num_items_in_batch=num_items)
        assert (outputs.logits is None) == chunked
        gradients = loss_gradients(model, batch, num_items_in_batch=num_items)
        found.append({"loss": outputs.loss, **gradients})
    assert_same_tensors(*found, rtol=1e-10, atol=1e-12)


def test_pretraining_adds_the_mean_losses_of_its_two_heads():
    model = make_model(TextEncoderForPreTraining)
    follows = torch.tensor([0, 1, 1])
    batch = {"input_ids": IDS, "attention_mask": KEEP}
    outputs = model(**batch, labels=MASKED, next_sentence_label=follows)
    rows = zip(outputs.seq_relationship_logits, follows, strict=True)
    of_rows = sum(cross_entropy(scores, label) for scores, label in rows) / 3
    of_tokens = plain_loss(outputs.prediction_logits, MASKED)
    assert outputs.loss.item() == pytest.approx(of_tokens + of_rows)
    alone = [model(**batch, labels=MASKED), model(**batch, next_sentence_label=follows)]
    assert [output.loss.item() for output in alone] == [
        pytest.approx(of_tokens),
        pytest.approx(of_rows),
    ]
    assert model(**batch).loss is None
    relationship = make_model(TextEncoderForNextSentencePrediction)
    relationship.load_state_dict(model.state_dict(), strict=False)
    outputs = relationship(**batch, labels=follows)
    assert outputs.loss.item() == pytest.approx(of_rows)


def test_parts_of_a_pretraining_batch_weigh_as_their_masked_tokens():
    model = make_model(TextEncoderForPreTraining)
    follows = torch.tensor([0, 1, 1])
    losses, shares = [], []
    for rows in ([0], [1, 2]):
        part = {"input_ids": IDS[rows], "attention_mask": KEEP[rows], "labels": MASKED[rows]}
        label = {"next_sentence_label": follows[rows]}
        num_masked = int((MASKED[rows] != -100).sum())
        shares.append(num_masked / 5)
        losses.append(model(**part, **label).loss.item())
        scaled = model(**part, **label, num_items_in_batch=torch.tensor(5)).loss.item()
        assert scaled == pytest.approx(losses[-1] * shares[-1])
    assert sum(shares) == 1


def test_rows_are_sorted_into_classes():
    model = make_model(TextEncoderForSequenceClassification, num_labels=3)
    labels = torch.tensor([2, 0, 1])
    outputs = model(IDS, attention_mask=KEEP, labels=labels)
    pooled = model.model(IDS, attention_mask=KEEP).pooler_output
    expected = pooled @ model.score.weight.T + model.score.bias
    torch.testing.assert_close(outputs.logits, expected)
    loss = sum(cross_entropy(row, label) for row, label in zip(expected, labels, strict=True)) / 3
    assert outputs.loss.item() == pytest.approx(loss)
    part = model(IDS, attention_mask=KEEP, labels=labels, num_items_in_batch=8)
    assert part.loss.item() == pytest.approx(loss * 3 / 8)


def test_rows_are_given_several_labels_or_numbers():
    model = make_model(TextEncoderForSequenceClassification, num_labels=3)
    labels = torch.tensor([[1.0, 0, 1], [0, 0, 0], [0, 1, 1]])
    outputs = model(IDS, attention_mask=KEEP, labels=labels)
    loss = 0.0
    for scores, row in zip(outputs.logits.tolist(), labels.tolist(), strict=True):
        for score, label in zip(scores, row, strict=True):
            probability = 1 / (1 + math.exp(-score))
            loss -= math.log(probability if label else 1 - probability) / 9
    assert outputs.loss.item() == pytest.approx(loss)

    model = make_model(TextEncoderForSequenceClassification, num_labels=1)
    numbers = torch.tensor([0.5, -1.0, 2.0])
    outputs = model(IDS, attention_mask=KEEP, labels=numbers)
    errors = [(s - n) ** 2 for s, n in zip(outputs.logits[:, 0].tolist(), numbers, strict=True)]
    assert outputs.loss.item() == pytest.approx(float(sum(errors)) / 3)


def test_tokens_are_labelled():
    model = make_model(TextEncoderForTokenClassification, num_labels=4)
    labels = torch.tensor([[0, 3, -100, 1, 2], [-100, 2, 2, 0, -100], [1, 1, -100, -100, -100]])
    outputs = model(IDS, attention_mask=KEEP, labels=labels)
    assert outputs.logits.shape == (3, 5, 4)
    assert outputs.loss.item() == pytest.approx(plain_loss(outputs.logits, labels))


def test_answers_start_and_end_at_tokens_alone():
    model = make_model(TextEncoderForQuestionAnswering)
    starts, ends = torch.tensor([0, 1, 5]), torch.tensor([3, 2, 0])
    outputs = model(IDS, attention_mask=KEEP, start_positions=starts, end_positions=ends)
    hidden = model.model(IDS, attention_mask=KEEP).last_hidden_state
    scores = hidden @ model.qa_outputs.weight.T + model.qa_outputs.bias
    means = []
    found = ((outputs.start_logits, starts), (outputs.end_logits, ends))
    for kind, (logits, positions) in enumerate(found):
        assert (logits[KEEP == 0] == LOWEST).all()
        torch.testing.assert_close(logits[KEEP == 1], scores[..., kind][KEEP == 1])
        losses = [
            cross_entropy(scores[row, KEEP[row] == 1, kind], position - int(KEEP[row].argmax()))
            for row, position in enumerate(positions.tolist())
            if position < 5  # one lies behind the row, and is not counted
        ]
        means.append(sum(losses) / len(losses))
    assert outputs.loss.item() == pytest.approx(sum(means) / 2)
    outputs = model(IDS, attention_mask=KEEP, start_positions=starts + 5, end_positions=ends + 5)
    assert outputs.loss.item() == 0


def test_a_question_has_as_many_choices_as_have_tokens():
    model = make_model(TextEncoderForMultipleChoice)
    ids, keep = IDS[None].repeat(2, 1, 1), KEEP[None].repeat(2, 1, 1)
    keep[1, 2] = 0
    labels = torch.tensor([2, 0])
    outputs = model(ids, attention_mask=keep, labels=labels)
    pooled = model.model(IDS, attention_mask=KEEP).pooler_output
    scores = (pooled @ model.score.weight.T + model.score.bias)[:, 0]
    torch.testing.assert_close(outputs.logits[0], scores)
    torch.testing.assert_close(outputs.logits[1, :2], scores[:2])
    assert outputs.logits[1, 2] == LOWEST
    expected = (cross_entropy(scores, 2) + cross_entropy(scores[:2], 0)) / 2
    assert outputs.loss.item() == pytest.approx(expected)
    embeds = model.model.embed_tokens(ids)
    again = model(inputs_embeds=embeds, attention_mask=keep)
    torch.testing.assert_close(again.logits, outputs.logits)


@pytest.mark.parametrize(
    ("model_class", "arguments", "message"),
    [
        (TextEncoderModel, {}, "got neither"),
        (TextEncoderModel, {"input_ids": IDS, "inputs_embeds": IDS}, "got both"),
        (TextEncoderModel, {"input_ids": IDS + 9}, r"input_ids must lie in \[0, 19\)"),
        (TextEncoderModel, {"inputs_embeds": torch.zeros(3, 5, 7)}, "hidden_size"),
        (TextEncoderModel, {"attention_mask": KEEP[:, 1:]}, "attention_mask must have the shape"),
        (TextEncoderModel, {"token_type_ids": KEEP[:2]}, "token_type_ids must have the shape"),
        (TextEncoderModel, {"token_type_ids": KEEP + 1}, r"type_vocab_size=2\. Pass no"),
        (TextEncoderModel, {"position_ids": KEEP[:, 1:]}, "position_ids must have one value"),
        (TextEncoderModel, {"position_ids": KEEP * 600}, "max_position_embeddings=512"),
        (TextEncoderForMaskedLM, {"labels": MASKED[:2]}, "labels must have the shape"),
        (TextEncoderForMaskedLM, {"labels": MASKED * 9}, "labels must lie in"),
        (TextEncoderForTokenClassification, {"labels": MASKED}, r"labels must lie in \[0, 2\)"),
        (TextEncoderForSequenceClassification, {"labels": KEEP[0]}, "as many rows as the input"),
        (TextEncoderForQuestionAnswering, {"start_positions": KEEP[0]}, "start_positions alone"),
        (TextEncoderForQuestionAnswering, {"end_positions": KEEP[0]}, "end_positions alone"),
        (
            TextEncoderForQuestionAnswering,
            {"start_positions": KEEP[0], "end_positions": KEEP[0]},
            "start_positions must have as many rows",
        ),
        (TextEncoderForMultipleChoice, {}, r"\(batch, choices, length\), got"),
    ],
)
def test_bad_input_is_refused_in_words(model_class, arguments, message):
    model = make_model(model_class)
    if arguments and "input_ids" not in arguments and "inputs_embeds" not in arguments:
        arguments = {"input_ids": IDS, **arguments}
    if model_class is TextEncoderForMultipleChoice:
        arguments = {"input_ids": IDS}
    with pytest.raises(ValueError, match=message):
        model(**arguments)


def test_windows_refuse_padding_between_tokens():
    model = make_model(TextEncoderModel, sliding_window=2)
    keep = torch.tensor([[1, 1, 0, 1, 1]] * 3)
    with pytest.raises(ValueError, match=r"padding between them in row 0"):
        model(IDS, attention_mask=keep)
