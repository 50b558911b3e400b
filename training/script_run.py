"""How every training script begins and ends: the output folder, the command line, saving."""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import run_folder
from accelerate import PartialState
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.utils.logging import disable_progress_bar

QUIET_LIBRARIES = ("httpx", "absl", "datasets")


def early_stopping(options: Any) -> list[TrainerCallback]:
    """Return the callback that the options ask for.

    Args:
        options: give early_stopping_patience and early_stopping_threshold.

    Returns:
        One callback, or none.
    """
    if options.early_stopping_patience is None:
        return []
    return [
        EarlyStoppingCallback(options.early_stopping_patience, options.early_stopping_threshold)
    ]


@contextmanager
def output_folder(args: TrainingArguments, *, resumes: bool) -> Iterator[None]:
    """Let a trainer be made; not before this moment the output folder may come to be.

    Args:
        args: the training arguments.
        resumes: whether the run goes on from a checkpoint.

    Yields:
        Nothing.
    """
    PartialState().wait_for_everyone()  # the others may still look for a checkpoint
    with run_folder.removed_if_refused(args.output_dir):
        if args.should_save:
            run_folder.clear_leftovers(args.output_dir, resumes=resumes)
        yield


def finish(trainer: Trainer, write_report: Callable[[Path], None]) -> None:
    """Save the model of a run and its report, all at once, and push them if that is asked for.

    Args:
        trainer: of the run.
        write_report: writes everything but the model into a folder; called in one process.
    """
    args = trainer.args
    with run_folder.staged(args.output_dir) if args.should_save else nullcontext() as folder:
        if args.do_train:
            trainer.save_model(str(folder or args.output_dir), _internal_call=True)
        if folder:
            write_report(folder)
    trainer.accelerator.wait_for_everyone()
    if args.push_to_hub:
        trainer.push_to_hub()


def run_command(
    script: str,
    prepare: Callable[[Sequence[str]], Any],
    run_all: Callable[[Any], dict[str, Any]],
    *,
    result: str,
) -> None:
    """Run a script for a person: one clear line for wrong input, the figures at the end.

    Args:
        script: its name.
        prepare: makes a run of the words after the script's name; the run has `args`.
        run_all: runs it and returns the content of metrics.json.
        result: what the output folder holds then.
    """
    logging.basicConfig(
        format="%(message)s", level=logging.INFO if is_first_process() else logging.ERROR
    )
    for name in QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)
    disable_progress_bar()  # of loading and saving; training keeps its own
    try:
        run = prepare(sys.argv[1:])
    except (ValueError, OSError) as error:
        sys.exit(f"{script}: error: {error}")
    record = run_all(run)
    logger = logging.getLogger(script)
    for part in ("validation", "test"):
        if part in record:
            logger.info(f"{part}: {record[part]}")
    logger.info(f"{result}: {run.args.output_dir}")


def is_first_process() -> bool:
    """Tell, before any process group exists, whether this process may speak.

    Returns:
        True in the first process and without a launcher.
    """
    return os.environ.get("RANK", "0") == "0"
