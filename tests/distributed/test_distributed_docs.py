"""The programs of docs/distributed.md run as they stand there."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from hf_seqmodels import DecoderLMConfig, DecoderLMForCausalLM
from hf_seqmodels.data import train_tokenizer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "distributed.md"
PROGRAM = re.compile(r"The file\s+`(\w+\.py)`:\n\n```python\n(.*?)```", re.DOTALL)


@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.skipif(
    find_spec("transformers.distributed.checkpoint") is None, reason="needs a newer transformers"
)
@pytest.mark.parametrize(("name", "text"), PROGRAM.findall(PAGE.read_text(encoding="utf-8")))
def test_programs_run_in_two_processes(name, text, tmp_path):
    tokenizer = train_tokenizer(["Once upon a time there was a fox."] * 3, model="char")
    config = DecoderLMConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    DecoderLMForCausalLM(config).save_pretrained(tmp_path / "runs" / "book")
    tokenizer.save_pretrained(tmp_path / "runs" / "book")
    (tmp_path / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc_per_node", "2", name]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 0, result.stderr[-3000:]
    if name == "share_layers.py":
        written = [line for line in result.stdout.splitlines() if line.startswith("['Once")]
        assert len(written) == 2
        assert written[0] == written[1]
    else:
        before = AutoModelForCausalLM.from_pretrained(tmp_path / "runs" / "book")
        after = AutoModelForCausalLM.from_pretrained(tmp_path / "runs" / "shares")
        for name, parameter in before.named_parameters():
            assert parameter.shape == after.get_parameter(name).shape
        assert not torch.equal(before.model.norm.weight, after.model.norm.weight)


def test_every_program_is_found():
    names = [name for name, _ in PROGRAM.findall(PAGE.read_text(encoding="utf-8"))]
    assert names == ["train_shares.py", "share_layers.py"]
