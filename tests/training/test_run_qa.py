"""run_qa.py from end to end: what a run writes, that it is right, what is refused."""

import json
import random

import pytest
from finetune_run import main, prepare
from run_qa import QuestionTask
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from hf_seqmodels.evaluation import answer_questions, load_metric
from tiny_finetuning import finetune_argv, predictions_of, write_parts, write_rows
from tiny_tokenizers import roberta_tokenizer

PLACES = ("old york", "kraków", "paris", "東京")


def question_rows(count, seed=0, *, without_answer=False):
    """Who was born where; every third context is longer than the model's positions."""
    draw, rows = random.Random(seed), []
    for number in range(count):
        place = draw.choice(PLACES)
        filler = "she was there in the year of the great fire . " * (6 if number % 3 == 1 else 1)
        context = f"{filler}anna was born in {place} . zoe was not ."
        answers = {"text": [place, f"in {place}"]}
        answers["answer_start"] = [context.index(text) for text in answers["text"]]
        question = "where was anna born ?"
        if without_answer and number % 4 == 0:
            answers, question = {"text": [], "answer_start": []}, "where was zoe born ?"
        rows.append(
            {"id": f"q{number}", "context": context, "question": question, "answers": answers}
        )
    return rows


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    rows = question_rows(33, without_answer=True)
    return write_parts(tmp_path_factory.mktemp("rows"), rows)


@pytest.fixture(scope="module")
def published_files(tmp_path_factory):
    """Files in the form of SQuAD 1.1."""
    folder, rows = tmp_path_factory.mktemp("published"), question_rows(33)
    parts = {"train": rows[:20], "validation": rows[20:27], "test": rows[27:]}
    for part, chosen in parts.items():
        paragraphs = [
            {
                "context": row["context"],
                "qas": [
                    {
                        "id": row["id"],
                        "question": row["question"],
                        "answers": [
                            {"text": text, "answer_start": start}
                            for text, start in zip(*row["answers"].values(), strict=True)
                        ],
                    }
                ],
            }
            for row in chosen
        ]
        content = {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}
        (folder / f"{part}.json").write_text(json.dumps(content), encoding="utf-8")
    return {part: str(folder / f"{part}.json") for part in parts}


@pytest.fixture(scope="module", params=["seqmodels_text_encoder", "roberta"])
def finished(request, files, published_files, tmp_path_factory):
    """A finished run of each kind of model and file: its kind, folder and record."""
    folder = tmp_path_factory.mktemp("runs") / request.param
    if request.param == "roberta":
        roberta_tokenizer().save_pretrained(folder.parent / "tokenizer")
        more = ["--tokenizer_name", str(folder.parent / "tokenizer"), "--doc_stride", "9"]
        more += ["--config_overrides", "pad_token_id=1", "--max_answer_length", "12"]
        argv = finetune_argv(published_files, folder, *more, model_type="roberta")
    else:
        more = ["--version_2_with_negative", "--n_best_size", "5"]
        more += ["--null_score_diff_threshold", "0.1"]
        argv = finetune_argv(files, folder, *more)
    return request.param, folder, main(QuestionTask, argv)


def test_the_folder_holds_a_model_that_loads_and_its_report(finished):
    kind, folder, record = finished
    names = {path.name for path in folder.iterdir()}
    assert names >= {"README.md", "metrics.json", "predictions.jsonl", "learning_curve.png"}
    assert json.loads((folder / "metrics.json").read_text(encoding="utf-8")) == record
    assert AutoModelForQuestionAnswering.from_pretrained(folder).config.model_type == kind
    assert record["data"]["train"]["rows"] == 20
    assert record["windows"]["train"] > 20
    assert record["max_seq_length"] == 40


def test_predictions_are_those_of_the_helper(finished):
    kind, folder, _ = finished
    version_2 = kind != "roberta"
    rows = question_rows(33, without_answer=version_2)[27:]
    model = AutoModelForQuestionAnswering.from_pretrained(folder)
    options = {"n_best": 20, "max_answer_length": 12, "doc_stride": 9}
    if version_2:
        options = {"n_best": 5, "with_no_answer": True, "no_answer_threshold": 0.1}
    found = answer_questions(
        model,
        AutoTokenizer.from_pretrained(folder),
        [(row["question"], row["context"]) for row in rows],
        progress=False,
        **options,
    )
    for row, line, answers in zip(rows, predictions_of(folder), found, strict=True):
        assert (line["id"], line["answers"]) == (row["id"], row["answers"]["text"])
        assert len(line["n_best"]) == len(answers.answers)
        for written, answer in zip(line["n_best"], answers.answers, strict=True):
            assert written["text"] == row["context"][written["start"] : written["end"]]
            assert written["score"] == pytest.approx(answer.score, abs=1e-3)
            assert written["probability"] == pytest.approx(answer.probability, abs=1e-4)
        best = line["n_best"][0]
        assert (line["prediction"], line["start"]) == (best["text"], best["start"])
        if version_2:
            assert line["no_answer_score"] == pytest.approx(answers.no_answer_score, abs=1e-3)


def test_figures_are_those_of_the_predictions(finished):
    kind, folder, record = finished
    lines = predictions_of(folder)
    scores = load_metric("squad").compute(
        predictions=[line["prediction"] for line in lines],
        references=[line["answers"] or [""] for line in lines],
    )
    assert record["test"]["f1"] == pytest.approx(scores["f1"])
    assert record["test"]["exact_match"] == pytest.approx(scores["exact_match"])
    assert sum(line["f1"] for line in lines) / len(lines) == pytest.approx(
        scores["f1"] / 100, abs=1e-5
    )
    if kind != "roberta":
        assert record["test"]["no_answer_f1"] == pytest.approx(scores["no_answer_f1"])
        assert record["test"]["best_f1"] >= record["test"]["f1"]


@pytest.mark.slow
def test_an_interrupted_run_ends_as_if_it_had_not_been(files, tmp_path):
    more = ["--save_strategy", "steps", "--eval_strategy", "steps", "--max_steps", "5"]
    more += ["--save_steps", "2", "--eval_steps", "2", "--version_2_with_negative"]
    whole, halted = (finetune_argv(files, tmp_path / name, *more) for name in ("whole", "halted"))
    record = main(QuestionTask, whole)
    run = prepare(QuestionTask, halted)
    steps = run.trainer.training_step

    def stop_after_three(*args, **kwargs):
        if run.trainer.state.global_step == 3:
            raise KeyboardInterrupt
        return steps(*args, **kwargs)

    run.trainer.training_step = stop_after_three
    with pytest.raises(KeyboardInterrupt):
        run.trainer.train_from(None)
    resumed = main(QuestionTask, halted)
    assert resumed["train"]["resumed_at_step"] == 2
    assert resumed["test"] | {"seconds": 0} == record["test"] | {"seconds": 0}


def test_questions_without_gold_answers_are_answered_by_a_checkpoint(finished, tmp_path):
    _, folder, _ = finished
    rows = [{"query": row["question"], "text": row["context"]} for row in question_rows(3)]
    argv = ["--model_name_or_path", str(folder), "--question_column", "query"]
    argv += ["--context_column", "text", "--pad_to_max_length", "--max_seq_length", "36"]
    argv += ["--test_file", write_rows(tmp_path / "test.jsonl", rows)]
    argv += ["--output_dir", str(tmp_path / "run"), "--use_cpu", "--disable_tqdm", "true"]
    record = main(QuestionTask, argv)
    assert set(record["test"]) <= {"seconds"}
    assert record["max_seq_length"] == 36
    lines = predictions_of(tmp_path / "run")
    assert [line["id"] for line in lines] == ["test.jsonl:1", "test.jsonl:2", "test.jsonl:3"]
    assert all(line["prediction"] and "answers" not in line for line in lines)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], r"train.jsonl:1: every question needs an answer.*--version_2_with_negative"),
        (["--null_score_diff_threshold", "1"], "decides between an answer and none, got 1"),
        (["--n_best_size", "0"], "n_best_size must be at least 1, got 0"),
        (["--label_smoothing_factor", "0.1"], "label_smoothing_factor cannot be honoured"),
        (["--version_2_with_negative", "--context_column", "text"], "have no column 'text'"),
        (["--version_2_with_negative", "--answer_column", "answer"], "have no column 'answer'"),
        (["--version_2_with_negative", "--doc_stride", "32"], "doc_stride must be at least 0"),
        (["--version_2_with_negative", "--max_seq_length", "41"], "must not exceed the 40 tokens"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(files, tmp_path, more, message):
    with pytest.raises(ValueError, match=message):
        prepare(QuestionTask, finetune_argv(files, tmp_path / "run", *more))
    assert not (tmp_path / "run").exists()
