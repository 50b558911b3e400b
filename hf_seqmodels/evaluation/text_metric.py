"""What the metrics of the package share: the shape of their inputs and the checks on them."""

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import datasets
import evaluate

UNICODE_FORMS = ("NFC", "NFD", "NFKC", "NFKD")


class TextMetric(evaluate.Metric, ABC):
    """A corpus metric over texts, with one or several references per prediction.

    A subclass gives the three texts below and `_compute`. The class is abstract, so that
    `evaluate`, which takes the first concrete metric it finds in a script, never takes this one.
    """

    description_text: str
    inputs_text: str
    citation_text: str

    @abstractmethod
    def _compute(self, *, predictions: list[str], references: list[list[str]], **options: Any):
        """Return the scores of the whole corpus by name."""

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=self.description_text,
            citation=self.citation_text,
            inputs_description=self.inputs_text,
            features=[
                datasets.Features({"predictions": text, "references": datasets.List(text)}),
                datasets.Features({"predictions": text, "references": text}),
            ],
        )

    def _build_data_dir(self) -> str:
        # Kept in memory nothing is written, so nothing need be writable.
        return self._data_dir_root if self.keep_in_memory else super()._build_data_dir()

    def compute(
        self,
        *,
        predictions: Sequence[str] | None = None,
        references: Sequence[str | Sequence[str]] | None = None,
        **options: Any,
    ) -> dict[str, Any] | None:
        """Score a corpus: the texts given here and those added before.

        Args:
            predictions: one text per item.
            references: one text, or a list of at least one, per item.
            **options: options of the metric.

        Returns:
            The scores by name; None in every process but the first when spread over processes.

        Raises:
            ValueError: if there is nothing to score, or the texts do not fit together.
        """
        if predictions is None and self.writer is None:
            raise ValueError(
                "compute() needs at least one prediction with its reference, got none. Pass "
                "predictions= and references=, or call add() or add_batch() first."
            )
        if predictions is not None and len(predictions) == 0 and self.writer is None:
            raise ValueError(
                "predictions must hold at least one text, got an empty list. "
                "Check the file or the split that is scored."
            )
        return super().compute(predictions=predictions, references=references, **options)

    def add_batch(
        self,
        *,
        predictions: Sequence[str] | None = None,
        references: Sequence[str | Sequence[str]] | None = None,
        **inputs: Any,
    ) -> None:
        """Add texts to be scored by the next call of compute().

        Args:
            predictions: one text per item.
            references: one text, or a list of at least one, per item.
            **inputs: refused by `evaluate`; it takes part in its signature.

        Raises:
            ValueError: if the texts do not fit together.
        """
        predictions, references = check_texts(predictions, references)
        if predictions:
            super().add_batch(predictions=predictions, references=references, **inputs)

    def add(
        self,
        *,
        prediction: Any = None,
        reference: Any = None,
        **inputs: Any,
    ) -> None:
        """Add one text to be scored by the next call of compute().

        Args:
            prediction: the text.
            reference: its reference, or a list of at least one.
            **inputs: refused by `evaluate`; it takes part in its signature.

        Raises:
            ValueError: if the texts do not fit together.
        """
        self.add_batch(predictions=[prediction], references=[reference], **inputs)


def check_texts(
    predictions: Iterable[str] | None, references: Iterable[str | Sequence[str]] | None
) -> tuple[list[str], list[list[str]]]:
    """Return predictions and references as lists, with a list of references for every prediction.

    Args:
        predictions: one text per item.
        references: one text, or a sequence of at least one text, per item.

    Returns:
        The predictions, and a list of references for each.

    Raises:
        ValueError: if one of the two is missing, their counts differ, an item has no reference, or
            something is not a text.
    """
    for name, texts in (("predictions", predictions), ("references", references)):
        if texts is None or isinstance(texts, str):
            raise ValueError(
                f"{name} must be a list with one entry per item, got {texts!r}. "
                f"Pass a list, also for a single item: {name}=[...]."
            )
    predictions = list(predictions or [])
    reference_lists = [[item] if isinstance(item, str) else item for item in references or []]
    if len(predictions) != len(reference_lists):
        raise ValueError(
            "predictions and references must have the same count, got "
            f"{len(predictions)} and {len(reference_lists)}. Several references of one item belong "
            "in one inner list: references=[['first', 'second'], ...]."
        )
    for index, item in enumerate(zip(predictions, reference_lists, strict=True)):
        _check_item(index, *item)
    return predictions, [list(item) for item in reference_lists]


def _check_item(index: int, prediction: Any, references: Any) -> None:
    """Refuse an item that is not a text with at least one reference text."""
    if not isinstance(prediction, str):
        raise ValueError(
            f"predictions must be texts, got {prediction!r} ({type(prediction).__name__}) at item "
            f"{index}. Decode the token ids first: tokenizer.batch_decode(ids, "
            "skip_special_tokens=True)."
        )
    texts = list(references) if isinstance(references, Iterable) else None
    if texts is None or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"references must be texts or lists of texts, got {references!r} at item {index}. "
            "Write one text, or a list of texts, per prediction."
        )
    if not texts:
        raise ValueError(
            f"every item needs at least one reference, got an empty list at item {index}. "
            "Leave the item out, or give the empty text '' where nothing is to be said."
        )


def normalize_text(text: str, *, lowercase: bool = False, unicode_form: str | None = None) -> str:
    """Return the text in lower case and in a Unicode normal form, where asked for.

    Args:
        text: the text.
        lowercase: whether to lower the case.
        unicode_form: "NFC", "NFD", "NFKC", "NFKD", or None to leave the code points as they are.

    Returns:
        The changed text.

    Raises:
        ValueError: if the normal form is unknown.
    """
    if unicode_form is not None:
        if unicode_form not in UNICODE_FORMS:
            raise ValueError(
                f"unicode_form must be one of {', '.join(UNICODE_FORMS)} or None, "
                f"got {unicode_form!r}."
            )
        text = unicodedata.normalize(unicode_form, text)  # type: ignore[arg-type]
    return text.lower() if lowercase else text


def reference_streams(references: Sequence[Sequence[str]]) -> list[Any]:
    """Turn references per item into sacrebleu's streams: the first of every item, the second, ...

    Args:
        references: at least one text per item.

    Returns:
        As many streams as the longest list has texts; None where an item has fewer.
    """
    num_streams = max(len(texts) for texts in references)
    padded = [[*texts, *[None] * (num_streams - len(texts))] for texts in references]
    return [list(stream) for stream in zip(*padded, strict=True)]
