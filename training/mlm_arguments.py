"""Options of run_mlm.py, in the shape of transformers' example script of that name."""

from dataclasses import dataclass, field

from script_arguments import RunDefaults
from text_arguments import TextArguments, check_least, check_text_options
from transformers import TrainingArguments


@dataclass
class DataTrainingArguments(TextArguments):
    """Which texts are read, how they become masked rows, and what is reported about them."""

    max_seq_length: int | None = field(
        default=None,
        metadata={
            "help": "Tokens in a row at most, special ones included. Default: 128, or what the "
            "model can take if less."
        },
    )
    line_by_line: bool = field(
        default=False,
        metadata={
            "help": "A document a row, cut at max_seq_length, instead of documents one after the "
            "other in full rows."
        },
    )
    pad_to_max_length: bool = field(
        default=False,
        metadata={"help": "Pad all rows to max_seq_length instead of to the longest of a batch."},
    )
    mlm_probability: float = field(
        default=0.15, metadata={"help": "Share of the tokens of a row to predict."}
    )
    mask_replace_prob: float = field(
        default=0.8, metadata={"help": "Share of those that become the mask token."}
    )
    random_replace_prob: float = field(
        default=0.1, metadata={"help": "Share of those that become a random token."}
    )
    whole_word_mask: bool = field(
        default=False, metadata={"help": "Choose whole words instead of pieces of words."}
    )
    next_sentence: bool = field(
        default=False,
        metadata={
            "help": "Train on pairs of texts, and on telling whether the second follows the first, "
            "too. A line of a document is a sentence, so text_unit must be paragraph or file."
        },
    )
    short_seq_prob: float = field(
        default=0.1, metadata={"help": "With next_sentence: share of rows of a random length."}
    )
    sample_texts: list[str] | None = field(
        default=None,
        metadata={
            "help": "Texts with a mask token to fill in at the end; default: validation texts with "
            "one word masked."
        },
    )
    num_samples: int = field(
        default=4, metadata={"help": "Texts to fill in at the end; 0 for none."}
    )
    sample_top_k: int = field(
        default=5, metadata={"help": "Most probable tokens shown for each of them."}
    )


@dataclass
class MaskedLMScriptArguments(RunDefaults, TrainingArguments):
    """transformers' training arguments with the defaults of a run that keeps its best model.

    Those of `RunDefaults`; do_train, do_eval and do_predict follow from the data given when none of
    them is set. The model with the lowest validation loss is the best.
    """


def check_options(options: DataTrainingArguments, args: MaskedLMScriptArguments) -> None:
    """Refuse options that contradict each other, before any file is read.

    Args:
        options: the data options.
        args: the training arguments, changed where rows need it.

    Raises:
        ValueError: if two options contradict each other or a number is out of range.
    """
    check_text_options(options, args)
    check_least(options, max_seq_length=3, num_samples=0, sample_top_k=1)
    if not 0 < options.mlm_probability <= 1:
        raise ValueError(
            f"mlm_probability must be above 0 and at most 1, got {options.mlm_probability:g}. BERT "
            "has 0.15."
        )
    if options.next_sentence and (options.line_by_line or options.streaming):
        raise ValueError(
            "next_sentence makes pairs out of documents that are in memory. Leave line_by_line and "
            "streaming out."
        )
    if options.next_sentence and options.text_unit == "line" and options.dataset_name is None:
        raise ValueError(
            "next_sentence needs documents of several lines, a sentence each, but text_unit is "
            "'line'. Pass --text_unit paragraph (blank lines between documents) or file."
        )
    args.remove_unused_columns = False  # rows hold what they need, and what masks depend on
