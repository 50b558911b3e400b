"""Whatever cannot work is refused with its reason before training, and nothing is written."""

import gzip

import pytest
from run_seq2seq import main, prepare


def refused(options, folder, message):
    with pytest.raises(ValueError, match=message) as caught:
        main(options)
    assert not folder.exists()
    return caught


OPTIONS = {
    "unknown option": (["--lerning_rate", "1"], r"'lerning_rate' \(did you mean learning_rate"),
    "unknown config field": (
        ["--config_overrides", "hiden_size=3"],
        r"RnnSeq2SeqConfig has no field of these names: 'hiden_size' \(did you mean hidden_size",
    ),
    "config value of another type": (
        ["--config_overrides", "hidden_size=wide"],
        "config_overrides: hidden_size must be int, got 'wide'",
    ),
    "config value out of range": (
        ["--config_overrides", "hidden_dropout=1.5"],
        r"config_overrides: RnnSeq2SeqConfig refuses them: .*hidden_dropout must be in \[0, 1\)",
    ),
    "config combination": (
        ["--config_overrides", "cell_type=lstm,gru_reset=before"],
        "gru_reset='before' needs cell_type='gru'",
    ),
    "unknown tokenizer": (["--source_tokenizer_model", "chars"], "invalid choice: 'chars'"),
    "unknown metric": (["--metrics", "blue"], "invalid choice: 'blue'"),
    "metric not computed": (
        ["--metric_for_best_model", "bleu"],
        "metric_for_best_model must be one of exact_match, cer, item_error_rate, loss, got 'bleu'",
    ),
    "generation metric without generation": (
        ["--predict_with_generate", "false", "--metric_for_best_model", "cer"],
        "metric_for_best_model must be one of loss, got 'cer'",
    ),
    "too many hypotheses": (
        ["--num_return_sequences", "3", "--num_beams", "2"],
        "num_return_sequences must not exceed num_beams, got 3 and 2. Raise --num_beams",
    ),
    "held out too much": (["--validation_split", "45"], "got 45 of 45 distinct training sources"),
    "positions": (
        ["--config_overrides", "max_position_embeddings=4"],
        "takes 4 positions .* the longest train source has 5 tokens. Pass --max_source_length 4",
    ),
    "vocabulary": (
        ["--config_overrides", "vocab_size=6"],
        "vocab_size of the model must hold all 9 tokens of the tokenizer, got 6",
    ),
    "two model sources": (["--model_name_or_path", "somewhere"], "give exactly one of"),
    "overwrite and resume": (
        ["--overwrite_output_dir", "--resume_from_checkpoint", "true"],
        "give one of them",
    ),
    "resume from nothing": (["--resume_from_checkpoint", "true"], "holds no complete checkpoint"),
    "resume from a missing folder": (
        ["--resume_from_checkpoint", "nowhere/checkpoint-3"],
        "cannot resume from 'nowhere/checkpoint-3': there is no such folder",
    ),
    "checkpoints out of step with evaluations": (
        ["--save_strategy", "steps"],
        "load_best_model_at_end requires the save and eval strategy to match",
    ),
    "token budget below one row": (
        ["--max_tokens_per_batch", "5"],
        "max_tokens must hold the longest",
    ),
    "unknown tag column": (
        ["--tag_columns", "locale"],
        "'locale' of the row with source .* holds None",
    ),
    "tokenizer described twice": (
        [
            "--shared_tokenizer",
            "--source_tokenizer_model",
            "char",
            "--target_tokenizer_model",
            "word",
        ],
        "shared_tokenizer trains one tokenizer, described by source_tokenizer_model='char'",
    ),
    "prediction without test data": (
        ["--do_predict"],
        "no test pairs to work on. Pass --test_file",
    ),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_wrong_options_are_refused_and_leave_nothing(tiny_options, pair_files, tmp_path, case):
    options, message = OPTIONS[case]
    files = {"train": pair_files["train"]}
    refused(tiny_options(*options, files=files), tmp_path / "run", message)


def test_one_vocabulary_does_not_take_two_tokenizers(tiny_options, tmp_path):
    message = "model_type 'bart' has one vocabulary, .* Pass --shared_tokenizer"
    refused(tiny_options(model_type="bart"), tmp_path / "run", message)


@pytest.mark.parametrize("model_type", ["gpt2", "seqmodel_rnn_seq2seq"])
def test_the_model_type_must_be_an_encoder_decoder(pair_files, tmp_path, model_type):
    options = ["--model_type", model_type, "--train_file", pair_files["train"]]
    options += ["--output_dir", str(tmp_path / "run")]
    caught = refused(options, tmp_path / "run", "model_type must be a registered encoder-decoder")
    if model_type.startswith("seqmodel"):
        assert "did you mean seqmodels_rnn_seq2seq" in str(caught.value)


def test_output_dir_must_be_named(pair_files):
    with pytest.raises(ValueError, match=r"output_dir must be given: .* Pass --output_dir"):
        prepare(["--model_type", "bart", "--train_file", pair_files["train"]])


FILES = {
    "missing": (None, "train.tsv"),
    "empty": (b"", "train.tsv"),
    "ragged": (b"ab\tba\nabc\n", "train.tsv"),
    "bad utf-8": (b"ab\tba\n\xff\xfe\tb\n", "train.tsv"),
}


@pytest.mark.parametrize("part", ["train", "validation", "test"])
@pytest.mark.parametrize("case", FILES)
def test_bad_files_are_refused_by_name(tiny_options, pair_files, tmp_path, case, part):
    content, name = FILES[case]
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    options = tiny_options(files={**pair_files, part: str(path)})
    with pytest.raises((ValueError, OSError), match=name):
        main(options)
    assert not (tmp_path / "run").exists()


def test_a_truncated_gzip_file_is_refused_by_name(tiny_options, pair_files, tmp_path):
    path = tmp_path / "train.tsv.gz"
    path.write_bytes(gzip.compress(b"ab\tba\n" * 999)[:-12])
    with pytest.raises((ValueError, OSError), match=r"train.tsv.gz"):
        main(tiny_options(files={**pair_files, "train": str(path)}))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"notes.txt": "mine"}, "holds files that no run has written: notes.txt"),
        (
            {"config.json": "{}", "metrics.json": "{}"},
            "holds a finished run. Choose another folder",
        ),
    ],
)
def test_a_folder_with_something_in_it_is_left_alone(tiny_options, tmp_path, content, message):
    folder = tmp_path / "run"
    folder.mkdir()
    for name, text in content.items():
        (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        main(tiny_options())
    assert {path.name: path.read_text() for path in folder.iterdir()} == content


def test_overwriting_leaves_foreign_files_alone(tiny_options, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match=r"holds files that no run has written: notes.txt"):
        prepare(tiny_options("--overwrite_output_dir"))


def test_a_named_checkpoint_does_not_open_a_foreign_folder(tiny_options, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match=r"holds files that no run has written: notes\.txt"):
        prepare(tiny_options("--resume_from_checkpoint", str(tmp_path / "checkpoint-3")))


def test_an_output_dir_that_is_a_file_is_refused(tiny_options, tmp_path):
    (tmp_path / "run").write_text("x", encoding="utf-8")
    with pytest.raises(ValueError, match=r"output_dir must be a folder, but .* is a file"):
        prepare(tiny_options())


def test_a_refused_trainer_leaves_no_empty_folder(tiny_options, tmp_path, monkeypatch):
    def refuse(self, token=None):
        raise OSError("no such repository")

    monkeypatch.setattr("transformers.Trainer.init_hf_repo", refuse)
    with pytest.raises(OSError, match="no such repository"):
        main(tiny_options("--push_to_hub"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_damaged_checkpoint_to_start_from_is_refused(tiny_options, pair_files, tmp_path, name):
    main(tiny_options("--num_train_epochs", "1", output_dir=tmp_path / "first"))
    path = tmp_path / "first" / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    options = ["--model_name_or_path", str(tmp_path / "first"), "--train_file", pair_files["train"]]
    message = "cannot load .*first.* save them again"
    refused([*options, "--output_dir", str(tmp_path / "run")], tmp_path / "run", message)


def test_a_model_that_is_nowhere_is_refused(pair_files, tmp_path):
    options = ["--model_name_or_path", "no/such-model", "--train_file", pair_files["train"]]
    refused(
        [*options, "--output_dir", str(tmp_path / "run")], tmp_path / "run", "cannot load 'no/such"
    )


def test_overrides_for_a_ready_model_are_refused(pair_files, tmp_path):
    options = ["--model_name_or_path", "x", "--config_overrides", "hidden_size=3"]
    refused(
        [*options, "--train_file", pair_files["train"], "--output_dir", str(tmp_path / "run")],
        tmp_path / "run",
        "config_overrides describe a fresh model, .* got hidden_size",
    )


@pytest.mark.parametrize(
    "option",
    [
        ["--source_tokenizer_model", "char"],
        ["--target_vocab_size", "90"],
        ["--source_extra_tokens", "<x>"],
        ["--tokenizer_min_frequency", "2"],
        ["--lowercase_source"],
    ],
)
def test_a_ready_tokenizer_is_not_trained(pair_files, tmp_path, option):
    options = ["--model_name_or_path", "x", "--train_file", pair_files["train"], *option]
    message = f"the tokenizer comes from 'x' as it is, so {option[0][2:]} cannot be honoured"
    refused([*options, "--output_dir", str(tmp_path / "run")], tmp_path / "run", message)


def test_files_and_a_dataset_name_are_refused_together(tiny_options, tmp_path):
    message = "give either data files or dataset_name, not both"
    refused(tiny_options("--dataset_name", "squad"), tmp_path / "run", message)


def test_no_data_at_all_is_refused(tiny_options, tmp_path):
    refused(tiny_options(files={}), tmp_path / "run", "no data: pass --train_file")


def test_keeping_the_best_model_needs_validation_data(tiny_options, pair_files, tmp_path):
    options = ["--validation_split", "0", "--early_stopping_patience", "2"]
    message = "need validation data. Pass --validation_file"
    refused(tiny_options(*options, files={"train": pair_files["train"]}), tmp_path / "run", message)


def test_the_command_prints_one_line_for_wrong_input(tiny_options, monkeypatch, capsys):
    import run_seq2seq

    monkeypatch.setattr("sys.argv", ["run_seq2seq.py", *tiny_options("--seed", "x")])
    with pytest.raises(
        SystemExit, match=r"run_seq2seq.py: error: argument --seed: invalid int value"
    ):
        run_seq2seq.command()


def test_empty_sources_are_no_error(tiny_options, pair_files, tmp_path):
    path = tmp_path / "train.jsonl"
    with open(pair_files["train"], encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    lines = [f'{{"source": "{source}", "target": "{target}"}}\n' for source, target in rows]
    path.write_text("".join(['{"source": "", "target": "a"}\n', *lines]), encoding="utf-8")
    record = main(tiny_options(files={**pair_files, "train": str(path)}))
    assert record["train"]["rows"] == 46
    assert record["test"]["loss"] == record["test"]["loss"]  # not NaN
