"""Commands, examples and pictures in the report of a run."""

import json

import numpy as np
import pytest
import run_report
from seq2seq_data import Example

from hf_seqmodels.evaluation import Alignment, Hypothesis
from hf_seqmodels.model_cards import shell_command


@pytest.mark.parametrize("option", ["--token", "--hub_token", "--hub-token"])
def test_commands_leave_access_tokens_out(option):
    text = shell_command(
        "python training/run_seq2seq.py", [option, "hf_abc", "--seed", "1", f"{option}=hf_abc"]
    )
    assert "hf_abc" not in text
    assert text == f"python training/run_seq2seq.py {option} '***' --seed 1 '{option}=***'"


def test_commands_are_quoted_for_a_shell():
    text = shell_command(
        "python training/run_seq2seq.py",
        ["--source_prefix", "to German: ", "--config_overrides", "a=1"],
    )
    assert text.endswith("--source_prefix 'to German: ' --config_overrides a=1")


def test_commands_name_no_folder_of_the_machine():
    argv = ["--train_file", "/data/me/x.tsv", "--output_dir=/data/me/runs", "recipes/a.yaml"]
    assert shell_command("python training/run_seq2seq.py", argv) == (
        "python training/run_seq2seq.py --train_file x.tsv --output_dir=runs recipes/a.yaml"
    )


def test_the_examples_of_the_card_are_right_if_any_is():
    examples = [Example("a", ["x"]), Example("b", ["y", "z"])]
    assert run_report.good_examples(["a", "b"], ["w", "z"], examples) == [["b", "z"]]
    assert run_report.good_examples(["a", "b"], ["w", "w"], examples) == [["a", "w"], ["b", "w"]]


def test_folders_are_no_names_on_the_hub(tmp_path):
    assert run_report.name_on_hub(str(tmp_path)) is None
    assert run_report.name_on_hub(None) is None
    assert run_report.name_on_hub("someone/pairs") == "someone/pairs"


def test_predictions_are_written_a_line_each(tmp_path):
    examples = [Example("a", ["x"], {"locale": "en"}), Example("ü", ["y", "z"])]
    hypotheses = [[Hypothesis("x", [4, 2], -0.5, -0.25, [-0.3, -0.2])], []]
    path = tmp_path / "predictions.jsonl"
    run_report.write_predictions(path, examples, ["x", "w"], hypotheses)
    text = path.read_text(encoding="utf-8")
    assert "ü" in text
    assert [json.loads(line) for line in text.splitlines()] == [
        {
            "source": "a",
            "references": ["x"],
            "prediction": "x",
            "exact_match": True,
            "columns": {"locale": "en"},
            "n_best": [{"text": "x", "log_probability": -0.5, "score": -0.25}],
        },
        {
            "source": "ü",
            "references": ["y", "z"],
            "prediction": "w",
            "exact_match": False,
            "n_best": [],
        },
    ]


def test_drawn_items_are_spread_over_the_data(tmp_path, monkeypatch):
    asked = []

    def attend(model, tokenizer, sources, **options):
        asked.extend(sources)
        return [Alignment(["a"], ["b"], np.ones((1, 1))) for _ in sources]

    monkeypatch.setattr(run_report, "alignments", attend)
    sources = [f"source {n:02}" for n in range(12)] + ["x" * 99]
    drawn = run_report.draw_alignments(
        tmp_path / "a.png", None, None, sources, num_items=3, num_beams=1
    )
    assert drawn
    assert asked == ["source 00", "source 04", "source 08"]
    assert (tmp_path / "a.png").exists() and (tmp_path / "a.html").exists()


def test_no_picture_is_drawn_of_nothing(tmp_path):
    path = tmp_path / "a.png"
    assert not run_report.draw_alignments(path, None, None, ["a"], num_items=0, num_beams=1)
    assert not run_report.draw_learning_curve(path, [{"eval_loss": 1.0, "step": 1}], None)
    assert not path.exists()


def test_the_machine_is_described_without_names():
    facts = run_report.machine()
    assert {"python", "torch", "transformers", "processor"} <= set(facts)
    assert all(isinstance(fact, str) for fact in facts.values())
