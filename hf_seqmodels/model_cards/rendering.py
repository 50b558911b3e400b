"""Writes model cards from the templates in hub_cards/."""

import re
import string
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_seqmodels.model_cards import sections
from hf_seqmodels.model_cards.facts import CardFacts, as_list, finite
from hf_seqmodels.model_cards.heads import PACKAGE, Head, Snippets, head_of
from hf_seqmodels.model_cards.markdown import one_line
from hf_seqmodels.model_cards.privacy import without_folders, without_secrets
from hf_seqmodels.model_cards.seals import sealed

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
    known = CardFacts(**facts).publishable()
    head = head_of(model)
    place = repo_id or without_folders(place or name)
    source, output = known.examples[0] if known.examples else (None, None)
    snippets = Snippets(model, tokenizer, head, str(place), source, output)
    slots = {
        "metadata": card_data(model, known, head, name=name).to_yaml(),
        "name": one_line(name),
        "summary": sections.summary(model, known, head),
        "use": sections.use(snippets, is_on_hub=repo_id is not None, with_code=with_code),
        "family": family_text(model.config.model_type),
        "scores": sections.scores(known),
        "alignments": sections.alignments(known),
        "data": sections.data(known),
        "training": sections.training(known),
        "configuration": sections.configuration(model),
    }
    template = (cards_folder() / "card.md").read_text(encoding="utf-8")
    parts = re.split(r"(?m)^(?=## )", template)  # one without any content is left out
    kept = [part for part in parts if any(slots[slot] for slot in _slots_in(part))]
    card = without_secrets(string.Template("".join(kept)).substitute(slots))
    return sealed(card.encode("utf-8", "replace").decode("utf-8"), known.given())


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
        language=as_list(facts.language) or None,
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
