"""Public names of a package that are imported on first use (PEP 562)."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a package whose public names load on first use.

    Put `__getattr__, __dir__ = lazy_exports(__name__, {"n_best": "n_best_lists"})` into the
    `__init__.py`, beside the same imports under `TYPE_CHECKING` for editors and type checkers.

    Args:
        package: `__name__` of the package.
        homes: {public name: submodule that holds it}; a submodule of the package above begins with
            a dot. A public name that is itself the name of its submodule stands for that submodule,
            so nothing else may be called like a submodule.

    Returns:
        The two functions, in that order.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f".{homes[name]}", package)
        value = module if homes[name] == name else getattr(module, name)
        setattr(import_module(package), name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(import_module(package)), *homes})

    return load, list_names
