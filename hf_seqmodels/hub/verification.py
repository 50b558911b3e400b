"""Load an export in a fresh process without this package, and compare numbers."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_seqmodels.hub import fresh_process

# numbers of the same code on the same machine are equal; this is far below what a wrong weight does
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}
RUN_WITHOUT_PACKAGE = (
    "import runpy, sys; sys.modules['hf_seqmodels'] = None; "
    "runpy.run_path(sys.argv[1], run_name='__main__')"
)
NOT_HANDED_ON = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "PYTHONSTARTUP", "PYTHONINSPECT")


def verify_export(
    folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None
) -> None:
    """Check that a folder gives a stranger what the model at hand gives.

    In a process where this package cannot be imported, with no network and no access token,
    AutoConfig, AutoModel, the Auto class of the model, AutoTokenizer and `pipeline()` load the
    folder; outputs, beam search, generation defaults, token ids and texts must be those of this
    process.

    Args:
        folder: what `export` wrote.
        model: that was exported.
        tokenizer: that was exported.

    Raises:
        RuntimeError: if something does not load or differs.
    """
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        texts = example_texts(tokenizer)
        with _evaluating(model):
            inputs = example_inputs(model)
            expected = fresh_process.describe(model, tokenizer, inputs, texts)
            if tokenizer is not None:
                pipelines = getattr(type(model), "code_entries", {}).get("custom_pipelines", ())
                expected |= fresh_process.describe_pipelines(
                    pipelines, texts["text"], str(model.device), model=model, tokenizer=tokenizer
                )
        question = {"inputs": inputs, "texts": texts, "device": str(model.device)}
        question |= {"model_class": type(model).__name__, "has_tokenizer": tokenizer is not None}
        torch.save(question, place / "question.pt")
        finished = subprocess.run(
            [
                *(sys.executable, "-c", RUN_WITHOUT_PACKAGE, fresh_process.__file__),
                *(str(folder.resolve()), str(place)),
            ],
            capture_output=True,
            text=True,
            cwd=place,
            env=_environment(place),
        )
        if finished.returncode != 0:
            raise RuntimeError(
                "The export does not load without the package, so it was not finished. This is an "
                f"error of hf_seqmodels, please report it:\n{finished.stderr.strip()[-4000:]}"
            )
        _compare(torch.load(place / "answer.pt"), expected)


def example_inputs(model: PreTrainedModel) -> dict[str, Tensor]:
    """Make two rows of token ids that a model can read.

    Args:
        model: reads token ids.

    Returns:
        Arguments of forward, on the device of the model.
    """
    assert model.main_input_name == "input_ids", f"say here what {type(model).__name__} reads"
    generator = torch.Generator().manual_seed(0)
    longest = getattr(model.config, "max_position_embeddings", None) or 7
    length = min(7, longest)

    def token_ids(table: Any) -> Tensor:
        return torch.randint(table.num_embeddings, (2, length), generator=generator)

    inputs = {"input_ids": token_ids(model.get_input_embeddings())}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if model.config.is_encoder_decoder:
        decoder = model.get_decoder()
        inputs["decoder_input_ids"] = token_ids(decoder.get_input_embeddings())
    return {name: value.to(model.device) for name, value in inputs.items()}


def example_texts(tokenizer: PreTrainedTokenizerBase | None) -> dict[str, str]:
    """Make texts from the vocabulary of a tokenizer.

    Args:
        tokenizer: may have a target side.

    Returns:
        {side: text}, without a tokenizer nothing.
    """
    sides = {"text": tokenizer, "text_target": getattr(tokenizer, "target_tokenizer", None)}
    return {
        side: " ".join(sorted(one.get_vocab())[:20])
        for side, one in sides.items()
        if one is not None
    }


@contextlib.contextmanager
def _evaluating(model: PreTrainedModel) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _environment(scratch: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in NOT_HANDED_ON}
    home = {"HF_HOME": str(scratch / "home"), "HF_MODULES_CACHE": str(scratch / "code")}
    alone = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**kept, **home, **alone}


def _compare(found: dict[str, Any], expected: dict[str, Any]) -> None:
    different = sorted(found.keys() ^ expected.keys())
    for name in found.keys() & expected.keys():
        left, right = found[name], expected[name]
        if isinstance(left, Tensor) and left.is_floating_point():
            same = left.shape == right.shape and torch.allclose(
                left, right, **TOLERANCE, equal_nan=True
            )
        else:
            same = torch.equal(left, right) if isinstance(left, Tensor) else left == right
        if not same:
            different.append(name)
    if different:
        raise RuntimeError(
            "The export does not compute what the model at hand computes, so it was not finished: "
            f"{', '.join(sorted(different))} differ. If the model was changed by hand in this "
            "process, save and load it first; else please report this error of hf_seqmodels."
        )
