"""The sections of a card, each as Markdown; one that has nothing to say is empty."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import yaml
from transformers import PreTrainedModel

from hf_seqmodels.model_cards.facts import CardFacts, as_list
from hf_seqmodels.model_cards.heads import (
    IMPORT_LINE,
    PACKAGE,
    Head,
    Snippets,
    is_of_our_family,
    is_ours,
)
from hf_seqmodels.model_cards.markdown import code_span, fenced, one_line, table
from hf_seqmodels.model_cards.privacy import without_folders

MEANINGS = {
    "exact_match": "items that equal a reference, in % (higher is better)",
    "item_error_rate": "items with any error, in % (lower is better)",
    "cer": "wrong characters per 100 of the reference (lower is better)",
    "wer": "wrong words per 100 of the reference (lower is better)",
    "per": "wrong phones per 100 of the reference (lower is better)",
    "bleu": "BLEU as sacreBLEU computes it, 0 to 100 (higher is better)",
    "bleu_lowercase": "the same of texts in lower case, 0 to 100 (higher is better)",
    "chrf": "chrF as sacreBLEU computes it, 0 to 100 (higher is better)",
    "accuracy": "right answers, in % (higher is better)",
    "macro_f1": "F1 of each class, averaged, in % (higher is better)",
    "micro_f1": "F1 of all decisions together, in % (higher is better)",
    "f1": "F1, in % (higher is better)",
    "matthews": "Matthews correlation, -100 to 100 (higher is better)",
    "pearson": "linear correlation with the right values, -100 to 100 (higher is better)",
    "spearman": "correlation of the ranks, -100 to 100 (higher is better)",
    "mse": "mean squared error (lower is better)",
    "mae": "mean absolute error (lower is better)",
    "loss": "nats per target token, or per item (lower is better)",
    "perplexity": "exp of the loss per token (lower is better)",
    "bits_per_byte": "bits per byte of the text in UTF-8 (lower is better)",
    "bits_per_character": "bits per character of the text (lower is better)",
}
HIDDEN_SETTINGS = ("architectures", "auto_map", "custom_pipelines", "transformers_version")


def summary(model: PreTrainedModel, facts: CardFacts, head: Head) -> str:
    """Say in a few sentences what the model is.

    Args:
        model: the model.
        facts: about it.
        head: what it is for.

    Returns:
        One paragraph.
    """
    name = code_span(type(model).__name__)
    sentences = [f"{name} with {model.num_parameters():,} parameters.", head.purpose]
    if facts.language:
        sentences.append(f"Language: {', '.join(as_list(facts.language))}.")
    if facts.base_model:
        base = f"[{one_line(facts.base_model)}](https://huggingface.co/{facts.base_model})"
        sentences.append(f"It was fine-tuned from {base}.")
    return " ".join(sentences)


def use(snippets: Snippets, *, is_on_hub: bool, with_code: bool) -> str:
    """Show how to load and run the model.

    Args:
        snippets: the code.
        is_on_hub: whether the code loads by a name on the Hub, not from a folder.
        with_code: whether the code of the model is beside the weights.

    Returns:
        Paragraphs and blocks of code.
    """
    ours = is_ours(snippets.model, snippets.tokenizer)
    place = f"Below, {code_span(snippets.place)} stands for the folder that holds this card."
    parts = [] if is_on_hub else [place]
    if ours:
        parts.append(f"With the package {code_span(PACKAGE)} installed:")
    first_line = IMPORT_LINE if ours else ""
    parts.append(fenced("python", snippets.auto_classes(first_line=first_line)))
    has_pipeline = snippets.has_pipeline and (ours or not snippets.needs_our_pipeline)
    if has_pipeline:
        code = snippets.pipeline(first_line=first_line)
        parts += ["As a pipeline:", fenced("python", code)]
    if ours and not is_of_our_family(snippets.model):
        parts.append("It takes the package to load the tokenizer.")
    elif ours and not with_code:
        parts.append(
            "The folder holds no code, so it does not load without the package. "
            "`python -m hf_seqmodels.hub export` makes one that does."
        )
    elif ours:
        parts.append(
            "Without the package, transformers runs the code that lies beside the weights. Look at "
            "it first; `trust_remote_code=True` says that you have:"
        )
        parts.append(fenced("python", snippets.auto_classes(remote_code=True)))
        if has_pipeline:
            parts.append(fenced("python", snippets.pipeline(remote_code=True)))
    if snippets.head.writes:
        parts.append(_more_about_writing(snippets, ours))
    return "\n\n".join(parts)


def _more_about_writing(snippets: Snippets, ours: bool) -> str:
    text = (
        "`generate` begins with the settings in `generation_config.json`; what you pass, "
        "`num_beams=5` for instance, comes before them."
    )
    if ours and snippets.needs_our_pipeline:
        text += (
            " In the package, `hf_seqmodels.evaluation.n_best` lists the best outputs with their "
            "probabilities, and `hf_seqmodels.evaluation.alignments` shows where a model with "
            "attention looked."
        )
    return text


def scores(facts: CardFacts) -> str:
    """Show the metrics of every part of the data, and what each of them means.

    Args:
        facts: about the model.

    Returns:
        Settings of the decoding, a table, signatures, files with more.
    """
    parts = {part: found for part, found in (facts.metrics or {}).items() if found}
    if not parts:
        return ""
    names = list(dict.fromkeys(name for found in parts.values() for name in found))
    rows = [
        [
            code_span(name),
            *(f"{found[name]:.2f}" if name in found else "" for found in parts.values()),
            MEANINGS.get(name, ""),
        ]
        for name in names
    ]
    blocks = [table(["score", *map(one_line, parts), "meaning"], rows)]
    if facts.decoding:
        settings = ", ".join(code_span(f"{name}={value}") for name, value in facts.decoding.items())
        blocks.insert(0, f"Decoded with {settings}.")
    if facts.signatures:
        blocks.append(
            "\n".join(
                f"- {code_span(name)}: {code_span(text)}" for name, text in facts.signatures.items()
            )
        )
    if facts.files:
        files = [f"{code_span(name)} holds {one_line(text)}" for name, text in facts.files.items()]
        blocks.append(f"{', '.join(files)}.")
    return "\n\n".join(blocks)


def alignments(facts: CardFacts) -> str:
    """Show the picture of alignments.

    Args:
        facts: about the model.

    Returns:
        A sentence and the picture.
    """
    if not facts.alignment_picture:
        return ""
    target = quote(facts.alignment_picture)
    return (
        "Where the model looks in the source (columns) while it writes each token (rows); the "
        "darker, the more attention.\n\n"
        f"![Attention of the model on a few sources]({target})"
    )


def data(facts: CardFacts) -> str:
    """Say what the model was trained and measured on.

    Args:
        facts: about the model.

    Returns:
        Names on the Hub, a table of the parts.
    """
    blocks = []
    if names := as_list(facts.dataset):
        links = [f"[{one_line(name)}](https://huggingface.co/datasets/{name})" for name in names]
        blocks.append(f"On the Hub: {', '.join(links)}.")
    if facts.data:
        blocks.append(_data_table(facts.data))
    return "\n\n".join(blocks)


def _data_table(parts: Mapping[str, Mapping[str, Any]]) -> str:
    fields = [name for about in parts.values() for name in about]
    sizes = [name for name in dict.fromkeys(fields) if name not in ("name", "sha256")]
    rows = [
        [
            one_line(part),
            *(_number(about.get(size)) for size in sizes),
            one_line(about.get("name") or ""),
            code_span(about["sha256"][:16]) if about.get("sha256") else "",
        ]
        for part, about in parts.items()
    ]
    return table(["part", *map(one_line, sizes), "from", "sha256 begins with"], rows)


def training(facts: CardFacts) -> str:
    """Say how the model was trained.

    Args:
        facts: about the model.

    Returns:
        Figures, command, options and environment.
    """
    blocks = []
    if facts.training:
        known = {name: value for name, value in facts.training.items() if value is not None}
        names = [one_line(name.replace("_", " ")) for name in known]
        blocks.append(table(names, [[_number(value) for value in known.values()]]))
    if facts.command:
        blocks += ["The command:", fenced("bash", facts.command)]
    if facts.options:
        text = yaml.safe_dump(facts.options, allow_unicode=True, width=100)
        blocks += ["Its options, those of a recipe included:", fenced("yaml", text)]
    if environment := facts.environment:
        lines = [f"- {one_line(name)}: {one_line(value)}" for name, value in environment.items()]
        blocks += ["The environment:", "\n".join(lines)]
    return "\n\n".join(blocks)


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else one_line("" if value is None else value)


def configuration(model: PreTrainedModel) -> str:
    """Show the settings of the model.

    Args:
        model: the model.

    Returns:
        A block of JSON, without what says nothing of the model.
    """
    settings = {
        name: without_folders(value)
        for name, value in model.config.to_diff_dict().items()
        if name not in HIDDEN_SETTINGS and not name.startswith("_")
    }
    return fenced("json", json.dumps(settings, indent=2, ensure_ascii=False, default=str))
