"""Tiny checkpoints to push and pull, and what must come back of them."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import hf_seqmodels.models
import stranger
from hf_seqmodels import RnnSeq2SeqConfig
from hf_seqmodels.auto_classes import FAMILIES
from hf_seqmodels.data import Seq2SeqTokenizer, train_tokenizer
from stranger import outputs_of

ROOT = Path(__file__).parents[2]
MODELS = Path(hf_seqmodels.models.__file__).parent


def make_tokenizer() -> Seq2SeqTokenizer:
    """Return a tokenizer of two sides with vocabularies of different sizes."""
    return Seq2SeqTokenizer.from_pair(
        train_tokenizer(["abcde", "edcba", "ab cd"], model="char"),
        train_tokenizer(["ABC", "BCA"], model="char"),
    )


def make_model(seed: int = 1):
    """Return a tiny encoder-decoder for that tokenizer; another seed, other weights."""
    torch.manual_seed(seed)
    tokenizer = make_tokenizer()
    config = RnnSeq2SeqConfig(
        vocab_size=len(tokenizer),
        decoder_vocab_size=len(tokenizer.target_tokenizer),
        embedding_size=10,
        hidden_size=12,
        encoder_hidden_size=14,
    )
    model = AutoModelForSeq2SeqLM.from_config(config).eval()
    model.generation_config.max_length = 9
    return model


def pull(name: str, **options: Any) -> dict[str, Any]:
    """Load a model and its tokenizer in this process and return what they compute."""
    model = AutoModelForSeq2SeqLM.from_pretrained(name, **options)
    return outputs_of(model, AutoTokenizer.from_pretrained(name, **options))


def pull_as_stranger(
    name: str, folder: Path, environment: dict[str, str], *, revision: str | None = None
) -> dict[str, Any]:
    """Load a model in a fresh process that cannot import the package, and return the same.

    Args:
        name: id on the hub, or a path.
        folder: where that process runs.
        environment: of that process.
        revision: to load.
    """
    result_file = folder / "found.pt"
    words = [name, str(result_file), *([revision] if revision else [])]
    finished = subprocess.run(
        [sys.executable, stranger.__file__, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    return torch.load(result_file)


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Check two results of `outputs_of`, and the texts of a pipeline where there are any.

    Tokens are the same; numbers may differ in their last bit, since kernels sum in another order
    where memory is aligned in another way.
    """
    assert torch.equal(found["beams"], expected["beams"])
    for name in ("logits", "scores"):
        torch.testing.assert_close(found[name], expected[name], rtol=2e-6, atol=1e-6)
    written = [
        [(output["generated_text"], pytest.approx(output["score"], rel=1e-5)) for output in outputs]
        for outputs in expected.get("texts", [])
    ]
    assert written == [
        [(output["generated_text"], output["score"]) for output in outputs]
        for outputs in found.get("texts", [])[: len(written)]
    ]


def code_of(*sources: Any) -> dict[str, bytes]:
    """Return {file name: content} of code: of files on a hub, or what models and tokenizers need.

    The latter is found by reading the import lines, beginning with the files of the classes.
    """
    if isinstance(sources[0], dict):
        return {path: file.content for path, file in sources[0].items() if path.endswith(".py")}
    modules = [type(source).__module__.rpartition(".")[2] for source in sources]
    modules += [type(source.config).__module__.rpartition(".")[2] for source in sources[:1]]
    for family in FAMILIES:
        if isinstance(sources[0].config, family.config_class):
            modules += [reference.partition(".")[0] for reference, _ in family.pipelines.values()]
    modules = [module for module in modules if (MODELS / f"{module}.py").is_file()]
    for module in modules:  # which grows on the way
        text = (MODELS / f"{module}.py").read_text(encoding="utf-8")
        modules += set(re.findall(r"^from \.(\w+) import", text, re.MULTILINE)) - set(modules)
    return {f"{module}.py": (MODELS / f"{module}.py").read_bytes() for module in modules}
