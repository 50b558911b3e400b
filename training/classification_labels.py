"""Labels of classification: read from rows, numbered, or values of a regression."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from finetune_data import Corpus, Part, listed
from transformers import PreTrainedConfig

SINGLE, MULTI = "single_label_classification", "multi_label_classification"
REGRESSION = "regression"
UNKNOWN_SHOWN = 5  # in a message


@dataclass
class Labels:
    """What the label column holds.

    Args:
        problem_type: SINGLE, MULTI or REGRESSION, as configurations call it.
        names: of the classes in the order of their ids; of a regression, the one of its value.
    """

    problem_type: str
    names: list[str]

    def config_values(self) -> dict[str, Any]:
        """Return the fields of a model's configuration."""
        return {
            "id2label": dict(enumerate(self.names)),
            "label2id": {name: index for index, name in enumerate(self.names)},
            "problem_type": self.problem_type,
        }


@dataclass
class LabelReader:
    """Reads the labels of rows.

    Args:
        column: that holds them.
        separator: what stands between several labels of a row in one text; None for one label, or
            lists.
        do_regression: whether the column holds values; None means if a row holds a number with a
            fraction.
        label_list: the classes; None takes those of the data.
    """

    column: str
    separator: str | None = None
    do_regression: bool | None = None
    label_list: Sequence[str] | None = None

    def value(self, part: Part, row: int) -> Any:
        """Return the label of a row with names for classes.

        Args:
            part: the rows.
            row: its number.

        Returns:
            A name, a list of names, or a float.

        Raises:
            ValueError: if there is none, with the place of the row.
        """
        value = part.rows[row].get(self.column)
        if value is None:
            raise ValueError(
                f"{part.places[row]}: every row needs a label in the column {self.column!r}, this "
                "one has none. Complete the row or leave it out."
            )
        if self.separator is not None and isinstance(value, str):
            value = [name.strip() for name in value.split(self.separator) if name.strip()]
        if isinstance(value, float) and not value.is_integer() and self.do_regression is False:
            raise ValueError(
                f"{part.places[row]}: a class must be a text or a whole number, got {value!r} in "
                f"{self.column!r}. Leave out do_regression false to predict values."
            )
        feature = (part.features or {}).get(self.column)
        return self._named(value, getattr(feature, "feature", feature))

    def _named(self, value: Any, feature: Any) -> Any:
        if isinstance(value, list):
            return [self._named(item, feature) for item in value]
        names = getattr(feature, "names", None)  # of a ClassLabel
        if names is not None and isinstance(value, int) and 0 <= value < len(names):
            return names[value]
        return value if isinstance(value, float) else str(value)

    def all_values(self, part: Part) -> list[Any]:
        """Return the labels of all rows.

        Args:
            part: the rows.

        Returns:
            See `value`.
        """
        return [self.value(part, row) for row in range(len(part))]

    def is_unlabelled(self, part: Part) -> bool:
        """Tell whether a part has no labels at all, which is fine for a test.

        Args:
            part: the rows.

        Returns:
            True if the column is missing, or empty, or -1 (as in GLUE) in every row.
        """
        return all(row.get(self.column) in (None, -1) for row in part.rows)


def decide_labels(reader: LabelReader, corpus: Corpus, stored: PreTrainedConfig | None) -> Labels:
    """Decide what is predicted: which classes, or values.

    A checkpoint keeps its classes and their order, if there are no training rows or they have the
    same classes. `label_list` comes before the data.

    Args:
        reader: of the labels.
        corpus: the data.
        stored: configuration of the checkpoint that the run goes on from, if any.

    Returns:
        The labels.

    Raises:
        ValueError: if the data has fewer than two classes, or mixes kinds of labels.
    """
    known = _stored_labels(stored)
    if "train" not in corpus and known is not None:
        return known
    part = next(
        (part for part in corpus.values() if not reader.is_unlabelled(part)),
        next(iter(corpus.values())),
    )
    values = reader.all_values(part)
    if reader.do_regression or (
        reader.do_regression is None and _are_values(values) and reader.label_list is None
    ):
        return Labels(REGRESSION, [reader.column])
    several = [isinstance(value, list) for value in values]
    if any(several) and not all(several):
        row = several.index(not several[0])
        raise ValueError(
            f"{part.places[row]}: either all rows have a list of labels or none, but "
            f"{reader.column!r} holds {values[row]!r} here and {values[0]!r} in the first row. "
            'Write ["label"] for one label.'
        )
    problem_type = MULTI if several[0] else SINGLE
    names = reader.label_list or _sorted_names(part, values, reader.column)
    names = [str(name) for name in names]
    _check_names(names, reader, problem_type)
    if known is not None and reader.label_list is None and set(known.names) == set(names):
        names = known.names
    return Labels(problem_type, names)


def _are_values(values: Iterable[Any]) -> bool:
    return any(isinstance(value, float) and not value.is_integer() for value in values)


def _stored_labels(stored: PreTrainedConfig | None) -> Labels | None:
    """Return the labels of a checkpoint that was trained to classify, None for any other."""
    if stored is None:
        return None
    names = [stored.id2label[index] for index in range(len(stored.id2label))]
    is_default = names == [f"LABEL_{index}" for index in range(len(names))]
    is_classifier = any(
        name.endswith("ForSequenceClassification") for name in stored.architectures or ()
    )
    if not is_classifier or (is_default and stored.problem_type is None):
        return None
    return Labels(stored.problem_type or SINGLE, names)


def _sorted_names(part: Part, values: Iterable[Any], column: str) -> list[str]:
    flat = {name for value in values for name in (value if isinstance(value, list) else [value])}
    floats = [value for value in flat if isinstance(value, float)]
    if any(not value.is_integer() for value in floats):
        raise ValueError(
            f"{part.origin['name']}: classes must be texts or whole numbers, got {floats[0]!r} in "
            f"{column!r}. Leave out do_regression false and label_list to predict values."
        )
    names = {str(int(name)) if isinstance(name, float) else name for name in flat}
    return sorted(names, key=_number_first)


def _number_first(name: str) -> tuple[float, str]:
    try:
        return float(name), name
    except ValueError:
        return math.inf, name


def _check_names(names: Sequence[str], reader: LabelReader, problem_type: str) -> None:
    if len(set(names)) != len(names):
        raise ValueError(f"label_list must name every label once, got {listed(names)}.")
    if len(names) < 2 and problem_type == SINGLE:
        raise ValueError(
            "classification needs at least two labels, but the column "
            f"{reader.column!r} holds only {listed(names)}. Name another column with "
            "--label_column_name, all classes with --label_list, or pass --do_regression for "
            "values."
        )
    if not names:
        raise ValueError(
            f"no row has a label in the column {reader.column!r}. Name another column with "
            "--label_column_name, or all classes with --label_list."
        )


def encode_labels(reader: LabelReader, labels: Labels, part: Part) -> list[Any]:
    """Turn the labels of a part into numbers.

    Args:
        reader: of the labels.
        labels: what is predicted.
        part: the rows.

    Returns:
        For each row an id, a list of zeros and ones for the classes, or a value.

    Raises:
        ValueError: if a row has a label that is not among them, or no value.
    """
    values = reader.all_values(part)
    if labels.problem_type == REGRESSION:
        return [_as_float(value, place) for value, place in zip(values, part.places, strict=True)]
    ids = {name: index for index, name in enumerate(labels.names)}
    encoded, unknown = [], {}
    for value, place in zip(values, part.places, strict=True):
        names = value if isinstance(value, list) else [value]
        names = [str(int(name)) if isinstance(name, float) else name for name in names]
        for name in names:
            if name not in ids:
                unknown.setdefault(name, []).append(place)
        if labels.problem_type == MULTI:
            encoded.append([float(name in names) for name in labels.names])
        elif isinstance(value, list):
            raise ValueError(
                f"{place}: a row must have one label, as in the training rows, got {value!r}. "
                "Check --label_column_name."
            )
        else:
            encoded.append(ids.get(names[0]))
    if unknown:
        shown = [f"{name!r} ({len(at)} rows, first {at[0]})" for name, at in unknown.items()]
        raise ValueError(
            f"the {part.name} rows have labels that are not among the {len(ids)} known ones: "
            f"{', '.join(shown[:UNKNOWN_SHOWN])}. Known are {listed(labels.names[:20])}. Correct "
            "or remove these rows, or name all labels with --label_list."
        )
    return encoded


def _as_float(value: Any, place: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(
            f"{place}: regression needs a finite number in the label column, got {value!r}. "
            "Correct the row, or leave out do_regression to predict classes."
        )
    return number
