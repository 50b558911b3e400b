"""Conversion keeps the numbers: BERT and TextEncoder against each other, both ways, every head."""

import pytest
import torch
from transformers import BertConfig, BertLMHeadModel

from family_cases import randomize
from gradient_checks import assert_same_tensors
from hf_seqmodels import TextEncoderConfig, TextEncoderForMaskedLM
from hf_seqmodels.conversion import (
    bert_config_from_text_encoder,
    bert_from_text_encoder,
    bert_state_from_text_encoder,
    text_encoder_config_from_bert,
    text_encoder_from_bert,
    text_encoder_state_from_bert,
)
from hf_seqmodels.conversion.bert import BERT_CLASSES

THEIRS = {model_class.__name__: model_class for model_class in BERT_CLASSES}
IDS = torch.tensor([[3, 4, 5, 6, 7, 8, 9], [9, 1, 1, 4, 28, 0, 0]])  # (B, T)
MASK = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]])
TYPES = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 2, 0, 0]])
INPUTS = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": TYPES}
TOKEN_LABELS = torch.tensor([[-100, 4, -100, 2, 1, -100, 0], [3, -100, 1, -100, -100, -100, -100]])
ROW_LABELS = torch.tensor([0, 1])
SPANS = {"start_positions": torch.tensor([1, 0]), "end_positions": torch.tensor([2, 9])}
LABELS = {
    "BertModel": {},
    "BertForPreTraining": {"labels": TOKEN_LABELS, "next_sentence_label": ROW_LABELS},
    "BertForMaskedLM": {"labels": TOKEN_LABELS},
    "BertForSequenceClassification": {"labels": ROW_LABELS},
    "BertForTokenClassification": {"labels": TOKEN_LABELS},
    "BertForQuestionAnswering": SPANS,
    "BertForMultipleChoice": {"labels": torch.tensor([1])},
    "BertForNextSentencePrediction": {"labels": ROW_LABELS},
}
CONFIGS = {
    "usual": {},
    "other": {
        "hidden_act": "gelu_new",
        "tie_word_embeddings": False,
        "layer_norm_eps": 1e-2,
        "classifier_dropout": 0.25,
        "intermediate_size": 44,
    },
}


def make_bert(name: str = "BertModel", **options):
    """Return a small BERT in float64 with random parameters, of a class by its name."""
    arguments = {"add_pooling_layer": options.pop("pooler")} if "pooler" in options else {}
    num_labels = 2 if name == "BertForQuestionAnswering" else 5
    config = BertConfig(
        vocab_size=29,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=17,
        type_vocab_size=3,
        **{"intermediate_size": 20, "num_labels": num_labels} | options,
    )
    model = THEIRS[name](config, **arguments).double().eval()
    randomize(model, seed=2)
    return model


def batch_for(name: str) -> dict[str, torch.Tensor]:
    """Return inputs and labels that a class reads: rows are choices, or have no padding."""
    inputs = dict(INPUTS)
    if name == "BertForMultipleChoice":
        inputs = {key: values[None] for key, values in inputs.items()}
    if name == "BertForQuestionAnswering":  # padding is no answer here; there it may be one
        del inputs["attention_mask"]
        inputs["input_ids"] = IDS.clamp(min=1)
    return inputs | LABELS[name]


def real(values: torch.Tensor) -> torch.Tensor:
    """Return the values at real tokens, or all where an output has no tokens."""
    return values[MASK.bool()] if values.shape[:2] == MASK.shape else values


def total(outputs) -> torch.Tensor:
    """Return a scalar that every output goes into."""
    if "loss" in outputs:
        return outputs.loss
    return real(outputs.last_hidden_state).pow(3).sum() + outputs.pooler_output.pow(3).sum()


@pytest.mark.parametrize("options", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("name", THEIRS)
def test_a_converted_bert_gives_the_same_outputs_loss_and_gradients(name, options):
    bert = make_bert(name, **options)
    model = text_encoder_from_bert(bert)
    assert type(model).__name__ == name.replace("Bert", "TextEncoder")
    model.config.padding_free = "on" if options else "off"
    expected, actual = (one(**batch_for(name)) for one in (bert, model))
    compared = set(expected) & set(actual)
    assert compared == set(expected)
    for key in compared:
        torch.testing.assert_close(
            real(actual[key]), real(expected[key]), rtol=1e-9, atol=1e-9, msg=key
        )
    for one, outputs in ((bert, expected), (model, actual)):
        one.zero_grad()
        total(outputs).backward()
    gradients = {
        name: parameter.grad
        for name, parameter in bert.named_parameters()
        if parameter.grad is not None
    }
    own = {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    assert_same_tensors(own, text_encoder_state_from_bert(gradients), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["regression", "multi_label_classification"])
def test_other_losses_of_a_row_are_the_same(kind):
    bert = make_bert("BertForSequenceClassification", problem_type=kind)
    model = text_encoder_from_bert(bert)
    labels = torch.tensor([[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]).double()
    expected, actual = (one(**INPUTS, labels=labels).loss for one in (bert, model))
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=0)


def test_hidden_states_and_attention_weights_are_the_same():
    bert = make_bert(attn_implementation="eager")
    model = text_encoder_from_bert(bert)
    assert model.config._attn_implementation == "eager"
    asked = {"output_hidden_states": True, "output_attentions": True}
    expected, actual = (one(**INPUTS, **asked) for one in (bert, model))
    assert len(actual.hidden_states) == len(expected.hidden_states) == 4
    for one, other in zip(actual.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(real(one), real(other), rtol=1e-9, atol=1e-9)
    for one, other in zip(actual.attentions, expected.attentions, strict=True):
        torch.testing.assert_close(
            one.transpose(1, 2)[MASK.bool()], other.transpose(1, 2)[MASK.bool()]
        )


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_dropout_draws_the_same_numbers(attention):
    bert = make_bert("BertForTokenClassification", attn_implementation=attention).train()
    model = text_encoder_from_bert(bert)
    assert model.training
    losses = []
    for one in (bert, model):
        torch.manual_seed(5)
        losses.append(one(IDS, token_type_ids=TYPES, labels=TOKEN_LABELS).loss)
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-9, atol=0)
    torch.manual_seed(6)
    assert (model(IDS, token_type_ids=TYPES, labels=TOKEN_LABELS).loss - losses[0]).abs() > 1e-3


@pytest.mark.parametrize("options", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("name", ["BertModel", "BertForPreTraining", "BertForTokenClassification"])
def test_there_and_back_gives_the_same_weights_and_config(name, options, tmp_path):
    names = {"id2label": {0: "O", 1: "B", 2: "I"}, "label2id": {"O": 0, "B": 1, "I": 2}}
    bert = make_bert(name, **options, **names, num_labels=3).float()
    model = text_encoder_from_bert(bert)
    model.save_pretrained(tmp_path / "ours")
    model, info = type(model).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert model.config.id2label == names["id2label"]
    again = bert_from_text_encoder(model)
    again.save_pretrained(tmp_path / "theirs")
    again, info = THEIRS[name].from_pretrained(tmp_path / "theirs", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    expected = bert.state_dict()
    if "cls.predictions.bias" in expected:  # read by nothing where it is not tied
        expected["cls.predictions.bias"] = expected["cls.predictions.decoder.bias"]
    assert_same_tensors(again.state_dict(), expected, rtol=0, atol=0)
    left_out = dict.fromkeys(("_name_or_path", "architectures", "dtype", "hidden_act"))
    assert again.config.to_dict() | left_out == bert.config.to_dict() | left_out


def test_ties_stay_tied():
    for options, is_tied in (({}, True), ({"tie_word_embeddings": False}, False)):
        model = text_encoder_from_bert(make_bert("BertForMaskedLM", **options))
        assert (model.lm_head.weight is model.model.embed_tokens.weight) == is_tied
        bert = bert_from_text_encoder(model)
        table = bert.bert.embeddings.word_embeddings.weight
        assert (bert.cls.predictions.decoder.weight is table) == is_tied


def test_a_body_without_a_pooler_stays_without():
    bert = make_bert(pooler=False)
    model = text_encoder_from_bert(bert)
    assert model(**INPUTS).pooler_output is None
    assert bert_from_text_encoder(model).pooler is None
    expected = bert(**INPUTS).last_hidden_state
    torch.testing.assert_close(real(model(**INPUTS).last_hidden_state), real(expected))


def test_type_and_mode_are_kept_and_nothing_is_shared():
    bert = make_bert().to(torch.bfloat16).train()
    model = text_encoder_from_bert(bert)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert model.training
    before = bert.embeddings.word_embeddings.weight.clone()
    with torch.no_grad():
        model.embed_tokens.weight.zero_()
    assert torch.equal(bert.embeddings.word_embeddings.weight, before)


def test_a_model_without_biases_and_types_becomes_a_bert_with_such_of_zero():
    options = {"use_bias": False, "type_vocab_size": 0, "hidden_act": "silu", "head_dim": 6}
    config = TextEncoderConfig(vocab_size=29, hidden_size=24, num_hidden_layers=2, **options)
    model = TextEncoderForMaskedLM(config).double().eval()
    randomize(model, seed=3)
    bert = bert_from_text_encoder(model)
    assert bert.config.hidden_act == "silu"
    assert (bert.bert.embeddings.token_type_embeddings.weight == 0).all()
    assert (bert.bert.encoder.layer[1].attention.self.query.bias == 0).all()
    inputs = {"input_ids": IDS, "attention_mask": MASK}
    expected, actual = (real(one(**inputs).logits) for one in (model, bert))
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def test_weights_that_old_checkpoints_hold_and_missing_ties_are_understood():
    bert = make_bert("BertForMaskedLM")
    state = bert.state_dict()
    state["bert.embeddings.position_ids"] = torch.arange(17)[None]
    del state["cls.predictions.decoder.weight"], state["cls.predictions.decoder.bias"]
    converted = text_encoder_state_from_bert(state)
    assert converted["lm_head.bias"] is state["cls.predictions.bias"]
    expected = text_encoder_from_bert(bert).state_dict()
    assert expected.keys() - converted.keys() == {"lm_head.weight"}
    back = bert_state_from_text_encoder(converted)
    assert bert.state_dict().keys() - back.keys() == {"cls.predictions.decoder.weight"}
    with pytest.raises(ValueError, match=r"these have none: bert\.lora\.weight"):
        text_encoder_state_from_bert(state | {"bert.lora.weight": torch.zeros(1)})


@pytest.mark.parametrize(
    "options, message",
    [
        ({"hidden_act": "tanh"}, "hidden_act in .*, got 'tanh'"),
        ({"is_decoder": True}, "is_decoder=False, got True"),
        ({"is_decoder": False, "add_cross_attention": True}, "add_cross_attention=False, got True"),
        ({"position_embedding_type": "relative_key"}, "='absolute', got 'relative_key'"),
    ],
)
def test_a_bert_without_an_equal_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        text_encoder_config_from_bert(BertConfig(**options))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"position_embedding": "alibi"}, "position_embedding='learned', got 'alibi'"),
        ({"norm_position": "pre"}, "norm_position='post', got 'pre'"),
        ({"norm_embedding": False}, "norm_embedding=True, got False"),
        ({"norm_type": "rms"}, "norm_type='layer', got 'rms'"),
        ({"gated_mlp": True}, "gated_mlp=False, got True"),
        ({"scale_embedding": True}, "scale_embedding=False, got True"),
        ({"sliding_window": 8}, "sliding_window=None, got 8"),
        ({"pooling": "mean"}, "pooling='cls', got 'mean'"),
        ({"label_smoothing": 0.1}, "label_smoothing=0, got 0.1"),
        ({"num_key_value_heads": 2}, "num_key_value_heads=2.*cannot be converted"),
        ({"head_dim": 10}, "head_dim=10.*cannot be converted"),
        ({"embedding_dropout": 0.3}, "embedding_dropout=0.3 and hidden_dropout=0.1. Set both"),
    ],
)
def test_a_text_encoder_without_an_equal_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        bert_config_from_text_encoder(TextEncoderConfig(**options))


def test_a_class_without_a_counterpart_is_refused():
    small = {"num_hidden_layers": 1, "hidden_size": 12, "vocab_size": 9}
    model = BertLMHeadModel(BertConfig(is_decoder=True, **small))
    with pytest.raises(ValueError, match=r"BertForMaskedLM, .*got BertLMHeadModel\. Load it"):
        text_encoder_from_bert(model)
