"""Options of run_clm.py, in the shape of transformers' example script of that name."""

import logging
from dataclasses import dataclass, field
from typing import Any

from script_arguments import RunDefaults
from transformers import TrainingArguments

from hf_seqmodels.data import TOKENIZER_MODELS
from hf_seqmodels.data.documents import TEXT_UNITS

logger = logging.getLogger("run_clm")

PACKINGS = ["concatenate", "separate", "none"]


@dataclass
class DataTrainingArguments:
    """Which texts are read, how they become rows of tokens, and what is reported about them."""

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
            "between), or the whole file. Each document ends with the end-of-text token.",
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
            "help": "Tokenizer trained in the run; symbol = what stands between blanks. "
            "Default: bpe, if no tokenizer is given.",
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
    block_size: int | None = field(
        default=None,
        metadata={
            "help": "Tokens in a row of a batch: the context of a prediction, or with stateful the "
            "steps that gradients go back. Default: 256, or what the model can take if less."
        },
    )
    packing: str = field(
        default="concatenate",
        metadata={
            "choices": PACKINGS,
            "help": "concatenate: documents follow one another in a row and see one another; "
            "separate: they share rows but do not see one another; none: a document a row, "
            "padded, cut at block_size.",
        },
    )
    stateful: bool = field(
        default=False,
        metadata={
            "help": "Truncated backpropagation through time for recurrent models: each row of a "
            "batch goes on where it stopped in the batch before, with its hidden state."
        },
    )
    varied_windows: bool = field(
        default=False,
        metadata={
            "help": "With stateful: vary the length of the windows (Merity et al. 2018, AWD-LSTM)."
        },
    )
    stride: int | None = field(
        default=None,
        metadata={
            "help": "For the final figures of models without carried state: how many tokens the "
            "window of block_size moves on; less is slower and gives more context. Default: half "
            "of block_size."
        },
    )
    sample_prompts: list[str] | None = field(
        default=None,
        metadata={"help": "Texts that samples go on from; default: how validation texts begin."},
    )
    num_samples: int = field(
        default=2, metadata={"help": "Prompts to go on from at the end; 0 for no samples."}
    )
    sample_tokens: int = field(default=64, metadata={"help": "Length of each sample in tokens."})
    temperature: float = field(default=0.8, metadata={"help": "Of one of the sampling methods."})
    top_k: int = field(default=20, metadata={"help": "Of one of the sampling methods."})
    top_p: float = field(default=0.9, metadata={"help": "Of one of the sampling methods."})
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


@dataclass
class CausalLMScriptArguments(RunDefaults, TrainingArguments):
    """transformers' training arguments with the defaults of a run that keeps its best model.

    Those of `RunDefaults`; do_train, do_eval and do_predict follow from the data given when none of
    them is set. The model with the lowest validation loss is the best.
    """

    lr_epoch_decay: float | None = field(
        default=None,
        metadata={
            "help": "Multiply the learning rate by this with each epoch after lr_constant_epochs, "
            "instead of lr_scheduler_type (Zaremba et al. 2014: 0.5)."
        },
    )
    lr_constant_epochs: int = field(
        default=4, metadata={"help": "With lr_epoch_decay: epochs at the full learning rate."}
    )


def check_options(options: DataTrainingArguments, args: CausalLMScriptArguments) -> None:
    """Refuse options that contradict each other, before any file is read.

    Args:
        options: the data options.
        args: the training arguments.

    Raises:
        ValueError: if two options contradict each other or a number is out of range.
    """
    for name, least in (
        ("block_size", 2),
        ("stride", 1),
        ("max_train_documents", 1),
        ("max_eval_documents", 1),
        ("tokenizer_documents", 1),
        ("num_samples", 0),
        ("sample_tokens", 1),
        ("shuffle_buffer_size", 1),
    ):
        value = getattr(options, name)
        if value is not None and value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}.")
    if not 0 <= options.validation_split_percentage < 100:
        raise ValueError(
            "validation_split_percentage must be at least 0 and below 100, got "
            f"{options.validation_split_percentage:g}."
        )
    if options.stateful and (options.packing != "concatenate" or options.streaming):
        raise ValueError(
            "stateful lets every row run through the whole corpus, so packing must be "
            f"'concatenate' and streaming off, got {options.packing!r} and "
            f"streaming={options.streaming}."
        )
    if options.varied_windows and not options.stateful:
        raise ValueError("varied_windows varies the windows of stateful training. Add --stateful.")
    if args.lr_epoch_decay is not None and not 0 < args.lr_epoch_decay <= 1:
        raise ValueError(
            f"lr_epoch_decay must be above 0 and at most 1, got {args.lr_epoch_decay}."
        )
    if args.lr_epoch_decay is not None and args.max_steps > 0:
        raise ValueError(
            "lr_epoch_decay counts whole epochs. Pass --num_train_epochs instead of --max_steps."
        )
    if options.streaming and args.max_steps <= 0:
        raise ValueError(
            "streaming does not know how long an epoch is. Pass --max_steps with the number of "
            "training steps."
        )


def settle_arguments(
    args: CausalLMScriptArguments,
    options: DataTrainingArguments,
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
    if not (given.get("do_train") or given.get("do_eval") or given.get("do_predict")):
        args.do_train, args.do_predict = "train" in parts, "test" in parts
    args.do_eval = "validation" in parts
    for part, wanted in (("train", args.do_train), ("test", args.do_predict)):
        if wanted and part not in parts:
            raise ValueError(
                f"there is no {part} text to work on. Pass --{part}_file or leave the do_ option "
                "out."
            )
    if "validation" not in parts:
        if options.early_stopping_patience is not None or given.get("load_best_model_at_end"):
            raise ValueError(
                "keeping the best model and early stopping need validation data. Pass "
                "--validation_file or a validation_split_percentage above 0, or leave these "
                "options out."
            )
        logger.info("No validation data: the model of the last step is kept.")
        args.eval_strategy, args.load_best_model_at_end = type(args.eval_strategy)("no"), False
    chosen = (args.metric_for_best_model or "loss").removeprefix("eval_")
    if chosen != "loss":
        raise ValueError(
            f"metric_for_best_model must be loss, got {chosen!r}: perplexity is its exponential "
            "and ranks models in the same order."
        )
    args.metric_for_best_model, args.greater_is_better = "loss", False
    args.dataloader_pin_memory = args.dataloader_pin_memory and args.device.type != "cpu"
