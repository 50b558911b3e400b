"""Error rate over words or characters."""

from typing import Any

from hf_seqmodels.evaluation.error_rates import Unit, error_rates
from hf_seqmodels.evaluation.text_metric import TextMetric


class ErrorRate(TextMetric):
    """Error rate over words or characters; see `inputs_text` for the options."""

    description_text = (
        "Error rate: edits (substitutions, deletions, insertions) per unit of the references, "
        "over the corpus. The metrics wer, cer and per are this one with a fixed unit and name."
    )
    inputs_text = """
Args:
    predictions: one text per item.
    references: one text per item, or a list of texts per item (their counts may differ). With
        several, the one with the fewest edits counts.
    unit: "word" (what blanks separate; default) or "character" (Unicode code point).
    lowercase: whether to compare in lower case. Default False.
    unicode_form: Unicode normal form to compare in ("NFC", ...), or None (default).

Returns:
    error_rate: 100 edits / units of the references, over the corpus. Above 100 if much is inserted.
    item_error_rate: share of items with any edit, 0 to 100.
    hits, substitutions, deletions, insertions: units by kind of edit.
    reference_length: units of the references that count.
    num_items: number of predictions.

Examples:
    >>> from hf_seqmodels.evaluation import load_metric
    >>> error_rate = load_metric("error_rate")
    >>> predictions, references = ["a b x d", "e"], ["a b c d", "e"]
    >>> result = error_rate.compute(predictions=predictions, references=references)
    >>> result["error_rate"], result["item_error_rate"]
    (20.0, 50.0)
"""
    citation_text = ""

    def _compute(
        self,
        *,
        predictions: list[str],
        references: list[list[str]],
        unit: Unit = "word",
        lowercase: bool = False,
        unicode_form: str | None = None,
    ) -> dict[str, Any]:
        return error_rates(
            predictions,
            references,
            unit=unit,
            rate_name="error_rate",
            lowercase=lowercase,
            unicode_form=unicode_form,
        )
