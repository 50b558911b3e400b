"""Phone error rate."""

from typing import Any

from hf_seqmodels.evaluation.error_rates import error_rates
from hf_seqmodels.evaluation.text_metric import TextMetric


class Per(TextMetric):
    """Phone error rate; see `inputs_text` for the options."""

    description_text = (
        "Phone error rate: phone edits (substitutions, deletions, insertions) per phone of the "
        "references, over the corpus. Phones are what blanks separate. The share of words with any "
        "wrong phone, published as the WER of grapheme-to-phoneme conversion, is item_error_rate."
    )
    inputs_text = """
Args:
    predictions: one text per item: its phones, separated by blanks.
    references: one text per item, or a list of texts per item (their counts may differ). With
        several, the one with the fewest edits counts.
    lowercase: whether to compare in lower case. Default False.
    unicode_form: Unicode normal form to compare in ("NFC", ...), or None (default).

Returns:
    per: 100 edits / phones of the references, over the corpus. Above 100 if much is inserted.
    item_error_rate: share of items with any edit, 0 to 100: the "word error rate" (WER)
        of grapheme-to-phoneme papers, where one item is one word.
    hits, substitutions, deletions, insertions: phones by kind of edit.
    reference_length: phones of the references that count.
    num_items: number of predictions.

Examples:
    >>> from hf_seqmodels.evaluation import load_metric
    >>> per = load_metric("per")
    >>> predictions, references = ["k æ t", "d ɔ g"], ["k æ t", ["d ɒ k", "d ɔ"]]
    >>> result = per.compute(predictions=predictions, references=references)
    >>> result["per"], result["item_error_rate"]
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
            unit="word",
            rate_name="per",
            lowercase=lowercase,
            unicode_form=unicode_form,
        )
