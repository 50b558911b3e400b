"""What a run tells about itself: scores, predictions, pictures, metrics.json and the model card."""

import json
import logging
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from script_arguments import read_overrides
from seq2seq_data import Example
from transformers import PreTrainedModel, Trainer

from hf_seqmodels.analysis import (
    plot_alignments,
    plot_learning_curve,
    write_alignment_page,
)
from hf_seqmodels.evaluation import Alignment, Hypothesis, alignments, load_metric
from hf_seqmodels.model_cards import facts_of_run, render_card, shell_command, without_folders

logger = logging.getLogger("run_seq2seq")

NOT_IN_CARD = (
    *("output_dir", "overwrite_output_dir", "resume_from_checkpoint"),
    *("token", "hub_token", "cache_dir"),
)
METRIC_VARIANTS = {"bleu_lowercase": ("bleu", {"lowercase": True})}  # name: metric, its options
NUM_EXAMPLES = 3  # on the card
LONGEST_DRAWN_SOURCE = 40  # characters; longer alignments are unreadable


def corpus_scores(
    names: Sequence[str], predictions: Sequence[str], examples: Sequence[Example]
) -> tuple[dict[str, float], dict[str, str]]:
    """Score predictions with several metrics.

    Args:
        names: of the metrics.
        predictions: one text per example.
        examples: hold the references.

    Returns:
        The scores (percentages) by name, with `item_error_rate` wherever an error rate is asked
        for, and the signatures of the metrics that have one.
    """
    references = [example.references for example in examples]
    scores, signatures = {}, {}
    for name in names:
        metric, settings = METRIC_VARIANTS.get(name, (name, {}))
        result = load_metric(metric).compute(
            predictions=predictions, references=references, **settings
        )
        scores |= {name: float(result[metric])}
        scores |= {key: float(result[key]) for key in ("item_error_rate",) if key in result}
        if "signature" in result:
            signatures[name] = result["signature"]
    return scores, signatures


def write_json(path: Path, content: Any) -> None:
    """Write readable JSON.

    Args:
        path: the file.
        content: plain values.
    """
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object a line.

    Args:
        path: the file.
        lines: the objects, of plain values.
    """
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")


def write_predictions(
    path: Path,
    examples: Sequence[Example],
    predictions: Sequence[str],
    hypotheses: Sequence[Sequence[Hypothesis]] | None = None,
) -> None:
    """Write one JSON object a line: source, references, prediction and the row's other columns.

    Args:
        path: the file.
        examples: the rows.
        predictions: one text per row.
        hypotheses: n-best lists; None leaves them out.
    """
    with path.open("w", encoding="utf-8") as file:
        for row, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
            line = {
                "source": example.source,
                "references": example.references,
                "prediction": prediction,
                "exact_match": prediction in example.references,
            }
            if example.columns:
                line["columns"] = example.columns
            if hypotheses is not None:
                line["n_best"] = [
                    {"text": h.text, "log_probability": h.log_probability, "score": h.score}
                    for h in hypotheses[row]
                ]
            file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")


def draw_alignments(
    path: Path,
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    *,
    num_items: int,
    num_beams: int,
) -> bool:
    """Draw the attention of the model on a few sources spread over the data.

    Args:
        path: the picture; a page to explore, .html, is written beside it.
        model: any encoder-decoder; one without attention is passed over with a message.
        tokenizer: of the model.
        sources: the sources to choose from.
        num_items: how many.
        num_beams: beams of the decoding that is drawn.

    Returns:
        Whether there is a picture.
    """
    chosen = [sources[place] for place in drawn_places(sources, num_items)]
    if not chosen:
        return False
    try:
        items = alignments(model, tokenizer, chosen, num_beams=num_beams, progress=False)
    except ValueError as reason:
        logger.info(f"{path.name} is not drawn: {reason}")
        return False
    show_alignments(path, items)
    return True


def drawn_places(sources: Sequence[str], num_items: int) -> list[int]:
    """Choose sources to draw, spread over the data; short ones where there are any.

    Args:
        sources: the sources to choose from.
        num_items: how many at the most.

    Returns:
        Their places.
    """
    short = [
        place for place, source in enumerate(sources) if 0 < len(source) <= LONGEST_DRAWN_SOURCE
    ]
    places = short or list(range(len(sources)))
    return places[:: max(len(places) // max(num_items, 1), 1)][:num_items]


def show_alignments(path: Path, items: Sequence[Alignment]) -> None:
    """Draw alignments as a picture and as a page to explore.

    Args:
        path: the picture; the page is its neighbour with the ending .html.
        items: at least one alignment.
    """
    plot_alignments(items, path)
    write_alignment_page(items, path.with_suffix(".html"))


def draw_learning_curve(
    path: Path, log_history: Sequence[dict[str, Any]], metric: str | None
) -> bool:
    """Draw losses and the metric over the steps of training.

    Args:
        path: the picture.
        log_history: of the Trainer; without a loss in it nothing is drawn.
        metric: name of the metric, with or without `eval_`.

    Returns:
        Whether there is a picture.
    """
    if not any("loss" in entry for entry in log_history):
        return False
    name = f"eval_{(metric or '').removeprefix('eval_')}"
    drawn = metric if any(name in entry for entry in log_history) else None
    plot_learning_curve(log_history, path, metric=drawn)
    return True


def machine() -> dict[str, str]:
    """Describe where the run ran: versions, processor, accelerator; no names of machines or users.

    Returns:
        Plain texts by name.
    """
    facts = {"python": platform.python_version()}
    for package in ("torch", "transformers", "tokenizers", "accelerate", "hf-seqmodels"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed as a package"
    facts["processor"] = (
        f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads used"
    )
    if torch.cuda.is_available():
        facts["accelerator"] = torch.cuda.get_device_name()
    return facts


def good_examples(
    sources: Sequence[str], texts: Sequence[str], examples: Sequence[Example]
) -> list[list[str]]:
    """Choose sources for the card: the first that are decoded rightly, or else the first.

    Args:
        sources: what the model reads.
        texts: what it makes of them.
        examples: the rows with their references.

    Returns:
        Pairs of a source and the model's text, NUM_EXAMPLES at most; all right or all wrong.
    """
    right = [row for row, text in enumerate(texts) if text in examples[row].references]
    rows = (right or list(range(len(texts))))[:NUM_EXAMPLES]
    return [[sources[row], texts[row]] for row in rows]


def name_on_hub(name: str | None) -> str | None:
    """Return the name of a model or a dataset that was loaded, if it came from the Hub.

    Args:
        name: that the user gave, or None.

    Returns:
        The name; None for a folder or a file.
    """
    return None if name is None or Path(name).exists() else name


def write_card(
    folder: Path, record: dict[str, Any], *, model: PreTrainedModel, tokenizer: Any
) -> None:
    """Write the model card beside the weights.

    Args:
        folder: of the model, saved already.
        record: the content of metrics.json.
        model: the model.
        tokenizer: of the model.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    card = render_card(
        model,
        tokenizer,
        name=record["name"],
        repo_id=record.get("repo_id"),
        place=record["place"],
        with_code="auto_map" in config,
        **facts_of_run(record),
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def shown_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a run as its report shows them.

    Args:
        given: what the user said, without defaults.

    Returns:
        The options, without access tokens and folders of the machine.
    """
    options = {name: value for name, value in given.items() if name not in NOT_IN_CARD}
    if "config_overrides" in options:
        options["config_overrides"] = read_overrides(options["config_overrides"])
    return without_folders(options)


def new_record(
    trainer: Trainer, given: Mapping[str, Any], argv: Sequence[str], *, script: str
) -> dict[str, Any]:
    """Return what is known about any run before it begins.

    Args:
        trainer: of the run.
        given: what the user said, without defaults.
        argv: the words after the script's name.
        script: its name.

    Returns:
        The first part of metrics.json, without access tokens and folders of the machine.
    """
    args, model = trainer.args, trainer.model
    repo_id = trainer.hub_model_id or args.hub_model_id if args.push_to_hub else None
    return {
        "name": (repo_id or args.hub_model_id or args.output_dir).rstrip("/").split("/")[-1],
        "repo_id": repo_id,
        "place": repo_id or without_folders(args.output_dir),
        "base_model": name_on_hub(given.get("model_name_or_path")),
        "dataset": name_on_hub(given.get("dataset_name")),
        "model_type": model.config.model_type,
        "num_parameters": model.num_parameters(),
        "seed": args.seed,
        "options": shown_options(given),
        "command": shell_command(f"python training/{script}", argv),
        "machine": machine(),
    }
