"""Exact match and F1 of answers to questions (SQuAD 1.1 and 2.0)."""

from collections.abc import Sequence
from typing import Any

from hf_seqmodels.evaluation.answer_scores import corpus_answer_scores
from hf_seqmodels.evaluation.text_metric import TextMetric


class Squad(TextMetric):
    """Exact match and F1 of answers; see `inputs_text` for the options."""

    description_text = (
        "squad compares answers with one or several references each, in lower case and without "
        "punctuation and articles: the share that equal a reference, and the mean F1 of their "
        "words. The empty text stands for 'no answer', as in SQuAD 2.0."
    )
    inputs_text = """
Args:
    predictions: one answer per question; "" where the model gives none.
    references: one text per question, or a list of texts, any of which is right; "" where there is
        no answer.
    no_answer_scores: one number per question, the higher the surer the model is that there is no
        answer; predictions then hold its best answers other than none. Default None.
    no_answer_threshold: a question with a higher no-answer score counts as answered with none.
        Default 0.

Returns:
    exact_match, f1: means, 0 to 100.
    has_answer_exact_match, has_answer_f1, has_answer_items, no_answer_exact_match, no_answer_f1,
        no_answer_items: the same for either kind of question, if any has no answer.
    best_exact_match, best_exact_match_threshold, best_f1, best_f1_threshold: with no_answer_scores,
        the best means that a threshold gives, and that threshold.
    num_items: number of questions.

Examples:
    >>> from hf_seqmodels.evaluation import load_metric
    >>> squad = load_metric("squad")
    >>> result = squad.compute(predictions=["the cat!", "a b"], references=["Cat", ["b c", "d"]])
    >>> round(result["exact_match"]), round(result["f1"], 1)
    (50, 83.3)
"""
    citation_text = """\
@inproceedings{rajpurkar-etal-2016-squad,
    title = "{SQ}u{AD}: 100,000+ Questions for Machine Comprehension of Text",
    author = "Rajpurkar, Pranav and Zhang, Jian and Lopyrev, Konstantin and Liang, Percy",
    booktitle = "Proceedings of EMNLP 2016",
    year = "2016",
    pages = "2383--2392",
}
"""

    def _compute(
        self,
        *,
        predictions: list[str],
        references: list[list[str]],
        no_answer_scores: Sequence[float] | None = None,
        no_answer_threshold: float = 0.0,
    ) -> dict[str, Any]:
        scores = corpus_answer_scores(
            predictions,
            references,
            no_answer_scores=no_answer_scores,
            no_answer_threshold=no_answer_threshold,
        )
        return scores | {"num_items": len(predictions)}
