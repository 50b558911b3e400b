"""Corpus BLEU (Papineni et al. 2002) through sacrebleu."""

from typing import Any

import sacrebleu

from hf_seqmodels.evaluation.text_metric import TextMetric, reference_streams


class Bleu(TextMetric):
    """Corpus BLEU with its signature; see `inputs_text` for the options."""

    description_text = (
        "BLEU is the geometric mean of the n-gram precisions (n = 1 to 4) of the corpus, times a "
        "penalty for being shorter than the references. Computed by sacrebleu on raw text."
    )
    inputs_text = """
Args:
    predictions: one untokenised text per item.
    references: one text per item, or a list of texts per item (their counts may differ).
    lowercase: whether to score in lower case. Default False.
    tokenize: tokeniser of sacrebleu, for instance "13a" (default), "intl", "char", "zh", "none".
    smooth_method: "exp" (default), "floor", "add-k" or "none".
    smooth_value: value of "floor" and "add-k", or None for sacrebleu's default.
    effective_order: whether to leave out n-gram orders without a match; for very short texts.

Returns:
    bleu: the score, 0 to 100.
    signature: sacrebleu's signature, to be published with the score.
    precisions: the four n-gram precisions, 0 to 100.
    counts, totals: matched and predicted n-grams of the four orders.
    brevity_penalty: at most 1.
    prediction_length, reference_length: lengths in tokens of the tokeniser.
    num_items: number of predictions.

Examples:
    >>> from hf_seqmodels.evaluation import load_metric
    >>> bleu = load_metric("bleu")
    >>> result = bleu.compute(predictions=["a b c d e"], references=[["a b c d e", "a b c"]])
    >>> round(result["bleu"], 1)
    100.0
"""
    citation_text = """\
@inproceedings{post-2018-call,
    title = "A Call for Clarity in Reporting {BLEU} Scores",
    author = "Post, Matt",
    booktitle = "Proceedings of the Third Conference on Machine Translation: Research Papers",
    year = "2018",
    pages = "186--191",
}
"""

    def _compute(
        self,
        *,
        predictions: list[str],
        references: list[list[str]],
        lowercase: bool = False,
        tokenize: str | None = None,
        smooth_method: str = "exp",
        smooth_value: float | None = None,
        effective_order: bool = False,
    ) -> dict[str, Any]:
        metric = sacrebleu.BLEU(
            lowercase=lowercase,
            tokenize=tokenize,
            smooth_method=smooth_method,
            smooth_value=smooth_value,
            effective_order=effective_order,
        )
        score = metric.corpus_score(predictions, reference_streams(references))
        return {
            "bleu": score.score,
            "signature": str(metric.get_signature()),
            "precisions": list(score.precisions),
            "counts": list(score.counts),
            "totals": list(score.totals),
            "brevity_penalty": score.bp,
            "prediction_length": score.sys_len,
            "reference_length": score.ref_len,
            "num_items": len(predictions),
        }
