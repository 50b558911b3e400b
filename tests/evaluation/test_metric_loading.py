"""Metrics load from the installed package: no network, no shared state, any number of processes."""

import doctest
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import evaluate
import pytest

import hf_seqmodels
from hf_seqmodels.evaluation import METRIC_NAMES, load_metric, metric_path

ROOT = Path(hf_seqmodels.__file__).parents[1]
TEXTS = {"predictions": ["a b c d", "e f"], "references": ["a b c d", ["e g", "f"]]}
TAGS = {"predictions": [["B-X", "O"], ["O"]], "references": [["B-X", "I-X"], ["O"]]}
INPUTS = {name: TAGS if name == "entity_f1" else TEXTS for name in METRIC_NAMES}

REFUSE_THE_NETWORK = """
import socket
def refuse(*args, **kwargs):
    raise AssertionError("the network was asked for")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
"""


@pytest.mark.parametrize("name", METRIC_NAMES)
def test_evaluate_loads_the_folder_and_the_file(name):
    expected = load_metric(name).compute(**INPUTS[name])
    for path in (metric_path(name), metric_path(name) / f"{name}.py"):
        metric = evaluate.load(str(path))
        assert type(metric).__module__.startswith("evaluate_modules.metrics")
        assert metric.compute(**INPUTS[name]) == expected


@pytest.mark.parametrize("name", METRIC_NAMES)
def test_metrics_tell_what_they_are(name):
    metric = load_metric(name)
    assert isinstance(metric, evaluate.Metric)
    assert metric.name == name
    assert metric.description
    assert name in metric.inputs_description
    assert metric.inputs_description in metric.compute.__doc__
    one, several = "Value('string')", "List(Value('string'))"
    options = metric.features if isinstance(metric.features, list) else [metric.features]
    expected = {several} if name == "entity_f1" else {one, several}
    assert {str(option["references"]) for option in options} == expected


@pytest.mark.parametrize("name", METRIC_NAMES)
def test_examples_in_the_descriptions_run(name):
    metric = load_metric(name)
    example = doctest.DocTestParser().get_doctest(metric.inputs_description, {}, name, None, None)
    runner = doctest.DocTestRunner()
    runner.run(example)
    summary = runner.summarize()
    assert (summary.failed, summary.attempted > 2) == (0, True)


def test_metrics_combine():
    names = ("bleu", "chrf", "exact_match")
    combined = evaluate.combine([load_metric(name) for name in names])
    result = combined.compute(predictions=["a b c d"], references=["a b c d"])
    assert [result[name] for name in names] == pytest.approx([100, 100, 100])


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"name must be one of bleu, chrf, .*got 'meteor'"):
        load_metric("meteor")
    with pytest.raises(ValueError, match=r"use evaluate\.load"):
        metric_path("../secret")


def test_a_missing_library_is_named(monkeypatch):
    module = "hf_seqmodels.evaluation.metrics.bleu.bleu"
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ImportError, match=r"'bleu' needs sacrebleu.*hf_seqmodels\[train\]"):
        load_metric("bleu")


def test_loading_writes_nothing(tmp_path, monkeypatch):
    """So that a home that cannot be written, or is shared, does not matter."""
    monkeypatch.setattr("evaluate.config.HF_METRICS_CACHE", tmp_path / "metrics")
    monkeypatch.setattr("evaluate.config.HF_MODULES_CACHE", tmp_path / "modules")
    for name in METRIC_NAMES:
        load_metric(name).compute(**INPUTS[name])
    assert not list(tmp_path.iterdir())


def test_a_corpus_spread_over_processes_is_scored_as_one(tmp_path):
    """Two shards that meet in files, as evaluate does it; threads stand for the processes."""
    shards = [(["a b"], ["a c"]), (["d e f"], [["d", "d e f"]])]

    def score(rank):
        metric = load_metric("wer", num_process=2, process_id=rank, cache_dir=str(tmp_path))
        return metric.compute(predictions=shards[rank][0], references=shards[rank][1])

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(score, (0, 1))
    assert (first["wer"], first["num_items"], second) == (20.0, 2, None)


@pytest.mark.slow
def test_processes_load_at_once_from_a_read_only_package_without_a_network(tmp_path):
    """evaluate copies the script into a cache that does not exist yet; two race for it."""
    package = tmp_path / "site" / "hf_seqmodels"
    shutil.copytree(ROOT / "hf_seqmodels", package, ignore=shutil.ignore_patterns("__pycache__"))
    folders = [package, *(path for path in package.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    code = f"""
import evaluate
from hf_seqmodels.evaluation import load_metric, metric_path
assert str(metric_path("per")).startswith({str(package)!r})
texts = {TEXTS!r}
by_path = evaluate.load(str(metric_path("per"))).compute(**texts)
assert by_path == load_metric("per").compute(**texts)
print(by_path["per"])
"""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("HF_", "XDG_"))
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-B", "-c", REFUSE_THE_NETWORK + code],
            env=inherited | {"HF_HOME": str(tmp_path / "home"), "PYTHONPATH": str(package.parent)},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=300) for process in processes]
    for folder in folders:
        folder.chmod(0o755)
    for out, err in outputs:
        assert out.strip() == "16.666666666666668", err
