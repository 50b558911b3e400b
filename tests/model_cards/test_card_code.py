"""The code of a card runs, with the package and without it, and prints what it says."""

import os
import subprocess
import sys

import pytest
from transformers import BartConfig, BartForConditionalGeneration

import card_blocks
from card_blocks import promised_by, python_blocks, run_block
from carded_models import HEADS, make_carded, written_by
from hf_seqmodels.data import Seq2SeqTokenizer, train_tokenizer
from hf_seqmodels.hub import export
from hf_seqmodels.model_cards import render_card

SOURCE = """a "b" 'c' \\ # ``` d"""
WRITES = ("AutoModelForSeq2SeqLM", "AutoModelForCausalLM")


def save_with_card(model, tokenizer, folder, **facts):
    """Save a model and return its card."""
    model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return render_card(model, tokenizer, name=folder.name, **facts)


def facts_for(model, tokenizer, auto_class):
    """Return an example, if the model writes text."""
    if auto_class not in WRITES:
        return {}
    return {"examples": [[SOURCE, written_by(model, tokenizer, SOURCE)]]}


@pytest.mark.parametrize(("model_type", "auto_class"), HEADS)
def test_code_with_the_package_prints_what_it_says(model_type, auto_class, tmp_path, monkeypatch):
    model, tokenizer = make_carded(model_type, auto_class)
    facts = facts_for(model, tokenizer, auto_class)
    card = save_with_card(model, tokenizer, tmp_path / "it's mine", **facts)
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in python_blocks(card) if "import hf_seqmodels" in block]
    assert [auto_class in block for block in blocks] == [True, False][: len(blocks)]
    for block in blocks:
        printed = run_block(block)
        assert printed
        assert promised_by(block) in (None, printed)
    assert (promised_by(blocks[0]) is not None) == (auto_class in WRITES)


@pytest.mark.parametrize(("model_type", "auto_class"), HEADS)
def test_code_of_a_card_without_any_fact_runs(model_type, auto_class, tmp_path, monkeypatch):
    model, _ = make_carded(model_type, auto_class)
    card = save_with_card(model, None, tmp_path / "bare")
    monkeypatch.chdir(tmp_path)
    (block,) = (block for block in python_blocks(card) if "import hf_seqmodels" in block)
    assert run_block(block)
    assert promised_by(block) is None


@pytest.mark.parametrize("model_type", sorted({model_type for model_type, _ in HEADS}))
def test_code_for_texts_runs_without_an_example(model_type, tmp_path, monkeypatch):
    names = [name for known, name in HEADS if known == model_type]
    auto_class = next((name for name in names if name in WRITES), names[0])
    card = save_with_card(*make_carded(model_type, auto_class), tmp_path / "untrained")
    monkeypatch.chdir(tmp_path)
    for block in python_blocks(card)[:2]:
        assert "An example." in block
        assert run_block(block)
        assert promised_by(block) is None


def test_code_of_a_language_model_keeps_to_its_positions(tmp_path, monkeypatch):
    model, tokenizer = make_carded(
        "seqmodels_decoder_lm", "AutoModelForCausalLM", max_position_embeddings=16
    )
    card = save_with_card(model, tokenizer, tmp_path / "short", examples=[["abc de abc", "abc"]])
    monkeypatch.chdir(tmp_path)
    assert "max_new_tokens=6, do_sample=False" in card
    assert run_block(python_blocks(card)[1])


def test_code_of_a_model_that_samples_promises_no_output(tmp_path):
    model, tokenizer = make_carded("seqmodels_rnn_seq2seq", "AutoModelForSeq2SeqLM")
    model.generation_config.do_sample = True
    card = render_card(model, tokenizer, name="sampler", examples=[["ab", "ba"]])
    assert {promised_by(block) for block in python_blocks(card)} == {None}


def tiny_bart(vocab_size):
    """Return an encoder-decoder of transformers itself."""
    config = BartConfig(
        vocab_size=vocab_size,
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        max_position_embeddings=32,
        forced_eos_token_id=None,
    )
    model = BartForConditionalGeneration(config).eval()
    model.generation_config.max_new_tokens = 5
    return model


def test_models_of_transformers_load_without_a_word_of_the_package(tmp_path, monkeypatch):
    tokenizer = train_tokenizer(["abc de", "An example."], model="char")
    card = save_with_card(tiny_bart(len(tokenizer)), tokenizer, tmp_path / "bart")
    monkeypatch.chdir(tmp_path)
    (block,) = python_blocks(card)
    assert "hf_seqmodels" not in block
    assert "trust_remote_code" not in card
    assert run_block(block)


def test_models_of_transformers_with_two_tokenizers_take_the_package(tmp_path, monkeypatch):
    tokenizer = train_tokenizer(["abc de", "An example."], model="char")
    pair = Seq2SeqTokenizer.from_pair(tokenizer, tokenizer)
    card = save_with_card(tiny_bart(len(tokenizer)), pair, tmp_path / "bart")
    monkeypatch.chdir(tmp_path)
    assert "It takes the package to load the tokenizer." in card
    assert "trust_remote_code" not in card
    for block in python_blocks(card):
        assert "import hf_seqmodels" in block
        assert run_block(block)


@pytest.mark.slow
def test_code_without_the_package_prints_what_it_says(tmp_path):
    folders = []
    for model_type, auto_class in HEADS:
        if auto_class not in (*WRITES, "AutoModel"):
            continue  # the code differs in a name from that of AutoModel
        model, tokenizer = make_carded(model_type, auto_class)
        folder = tmp_path / f"{model_type}_{auto_class}"
        facts = facts_for(model, tokenizer, auto_class)
        folders.append(str(export(model, tokenizer, folder, facts=facts, verify=False)))
    finished = subprocess.run(
        [sys.executable, card_blocks.__file__, *folders],
        capture_output=True,
        text=True,
        env=os.environ | {"HF_MODULES_CACHE": str(tmp_path / "modules")},
    )
    assert finished.returncode == 0, finished.stderr
