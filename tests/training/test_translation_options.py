"""run_seq2seq.py and evaluate_seq2seq.py with what translation uses, for both families."""

import json

import evaluate_seq2seq
import pytest
import torch
from run_seq2seq import main, prepare
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

BPE = ("--source_tokenizer_model", "bpe", "--source_vocab_size", "40", "--shared_tokenizer")
TRANSLATION = (
    *BPE,
    *("--bpe_dropout", "0.3", "--max_tokens_per_batch", "120", "--lr_scheduler_type"),
    *("inverse_sqrt", "--warmup_steps", "3", "--label_smoothing_factor", "0.1", "--bf16", "true"),
    *("--metrics", "bleu", "bleu_lowercase"),
)


@pytest.mark.slow
def test_both_families_train_average_and_decode_together(tiny_options, pair_files, tmp_path):
    for model_type in ("seqmodels_transformer_seq2seq", "seqmodels_rnn_seq2seq"):
        folder = tmp_path / model_type
        average = ("--average_last", "2", "--average_decay", "0.5", "--num_train_epochs", "3")
        options = tiny_options(*TRANSLATION, *average, output_dir=folder, model_type=model_type)
        record = main(options)
        model = AutoModelForSeq2SeqLM.from_pretrained(folder)
        assert model.config.model_type == model_type
        assert model.config.label_smoothing == 0.1
        assert model.dtype == torch.float32
        averaged = record["train"]["averaged_steps"]
        assert len(averaged) == 2
        weights = [load_file(folder / f"checkpoint-{s}" / "model.safetensors") for s in averaged]
        for name, value in load_file(folder / "model.safetensors").items():
            torch.testing.assert_close(value, (weights[0][name] + 2 * weights[1][name]) / 3)
        assert '"dropout": null' in (folder / "tokenizer.json").read_text(encoding="utf-8")
        assert AutoTokenizer.from_pretrained(folder)("abc") == AutoTokenizer.from_pretrained(
            folder
        )("abc")
        signatures = record["test"]["signatures"]
        assert "case:lc" in signatures["bleu_lowercase"]
        assert "case:mixed" in signatures["bleu"]
    models = [tmp_path / "seqmodels_transformer_seq2seq", tmp_path / "seqmodels_rnn_seq2seq"]
    (models[1] / "tokenizer.json").write_bytes((models[0] / "tokenizer.json").read_bytes())
    record = evaluate_seq2seq.main(
        [
            *("--model_name_or_path", *map(str, models), "--test_file", pair_files["test"]),
            *("--metrics", "bleu_lowercase", "--output_dir", str(tmp_path / "together")),
        ]
    )
    lines = (tmp_path / "together" / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 8
    assert all("prediction" in json.loads(line) for line in lines)
    assert record["test"]["bleu_lowercase"] >= 0


def test_the_schedule_warms_up_and_falls_with_the_root_of_the_step(tiny_options):
    run = prepare(tiny_options(*TRANSLATION, model_type="seqmodels_transformer_seq2seq"))
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = run.trainer.create_scheduler(100, optimizer)
    rates = []
    for _ in range(14):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    expected = [min(step / 3, (3 / max(step, 1)) ** 0.5) for step in range(14)]
    assert rates == pytest.approx(expected, rel=1e-6)


def test_training_rows_are_cut_anew_and_validation_rows_are_not(tiny_options):
    run = prepare(tiny_options(*TRANSLATION))
    rows = run.trainer.train_dataset
    assert len(rows) == 45
    assert len({tuple(rows[7]["input_ids"]) for _ in range(30)}) > 1
    expected = run.tokenizer([run.corpus.train[7].source])["input_ids"][0]
    assert run.encoded["train"][7]["input_ids"] == expected
    assert run.tokenizer.backend_tokenizer.model.dropout is None


@pytest.mark.parametrize(
    "words, message",
    [
        (("--bpe_dropout", "0.1"), "only a fast BPE tokenizer has"),
        ((*BPE, "--bpe_dropout", "1.5"), "between 0 and 1"),
        (("--average_last", "2", "--average_best", "2"), "exclude each other"),
        (("--average_last", "0"), "at least 1"),
        (("--average_decay", "0.5"), "Pass average_last or average_best"),
        (("--average_last", "2", "--average_decay", "1.5"), r"decay must be in \(0, 1\], got 1.5"),
        (("--average_last", "3", "--save_total_limit", "3"), "needs 4 checkpoints"),
        (("--average_best", "3", "--save_total_limit", "9"), "needs all checkpoints"),
        (("--split_punctuation", "true"), "for the models bpe and unigram"),
    ],
)
def test_what_cannot_be_honoured_is_refused_before_anything_is_written(
    tiny_options, tmp_path, words, message
):
    with pytest.raises(ValueError, match=message):
        prepare(tiny_options(*words))
    assert not (tmp_path / "run").exists()
