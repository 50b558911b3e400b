"""Tasks of `pipeline()` that the families of the package bring with them."""

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

from transformers.pipelines import PIPELINE_REGISTRY


class NoDefaultModel:
    """Stands where `pipeline()` looks for the model to take if none is given.

    Without it that look-up would end in a KeyError for 'default'.

    Args:
        task: name of the task.
    """

    def __init__(self, task: str):
        self.task = task

    def __iter__(self) -> Iterator[str]:
        """Refuse to be unpacked into a name and a revision."""
        raise ValueError(
            f'pipeline("{self.task}") needs a model, got none: the task has no default. Pass '
            f'pipeline("{self.task}", model="path or name").'
        )


def register_pipelines(rows: Iterable[Mapping[str, tuple[str, type[Any]]]]) -> None:
    """Make `pipeline()` know the tasks of the families; calling it again changes nothing.

    Args:
        rows: {task: ("module.Class" in models/, Auto class of the models that it takes)} of every
            family.
    """
    references: dict[str, str] = {}
    auto_classes: dict[str, list[type[Any]]] = {}
    for row in rows:
        for task, (reference, auto_class) in row.items():
            references[task] = reference
            known = auto_classes.setdefault(task, [])
            known += [auto_class] if auto_class not in known else []
    for task, reference in references.items():
        module, _, name = reference.rpartition(".")
        pipeline_class = getattr(import_module(f"hf_seqmodels.models.{module}"), name)
        registered = PIPELINE_REGISTRY.supported_tasks.get(task, {})
        if registered.get("impl") is not pipeline_class:
            PIPELINE_REGISTRY.register_pipeline(
                task,
                pipeline_class,
                pt_model=tuple(auto_classes[task]),  # pyright: ignore[reportArgumentType]
                default={"model": NoDefaultModel(task)},
                type="text",
            )
