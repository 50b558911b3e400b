"""run_ner.py from end to end: what a run writes, that it is right, what is refused."""

import json
import random

import pytest
from finetune_run import main, prepare
from run_ner import TokenTask
from transformers import AutoModelForTokenClassification, pipeline

from hf_seqmodels.evaluation import entities, load_metric
from tiny_finetuning import finetune_argv, predictions_of, write_parts, write_rows
from tiny_tokenizers import roberta_tokenizer

NAMES = {"LOC": ("york", "old york", "paris"), "PER": ("anna bell", "zoe")}


def tagged_rows(count, seed=0):
    """Sentences with places and persons, every eighth one longer than the model's positions."""
    draw, rows = random.Random(seed), []
    for number in range(count):
        tokens, tags = [], []
        for _ in range(60 if number % 8 == 5 else 4):
            kind = draw.choice(("O", "LOC", "PER"))
            words = draw.choice(NAMES.get(kind, ("was", "born in"))).split()
            tokens += words
            tags += [
                "O" if kind == "O" else f"{'I' if i else 'B'}-{kind}" for i in range(len(words))
            ]
        rows.append({"tokens": tokens, "ner_tags": tags})
    return rows


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_parts(tmp_path_factory.mktemp("rows"), tagged_rows(33))


@pytest.fixture(scope="module")
def conll_files(tmp_path_factory):
    """The same rows with a word on each line."""
    folder, rows = tmp_path_factory.mktemp("conll"), tagged_rows(33)
    parts = {"train": rows[:20], "validation": rows[20:27], "test": rows[27:]}
    for part, sentences in parts.items():
        blocks = [
            "".join(f"{word} X {tag}\n" for word, tag in zip(*row.values(), strict=True))
            for row in sentences
        ]
        (folder / f"{part}.conll").write_text("\n".join(blocks), encoding="utf-8")
    return {part: str(folder / f"{part}.conll") for part in parts}


@pytest.fixture(scope="module", params=["seqmodels_text_encoder", "roberta"])
def finished(request, files, conll_files, tmp_path_factory):
    """A finished run of each kind of model and file: its kind, folder and record."""
    folder = tmp_path_factory.mktemp("runs") / request.param
    if request.param == "roberta":
        roberta_tokenizer().save_pretrained(folder.parent / "tokenizer")
        more = ["--tokenizer_name", str(folder.parent / "tokenizer"), "--label_all_tokens"]
        more += ["--config_overrides", "pad_token_id=1"]
        argv = finetune_argv(conll_files, folder, *more, model_type="roberta")
    else:
        argv = finetune_argv(files, folder)
    return request.param, folder, main(TokenTask, argv)


def test_the_folder_holds_a_model_that_loads_and_its_report(finished):
    _, folder, record = finished
    names = {path.name for path in folder.iterdir()}
    assert names >= {"README.md", "metrics.json", "predictions.jsonl", "learning_curve.png"}
    assert json.loads((folder / "metrics.json").read_text(encoding="utf-8")) == record
    config = AutoModelForTokenClassification.from_pretrained(folder).config
    assert list(config.id2label.values()) == ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]
    assert record["data"]["train"]["rows"] == 20
    assert record["max_seq_length"] == 40


def test_every_word_is_labelled_and_the_figures_are_those_of_the_labels(finished):
    _, folder, record = finished
    lines, rows = predictions_of(folder), tagged_rows(33)[27:]
    assert [line["tokens"] for line in lines] == [row["tokens"] for row in rows]
    assert [line["labels"] for line in lines] == [row["ner_tags"] for row in rows]
    assert max(len(line["tokens"]) for line in lines) > 40
    for line in lines:
        assert len(line["prediction"]) == len(line["probabilities"]) == len(line["tokens"])
        spans = [(one["type"], one["start"], one["end"]) for one in line["entities"]]
        assert spans == entities(line["prediction"])
    scores = load_metric("entity_f1").compute(
        predictions=[line["prediction"] for line in lines],
        references=[line["labels"] for line in lines],
    )
    for name in ("f1", "precision", "recall", "accuracy"):
        assert record["test"][name] == scores[name]
    assert record["entity_types"] == {"part": "test", **scores["types"]}


def test_predictions_are_those_of_the_pipeline(finished):
    kind, folder, _ = finished
    if kind == "roberta":
        return  # the pipeline tells words by the ## of WordPiece
    find = pipeline(
        "token-classification", model=str(folder), device="cpu", aggregation_strategy="first"
    )
    short = [line for line in predictions_of(folder) if len(line["tokens"]) < 12]
    assert short
    for line in short:
        places, position = [], 0
        for word in line["tokens"]:
            places.append((position, position + len(word)))
            position += len(word) + 1
        expected = [
            (one["type"], places[one["start"]][0], places[one["end"] - 1][1])
            for one in line["entities"]
        ]
        found = find(line["tokens"], is_split_into_words=True, delimiter=" ")[0]
        assert [(one["entity_group"], one["start"], one["end"]) for one in found] == expected


@pytest.mark.slow
def test_an_interrupted_run_ends_as_if_it_had_not_been(files, tmp_path):
    more = ["--save_strategy", "steps", "--eval_strategy", "steps", "--max_steps", "5"]
    more += ["--save_steps", "2", "--eval_steps", "2"]
    whole, halted = (finetune_argv(files, tmp_path / name, *more) for name in ("whole", "halted"))
    record = main(TokenTask, whole)
    run = prepare(TokenTask, halted)
    steps = run.trainer.training_step

    def stop_after_three(*args, **kwargs):
        if run.trainer.state.global_step == 3:
            raise KeyboardInterrupt
        return steps(*args, **kwargs)

    run.trainer.training_step = stop_after_three
    with pytest.raises(KeyboardInterrupt):
        run.trainer.train_from(None)
    resumed = main(TokenTask, halted)
    assert resumed["train"]["resumed_at_step"] == 2
    assert resumed["test"] | {"seconds": 0} == record["test"] | {"seconds": 0}


def test_labels_that_are_not_about_entities_are_scored_by_accuracy(tmp_path):
    rows = [{"words": "a b", "tags": ["DET", "NOUN"]}, {"words": "b a b", "tags": "NOUN DET NOUN"}]
    files = {"train": write_rows(tmp_path / "train.jsonl", rows * 4)}
    more = ["--validation_split", "3", "--max_steps", "2", "--text_column_name", "words"]
    record = main(TokenTask, finetune_argv(files, tmp_path / "run", *more))
    assert record["options"]["text_column_name"] == "words"
    assert 0 <= record["validation"]["accuracy"] <= 100
    assert not {"f1"} & set(record["validation"])
    assert "entity_types" not in record
    assert "entities" not in predictions_of(tmp_path / "run")[0]


def test_unlabelled_rows_are_labelled_by_a_checkpoint(finished, tmp_path):
    _, folder, _ = finished
    rows = [{"tokens": row["tokens"]} for row in tagged_rows(4, seed=1)]
    argv = ["--model_name_or_path", str(folder), "--test_file"]
    argv += [write_rows(tmp_path / "test.jsonl", rows), "--output_dir", str(tmp_path / "run")]
    record = main(TokenTask, [*argv, "--use_cpu", "--disable_tqdm", "true"])
    assert set(record["test"]) <= {"seconds"}
    assert all("labels" not in line for line in predictions_of(tmp_path / "run"))


@pytest.mark.parametrize(
    ("row", "more", "message"),
    [
        (
            {"tokens": ["a"], "ner_tags": []},
            [],
            r"train.jsonl:3: .*one label per word, got 1 words",
        ),
        ({"tokens": [1.5], "ner_tags": ["O"]}, [], "'tokens' must hold a list of texts"),
        ({}, ["--text_column_name", "text"], "text_column_name: .*have no column 'text'"),
        ({}, ["--label_column_name", "pos"], "label_column_name: .*have no column 'pos'"),
        ({}, ["--stride", "38"], "stride must be at least 0 and less than the 38 tokens"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(tmp_path, row, more, message):
    rows = tagged_rows(2)
    rows.append({**rows[0], **row})
    files = {
        "train": write_rows(tmp_path / "train.jsonl", rows),
        "validation": write_rows(tmp_path / "validation.jsonl", rows[:2]),
    }
    with pytest.raises(ValueError, match=message):
        prepare(TokenTask, finetune_argv(files, tmp_path / "run", *more))
    assert not (tmp_path / "run").exists()


def test_labels_of_validation_must_be_learnable(tmp_path):
    rows = tagged_rows(3)
    other = [{"tokens": ["a"], "ner_tags": ["B-NEW"]}]
    files = {
        "train": write_rows(tmp_path / "train.jsonl", rows),
        "validation": write_rows(tmp_path / "validation.jsonl", other),
    }
    with pytest.raises(ValueError, match="labels that no training row has: 'B-NEW'"):
        prepare(TokenTask, finetune_argv(files, tmp_path / "run"))
