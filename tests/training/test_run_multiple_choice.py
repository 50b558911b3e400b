"""run_multiple_choice.py from end to end: what a run writes, that it is right, what is refused."""

import csv
import json
import random

import pytest
import torch
from finetune_run import main, prepare
from run_multiple_choice import MultipleChoiceTask
from transformers import AutoModelForMultipleChoice, AutoTokenizer

from tiny_finetuning import finetune_argv, predictions_of, write_parts, write_rows


def question_rows(count):
    """Questions with two to four choices."""
    draw, rows = random.Random(0), []
    for number in range(count):
        choices = draw.sample(["red", "green", "blue", "a long answer"], 2 + number % 3)
        right = draw.randrange(len(choices))
        context = f"the house {number} is {choices[right]}"
        row = {"context": context, "question": "what is it?", "choices": choices, "label": right}
        rows.append(row)
    return rows


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_parts(tmp_path_factory.mktemp("rows"), question_rows(29))


@pytest.fixture(scope="module", params=["seqmodels_text_encoder", "bert"])
def finished(request, files, tmp_path_factory):
    """A finished run of each kind of model: its folder and its record."""
    folder = tmp_path_factory.mktemp("runs") / request.param
    argv = finetune_argv(files, folder, model_type=request.param)
    return folder, main(MultipleChoiceTask, argv)


def test_predictions_are_those_of_the_saved_model_one_row_at_a_time(finished, files):
    folder, record = finished
    assert (folder / "README.md").exists()
    model = AutoModelForMultipleChoice.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    lines, nats = predictions_of(folder), 0.0
    with open(files["test"], encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    for line, row in zip(lines, rows, strict=True):
        assert {name: line[name] for name in row} == row
        seconds = [f"{row['question']} {choice}" for choice in row["choices"]]
        batch = tokenizer(
            [row["context"]] * len(seconds), seconds, return_tensors="pt", padding=True
        )
        with torch.no_grad():
            logits = model(**{name: values[None] for name, values in batch.items()}).logits[0]
        assert line["probabilities"] == pytest.approx(logits.softmax(-1).tolist(), abs=1e-5)
        assert line["prediction"] == logits.argmax()
        nats -= logits.log_softmax(-1)[row["label"]].item()
    right = [line["prediction"] == line["label"] for line in lines]
    assert record["test"]["accuracy"] == pytest.approx(100 * sum(right) / len(right))
    assert record["test"]["loss"] == pytest.approx(nats / len(lines), rel=1e-4)


def test_gradients_are_those_of_rows_without_filling(files, tmp_path):
    run = prepare(MultipleChoiceTask, finetune_argv(files, tmp_path / "run", model_type="bert"))
    trainer, model = run.trainer, run.trainer.model.eval()
    features = [trainer.train_dataset[row] for row in range(4)]
    kept = ("input_ids", "attention_mask", "token_type_ids", "labels")
    features = [{name: row[name] for name in kept} for row in features]
    assert len({len(row["input_ids"]) for row in features}) > 1
    trainer.compute_loss(model, trainer.data_collator(features)).backward()
    together = {name: value.grad.clone() for name, value in model.named_parameters()}
    model.zero_grad()
    for row in features:
        (model(**trainer.data_collator([row])).loss / 4).backward()
    for name, value in model.named_parameters():
        torch.testing.assert_close(together[name], value.grad, rtol=1e-4, atol=1e-7)


def test_rows_of_swag_and_cells_of_tables_are_read(tmp_path):
    path = tmp_path / "swag.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["sent1", "sent2", *(f"ending{n}" for n in range(4)), "label"])
        table.writerow(["He sits.", "He", "eats", "flies", "sings", "rains", "0"])
        table.writerow(["She runs.", "She", "wins", "is tall", "", "", "is tall"])
    parts = {"train": str(path)}
    more = ["--validation_split", "0"]
    run = prepare(MultipleChoiceTask, finetune_argv(parts, tmp_path / "run", *more))
    assert run.task.choices["train"] == [["eats", "flies", "sings", "rains"], ["wins", "is tall"]]
    assert run.task.right["train"] == [0, 1]
    decoded = run.tokenizer.decode(run.encoded["train"][1]["input_ids"][1])
    assert decoded == "[CLS] She runs. [SEP] She is tall [SEP]"


def test_rows_without_labels_are_predicted_and_not_scored(files, tmp_path):
    rows = [{k: v for k, v in row.items() if k != "label"} for row in question_rows(5)]
    parts = {**files, "test": write_rows(tmp_path / "unlabelled.jsonl", rows)}
    argv = finetune_argv(parts, tmp_path / "run", "--num_train_epochs", "1", model_type="bert")
    record = main(MultipleChoiceTask, argv)
    assert set(record["test"]) == {"seconds"}
    lines = predictions_of(tmp_path / "run")
    assert all(line["prediction"] < len(line["choices"]) for line in lines)


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        ({"label": 2}, [], "train.jsonl:2: .* number of the right choice, 0 to 1 here"),
        ({"label": None}, [], "train.jsonl:2: .* or its text, got None"),
        ({"choices": ["a"]}, [], r"train.jsonl:2: .* at least two texts .* \['a'\]"),
        ({"choices": ["a", 1]}, [], "at least two texts to choose from"),
        ({"context": 3}, [], "train.jsonl:2: the column 'context' must hold a text, got 3"),
        ({}, ["--choices_columns", "a,b"], "choices_columns: .* no column 'a', 'b'"),
        ({}, ["--label_smoothing_factor", "0.1"], "got 0.1. Leave it out"),
        ({}, ["--metric_for_best_model", "f1"], "one of accuracy, loss .* got 'f1'"),
    ],
)
def test_rows_and_options_that_cannot_work_are_refused(tmp_path, change, more, message):
    rows = [{"context": "c", "question": "q", "choices": ["a", "b"], "label": 0} for _ in "123"]
    rows[1].update(change)
    parts = {"train": write_rows(tmp_path / "train.jsonl", rows)}
    with pytest.raises(ValueError, match=message):
        prepare(MultipleChoiceTask, finetune_argv(parts, tmp_path / "run", *more))
    assert not (tmp_path / "run").exists()


def test_columns_that_cannot_be_told_are_refused(tmp_path):
    for row, message in (
        ({"choices": ["a", "b"], "label": 0}, "cannot tell what the choices answer"),
        ({"question": "q", "answers": ["a", "b"]}, "cannot tell which columns hold the choices"),
    ):
        parts = {"train": write_rows(tmp_path / "train.jsonl", [row] * 3)}
        with pytest.raises(ValueError, match=message):
            prepare(MultipleChoiceTask, finetune_argv(parts, tmp_path / "run"))
