"""What a fresh process without the package runs on an export; needs torch and transformers alone.

    python -c "(hide the package and run this file)" THIS_FILE FOLDER SCRATCH

reads question.pt in SCRATCH and writes answer.pt there.
"""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer, pipeline
from transformers.dynamic_module_utils import get_class_from_dynamic_module
from transformers.utils import logging

BEAMS = {"num_beams": 3, "num_return_sequences": 1, "do_sample": False, "max_new_tokens": 8}


def describe(
    model: Any, tokenizer: Any, inputs: dict[str, Tensor], texts: dict[str, str]
) -> dict[str, Any]:
    """Compute whatever two copies of a model and its tokenizer must agree on.

    Args:
        model: in evaluation mode.
        tokenizer: its tokenizer or None.
        inputs: arguments of forward.
        texts: arguments of the tokenizer.

    Returns:
        {what it is: tensors on the CPU, or plain values}.
    """
    facts: dict[str, Any] = {"class": type(model).__name__}
    with torch.no_grad():
        outputs = model(**inputs)
        body = model.base_model(**inputs)
        for part, output in (("outputs", outputs), ("body", body)):
            for name, value in output.items():
                if isinstance(value, Tensor):
                    facts[f"{part}.{name}"] = value.cpu()
        if model.can_generate():
            read = {name: inputs[name] for name in ("input_ids", "attention_mask")}
            with _quiet():
                facts["beams"] = model.generate(**read, **BEAMS).cpu()
            facts["generation_config"] = _settings(model.generation_config)
    if tokenizer is not None:
        encoding = tokenizer(**texts)
        facts["token_ids"] = {name: list(ids) for name, ids in encoding.items()}
        token_ids = encoding["labels" if "labels" in encoding else "input_ids"]
        facts["decoded"] = tokenizer.decode(token_ids)
    return facts


def describe_pipelines(
    tasks: Iterable[str], text: str, device: str, **where: Any
) -> dict[str, Any]:
    """Run the pipelines that a model comes with.

    Args:
        tasks: names of tasks.
        text: to run them on.
        device: of the model.
        **where: arguments of `pipeline()` that give the model.

    Returns:
        {task: result}.
    """
    facts, make_pipeline = {}, cast(Any, pipeline)  # whose types know no task of others
    with _quiet():
        for task in tasks:
            run = make_pipeline(task, device=device, **where)
            facts[f"pipeline {task}"] = run(text, num_beams=3, max_new_tokens=8)
    return facts


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out the hints of generate(), whose arguments are fixed here."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _settings(generation_config: Any) -> dict[str, Any]:
    settings = generation_config.to_dict()
    settings.pop("transformers_version", None)  # written when it is saved
    return {name: value for name, value in settings.items() if value is not None and name[0] != "_"}


def load_and_describe(folder: str, question: dict[str, Any]) -> dict[str, Any]:
    """Load a folder by every Auto class that its config names, and describe what was loaded.

    Args:
        folder: the export.
        question: what `verify_export` asks.

    Returns:
        As `describe`.
    """
    config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
    head = None
    for auto_name, reference in config.auto_map.items():
        loaded = get_class_from_dynamic_module(reference, folder)
        assert loaded.__name__ == reference.rpartition(".")[2]
        if loaded.__name__ == question["model_class"]:
            head = getattr(transformers, auto_name)
    assert head is not None, f"auto_map does not name {question['model_class']}"
    device = question["device"]
    model = head.from_pretrained(folder, trust_remote_code=True).to(device).eval()
    tokenizer = None
    if question["has_tokenizer"]:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    facts = describe(model, tokenizer, question["inputs"], question["texts"])
    if tokenizer is not None:
        facts |= describe_pipelines(
            getattr(config, "custom_pipelines", {}),
            question["texts"]["text"],
            device,
            model=folder,
            trust_remote_code=True,
        )
    body = AutoModel.from_pretrained(folder, trust_remote_code=True).to(device).eval()
    with torch.no_grad():
        for name, value in body(**question["inputs"]).items():
            # a pooler that the head does without is not in the checkpoint
            if f"body.{name}" in facts:
                facts[f"body.{name}"] = value.cpu()
    return facts


if __name__ == "__main__":
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    _folder, _scratch = sys.argv[-2], Path(sys.argv[-1])
    _question = torch.load(_scratch / "question.pt")
    torch.save(load_and_describe(_folder, _question), _scratch / "answer.pt")
