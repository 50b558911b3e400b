"""The same fine-tuning of BERT and of the TextEncoder made from it gives the same losses."""

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from equal_training import loss_curve, make_opinions, pad_opinions
from gradient_checks import assert_same_tensors
from hf_seqmodels.conversion import text_encoder_from_bert, text_encoder_state_from_bert

VOCAB_SIZE = 29


def make_pair(dropout: float):
    """Return a small BERT with fresh weights, in float64, and what it becomes."""
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=13,
        initializer_range=0.2,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    bert = BertForSequenceClassification(config).double()
    return bert, text_encoder_from_bert(bert)


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_fine_tuning_gives_the_same_loss_curve_and_weights(dropout, tmp_path):
    bert, model = make_pair(dropout)
    # random numbers of dropout are drawn for padding, too, so it has to be there in both
    model.config.padding_free = "off" if dropout else "on"
    rows = make_opinions(40, vocab_size=VOCAB_SIZE)
    settings = {"max_steps": 20, "learning_rate": 3e-3}
    expected, actual = (
        loss_curve(one, rows, pad_opinions, tmp_path, **settings) for one in (bert, model)
    )
    assert len(expected) == 20 and max(expected) - min(expected) > 0.05
    assert actual == pytest.approx(expected, rel=1e-9)
    trained = text_encoder_state_from_bert(bert.state_dict())
    assert_same_tensors(model.state_dict(), trained, rtol=1e-6, atol=1e-8)
