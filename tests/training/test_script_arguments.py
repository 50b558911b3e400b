"""Recipes, command-line options over them, and typed configuration overrides."""

import dataclasses
from dataclasses import dataclass, field
from typing import Literal

import pytest
from script_arguments import (
    given_options,
    parse_arguments,
    read_overrides,
    split_outside_brackets,
    typed_overrides,
    typed_value,
)


@dataclass
class Options:
    model_type: str | None = None
    learning_rate: float = 0.1
    num_beams: int | None = None
    shuffle: bool = True
    metrics: list[str] = field(default_factory=lambda: ["wer"])
    config_overrides: list[str] | None = field(default=None, metadata={"action": "extend"})


@dataclass
class Config:
    hidden_size: int = 8
    dropout: float | int = 0.1
    cell_type: Literal["gru", "lstm"] = "gru"
    scorer: Literal["dot"] | None = "dot"
    tied: bool = False
    eos_token_id: int | list[int] | None = 2
    activation: str | None = "gelu"


def parse(*words):
    return parse_arguments((Options,), words)[0]


@pytest.fixture
def recipe(tmp_path):
    def write(text, name="recipe.yaml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def test_recipe_values_are_typed_like_options(recipe):
    path = recipe(
        "model_type: bart\nlearning_rate: 2e-3\nnum_beams: 5\nshuffle: false\n"
        "metrics: [cer, bleu]\nconfig_overrides: {hidden_size: 16, dropout: 0.3}\n"
    )
    options = parse(path)
    assert options == Options("bart", 0.002, 5, False, ["cer", "bleu"], options.config_overrides)
    assert read_overrides(options.config_overrides) == {"hidden_size": 16, "dropout": 0.3}


def test_json_recipe_says_the_same_as_yaml(recipe):
    yaml_path = recipe("num_beams: 3\nmetrics: [cer]\n")
    json_path = recipe('{"num_beams": 3, "metrics": ["cer"]}', name="recipe.json")
    assert parse(yaml_path) == parse(json_path) == Options(num_beams=3, metrics=["cer"])


def test_options_after_the_recipe_win_over_it(recipe):
    path = recipe("num_beams: 5\nmetrics: [cer]\nconfig_overrides: {hidden_size: 16, tied: true}\n")
    options = parse(
        path, "--num_beams", "2", "--config_overrides", "hidden_size=32", "--metrics", "per"
    )
    assert (options.num_beams, options.metrics) == (2, ["per"])
    assert read_overrides(options.config_overrides) == {"hidden_size": "32", "tied": True}


def test_null_in_a_recipe_keeps_the_default(recipe):
    assert parse(recipe("num_beams: null\nmodel_type: bart\n")) == Options("bart")


def test_given_options_leave_out_every_default(recipe):
    path = recipe("num_beams: 5\n")
    assert given_options((Options,), [path, "--no_shuffle"]) == {"num_beams": 5, "shuffle": False}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_beam: 5\n", r"unknown keys: 'num_beam' \(did you mean num_beams\?\)"),
        ("num_beams: 5\nnum_beams: 6\n", "num_beams is given twice"),
        ("- num_beams\n", "a recipe is one mapping from option names to values, got list"),
        ("num_beams: [\n", "not a valid YAML or JSON recipe"),
        ("num_beams: many\n", "argument --num_beams.*invalid int value: 'many'"),
        ("num_beams: [1, 2]\n", "belong to no option: 2"),
        ("", "got NoneType"),
    ],
)
def test_bad_recipes_are_refused_with_the_reason(recipe, text, message):
    with pytest.raises(ValueError, match=message):
        parse(recipe(text))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--num_beem", "5"], r"unknown options: 'num_beem' \(did you mean num_beams\?\)"),
        (["--num-beem=5"], "unknown options: 'num_beem'"),
        (["--num_beams"], "expected one argument"),
        (["recipe.txt"], "the only positional argument is a recipe ending in .yaml"),
        (["missing.yaml"], "recipe 'missing.yaml' does not exist"),
        (
            ["--num_beams", "5", "recipe.yaml"],
            "belong to no option: recipe.yaml. A recipe comes first",
        ),
        (["--metr", "wer"], "unknown options: 'metr'"),
    ],
)
def test_bad_command_lines_are_refused_with_the_reason(words, message):
    with pytest.raises(ValueError, match=message):
        parse(*words)


def test_overrides_take_the_type_of_their_field():
    words = [
        "hidden_size=32,dropout=0.5,cell_type=lstm,scorer=none",
        "tied=true,eos_token_id=[1,2]",
    ]
    assert typed_overrides(Config, read_overrides(words)) == {
        "hidden_size": 32,
        "dropout": 0.5,
        "cell_type": "lstm",
        "scorer": None,
        "tied": True,
        "eos_token_id": [1, 2],
    }


def test_values_of_a_recipe_mapping_keep_their_type():
    assert typed_overrides(Config, {"hidden_size": 32, "tied": False}) == {
        "hidden_size": 32,
        "tied": False,
    }


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "hiden_size=3",
            r"Config has no field of these names: 'hiden_size' \(did you mean hidden_size",
        ),
        ("hidden_size=wide", "hidden_size must be int, got 'wide'"),
        ("cell_type=elman", "cell_type must be one of gru, lstm, got 'elman'"),
        ("tied=1", "tied must be bool, got '1'"),
        ("hidden_size", "takes name=value pairs with commas between, got 'hidden_size'"),
        ("{hidden_size=3", "not a JSON object"),
    ],
)
def test_bad_overrides_are_refused_with_the_reason(word, message):
    with pytest.raises(ValueError, match=message):
        typed_overrides(Config, read_overrides([word]))


def test_aliases_of_a_configuration_are_fields_too():
    from transformers import BartConfig

    assert typed_overrides(BartConfig, {"hidden_size": "12"}) == {"hidden_size": 12}
    assert dataclasses.is_dataclass(BartConfig)


def test_an_integer_comes_before_a_float():
    value = typed_value("x", "3", float | int | None)
    assert (value, type(value)) == (3, int)


def test_commas_in_brackets_do_not_split():
    assert split_outside_brackets("a=[1,2],b={3,4},,c=(5)") == ["a=[1,2]", "b={3,4}", "c=(5)"]
