"""run_clm.py in two processes: the steps of one process with batches of twice the size."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from run_clm import main
from safetensors.torch import load_file

SCRIPT = Path(__file__).resolve().parents[2] / "training" / "run_clm.py"
SMALL = "hidden_size=16,num_hidden_layers=1,embedding_dropout=0,hidden_dropout=0"
SIZES = {
    "seqmodels_decoder_lm": f"{SMALL},num_attention_heads=2",
    "seqmodels_rnn_lm": f"{SMALL},embedding_size=12",
}


def tiny_argv(text_file, output_dir, model_type, batch_size):
    """Return the options of a run of one epoch; recurrent models carry their state."""
    stateful = ["--stateful"] if model_type == "seqmodels_rnn_lm" else []
    return [
        *("--model_type", model_type, "--config_overrides", SIZES[model_type], *stateful),
        *("--train_file", text_file, "--validation_file", text_file, "--tokenizer_model", "char"),
        *("--block_size", "10", "--per_device_train_batch_size", str(batch_size)),
        # not Adam, which blows up the rounding of gradients that are zero, as of key biases
        *("--num_train_epochs", "1", "--optim", "sgd", "--learning_rate", "0.5"),
        *("--use_cpu", "--seed", "3", "--disable_tqdm", "true", "--num_samples", "0"),
        *("--output_dir", str(output_dir)),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("model_type", SIZES)
def test_two_processes_take_the_steps_of_one_with_twice_the_batch(model_type, tmp_path):
    text = tmp_path / "text.txt"  # 16 rows: the launcher would fill up a last batch
    text.write_text("".join(f"{a}{b} {b}{a}{a}{b}\n" for a in "abcde" for b in "ghij"))
    alone, together = tmp_path / "alone", tmp_path / "together"
    main(tiny_argv(str(text), alone, model_type, batch_size=4))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    options = tiny_argv(str(text), together, model_type, batch_size=2)
    command += ["--standalone", str(SCRIPT), *options, "--ddp_backend", "gloo"]
    subprocess.run(command, check=True, timeout=500)
    records = [json.loads((folder / "metrics.json").read_text()) for folder in (alone, together)]
    assert records[0]["train"]["steps"] == records[1]["train"]["steps"] > 2
    found = [record["validation"]["loss"] for record in records]
    assert found[0] == pytest.approx(found[1], abs=1e-5)
    weights = [load_file(folder / "model.safetensors") for folder in (alone, together)]
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-4, atol=1e-5)
