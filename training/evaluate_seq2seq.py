"""Decode and score pairs of text with one trained encoder-decoder, or with several as an ensemble.

    python training/evaluate_seq2seq.py --model_name_or_path runs/g2p_dutch \\
        --test_file dut_test.jsonl --source_column word --target_column phonemes \\
        --metrics per exact_match --output_dir runs/g2p_dutch_test
    python training/evaluate_seq2seq.py --model_name_or_path runs/g2p_dutch runs/g2p_dutch_2 ...

Several models are averaged at every step; they must share their tokenizers. A single model gets the
figures that run_seq2seq.py has for it at the end of its run. The output folder holds metrics.json
and predictions.jsonl. Options may stand in a recipe; `--help` lists them.
"""

import copy
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any

import run_folder
import run_report
from script_arguments import parse_arguments
from script_models import ModelArguments, load_pretrained
from seq2seq_arguments import DataTrainingArguments
from seq2seq_data import Corpus, encode_corpus, load_corpus, row_lengths
from seq2seq_model import (
    check_lengths,
    check_vocabularies,
    load_or_train_tokenizer,
    settle_decoding,
)
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerBase, set_seed
from transformers.utils.logging import disable_progress_bar

import hf_seqmodels  # noqa: F401  (registers the model types)
from hf_seqmodels.decoding import decode_minimum_risk, encode_bad_words, replace_unknown_words
from hf_seqmodels.evaluation import EnsembleForSeq2SeqLM, Hypothesis, decode_corpus, n_best
from hf_seqmodels.model_cards import shell_command, without_folders

logger = logging.getLogger("evaluate_seq2seq")

PREDICTIONS_FILE = "predictions.jsonl"
OWN_FILES = (run_folder.FINISHED_FILE, PREDICTIONS_FILE, run_folder.STAGING_FOLDER)


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
    avoid_words: list[str] | None = field(
        default=None, metadata={"help": "Words that no output may contain."}
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
OPTION_CLASSES = (EvaluationArguments, HubArguments, EvaluationDataArguments)


@dataclass
class Evaluation:
    """An evaluation that has passed every check and may begin."""

    argv: list[str]
    args: EvaluationArguments
    options: DataTrainingArguments
    corpus: Corpus
    tokenizer: PreTrainedTokenizerBase
    model: Any


def prepare(argv: Sequence[str]) -> Evaluation:
    """Read options, data and models, and refuse whatever cannot work.

    Args:
        argv: the words after the script's name.

    Returns:
        The evaluation, ready for `run_all`.

    Raises:
        ValueError: if an option, a file, a model or their combination is wrong; nothing has been
            written then.
    """
    args, hub_options, data_options = parse_arguments(OPTION_CLASSES, argv)
    options = DataTrainingArguments(**vars(data_options))
    names = args.model_name_or_path
    if not names:
        raise ValueError("no model: pass --model_name_or_path with one or more checkpoints.")
    check_output_dir(args.output_dir, overwrite=options.overwrite_output_dir)
    check_decoding(args, options)
    corpus = load_corpus(options)
    if not (corpus.validation or corpus.test):
        raise ValueError("nothing to evaluate: pass --validation_file or --test_file, or both.")
    model_options = ModelArguments(model_name_or_path=names[0], **vars(hub_options))
    tokenizer = load_or_train_tokenizer(model_options, options, corpus)
    if len(names) > 1:
        model = load_pretrained(EnsembleForSeq2SeqLM, names, model_options)
    else:
        model = load_pretrained(AutoModelForSeq2SeqLM, names[0], model_options)
    for member in members_of(model):
        check_vocabularies(member.config, tokenizer)
    encoded = encode_corpus(
        Corpus(validation=corpus.validation, test=corpus.test), tokenizer, options
    )
    check_lengths(model.config, {part: row_lengths(rows) for part, rows in encoded.items()})
    settle_decoding(model, tokenizer, options, None)
    return Evaluation(list(argv), args, options, corpus, tokenizer, model)


def check_decoding(args: EvaluationArguments, options: DataTrainingArguments) -> None:
    """Refuse ways of decoding that exclude one another.

    Args:
        args: of the evaluation.
        options: of the data, num_return_sequences among them.

    Raises:
        ValueError: naming the two.
    """
    ours = {name: getattr(args, name) for name in SEARCH_OPTIONS}
    given = [name for name, value in ours.items() if value is not None]
    if args.minimum_risk and (given or args.replace_unknown or options.num_return_sequences > 1):
        other = [*given, "replace_unknown" if args.replace_unknown else "num_return_sequences"][0]
        raise ValueError(
            f"minimum_risk takes its candidates from samples, so {other} has no effect. Leave out "
            "the one or the other."
        )
    if args.replace_unknown and options.num_return_sequences > 1:
        raise ValueError(
            "replace_unknown changes the best output alone, but num_return_sequences asks for "
            f"{options.num_return_sequences}. Leave out the one or the other."
        )


def check_output_dir(output_dir: str | None, *, overwrite: bool) -> None:
    """Refuse a folder that holds other things, a trained model above all, or finished figures.

    Args:
        output_dir: the folder to write, present or not.
        overwrite: whether figures there may be replaced.

    Raises:
        ValueError: if it may not be written.
    """
    if output_dir is None:
        raise ValueError("output_dir must be given: the folder for the figures and predictions.")
    folder = Path(output_dir)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output_dir must be a folder, but {output_dir!r} is a file.")
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    foreign = [name for name in names if name not in OWN_FILES]
    if foreign:
        raise ValueError(
            f"output_dir {output_dir!r} holds files that no evaluation has written: "
            f"{', '.join(foreign[:5])}. Choose an empty or a new folder."
        )
    if run_folder.FINISHED_FILE in names and not overwrite:
        raise ValueError(
            f"output_dir {output_dir!r} holds a finished evaluation. Choose another folder, or "
            "pass --overwrite_output_dir to replace it."
        )


def members_of(model: Any) -> Sequence[Any]:
    """Return the members of an ensemble, or the single model.

    Args:
        model: either.

    Returns:
        The models.
    """
    return list(model.members) if isinstance(model, EnsembleForSeq2SeqLM) else [model]


def run_all(evaluation: Evaluation) -> dict[str, Any]:
    """Decode and score every part of the data and write the output folder.

    Args:
        evaluation: what `prepare` returned.

    Returns:
        The content of metrics.json.
    """
    args, corpus, model = evaluation.args, evaluation.corpus, evaluation.model
    settings = model.generation_config
    record: dict[str, Any] = {
        "models": [without_folders(name) for name in args.model_name_or_path],
        "model_types": [member.config.model_type for member in members_of(model)],
        "num_parameters": sum(member.num_parameters() for member in members_of(model)),
        "data": corpus.origins,
        "decoding": decoding_record(evaluation) | {"max_length": settings.max_length},
        "command": shell_command("python training/evaluate_seq2seq.py", evaluation.argv),
        "machine": run_report.machine(),
    }
    with run_folder.staged(args.output_dir) as folder:
        for part in ("validation", "test"):
            if examples := getattr(corpus, part):
                texts, hypotheses, record[part] = predict(evaluation, part)
                # of the last part, the test where there is one
                run_report.write_predictions(folder / PREDICTIONS_FILE, examples, texts, hypotheses)
        run_report.write_json(folder / run_folder.FINISHED_FILE, record)
    return record


def decoding_record(evaluation: Evaluation) -> dict[str, Any]:
    """Return how the outputs are found.

    Args:
        evaluation: the evaluation.

    Returns:
        Settings for metrics.json.
    """
    args = evaluation.args
    if args.minimum_risk:
        names = ("minimum_risk", "num_candidates", "seed", "avoid_words")
        return {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    others = {"avoid_words": args.avoid_words, "replace_unknown": args.replace_unknown or None}
    return beam_settings(evaluation.options, args) | {
        name: value for name, value in others.items() if value
    }


def beam_settings(options: DataTrainingArguments, args: EvaluationArguments) -> dict[str, Any]:
    """Return the settings of beam search; a length penalty only where there are beams.

    Args:
        options: settled.
        args: of the evaluation.

    Returns:
        Arguments of generate().
    """
    settings: dict[str, Any] = {"num_beams": options.num_beams}
    settings |= {
        name: getattr(args, name) for name in SEARCH_OPTIONS if getattr(args, name) is not None
    }
    return settings | ({"length_penalty": options.length_penalty} if options.num_beams > 1 else {})


def predict(
    evaluation: Evaluation, part: str
) -> tuple[list[str], list[list[Hypothesis]] | None, dict[str, Any]]:
    """Decode one part of the data and score it.

    Args:
        evaluation: the evaluation.
        part: validation or test.

    Returns:
        The texts in the order of the data, the n-best lists if asked for, and the scores.
    """
    options, examples = evaluation.options, getattr(evaluation.corpus, part)
    arguments = {
        "model": evaluation.model,
        "tokenizer": evaluation.tokenizer,
        "sources": [options.source_prefix + example.source for example in examples],
        "batch_size": evaluation.args.per_device_eval_batch_size,
        "max_source_length": options.max_source_length,
        "device": evaluation.args.device,
    }
    if evaluation.args.avoid_words:
        words = encode_bad_words(evaluation.tokenizer, evaluation.args.avoid_words)
        already = evaluation.model.generation_config.bad_words_ids or []
        arguments["bad_words_ids"] = [*already, *words]
    start = time.perf_counter()
    texts, hypotheses = decode(evaluation, arguments)
    seconds = time.perf_counter() - start
    scores, signatures = run_report.corpus_scores(options.metrics, texts, examples)
    scores["seconds"] = round(seconds, 1)
    return texts, hypotheses, scores | ({"signatures": signatures} if signatures else {})


def decode(
    evaluation: Evaluation, arguments: dict[str, Any]
) -> tuple[list[str], list[list[Hypothesis]] | None]:
    """Decode as the options say.

    Args:
        evaluation: the evaluation.
        arguments: of every function that decodes.

    Returns:
        The texts, and the n-best lists if asked for.
    """
    args, options = evaluation.args, evaluation.options
    if args.minimum_risk:
        set_seed(args.seed)
        choices = decode_minimum_risk(
            **arguments, utility=args.minimum_risk, num_candidates=args.num_candidates
        )
        return [choice.text for choice in choices], None
    arguments = arguments | beam_settings(options, args)
    if args.replace_unknown:
        return replace_unknown_words(**arguments), None
    if options.num_return_sequences > 1:
        lists = n_best(**arguments, num_return_sequences=options.num_return_sequences)
        return [found[0].text for found in lists], lists
    return decode_corpus(**arguments), None


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the script and return the content of metrics.json.

    Args:
        argv: the words after the script's name; None takes those of the process.

    Returns:
        The figures.
    """
    return run_all(prepare(sys.argv[1:] if argv is None else argv))


def command() -> None:
    """Run the script for a person: one clear line for wrong input, the figures at the end."""
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    for name in ("httpx", "absl", "datasets"):
        logging.getLogger(name).setLevel(logging.WARNING)
    disable_progress_bar()  # of loading; decoding keeps its own
    try:
        evaluation = prepare(sys.argv[1:])
    except (ValueError, OSError) as error:
        sys.exit(f"evaluate_seq2seq.py: error: {error}")
    record = run_all(evaluation)
    for part in ("validation", "test"):
        if part in record:
            logger.info(f"{part}: {record[part]}")
    logger.info(f"Metrics and predictions: {evaluation.args.output_dir}")


if __name__ == "__main__":
    command()
