"""Model and tokenizer of a folder that a Trainer or save_pretrained has written."""

import json
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import (
    CONFIG_NAME,
    GENERATION_CONFIG_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
)

from hf_seqmodels.auto_classes import FAMILIES, Family
from hf_seqmodels.models.pretrained_base import describe_broken_weights

TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json")


def load_checkpoint(
    folder: str | Path, *, with_tokenizer: bool = True
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase | None]:
    """Load the model and the tokenizer of a folder; nothing may be missing.

    Args:
        folder: a checkpoint-<step> folder of a Trainer, the output folder of a finished run, or
            what `export` wrote.
        with_tokenizer: whether there has to be a tokenizer.

    Returns:
        The model, in evaluation mode, and its tokenizer or None.

    Raises:
        ValueError: if the folder is not a complete checkpoint of a family of this package.
    """
    folder = Path(folder)
    settings = _read_config(folder)
    model_class = _model_class(folder, settings)
    missing = _missing_files(folder, model_class, with_tokenizer=with_tokenizer)
    if missing:
        raise _incomplete(folder, f"{', '.join(missing)} missing", settings)
    broken = describe_broken_weights(folder)
    if broken:
        raise _incomplete(folder, f"{broken} cut off or damaged", settings)
    try:
        loaded: Any = model_class.from_pretrained(folder, output_loading_info=True)
        model, report = loaded
        tokenizer = AutoTokenizer.from_pretrained(folder) if with_tokenizer else None
    except (OSError, RuntimeError) as error:
        raise _incomplete(folder, str(error), settings) from error
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report[kind]:
            names = ", ".join(sorted(str(key) for key in report[kind])[:5])
            raise _incomplete(folder, f"weights with {kind.replace('_', ' ')} {names}", settings)
    return model, tokenizer


def family_named(model_type: str | None) -> Family | None:
    """Return the row of the table for a model type.

    Args:
        model_type: as in config.json.

    Returns:
        The row, or None.
    """
    return next((family for family in FAMILIES if family.model_type == model_type), None)


def _read_config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise ValueError(f"A checkpoint must be a folder, and {str(folder)!r} is none.")
    path = folder / CONFIG_NAME
    if not path.is_file():
        raise _incomplete(folder, f"{CONFIG_NAME} missing", {})
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _incomplete(folder, f"{CONFIG_NAME} cut off or damaged", {}) from error
    return settings if isinstance(settings, dict) else {}


def _model_class(folder: Path, settings: dict[str, Any]) -> type[PreTrainedModel]:
    family = family_named(settings.get("model_type"))
    if family is None:
        known = ", ".join(family.model_type for family in FAMILIES)
        raise ValueError(
            f"model_type in {folder / CONFIG_NAME} must be one of {known}, got "
            f"{settings.get('model_type')!r}. Models of transformers itself need no code beside "
            "them: push those with their own push_to_hub."
        )
    architectures = settings.get("architectures") or []
    for model_class in family.model_classes.values():
        if [model_class.__name__] == architectures:
            return model_class
    known = ", ".join(model_class.__name__ for model_class in family.model_classes.values())
    raise ValueError(
        f"architectures in {folder / CONFIG_NAME} must hold one of {known}, got {architectures}. "
        "Save the model with save_pretrained."
    )


def _missing_files(
    folder: Path, model_class: type[PreTrainedModel], *, with_tokenizer: bool
) -> list[str]:
    index = folder / SAFE_WEIGHTS_INDEX_NAME
    needed = [SAFE_WEIGHTS_NAME]
    if index.is_file():
        needed = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    if model_class.can_generate():
        needed.append(GENERATION_CONFIG_NAME)
    if with_tokenizer:
        needed += TOKENIZER_FILES
    return [name for name in needed if not (folder / name).is_file()]


def _incomplete(folder: Path, problem: str, settings: dict[str, Any]) -> ValueError:
    inside = sorted(
        (path for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*") if path.is_dir()),
        key=lambda path: (len(path.name), path.name),
    )
    if inside and not settings:
        way_out = f"It holds {', '.join(path.name for path in inside)}: name one of these."
    elif any(name in problem for name in TOKENIZER_FILES):
        way_out = "Save the tokenizer there, too, or export without one (--no_tokenizer)."
    else:
        way_out = "Name another checkpoint, or save this one again."
    return ValueError(f"{str(folder)!r} is not a complete checkpoint: {problem}. {way_out}")
