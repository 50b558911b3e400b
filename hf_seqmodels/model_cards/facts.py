"""What a card may say about a model beyond the model itself."""

import dataclasses
import math
import numbers
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from hf_seqmodels.model_cards.privacy import (
    is_secret,
    publishable_command,
    without_folders,
    without_secrets,
)

LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*|code|multilingual")
LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
# facts that a record holds under their own names
RUN_FACTS = (
    *("license", "language", "dataset", "base_model", "data", "decoding", "examples"),
    *("command", "options", "alignment_picture", "files"),
)


@dataclass(frozen=True)
class CardFacts:
    """Facts about a model, all of them optional; what is not given is not in the card.

    Args:
        license: identifier that the Hub knows ("apache-2.0"); never guessed.
        language: ISO 639 codes ("bg", ["en", "de"]).
        dataset: names of the training data on the Hub, one or several.
        base_model: name on the Hub of the model that the training began with.
        pipeline_tag: task under which the Hub lists the model, "translation" for instance; None
            takes that of the model's head, where the Hub has one.
        tags: for the Hub, beside those every card has.
        metrics: {part of the data: {metric: value}}. Scores and error rates are percentages, loss
            is in nats per target token.
        signatures: {metric: how it was computed exactly}, as sacreBLEU says it.
        decoding: settings of generate() with which the metrics were computed.
        examples: pairs of an input and what the model makes of it with the settings of its
            generation_config; the first is in the code, all are shown on the Hub's page.
        data: {part: {"name": ..., "sha256": ..., and sizes such as "rows": ...}}, all optional.
        training: figures of the training: epochs, steps, minutes.
        command: that trained the model; access tokens are hidden, absolute paths shortened.
        options: of that command, as a mapping.
        environment: {library or device: version or description}.
        alignment_picture: file beside the card with a picture of alignments.
        files: {file beside the card: what it holds}.

    Raises:
        ValueError: if a value has not the form that the Hub demands.
    """

    license: str | None = None
    language: str | Sequence[str] | None = None
    dataset: str | Sequence[str] | None = None
    base_model: str | None = None
    pipeline_tag: str | None = None
    tags: Sequence[str] = ()
    metrics: Mapping[str, Mapping[str, float]] | None = None
    signatures: Mapping[str, str] | None = None
    decoding: Mapping[str, Any] | None = None
    examples: Sequence[Sequence[str]] | None = None
    data: Mapping[str, Mapping[str, Any]] | None = None
    training: Mapping[str, Any] | None = None
    command: str | None = None
    options: Mapping[str, Any] | None = None
    environment: Mapping[str, str] | None = None
    alignment_picture: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self):
        if self.license is not None and not LICENSE.fullmatch(self.license):
            raise ValueError(
                "license must be an identifier of the Hub such as 'apache-2.0', 'cc-by-4.0' or "
                f"'other', got {self.license!r}."
            )
        for code in as_list(self.language):
            if not LANGUAGE.fullmatch(code):
                raise ValueError(
                    f"language takes ISO 639 codes such as 'en' or 'bg', got {code!r}. "
                    "Several go into a list."
                )
        for option in ("dataset", "base_model"):
            for name in as_list(getattr(self, option)):
                _check_hub_name(option, name)
        for part, scores in (self.metrics or {}).items():
            if not isinstance(scores, Mapping):
                raise ValueError(
                    "metrics maps parts of the data to their scores, such as "
                    f"{{'test': {{'cer': 4.2}}}}, got {{{part!r}: {scores!r}}}."
                )
            for metric, value in scores.items():
                if isinstance(value, bool) or not isinstance(value, numbers.Real):
                    raise ValueError(f"metrics are plain numbers, got {metric}={value!r}.")
        for pair in self.examples or ():
            if isinstance(pair, str) or len(pair) != 2:
                raise ValueError(f"examples are pairs of an input and an output, got {pair!r}.")

    def given(self) -> dict[str, Any]:
        """Return the facts that are there, as arguments for `render_card`."""
        facts = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        return {name: value for name, value in facts.items() if value}

    def publishable(self) -> "CardFacts":
        """Return the same facts without access tokens and without folders of the machine."""
        facts = self.given()
        if self.options:
            facts["options"] = {
                name: value for name, value in self.options.items() if not is_secret(name)
            }
        for name in ("options", "data", "environment", "training", "files"):
            if name in facts:
                facts[name] = without_folders(facts[name])
        if self.command:
            facts["command"] = publishable_command(self.command)
        return CardFacts(**without_secrets(plain(facts)))


def facts_of_run(record: Mapping[str, Any]) -> dict[str, Any]:
    """Read facts from the metrics.json of a training script.

    Args:
        record: its content.

    Returns:
        Arguments for `render_card`, without those that the record says nothing of.
    """
    parts = {part: record[part] for part in ("test", "validation") if record.get(part)}
    facts = {name: record.get(name) for name in RUN_FACTS} | {
        "training": record.get("train"),
        "environment": record.get("machine"),
        "metrics": {
            part: {
                name: value
                for name, value in scores.items()
                if isinstance(value, float) and name != "seconds"
            }
            for part, scores in parts.items()
        },
        "signatures": {
            name: text
            for scores in parts.values()
            for name, text in scores.get("signatures", {}).items()
        },
    }
    return {name: value for name, value in facts.items() if value}


def as_list(value: str | Sequence[str] | None) -> list[str]:
    """Return one value, several or none as a list.

    Args:
        value: a text, a sequence of texts or None.

    Returns:
        A new list.
    """
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def plain(value: Any) -> Any:
    """Turn a value into what JSON has: numbers of other libraries into numbers, the rest into text.

    Args:
        value: any value, nested in mappings and sequences or not.

    Returns:
        Dictionaries, lists, texts, numbers, booleans and None.
    """
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else str(value)


def finite(scores: Mapping[str, float]) -> dict[str, float]:
    """Leave out what is not a number.

    Args:
        scores: by name.

    Returns:
        Plain floats.
    """
    return {name: float(value) for name, value in scores.items() if math.isfinite(value)}


def _check_hub_name(option: str, name: str) -> None:
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ValueError(
            f"{option} must be a name on the Hub, as 'user/name', got {name!r}. Leave it out for "
            "data and models that are not there."
        ) from error
