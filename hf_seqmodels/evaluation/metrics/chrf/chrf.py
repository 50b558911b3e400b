"""Corpus chrF and chrF++ (Popovic 2015, 2017) through sacrebleu."""

from typing import Any

import sacrebleu

from hf_seqmodels.evaluation.text_metric import TextMetric, reference_streams


class Chrf(TextMetric):
    """Corpus chrF with its signature; see `inputs_text` for the options."""

    description_text = (
        "chrF is the F-score of character n-grams (n = 1 to 6), with recall weighted beta times as "
        "much as precision; chrF++ adds word n-grams (n = 1, 2). Computed by sacrebleu."
    )
    inputs_text = """
Args:
    predictions: one text per item.
    references: one text per item, or a list of texts per item (their counts may differ).
    char_order: longest character n-gram. Default 6.
    word_order: longest word n-gram; 0 (default) is chrF, 2 is chrF++.
    beta: weight of recall against precision. Default 2.
    lowercase: whether to score in lower case. Default False.
    whitespace: whether blanks count as characters. Default False.
    eps_smoothing: whether to smooth as chrF++.py and Moses do. Default False.

Returns:
    chrf: the score, 0 to 100.
    signature: sacrebleu's signature, to be published with the score.
    char_order, word_order, beta: the options that name the variant.
    num_items: number of predictions.

Examples:
    >>> from hf_seqmodels.evaluation import load_metric
    >>> chrf = load_metric("chrf")
    >>> round(chrf.compute(predictions=["a cat sat"], references=["a cat sat"])["chrf"], 1)
    100.0
"""
    citation_text = """\
@inproceedings{popovic-2015-chrf,
    title = "chr{F}: character n-gram {F}-score for automatic {MT} evaluation",
    author = "Popovi{\\'c}, Maja",
    booktitle = "Proceedings of the Tenth Workshop on Statistical Machine Translation",
    year = "2015",
    pages = "392--395",
}
"""

    def _compute(
        self,
        *,
        predictions: list[str],
        references: list[list[str]],
        char_order: int = 6,
        word_order: int = 0,
        beta: int = 2,
        lowercase: bool = False,
        whitespace: bool = False,
        eps_smoothing: bool = False,
    ) -> dict[str, Any]:
        metric = sacrebleu.CHRF(
            char_order=char_order,
            word_order=word_order,
            beta=beta,
            lowercase=lowercase,
            whitespace=whitespace,
            eps_smoothing=eps_smoothing,
        )
        score = metric.corpus_score(predictions, reference_streams(references))
        return {
            "chrf": score.score,
            "signature": str(metric.get_signature()),
            "char_order": char_order,
            "word_order": word_order,
            "beta": beta,
            "num_items": len(predictions),
        }
