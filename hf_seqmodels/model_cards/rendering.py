"""Writes model cards from the templates in hub_cards/."""

import json
import re
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCardData
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_seqmodels.model_cards.facts import CardFacts, as_list, finite
from hf_seqmodels.model_cards.heads import IMPORT_LINE, PACKAGE, Head, Snippets, head_of, is_ours
from hf_seqmodels.model_cards.markdown import code_span, fenced, one_line, table
from hf_seqmodels.model_cards.privacy import (
    is_secret,
    without_folders,
    without_folders_in_command,
    without_secrets,
)
from hf_seqmodels.model_cards.seals import sealed

MEANINGS = {
    "exact_match": "items that equal a reference, in % (higher is better)",
    "item_error_rate": "items with any error, in % (lower is better)",
    "cer": "wrong characters per 100 of the reference (lower is better)",
    "wer": "wrong words per 100 of the reference (lower is better)",
    "per": "wrong phones per 100 of the reference (lower is better)",
    "bleu": "BLEU as sacreBLEU computes it, 0 to 100 (higher is better)",
    "chrf": "chrF as sacreBLEU computes it, 0 to 100 (higher is better)",
    "accuracy": "right answers, in % (higher is better)",
    "loss": "nats per target token (lower is better)",
    "perplexity": "exp of the loss per token (lower is better)",
}
NOT_METRICS = ("loss",)  # in `metrics:` of the metadata, which names those of the Hub


def render_card(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    name: str,
    repo_id: str | None = None,
    place: str | None = None,
    with_code: bool = True,
    **facts: Any,
) -> str:
    """Write the card of a model: README.md of its folder, and of its page on the Hub.

    Args:
        model: any model that an Auto class loads; its own numbers and settings get into the card.
        tokenizer: that is saved with it; None writes code that takes token ids.
        name: title of the card, and name of the model in the index of results.
        repo_id: name on the Hub, "user/name", where the card goes there.
        place: what the code loads, if there is no `repo_id`: a relative folder, `name` by default.
        with_code: whether the files of the model classes are beside the weights, so that the model
            loads with trust_remote_code=True.
        **facts: fields of `CardFacts`.

    Returns:
        The whole text, metadata first. It ends with a seal, by which `is_generated` knows it.

    Raises:
        ValueError: if no Auto class loads the model, or a fact has not the form the Hub demands.
        TypeError: if `facts` names a field that CardFacts does not have.
    """
    known = CardFacts(**facts)
    head = head_of(model)
    place = repo_id or without_folders(place or name)
    source, output = known.examples[0] if known.examples else (None, None)
    snippets = Snippets(model, tokenizer, head, str(place), source, output)
    slots = {
        "metadata": card_data(model, known, head, name=name).to_yaml(),
        "name": one_line(name),
        "summary": _summary(model, known, head),
        "use": _use(snippets, is_on_hub=repo_id is not None, with_code=with_code),
        "family": family_text(model.config.model_type),
        "scores": _scores(known),
        "alignments": _alignments(known),
        "data": _data(known),
        "training": _training(known),
        "configuration": _configuration(model),
    }
    template = (cards_folder() / "card.md").read_text(encoding="utf-8")
    sections = re.split(r"(?m)^(?=## )", template)
    kept = [part for part in sections if any(slots[slot] for slot in _slots_in(part))]
    return sealed(without_secrets(string.Template("".join(kept)).substitute(slots)))


def cards_folder(package: Path = Path(__file__).parents[1]) -> Path:
    """Find the templates: inside an installed package, beside that of a checkout.

    Args:
        package: folder of the package.

    Returns:
        The folder hub_cards.

    Raises:
        FileNotFoundError: if it is in neither place.
    """
    places = (package / "hub_cards", package.parent / "hub_cards")
    for folder in places:
        if (folder / "card.md").is_file():
            return folder
    raise FileNotFoundError(
        f"The templates of model cards, card.md and others, must be in {places[0]} (an installed "
        f"package) or {places[1]} (a checkout), and are in neither. Install {PACKAGE} again."
    )


def family_text(model_type: str) -> str:
    """Return what the card says of a family: what it is, intended use, limits.

    Args:
        model_type: of the config.

    Returns:
        Markdown; a general text for families of transformers.
    """
    path = cards_folder() / f"{model_type}.md"
    path = path if path.is_file() else cards_folder() / "other.md"
    return path.read_text(encoding="utf-8").strip()


def card_data(model: PreTrainedModel, facts: CardFacts, head: Head, *, name: str) -> ModelCardData:
    """Return the metadata that the Hub reads.

    Args:
        model: the model.
        facts: about it.
        head: what it is for.
        name: of the model in the index of results.

    Returns:
        The metadata, with one result for each part of the data and metric.
    """
    metrics = {metric for scores in (facts.metrics or {}).values() for metric in finite(scores)}
    results = _results(facts, head)
    widget = [{"text": text, "output": {"text": output}} for text, output in facts.examples or ()]
    kind = ["seq2seq"] if head.auto_class == "AutoModelForSeq2SeqLM" else []
    return ModelCardData(
        model_name=" ".join(name.split()) if results else None,
        library_name="transformers",
        license=facts.license,
        language=facts.language
        if isinstance(facts.language, str)
        else as_list(facts.language) or None,
        pipeline_tag=facts.pipeline_tag or head.pipeline_tag,
        tags=[PACKAGE, *kind, model.config.model_type, *facts.tags],
        datasets=as_list(facts.dataset) or None,
        base_model=facts.base_model,
        metrics=sorted(metrics.difference(NOT_METRICS)) or None,
        eval_results=results or None,
        widget=widget or None,
    )


def _results(facts: CardFacts, head: Head) -> list[EvalResult]:
    datasets = as_list(facts.dataset)
    results = []
    for part, scores in (facts.metrics or {}).items():
        data_name = str((facts.data or {}).get(part, {}).get("name") or part)
        for metric, value in finite(scores).items():
            results.append(
                EvalResult(
                    task_type=facts.pipeline_tag or head.pipeline_tag or head.task,
                    dataset_type=datasets[0] if datasets else "text",
                    dataset_name=data_name,
                    dataset_split=part,
                    metric_type=metric,
                    metric_name=metric,
                    metric_value=round(value, 4),
                )
            )
    return results


def _slots_in(text: str) -> list[str]:
    return re.findall(r"\$\{(\w+)\}", text)


def _summary(model: PreTrainedModel, facts: CardFacts, head: Head) -> str:
    sentences = [
        f"{code_span(type(model).__name__)} with {model.num_parameters():,} parameters. "
        f"{head.purpose}"
    ]
    if facts.base_model:
        sentences.append(f"Its training began with {code_span(facts.base_model)}.")
    if facts.language:
        sentences.append(f"Language: {', '.join(as_list(facts.language))}.")
    return " ".join(sentences)


def _use(snippets: Snippets, *, is_on_hub: bool, with_code: bool) -> str:
    ours = is_ours(snippets.model, snippets.tokenizer)
    first_line = IMPORT_LINE if ours else ""
    parts = (
        [] if is_on_hub else [f"{code_span(snippets.place)} stands for the folder of this card."]
    )
    if ours:
        parts.append(f"With the package {code_span(PACKAGE)}:")
    parts.append(fenced("python", snippets.auto_classes(first_line=first_line)))
    if snippets.has_pipeline and (ours or snippets.head.task != "seq2seq-generation"):
        parts += [
            "The same as a pipeline:",
            fenced("python", snippets.pipeline(first_line=first_line)),
        ]
    if ours and with_code:
        parts.append(
            "Without the package: the code of the model is beside the weights, and "
            "`trust_remote_code=True` says that you have looked at it and let it run."
        )
        parts.append(fenced("python", snippets.auto_classes(remote_code=True)))
        if snippets.has_pipeline:
            parts.append(fenced("python", snippets.pipeline(remote_code=True)))
    elif ours:
        parts.append(
            "The folder holds no code, so it does not load without the package. "
            "`python -m hf_seqmodels.hub export` makes one that does."
        )
    if snippets.head.writes and snippets.tokenizer is not None:
        parts.append(_more_about_writing(snippets, ours))
    return "\n\n".join(parts)


def _more_about_writing(snippets: Snippets, ours: bool) -> str:
    text = (
        "`generate` takes its settings from `generation_config.json`; arguments such as "
        "`num_beams=5` come first."
    )
    if ours and snippets.head.auto_class == "AutoModelForSeq2SeqLM":
        text += (
            " The package has n-best lists with scores (`hf_seqmodels.evaluation.n_best`) and "
            "alignments (`hf_seqmodels.evaluation.alignments`)."
        )
    return text


def _scores(facts: CardFacts) -> str:
    parts = {part: scores for part, scores in (facts.metrics or {}).items() if scores}
    if not parts:
        return ""
    names = list(dict.fromkeys(name for scores in parts.values() for name in scores))
    rows = [
        [
            code_span(name),
            *(f"{scores[name]:.2f}" if name in scores else "" for scores in parts.values()),
            MEANINGS.get(name, ""),
        ]
        for name in names
    ]
    found = [table(["score", *map(one_line, parts), "meaning"], rows)]
    if facts.decoding:
        settings = ", ".join(f"{code_span(name)} {value}" for name, value in facts.decoding.items())
        found.insert(0, f"Decoded with {settings}.")
    found += [
        f"{code_span(name)}: {code_span(text)}" for name, text in (facts.signatures or {}).items()
    ]
    found += [f"{code_span(name)} holds {one_line(text)}." for name, text in facts.files.items()]
    return "\n\n".join(found)


def _alignments(facts: CardFacts) -> str:
    if not facts.alignment_picture:
        return ""
    target = facts.alignment_picture.replace(" ", "%20")
    return (
        "What the model looks at (columns: source) while it writes each token (rows: target); the "
        f"darker, the more attention.\n\n![alignments]({target})"
    )


def _data(facts: CardFacts) -> str:
    found = []
    if names := as_list(facts.dataset):
        links = [f"[{one_line(name)}](https://huggingface.co/datasets/{name})" for name in names]
        found.append(f"On the Hub: {', '.join(links)}.")
    if facts.data:
        rows = [
            [
                one_line(part),
                f"{about['rows']:,}" if "rows" in about else "",
                one_line(without_folders(str(about.get("name", "")))),
                code_span(about["sha256"][:16]) if about.get("sha256") else "",
            ]
            for part, about in facts.data.items()
        ]
        found.append(table(["part", "rows", "from", "sha256 begins"], rows))
    return "\n\n".join(found)


def _training(facts: CardFacts) -> str:
    found = []
    if facts.training:
        found.append(
            ", ".join(
                f"{one_line(name)} {_number(value)}" for name, value in facts.training.items()
            )
        )
    if facts.command:
        found += ["Command:", fenced("bash", without_folders_in_command(facts.command))]
    if facts.options:
        options = {
            name: without_folders(value)
            for name, value in facts.options.items()
            if not is_secret(name)
        }
        text = yaml.safe_dump(options, allow_unicode=True, width=100)
        found += ["Options that differ from their defaults:", fenced("yaml", text)]
    if facts.environment:
        lines = [
            f"- {one_line(key)}: {one_line(value)}" for key, value in facts.environment.items()
        ]
        found += ["Environment:", "\n".join(lines)]
    return "\n\n".join(found)


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else one_line(value)


def _configuration(model: PreTrainedModel) -> str:
    hidden = ("auto_map", "custom_pipelines", "transformers_version")
    settings: Mapping[str, Any] = {
        name: without_folders(value)
        for name, value in model.config.to_diff_dict().items()
        if name not in hidden and not name.startswith("_")
    }
    return fenced("json", json.dumps(settings, indent=2, ensure_ascii=False, default=str))
