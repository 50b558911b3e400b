"""The card that goes with an export: what somebody wrote by hand is never written over."""

import dataclasses
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_seqmodels.model_cards.facts import CardFacts, facts_of_run
from hf_seqmodels.model_cards.rendering import render_card
from hf_seqmodels.model_cards.seals import facts_in_card, is_generated

logger = logging.getLogger(__name__)

CARD_FILE = "README.md"
RUN_FILE = "metrics.json"
STATE_FILE = "trainer_state.json"
# what a run tells of every step of it
FACTS_OF_ALL_STEPS = (
    *("license", "language", "dataset", "base_model", "data", "command", "options", "environment"),
)
_PICTURE = re.compile(r"!\[[^\]\n]*\]\(\s*<?([^)\s>]+)")


def card_for_export(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    source: str | Path | None = None,
    name: str,
    repo_id: str | None = None,
    with_code: bool = True,
    **facts: Any,
) -> str:
    """Return the card that goes with an export.

    A README.md in the folder of origin that somebody wrote or edited, a draft of transformers' too,
    is kept to the letter, with a message. One of ours is written anew from the facts in it, so that
    its code fits the export. Without any card, the facts are those in the `metrics.json` of a
    training script or in the state of a Trainer.

    Args:
        model: the model.
        tokenizer: saved with it.
        source: the folder the model comes from; None knows of no earlier card.
        name: title of a new card.
        repo_id: name on the Hub, if the export goes there.
        with_code: whether the code of the model is beside the weights.
        **facts: fields of `CardFacts`; they come before those found in `source`.

    Returns:
        The text of README.md.

    Raises:
        ValueError: if a fact has not the form the Hub demands, or cannot get into the card since
            that is kept.
    """
    known: dict[str, Any] = {}
    if source is not None:
        card = Path(source) / CARD_FILE
        text = card.read_text(encoding="utf-8") if card.is_file() else None
        if text is not None and not is_generated(text):
            _check_nothing_is_asked(facts, source)
            logger.warning(
                f"{CARD_FILE} of {source} was written or edited by hand and is kept as it is. "
                "Remove it there to get a new one."
            )
            return text
        known = _known_facts(Path(source), text)
    known |= {name: value for name, value in facts.items() if value is not None}
    return render_card(model, tokenizer, name=name, repo_id=repo_id, with_code=with_code, **known)


def pictures_in(card: str) -> list[str]:
    """Find the pictures of a card that must lie beside it.

    Args:
        card: text of the card.

    Returns:
        Relative names of files, in the order of the card; pictures elsewhere on the web and paths
        that lead out of the folder are left out.
    """
    found = [unquote(name) for name in _PICTURE.findall(card)]
    beside = [
        name
        for name in found
        if "://" not in name and not Path(name).is_absolute() and ".." not in Path(name).parts
    ]
    return list(dict.fromkeys(beside))


def _check_nothing_is_asked(facts: dict[str, Any], source: str | Path) -> None:
    asked = [name for name, value in facts.items() if value is not None]
    if asked:
        raise ValueError(
            f"{CARD_FILE} of {source} was written or edited by hand and is kept as it is, so "
            f"{', '.join(asked)} cannot be put into it. Write that into the file yourself, or "
            "remove the file to get a new card."
        )


def _known_facts(folder: Path, card: str | None) -> dict[str, Any]:
    """Return the facts of an own card, or else of a run, that still hold in another folder."""
    facts = _facts_beside(folder) if card is None else facts_in_card(card) or {}
    names = {item.name for item in dataclasses.fields(CardFacts)} - {"files"}
    if not (folder / (facts.get("alignment_picture") or "")).is_file():
        names.remove("alignment_picture")
    return {name: value for name, value in facts.items() if name in names}


def _facts_beside(folder: Path) -> dict[str, Any]:
    """Return what files of a training script or a Trainer tell of the model in a folder."""
    if (folder / RUN_FILE).is_file():
        return _read(folder / RUN_FILE, facts_of_run)
    if not (folder / STATE_FILE).is_file():
        return {}
    facts = _read(folder / STATE_FILE, _facts_of_state)
    if (folder.parent / RUN_FILE).is_file():  # its scores and examples are those of another step
        run = _read(folder.parent / RUN_FILE, facts_of_run)
        facts |= {name: run[name] for name in FACTS_OF_ALL_STEPS if name in run}
    return facts


def _facts_of_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return what the state of a Trainer tells of its step; of scores, their scale is not known."""
    step = state["global_step"]
    entries = [entry for entry in state["log_history"] if entry.get("step") == step]
    losses = [entry["eval_loss"] for entry in entries if "eval_loss" in entry]
    facts: dict[str, Any] = {"training": {"epochs": state["epoch"], "steps": step}}
    return facts | ({"metrics": {"validation": {"loss": losses[-1]}}} if losses else {})


def _read(path: Path, facts_of: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    try:
        facts = facts_of(json.loads(path.read_text(encoding="utf-8")))
        CardFacts(**facts)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        logger.warning(f"{path} is passed over, since it is not as training writes it: {error!r}")
        return {}
    return facts
