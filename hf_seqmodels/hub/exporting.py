"""Write a folder that loads everywhere: weights, tokenizer, code and card."""

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import CONFIG_NAME

from hf_seqmodels.auto_classes import FAMILIES
from hf_seqmodels.hub.verification import verify_export
from hf_seqmodels.model_cards import card_for_export, pictures_in

CARD_FILE = "README.md"
MOST_CODE_FILES = 10
# what export writes, besides the pictures of the card
WRITTEN = re.compile(
    r"README\.md|(generation_)?config\.json|chat_template\.jinja"
    r"|model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json"
    r"|(target_tokenizer/)?(tokenizer|tokenizer_config|special_tokens_map)\.json"
    r"|((configuration|modeling|tokenization|pipeline|layers|cache)_\w+|outputs|pretrained_base)\.py"
)


def export(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    folder: str | os.PathLike,
    *,
    card: str | None = None,
    facts: Mapping[str, Any] | None = None,
    source: str | Path | None = None,
    repo_id: str | None = None,
    overwrite: bool = False,
    verify: bool = True,
) -> Path:
    """Write a folder from which a model loads with and without this package.

    It holds the weights (safetensors), config.json with the full `auto_map`, the generation
    defaults, the tokenizer, the code files of the family, byte for byte those of this package, and
    the card. It is written beside its place and moved there when it is complete and, unless
    `verify` is False, after a fresh process without this package has loaded it and computed the
    same numbers.

    Args:
        model: of a class of this package.
        tokenizer: goes with it; None writes none.
        folder: where to; new, empty, or what an earlier export wrote.
        card: text of README.md; None writes one from the model and what `facts` and `source` say.
        facts: fields of `hf_seqmodels.model_cards.CardFacts`, such as the licence.
        source: folder that the model was loaded from: its scores, pictures and an edited card go
            along.
        repo_id: name that the folder is to have on the Hub, for the code in the card.
        overwrite: replace whatever the folder holds.
        verify: load the folder in a fresh process before it is moved into place.

    Returns:
        The folder.

    Raises:
        ValueError: if the model is of another class, the tokenizer does not fit it, or the folder
            holds something else.
        RuntimeError: if what was written does not load or does not compute the same.
    """
    _check_class(model)
    _check_vocabulary(model, tokenizer)
    target = Path(folder).resolve()
    _check_target(target, source, overwrite=overwrite)
    with _moved_into_place(target) as unfinished:
        model.save_pretrained(unfinished)
        if tokenizer is not None:
            tokenizer.save_pretrained(unfinished)
        if card is None:
            card = card_for_export(
                model, tokenizer, source=source, name=target.name, repo_id=repo_id, **facts or {}
            )
        _write_card(unfinished, card, source)
        code_files = sorted(path.name for path in unfinished.glob("*.py"))
        assert len(code_files) <= MOST_CODE_FILES, code_files
        if verify:
            verify_export(unfinished, model, tokenizer)
    return target


def is_export(folder: Path) -> bool:
    """Tell whether a folder holds what `export` writes, and nothing else.

    Args:
        folder: any folder.

    Returns:
        True for an export, also one of an earlier version.
    """
    try:
        settings = json.loads((folder / CONFIG_NAME).read_text(encoding="utf-8"))
        card = (folder / CARD_FILE).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return "auto_map" in settings and not _foreign_files(folder, set(pictures_in(card)))


def has_its_code(folder: Path) -> bool:
    """Tell whether the code files that the settings in a folder name are beside them.

    Args:
        folder: with a config.json.

    Returns:
        False also for a pair of tokenizers that names no code.
    """
    settings = json.loads((folder / CONFIG_NAME).read_text(encoding="utf-8"))
    references = list(settings.get("auto_map", {}).values())
    references += [info["impl"] for info in settings.get("custom_pipelines", {}).values()]
    if (folder / "target_tokenizer").is_dir():
        tokenizer = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        references.append(tokenizer.get("auto_map", {}).get("AutoTokenizer", [""])[0])
    return all((folder / f"{name.partition('.')[0]}.py").is_file() for name in references)


def files_of(folder: Path) -> dict[str, Path]:
    """List the files of a folder.

    Args:
        folder: the folder.

    Returns:
        {path in the folder, with slashes: file}, sorted.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in files}


def _foreign_files(folder: Path, pictures: set[str]) -> list[str]:
    return [name for name in files_of(folder) if not (WRITTEN.fullmatch(name) or name in pictures)]


def _check_class(model: Any) -> None:
    for family in FAMILIES:
        if type(model) in family.model_classes.values():
            return
    raise ValueError(
        "export takes a model of a class in the table of hf_seqmodels/auto_classes.py, got "
        f"{type(model).__module__}.{type(model).__name__}. Pass the model itself, not a wrapper; "
        "import hf_seqmodels before it is loaded, and leave out trust_remote_code."
    )


def _check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> None:
    tables = [("tokenizer", tokenizer, model.get_input_embeddings())]
    target_tokenizer = getattr(tokenizer, "target_tokenizer", None)
    if target_tokenizer is not None:
        table = model.get_decoder().get_input_embeddings()
        tables.append(("target tokenizer", target_tokenizer, table))
    for side, one, table in tables:
        num_rows = table.get_parameter("weight").shape[0]
        if one is not None and len(one) > num_rows:
            raise ValueError(
                f"The {side} must have at most the {num_rows} tokens that the model has embeddings "
                f"for, got {len(one)}. Export the tokenizer that the model was trained with."
            )


def _check_target(target: Path, source: str | Path | None, *, overwrite: bool) -> None:
    if target.exists() and not target.is_dir():
        raise ValueError(f"An export is a folder, but {str(target)!r} is a file. Choose another.")
    origin = None if source is None else Path(source).resolve()
    if target in (origin, Path.cwd()) or (origin is not None and target in origin.parents):
        raise ValueError(
            f"An export replaces its folder, but {str(target)!r} is the checkpoint itself, holds "
            "it, or is where you are. Choose another folder."
        )
    if overwrite or not target.is_dir() or not any(target.iterdir()) or is_export(target):
        return
    names = ", ".join(sorted(path.name for path in target.iterdir())[:5])
    raise ValueError(
        f"An export needs a new or an empty folder or an earlier export, but {str(target)!r} holds "
        f"other files ({names}). Choose another folder, or say that it is to be replaced: "
        "overwrite=True, on the command line --overwrite."
    )


@contextlib.contextmanager
def _moved_into_place(target: Path) -> Iterator[Path]:
    """Give a new folder beside the target to write into; it takes its place at the end."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.parent / f".{target.name}.unfinished-{uuid.uuid4().hex[:8]}"
    replaced = target.parent / f".{target.name}.replaced-{uuid.uuid4().hex[:8]}"
    unfinished.mkdir()
    try:
        yield unfinished
        if target.exists():
            os.rename(target, replaced)
        try:
            os.rename(unfinished, target)
        except OSError:
            if replaced.exists():
                os.rename(replaced, target)
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        if target.exists():
            shutil.rmtree(replaced, ignore_errors=True)


def _write_card(folder: Path, card: str, source: str | Path | None) -> None:
    """Write README.md and the pictures it shows."""
    (folder / CARD_FILE).write_text(card, encoding="utf-8")
    if source is None:
        return
    for name in pictures_in(card):
        path = Path(source, name)
        if path.is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / name)
