"""A checkpoint that carries its code loads where the package is not installed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM
from transformers.dynamic_module_utils import get_relative_import_files

import hf_seqmodels.models
from hf_seqmodels.auto_classes import auto_map_for

MODELS = Path(hf_seqmodels.models.__file__).parent
STRANGER = """
import sys
sys.modules["hf_seqmodels"] = None  # any import of the package fails from here on
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM
folder = sys.argv[1]
model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True).eval()
body = AutoModel.from_pretrained(folder, trust_remote_code=True)
config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
assert type(model).__name__ == "RnnSeq2SeqForConditionalGeneration", type(model)
assert type(body).__name__ == "RnnSeq2SeqModel", type(body)
assert type(config).__name__ == "RnnSeq2SeqConfig", type(config)
batch = torch.load(folder + "/batch.pt")
beams = model.generate(batch["input_ids"], num_beams=3, max_new_tokens=6)
torch.save({"logits": model(**batch).logits.detach(), "beams": beams}, folder + "/seen.pt")
"""


def export_with_code(model, folder):
    """Save a model together with the files its classes are made of and the full auto_map."""
    model.save_pretrained(folder)
    auto_map = auto_map_for(model.config)
    for module in {reference.partition(".")[0] for reference in auto_map.values()}:
        for source in (
            MODELS / f"{module}.py",
            *get_relative_import_files(MODELS / f"{module}.py"),
        ):
            shutil.copy(source, folder)
    config_file = folder / "config.json"
    config_file.write_text(
        json.dumps({**json.loads(config_file.read_text()), "auto_map": auto_map})
    )


@pytest.mark.slow
def test_stranger_computes_the_same_numbers(tmp_path):
    config = AutoConfig.for_model(
        "seqmodels_rnn_seq2seq",
        vocab_size=23,
        decoder_vocab_size=29,
        embedding_size=10,
        hidden_size=12,
        encoder_hidden_size=14,
    )
    model = AutoModelForSeq2SeqLM.from_config(config).eval()
    batch = {
        "input_ids": torch.randint(4, 23, (2, 7)),  # (B, S)
        "decoder_input_ids": torch.randint(4, 29, (2, 5)),  # (B, T)
    }
    export_with_code(model, tmp_path)
    torch.save(batch, tmp_path / "batch.pt")

    finished = subprocess.run(
        [sys.executable, "-c", STRANGER, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ,
    )

    assert finished.returncode == 0, finished.stderr
    seen = torch.load(tmp_path / "seen.pt")
    torch.testing.assert_close(seen["logits"], model(**batch).logits, rtol=0, atol=0)
    expected_beams = model.generate(batch["input_ids"], num_beams=3, max_new_tokens=6)
    assert torch.equal(seen["beams"], expected_beams)
