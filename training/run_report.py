"""What a run tells about itself: scores, predictions, pictures, metrics.json and the model card."""

import json
import logging
import os
import platform
import shlex
import string
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import yaml
from seq2seq_data import Example

from hf_seqmodels.analysis import plot_alignments, plot_learning_curve
from hf_seqmodels.evaluation import Hypothesis, alignments, load_metric

logger = logging.getLogger("run_seq2seq")

CARDS = Path(__file__).resolve().parent.parent / "hub_cards"
SECRETS = ("--token", "--hub_token", "__token", "__hub_token", "--hub-token")
IMPORT_LINE = "import hf_seqmodels  # registers the model and tokenizer classes\n\n"
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
        result = load_metric(name).compute(predictions=predictions, references=references)
        scores |= {key: float(result[key]) for key in (name, "item_error_rate") if key in result}
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
        path: the picture.
        model: any encoder-decoder; one without attention is passed over with a message.
        tokenizer: of the model.
        sources: the sources to choose from.
        num_items: how many.
        num_beams: beams of the decoding that is drawn.

    Returns:
        Whether there is a picture.
    """
    short = [source for source in sources if 0 < len(source) <= LONGEST_DRAWN_SOURCE] or list(
        sources
    )
    chosen = short[:: max(len(short) // max(num_items, 1), 1)][:num_items]
    if not chosen:
        return False
    try:
        items = alignments(model, tokenizer, chosen, num_beams=num_beams, progress=False)
    except ValueError as reason:
        logger.info(f"{path.name} is not drawn: {reason}")
        return False
    plot_alignments(items, path)
    return True


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


def good_example(
    sources: Sequence[str], texts: Sequence[str], examples: Sequence[Example]
) -> tuple[str, str]:
    """Choose a source for the card's snippet: the first that is decoded rightly, or else the first.

    Args:
        sources: what the model reads.
        texts: what it makes of them.
        examples: the rows with their references.

    Returns:
        A source and the model's text.
    """
    right = [row for row, text in enumerate(texts) if text in examples[row].references]
    row = right[0] if right else 0
    return sources[row], texts[row]


def needs_package(model: Any, tokenizer: Any) -> bool:
    """Tell whether loading this model or tokenizer takes `import hf_seqmodels` first.

    Args:
        model: the model.
        tokenizer: the tokenizer.

    Returns:
        True if one of the two classes is ours.
    """
    return any(type(thing).__module__.startswith("hf_seqmodels") for thing in (model, tokenizer))


def write_card(
    path: Path,
    record: dict[str, Any],
    *,
    model_config: Any,
    example: tuple[str, str],
    needs_package: bool,
) -> None:
    """Write the model card from the template in hub_cards/.

    Args:
        path: the README.md to write.
        record: the content of metrics.json.
        model_config: configuration of the model.
        example: a source and what the model makes of it, for the snippet.
        needs_package: whether the snippet imports hf_seqmodels first.
    """
    family = CARDS / f"{model_config.model_type}.md"
    slots = {
        "metadata": yaml.safe_dump(
            _card_metadata(record, model_config), sort_keys=False, allow_unicode=True
        ),
        "name": record["name"],
        "architecture": (model_config.architectures or [model_config.model_type])[0],
        "parameters": f"{record['num_parameters']:,}",
        "family": (family if family.exists() else CARDS / "other.md")
        .read_text(encoding="utf-8")
        .strip(),
        "data": _table(["part", "rows", "from", "sha256"], _data_rows(record["data"])),
        "scores": _table(*_score_table(record)),
        "decoding": ", ".join(f"{name} {value}" for name, value in record["decoding"].items()),
        "source": repr(example[0]),
        "prediction": repr(example[1]),
        "place": record["place"],
        "import_line": IMPORT_LINE * needs_package,
        "command": record["command"],
        "options": yaml.safe_dump(record["options"], allow_unicode=True, width=100).strip(),
        "config": json.dumps(
            model_config.to_diff_dict(), indent=2, ensure_ascii=False, default=str
        ),
        "training": ", ".join(f"{name} {value}" for name, value in record.get("train", {}).items()),
        "environment": "\n".join(f"- {name}: {value}" for name, value in record["machine"].items()),
    }
    template = string.Template((CARDS / "card.md").read_text(encoding="utf-8"))
    path.write_text(template.substitute(slots), encoding="utf-8")


def _card_metadata(record: dict[str, Any], model_config: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "library_name": "transformers",
        "tags": ["hf_seqmodels", "seq2seq", model_config.model_type],
    }
    part = next((part for part in ("test", "validation") if record.get(part)), None)
    if part is None:
        return metadata
    results = [
        {"type": name, "value": round(value, 4), "name": name}
        for name, value in _numbers(record[part]).items()
    ]
    result = {
        "task": {"type": "seq2seq-generation"},
        "dataset": {"name": record["data"][part]["name"], "type": "text-pairs"},
        "metrics": results,
    }
    return metadata | {"model-index": [{"name": record["name"], "results": [result]}]}


def _numbers(scores: dict[str, Any]) -> dict[str, float]:
    return {
        name: value
        for name, value in scores.items()
        if isinstance(value, float) and name != "seconds"
    }


def _data_rows(data: dict[str, dict[str, Any]]) -> list[list[str]]:
    return [
        [part, f"{facts['rows']:,}", facts["name"], facts.get("sha256", "")[:16]]
        for part, facts in data.items()
    ]


def _score_table(record: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    parts = [part for part in ("validation", "test") if record.get(part)]
    names = list(dict.fromkeys(name for part in parts for name in _numbers(record[part])))
    rows = [
        [name, *(f"{record[part].get(name, float('nan')):.2f}" for part in parts)] for name in names
    ]
    return ["score", *parts], rows


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def command_line(argv: Sequence[str]) -> str:
    """Write the command that ran, ready for a shell; access tokens are left out.

    Args:
        argv: the words after the script's name.

    Returns:
        One line.
    """
    words = []
    for before, word in zip(["", *argv], argv, strict=False):
        option, equals, _ = word.partition("=")
        secret = before.replace("-", "_") in SECRETS
        words.append(
            "***" if secret else word if option not in SECRETS or not equals else f"{option}=***"
        )
    return shlex.join(["python", "training/run_seq2seq.py", *words])
