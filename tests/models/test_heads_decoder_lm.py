"""The heads of DecoderLM: what they read, their losses, and what every model refuses."""

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.trainer_pt_utils import LabelSmoother

from family_cases import randomize
from hf_seqmodels import (
    DecoderLMConfig,
    DecoderLMForCausalLM,
    DecoderLMForSequenceClassification,
    DecoderLMForTokenClassification,
    DecoderLMModel,
)
from hf_seqmodels.models.layers_heads import infer_problem_type, next_token_targets
from plain_loss import plain_loss

IDS = torch.tensor([[3, 4, 5, 6, 7, 0, 0], [0, 0, 9, 1, 1, 4, 18], [3, 0, 5, 2, 6, 7, 8]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]])
LAST = torch.tensor([4, 6, 6])
SIZES = {"vocab_size": 19, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}


def make_model(model_class, **options):
    """Return a model in float64 with random parameters, in evaluation mode."""
    model = model_class(DecoderLMConfig(**SIZES | {"num_labels": 3} | options)).double().eval()
    randomize(model, seed=1)
    return model


def test_a_row_is_classified_by_its_last_real_token():
    model = make_model(DecoderLMForSequenceClassification)
    states = model.model(IDS, attention_mask=MASK).last_hidden_state
    expected = model.score(states[torch.arange(3), LAST])
    torch.testing.assert_close(model(IDS, attention_mask=MASK).logits, expected)
    embedded = model.model.embed_tokens(IDS)
    logits = model(inputs_embeds=embedded, attention_mask=MASK).logits
    torch.testing.assert_close(logits, expected)
    alone = torch.cat([model(IDS[row : row + 1, MASK[row].bool()]).logits for row in range(3)])
    torch.testing.assert_close(alone, expected)


@pytest.mark.parametrize("pad_token_id, last", [(0, LAST), (None, torch.tensor([6, 6, 6]))])
def test_without_a_mask_the_last_token_that_is_not_padding_classifies(pad_token_id, last):
    model = make_model(DecoderLMForSequenceClassification, pad_token_id=pad_token_id)
    states = model.model(IDS).last_hidden_state
    expected = model.score(states[torch.arange(3), last])
    torch.testing.assert_close(model(IDS).logits, expected)


CLASSES = torch.tensor([2, 0, 1])
NUMBERS = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
LOSSES = {
    "single_label_classification": (CLASSES, lambda x: F.cross_entropy(x, CLASSES)),
    "multi_label_classification": (
        NUMBERS,
        lambda x: -torch.where(NUMBERS > 0, x.sigmoid(), 1 - x.sigmoid()).log().mean(),
    ),
    "regression": (NUMBERS, lambda x: (x - NUMBERS).square().mean()),
}


@pytest.mark.parametrize("problem_type", LOSSES)
def test_the_loss_of_rows_is_that_of_the_problem(problem_type):
    model = make_model(DecoderLMForSequenceClassification, problem_type=problem_type)
    labels, plain = LOSSES[problem_type]
    outputs = model(IDS, attention_mask=MASK, labels=labels)
    torch.testing.assert_close(outputs.loss, plain(outputs.logits))
    scaled = model(IDS, attention_mask=MASK, labels=labels, num_items_in_batch=torch.tensor(50))
    torch.testing.assert_close(scaled.loss, outputs.loss * labels.numel() / 50)


@pytest.mark.parametrize(
    "labels, num_labels, problem_type",
    [
        (CLASSES, 3, "single_label_classification"),
        (NUMBERS, 3, "multi_label_classification"),
        (NUMBERS[:, 0], 1, "regression"),
    ],
)
def test_the_problem_is_inferred_from_the_labels(labels, num_labels, problem_type):
    inferred, named = (
        make_model(DecoderLMForSequenceClassification, num_labels=num_labels, problem_type=name)
        for name in (None, problem_type)
    )
    torch.testing.assert_close(inferred(IDS, labels=labels).loss, named(IDS, labels=labels).loss)
    assert inferred.config.problem_type is None


def test_tokens_are_classified_each():
    model = make_model(DecoderLMForTokenClassification)
    labels = (IDS % 3).masked_fill(MASK == 0, -100)
    outputs = model(IDS, attention_mask=MASK, labels=labels)
    states = model.model(IDS, attention_mask=MASK).last_hidden_state
    torch.testing.assert_close(outputs.logits, model.score(states))
    assert outputs.loss.item() == pytest.approx(plain_loss(outputs.logits.detach(), labels))
    scaled = model(IDS, attention_mask=MASK, labels=labels, num_items_in_batch=40)
    torch.testing.assert_close(scaled.loss, outputs.loss * (labels != -100).sum() / 40)


@pytest.mark.parametrize(
    "model_class", [DecoderLMForSequenceClassification, DecoderLMForTokenClassification]
)
def test_classifiers_take_the_stack_of_a_language_model(model_class, tmp_path):
    language_model = make_model(DecoderLMForCausalLM)
    language_model.save_pretrained(tmp_path)
    model, info = model_class.from_pretrained(tmp_path, num_labels=3, output_loading_info=True)
    assert {name.partition(".")[0] for name in info["missing_keys"]} == {"score"}
    expected = language_model.model(IDS).last_hidden_state
    torch.testing.assert_close(model.model(IDS).last_hidden_state, expected)
    for name, parameter in model.score.named_parameters():
        assert parameter.isfinite().all(), name
    labels = CLASSES if model_class is DecoderLMForSequenceClassification else IDS % 3
    model.train()(IDS, attention_mask=MASK, labels=labels).loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_targets_skip_padding_wherever_it_stands():
    labels = torch.tensor([[1, 2, 3, 4], [-100, 5, -100, 6], [7, -100, -100, -100]])
    mask = torch.tensor([[1, 1, 1, 1], [0, 1, 0, 1], [1, 0, 0, 0]])
    expected = [[2, 3, 4, -100], [-100, 6, -100, -100], [-100, -100, -100, -100]]
    assert next_token_targets(labels, 4, mask).tolist() == expected
    shifted = [[2, 3, 4, -100], [5, -100, 6, -100], [-100, -100, -100, -100]]
    assert next_token_targets(labels, 4).tolist() == shifted
    with_next = torch.cat([labels, torch.tensor([[8], [9], [10]])], dim=1)
    expected = [[2, 3, 4, 8], [-100, 6, -100, 9], [10, -100, -100, -100]]
    assert next_token_targets(with_next, 4, mask).tolist() == expected
    with pytest.raises(ValueError, match=r"length of the input, 4, or one more.*got 3"):
        next_token_targets(labels[:, 1:], 4)


def test_labels_may_be_shifted_already():
    model = make_model(DecoderLMForCausalLM)
    shifted = F.pad(IDS[:, 1:], (0, 1), value=-100)
    torch.testing.assert_close(model(IDS, shift_labels=shifted).loss, model(IDS, labels=IDS).loss)


def test_trainer_shifts_before_it_smooths():
    """Trainer looks the class up by name; one that it does not find is trained unshifted."""
    names = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    assert names["seqmodels_decoder_lm"] == "DecoderLMForCausalLM"
    assert AutoModelForCausalLM._model_mapping[DecoderLMConfig] is DecoderLMForCausalLM
    model = make_model(DecoderLMForCausalLM, label_smoothing=0.3, hidden_dropout=0.0)
    model.model.dropout.p = 0.0
    outputs = model.train()(IDS, labels=IDS)
    smoother = LabelSmoother(epsilon=0.3)
    expected = smoother(outputs, IDS, shift_labels=True)
    torch.testing.assert_close(outputs.loss, expected, rtol=1e-6, atol=0)


def test_a_long_input_is_refused_by_a_table_and_read_by_formulas():
    long = torch.zeros(1, 9, dtype=torch.long)
    with pytest.raises(ValueError, match="max_position_embeddings=8 tokens, got position 8"):
        make_model(DecoderLMModel, max_position_embeddings=8)(long)
    for name in ("sinusoidal", "rotary", "alibi"):
        model = make_model(DecoderLMModel, max_position_embeddings=8, position_embedding=name)
        assert model(long).last_hidden_state.isfinite().all()


REFUSED = {
    "neither": ({}, "Pass input_ids or inputs_embeds, one of the two: got neither"),
    "both": ({"input_ids": IDS, "inputs_embeds": torch.zeros(3, 7, 12)}, "got both"),
    "large_id": ({"input_ids": IDS + 1}, r"must lie in \[0, 19\), got 19 at row 1, position 6"),
    "other_mask": (
        {"input_ids": IDS, "attention_mask": MASK[:, 1:]},
        r"shape of all tokens, \(3, 7\), got \(3, 6\)",
    ),
    "other_positions": (
        {"input_ids": IDS, "position_ids": torch.arange(6)[None]},
        "one value for each of the 7 tokens",
    ),
    "other_embeddings": (
        {"inputs_embeds": torch.zeros(3, 7, 13)},
        r"shape \(batch, length, 12\).*hidden_size of the config",
    ),
    "other_labels": ({"input_ids": IDS, "labels": IDS[:, :5]}, "length of the input, 7"),
    "large_label": ({"input_ids": IDS, "labels": IDS + 1}, r"labels must lie in \[0, 19\)"),
    "labels_of_few_logits": (
        {"input_ids": IDS, "labels": IDS, "logits_to_keep": 2},
        "A loss scores every token.*Leave logits_to_keep",
    ),
}


@pytest.mark.parametrize("inputs, message", REFUSED.values(), ids=REFUSED)
def test_wrong_inputs_are_refused(inputs, message):
    with pytest.raises(ValueError, match=message):
        make_model(DecoderLMForCausalLM)(**inputs)


def test_wrong_labels_of_classifiers_are_refused():
    model = make_model(DecoderLMForSequenceClassification)
    with pytest.raises(ValueError, match="labels must have as many rows as the input, 3, got 2"):
        model(IDS, labels=CLASSES[:2])
    with pytest.raises(ValueError, match=r"multi_label_classification must have the shape \(3, 3"):
        model(IDS, labels=NUMBERS[:, :2])
    tokens = make_model(DecoderLMForTokenClassification)
    with pytest.raises(ValueError, match=r"labels must lie in \[0, 3\)"):
        tokens(IDS, labels=IDS)
    with pytest.raises(ValueError, match="problem_type must be one of"):
        infer_problem_type("ranking", 3, CLASSES)


def test_attention_that_takes_no_biases_is_refused_for_alibi():
    model = make_model(DecoderLMForCausalLM, position_embedding="alibi")
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match=r"'flash_attention_2' does not take\. Choose one of"):
        model(IDS)


def test_a_window_refuses_padding_between_tokens():
    model = make_model(DecoderLMForCausalLM, sliding_window=3)
    holes = torch.tensor([[1, 0, 1, 1, 1, 1, 1]]).expand(3, -1)
    with pytest.raises(ValueError, match="padding must stand before or behind"):
        model(IDS, attention_mask=holes)


PLANNED = {
    "learned": {},
    "gated_post": {"gated_mlp": True, "norm_position": "post", "position_embedding": "rotary"},
    "alibi": {"position_embedding": "alibi", "gated_mlp": True},
}


@pytest.mark.parametrize("options", PLANNED.values(), ids=PLANNED)
@pytest.mark.parametrize(
    "model_class", [DecoderLMModel, DecoderLMForCausalLM, DecoderLMForSequenceClassification]
)
def test_plans_name_modules_that_exist(model_class, options):
    model = make_model(model_class, **options)
    modules = {name.replace(".0.", ".*.") for name, _ in model.named_modules()}
    modules |= {f"{name}.*" for name in modules}  # "layers.*" names every block
    for plan in (model.tp_plan, model.fsdp_plan, model.pp_plan):
        assert plan
        assert plan.keys() <= modules
    sharded = {name.split(".")[-1] for name in model.tp_plan if ".layers." in f".{name}"}
    attention, mlp = {"q_proj", "k_proj", "v_proj", "o_proj"}, {"up_proj", "down_proj"}
    is_alibi = options.get("position_embedding") == "alibi"
    mlp |= {"gate_proj"} if options.get("gated_mlp") else set()
    assert sharded == (mlp if is_alibi else attention | mlp)
