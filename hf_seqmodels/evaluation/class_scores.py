"""Figures for classes, sets of classes and values; scikit-learn and SciPy compute them.

All but errors of regression are percentages: a share or an F1 lies between 0 and 100, a correlation
between -100 and 100.
"""

import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

SINGLE_LABEL_SCORES = ("accuracy", "macro_f1", "micro_f1", "matthews")
BINARY_SCORES = (*SINGLE_LABEL_SCORES, "f1")
MULTI_LABEL_SCORES = ("micro_f1", "macro_f1", "accuracy")
REGRESSION_SCORES = ("pearson", "spearman", "mse", "mae")


def single_label_scores(
    references: Sequence[int] | np.ndarray, predictions: Sequence[int] | np.ndarray, *, classes: int
) -> dict[str, float]:
    """Score one class for each item.

    | name | what it is |
    |---|---|
    | accuracy | share of right predictions |
    | macro_f1 | F1 of each class that occurs or is predicted, averaged |
    | micro_f1 | F1 of all decisions together, here the same as accuracy |
    | matthews | Matthews correlation; 0 where it is undefined |
    | f1 | F1 of class 1, where there are two classes |

    Args:
        references: right classes, (N,).
        predictions: predicted ones, (N,).
        classes: how many there are.

    Returns:
        The figures by name.

    Raises:
        ValueError: if there are no items, or not as many predictions as references.
        ImportError: if scikit-learn is not installed.
    """
    metrics = _sklearn_metrics()
    references, predictions = _checked(references, predictions)
    scores = {
        "accuracy": metrics.accuracy_score(references, predictions),
        "macro_f1": metrics.f1_score(references, predictions, average="macro", zero_division=0),
        "micro_f1": metrics.f1_score(references, predictions, average="micro", zero_division=0),
    }
    with warnings.catch_warnings():  # of a single class: its 0 is what we promise
        warnings.filterwarnings("ignore", "A single label was found", UserWarning)
        scores["matthews"] = metrics.matthews_corrcoef(references, predictions)
    if classes == 2:
        scores["f1"] = metrics.f1_score(
            references, predictions, average="binary", pos_label=1, zero_division=0
        )
    return {name: 100 * float(value) for name, value in scores.items()}


def multi_label_scores(references: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Score a set of classes for each item.

    | name | what it is |
    |---|---|
    | micro_f1 | F1 of all decisions together |
    | macro_f1 | F1 of each class, averaged; 0 for a class that neither occurs nor is predicted |
    | accuracy | share of items whose whole set is right |

    Args:
        references: 1 for each class of an item, 0 for the others, (N, C).
        predictions: the same, (N, C).

    Returns:
        The figures by name.

    Raises:
        ValueError: if there are no items, or the shapes differ.
        ImportError: if scikit-learn is not installed.
    """
    metrics = _sklearn_metrics()
    references, predictions = _checked(references, predictions)
    return {
        "micro_f1": 100
        * float(metrics.f1_score(references, predictions, average="micro", zero_division=0)),
        "macro_f1": 100
        * float(metrics.f1_score(references, predictions, average="macro", zero_division=0)),
        "accuracy": 100 * float(metrics.accuracy_score(references, predictions)),
    }


def regression_scores(
    references: Sequence[float] | np.ndarray, predictions: Sequence[float] | np.ndarray
) -> dict[str, float]:
    """Score one value for each item.

    | name | what it is |
    |---|---|
    | pearson | linear correlation; 0 where it is undefined |
    | spearman | correlation of the ranks; 0 where it is undefined |
    | mse | mean squared error, in the unit of the values, squared |
    | mae | mean absolute error, in the unit of the values |

    Args:
        references: right values, (N,).
        predictions: predicted ones, (N,).

    Returns:
        The figures by name.

    Raises:
        ValueError: if there are no items, or not as many predictions as references.
        ImportError: if scikit-learn is not installed.
    """
    metrics = _sklearn_metrics()
    stats: Any = import_module("scipy.stats")  # comes with scikit-learn; its results are untyped
    references, predictions = _checked(references, predictions)
    scores = {"pearson": 0.0, "spearman": 0.0}
    if len(references) > 1 and np.ptp(references) > 0 and np.ptp(predictions) > 0:
        scores["pearson"] = 100 * float(stats.pearsonr(references, predictions).statistic)
        scores["spearman"] = 100 * float(stats.spearmanr(references, predictions).statistic)
    return scores | {
        "mse": float(metrics.mean_squared_error(references, predictions)),
        "mae": float(metrics.mean_absolute_error(references, predictions)),
    }


def confusions(
    references: Sequence[int] | np.ndarray, predictions: Sequence[int] | np.ndarray, *, classes: int
) -> list[list[int]]:
    """Count which class was taken for which.

    Args:
        references: right classes, (N,).
        predictions: predicted ones, (N,).
        classes: how many there are.

    Returns:
        A row for each right class, in it a count for each predicted one, (C, C).

    Raises:
        ValueError: if there are no items, or not as many predictions as references.
        ImportError: if scikit-learn is not installed.
    """
    references, predictions = _checked(references, predictions)
    table = _sklearn_metrics().confusion_matrix(
        references, predictions, labels=list(range(classes))
    )
    return [[int(count) for count in row] for row in table]


def _checked(references: Any, predictions: Any) -> tuple[np.ndarray, np.ndarray]:
    references, predictions = np.asarray(references), np.asarray(predictions)
    if references.shape != predictions.shape or not len(references):
        raise ValueError(
            "references and predictions must be as many, and at least one, got shapes "
            f"{references.shape} and {predictions.shape}. Pass one prediction for each item."
        )
    return references, predictions


def _sklearn_metrics() -> Any:
    try:
        from sklearn import metrics
    except ImportError as error:
        raise ImportError(
            "these figures need scikit-learn, which is not installed. Install it with: "
            "pip install 'hf-seqmodels[train]'"
        ) from error
    return metrics
