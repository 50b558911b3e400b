"""Options of run_seq2seq.py, in the shape of transformers' example scripts."""

from dataclasses import dataclass, field
from typing import Any

from script_arguments import RunDefaults
from script_data import PARTS, settle_parts
from transformers import Seq2SeqTrainingArguments

from hf_seqmodels.checkpoint_averaging import exponential_weights

TOKENIZER_MODELS = ["char", "symbol", "word", "bpe", "wordpiece", "unigram"]
METRICS = ["exact_match", "error_rate", "wer", "cer", "per", "bleu", "bleu_lowercase", "chrf"]
LOWER_IS_BETTER = ("loss", "item_error_rate", "error_rate", "wer", "cer", "per")


@dataclass
class DataTrainingArguments:
    """Which pairs are read, how they become tokens, and what is reported about them."""

    train_file: str | None = field(
        default=None,
        metadata={"help": "Training pairs: .jsonl, .json, .csv or .tsv, each also with .gz."},
    )
    validation_file: str | None = field(
        default=None, metadata={"help": "Validation pairs, same formats."}
    )
    test_file: str | None = field(default=None, metadata={"help": "Test pairs, same formats."})
    dataset_name: str | None = field(
        default=None, metadata={"help": "Dataset of the Hub (or a local folder) instead of files."}
    )
    dataset_config_name: str | None = field(
        default=None, metadata={"help": "Configuration of that dataset."}
    )
    source_column: str | None = field(default=None, metadata={"help": "Column of the source text."})
    target_column: str | None = field(default=None, metadata={"help": "Column of the target text."})
    source_lang: str | None = field(
        default=None,
        metadata={"help": "Source language code, for rows with a `translation` object."},
    )
    target_lang: str | None = field(
        default=None,
        metadata={"help": "Target language code, for rows with a `translation` object."},
    )
    tag_columns: list[str] | None = field(
        default=None,
        metadata={
            "help": "Columns written before the source as tags: with tag_separator ';' the value "
            "'V;PST' of a row with source 'go' makes the source '<V><PST>go'. Each tag seen in "
            "training is one whole token."
        },
    )
    tag_separator: str = field(
        default=";",
        metadata={"help": "What stands between several tags in one value of a tag column."},
    )
    validation_split: float = field(
        default=0.05,
        metadata={
            "help": "Share (below 1) or number of distinct training sources held out for "
            "validation when no validation data is given; no source is in both parts. 0 trains "
            "without validation."
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
    source_tokenizer_model: str | None = field(
        default=None,
        metadata={
            "choices": TOKENIZER_MODELS,
            "help": "Source tokenizer trained in the run; symbol = whitespace-separated symbols. "
            "Default: char, if no tokenizer is given.",
        },
    )
    target_tokenizer_model: str | None = field(
        default=None,
        metadata={
            "choices": TOKENIZER_MODELS,
            "help": "Target tokenizer trained in the run. Default: the source's.",
        },
    )
    source_vocab_size: int | None = field(
        default=None,
        metadata={"help": "Size of the source vocabulary; bpe, wordpiece and unigram need it."},
    )
    target_vocab_size: int | None = field(
        default=None, metadata={"help": "Size of the target vocabulary."}
    )
    source_extra_tokens: list[str] | None = field(
        default=None,
        metadata={"help": "Strings kept whole in the source, one token each, e.g. <en_US>."},
    )
    tokenizer_min_frequency: int = field(
        default=1, metadata={"help": "Units seen less often in training become the unknown token."}
    )
    lowercase_source: bool = field(
        default=False, metadata={"help": "The source tokenizer lowers its text."}
    )
    shared_tokenizer: bool = field(
        default=False,
        metadata={"help": "One tokenizer for both sides, trained on source and target together."},
    )
    split_punctuation: bool = field(
        default=False,
        metadata={
            "help": "bpe and unigram tokenizers keep punctuation apart from words, as translation "
            "wants it."
        },
    )
    bpe_dropout: float = field(
        default=0.0,
        metadata={
            "help": "Rate at which merges are left out when training pairs are cut into sub-words, "
            "anew at every reading (Provilkov et al. 2020); for bpe tokenizers. Evaluation goes "
            "without. The draws cannot be seeded, so runs differ."
        },
    )
    alignment_column: str | None = field(
        default=None,
        metadata={
            "help": "Column of the training data with word alignments in the Pharaoh format "
            "(`0-0 1-2`; words are what stands between blanks), to guide attention: set "
            "guided_alignment_weight in config_overrides."
        },
    )
    source_prefix: str = field(
        default="", metadata={"help": "Text put before every source, e.g. for T5 models."}
    )
    max_source_length: int | None = field(
        default=None,
        metadata={"help": "Longer sources are cut to this many tokens; default: none is cut."},
    )
    max_target_length: int | None = field(
        default=None,
        metadata={
            "help": "Longer targets are cut to this many tokens, and generation stops "
            "there; default: none is cut, and generation may run to 1.5 times the longest "
            "training target."
        },
    )
    max_tokens_per_batch: int | None = field(
        default=None,
        metadata={
            "help": "Fill training batches to this many padded tokens of source plus target "
            "instead of a fixed number of rows (per_device_train_batch_size then caps the rows). "
            "With bpe_dropout, tokens are counted as they are without it."
        },
    )
    average_last: int | None = field(
        default=None,
        metadata={
            "help": "Take the mean of the last so many checkpoints for the result instead of the "
            "best one."
        },
    )
    average_best: int | None = field(
        default=None,
        metadata={"help": "Take the mean of the best so many checkpoints instead."},
    )
    average_decay: float | None = field(
        default=None,
        metadata={
            "help": "With average_last or average_best, an exponential average: each checkpoint "
            "counts this much of the next one, above 0 and at most 1. Default: all count alike."
        },
    )
    num_beams: int | None = field(
        default=None,
        metadata={
            "help": "Beams for the final validation and test figures and for the saved "
            "generation_config; default: generation_num_beams (which the evaluations during "
            "training use), or the checkpoint's, or 1."
        },
    )
    length_penalty: float | None = field(
        default=None,
        metadata={
            "help": "Exponent of the length that divides a beam's log-probability; default: the "
            "checkpoint's, or 1."
        },
    )
    metrics: list[str] = field(
        default_factory=lambda: ["exact_match", "cer"],
        metadata={
            "choices": METRICS,
            "help": "What is reported; the first one is the default of metric_for_best_model.",
        },
    )
    num_return_sequences: int = field(
        default=1,
        metadata={
            "help": "Above 1: predictions.jsonl lists that many hypotheses with scores per source."
        },
    )
    num_alignments: int = field(
        default=4,
        metadata={"help": "Test items drawn in alignments.png and alignments.html; 0 draws none."},
    )
    early_stopping_patience: int | None = field(
        default=None,
        metadata={
            "help": "Stop after this many evaluations without a better metric_for_best_model."
        },
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
class Seq2SeqScriptArguments(RunDefaults, Seq2SeqTrainingArguments):
    """transformers' training arguments with the defaults of a run that keeps its best model.

    Those of `RunDefaults`, and: predictions by generate, and an error rate counts as better when
    lower. do_train, do_eval and do_predict follow from the data given when none of them is set.
    """

    predict_with_generate: bool = field(
        default=True, metadata={"help": "Evaluate what the model writes, not only its loss."}
    )

    def __post_init__(self):
        if self.greater_is_better is None and self.metric_for_best_model is not None:
            name = self.metric_for_best_model.removeprefix("eval_")
            self.greater_is_better = name not in LOWER_IS_BETTER
        super().__post_init__()


def settle_arguments(
    args: Seq2SeqScriptArguments, options: DataTrainingArguments, corpus: Any, given: dict[str, Any]
) -> None:
    """Fill in what follows from the data and refuse options that contradict it.

    Args:
        args: the training arguments, changed in place.
        options: the data options.
        corpus: the data.
        given: what the user said, without defaults.

    Raises:
        ValueError: if the options ask for what the data or the metrics cannot give.
    """
    parts = [part for part in PARTS if getattr(corpus, part)]
    settle_parts(args, options, parts, given, rows="pairs")
    _settle_averaging(args, options, given)
    _check_alignments(options)
    args.metric_for_best_model = best_metric(args, options, given)
    if given.get("greater_is_better") is None:
        args.greater_is_better = (
            args.metric_for_best_model.removeprefix("eval_") not in LOWER_IS_BETTER
        )
    options.num_beams = options.num_beams or args.generation_num_beams
    args.generation_num_beams = args.generation_num_beams or 1  # while training


def _settle_averaging(
    args: Seq2SeqScriptArguments, options: DataTrainingArguments, given: dict[str, Any]
) -> None:
    """Keep the checkpoints that an average needs, and refuse one that the run will not have."""
    counts = {name: getattr(options, name) for name in ("average_last", "average_best")}
    wanted = {name: count for name, count in counts.items() if count is not None}
    if len(wanted) > 1:
        raise ValueError("average_last and average_best exclude each other. Pass one of them.")
    if options.average_decay is not None:
        if not wanted:
            raise ValueError(
                f"average_decay={options.average_decay} weighs the checkpoints of an average. Pass "
                "average_last or average_best, too."
            )
        exponential_weights(1, options.average_decay)  # checks its range
    for name, count in wanted.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}.")
        if args.save_strategy == "no":
            raise ValueError(f"{name} needs checkpoints, got save_strategy='no'. Pass 'epoch'.")
        if name == "average_best" and args.eval_strategy == "no":
            raise ValueError("average_best needs evaluations while training. Pass average_last.")
        needed = None if name == "average_best" else count + 1  # those, and the best one
        limit = given.get("save_total_limit")
        if limit is None:
            args.save_total_limit = needed
        elif needed is None or limit < needed:
            raise ValueError(
                f"{name}={count} needs {'all' if needed is None else needed} checkpoints to be "
                f"kept, got save_total_limit={limit}. Leave save_total_limit out."
            )


def _check_alignments(options: DataTrainingArguments) -> None:
    """Refuse options that move words or tokens away from where their alignments say they are."""
    if options.alignment_column is None:
        return
    for name in ("bpe_dropout", "source_prefix", "tag_columns"):
        if getattr(options, name):
            raise ValueError(
                f"alignment_column counts words of the texts as they are, so it does not go with "
                f"{name}={getattr(options, name)!r}. Leave one of them out, or put prefix and tags "
                "into the texts and align those."
            )


def best_metric(
    args: Seq2SeqScriptArguments, options: DataTrainingArguments, given: dict[str, Any]
) -> str:
    """Return the metric that decides which model is best.

    Args:
        args: the training arguments.
        options: name the metrics that are computed.
        given: what the user said, without defaults.

    Returns:
        The metric the user named, or else the first metric, or else the loss.

    Raises:
        ValueError: if the metric named will not be computed.
    """
    computed = ["loss"]
    if args.predict_with_generate:
        rates = [name for name in options.metrics if name in ("error_rate", "wer", "cer", "per")]
        computed = [*options.metrics, *(["item_error_rate"] if rates else []), "loss"]
    chosen = given.get("metric_for_best_model") or computed[0]
    if chosen.removeprefix("eval_") not in computed:
        raise ValueError(
            f"metric_for_best_model must be one of {', '.join(computed)}, got {chosen!r}. "
            "Add it to --metrics (and keep predict_with_generate on)."
        )
    return chosen
