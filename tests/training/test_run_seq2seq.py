"""The script from end to end: what a run writes, and that the written thing works."""

import json
import re
from pathlib import Path

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from run_seq2seq import main, prepare
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig

EXPECTED_FILES = {
    *("README.md", "metrics.json", "predictions.jsonl", "learning_curve.png"),
    *("alignments.png", "alignments.html"),
    *("config.json", "generation_config.json", "model.safetensors", "trainer_state.json"),
    *("tokenizer.json", "tokenizer_config.json"),
}


@pytest.fixture(scope="module")
def finished(pair_files, tmp_path_factory):
    """A finished run with beams and n-best lists: its folder and its record."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    record = main(
        [
            *("--model_type", "seqmodels_rnn_seq2seq", "--output_dir", str(folder)),
            *("--config_overrides", "embedding_size=8,hidden_size=24,hidden_dropout=0"),
            *(word for part in pair_files for word in (f"--{part}_file", pair_files[part])),
            *("--num_train_epochs", "6", "--learning_rate", "0.03", "--logging_steps", "5"),
            *("--metrics", "exact_match", "cer", "bleu", "--num_beams", "3"),
            *("--num_return_sequences", "2", "--length_penalty", "0.5", "--use_cpu"),
            *("--disable_tqdm", "true", "--hub_token", "secret"),
        ]
    )
    return folder, record


def test_the_output_folder_is_complete(finished):
    folder, _ = finished
    names = {path.name for path in folder.iterdir()}
    assert names >= EXPECTED_FILES
    assert "_unfinished" not in names
    assert all((folder / name).stat().st_size > 0 for name in EXPECTED_FILES)


def test_metrics_json_holds_the_record(finished):
    folder, record = finished
    stored = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert stored == record
    assert set(stored["test"]) == {
        *("exact_match", "cer", "item_error_rate", "bleu", "loss", "seconds", "signatures")
    }
    assert stored["data"]["train"]["rows"] == 45
    assert stored["decoding"] == {"num_beams": 3, "max_length": 8, "length_penalty": 0.5}


def test_predictions_agree_with_the_saved_model(finished):
    folder, record = finished
    with (folder / "predictions.jsonl").open(encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for line in lines:
        batch = tokenizer([line["source"]], return_tensors="pt")
        text = tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True)[0]
        assert text == line["prediction"] == line["n_best"][0]["text"]
        assert line["references"] == [line["source"][::-1]]
        assert len(line["n_best"]) == 2
        assert line["n_best"][0]["score"] >= line["n_best"][1]["score"]
    hits = [line["prediction"] in line["references"] for line in lines]
    assert record["test"]["exact_match"] == pytest.approx(100 * sum(hits) / len(hits))


def test_predictions_keep_the_order_of_the_test_file(finished, pair_files):
    folder, _ = finished
    with open(pair_files["test"], encoding="utf-8") as file:
        sources = [line.split("\t")[0] for line in file]
    with (folder / "predictions.jsonl").open(encoding="utf-8") as file:
        assert [json.loads(line)["source"] for line in file] == sources


def test_generation_config_is_that_of_the_evaluation(finished):
    folder, _ = finished
    config = GenerationConfig.from_pretrained(folder)
    assert (config.num_beams, config.length_penalty, config.max_length) == (3, 0.5, 8)
    ids = (config.pad_token_id, config.bos_token_id, config.decoder_start_token_id)
    assert ids == (0, 1, 1)
    assert config.eos_token_id in (2, [2])  # a list in older versions of transformers
    assert AutoModelForSeq2SeqLM.from_pretrained(folder).config.use_cache is True


def test_the_snippet_of_the_card_prints_what_it_says(finished, capsys, monkeypatch):
    folder, _ = finished
    card = (folder / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(folder.parent)  # the card knows the name of the folder, not its place
    snippet = re.search(r"```python\n(.*?)```", card, re.DOTALL).group(1)
    exec(snippet, {})
    assert f"# {capsys.readouterr().out.strip()}" in snippet


def test_the_card_is_a_hub_card_with_the_figures(finished):
    folder, record = finished
    card = ModelCard.load(folder / "README.md")
    results = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert results["exact_match"] == pytest.approx(record["test"]["exact_match"], abs=1e-3)
    assert "$" not in card.text
    assert "recurrent encoder-decoder" in card.text
    digest = record["data"]["test"]["sha256"][:16]
    for word in (digest, "cer", "--learning_rate 0.03", "`alignments.html` holds"):
        assert word in card.text


def test_the_options_of_the_card_are_a_recipe_of_the_same_run(
    finished, pair_files, tmp_path, monkeypatch
):
    folder, record = finished
    card = (folder / "README.md").read_text(encoding="utf-8")
    recipe = tmp_path / "again.yaml"
    recipe.write_text(re.search(r"```yaml\n(.*?)```", card, re.DOTALL).group(1), encoding="utf-8")
    monkeypatch.chdir(Path(pair_files["train"]).parent)  # the card shortens absolute paths
    again = main([str(recipe), "--output_dir", str(tmp_path / "again")])
    assert again["test"]["loss"] == record["test"]["loss"]
    assert again["options"] == record["options"] == yaml.safe_load(recipe.read_text())


def test_access_tokens_are_in_no_file(finished):
    folder, _ = finished
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert folder / "training_args.bin" in written  # pickled arguments, which Trainer pushes too
    assert not [path.name for path in written if b"secret" in path.read_bytes()]


def test_the_best_model_is_the_one_saved(finished):
    folder, record = finished
    state = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
    scores = [entry["eval_exact_match"] for entry in state["log_history"] if "eval_loss" in entry]
    assert state["best_metric"] == max(scores)
    best = AutoModelForSeq2SeqLM.from_pretrained(
        folder / f"checkpoint-{record['train']['best_step']}"
    )
    saved = AutoModelForSeq2SeqLM.from_pretrained(folder)
    for name, weight in saved.state_dict().items():
        assert torch.equal(weight, best.state_dict()[name])


@pytest.mark.parametrize("metric", ["loss", "cer", "item_error_rate", "eval_per", "exact_match"])
def test_error_rates_are_better_when_lower(tiny_options, metric):
    run = prepare(
        tiny_options("--metrics", "exact_match", "cer", "per", "--metric_for_best_model", metric)
    )
    assert run.args.greater_is_better is (metric == "exact_match")
    assert prepare(tiny_options("--metrics", "per", "cer")).args.greater_is_better is False


def test_the_reported_validation_score_is_the_best_of_the_run(tiny_options, tmp_path):
    options = [
        "--learning_rate",
        "0.1",
        "--num_train_epochs",
        "4",
        "--metrics",
        "exact_match",
        "cer",
    ]
    record = main(tiny_options(*options, "--metric_for_best_model", "cer"))
    state = json.loads((tmp_path / "run" / "trainer_state.json").read_text(encoding="utf-8"))
    rates = [entry["eval_cer"] for entry in state["log_history"] if "eval_cer" in entry]
    assert len(set(rates)) > 1
    assert record["validation"]["cer"] == pytest.approx(min(rates))


def test_any_encoder_decoder_of_transformers_is_trained(tiny_options, tmp_path):
    record = main(tiny_options("--shared_tokenizer", model_type="bart"))
    folder = tmp_path / "run"
    assert {path.name for path in folder.iterdir()} >= EXPECTED_FILES
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "import hf_seqmodels" not in card  # nothing of ours is needed to load it
    assert record["model_type"] == "bart"
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert model.config.vocab_size == len(AutoTokenizer.from_pretrained(folder))


def test_a_model_without_attention_has_no_alignments(tiny_options, tmp_path):
    main(tiny_options("--config_overrides", "attention_scorer=none", "--num_train_epochs", "1"))
    names = {path.name for path in (tmp_path / "run").iterdir()}
    drawn = {"alignments.png", "alignments.html"}
    assert names >= EXPECTED_FILES - drawn and not names & drawn


def test_training_goes_on_from_a_saved_model(finished, tiny_options, pair_files, tmp_path):
    folder, record = finished
    options = tiny_options("--num_train_epochs", "1", "--learning_rate", "0", "--num_beams", "3",
                           "--length_penalty", "0.5", "--metrics", "exact_match")  # fmt: skip
    options = options[options.index("--train_file") :]
    again = main(["--model_name_or_path", str(folder), *options])
    assert again["test"]["exact_match"] == record["test"]["exact_match"]


def test_a_saved_model_is_evaluated_without_training(finished, pair_files, tmp_path):
    folder, record = finished
    options = ["--model_name_or_path", str(folder), "--test_file", pair_files["test"]]
    options += ["--metrics", "exact_match", "cer"]
    again = main([*options, "--output_dir", str(tmp_path / "eval"), "--use_cpu"])
    names = {path.name for path in (tmp_path / "eval").iterdir()}
    assert again["test"]["cer"] == record["test"]["cer"]
    assert again["decoding"] == record["decoding"]  # what the checkpoint says
    assert names == {"metrics.json", "predictions.jsonl", "alignments.png", "alignments.html"}


def test_validation_is_held_out_where_none_is_given(tiny_options, pair_files, tmp_path):
    files = {"train": pair_files["train"]}
    run = prepare(tiny_options("--validation_split", "0.2", files=files))
    train = {example.source for example in run.corpus.train}
    validation = {example.source for example in run.corpus.validation}
    assert (len(train), len(validation)) == (36, 9)
    assert not train & validation
    assert run.args.do_predict is False


def test_without_validation_the_last_model_is_kept(tiny_options, pair_files, tmp_path):
    files = {"train": pair_files["train"], "test": pair_files["test"]}
    record = main(tiny_options("--validation_split", "0", files=files))
    assert "validation" not in record
    assert record["train"]["best_step"] == record["train"]["steps"]


def test_a_run_on_training_data_alone_writes_a_card_that_works(
    tiny_options, pair_files, tmp_path, capsys, monkeypatch
):
    files = {"train": pair_files["train"]}
    main(tiny_options("--validation_split", "0", "--num_train_epochs", "1", files=files))
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    snippet = re.search(r"```python\n(.*?)```", card, re.DOTALL).group(1)
    capsys.readouterr()
    monkeypatch.chdir(tmp_path)
    exec(snippet, {})
    assert f"# {capsys.readouterr().out.strip()}" in snippet


def test_early_stopping_ends_the_run(tiny_options):
    options = ["--learning_rate", "0", "--early_stopping_patience", "2", "--num_train_epochs", "9"]
    record = main(tiny_options(*options, "--metric_for_best_model", "loss"))
    assert record["train"]["epochs"] == 3


def test_label_smoothing_moves_into_a_configuration_that_has_it(tiny_options):
    run = prepare(tiny_options("--label_smoothing_factor", "0.1"))
    assert run.trainer.model.config.label_smoothing == 0.1
    assert run.trainer.label_smoother is None


def test_label_smoothing_stays_with_the_trainer_otherwise(tiny_options):
    options = ("--label_smoothing_factor", "0.1", "--shared_tokenizer")
    run = prepare(tiny_options(*options, model_type="bart"))
    assert run.trainer.label_smoother.epsilon == 0.1


def test_targets_longer_than_the_limit_are_cut_in_training_only(tiny_options, caplog):
    run = prepare(tiny_options("--max_target_length", "3"))
    assert max(len(labels) for labels in run.encoded["train"]["labels"]) == 3
    assert run.trainer.model.generation_config.max_length == 4
    assert "train targets have more than 3 tokens and are cut" in caplog.text
    assert all(len(example.references[0]) > 1 for example in run.corpus.test)


def test_push_to_hub_uploads_the_finished_folder(tiny_options, tmp_path, monkeypatch):
    pushed = []
    monkeypatch.setattr("transformers.Trainer.init_hf_repo", lambda self, token=None: None)
    monkeypatch.setattr(
        "transformers.Trainer.push_to_hub",
        lambda self: pushed.append(sorted(path.name for path in (tmp_path / "run").iterdir())),
    )
    main(
        tiny_options(
            "--push_to_hub", "--hub_model_id", "someone/reverser", "--num_train_epochs", "1"
        )
    )
    assert set(pushed[0]) >= EXPECTED_FILES
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert 'from_pretrained("someone/reverser")' in card


def test_the_card_of_the_run_survives_the_upload(tiny_options, tmp_path, monkeypatch):
    run = prepare(tiny_options())
    run.trainer.create_model_card(model_name="reverser")
    assert not (tmp_path / "run" / "README.md").exists()
