"""Options of evaluate_seq2seq.py."""

import copy
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any

from output_rules import RuleArguments
from script_models import ModelArguments
from seq2seq_arguments import DataTrainingArguments


def options_of(dataclass_type: type, *names: str) -> list[tuple[str, Any, Any]]:
    """Take some options over from another script.

    Args:
        dataclass_type: holds them.
        *names: of the options.

    Returns:
        Fields for `make_dataclass`.
    """
    chosen = [option for option in fields(dataclass_type) if option.name in names]
    return [(option.name, option.type, copy.copy(option)) for option in chosen]


@dataclass
class EvaluationArguments:
    """Which models are evaluated, where, and where the figures go."""

    model_name_or_path: list[str] | None = field(
        default=None,
        metadata={"help": "Checkpoint (folder or Hub name); several are one ensemble."},
    )
    output_dir: str | None = field(
        default=None, metadata={"help": "Folder for metrics.json and predictions.jsonl."}
    )
    per_device_eval_batch_size: int = field(
        default=64, metadata={"help": "Sources decoded at a time."}
    )
    device: str | None = field(
        default=None, metadata={"help": "Where to compute, such as cuda; default: the CPU."}
    )
    length_normalization: str | None = field(
        default=None,
        metadata={
            "choices": ["power", "gnmt"],
            "help": "What length_penalty is the exponent of: the length (power, the default), or "
            "(5 + length) / 6 as in Wu et al. 2016 (gnmt).",
        },
    )
    coverage_penalty: float | None = field(
        default=None,
        metadata={"help": "Weight of the coverage penalty of Wu et al. 2016; default: none."},
    )
    num_beam_groups: int | None = field(
        default=None, metadata={"help": "Groups that the beams are divided into, to differ."}
    )
    diversity_penalty: float | None = field(
        default=None, metadata={"help": "What a token costs a group that comes later, in nats."}
    )
    replace_unknown: bool = field(
        default=False,
        metadata={"help": "Put the source word of the highest attention for unknown tokens."},
    )
    minimum_risk: str | None = field(
        default=None,
        metadata={
            "choices": ["chrf", "bleu", "edit"],
            "help": "Instead of the likeliest output take the one of num_candidates samples that "
            "is most like all of them by this measure (minimum Bayes risk).",
        },
    )
    num_candidates: int = field(default=32, metadata={"help": "Samples for minimum_risk."})
    seed: int = field(default=1, metadata={"help": "Of the samples for minimum_risk."})
    num_alignments: int = field(
        default=0,
        metadata={"help": "Outputs shown with their attention in alignments.html and .png."},
    )
    pharaoh: str | None = field(
        default=None,
        metadata={
            "choices": ["tokens", "words"],
            "help": "Write alignments.pharaoh, a line per output: 0-0 1-2 links the tokens, or the "
            "words that they are parts of; each one of the output with the one of the source that "
            "it attends to most.",
        },
    )
    pharaoh_threshold: float | None = field(
        default=None,
        metadata={"help": "Link all pairs of at least this weight instead, above 0 to 1."},
    )


HubArguments = make_dataclass(
    "HubArguments",
    options_of(ModelArguments, "cache_dir", "model_revision", "token", "trust_remote_code"),
)
EvaluationDataArguments = make_dataclass(
    "EvaluationDataArguments",
    options_of(
        DataTrainingArguments,
        *("validation_file", "test_file", "dataset_name", "dataset_config_name"),
        *("source_column", "target_column", "source_lang", "target_lang"),
        *("tag_columns", "tag_separator", "source_prefix"),
        *("max_eval_samples", "max_predict_samples", "max_source_length", "max_target_length"),
        *("num_beams", "length_penalty", "num_return_sequences", "metrics"),
        "overwrite_output_dir",
    ),
)
SEARCH_OPTIONS = (
    "length_normalization",
    "coverage_penalty",
    "num_beam_groups",
    "diversity_penalty",
)
OPTION_CLASSES = (EvaluationArguments, RuleArguments, HubArguments, EvaluationDataArguments)
