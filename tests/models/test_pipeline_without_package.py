"""A saved checkpoint brings its pipeline to where the package is not installed."""

import json
import os
import subprocess
import sys

import pytest
import torch
from transformers import pipeline

from hf_seqmodels.data import Seq2SeqTokenizer
from tiny_encoder_decoders import make_rnn, make_tokenizer

SOURCES = ["a b c", "", "e f g h i j a", "k l"]
SETTINGS = {
    "num_beams": 3,
    "num_return_sequences": 2,
    "max_new_tokens": 6,
    "return_scores": True,
    "return_alignments": True,
}
STRANGER = """
import json, sys
sys.modules["hf_seqmodels"] = None  # any import of the package fails from here on
from transformers import pipeline
folder, sources, settings = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
try:
    pipeline("seq2seq-generation", model=folder, trust_remote_code=False)
except ValueError as error:
    assert "trust_remote_code=True" in str(error), error
by_task = pipeline("seq2seq-generation", model=folder, trust_remote_code=True, device="cpu")
guessed = pipeline(model=folder, trust_remote_code=True, device="cpu", **settings)
for loaded in (by_task, by_task.model, by_task.tokenizer, guessed):
    assert type(loaded).__module__.startswith("transformers_modules"), type(loaded)
found = by_task(sources, batch_size=2, **settings)
assert [guessed(source) for source in sources][0][0]["generated_text"]
by_task.save_pretrained(folder + "/again")
again = pipeline("seq2seq-generation", model=folder + "/again", trust_remote_code=True)
assert again(sources, batch_size=2, **settings) == found
print(json.dumps(found))
"""


@pytest.mark.slow
def test_stranger_gets_the_same_outputs_scores_and_alignments(tmp_path):
    torch.manual_seed(3)
    model = make_rnn(decoder_vocab_size=11)
    tokenizer = Seq2SeqTokenizer.from_pair(make_tokenizer(), make_tokenizer("ABCDEFG"))
    pipe = pipeline("seq2seq-generation", model=model, tokenizer=tokenizer, device="cpu")
    pipe.save_pretrained(tmp_path)
    assert len(list(tmp_path.glob("*.py"))) <= 10
    finished = subprocess.run(
        [sys.executable, "-c", STRANGER, str(tmp_path), *map(json.dumps, (SOURCES, SETTINGS))],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ,
    )
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout.splitlines()[-1])
    assert found == pipe(SOURCES, batch_size=2, **SETTINGS)
    assert {output["generated_text"] for outputs in found for output in outputs} != {""}
