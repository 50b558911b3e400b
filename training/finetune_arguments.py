"""Options that all fine-tuning scripts share, in the shape of transformers' example scripts."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from script_arguments import RunDefaults
from transformers import TrainingArguments

from hf_seqmodels.data import TOKENIZER_MODELS


@dataclass
class FinetuneDataArguments:
    """Which rows are read and how they become tokens; each script adds its columns."""

    train_file: str | None = field(
        default=None,
        metadata={"help": "Training rows: .jsonl, .json, .csv or .tsv, each also with .gz."},
    )
    validation_file: str | None = field(
        default=None, metadata={"help": "Validation rows, same formats."}
    )
    test_file: str | None = field(default=None, metadata={"help": "Test rows, same formats."})
    dataset_name: str | None = field(
        default=None, metadata={"help": "Dataset of the Hub (or a local folder) instead of files."}
    )
    dataset_config_name: str | None = field(
        default=None, metadata={"help": "Configuration of that dataset."}
    )
    validation_split: float = field(
        default=0.1,
        metadata={
            "help": "Share (below 1) or number of training rows held out for validation when no "
            "validation data is given; the same rows whatever the seed. 0 trains without "
            "validation."
        },
    )
    max_train_samples: int | None = field(
        default=None, metadata={"help": "Use only the first rows for training."}
    )
    max_eval_samples: int | None = field(
        default=None, metadata={"help": "Use only the first rows for validation."}
    )
    max_predict_samples: int | None = field(
        default=None, metadata={"help": "Use only the first rows for the test."}
    )
    max_seq_length: int | None = field(
        default=None,
        metadata={"help": "Most tokens in a row of a batch; default: what the model can take."},
    )
    pad_to_max_length: bool = field(
        default=False,
        metadata={
            "help": "Pad every batch to max_seq_length, for accelerators that want one shape, "
            "instead of to its longest row."
        },
    )
    tokenizer_model: str | None = field(
        default=None,
        metadata={
            "choices": list(TOKENIZER_MODELS),
            "help": "Tokenizer trained in the run, with the special tokens of BERT. Default: "
            "wordpiece, if no tokenizer is given.",
        },
    )
    tokenizer_vocab_size: int | None = field(
        default=None, metadata={"help": "Size of its vocabulary; default: 8000 pieces, or all."}
    )
    tokenizer_min_frequency: int = field(
        default=1, metadata={"help": "Units seen less often in training become the unknown token."}
    )
    lowercase: bool = field(default=False, metadata={"help": "The tokenizer lowers its text."})
    ignore_mismatched_sizes: bool = field(
        default=False,
        metadata={"help": "Replace the head of a checkpoint that was trained for other labels."},
    )
    early_stopping_patience: int | None = field(
        default=None,
        metadata={"help": "Stop after this many evaluations without a better model."},
    )
    early_stopping_threshold: float = field(
        default=0.0,
        metadata={"help": "How much better an evaluation must be to count for early stopping."},
    )
    overwrite_output_dir: bool = field(
        default=False,
        metadata={"help": "Remove what an earlier run left in output_dir and start anew."},
    )
    seeds: list[int] | None = field(
        default=None,
        metadata={
            "help": "Instead of seed: one run for each of these, in output_dir/seed_N, and mean "
            "and spread of their figures in output_dir/metrics.json."
        },
    )


@dataclass
class FinetuneScriptArguments(RunDefaults, TrainingArguments):
    """transformers' training arguments with the defaults of a run that keeps its best model.

    Those of `RunDefaults`, and: batches of rows of like length, and the schedule of BERT's authors,
    warm-up over the first tenth (Devlin et al. 2019, appendix A.2). do_train, do_eval and
    do_predict follow from the data given when none of them is set.
    """

    train_sampling_strategy: str = field(
        default="group_by_length",
        metadata={
            "help": "random, sequential, or group_by_length: rows of like length share a batch, "
            "which saves padding."
        },
    )
    warmup_steps: float = field(
        default=0.1,
        metadata={"help": "Steps (or share of them, below 1) until the full learning rate."},
    )


def check_numbers(options: FinetuneDataArguments) -> None:
    """Refuse numbers out of range, before any file is read.

    Args:
        options: the data options.

    Raises:
        ValueError: if one of them is.
    """
    for name, least in (
        ("max_train_samples", 1),
        ("max_eval_samples", 1),
        ("max_predict_samples", 1),
        ("max_seq_length", 2),
        ("validation_split", 0),
    ):
        value = getattr(options, name)
        if value is not None and value < least:
            raise ValueError(f"{name} must be at least {least}, got {value:g}.")
    if options.pad_to_max_length and options.max_seq_length is None:
        raise ValueError("pad_to_max_length needs the length. Pass --max_seq_length.")


def settle_best_metric(
    args: FinetuneScriptArguments,
    *,
    chosen: str | None,
    computed: Sequence[str],
    lower_is_better: Collection[str],
    given: dict[str, Any],
) -> None:
    """Decide which figure tells the best model.

    Args:
        args: the training arguments, changed in place.
        chosen: what the script's own option says, or None.
        computed: the figures that there will be, the default first.
        lower_is_better: those of them that are better when lower.
        given: what the user said, without defaults.

    Raises:
        ValueError: if the figure will not be computed.
    """
    name = (given.get("metric_for_best_model") or chosen or computed[0]).removeprefix("eval_")
    if name not in computed:
        raise ValueError(
            f"the metric that tells the best model must be one of {', '.join(computed)} for these "
            f"labels, got {name!r}. Change metric_name or metric_for_best_model."
        )
    args.metric_for_best_model = name
    if given.get("greater_is_better") is None:
        args.greater_is_better = name not in lower_is_better
