"""Every script that trains: two processes do what one does with twice the batch, once."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from gloo_group import run_driver
from script_runs import NUM_TEST, RUNS, TRAINING, run_script, words_of

pytestmark = pytest.mark.slow
TIMES = ("minutes", "seconds")


def run_alone(name, folder):
    """Run a script in this process and return its output folder."""
    output = folder / name / "alone"
    run_script(name, words_of(name, folder / name, output, num_processes=1))
    return output


def figures_of(record):
    """Return the figures of a report but for the times."""
    return {
        part: {key: value for key, value in record[part].items() if key not in TIMES}
        for part in ("train", "validation", "test")
        if part in record
    }


def files_of(folder):
    """Return the names of all files, those of checkpoints without the processes' own."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in names if "rng_state" not in name and "recurrent_st" not in name)


def assert_same_run(together, alone):
    """Compare what two runs have written."""
    assert files_of(together) == files_of(alone)
    records = [json.loads((path / "metrics.json").read_text()) for path in (together, alone)]
    figures = [figures_of(record) for record in records]
    assert figures[0].keys() == figures[1].keys()
    for part, expected in figures[1].items():
        if part != "train" and "predictions.jsonl" in files_of(alone):
            # Trainer's mean over batches, the last of which may be filled up
            assert figures[0][part].pop("loss") == pytest.approx(expected.pop("loss"), rel=0.05)
        assert figures[0][part] == pytest.approx(expected, rel=1e-4, abs=1e-5), part
    weights = [load_file(path / "model.safetensors") for path in (together, alone)]
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-4, atol=1e-5)
    if (alone / "predictions.jsonl").exists():  # each row once, in its order
        lines = [
            (path / "predictions.jsonl").read_text().splitlines() for path in (together, alone)
        ]
        rows = [[json.loads(line) for line in part] for part in lines]
        assert len(rows[0]) == len(rows[1]) == NUM_TEST
        for row, expected in zip(*rows, strict=True):
            assert row.keys() == expected.keys()
            texts = [key for key, value in expected.items() if isinstance(value, str)]
            assert {key: row[key] for key in texts} == {key: expected[key] for key in texts}


def test_two_processes_report_what_one_reports(tmp_path):
    for name in RUNS:
        words = words_of(name, tmp_path / name, tmp_path / name / "together", num_processes=2)
        (tmp_path / f"{name}.json").write_text(json.dumps(words), encoding="utf-8")
    assert run_driver("script_runs.py", tmp_path) == list(RUNS)
    differences = []
    for name in RUNS:
        try:
            assert_same_run(tmp_path / name / "together", run_alone(name, tmp_path))
        except AssertionError as error:
            differences.append(f"{name}: {error}")
    assert not differences, "\n\n".join(differences)


LAUNCHED = [
    pytest.param(name, marks=() if name == "run_classification" else pytest.mark.launch)
    for name in RUNS
]


@pytest.mark.parametrize("name", LAUNCHED)
def test_accelerate_launches_the_script_unchanged(name, tmp_path):
    command = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"]
    command += ["--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
    command += ["--dynamo_backend", "no", "--main_process_port", "0"]
    together = tmp_path / name / "together"
    words = words_of(name, tmp_path / name, together, num_processes=2)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    script = str(TRAINING / f"{RUNS[name][0]}.py")
    subprocess.run([*command, script, *words], check=True, timeout=900, env=environment)
    assert_same_run(together, run_alone(name, tmp_path))
