"""What the fine-tuning scripts share: rows held out, limits of models, tokenizers, predictions."""

import numpy as np
import pytest
from finetune_arguments import FinetuneDataArguments
from finetune_data import encode_texts, hold_out, load_corpus
from finetune_model import load_or_make_model, longest_input, reads_token_types
from finetune_run import in_order, prepare
from finetune_seeds import summarize
from run_classification import ClassificationTask
from script_models import ModelArguments
from transformers import (
    AutoModelForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    RobertaConfig,
    RobertaModel,
)

from hf_seqmodels import TextEncoderConfig, TextEncoderModel
from hf_seqmodels.data import train_tokenizer
from tiny_finetuning import finetune_argv, write_parts, write_rows

ROWS = [{"text": f"number {number}", "label": number % 2} for number in range(24)]
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([row["text"] for row in ROWS], model="char", style="bert")


def test_the_same_rows_are_held_out_whatever_the_seed(tmp_path):
    files = {"train": write_rows(tmp_path / "train.jsonl", ROWS)}
    held_out = [
        prepare(
            ClassificationTask, finetune_argv(files, tmp_path / f"run{seed}", "--seed", str(seed))
        ).corpus["validation"]
        for seed in (1, 2)
    ]
    assert held_out[0].rows == held_out[1].rows
    assert held_out[0].origin == {"name": "held out from the training rows", "rows": 2}
    stay, out = hold_out(10, 3)
    assert sorted([*stay, *out]) == list(range(10))
    assert len(out) == 3
    with pytest.raises(ValueError, match="rows on both sides, got 10 of 10"):
        hold_out(10, 10)


def test_rows_come_from_files_of_every_kind_and_from_datasets(tmp_path):
    files = write_parts(tmp_path, ROWS)
    table = tmp_path / "rows.tsv"
    table.write_text("text\tlabel\n" + "".join(f"{r['text']}\t{r['label']}\n" for r in ROWS))
    named = load_corpus(FinetuneDataArguments(dataset_name=str(tmp_path), max_train_samples=5))
    read = load_corpus(
        FinetuneDataArguments(train_file=files["train"], test_file=str(table), validation_split=0)
    )
    assert read["train"].rows[:5] == named["train"].rows
    assert [row["text"] for row in read["test"].rows] == [row["text"] for row in ROWS]
    assert read["test"].places[0] == "rows.tsv:2"
    assert list(named) == ["train", "validation", "test"]
    assert len(read["train"].origin["sha256"]) == 64
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(ValueError, match=r"empty.jsonl: the train part must hold at least one row"):
        load_corpus(FinetuneDataArguments(train_file=str(empty)))


def test_the_longest_input_is_what_the_model_and_the_tokenizer_can_take(tokenizer):
    config = {**SIZES, "vocab_size": len(tokenizer)}
    ours = TextEncoderModel(TextEncoderConfig(max_position_embeddings=40, **config))
    assert longest_input(ours, tokenizer) == 40
    # positions of RoBERTa begin behind the id of its pad token
    roberta = RobertaModel(RobertaConfig(max_position_embeddings=40, pad_token_id=1, **config))
    assert longest_input(roberta, tokenizer) == 38
    short = train_tokenizer(["a"], model="char", style="bert", model_max_length=9)
    assert longest_input(ours, short) == 9


def test_a_fresh_tokenizer_says_only_what_the_model_reads(tmp_path):
    files = {"train": write_rows(tmp_path / "train.jsonl", ROWS)}
    for overrides, names in (
        ([], ["input_ids", "token_type_ids", "attention_mask"]),
        (["--config_overrides", "type_vocab_size=0"], ["input_ids", "attention_mask"]),
    ):
        run = prepare(ClassificationTask, finetune_argv(files, tmp_path / "run", *overrides))
        assert run.tokenizer.model_input_names == names
        assert reads_token_types(run.trainer.model) == ("token_type_ids" in names)


def test_a_model_without_a_pad_token_pads_with_its_end_token(tmp_path):
    tokenizer = train_tokenizer(["abc"], model="char")
    tokenizer.pad_token = None
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=8, n_layer=1, n_head=2, eos_token_id=2)
    GPT2ForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    options = ModelArguments(model_name_or_path=str(tmp_path))
    model = load_or_make_model(
        AutoModelForSequenceClassification, options, FinetuneDataArguments(), tokenizer, {}
    )
    assert (tokenizer.pad_token, model.config.pad_token_id) == ("</s>", 2)
    tokenizer.pad_token = tokenizer.eos_token = None
    with pytest.raises(ValueError, match="neither one nor an end token"):
        load_or_make_model(
            AutoModelForSequenceClassification, options, FinetuneDataArguments(), tokenizer, {}
        )


def test_the_longer_text_of_a_pair_is_cut_first(tokenizer, caplog):
    rows = encode_texts(["number 1"], ["n"], tokenizer, 8, name="train")
    assert tokenizer.convert_ids_to_tokens(rows["input_ids"][0]) == [
        *("[CLS]", "n", "u", "m", "b", "[SEP]", "n", "[SEP]")
    ]
    assert "1 of 1 train rows have more than 8 tokens" in caplog.text
    whole = encode_texts(["number 1"], None, tokenizer, None, name="train")
    assert len(whole["input_ids"][0]) == 10


def test_predictions_come_back_in_the_order_of_the_rows():
    order = np.array([2, 0, 1])  # sorted row 0 is row 2 of the data
    found = in_order((np.array([[20], [0], [10], [20]]), np.array([2, 0, 1])), order)
    assert found[0].tolist() == [[0], [10], [20]]  # what fills the last batch is left out
    assert found[1].tolist() == [0, 1, 2]


def test_mean_and_spread_are_those_of_a_sample():
    records = {
        1: {"test": {"accuracy": 80.0, "rows": 3}, "train": {"minutes": 1.0}},
        7: {"test": {"accuracy": 83.0, "rows": 3}, "train": {"minutes": 2.0}},
    }
    summary = summarize(records)
    assert summary["seeds"] == [1, 7]
    assert summary["test"] == {
        "accuracy": {"mean": 81.5, "spread": pytest.approx(4.5**0.5), "values": [80.0, 83.0]}
    }
    assert summary["minutes"]["mean"] == 1.5
    assert summarize({1: records[1]})["test"]["accuracy"]["spread"] == 0.0
