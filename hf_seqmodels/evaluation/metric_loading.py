"""Find and load the metrics of the package; nothing here touches a network or a hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import evaluate

TEXT_METRICS = ("bleu", "chrf", "exact_match", "error_rate", "wer", "cer", "per", "squad")
METRIC_NAMES = (*TEXT_METRICS, "entity_f1")


def metric_path(name: str) -> Path:
    """Return the folder of a metric, to be given to `evaluate.load(str(path))`.

    `evaluate` copies the script from there into its own cache (`HF_MODULES_CACHE`), so the folder
    may be read-only; `load_metric` gives the same metric without that copy.

    Args:
        name: one of `METRIC_NAMES`.

    Returns:
        The folder that holds `<name>.py`.

    Raises:
        ValueError: if there is no metric of that name.
    """
    if name not in METRIC_NAMES:
        raise ValueError(
            f"name must be one of {', '.join(METRIC_NAMES)}, got {name!r}. "
            "For a metric of the hub use evaluate.load(name)."
        )
    return Path(__file__).parent / "metrics" / name


def load_metric(name: str, **module_kwargs: Any) -> "evaluate.Metric":
    """Return a metric of the package as an `evaluate` module.

    The class is imported from the installed package, without a copy in a cache, and the texts are
    held in memory, so that any number of processes may score at once. All scores are percentages
    (0 to 100). References are one text per prediction, or a list of at least one; for
    entity_f1, predictions and references are lists of tags.

    | name | score | result key |
    |---|---|---|
    | bleu | corpus BLEU of sacrebleu | bleu |
    | chrf | corpus chrF of sacrebleu (chrF++ with word_order=2) | chrf |
    | exact_match | share of predictions equal to a reference | exact_match |
    | error_rate | edits per reference unit; `unit="word"` or `"character"` | error_rate |
    | wer, cer, per | the same for words, characters, phones (separated by blanks) | wer, cer, per |
    | squad | exact match and F1 of answers, as SQuAD 1.1 and 2.0 define them | exact_match, f1 |
    | entity_f1 | F1 of named entities, with a table by type | f1 |

    The error rates also give `item_error_rate`, the share of items with any error: where an item is
    one word to be pronounced, that is what papers on grapheme-to-phoneme conversion call "WER".

    Args:
        name: one of `METRIC_NAMES`.
        **module_kwargs: passed to the `evaluate.Metric`, for instance `num_process`, `process_id`,
            `experiment_id` and `cache_dir` for a corpus spread over processes.

    Returns:
        The metric; call `.compute(predictions=..., references=...)`.

    Raises:
        ValueError: if there is no metric of that name.
        ImportError: if a library that the metric stands on is not installed.
    """
    metric_path(name)  # refuses unknown names
    try:
        from evaluate.loading import import_main_class

        metric_class: Any = import_main_class(f"hf_seqmodels.evaluation.metrics.{name}.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("hf_seqmodels"):
            raise
        raise ImportError(
            f"The metric {name!r} needs {error.name}, which is not installed. "
            "Install it with: pip install 'hf_seqmodels[train]'"
        ) from error
    module_kwargs.setdefault("keep_in_memory", module_kwargs.get("num_process", 1) == 1)
    return metric_class(**module_kwargs)
