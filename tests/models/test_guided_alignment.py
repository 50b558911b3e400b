"""Attention guided by given alignments, in both families of encoder-decoders."""

import math

import pytest
import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM

import hf_seqmodels  # noqa: F401  (registers the families)
from hf_seqmodels.models.outputs import alignment_loss

SOURCE = torch.tensor([[5, 6, 7, 8, 2], [6, 5, 2, 0, 0]])
KEEP = (SOURCE != 0).long()
LABELS = torch.tensor([[4, 5, 6, 2], [7, 2, -100, -100]])
LINKS = torch.zeros(2, 4, 5)
for row, target, source in ((0, 0, 1), (0, 1, 0), (0, 1, 2), (0, 3, 4), (1, 0, 1), (1, 2, 0)):
    LINKS[row, target, source] = 1

FAMILIES = {
    "seqmodels_rnn_seq2seq": {"embedding_size": 8, "hidden_size": 12},
    "seqmodels_transformer_seq2seq": {
        "hidden_size": 16,
        "num_encoder_layers": 1,
        "num_decoder_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 20,
        "guided_alignment_layer": 0,
    },
}
NO_DROPOUT = {"embedding_dropout": 0.0, "hidden_dropout": 0.0, "attention_dropout": 0.0}


def make_model(model_type: str, **options):
    """Return a tiny model without dropout, in training mode."""
    torch.manual_seed(0)
    settings = {"vocab_size": 11, **FAMILIES[model_type], **NO_DROPOUT, **options}
    config = AutoConfig.for_model(model_type, **settings)
    return AutoModelForSeq2SeqLM.from_config(config).train()


def plain_alignment_loss(weights, alignments, labels) -> float:
    """Return the cross-entropy as a loop over links."""
    total = 0.0
    for b, t in (labels != -100).nonzero().tolist():
        linked = alignments[b, t].nonzero().flatten().tolist()
        for s in linked:
            total -= math.log(weights[b, t, s].item()) / len(linked)
    return total / int((labels != -100).sum())


def test_the_loss_is_a_loop_over_links():
    weights = torch.rand(2, 4, 5, dtype=torch.float64).softmax(dim=-1)
    expected = plain_alignment_loss(weights, LINKS, LABELS)
    assert alignment_loss(weights, LINKS, LABELS).item() == pytest.approx(expected, rel=1e-12)
    half = alignment_loss(weights, LINKS, LABELS, num_items_in_batch=12).item()
    assert half == pytest.approx(expected / 2, rel=1e-12)
    with pytest.raises(ValueError, match=r"\(2, 4, 5\), got \(2, 4, 4\)"):
        alignment_loss(weights, LINKS[:, :, :4], LABELS)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_guidance_is_added_in_training_alone(model_type):
    model = make_model(model_type, guided_alignment_weight=0.25)
    batch = {"input_ids": SOURCE, "attention_mask": KEEP, "labels": LABELS}
    plain = model(**batch)
    assert plain.cross_attentions is None
    with_weights = model(**batch, alignments=LINKS, output_attentions=True)
    layer = getattr(model.config, "guided_alignment_layer", 0)
    weights = with_weights.cross_attentions[layer].mean(dim=1).detach()
    expected = plain.loss.item() + 0.25 * plain_alignment_loss(weights, LINKS, LABELS)
    assert with_weights.loss.item() == pytest.approx(expected, rel=1e-5)
    guided = model(**batch, alignments=LINKS)
    assert torch.equal(guided.loss, with_weights.loss) and guided.cross_attentions is None
    model.eval()
    assert torch.equal(model(**batch, alignments=LINKS).loss, model(**batch).loss)
    model.config.guided_alignment_weight = 0.0
    assert torch.equal(model.train()(**batch, alignments=LINKS).loss, plain.loss)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_attention_learns_what_it_is_guided_to(model_type):
    model = make_model(model_type, guided_alignment_weight=1.0)
    batch = {"input_ids": SOURCE, "attention_mask": KEEP, "labels": LABELS, "alignments": LINKS}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(120):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    layer = getattr(model.config, "guided_alignment_layer", 0)
    outputs = model.eval()(**batch, output_attentions=True)
    weights = outputs.cross_attentions[layer].mean(dim=1)
    on_links = (weights * LINKS).sum(dim=-1)  # (B, T)
    is_guided = (LINKS.sum(dim=-1) > 0) & (LABELS != -100)
    assert (on_links[is_guided] > 0.7).all()


@pytest.mark.parametrize(
    ("model_type", "options", "message"),
    [
        ("seqmodels_rnn_seq2seq", {"guided_alignment_weight": -1.0}, "at least 0"),
        (
            "seqmodels_rnn_seq2seq",
            {"guided_alignment_weight": 1.0, "attention_scorer": None},
            "needs attention",
        ),
        ("seqmodels_transformer_seq2seq", {"guided_alignment_weight": -1.0}, "at least 0"),
        ("seqmodels_transformer_seq2seq", {"guided_alignment_layer": 2}, "one of 2 decoder layers"),
    ],
)
def test_options_that_do_not_fit_are_refused(model_type, options, message):
    with pytest.raises(Exception, match=message):
        make_model(model_type, **options)
