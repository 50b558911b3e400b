"""Decode and score pairs of text with one trained encoder-decoder, or with several as an ensemble.

    python training/evaluate_seq2seq.py --model_name_or_path runs/g2p_dutch \\
        --test_file dut_test.jsonl --source_column word --target_column phonemes \\
        --metrics per exact_match --output_dir runs/g2p_dutch_test
    python training/evaluate_seq2seq.py --model_name_or_path runs/g2p_dutch runs/g2p_dutch_2 ...

Several models are averaged at every step; they must share their tokenizers. A single model gets the
figures that run_seq2seq.py has for it at the end of its run. The output folder holds metrics.json
and predictions.jsonl, and on request alignments of the outputs: alignments.html to explore,
alignments.png, alignments.pharaoh. Options may stand in a recipe; `--help` lists them.
"""

import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import run_folder
import run_report
from evaluation_arguments import OPTION_CLASSES, SEARCH_OPTIONS, EvaluationArguments
from output_rules import OutputRules, RuleArguments, check_rules, make_rules, rules_record
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
from hf_seqmodels.data import write_pharaoh
from hf_seqmodels.decoding import decode_minimum_risk, replace_unknown_words
from hf_seqmodels.evaluation import (
    EnsembleForSeq2SeqLM,
    Hypothesis,
    alignments,
    decode_corpus,
    n_best,
)
from hf_seqmodels.model_cards import shell_command, without_folders

logger = logging.getLogger("evaluate_seq2seq")

PREDICTIONS_FILE = "predictions.jsonl"
PICTURE_FILE = "alignments.png"
LINKS_FILE = "alignments.pharaoh"
ALIGNMENT_FILES = (PICTURE_FILE, "alignments.html", LINKS_FILE)
OWN_FILES = (
    *(run_folder.FINISHED_FILE, PREDICTIONS_FILE, run_folder.STAGING_FOLDER),
    *ALIGNMENT_FILES,
)


@dataclass
class Evaluation:
    """An evaluation that has passed every check and may begin."""

    argv: list[str]
    args: EvaluationArguments
    rule_args: RuleArguments
    options: DataTrainingArguments
    corpus: Corpus
    tokenizer: PreTrainedTokenizerBase
    model: Any
    rules: OutputRules = field(default_factory=OutputRules)


@dataclass
class Outputs:
    """What was written for one part of the data.

    Args:
        texts: one per source.
        targets: the same as token ids, where these are known.
        hypotheses: n-best lists, where there are any.
    """

    texts: list[str]
    targets: Sequence[str | list[int]]
    hypotheses: list[list[Hypothesis]] | None = None


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
    args, rule_args, hub_options, data_options = parse_arguments(OPTION_CLASSES, argv)
    options = DataTrainingArguments(**vars(data_options))
    names = args.model_name_or_path
    if not names:
        raise ValueError("no model: pass --model_name_or_path with one or more checkpoints.")
    check_output_dir(args.output_dir, overwrite=options.overwrite_output_dir)
    check_decoding(args, options)
    check_rules(rule_args, samples=args.minimum_risk is not None)
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
    parts = {"validation": corpus.validation, "test": corpus.test}
    evaluation = Evaluation(list(argv), args, rule_args, options, corpus, tokenizer, model)
    evaluation.rules = make_rules(rule_args, parts, tokenizer, model.generation_config)
    if args.num_alignments or args.pharaoh:
        alignments(model, tokenizer, [""], [[0]], progress=False)  # whether it has attention
    return evaluation


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
    if args.num_alignments < 0:
        raise ValueError(f"num_alignments must be at least 0, got {args.num_alignments}.")
    threshold = args.pharaoh_threshold
    if threshold is not None and not 0 < threshold <= 1:
        raise ValueError(f"pharaoh_threshold must be above 0 and at most 1, got {threshold}.")
    if threshold is not None and not args.pharaoh:
        raise ValueError(
            f"pharaoh_threshold={threshold} is one of alignments.pharaoh, which was not asked for. "
            "Pass --pharaoh tokens or --pharaoh words, too."
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
    parts = [part for part in ("validation", "test") if getattr(corpus, part)]
    with run_folder.staged(args.output_dir) as folder:
        for part in parts:
            outputs, record[part] = predict(evaluation, part)
            if part == parts[-1]:
                run_report.write_predictions(
                    folder / PREDICTIONS_FILE,
                    getattr(corpus, part),
                    outputs.texts,
                    outputs.hypotheses,
                )
                write_alignments(evaluation, folder, part, outputs)
        for name in ALIGNMENT_FILES:
            if not (folder / name).exists():  # of the evaluation that is replaced
                (Path(args.output_dir) / name).unlink(missing_ok=True)
        run_report.write_json(folder / run_folder.FINISHED_FILE, record)
    return record


def decoding_record(evaluation: Evaluation) -> dict[str, Any]:
    """Return how the outputs are found.

    Args:
        evaluation: the evaluation.

    Returns:
        Settings for metrics.json.
    """
    args, rules = evaluation.args, rules_record(evaluation.rule_args)
    if args.minimum_risk:
        names = ("minimum_risk", "num_candidates", "seed")
        return {name: getattr(args, name) for name in names} | rules
    replaces = {"replace_unknown": True} if args.replace_unknown else {}
    return beam_settings(evaluation.options, args) | rules | replaces


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


def predict(evaluation: Evaluation, part: str) -> tuple[Outputs, dict[str, Any]]:
    """Decode one part of the data and score it.

    Args:
        evaluation: the evaluation.
        part: validation or test.

    Returns:
        The outputs in the order of the data, and the scores.
    """
    options, examples = evaluation.options, getattr(evaluation.corpus, part)
    arguments = shared_arguments(evaluation, part)
    start = time.perf_counter()
    outputs = decode(evaluation, arguments, evaluation.rules.arguments(part))
    seconds = time.perf_counter() - start
    scores, signatures = run_report.corpus_scores(options.metrics, outputs.texts, examples)
    scores["seconds"] = round(seconds, 1)
    return outputs, scores | ({"signatures": signatures} if signatures else {})


def shared_arguments(evaluation: Evaluation, part: str) -> dict[str, Any]:
    """Return the arguments of every function that works through one part of the data.

    Args:
        evaluation: the evaluation.
        part: validation or test.

    Returns:
        The arguments.
    """
    options = evaluation.options
    return {
        "model": evaluation.model,
        "tokenizer": evaluation.tokenizer,
        "sources": [
            options.source_prefix + example.source for example in getattr(evaluation.corpus, part)
        ],
        "batch_size": evaluation.args.per_device_eval_batch_size,
        "max_source_length": options.max_source_length,
        "device": evaluation.args.device,
    }


def decode(evaluation: Evaluation, arguments: dict[str, Any], rules: dict[str, Any]) -> Outputs:
    """Decode as the options say.

    Args:
        evaluation: the evaluation.
        arguments: of every function.
        rules: arguments of those that search.

    Returns:
        The outputs, with token ids if they are needed for alignments.
    """
    args, options = evaluation.args, evaluation.options
    if args.minimum_risk:
        set_seed(args.seed)
        choices = decode_minimum_risk(
            **arguments, **rules, utility=args.minimum_risk, num_candidates=args.num_candidates
        )
        texts = [choice.text for choice in choices]
        return Outputs(texts, texts)
    search = arguments | rules | beam_settings(options, args)
    aligns = args.num_alignments or args.pharaoh
    if options.num_return_sequences == 1 and not aligns:
        decoder = replace_unknown_words if args.replace_unknown else decode_corpus
        texts = decoder(**search)
        return Outputs(texts, texts)
    lists = n_best(**search, num_return_sequences=options.num_return_sequences)
    texts = [found[0].text for found in lists]
    rows = [found[0].token_ids for found in lists]
    if args.replace_unknown:
        texts = replace_unknown_words(**arguments, targets=rows)
    return Outputs(texts, rows, lists if options.num_return_sequences > 1 else None)


def write_alignments(evaluation: Evaluation, folder: Path, part: str, outputs: Outputs) -> None:
    """Write the attention of outputs over their sources: a page, a picture, links.

    Args:
        evaluation: the evaluation.
        folder: where to write.
        part: validation or test.
        outputs: of that part.
    """
    args, arguments = evaluation.args, shared_arguments(evaluation, part)
    sources = arguments["sources"]
    drawn = run_report.drawn_places(sources, args.num_alignments)
    places = list(range(len(sources))) if args.pharaoh else drawn
    if not places:
        return
    arguments["sources"] = [sources[place] for place in places]
    items = alignments(**arguments, targets=[outputs.targets[place] for place in places])
    if drawn:
        item_at = dict(zip(places, items, strict=True))
        run_report.show_alignments(folder / PICTURE_FILE, [item_at[place] for place in drawn])
    if args.pharaoh:
        items = [item.merge_words() for item in items] if args.pharaoh == "words" else items
        links = [item.links(threshold=args.pharaoh_threshold) for item in items]
        write_pharaoh(folder / LINKS_FILE, links)


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
