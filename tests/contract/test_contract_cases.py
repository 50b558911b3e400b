"""The contract tests see every family, and every value of every option."""

import inspect
import types
import typing
from typing import Any, Literal

import pytest

from family_cases import Grid, full_groups_of, representatives_of
from family_grids import GRIDS
from hf_seqmodels.auto_classes import FAMILIES

GRID_PARAMETERS = [pytest.param(grid, id=grid.model_type) for grid in GRIDS]


def own_fields(grid: Grid) -> dict[str, Any]:
    """Return {field: type} of what the family's config adds to transformers' own."""
    return inspect.get_annotations(grid.family.config_class)


def choices(annotation: Any) -> set[Any]:
    """Return the values that an annotation names: those of a Literal, True and False, None."""
    if typing.get_origin(annotation) is Literal:
        return set(typing.get_args(annotation))
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return set().union(*(choices(part) for part in typing.get_args(annotation)))
    if annotation is bool:
        return {True, False}
    return {None} if annotation is type(None) else set()


def values_of(configs, name: str) -> set[Any]:
    """Return the values that a field takes, but lists."""
    values = (getattr(config, name) for config in configs)
    return {value for value in values if not isinstance(value, list)}


def none_asked(grid: Grid, asked, name: str) -> set[None]:
    """Return None where a case sets a field to it or leaves it so; the config may fill in what that
    means."""
    default = vars(grid.family.config_class).get(name)
    return {None} if any(options.get(name, default) is None for options in asked) else set()


def test_every_family_of_the_table_has_cases():
    assert {grid.model_type for grid in GRIDS} == {family.model_type for family in FAMILIES}


@pytest.mark.parametrize("grid", GRID_PARAMETERS)
def test_representatives_cover_every_named_value_of_every_field(grid):
    configs = [case.config() for case in representatives_of(grid)]
    asked = [grid.base | case.options for case in representatives_of(grid)]
    special_ids = {name for name in own_fields(grid) if name.endswith("_token_id")}
    missing = {
        name: values
        for name, annotation in own_fields(grid).items()
        if name not in grid.fixed_fields | special_ids
        if (
            values := choices(annotation) - values_of(configs, name) - none_asked(grid, asked, name)
        )
    }
    assert not missing


@pytest.mark.parametrize("grid", GRID_PARAMETERS)
def test_representatives_move_every_field_away_from_its_default(grid):
    default = grid.family.config_class()
    configs = [case.config() for case in representatives_of(grid)]
    never_moved = [
        name
        for name in own_fields(grid)
        if name not in grid.fixed_fields
        and all(getattr(config, name) == getattr(default, name) for config in configs)
    ]
    assert not never_moved


@pytest.mark.parametrize("grid", GRID_PARAMETERS)
def test_no_two_cases_of_a_list_are_the_same_config(grid):
    lists = [representatives_of(grid)]
    lists.append([case for group in full_groups_of(grid) for case in group.cases])
    for cases in lists:
        configs = [case.config().to_json_string() for case in cases]
        assert len(set(configs)) == len(cases)


@pytest.mark.parametrize("grid", GRID_PARAMETERS)
def test_rows_differ_in_length_and_share_no_axis_size(grid):
    config = representatives_of(grid)[0].config()
    rows = grid.make_rows(config)
    lengths = [tuple(row[side.tokens].shape[0] for side in grid.sides) for row in rows]
    assert all(len(set(sizes)) == len(rows) for sizes in zip(*lengths, strict=True))
    assert len({len(rows), *(max(sizes) for sizes in zip(*lengths, strict=True))}) == 1 + len(
        grid.sides
    )
