"""Share of predictions that equal a reference."""

from typing import Any

from hf_seqmodels.evaluation.text_metric import TextMetric, normalize_text


class ExactMatch(TextMetric):
    """Share of predictions that equal a reference; see `inputs_text` for the options."""

    description_text = (
        "Exact match is the share of predictions that equal one of their references, character by "
        "character."
    )
    inputs_text = """
Args:
    predictions: one text per item.
    references: one text per item, or a list of texts per item (their counts may differ).
    lowercase: whether to compare in lower case. Default False.
    unicode_form: Unicode normal form to compare in ("NFC", ...), or None (default).
    collapse_blanks: whether runs of blanks count as one, and those at the ends as none. Default
        False.

Returns:
    exact_match: the share, 0 to 100.
    num_matches: predictions that equal a reference.
    num_items: number of predictions.

Examples:
    >>> from hf_seqmodels.evaluation import load_metric
    >>> exact_match = load_metric("exact_match")
    >>> exact_match.compute(predictions=["yes", "no"], references=["yes", ["nay", "nope"]])
    {'exact_match': 50.0, 'num_matches': 1, 'num_items': 2}
"""
    citation_text = ""

    def _compute(
        self,
        *,
        predictions: list[str],
        references: list[list[str]],
        lowercase: bool = False,
        unicode_form: str | None = None,
        collapse_blanks: bool = False,
    ) -> dict[str, Any]:
        def prepare(text: str) -> str:
            text = normalize_text(text, lowercase=lowercase, unicode_form=unicode_form)
            return " ".join(text.split()) if collapse_blanks else text

        num_matches = sum(
            prepare(prediction) in map(prepare, texts)
            for prediction, texts in zip(predictions, references, strict=True)
        )
        return {
            "exact_match": 100 * num_matches / len(predictions),
            "num_matches": num_matches,
            "num_items": len(predictions),
        }
