"""The output folder of a run: what may be in it, where to resume, how it is written."""

import contextlib
import json
import logging
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

import hf_seqmodels.models

logger = logging.getLogger("run_seq2seq")

FINISHED_FILE = "metrics.json"  # written last, so its presence means that the run is complete
STAGING_FOLDER = "_unfinished"
RUN_FILES = (
    *("README.md", "metrics.json", "predictions.jsonl", "samples.jsonl"),
    *("alignments.png", "alignments.html", "learning_curve.png"),
    *("config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json"),
    *(
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "training_args.bin",
        "trainer_state.json",
    ),
)


def find_checkpoint(output_dir: str, *, resume_from: str | None, overwrite: bool) -> Path | None:
    """Decide where a run begins: anew, or at a checkpoint.

    Args:
        output_dir: the folder of the run, present or not.
        resume_from: a checkpoint, "true" for the newest in `output_dir`, or None to look for one
            there.
        overwrite: ignore what an earlier run left.

    Returns:
        The checkpoint to resume from, or None to begin anew.

    Raises:
        ValueError: if the folder holds a finished run or foreign files, or the checkpoint is not
            complete.
    """
    folder = Path(output_dir)
    if folder.exists() and not folder.is_dir():
        raise ValueError(
            f"output_dir must be a folder, but {output_dir!r} is a file. Choose another name."
        )
    if overwrite and resume_from:
        raise ValueError(
            "overwrite_output_dir begins anew and resume_from_checkpoint does not: give one of "
            "them."
        )
    names = _names_of_a_run(folder)
    if resume_from and resume_from.lower() not in ("true", "1", "yes"):
        if problem := checkpoint_problem(Path(resume_from)):
            raise ValueError(
                f"cannot resume from {resume_from!r}: {problem}. Name a complete checkpoint-N "
                "folder."
            )
        return Path(resume_from)
    if overwrite:
        return None
    if FINISHED_FILE in names and not resume_from:
        raise ValueError(
            f"output_dir {output_dir!r} holds a finished run. Choose another folder, pass "
            "--overwrite_output_dir to replace it, or --resume_from_checkpoint true to train it "
            "further."
        )
    checkpoint = _newest_checkpoint(folder)
    if resume_from and checkpoint is None:
        raise ValueError(
            f"resume_from_checkpoint: {output_dir!r} holds no complete checkpoint. "
            "Leave the option out to begin anew."
        )
    return checkpoint


def _names_of_a_run(folder: Path) -> list[str]:
    """Return what is in a folder that may not exist, and refuse what no run has written."""
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    foreign = [path.name for path in entries if not is_run_file(path)]
    if foreign:
        raise ValueError(
            f"output_dir {str(folder)!r} holds files that no run has written: "
            f"{', '.join(foreign[:5])}. Choose an empty or a new folder."
        )
    return [path.name for path in entries]


def _newest_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint in a folder that may not exist, and say so."""
    for checkpoint in sorted(
        folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"), key=checkpoint_step, reverse=True
    ):
        problem = checkpoint_problem(checkpoint)
        if problem is None:
            logger.info(
                f"{folder} holds an interrupted run: resuming at step "
                f"{checkpoint_step(checkpoint)} ({checkpoint.name}). Pass --overwrite_output_dir "
                "to begin anew."
            )
            return checkpoint
        logger.warning(f"{checkpoint} is not complete ({problem}) and is passed over.")
    return None


def is_run_file(path: Path) -> bool:
    """Tell whether a run writes an entry of this name into its folder.

    Args:
        path: an entry of an output folder.

    Returns:
        True for checkpoints, logs, model files and reports.
    """
    name = path.name
    if path.is_dir():
        folders = (STAGING_FOLDER, "target_tokenizer", "runs")
        return name in folders or checkpoint_step(path) >= 0
    is_shard = name.startswith("model-") and name.endswith(".safetensors")
    return name in (*RUN_FILES, *code_files()) or is_shard


def code_files() -> list[str]:
    """Return the names of the files of code that a saved model may carry.

    Returns:
        Names of Python files.
    """
    return [path.name for path in Path(hf_seqmodels.models.__file__).parent.glob("*.py")]


def checkpoint_step(path: Path) -> int:
    """Return the N of `checkpoint-N`, or -1 for another name.

    Args:
        path: a folder.

    Returns:
        The step.
    """
    prefix, _, step = path.name.rpartition("-")
    return int(step) if prefix == PREFIX_CHECKPOINT_DIR and step.isdecimal() else -1


def checkpoint_problem(checkpoint: Path) -> str | None:
    """Say what a checkpoint lacks to be resumed from exactly.

    Args:
        checkpoint: the folder.

    Returns:
        The problem, or None if there is none.
    """
    if not checkpoint.is_dir():
        return "there is no such folder"
    for name in ("config.json", "trainer_state.json", "optimizer.pt", "scheduler.pt"):
        path = checkpoint / name
        if not path.is_file():
            return f"{name} is missing"
        if path.suffix == ".json" and not _is_json(path):
            return f"{name} is cut off or damaged"
        if path.suffix == ".pt" and not zipfile.is_zipfile(path):
            return f"{name} is cut off or damaged"
    if not any(checkpoint.glob("rng_state*.pth")):
        return "rng_state.pth is missing"
    weights = list(checkpoint.glob("*.safetensors"))
    if not weights:
        return "the weights (*.safetensors) are missing"
    for path in weights:
        try:
            with safe_open(path, framework="pt"):
                pass
        except (SafetensorError, OSError):
            return f"{path.name} is cut off or damaged"
    return None


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True


def clear_leftovers(output_dir: str, *, resumes: bool) -> None:
    """Remove what an earlier run left: all of it, or what is broken or outdated when resuming.

    Only entries that a run writes are touched.

    Args:
        output_dir: the folder of the run.
        resumes: whether the run goes on from a checkpoint.
    """
    folder = Path(output_dir)
    for path in list(folder.iterdir()) if folder.is_dir() else ():
        broken = checkpoint_step(path) >= 0 and checkpoint_problem(path) is not None
        outdated = broken or path.name in (STAGING_FOLDER, FINISHED_FILE)
        if is_run_file(path) and (outdated or not resumes):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextlib.contextmanager
def removed_if_refused(output_dir: str) -> Iterator[None]:
    """Remove an output folder that came to be inside, and is empty, if something is refused there.

    Args:
        output_dir: the folder of the run.

    Yields:
        Nothing.
    """
    folder = Path(output_dir)
    was_there = folder.exists()
    try:
        yield
    except Exception:
        if not was_there and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        raise


@contextlib.contextmanager
def staged(output_dir: str) -> Iterator[Path]:
    """Give a folder to write into; its entries move into the output folder at the very end.

    Args:
        output_dir: the folder of the run.

    Yields:
        The folder to write into. `metrics.json` is moved last.
    """
    staging = Path(output_dir) / STAGING_FOLDER
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        yield staging
        for path in sorted(staging.iterdir(), key=lambda path: path.name == FINISHED_FILE):
            place = Path(output_dir) / path.name
            if place.is_dir():
                shutil.rmtree(place)
            os.replace(path, place)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
