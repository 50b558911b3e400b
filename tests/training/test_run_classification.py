"""run_classification.py from end to end: what a run writes, that it is right, what is refused."""

import json
import math
import random

import numpy as np
import pytest
import torch
from classification_labels import (
    MULTI,
    REGRESSION,
    SINGLE,
    LabelReader,
    decide_labels,
    encode_labels,
)
from datasets import ClassLabel, Features
from finetune_data import Part
from finetune_run import main, prepare
from finetune_trainer import binary_cross_entropy, cross_entropy, squared_error
from run_classification import ClassificationTask
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    pipeline,
)

from tiny_finetuning import finetune_argv, predictions_of, write_parts, write_rows

COLOURS = ("red", "green", "blue")


def colour_rows(count, seed=0):
    """Sentences with a colour, and every kind of label."""
    draw, rows = random.Random(seed), []
    for number in range(count):
        chosen = [draw.choice(COLOURS) for _ in range(2)]
        rows.append(
            {
                "text": f"a {chosen[0]} house and {'a' * (number % 5)} tree",
                "other": f"the {chosen[1]} car",
                "colour": chosen[0],
                "colours": sorted(set(chosen)),
                "same": int(chosen[0] == chosen[1]),
                "value": COLOURS.index(chosen[0]) / 2 + 0.25,
            }
        )
    return rows


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_parts(tmp_path_factory.mktemp("rows"), colour_rows(33))


KINDS = {
    "single": ("seqmodels_text_encoder", ["--label_column_name", "colour"]),
    "pairs": ("bert", ["--label_column_name", "same", "--text_column_names", "text, other"]),
    "regression": ("roberta", ["--label_column_name", "value"]),
    "multi": ("seqmodels_decoder_lm", ["--label_column_name", "colours"]),
}


@pytest.fixture(scope="module", params=KINDS)
def finished(request, files, tmp_path_factory):
    """A finished run of each kind of label and model: its kind, folder and record."""
    model_type, options = KINDS[request.param]
    folder = tmp_path_factory.mktemp("runs") / request.param
    argv = finetune_argv(files, folder, *options, model_type=model_type)
    return request.param, folder, main(ClassificationTask, argv)


def test_the_folder_holds_a_model_that_loads_and_its_report(finished):
    kind, folder, record = finished
    names = {path.name for path in folder.iterdir()}
    assert names >= {"README.md", "metrics.json", "predictions.jsonl", "learning_curve.png"}
    assert json.loads((folder / "metrics.json").read_text(encoding="utf-8")) == record
    config = AutoModelForSequenceClassification.from_pretrained(folder).config
    expected = {
        "single": (SINGLE, {0: "blue", 1: "green", 2: "red"}),
        "pairs": (SINGLE, {0: "0", 1: "1"}),
        "regression": (REGRESSION, {0: "value"}),
        "multi": (MULTI, {0: "blue", 1: "green", 2: "red"}),
    }
    assert (config.problem_type, config.id2label) == expected[kind]
    assert config.vocab_size == len(AutoTokenizer.from_pretrained(folder))
    assert record["data"]["train"]["rows"] == 20


def test_predictions_are_those_of_the_pipeline(finished):
    kind, folder, _ = finished
    classify = pipeline("text-classification", model=str(folder), device="cpu")
    for line in predictions_of(folder):
        text = (
            {"text": line["text"], "text_pair": line["other"]} if kind == "pairs" else line["text"]
        )
        found = {item["label"]: item["score"] for item in classify(text, top_k=None)}
        if kind == "regression":
            assert line["prediction"] == pytest.approx(found["value"], abs=1e-5)
            continue
        assert line["probabilities"] == pytest.approx(found, abs=1e-5)
        if kind == "multi":
            assert line["prediction"] == sorted(name for name in found if found[name] >= 0.5)
        else:
            assert line["prediction"] == max(found, key=found.__getitem__)


def test_figures_are_those_of_the_predictions(finished):
    kind, folder, record = finished
    lines = predictions_of(folder)
    right = [line["prediction"] == line["label"] for line in lines]
    if kind == "regression":
        values = np.array([[line["prediction"], line["label"]] for line in lines]).T
        assert record["test"]["pearson"] == pytest.approx(100 * np.corrcoef(values)[0, 1], rel=1e-5)
        assert record["test"]["mse"] == pytest.approx(np.mean((values[0] - values[1]) ** 2))
        assert record["test"]["loss"] == pytest.approx(record["test"]["mse"], rel=1e-5)
        return
    assert record["test"]["accuracy"] == pytest.approx(100 * sum(right) / len(lines))
    nats = []
    for line in lines:
        share = line["probabilities"]
        if kind == "multi":
            nats += [-math.log(p if n in line["label"] else 1 - p) for n, p in share.items()]
        else:
            nats.append(-math.log(share[line["label"]]))
    assert record["test"]["loss"] == pytest.approx(sum(nats) / len(nats), rel=1e-4)
    if kind != "multi":
        table = record["confusions"]["rows_are_right_columns_predicted"]
        assert sum(table[i][i] for i in range(len(table))) == sum(right)
        assert sum(map(sum, table)) == len(lines)


@pytest.mark.parametrize("kind", [SINGLE, MULTI, REGRESSION])
def test_losses_are_those_of_transformers(kind):
    torch.manual_seed(0)
    labels = {
        SINGLE: torch.tensor([2, 0]),
        MULTI: torch.tensor([[1.0, 0, 1], [0, 0, 1]]),
        REGRESSION: torch.tensor([0.5, -2.0]),
    }[kind]
    loss = {SINGLE: cross_entropy, MULTI: binary_cross_entropy, REGRESSION: squared_error}[kind]
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=11,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=9,
            num_labels=1 if kind == REGRESSION else 3,
            problem_type=kind,
        )
    ).eval()
    outputs = model(torch.tensor([[3, 4, 5], [6, 7, 8]]), labels=labels)
    torch.testing.assert_close(loss(outputs, labels), outputs.loss)
    if kind == SINGLE:
        expected = torch.nn.CrossEntropyLoss(label_smoothing=0.1)(outputs.logits, labels)
        torch.testing.assert_close(loss(outputs, labels, label_smoothing=0.1), expected)
    half = loss(outputs, labels, num_items_in_batch=2 * labels.numel())
    torch.testing.assert_close(half, outputs.loss / 2)


def test_accumulated_batches_train_as_one_batch(files, tmp_path):
    more = ["--label_column_name", "colour", "--max_steps", "2", "--optim", "sgd"]
    more += ["--train_sampling_strategy", "sequential", "--learning_rate", "0.5"]
    more += ["--max_grad_norm", "0", "--warmup_steps", "0"]
    more += ["--eval_strategy", "no", "--save_strategy", "no", "--load_best_model_at_end", "false"]
    dropout = ["--config_overrides", "hidden_dropout_prob=0,attention_probs_dropout_prob=0"]
    weights = []
    for size, steps in ((4, 2), (8, 1)):
        sizes = ["--per_device_train_batch_size", str(size)]
        sizes += ["--gradient_accumulation_steps", str(steps)]
        argv = [*finetune_argv(files, tmp_path / str(size), model_type="bert"), *dropout]
        run = prepare(ClassificationTask, [*argv, *more, *sizes])
        run.trainer.train_from(None)
        weights.append(run.trainer.model.state_dict())
    for name in weights[0]:
        torch.testing.assert_close(weights[0][name], weights[1][name], rtol=1e-4, atol=1e-6)


def test_an_interrupted_run_ends_as_if_it_had_not_been(files, tmp_path):
    more = ["--label_column_name", "colour", "--save_strategy", "steps", "--eval_strategy", "steps"]
    more += ["--save_steps", "2", "--eval_steps", "2", "--max_steps", "7"]
    whole, halted = (finetune_argv(files, tmp_path / name, *more) for name in ("whole", "halted"))
    record = main(ClassificationTask, whole)
    run = prepare(ClassificationTask, halted)
    steps = run.trainer.training_step

    def stop_in_step_four(*args, **kwargs):
        if run.trainer.state.global_step == 3:
            raise KeyboardInterrupt
        return steps(*args, **kwargs)

    run.trainer.training_step = stop_in_step_four
    with pytest.raises(KeyboardInterrupt):
        run.trainer.train_from(None)
    resumed = main(ClassificationTask, halted)
    assert resumed["train"]["resumed_at_step"] == 2
    assert resumed["test"]["loss"] == record["test"]["loss"]
    weights = [
        AutoModelForSequenceClassification.from_pretrained(tmp_path / name).state_dict()
        for name in ("whole", "halted")
    ]
    for name in weights[0]:
        assert torch.equal(weights[0][name], weights[1][name]), name


def test_several_seeds_are_runs_of_their_own(files, tmp_path):
    folder = tmp_path / "seeds"
    more = ["--label_column_name", "colour", "--num_train_epochs", "1", "--save_strategy", "no"]
    more += ["--load_best_model_at_end", "false"]
    argv = finetune_argv(files, folder, *more, "--seeds", "5", "6")
    summary = main(ClassificationTask, argv)
    assert summary["seeds"] == [5, 6]
    alone = main(ClassificationTask, finetune_argv(files, tmp_path / "alone", *more, "--seed", "6"))
    losses = summary["test"]["loss"]
    assert losses["values"][1] == alone["test"]["loss"]
    assert losses["mean"] == pytest.approx(np.mean(losses["values"]))
    assert losses["spread"] == pytest.approx(np.std(losses["values"], ddof=1))
    record = json.loads((folder / "seed_6" / "metrics.json").read_text(encoding="utf-8"))
    assert record["command"].endswith("--seeds 6 --output_dir seed_6")
    assert record["command"].count("--seeds") == 1
    finished = (folder / "seed_5" / "model.safetensors").stat().st_mtime_ns
    assert main(ClassificationTask, argv) == summary  # nothing is run again
    assert (folder / "seed_5" / "model.safetensors").stat().st_mtime_ns == finished
    with pytest.raises(ValueError, match="holds a run with other options"):
        prepare(ClassificationTask, [*argv, "--learning_rate", "0.5"])
    with pytest.raises(ValueError, match=r"seeds must differ, got \[5, 5\]"):
        prepare(ClassificationTask, [*argv, "--seeds", "5", "5"])


@pytest.fixture(scope="module")
def checkpoint(files, tmp_path_factory):
    """A model with three colours whose ids are not in alphabetical order."""
    folder = tmp_path_factory.mktemp("checkpoint") / "run"
    more = ["--label_column_name", "colour", "--label_list", "red", "green", "blue"]
    more += ["--num_train_epochs", "1"]
    return folder, main(ClassificationTask, finetune_argv(files, folder, *more))


def test_a_checkpoint_is_scored_without_training(files, checkpoint, tmp_path):
    folder, record = checkpoint
    model = ["--model_name_or_path", str(folder), "--label_column_name", "colour"]
    parts = {part: files[part] for part in ("validation", "test")}
    again = main(
        ClassificationTask, finetune_argv(parts, tmp_path / "again", *model, model_type=None)
    )
    for part in parts:
        assert again[part]["accuracy"] == record[part]["accuracy"]
        assert again[part]["loss"] == pytest.approx(record[part]["loss"], rel=1e-5)
    assert not (tmp_path / "again" / "model.safetensors").exists()
    assert predictions_of(tmp_path / "again") == predictions_of(folder)


def test_a_checkpoint_keeps_the_order_of_its_labels_and_gets_a_new_head_on_demand(
    files, checkpoint, tmp_path
):
    model = ["--model_name_or_path", str(checkpoint[0])]
    same = [*model, "--label_column_name", "colour"]
    run = prepare(
        ClassificationTask, finetune_argv(files, tmp_path / "same", *same, model_type=None)
    )
    assert run.trainer.model.config.id2label == {0: "red", 1: "green", 2: "blue"}
    other = [*model, "--label_column_name", "same"]
    with pytest.raises(ValueError, match="ignore_mismatched_sizes"):
        prepare(ClassificationTask, finetune_argv(files, tmp_path / "no", *other, model_type=None))
    run = prepare(
        ClassificationTask,
        finetune_argv(
            files, tmp_path / "yes", *other, "--ignore_mismatched_sizes", model_type=None
        ),
    )
    assert run.trainer.model.config.id2label == {0: "0", 1: "1"}


def test_a_checkpoint_takes_other_settings_if_its_weights_fit(files, checkpoint, tmp_path):
    more = ["--model_name_or_path", str(checkpoint[0]), "--label_column_name", "colour"]
    argv = finetune_argv(files, tmp_path / "run", *more, model_type=None)
    changes = ["--config_overrides", "classifier_dropout=0.3,pooling=mean"]
    model = prepare(ClassificationTask, [*argv, *changes]).trainer.model
    assert (model.config.classifier_dropout, model.config.pooling) == (0.3, "mean")
    stored = AutoModelForSequenceClassification.from_pretrained(checkpoint[0])
    assert torch.equal(model.score.weight, stored.score.weight)
    for wrong, message in (
        ("dropout=0.3", "TextEncoderConfig has no field of these names: 'dropout'"),
        ("intermediate_size=20", "cannot load"),
    ):
        with pytest.raises(ValueError, match=message):
            prepare(ClassificationTask, [*argv, "--config_overrides", wrong])


def test_test_rows_without_labels_are_predicted_and_not_scored(files, tmp_path):
    rows = [{"text": row["text"]} for row in colour_rows(5, seed=1)]
    parts = {**files, "test": write_rows(tmp_path / "unlabelled.jsonl", rows)}
    more = ["--label_column_name", "colour", "--num_train_epochs", "1"]
    record = main(ClassificationTask, finetune_argv(parts, tmp_path / "run", *more))
    assert set(record["test"]) == {"seconds"}
    lines = predictions_of(tmp_path / "run")
    assert [line["text"] for line in lines] == [row["text"] for row in rows]
    assert all("label" not in line and line["prediction"] in COLOURS for line in lines)
    assert "confusions" not in record


def part(labels, name="train", features=None):
    rows = [{"text": "a", "label": label} for label in labels]
    return Part(name, rows, [f"f:{row + 1}" for row in range(len(rows))], {"name": "f"}, features)


@pytest.mark.parametrize(
    ("reader", "values", "names", "encoded"),
    [
        ({}, [10, 2, 10], ["2", "10"], [1, 0, 1]),
        ({}, ["10", "2", "b"], ["2", "10", "b"], [1, 0, 2]),
        ({}, [1.0, 0.0], ["0", "1"], [1, 0]),
        ({}, [True, False], ["False", "True"], [1, 0]),
        ({}, [["a"], []], ["a"], [[1.0], [0.0]]),
        ({"separator": ";"}, ["b; a", "", "b"], ["a", "b"], [[1, 1], [0, 0], [0, 1]]),
        ({"label_list": ["y", "x"]}, ["x", "x"], ["y", "x"], [1, 1]),
        ({}, [0.5, 1.0], ["label"], [0.5, 1.0]),
        ({"do_regression": True}, ["3", "-1e1"], ["label"], [3.0, -10.0]),
    ],
)
def test_labels_are_numbered(reader, values, names, encoded):
    reader, rows = LabelReader("label", **reader), part(values)
    labels = decide_labels(reader, {"train": rows}, None)
    assert labels.names == names
    assert encode_labels(reader, labels, rows) == encoded


def test_a_dataset_names_its_classes():
    reader = LabelReader("label")
    rows = part([1, 0], features=Features({"label": ClassLabel(names=["no", "yes"])}))
    labels = decide_labels(reader, {"train": rows}, None)
    assert labels.names == ["no", "yes"]
    assert encode_labels(reader, labels, rows) == [1, 0]


@pytest.mark.parametrize(
    ("reader", "train", "validation", "message"),
    [
        ({}, ["a", "a"], [], "at least two labels, but the column 'label' holds only 'a'"),
        ({}, ["a", None], [], "f:2: every row needs a label in the column 'label'"),
        ({}, ["a", ["b"]], [], r"f:2: either all rows have a list .* holds \['b'\] here and 'a'"),
        ({}, [[], []], [], "no row has a label"),
        ({}, ["a", "b"], ["c", "a", "c"], r"not among the 2 known ones: 'c' \(2 rows, first f:1\)"),
        ({}, ["a", "b"], [["a"]], "f:1: a row must have one label"),
        ({"label_list": ["a"] * 2}, ["a"], [], "label_list must name every label once"),
        ({"do_regression": False}, [0.5, 1], [], "f:1: a class must be a text or a whole number"),
        ({"do_regression": True}, ["1", "x"], [], "f:2: regression needs a finite number .* 'x'"),
        ({}, [0.5, math.nan], [], "f:2: regression needs a finite number .* nan"),
    ],
)
def test_labels_that_cannot_be_learned_are_refused(reader, train, validation, message):
    reader = LabelReader("label", **reader)
    with pytest.raises(ValueError, match=message):
        labels = decide_labels(reader, {"train": part(train)}, None)
        encode_labels(reader, labels, part(train))
        encode_labels(reader, labels, part(validation, "validation"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "label_column_name: the train rows .* have no column 'label'; they have 'text'"),
        (["--label_column_name", "colour", "--text_column_names", "texts"], "no column 'texts'"),
        (["--label_column_name", "colour", "--text_column_names", "same"], "must hold a text, got"),
        (
            ["--label_column_name", "colour", "--text_column_names", "text,other,colour"],
            "one text or a pair, got 'text', 'other', 'colour'. Pass --text_column_delimiter",
        ),
        (["--label_column_name", "colour", "--metric_name", "f1"], "for these labels, got 'f1'"),
        (["--label_column_name", "colour", "--threshold", "1"], "between 0 and 1, got 1"),
        (["--do_regression", "true", "--label_list", "a"], "no labels to list or to separate"),
        (["--label_column_name", "value", "--label_smoothing_factor", "0.1"], "got 0.1 for regr"),
        (["--label_column_name", "colour", "--max_seq_length", "41"], "the 40 tokens that the mod"),
        (["--label_column_name", "colour", "--pad_to_max_length"], "Pass --max_seq_length"),
        (["--label_column_name", "colour", "--validation_split", "-1"], "validation_split must be"),
        (["--label_column_name", "colour", "--model_type", "seqmodels_rnn_lm"], "sequence classif"),
        (["--tokenizer_name", "a", "--lowercase"], "so lowercase cannot be honoured"),
    ],
)
def test_contradictions_are_refused_before_anything_is_written(files, tmp_path, more, message):
    if "--tokenizer_name" in more:
        more = [*more, "--label_column_name", "colour"]
    with pytest.raises(ValueError, match=message):
        prepare(ClassificationTask, finetune_argv(files, tmp_path / "run", *more))
    assert not (tmp_path / "run").exists()


def test_columns_may_be_joined_and_rows_held_out(files, tmp_path):
    parts = {"train": files["train"]}
    more = ["--label_column_name", "colour", "--text_column_names", "text,other,colour"]
    more += ["--text_column_delimiter", " | ", "--validation_split", "0.3"]
    run = prepare(ClassificationTask, finetune_argv(parts, tmp_path / "run", *more))
    rows = run.corpus["train"].rows + run.corpus["validation"].rows
    assert (len(run.corpus["train"]), len(run.corpus["validation"])) == (14, 6)
    assert len({json.dumps(row) for row in rows}) == len({json.dumps(r) for r in colour_rows(20)})
    texts, seconds = run.task.texts(run.corpus["train"])
    first = run.corpus["train"].rows[0]
    assert texts[0] == " | ".join(first[name] for name in ("text", "other", "colour"))
    assert seconds is None


def test_long_texts_are_cut_and_counted(files, tmp_path, caplog):
    more = ["--label_column_name", "same", "--text_column_names", "text,other"]
    more += ["--max_seq_length", "8", "--pad_to_max_length"]
    run = prepare(ClassificationTask, finetune_argv(files, tmp_path / "run", *more))
    assert "20 of 20 train rows have more than 8 tokens and are cut" in caplog.text
    batch = next(iter(run.trainer.get_train_dataloader()))
    assert batch["input_ids"].shape == (4, 8)
    separators = (batch["input_ids"] == run.tokenizer.sep_token_id).sum(-1)
    assert separators.tolist() == [2] * 4  # something of both texts is left
