"""What every training script shares about data: where it comes from, what a run does with it."""

import logging
from collections.abc import Collection
from typing import Any

import datasets

PARTS = ("train", "validation", "test")

logger = logging.getLogger(__name__)


def data_files(options: Any) -> dict[str, str]:
    """Return the data files by part, after a check that the data has one origin.

    Args:
        options: give train_file, validation_file, test_file and dataset_name.

    Returns:
        {part: path}; empty if a dataset is named.

    Raises:
        ValueError: if files and a dataset are given, or neither.
    """
    files = {part: getattr(options, f"{part}_file") for part in PARTS}
    files = {part: path for part, path in files.items() if path}
    if files and options.dataset_name:
        raise ValueError(
            f"give either data files or dataset_name, not both: got {', '.join(files)} files and "
            f"dataset_name={options.dataset_name!r}."
        )
    if not files and not options.dataset_name:
        raise ValueError(
            "no data: pass --train_file (and --validation_file, --test_file) or --dataset_name."
        )
    return files


def load_named_dataset(options: Any, **how: Any) -> Any:
    """Load the dataset that the options name.

    Args:
        options: give dataset_name and dataset_config_name.
        **how: further arguments of `datasets.load_dataset`.

    Returns:
        Its parts by name.

    Raises:
        ValueError: if it cannot be loaded.
    """
    try:
        return datasets.load_dataset(options.dataset_name, options.dataset_config_name, **how)
    except Exception as error:  # the Hub, the file readers and arrow each raise their own kind
        raise ValueError(
            f"dataset_name: cannot load {options.dataset_name!r}: {error} "
            "Check the name, or download the files and pass --train_file."
        ) from error


def settle_parts(
    args: Any,
    options: Any,
    parts: Collection[str],
    given: dict[str, Any],
    *,
    rows: str,
    split_option: str = "validation_split",
) -> None:
    """Decide which parts of the data a run works on, and refuse what needs a part that is missing.

    Args:
        args: the training arguments, changed in place.
        options: give early_stopping_patience.
        parts: which of train, validation and test there are rows for.
        given: what the user said, without defaults.
        rows: what an error calls the rows.
        split_option: the option that holds out rows of the training data.

    Raises:
        ValueError: if a part is missing that was asked for.
    """
    if not (given.get("do_train") or given.get("do_eval") or given.get("do_predict")):
        args.do_train, args.do_predict = "train" in parts, "test" in parts
    args.do_eval = "validation" in parts
    for part, wanted in (("train", args.do_train), ("test", args.do_predict)):
        if wanted and part not in parts:
            raise ValueError(
                f"there are no {part} {rows} to work on. Pass --{part}_file or leave the do_ "
                "option out."
            )
    if "validation" not in parts:
        if options.early_stopping_patience is not None or given.get("load_best_model_at_end"):
            raise ValueError(
                "keeping the best model and early stopping need validation data. Pass "
                f"--validation_file or a {split_option} above 0, or leave these options out."
            )
        if args.do_train:
            logger.info("No validation data: the model of the last step is kept.")
        args.eval_strategy, args.load_best_model_at_end = type(args.eval_strategy)("no"), False
    args.dataloader_pin_memory = args.dataloader_pin_memory and args.device.type != "cpu"
