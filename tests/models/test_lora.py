"""Adapters of peft on every family: trained, saved, loaded, merged."""

import copy

import pytest
import torch
from transformers import Trainer, TrainingArguments

from hf_seqmodels import (
    DecoderLMConfig,
    DecoderLMForCausalLM,
    RnnLMConfig,
    RnnLMForCausalLM,
    RnnSeq2SeqConfig,
    RnnSeq2SeqForConditionalGeneration,
    TextEncoderConfig,
    TextEncoderForSequenceClassification,
    TransformerSeq2SeqConfig,
    TransformerSeq2SeqForConditionalGeneration,
)

pytest.importorskip("peft")
from peft import LoraConfig, PeftModel, TaskType, get_peft_model

WIDTHS = {"hidden_size": 24, "num_attention_heads": 4, "max_position_embeddings": 32}
IDS = torch.tensor([[4, 9, 7, 2, 11], [5, 3, 8, 6, 10]])
MODELS = {
    "rnn_seq2seq": lambda: RnnSeq2SeqForConditionalGeneration(
        RnnSeq2SeqConfig(vocab_size=19, embedding_size=9, hidden_size=12, cell_type="lstm")
    ),
    "transformer_seq2seq": lambda: TransformerSeq2SeqForConditionalGeneration(
        TransformerSeq2SeqConfig(
            vocab_size=19, **WIDTHS, num_encoder_layers=1, num_decoder_layers=1
        )
    ),
    "rnn_lm": lambda: RnnLMForCausalLM(
        RnnLMConfig(vocab_size=19, embedding_size=9, hidden_size=12, num_hidden_layers=1)
    ),
    "decoder_lm": lambda: DecoderLMForCausalLM(
        DecoderLMConfig(vocab_size=19, **WIDTHS, num_hidden_layers=1)
    ),
    "text_encoder": lambda: TextEncoderForSequenceClassification(
        TextEncoderConfig(vocab_size=19, **WIDTHS, num_hidden_layers=1, num_labels=3)
    ),
}
TASKS = {
    "rnn_seq2seq": TaskType.SEQ_2_SEQ_LM,
    "transformer_seq2seq": TaskType.SEQ_2_SEQ_LM,
    "rnn_lm": TaskType.CAUSAL_LM,
    "decoder_lm": TaskType.CAUSAL_LM,
    "text_encoder": TaskType.SEQ_CLS,
}


def make(family):
    torch.manual_seed(0)
    return MODELS[family]().eval()


def batch_of(family):
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    labels = torch.tensor([2, 0]) if family == "text_encoder" else IDS.flip(0)
    return {"input_ids": IDS, "attention_mask": mask, "labels": labels}


def trained(model, batch, num_steps=3):
    """Train what peft left trainable, and return the names of what has a gradient."""
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    for _ in range(num_steps):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    model.eval()
    return {name for name, parameter in model.named_parameters() if parameter.grad is not None}


def logits_of(model, batch):
    with torch.no_grad():
        return model(**batch).logits


@pytest.mark.parametrize("family", MODELS)
def test_adapters_are_trained_saved_loaded_and_merged(family, tmp_path):
    base, batch = make(family), batch_of(family)
    plain = logits_of(base, batch)
    untouched = copy.deepcopy(base)
    model = get_peft_model(base, LoraConfig(r=2, lora_dropout=0.1, task_type=TASKS[family]))
    torch.testing.assert_close(logits_of(model, batch), plain, rtol=0, atol=1e-6)
    names = trained(model, batch)
    assert names and all("lora_" in name or "modules_to_save" in name for name in names)
    adapted = logits_of(model, batch)
    assert (adapted - plain).abs().max() > 1e-4
    model.save_pretrained(tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
    loaded = PeftModel.from_pretrained(untouched, tmp_path)
    torch.testing.assert_close(logits_of(loaded, batch), adapted)
    with loaded.disable_adapter():
        assert (logits_of(loaded, batch) - adapted).abs().max() > 1e-4
    generated = None
    if family != "text_encoder":
        prompt = {"input_ids": IDS[:1], "num_beams": 2, "max_new_tokens": 6}
        generated = model.generate(**prompt)
        assert torch.equal(loaded.generate(**prompt), generated)
    merged = model.merge_and_unload()
    assert type(merged) is type(untouched)
    torch.testing.assert_close(logits_of(merged, batch), adapted, rtol=1e-4, atol=1e-5)
    if generated is not None:
        assert torch.equal(merged.generate(**prompt), generated)


@pytest.mark.parametrize("family", ["rnn_seq2seq", "rnn_lm"])
def test_recurrent_stacks_are_trained_whole_beside_adapters(family, tmp_path):
    base, batch = make(family), batch_of(family)
    untouched = copy.deepcopy(base)
    config = LoraConfig(r=2, task_type=TASKS[family], modules_to_save=["stack"])
    model = get_peft_model(base, config)
    names = trained(model, batch)
    assert any(name.endswith("rnn.weight_hh_l0") for name in names)
    adapted = logits_of(model, batch)
    prompt = {"input_ids": IDS[:1], "num_beams": 2, "max_new_tokens": 6}
    generated = model.generate(**prompt)
    model.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(untouched, tmp_path)
    torch.testing.assert_close(logits_of(loaded, batch), adapted)
    merged = loaded.merge_and_unload()
    torch.testing.assert_close(logits_of(merged, batch), adapted, rtol=1e-4, atol=1e-5)
    assert torch.equal(merged.generate(**prompt), generated)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_parameters": ["rnn.weight_hh_l0"]}, r"modules_to_save=\['stack'\]"),
        (
            {"target_modules": ["lm_head"], "modules_to_save": ["rnn"]},
            "train whole recurrent stacks",
        ),
        ({"target_modules": ["rnn"]}, "LSTM.* is not supported"),
    ],
)
def test_single_recurrent_weights_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        get_peft_model(make("rnn_seq2seq"), LoraConfig(r=2, **options))


def test_all_linear_layers_can_be_adapted():
    model = make("rnn_seq2seq")
    config = LoraConfig(r=2, target_modules="all-linear", task_type=TASKS["rnn_seq2seq"])
    names = trained(get_peft_model(model, config), batch_of("rnn_seq2seq"))
    assert any("attention.scorer" in name for name in names)
    assert not any("lm_head" in name for name in names)


@pytest.mark.slow
def test_trainer_trains_and_saves_adapters(tmp_path):
    base = make("rnn_seq2seq")
    model = get_peft_model(base, LoraConfig(r=2, task_type=TaskType.SEQ_2_SEQ_LM))
    rows = [{name: values[i] for name, values in batch_of("rnn_seq2seq").items()} for i in (0, 1)]
    arguments = TrainingArguments(
        str(tmp_path), max_steps=4, save_steps=2, learning_rate=0.1, report_to=[], use_cpu=True,
        per_device_train_batch_size=2, disable_tqdm=True, logging_steps=1,
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=rows * 4)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]
    assert (tmp_path / "checkpoint-2/adapter_model.safetensors").is_file()
    assert not (tmp_path / "checkpoint-2/model.safetensors").exists()
    loaded = PeftModel.from_pretrained(make("rnn_seq2seq"), tmp_path / "checkpoint-4").eval()
    batch = batch_of("rnn_seq2seq")
    torch.testing.assert_close(logits_of(loaded, batch), logits_of(model.eval(), batch))
