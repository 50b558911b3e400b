"""What every training script shares about data: where it comes from."""

from typing import Any

import datasets

PARTS = ("train", "validation", "test")


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
