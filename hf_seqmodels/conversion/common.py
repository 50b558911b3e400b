"""What every conversion needs: options without an equal, names of weights, models of one kind."""

import copy
import re
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

LAYER_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def check_options(config: Any, needed: Mapping[str, Any], target: str) -> None:
    """Make sure that a config asks for nothing that the other family lacks.

    Args:
        config: of the model to convert.
        needed: {option of `config`: the value with which both compute the same}; a config that
            lacks an option cannot ask for more.
        target: the other family, as the message is to call it.

    Raises:
        ValueError: if an option has another value.
    """
    for name, value in needed.items():
        found = getattr(config, name, value)
        if found != value:
            raise ValueError(
                f"{target} computes only what {type(config).__name__} does with {name}={value!r}, "
                f"got {found!r}. Such a model cannot be converted."
            )


def check_choice(config: Any, name: str, choices: Iterable[Any], target: str) -> None:
    """Make sure that the other family has the choice that a config made.

    Args:
        config: of the model to convert.
        name: option of `config`.
        choices: its values that the other family has, too.
        target: the other family, as the message is to call it.

    Raises:
        ValueError: if the value is none of them.
    """
    choices = list(choices)
    if getattr(config, name) not in choices:
        raise ValueError(
            f"{target} takes of {type(config).__name__} only {name} in "
            f"{', '.join(map(repr, choices))}, got {getattr(config, name)!r}. Such a model cannot "
            f"be converted."
        )


def rename_weights(state: Mapping[str, Tensor], modules: Mapping[str, str]) -> dict[str, Tensor]:
    """Return the same weights under other names.

    Args:
        state: {name: weight}.
        modules: {path of a module, or of a parameter, in `state`: its path in the result}; a `*`
            stands for the number of a layer, once on both sides. The longest path that fits is
            taken, and what follows it stays: "weight", "bias".

    Returns:
        A new dictionary; the tensors are those of `state`.

    Raises:
        ValueError: if a name fits no path.
    """
    renamed, unknown = {}, []
    for name, tensor in state.items():
        numbers = LAYER_NUMBER.findall(name)
        pattern = LAYER_NUMBER.sub("*", name, count=1)
        module, _, kind = pattern.rpartition(".")
        target = modules.get(pattern)
        if target is None and module in modules:
            target = f"{modules[module]}.{kind}"
        if target is None:
            unknown.append(name)
        else:
            renamed[target.replace("*", numbers[0]) if "*" in target else target] = tensor
    if unknown:
        raise ValueError(
            f"Every weight needs a counterpart, these have none: {', '.join(sorted(unknown))}. "
            f"Convert a model of the class that is asked for, without parts added to it."
        )
    return renamed


def fill_like(converted: Any, state: Mapping[str, Tensor], *, like: Any) -> Any:
    """Fill a new model with converted weights, and make it the same sort of model.

    Args:
        converted: the new model.
        state: its `state_dict`.
        like: the model that was converted; stays as it is.

    Returns:
        `converted`, with the type, the device, the mode, the attention implementation and, where
        there are any, the generation settings of `like`.
    """
    converted.to(device=like.device, dtype=like.dtype)
    converted.load_state_dict(state)
    converted.tie_weights()
    converted.set_attn_implementation(like.config._attn_implementation)
    if like.can_generate():
        converted.generation_config = copy.deepcopy(like.generation_config)
    return converted.train(like.training)
