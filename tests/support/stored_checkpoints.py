"""Store a tiny checkpoint of a family, which every later version has to load.

    cd tests/support
    python stored_checkpoints.py seqmodels_rnn_seq2seq bahdanau hidden_size=6 embedding_size=5

writes tests/data/checkpoints/<model_type>/<case>/ (weights, settings, inputs and what the model
makes of them), for one case of the family's grid made smaller, and public_names.json beside it: the
fields of the config, and the parameters of every representative case. A new family runs this once
when it lands. What is stored is never written again: parameter names and config fields are public.
A change that old checkpoints cannot survive stores new ones under another case and says so in
CHANGELOG.md.
"""

import dataclasses
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers.utils.logging import disable_progress_bar

from family_cases import Case, representatives_of
from family_grids import GRIDS
from generation_inputs import prompts
from padded_rows import pad_rows

CHECKPOINTS = Path(__file__).parents[1] / "data" / "checkpoints"
CASE_FILES = ("config.json", "generation_config.json", "model.safetensors")
EXAMPLE_FILE, NAMES_FILE = "example.safetensors", "public_names.json"
BEAMS = {"num_beams": 3, "max_new_tokens": 5}


def outputs_of(model: Any, example: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return what a model makes of the inputs in an example.

    Args:
        model: in evaluation mode.
        example: arguments of forward as "forward.<name>", of generate as "generate.<name>".
    """
    arguments = {
        call: {
            name.partition(".")[2]: value
            for name, value in example.items()
            if name.startswith(f"{call}.")
        }
        for call in ("forward", "generate")
    }
    with torch.no_grad():
        outputs = model(**arguments["forward"])
        found = {name: outputs[name] for name in ("loss", "logits") if name in outputs}
        found = found or {"last_hidden_state": outputs[0]}
        if arguments["generate"]:
            found["beams"] = model.generate(**arguments["generate"], **BEAMS)
    return found


def store_case(case: Case, folder: Path, changes: dict[str, Any]) -> None:
    """Store the weights of a case, with inputs and outputs."""
    model = case.model(dtype=torch.float32, **changes)
    example = {
        f"forward.{name}": value
        for name, value in pad_rows(case, model.config, "right").batch.items()
    }
    if case.grid.generates:
        for name, value in prompts(case, config=model.config).items():
            example[f"generate.{name}"] = value
    example |= {f"expected.{name}": value for name, value in outputs_of(model, example).items()}
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        saved = Path(scratch, "checkpoint-0")  # a name that brings no code
        model.save_pretrained(saved)
        for path in saved.iterdir():
            assert path.name in CASE_FILES, path
            shutil.copy(path, folder)
    save_file({name: value.contiguous() for name, value in example.items()}, folder / EXAMPLE_FILE)


def public_names(grid: Any) -> dict[str, Any]:
    """Return the fields of the config, and options and parameters of every representative case."""
    parameters, cases = [], {}
    for case in representatives_of(grid):
        names = parameter_names(grid, case.config())
        parameters += [name for name in names if name not in parameters]
        cases[case.id] = {
            "options": {**grid.base, **case.options},
            "parameters": [parameters.index(name) for name in names],
        }
    config_class = grid.family.config_class
    fields = {field.name for field in dataclasses.fields(config_class)}
    fields &= vars(config_class)["__annotations__"].keys()  # leaves out those of transformers
    return {"config_fields": sorted(fields), "parameters": parameters, "cases": cases}


def parameter_names(grid: Any, config: Any) -> list[str]:
    """Return the names under which the head of a family saves its parameters."""
    with torch.device("meta"):
        return list(grid.model_class(config).state_dict())


def main(model_type: str, case_id: str, *changes: str) -> None:
    """Store one case of a family; refuses what is stored already."""
    disable_progress_bar()
    grid = next(grid for grid in GRIDS if grid.model_type == model_type)
    case = next(case for case in representatives_of(grid) if case.id == case_id)
    folder = CHECKPOINTS / model_type / case_id
    if folder.exists():
        sys.exit(f"{folder} is stored already and is not written again. Choose another case.")
    options = {name: json.loads(value) for name, value in (text.split("=") for text in changes)}
    store_case(case, folder, options)
    names_file = folder.parent / NAMES_FILE
    if not names_file.exists():
        text = json.dumps(public_names(grid), separators=(",", ":"))
        names_file.write_text(text.replace('},"', '},\n"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
