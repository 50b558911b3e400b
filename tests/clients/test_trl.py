"""SFTTrainer and DPOTrainer of trl on both families of language models."""

import copy
import math

import pytest
import torch
from datasets import Dataset
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from tiny_language_models import (
    LANGUAGE_MODELS,
    NO_DROPOUT,
    character_tokenizer,
    log_probabilities,
    make_language_model,
)

trl = pytest.importorskip("trl", reason="needs trl of the extra clients")
peft = pytest.importorskip("peft", reason="needs peft of the extra clients")

pytestmark = pytest.mark.slow
TEXTS = ["abc ab", "cab cab", "b", "ccbab"]
PAIRS = [("ab", " cab"), ("c", "bca cb"), ("bac", "c"), ("b", "ca")]
PREFERENCES = [("ab", " cab", "bb"), ("a", "bca cb", " c"), ("cab", "c", "cc a"), ("b", "ca", "b")]
BETA = 0.3


@pytest.fixture(scope="module")
def tokenizer():
    return character_tokenizer()


def text_rows() -> Dataset:
    return Dataset.from_list([{"text": text} for text in TEXTS])


def pair_rows() -> Dataset:
    return Dataset.from_list([{"prompt": prompt, "completion": end} for prompt, end in PAIRS])


def tokens_of(tokenizer, kind: str) -> list[tuple[list[int], int]]:
    """Return (ids, how many of them come before what is learned) of every row."""
    pairs = [("", text) for text in TEXTS] if kind == "text" else PAIRS
    return [
        ([*tokenizer(prompt + end).input_ids, tokenizer.eos_token_id], len(prompt))
        for prompt, end in pairs
    ]


def mean_loss(model, rows: list[tuple[list[int], int]]) -> Tensor:
    """Return the mean of -log p over the tokens behind each prompt, row by row; the first token of
    a text has nothing before it."""
    parts = [log_probabilities(model, ids)[max(start - 1, 0) :] for ids, start in rows]
    return -torch.cat(parts).mean()


def sft_trainer(model, tokenizer, folder, rows: Dataset, **options):
    """Return a trainer that takes all rows at every step."""
    peft_config = options.pop("peft_config", None)
    arguments = trl.SFTConfig(
        **{
            "output_dir": str(folder),
            "per_device_train_batch_size": 4,
            "logging_steps": 1,
            "report_to": [],
            "use_cpu": True,
            "bf16": False,
            "disable_tqdm": True,
            "save_strategy": "no",
            **options,
        }
    )
    return trl.SFTTrainer(
        model, arguments, train_dataset=rows, processing_class=tokenizer, peft_config=peft_config
    )


def losses_of(trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("kind", ["text", "prompt and completion"])
@pytest.mark.parametrize("family", LANGUAGE_MODELS)
def test_a_step_of_sft_is_a_step_on_our_loss(family, kind, tokenizer, tmp_path):
    model = make_language_model(family, tokenizer, **NO_DROPOUT[family])
    expected = copy.deepcopy(model)
    loss = mean_loss(expected, tokens_of(tokenizer, kind))
    loss.backward()
    rows = text_rows() if kind == "text" else pair_rows()
    options = {"max_steps": 1, "optim": "sgd", "learning_rate": 0.5, "max_grad_norm": 0.0}
    trainer = sft_trainer(model, tokenizer, tmp_path, rows, **options)
    batch = next(iter(trainer.get_train_dataloader()))
    assert (batch["attention_mask"] == 0).any()  # rows of several lengths
    with torch.no_grad():
        assert expected(**batch).loss.item() == pytest.approx(loss.item(), abs=1e-6)
    trainer.train()
    assert trainer.args.gradient_checkpointing  # trl's default
    assert losses_of(trainer)[0] == pytest.approx(loss.item(), abs=1e-5)
    after = dict(model.named_parameters())
    for name, value in expected.named_parameters():
        stepped = value.detach() - 0.5 * value.grad
        torch.testing.assert_close(after[name].detach(), stepped, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("family", LANGUAGE_MODELS)
def test_sft_teaches_completions_and_saves_what_auto_classes_load(family, tokenizer, tmp_path):
    folder, output = tmp_path / "before", tmp_path / "after"
    make_language_model(family, tokenizer, **NO_DROPOUT[family]).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    options = {"max_steps": 80, "learning_rate": 0.01 if family == "decoder_lm" else 0.03}
    trainer = sft_trainer(str(folder), None, output, pair_rows(), **options)
    trainer.train()
    assert losses_of(trainer)[-1] < 0.3 * losses_of(trainer)[0]
    trainer.save_model()
    loaded = AutoModelForCausalLM.from_pretrained(output)
    assert type(loaded) is type(trainer.model)
    saved = AutoTokenizer.from_pretrained(output)
    for prompt, completion in PAIRS:
        inputs = saved(prompt, return_tensors="pt")
        written = loaded.generate(**inputs, max_new_tokens=9, do_sample=False)
        assert saved.decode(written[0], skip_special_tokens=True) == prompt + completion


@pytest.mark.parametrize("options", [{"padding_free": True, "max_length": None}, {"packing": True}])
def test_decoder_lm_keeps_packed_documents_apart(options, tokenizer, tmp_path):
    model = make_language_model("decoder_lm", tokenizer, **NO_DROPOUT["decoder_lm"])
    loss = mean_loss(model, tokens_of(tokenizer, "text")).item()
    trainer = sft_trainer(model, tokenizer, tmp_path, text_rows(), max_steps=1, **options)
    assert next(iter(trainer.get_train_dataloader()))["input_ids"].shape[0] == 1
    trainer.train()
    assert losses_of(trainer)[0] == pytest.approx(loss, abs=1e-5)


@pytest.mark.parametrize("options", [{"padding_free": True, "max_length": None}, {"packing": True}])
def test_rnn_lm_refuses_documents_in_one_row(options, tokenizer, tmp_path):
    model = make_language_model("rnn_lm", tokenizer)
    trainer = sft_trainer(model, tokenizer, tmp_path, text_rows(), max_steps=1, **options)
    with pytest.raises(TypeError, match="Pass each document as a row of its own"):
        trainer.train()


@pytest.mark.parametrize("family", LANGUAGE_MODELS)
def test_wrapped_texts_are_rows_of_one_length(family, tokenizer, tmp_path):
    model = make_language_model(family, tokenizer, **NO_DROPOUT[family])
    ids = [token for row, _ in tokens_of(tokenizer, "text") for token in row]
    rows = [(ids[start : start + 8], 0) for start in range(0, len(ids), 8)]
    loss = mean_loss(model, rows).item()
    options = {"packing": True, "packing_strategy": "wrapped", "max_length": 8, "max_steps": 1}
    trainer = sft_trainer(model, tokenizer, tmp_path, text_rows(), **options)
    trainer.train()
    assert losses_of(trainer)[0] == pytest.approx(loss, abs=1e-5)


def lora(family: str):
    """Return the adapters that trl trains: its loss reads the output layer past a wrapper."""
    options = {} if family == "decoder_lm" else {"target_modules": ["embed_tokens"]}
    whole = None if family == "decoder_lm" else ["stack"]
    return peft.LoraConfig(r=2, task_type="CAUSAL_LM", modules_to_save=whole, **options)


@pytest.mark.parametrize("family", LANGUAGE_MODELS)
def test_sft_trains_and_saves_adapters_alone(family, tokenizer, tmp_path):
    base = make_language_model(family, tokenizer, **NO_DROPOUT[family])
    untouched = copy.deepcopy(base)
    options = {"max_steps": 12, "learning_rate": 0.05, "peft_config": lora(family)}
    trainer = sft_trainer(base, tokenizer, tmp_path, pair_rows(), **options)
    trainer.train()
    trainer.save_model()
    assert not (tmp_path / "model.safetensors").exists()
    rows = tokens_of(tokenizer, "prompt and completion")
    loaded = peft.PeftModel.from_pretrained(copy.deepcopy(untouched), tmp_path).eval()
    with torch.no_grad():
        before, after = mean_loss(untouched, rows).item(), mean_loss(loaded, rows).item()
        trained = mean_loss(trainer.model.eval(), rows).item()
    assert losses_of(trainer)[0] == pytest.approx(before, abs=1e-5)
    assert after < before - 0.1
    assert after == pytest.approx(trained, abs=1e-6)


def test_trl_refuses_adapters_of_the_output_layer_which_peft_adapts_by_default(tokenizer, tmp_path):
    model = make_language_model("rnn_lm", tokenizer)
    adapters = peft.LoraConfig(r=2, task_type="CAUSAL_LM")
    with pytest.raises(ValueError, match="adapter to `lm_head` is not supported"):
        sft_trainer(model, tokenizer, tmp_path, pair_rows(), peft_config=adapters)


def dpo_loss(policy, reference, tokenizer) -> float:
    """Return the mean of -log sigmoid(beta (log ratio of the chosen - log ratio of the rejected)),
    Rafailov et al. 2023, equation 7."""
    margins = []
    for prompt, *ends in PREFERENCES:
        ratios = []
        for end in ends:
            ids = [*tokenizer(prompt + end).input_ids, tokenizer.eos_token_id]
            sums = [
                log_probabilities(model, ids)[len(prompt) - 1 :].sum()
                for model in (policy, reference)
            ]
            ratios.append((sums[0] - sums[1]).item())
        margins.append(BETA * (ratios[0] - ratios[1]))
    return sum(math.log1p(math.exp(-margin)) for margin in margins) / len(margins)


@pytest.mark.parametrize("with_adapters", [False, True])
@pytest.mark.parametrize("family", LANGUAGE_MODELS)
def test_dpo_begins_at_log_two_and_is_the_plain_formula(family, with_adapters, tokenizer, tmp_path):
    folder, output = tmp_path / "before", tmp_path / "after"
    dropped = {"word_dropout": 0.3, "weight_dropout": 0.3} if family == "rnn_lm" else {}
    make_language_model(family, tokenizer, **dropped).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    rows = [dict(zip(("prompt", "chosen", "rejected"), row, strict=True)) for row in PREFERENCES]
    arguments = trl.DPOConfig(
        output_dir=str(output), per_device_train_batch_size=4, logging_steps=1, max_steps=6,
        learning_rate=0.02, lr_scheduler_type="constant", beta=BETA, report_to=[], use_cpu=True,
        bf16=False, disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    trainer = trl.DPOTrainer(
        str(folder),
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        peft_config=lora(family) if with_adapters else None,
    )
    trainer.train()
    # the models drop out by default; the trainer turns that off, so that both sides are one
    assert losses_of(trainer)[0] == pytest.approx(math.log(2), abs=1e-6)
    policy, reference = trainer.model.eval(), AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        expected = dpo_loss(policy, reference, tokenizer)
        batch = next(iter(trainer.get_train_dataloader()))
        assert trainer.compute_loss(policy, batch).item() == pytest.approx(expected, abs=1e-5)
    assert expected < math.log(2) - 0.05
