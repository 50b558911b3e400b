"""`python -m hf_seqmodels`: scripts and commands of transformers that know the families."""

import json
import socket
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.import_utils import is_serve_available

from family_cases import randomize
from hf_seqmodels import DecoderLMForCausalLM
from hf_seqmodels.__main__ import main, name_classes_in_transformers
from hf_seqmodels.hub import export
from tiny_language_models import character_tokenizer, make_language_model

PROMPT = "ab ba"


@pytest.fixture
def named_classes():
    """Let transformers carry the model classes for the time of a test."""
    name_classes_in_transformers()
    transformers = sys.modules["transformers"]
    yield transformers
    for name, value in list(vars(transformers).items()):
        if getattr(value, "__module__", "").startswith("hf_seqmodels."):
            delattr(transformers, name)


def make_checkpoint(family: str, kind: str, folder):
    """Save a small language model of characters that answers a chat, as it is or as an export."""
    tokenizer = character_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    model = make_language_model(family, tokenizer)
    randomize(model, seed=6)
    if kind == "exported":
        return export(model, tokenizer, folder, verify=False)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def greedy_text(folder) -> str:
    """Return what `generate` adds to the prompt as the chat template writes it."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "user", "content": PROMPT}]
    inputs = tokenizer.apply_chat_template(chat, return_tensors="pt", return_dict=True)
    read = inputs["input_ids"].shape[1]
    with torch.no_grad():
        written = model.generate(**inputs, max_new_tokens=9, do_sample=False)
    return tokenizer.decode(written[0, read:], skip_special_tokens=True)


@pytest.mark.slow
@pytest.mark.skipif(not is_serve_available(), reason="needs fastapi, uvicorn and openai")
@pytest.mark.parametrize(
    ("family", "kind", "continuous_batching"),
    [
        ("decoder_lm", "saved", False),
        ("decoder_lm", "exported", True),
        ("rnn_lm", "exported", False),
    ],
)
def test_serve_answers_a_chat_as_generate_does(
    family, kind, continuous_batching, named_classes, tmp_path
):
    from openai import OpenAI
    from transformers.cli.serve import Serve

    checkpoint = make_checkpoint(family, kind, tmp_path / "model")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Serve(
        force_model=str(checkpoint),
        continuous_batching=continuous_batching,
        device="cpu",
        host="127.0.0.1",
        port=port,
        cb_num_blocks=16,
        cb_max_batch_tokens=64,
        non_blocking=True,
    )
    try:
        client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=9)
        request = {"model": str(checkpoint), "max_tokens": 9, "temperature": 0}
        chat = client.chat.completions.create(
            messages=[{"role": "user", "content": PROMPT}], **request
        )
        assert greedy_text(checkpoint)
        assert chat.choices[0].message.content == greedy_text(checkpoint)
        completion = client.completions.create(prompt=PROMPT, **request)
        assert completion.choices[0].text == greedy_text(checkpoint)
        assert completion.usage.completion_tokens == 9
    finally:
        server.kill_server()


@pytest.mark.slow
def test_a_script_runs_in_place_and_knows_the_families(tmp_path):
    script = tmp_path / "show.py"
    script.write_text(
        "import json, sys, neighbour\n"
        "from transformers import AutoModelForCausalLM, AutoConfig\n"
        "model = AutoModelForCausalLM.from_config(AutoConfig.for_model('seqmodels_decoder_lm'))\n"
        "print(json.dumps([__name__, sys.argv, neighbour.NAME, type(model).__name__]))\n"
    )
    (tmp_path / "neighbour.py").write_text("NAME = 'beside'\n")
    command = [sys.executable, "-m", "hf_seqmodels", str(script), "--flag", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == ["__main__", [str(script), "--flag", "3"], "beside", "DecoderLMForCausalLM"]


def test_what_is_neither_script_nor_command_is_refused():
    with pytest.raises(SystemExit, match=r"there is no file and no command 'nothing'"):
        main(["nothing"])


def test_without_arguments_the_usage_is_shown(capsys):
    main([])
    assert capsys.readouterr().out.startswith("usage: python -m hf_seqmodels SCRIPT.py")


def test_names_of_transformers_stay_its_own(named_classes):
    assert named_classes.DecoderLMForCausalLM is DecoderLMForCausalLM
    assert named_classes.GPT2LMHeadModel.__module__.startswith("transformers.")
