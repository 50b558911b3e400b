"""Character error rate."""

from typing import Any

from hf_seqmodels.evaluation.error_rates import error_rates
from hf_seqmodels.evaluation.text_metric import TextMetric


class Cer(TextMetric):
    """Character error rate; see `inputs_text` for the options."""

    description_text = (
        "Character error rate: character edits (substitutions, deletions, insertions) per "
        "character (Unicode code point, blanks included) of the references, over the corpus."
    )
    inputs_text = """
Args:
    predictions: one text per item.
    references: one text per item, or a list of texts per item (their counts may differ). With
        several, the one with the fewest edits counts.
    lowercase: whether to compare in lower case. Default False.
    unicode_form: Unicode normal form to compare in ("NFC", ...), or None (default).

Returns:
    cer: 100 edits / characters of the references, over the corpus. Above 100 if much is inserted.
    item_error_rate: share of items with any edit, 0 to 100.
    hits, substitutions, deletions, insertions: characters by kind of edit.
    reference_length: characters of the references that count.
    num_items: number of predictions.

Examples:
    >>> from hf_seqmodels.evaluation import load_metric
    >>> cer = load_metric("cer")
    >>> predictions, references = ["abxd", "e"], ["abcd", "e"]
    >>> result = cer.compute(predictions=predictions, references=references)
    >>> result["cer"], result["item_error_rate"]
    (20.0, 50.0)
"""
    citation_text = ""

    def _compute(
        self,
        *,
        predictions: list[str],
        references: list[list[str]],
        lowercase: bool = False,
        unicode_form: str | None = None,
    ) -> dict[str, Any]:
        return error_rates(
            predictions,
            references,
            unit="character",
            rate_name="cer",
            lowercase=lowercase,
            unicode_form=unicode_form,
        )
