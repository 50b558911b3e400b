"""Cards that go along with an export: ours are written anew, those of others are kept."""

import json
import logging
import re

import pytest
from huggingface_hub import ModelCard

from carded_models import make_carded
from hf_seqmodels.model_cards import (
    card_for_export,
    facts_of_run,
    is_generated,
    pictures_in,
    render_card,
)
from hf_seqmodels.model_cards.seals import facts_in_card

RECORD = {
    "name": "reverser",
    "place": "runs/reverser",
    "decoding": {"num_beams": 3},
    "examples": [["ab", "ba"]],
    "data": {"train": {"name": "train.tsv", "rows": 45}, "test": {"name": "test.tsv", "rows": 8}},
    "test": {"cer": 12.5, "loss": 0.5, "seconds": 1.5, "signatures": {"bleu": "nrefs:1"}},
    "train": {"epochs": 2.0},
    "command": "python training/run_seq2seq.py --seed 3",
    "options": {"seed": 3},
    "machine": {"torch": "2.13.0"},
    "alignment_picture": "alignments.png",
    "files": {"predictions.jsonl": "every prediction"},
    "dataset": None,
}


@pytest.fixture(scope="module")
def model():
    return make_carded("seqmodels_rnn_seq2seq", "AutoModelForSeq2SeqLM")[0]


@pytest.fixture
def run_folder(model, tmp_path):
    """The folder of a run: metrics.json, a picture, a card."""
    (tmp_path / "metrics.json").write_text(json.dumps(RECORD), encoding="utf-8")
    (tmp_path / "alignments.png").write_bytes(b"")
    card = render_card(model, name="reverser", place="runs/reverser", **facts_of_run(RECORD))
    (tmp_path / "README.md").write_text(card, encoding="utf-8")
    return tmp_path


def test_records_of_runs_become_facts():
    assert facts_of_run(RECORD) == {
        "metrics": {"test": {"cer": 12.5, "loss": 0.5}},
        "signatures": {"bleu": "nrefs:1"},
        "training": {"epochs": 2.0},
        "environment": {"torch": "2.13.0"},
        **{
            name: RECORD[name]
            for name in ("decoding", "examples", "data", "command", "options", "alignment_picture")
        },
        "files": RECORD["files"],
    }
    assert facts_of_run({}) == {}


def test_an_own_card_is_written_anew_with_its_facts(model, run_folder):
    card = card_for_export(model, source=run_folder, name="exported", repo_id="someone/reverser")
    assert 'from_pretrained("someone/reverser")' in card
    assert "runs/reverser" not in card
    assert "| `cer` | 12.50 |" in card
    assert "--seed 3" in card
    assert pictures_in(card) == ["alignments.png"]
    assert "predictions.jsonl" not in card  # an export does not take that file along


def test_facts_go_on_from_card_to_card(model, run_folder, tmp_path):
    first = card_for_export(model, source=run_folder, name="one", license="mit")
    export = tmp_path / "export"
    export.mkdir()
    (export / "README.md").write_text(first, encoding="utf-8")
    (export / "alignments.png").write_bytes(b"")
    second = card_for_export(model, source=export, name="one", repo_id="someone/one")
    assert facts_in_card(second) == facts_in_card(first)
    assert ModelCard(second).data.license == "mit"
    assert "| `cer` | 12.50 |" in second
    third = card_for_export(model, source=export, name="one", license="apache-2.0")
    assert ModelCard(third).data.license == "apache-2.0"


def test_facts_come_from_the_record_where_there_is_no_card(model, run_folder):
    expected = card_for_export(model, source=run_folder, name="a")
    (run_folder / "README.md").unlink()
    assert card_for_export(model, source=run_folder, name="a") == expected


def test_a_picture_that_is_not_there_is_not_shown(model, run_folder):
    card = render_card(model, name="a", alignment_picture="a )b.png")
    assert pictures_in(card) == ["a )b.png"]
    (run_folder / "alignments.png").unlink()
    assert pictures_in(card_for_export(model, source=run_folder, name="a")) == []


@pytest.mark.parametrize(
    "edit",
    [
        lambda card: card.replace("## Model", "Trained on a rainy day.\n\n## Model"),
        lambda card: card.replace("library_name", "license: mit\nlibrary_name"),
        lambda card: card[: card.index("<!--")],
        lambda card: card.replace('"epochs": 2.0', '"epochs": 3.0'),
        lambda card: card + "\nSee also my other models.\n",
        lambda card: "# My model\n",
        lambda card: "",
    ],
)
def test_a_card_that_somebody_edited_is_kept(edit, model, run_folder, caplog):
    card = run_folder / "README.md"
    card.write_text(edit(card.read_text(encoding="utf-8")), encoding="utf-8")
    before = card.read_text(encoding="utf-8")
    with caplog.at_level(logging.WARNING, logger="hf_seqmodels"):
        assert card_for_export(model, source=run_folder, name="a", license=None) == before
    assert "edited by hand and is kept" in caplog.text
    with pytest.raises(ValueError, match="so license cannot be put into it"):
        card_for_export(model, source=run_folder, name="a", license="mit")


def test_the_seal_holds_through_the_hub_client_and_line_ends_of_windows(model, run_folder):
    card = (run_folder / "README.md").read_text(encoding="utf-8")
    assert is_generated(card)
    assert is_generated(str(ModelCard(card)))
    assert is_generated(card.replace("\n", "\r\n"))


def test_the_seal_ends_nowhere_before_its_end(model):
    card = render_card(model, name="a", environment={"note": "--> <!-- -- ---> </p>"})
    comment = card[card.rindex("\n<!--") :]
    assert comment.count("-->") == 1
    assert not re.search("--|[<>]", comment.strip().removeprefix("<!--").removesuffix("-->"))
    assert facts_in_card(card) == {"environment": {"note": "--> <!-- -- ---> </p>"}}


def test_checkpoints_of_a_trainer_tell_of_their_own_step(model, run_folder):
    checkpoint = run_folder / "checkpoint-20"
    checkpoint.mkdir()
    history = [
        {"step": 10, "eval_loss": 2.5},
        {"step": 20, "loss": 1.5},
        {"step": 20, "eval_loss": 1.25, "eval_accuracy": 0.5},
    ]
    state = {"global_step": 20, "epoch": 1.5, "log_history": history}
    (checkpoint / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    card = card_for_export(model, source=checkpoint, name="a")
    assert facts_in_card(card) == {
        "training": {"epochs": 1.5, "steps": 20},
        "metrics": {"validation": {"loss": 1.25}},
        **{name: RECORD[name] for name in ("data", "command", "options")},
        "environment": RECORD["machine"],
    }
    (run_folder / "metrics.json").unlink()
    card = card_for_export(model, source=checkpoint, name="a")
    assert set(facts_in_card(card)) == {"training", "metrics"}


@pytest.mark.parametrize("content", ["[]", "{", '{"test": 5}', '{"examples": [1]}'])
def test_a_metrics_file_of_another_program_is_passed_over(content, model, tmp_path, caplog):
    (tmp_path / "metrics.json").write_text(content, encoding="utf-8")
    with caplog.at_level(logging.WARNING, logger="hf_seqmodels"):
        card = card_for_export(model, source=tmp_path, name="a")
    assert card == render_card(model, name="a")
    assert "passed over" in caplog.text


def test_pictures_are_files_beside_the_card():
    text = (
        "![a](x%20y.png) ![b](<z.png>) ![](https://host/c.png) ![d](../d.png) ![e](/e.png) [f](f)"
    )
    assert pictures_in(text + " ![a](x%20y.png)") == ["x y.png", "z.png"]
