"""Checkpoints stored by earlier versions load, and give the numbers they gave."""

import dataclasses
import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig

import stored_checkpoints
from family_grids import GRIDS
from stored_checkpoints import CHECKPOINTS, EXAMPLE_FILE, NAMES_FILE, outputs_of, parameter_names

STORED = sorted(path.parent for path in CHECKPOINTS.glob(f"*/*/{EXAMPLE_FILE}"))
GRID_OF = {grid.model_type: grid for grid in GRIDS}
every_checkpoint = pytest.mark.parametrize(
    "folder", STORED, ids=lambda folder: f"{folder.parent.name}-{folder.name}"
)
WRITTEN_BY_TRANSFORMERS = {"architectures", "dtype", "model_type", "transformers_version"}


def test_every_family_has_a_stored_checkpoint():
    missing = sorted(set(GRID_OF) - {folder.parent.name for folder in STORED})
    assert not missing, f"run tests/support/stored_checkpoints.py for {', '.join(missing)}"


@every_checkpoint
def test_weights_load_under_their_names_and_give_their_numbers(folder):
    example = load_file(folder / EXAMPLE_FILE)
    model_class = GRID_OF[folder.parent.name].model_class

    model, report = model_class.from_pretrained(folder, output_loading_info=True)

    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not report[kind], (kind, report[kind])
    found = outputs_of(model, example)
    expected = {
        name.removeprefix("expected."): value
        for name, value in example.items()
        if name.startswith("expected.")
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        tolerance = {"rtol": 1e-4, "atol": 1e-5} if value.is_floating_point() else {}
        torch.testing.assert_close(found[name], value, **tolerance)


@every_checkpoint
def test_settings_load_as_they_were(folder):
    stored = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = AutoConfig.from_pretrained(folder)
    loaded = config.to_dict()
    fields = {field.name for field in dataclasses.fields(type(config))}
    for name in stored.keys() - WRITTEN_BY_TRANSFORMERS:
        assert name in fields, f"the config has no field {name} any more"
        assert loaded[name] == stored[name], name


@pytest.mark.parametrize("model_type", sorted({folder.parent.name for folder in STORED}))
def test_public_names_are_still_those(model_type):
    grid = GRID_OF[model_type]
    stored = json.loads((CHECKPOINTS / model_type / NAMES_FILE).read_text(encoding="utf-8"))
    fields = {field.name for field in dataclasses.fields(grid.family.config_class)}
    assert set(stored["config_fields"]) <= fields
    for name, case in stored["cases"].items():
        config = grid.family.config_class(**case["options"])
        expected = {stored["parameters"][index] for index in case["parameters"]}
        assert set(parameter_names(grid, config)) == expected, name


def test_what_is_stored_is_not_written_again(capsys):
    folder = STORED[0]
    before = (folder / "model.safetensors").read_bytes()
    with pytest.raises(SystemExit, match="is stored already"):
        stored_checkpoints.main(folder.parent.name, folder.name)
    assert (folder / "model.safetensors").read_bytes() == before
