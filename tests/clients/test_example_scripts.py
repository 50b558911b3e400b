"""The example scripts of transformers, unmodified, on every family that they are for.

They are in no package: `TRANSFORMERS_EXAMPLES` names the folder `examples/pytorch` of a checkout.
"""

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

import script_stranger
from example_losses import computed_again, load
from example_scripts import (
    CLASSES,
    SCRIPTS,
    command_line,
    make_checkpoint,
    write_metrics,
    write_punkt,
)
from hf_seqmodels.__main__ import main
from hf_seqmodels.hub import export

EXAMPLES = Path(os.environ.get("TRANSFORMERS_EXAMPLES", "transformers/examples/pytorch"))
REASON = "TRANSFORMERS_EXAMPLES must name the folder examples/pytorch of transformers' repository"
if not (EXAMPLES / "language-modeling" / "run_clm.py").is_file():
    pytest.skip(REASON, allow_module_level=True)

pytestmark = pytest.mark.slow
needs_nltk = pytest.mark.skipif(
    importlib.util.find_spec("nltk") is None, reason="run_summarization needs nltk"
)
RUNS = [
    pytest.param(script, family, marks=needs_nltk if script == "run_summarization" else ())
    for script, known in SCRIPTS.items()
    for family in known.families
]
every_run = pytest.mark.parametrize(("script", "family"), RUNS)
TWO_PROCESSES = (
    *("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"),
    *("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"),
)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with metrics, sentence data of nltk, and checkpoints in both forms."""
    folder = tmp_path_factory.mktemp("examples")
    write_metrics(folder)
    write_punkt(folder / "nltk_data")
    for family in CLASSES:
        model, tokenizer = make_checkpoint(family)
        model.save_pretrained(folder / "installed" / family)
        tokenizer.save_pretrained(folder / "installed" / family)
        export(model, tokenizer, folder / "exported" / family, verify=False)
    return folder


@pytest.fixture
def at_work(workplace, monkeypatch):
    """Be in that folder, as `python -m hf_seqmodels SCRIPT` would be; return it."""
    monkeypatch.chdir(workplace)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    if importlib.util.find_spec("nltk") is not None:
        import nltk

        monkeypatch.setattr(nltk.data, "path", [str(workplace / "nltk_data")])
    return workplace


@pytest.fixture(scope="module")
def strange_runs(workplace):
    """What a process without the package found that did all runs on exported checkpoints."""
    runs = {}
    for script, family in (run.values for run in RUNS):
        folder = workplace / f"strange_{script}_{family}"
        folder.mkdir()
        checkpoint = str(workplace / "exported" / family)
        model = ["--model_name_or_path", checkpoint, "--trust_remote_code"]
        arguments = command_line(script, model, folder)
        file = str(EXAMPLES.resolve() / SCRIPTS[script].path)
        runs[folder.name] = [script, file, arguments, str(folder / "out")]
    (workplace / "runs.json").write_text(json.dumps(runs))
    subprocess.run(
        [sys.executable, script_stranger.__file__, "runs.json", "results.json"],
        cwd=workplace,
        env=os.environ | {"NLTK_DATA": str(workplace / "nltk_data")},
        capture_output=True,
        check=True,
    )
    return json.loads((workplace / "results.json").read_text())


def script_file(script: str) -> str:
    return str(EXAMPLES.resolve() / SCRIPTS[script].path)


def read(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


def check(script, folder, expected):
    """Compare what a script wrote with what was computed again from the model that it saved."""
    results = read(folder, "all_results.json")
    assert all(math.isfinite(value) for value in results.values()), results
    assert f"eval_{SCRIPTS[script].result}" in results
    if "loss" in expected:
        assert results["eval_loss"] == pytest.approx(expected["loss"], rel=2e-5)
    if "perplexity" in results:
        assert results["perplexity"] == pytest.approx(math.exp(results["eval_loss"]))
    if "answers" in expected:
        assert read(folder, "predict_predictions.json") == expected["answers"]
    if "texts" in expected:
        lines = (folder / "generated_predictions.txt").read_text(encoding="utf-8").split("\n")
        assert lines == expected["texts"]


@every_run
def test_script_trains_an_installed_checkpoint(script, family, at_work, tmp_path):
    model = ["--model_name_or_path", str(at_work / "installed" / family)]
    main([script_file(script), *command_line(script, model, tmp_path)])
    saved, tokenizer = load(script, tmp_path / "out")
    assert type(saved).__module__.startswith("hf_seqmodels.models.")
    check(script, tmp_path / "out", computed_again(script, saved, tokenizer))


@every_run
def test_script_trains_an_exported_checkpoint_without_the_package(
    script, family, strange_runs, workplace
):
    name = f"strange_{script}_{family}"
    assert "error" not in strange_runs[name], strange_runs[name]["error"]
    check(script, workplace / name / "out", strange_runs[name])


@pytest.mark.parametrize(
    ("script", "family", "overrides"),
    [
        ("run_clm", "decoder_lm", "hidden_size=14,num_attention_heads=2,vocab_size=29"),
        ("run_clm", "rnn_lm", "hidden_size=14,embedding_size=9,vocab_size=29"),
        ("run_mlm", "text_encoder", "hidden_size=14,num_attention_heads=2,vocab_size=129"),
    ],
)
def test_script_trains_from_scratch(script, family, overrides, at_work, tmp_path):
    model = [
        *("--model_type", f"seqmodels_{family}"),
        *("--tokenizer_name", str(at_work / "installed" / family)),
        *("--config_overrides", f"num_hidden_layers=1,{overrides}"),
    ]
    main([script_file(script), *command_line(script, model, tmp_path)])
    saved, tokenizer = load(script, tmp_path / "out")
    changes = dict(word.split("=") for word in overrides.split(","))
    assert {name: str(getattr(saved.config, name)) for name in changes} == changes
    check(script, tmp_path / "out", computed_again(script, saved, tokenizer))


def test_accelerate_launches_run_clm_in_two_processes(at_work, tmp_path):
    model = ["--model_name_or_path", str(at_work / "installed" / "decoder_lm")]
    arguments = command_line("run_clm", model, tmp_path)
    arguments += [
        "--per_device_eval_batch_size",
        "3",
    ]  # six blocks; Trainer fills up the last batch
    program = [*TWO_PROCESSES, "-m", "hf_seqmodels", script_file("run_clm"), *arguments]
    done = subprocess.run([sys.executable, *program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "distributed training: True" in done.stdout + done.stderr
    saved, tokenizer = load("run_clm", tmp_path / "out")
    check("run_clm", tmp_path / "out", computed_again("run_clm", saved, tokenizer))
