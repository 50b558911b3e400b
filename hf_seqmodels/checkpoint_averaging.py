"""The mean of several checkpoints of one run as a checkpoint of its own.

    python -m hf_seqmodels.checkpoint_averaging runs/mine runs/mine_average --last 5
    python -m hf_seqmodels.checkpoint_averaging runs/mine runs/mine_average --best 3
    python -m hf_seqmodels.checkpoint_averaging runs/mine runs/mine_average --exponential 0.9

theta = sum_i w_i theta_i, sum_i w_i = 1. Source: Vaswani et al. 2017, arXiv:1706.03762, section
6.1 (the mean of the last 5 checkpoints); Polyak and Juditsky 1992. Works for any model of
transformers that is saved as safetensors.
"""

import argparse
import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

TRAINER_STATE = "trainer_state.json"
# what is in a config without saying anything of the model
UNIMPORTANT = frozenset({"transformers_version", "_name_or_path"})
# of the state of a training run, not of a model
NOT_COPIED = (
    *("optimizer*", "scheduler*", "rng_state*", "scaler*", "training_args.bin", TRAINER_STATE),
    *("*.safetensors", "*.safetensors.index.json", "*.bin", "*.pt", "*.pth", "README.md"),
)


def average_checkpoints(
    checkpoints: Sequence[str | Path],
    output_dir: str | Path,
    *,
    weights: Sequence[float] | None = None,
) -> Path:
    """Write the mean of checkpoints as a folder that from_pretrained loads.

    Floating-point tensors are averaged in float64 and written in their own type; tied weights stay
    tied, because each is stored once. Integers and flags (counters of steps, positions) are no
    quantities to average: the last checkpoint's are taken. Config, tokenizer and code files come
    from the last checkpoint, too; the state of the training run does not come along. One tensor at
    a time is in memory beside the result.

    Args:
        checkpoints: folders with config.json and model.safetensors, whole or in shards.
        output_dir: folder to write; it must be new or empty.
        weights: one number above 0 per checkpoint, divided by their sum; None weighs all alike.

    Returns:
        The folder.

    Raises:
        ValueError: if there are no checkpoints, one has no safetensors, configs or tensors differ,
            the weights do not fit, or the output folder is not empty.
    """
    folders = [Path(folder) for folder in checkpoints]
    if not folders:
        raise ValueError("An average needs at least one checkpoint, got none.")
    shares = _shares(weights, len(folders))
    output = Path(output_dir)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(
            f"output_dir must be a new or an empty folder, got {str(output)!r}. Choose another."
        )
    _check_configs(folders)
    averaged = _mean_tensors([_tensor_files(folder) for folder in folders], shares)
    output.mkdir(parents=True, exist_ok=True)
    for path in folders[-1].iterdir():
        if path.is_file() and not any(path.match(pattern) for pattern in NOT_COPIED):
            shutil.copy2(path, output / path.name)
    save_file(averaged, output / SAFE_WEIGHTS_NAME, metadata={"format": "pt"})
    return output


def choose_checkpoints(
    run_folder: str | Path,
    choice: Literal["last", "best"],
    count: int,
    *,
    metric: str | None = None,
    greater_is_better: bool | None = None,
) -> list[Path]:
    """Return checkpoints of a run, in the order of their steps.

    Args:
        run_folder: output folder of a Trainer, with checkpoint-<step> folders in it.
        choice: "last", the newest, or "best", those of the best metric on the validation data.
        count: how many.
        metric: what "best" compares, for instance "eval_loss" or "bleu"; None takes eval_loss.
        greater_is_better: whether it grows with quality; None says no for a loss and yes for
            anything else.

    Returns:
        Folders.

    Raises:
        ValueError: if there are fewer checkpoints, or no values of the metric, or the choice is
            unknown.
    """
    if choice not in ("last", "best"):
        raise ValueError(f"choice must be 'last' or 'best', got {choice!r}.")
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}.")
    found = {
        int(step): path
        for path in Path(run_folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*")
        if (step := path.name.rpartition("-")[2]).isdecimal() and path.is_dir()
    }
    if len(found) < count:
        raise ValueError(
            f"{str(run_folder)!r} must hold at least {count} checkpoints, got {len(found)}: "
            f"{', '.join(found[step].name for step in sorted(found)) or 'none'}. Train with a "
            "larger save_total_limit, or average fewer."
        )
    steps = sorted(found)
    if choice == "best":
        name = metric or "eval_loss"
        name = name if name.startswith("eval_") else f"eval_{name}"
        greater = not name.endswith("loss") if greater_is_better is None else greater_is_better
        values = _metric_values(found[steps[-1]], name)
        missing = [step for step in steps if step not in values]
        if missing:
            raise ValueError(
                f"Every checkpoint needs a value of {name} in {TRAINER_STATE}, but there is none "
                f"for step {missing[0]}. Evaluate whenever a checkpoint is saved (eval_strategy = "
                "save_strategy), or name another metric."
            )
        # of equal ones, the later
        steps.sort(key=lambda step: (values[step] if greater else -values[step], step))
    return [found[step] for step in sorted(steps[-count:])]


def exponential_weights(count: int, decay: float) -> list[float]:
    """Return the weights of a moving average, w_i = decay ** (count - i), the newest last.

    Args:
        count: number of checkpoints.
        decay: what a checkpoint counts of the next one, in (0, 1].

    Returns:
        Weights that sum to one.

    Raises:
        ValueError: if the decay is out of its range.
    """
    if not 0 < decay <= 1:
        raise ValueError(f"decay must be in (0, 1], got {decay}. 1 weighs all alike.")
    return _shares([decay ** (count - 1 - index) for index in range(count)], count)


def _shares(weights: Sequence[float] | None, count: int) -> list[float]:
    """Return weights that sum to one."""
    weights = [1.0] * count if weights is None else list(weights)
    is_positive = all(weight > 0 and math.isfinite(weight) for weight in weights)
    if len(weights) != count or not is_positive:
        raise ValueError(
            f"weights must hold one number above 0 per checkpoint, {count}, got {weights}."
        )
    return [weight / math.fsum(weights) for weight in weights]


def _check_configs(folders: Sequence[Path]) -> None:
    """Refuse folders without a config, and configs that differ in what makes a model."""
    configs = []
    for folder in folders:
        path = folder / CONFIG_NAME
        if not path.is_file():
            raise ValueError(f"{str(folder)!r} is not a checkpoint: {CONFIG_NAME} is missing.")
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        configs.append({key: config[key] for key in config if key not in UNIMPORTANT})
    for folder, config in zip(folders[1:], configs[1:], strict=True):
        for key in sorted(configs[0].keys() | config.keys()):
            ours, theirs = configs[0].get(key), config.get(key)
            if ours != theirs:
                raise ValueError(
                    f"Checkpoints can be averaged only if their configs agree, but {key} is "
                    f"{ours!r} in {str(folders[0])!r} and {theirs!r} in {str(folder)!r}. Average "
                    "checkpoints of one run; models of different kinds make an ensemble "
                    "(EnsembleForSeq2SeqLM)."
                )


def _tensor_files(folder: Path) -> dict[str, Path]:
    """Return {tensor: file that holds it} of a checkpoint, whole or in shards."""
    index = folder / SAFE_WEIGHTS_INDEX_NAME
    if index.is_file():
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return {tensor: folder / name for tensor, name in names.items()}
    path = folder / SAFE_WEIGHTS_NAME
    if not path.is_file():
        raise ValueError(
            f"{str(folder)!r} must hold {SAFE_WEIGHTS_NAME}, which is missing. Save the model with "
            "save_pretrained; adapters have to be merged into it first (merge_and_unload)."
        )
    with safe_open(path, framework="pt") as file:
        return dict.fromkeys(file.keys(), path)


def _mean_tensors(
    checkpoints: Sequence[Mapping[str, Path]], shares: Sequence[float]
) -> dict[str, Tensor]:
    """Return the weighted mean of every tensor, of the last checkpoint where it has none."""
    names = sorted(checkpoints[-1])
    for tensors in checkpoints:
        odd = sorted(set(tensors) ^ set(names))
        if odd:
            raise ValueError(
                f"Checkpoints must hold the same tensors, but {', '.join(odd[:3])} is not in all "
                "of them. Save them with the same model class."
            )
    with ExitStack() as stack:
        paths = {path for tensors in checkpoints for path in tensors.values()}
        files: dict[Path, Any] = {
            path: stack.enter_context(safe_open(path, framework="pt")) for path in paths
        }
        averaged = {}
        for name in names:
            parts = [files[tensors[name]].get_tensor(name) for tensors in checkpoints]
            last = parts[-1]
            if any(part.shape != last.shape or part.dtype != last.dtype for part in parts):
                kinds = sorted({f"{tuple(part.shape)} {part.dtype}" for part in parts})
                raise ValueError(
                    f"Checkpoints must hold tensors of one shape and type, but {name} is "
                    f"{' and '.join(kinds)}."
                )
            if last.is_floating_point():
                wide = last.to(torch.float64)
                mean = wide.clone()
                for part, share in zip(parts, shares, strict=True):
                    mean += share * (part.to(torch.float64) - wide)  # 0 where they agree
                last = mean.to(last.dtype)
            averaged[name] = last.contiguous()
    return averaged


def _metric_values(checkpoint: Path, name: str) -> dict[int, float]:
    """Return {step: value} of a metric from the state that a Trainer has saved."""
    path = checkpoint / TRAINER_STATE
    if not path.is_file():
        raise ValueError(
            f"{str(checkpoint)!r} holds no {TRAINER_STATE}, which says what is best. Average the "
            "last checkpoints instead, or name the folders to average_checkpoints()."
        )
    history = json.loads(path.read_text(encoding="utf-8"))["log_history"]
    return {entry["step"]: entry[name] for entry in history if name in entry}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command.

    Args:
        argv: its words; None takes those of the process.
    """
    description = "Write the mean of checkpoints of a run as a checkpoint of its own."
    parser = argparse.ArgumentParser(
        prog="python -m hf_seqmodels.checkpoint_averaging", description=description
    )
    parser.add_argument("run_folder", help="output folder of a Trainer, with checkpoint-N folders")
    parser.add_argument("output_dir", help="folder to write, new or empty")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--last", type=int, metavar="N", help="the mean of the newest N")
    how.add_argument("--best", type=int, metavar="N", help="the mean of the best N")
    how.add_argument(
        "--exponential", type=float, metavar="DECAY", help="all, each DECAY times the next one"
    )
    parser.add_argument("--metric", help="what --best compares; default: eval_loss")
    options = parser.parse_args(argv)
    try:
        folders = _chosen(options)
        weights = None
        if options.exponential is not None:
            weights = exponential_weights(len(folders), options.exponential)
        average_checkpoints(folders, options.output_dir, weights=weights)
    except (ValueError, OSError) as error:
        sys.exit(f"checkpoint_averaging: error: {error}")
    print(f"{options.output_dir}: the mean of {', '.join(folder.name for folder in folders)}")


def _chosen(options: argparse.Namespace) -> list[Path]:
    if options.best is not None:
        return choose_checkpoints(options.run_folder, "best", options.best, metric=options.metric)
    count = options.last
    if options.exponential is not None:
        count = len(list(Path(options.run_folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*"))) or 1
    return choose_checkpoints(options.run_folder, "last", count)


if __name__ == "__main__":
    main()
