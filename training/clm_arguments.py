"""Options of run_clm.py, in the shape of transformers' example script of that name."""

from dataclasses import dataclass, field

from script_arguments import RunDefaults
from text_arguments import TextArguments, check_least, check_text_options
from transformers import TrainingArguments

PACKINGS = ["concatenate", "separate", "none"]


@dataclass
class DataTrainingArguments(TextArguments):
    """Which texts are read, how they become rows of tokens, and what is reported about them.

    Each document ends with the end-of-text token.
    """

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
    check_text_options(options, args)
    check_least(options, block_size=2, stride=1, num_samples=0, sample_tokens=1)
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
