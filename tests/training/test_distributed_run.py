"""The script in two processes, as a launcher starts it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

TRAINING = Path(__file__).resolve().parents[2] / "training"

PLUGGED = """
import os, sys
sys.path.insert(0, {training!r})
import run_seq2seq
from transformers import TrainerCallback

class PulledPlug(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 5:
            os._exit(0)

run = run_seq2seq.prepare(sys.argv[1:])
run.trainer.add_callback(PulledPlug())
run_seq2seq.run_all(run)
"""


def launch(script, options, *, survives=True):
    """Start two processes that talk over gloo, as `accelerate launch` and `torchrun` do."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    command += ["--standalone", str(script), *options, "--ddp_backend", "gloo"]
    subprocess.run(command, check=survives, timeout=500)


@pytest.mark.slow
def test_two_processes_resume_exactly_and_write_one_report(tiny_options, tmp_path):
    rhythm = ["--max_tokens_per_batch", "40", "--num_train_epochs", "3", "--logging_steps", "1"]
    rhythm += ["--eval_strategy", "steps", "--save_strategy", "steps", "--eval_steps", "2"]
    rhythm += ["--save_steps", "2"]
    straight = tmp_path / "straight"
    launch(TRAINING / "run_seq2seq.py", tiny_options(*rhythm, output_dir=straight))
    plugged = tmp_path / "plugged.py"
    plugged.write_text(PLUGGED.format(training=str(TRAINING)), encoding="utf-8")
    broken = tmp_path / "broken"
    launch(plugged, tiny_options(*rhythm, output_dir=broken), survives=False)
    launch(TRAINING / "run_seq2seq.py", tiny_options(*rhythm, output_dir=broken))
    record = json.loads((broken / "metrics.json").read_text(encoding="utf-8"))
    assert record["train"]["resumed_at_step"] == 4
    assert record["train"]["steps"] > 5
    weights = [load_file(folder / "model.safetensors") for folder in (straight, broken)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    predictions = [(folder / "predictions.jsonl").read_text() for folder in (straight, broken)]
    assert predictions[0] == predictions[1]
    assert predictions[0].count("\n") == 8
