"""What every training script shares: command line, recipe files and typed configuration overrides.

A script is called as `script.py --option value ...`, as `script.py recipe.yaml`, or as
`script.py recipe.yaml --option value ...`, where the command line has the last word.
A recipe becomes a list of options first, so that both ways are typed and checked by one parser.
"""

import argparse
import dataclasses
import difflib
import json
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from transformers import HfArgumentParser

RECIPE_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass
class RunDefaults:
    """Training arguments whose default differs from transformers': a run keeps its best model.

    Evaluation and checkpoint each epoch, the best model loaded at the end, two checkpoints kept,
    and callbacks (early stopping) restored on resume. To be inherited from before the training
    arguments.
    """

    output_dir: str | None = field(
        default=None, metadata={"help": "Folder the run writes; must not hold other files."}
    )
    eval_strategy: str = field(
        default="epoch", metadata={"help": "When to evaluate: no, steps or epoch."}
    )
    save_strategy: str = field(
        default="epoch", metadata={"help": "When to write a checkpoint: no, steps, epoch or best."}
    )
    save_total_limit: int | None = field(
        default=2, metadata={"help": "Checkpoints kept; the best one is never removed."}
    )
    load_best_model_at_end: bool = field(
        default=True,
        metadata={"help": "Report and save the checkpoint with the best metric_for_best_model."},
    )
    hub_strategy: str = field(
        default="end",
        metadata={
            "help": "With push_to_hub: what is uploaded when; end = once, the finished folder."
        },
    )
    logging_steps: float = field(
        default=50, metadata={"help": "Steps (or share of them) between two log lines."}
    )
    restore_callback_states_from_checkpoint: bool = field(
        default=True,
        metadata={"help": "A resumed run remembers how long early stopping has waited."},
    )

    def __getstate__(self) -> dict[str, Any]:
        """Keep the token out of training_args.bin, which lies in every checkpoint and is pushed."""
        return {**vars(self), "hub_token": None}

    def __post_init__(self):
        if self.output_dir is None:
            raise ValueError(
                "output_dir must be given: the folder the run writes. Pass --output_dir "
                "runs/my_run."
            )
        super().__post_init__()


class ScriptArgumentParser(HfArgumentParser):
    """An `HfArgumentParser` that reports wrong options through `ValueError`.

    Args:
        dataclass_types: the dataclasses whose fields become options.
        **kwargs: passed on to `argparse.ArgumentParser`.
    """

    def __init__(self, dataclass_types: Iterable[type], **kwargs: Any):
        super().__init__(dataclass_types, allow_abbrev=False, **kwargs)

    def error(self, message: str) -> typing.NoReturn:
        """Raise instead of printing the two hundred options and leaving."""
        raise ValueError(f"{message}. Run with --help for the list of options.")


def parse_arguments(dataclass_types: Sequence[type], argv: Sequence[str]) -> tuple:
    """Turn a command line into one instance of each dataclass.

    Args:
        dataclass_types: the dataclasses whose fields are the options.
        argv: the words after the script's name; the first may be a recipe file.

    Returns:
        The instances, in the order of `dataclass_types`.

    Raises:
        ValueError: if an option or a key of the recipe is unknown, or a value has the wrong type.
    """
    *instances, unused = ScriptArgumentParser(dataclass_types).parse_args_into_dataclasses(
        args=option_words(dataclass_types, argv),
        return_remaining_strings=True,
        look_for_args_file=False,
    )
    check_options(unused, option_names(dataclass_types))
    return tuple(instances)


def given_options(dataclass_types: Sequence[type], argv: Sequence[str]) -> dict[str, Any]:
    """Return only what the recipe and the command line say, typed, without any default.

    Args:
        dataclass_types: the dataclasses whose fields are the options.
        argv: the words after the script's name; the first may be a recipe file.

    Returns:
        Values by option name, such as a recipe could hold them.
    """
    parser = ScriptArgumentParser(dataclass_types)
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    namespace, _ = parser.parse_known_args(option_words(dataclass_types, argv))
    return vars(namespace)


def option_names(dataclass_types: Sequence[type]) -> list[str]:
    """Return the names of all options.

    Args:
        dataclass_types: the dataclasses whose fields are the options.

    Returns:
        The names.
    """
    return [
        field.name for dtype in dataclass_types for field in dataclasses.fields(dtype) if field.init
    ]


def option_words(dataclass_types: Sequence[type], argv: Sequence[str]) -> list[str]:
    """Write out a recipe at the head of a command line, so that later options win over it.

    Args:
        dataclass_types: the dataclasses whose fields are the options.
        argv: the words after the script's name; the first may be a recipe file.

    Returns:
        Options alone.

    Raises:
        ValueError: if the recipe cannot be read or has unknown keys.
    """
    words = list(argv)
    if not words or words[0].startswith("-"):
        return words
    path = Path(words.pop(0))
    recipe = read_recipe(path)
    check_names(recipe, option_names(dataclass_types), f"{path}: the recipe has unknown keys")
    return recipe_options(recipe) + words


def read_recipe(path: Path) -> dict[str, Any]:
    """Read a YAML or JSON recipe: one mapping from option names to values.

    Args:
        path: the recipe file.

    Returns:
        The mapping.

    Raises:
        ValueError: if the file is missing, is not such a mapping, or gives one key twice.
    """
    if path.suffix not in RECIPE_SUFFIXES:
        raise ValueError(
            f"the only positional argument is a recipe ending in {', '.join(RECIPE_SUFFIXES)}, "
            f"got {str(path)!r}. Options start with --."
        )
    if not path.is_file():
        raise ValueError(f"the recipe {str(path)!r} does not exist. Check the path.")
    try:
        recipe = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a valid YAML or JSON recipe: {error}") from error
    if not isinstance(recipe, dict) or not all(isinstance(key, str) for key in recipe):
        raise ValueError(
            f"{path}: a recipe is one mapping from option names to values, "
            f"got {type(recipe).__name__}. Write one `option: value` on each line."
        )
    return recipe


class _UniqueKeyLoader(yaml.SafeLoader):
    """A safe loader that refuses a mapping with the same key twice (plain YAML keeps the last)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [self.construct_object(key_node, deep=True) for key_node, _ in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(
                problem=f"the key {', '.join(twice)} is given twice; keep one",
                problem_mark=node.start_mark,
            )
        return super().construct_mapping(node, deep=deep)


def recipe_options(recipe: Mapping[str, Any]) -> list[str]:
    """Write a recipe as command-line words; a null value leaves the option at its default.

    Args:
        recipe: option names and plain values (scalars, lists of scalars, mappings).

    Returns:
        The words, for example `["--seed=1", "--metrics", "wer", "per"]`.
    """
    words = []
    for name, value in recipe.items():
        if value is None or value == []:
            continue
        if isinstance(value, Mapping):
            words.append(f"--{name}={json.dumps(value)}")
        elif isinstance(value, list):
            words += [f"--{name}", *(_option_text(item) for item in value)]
        else:
            words.append(f"--{name}={_option_text(value)}")
    return words


def _option_text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool | dict | list) else str(value)


def check_names(names: Iterable[str], known: Iterable[str], rule: str) -> None:
    """Refuse unknown names and offer the closest known ones.

    Args:
        names: the names to look at.
        known: the names allowed.
        rule: the beginning of the message.

    Raises:
        ValueError: if a name is unknown.
    """
    known = list(known)
    complaints = []
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3)
            hint = f" (did you mean {' or '.join(close)}?)" if close else ""
            complaints.append(f"{name!r}{hint}")
    if complaints:
        raise ValueError(f"{rule}: {', '.join(complaints)}.")


def check_options(unused: Sequence[str], known: Iterable[str]) -> None:
    """Refuse what the parser could not use.

    Args:
        unused: the words left over.
        known: the option names allowed.

    Raises:
        ValueError: if any word is left.
    """
    options = [word[2:].split("=")[0].replace("-", "_") for word in unused if word[:2] == "--"]
    check_names(options, known, "unknown options")
    if unused:
        raise ValueError(
            f"these words belong to no option: {' '.join(unused)}. A recipe comes first and alone; "
            "values follow their option."
        )


def read_overrides(words: Iterable[str] | None) -> dict[str, Any]:
    """Read `--config_overrides`: `name=value,name=value`, or a recipe's mapping as JSON.

    Args:
        words: the values of the option; a later one wins over an earlier one.

    Returns:
        Names and values; values from `name=value` are still text.

    Raises:
        ValueError: if a pair has no `=` or the JSON does not parse.
    """
    overrides: dict[str, Any] = {}
    for word in words or ():
        if word.startswith("{"):
            try:
                overrides.update(json.loads(word))
            except json.JSONDecodeError as error:
                raise ValueError(
                    f"config_overrides: not a JSON object: {word!r} ({error})"
                ) from None
            continue
        for pair in split_outside_brackets(word):
            name, equals, value = pair.partition("=")
            if not equals or not name.strip():
                raise ValueError(
                    f"config_overrides takes name=value pairs with commas between, got {pair!r}. "
                    "Example: --config_overrides hidden_size=256,cell_type=lstm"
                )
            overrides[name.strip()] = value.strip()
    return overrides


def split_outside_brackets(text: str) -> list[str]:
    """Split at commas that stand in no bracket: `"a=[1,2],b=3"` gives `["a=[1,2]", "b=3"]`.

    Args:
        text: the text to split.

    Returns:
        The non-empty pieces.
    """
    pieces, depth = [""], 0
    for character in text:
        depth += (character in "[{(") - (character in "]})")
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return [piece for piece in pieces if piece.strip()]


def typed_overrides(config_class: type, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Check the names of configuration overrides and give text values the type of their field.

    Args:
        config_class: a configuration class of transformers or of this package.
        overrides: names and values, as `read_overrides` returns them.

    Returns:
        The same names with typed values.

    Raises:
        ValueError: if a name is no field of the class or a value does not fit the field's type.
    """
    fields = {
        field.name: str if isinstance(field.type, str) else field.type  # str: a name not resolved
        for field in dataclasses.fields(config_class)
        if field.init
    }
    aliases = getattr(config_class, "attribute_map", {})
    known = sorted({*fields, *(alias for alias in aliases if aliases[alias] in fields)})
    check_names(
        overrides, known, f"config_overrides: {config_class.__name__} has no field of these names"
    )
    typed = {}
    for name, value in overrides.items():
        annotation = fields[name] if name in fields else fields[aliases[name]]
        typed[name] = value
        if isinstance(value, str):
            typed[name] = typed_value(f"config_overrides: {name}", value, annotation)
    return typed


def typed_value(name: str, text: str, annotation: Any) -> Any:
    """Read a text as the first fitting type of an annotation.

    Args:
        name: how an error calls the value.
        text: what the user wrote.
        annotation: a type, a `Literal`, or a union of them; containers are read as JSON.

    Returns:
        The typed value.

    Raises:
        ValueError: if no type fits.
    """
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    members = typing.get_args(annotation) if union else (annotation,)
    for member in sorted(members, key=_reading_order):
        try:
            return _READERS.get(_kind(member), _read_json)(text, member)
        except ValueError:
            continue
    raise ValueError(
        f"{name} must be {' or '.join(_type_name(member) for member in members)}, got {text!r}."
    )


def _kind(member: Any) -> Any:
    return "literal" if typing.get_origin(member) is typing.Literal else member


def _reading_order(member: Any) -> int:
    order = [type(None), "literal", bool, int, float]
    kind = _kind(member)
    return len(order) + (kind is str) if kind not in order else order.index(kind)


def _type_name(member: Any) -> str:
    if _kind(member) == "literal":
        return "one of " + ", ".join(str(choice) for choice in typing.get_args(member))
    if member is type(None):
        return "none"
    return getattr(member, "__name__", str(member)) if not typing.get_args(member) else str(member)


def _read_none(text: str, member: Any) -> None:
    if text.lower() not in ("none", "null"):
        raise ValueError


def _read_literal(text: str, member: Any) -> Any:
    choices = {str(choice): choice for choice in typing.get_args(member)}
    if text not in choices:
        raise ValueError
    return choices[text]


def _read_bool(text: str, member: Any) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _read_json(text: str, member: Any) -> Any:
    value = json.loads(text)
    if not isinstance(value, typing.get_origin(member) or (list, dict)):
        raise ValueError
    return value


_READERS = {
    type(None): _read_none,
    "literal": _read_literal,
    bool: _read_bool,
    int: lambda text, member: int(text),
    float: lambda text, member: float(text),
    str: lambda text, member: text,
}
