"""Options of the scripts that train on plain text: which texts, and which tokenizer."""

from dataclasses import dataclass, field
from typing import Any

from script_data import settle_parts

from hf_seqmodels.data import TOKENIZER_MODELS
from hf_seqmodels.data.documents import TEXT_UNITS


@dataclass
class TextArguments:
    """Which texts are read, and the tokenizer that is trained on them."""

    train_file: str | None = field(
        default=None,
        metadata={
            "help": "Training text: .txt or any other text file, or .jsonl, .json, .csv, .tsv; "
            "each also with .gz."
        },
    )
    validation_file: str | None = field(
        default=None, metadata={"help": "Validation text, same formats."}
    )
    test_file: str | None = field(default=None, metadata={"help": "Test text, same formats."})
    dataset_name: str | None = field(
        default=None, metadata={"help": "Dataset of the Hub (or a local folder) instead of files."}
    )
    dataset_config_name: str | None = field(
        default=None, metadata={"help": "Configuration of that dataset."}
    )
    text_column: str = field(
        default="text", metadata={"help": "Column of the text in data files and datasets."}
    )
    text_unit: str = field(
        default="line",
        metadata={
            "choices": list(TEXT_UNITS),
            "help": "What of a text file is one document: a line, a paragraph (blank lines "
            "between), or the whole file.",
        },
    )
    max_train_documents: int | None = field(
        default=None, metadata={"help": "Use only the first documents for training."}
    )
    max_eval_documents: int | None = field(
        default=None, metadata={"help": "Use only the first documents for validation and test."}
    )
    validation_split_percentage: float = field(
        default=5.0,
        metadata={
            "help": "Share of the training documents, from the end of the file, held out for "
            "validation when no validation data is given; of a single document, of its "
            "characters. 0 trains without validation."
        },
    )
    streaming: bool = field(
        default=False,
        metadata={
            "help": "Read training text while training instead of before; needs max_steps, and a "
            "ready tokenizer or tokenizer_documents. Documents come in the order of the file, "
            "shuffled within a buffer."
        },
    )
    shuffle_buffer_size: int = field(
        default=1000, metadata={"help": "With streaming: rows among which the next one is drawn."}
    )
    tokenizer_model: str | None = field(
        default=None,
        metadata={
            "choices": list(TOKENIZER_MODELS),
            "help": "Tokenizer trained in the run if none is given; symbol = what stands between "
            "blanks. Default: bpe for causal, wordpiece for masked language models.",
        },
    )
    tokenizer_vocab_size: int | None = field(
        default=None, metadata={"help": "Size of its vocabulary; default: 8000 pieces, or all."}
    )
    tokenizer_min_frequency: int = field(
        default=1, metadata={"help": "Units seen less often in training become the unknown token."}
    )
    tokenizer_documents: int | None = field(
        default=None,
        metadata={"help": "Train the tokenizer on the first documents only; default: on all."},
    )
    lowercase: bool = field(default=False, metadata={"help": "The tokenizer lowers its text."})
    early_stopping_patience: int | None = field(
        default=None,
        metadata={"help": "Stop after this many evaluations without a better validation loss."},
    )
    early_stopping_threshold: float = field(
        default=0.0,
        metadata={"help": "How much better an evaluation must be to count for early stopping."},
    )
    overwrite_output_dir: bool = field(
        default=False,
        metadata={"help": "Remove what an earlier run left in output_dir and start anew."},
    )


def check_text_options(options: TextArguments, args: Any) -> None:
    """Refuse options that contradict each other, before any file is read.

    Args:
        options: the data options.
        args: the training arguments.

    Raises:
        ValueError: if two options contradict each other or a number is out of range.
    """
    check_least(
        options,
        max_train_documents=1,
        max_eval_documents=1,
        tokenizer_documents=1,
        shuffle_buffer_size=1,
    )
    if not 0 <= options.validation_split_percentage < 100:
        raise ValueError(
            "validation_split_percentage must be at least 0 and below 100, got "
            f"{options.validation_split_percentage:g}."
        )
    if options.streaming and args.max_steps <= 0:
        raise ValueError(
            "streaming does not know how long an epoch is. Pass --max_steps with the number of "
            "training steps."
        )


def check_least(options: Any, **least_values: float) -> None:
    """Refuse numbers that are too small; None is not a number.

    Args:
        options: of a script.
        **least_values: by the name of the option.

    Raises:
        ValueError: if an option is below its least value.
    """
    for name, least in least_values.items():
        value = getattr(options, name)
        if value is not None and value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}.")


def settle_arguments(
    args: Any,
    options: TextArguments,
    parts: set[str],
    given: dict[str, Any],
) -> None:
    """Fill in what follows from the data and refuse options that contradict it.

    Args:
        args: the training arguments, changed in place.
        options: the data options.
        parts: which of train, validation and test there is data for.
        given: what the user said, without defaults.

    Raises:
        ValueError: if the options ask for what the data cannot give.
    """
    settle_parts(
        *(args, options, parts, given), rows="texts", split_option="validation_split_percentage"
    )
    chosen = (args.metric_for_best_model or "loss").removeprefix("eval_")
    if chosen != "loss":
        raise ValueError(
            f"metric_for_best_model must be loss, got {chosen!r}: perplexity is its exponential "
            "and ranks models in the same order."
        )
    args.metric_for_best_model, args.greater_is_better = "loss", False
