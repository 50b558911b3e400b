"""F1 of named entities and other labelled spans of words."""

from collections.abc import Sequence
from typing import Any

import datasets
import evaluate

from hf_seqmodels.evaluation.named_entities import Scheme, entities, entity_scores
from hf_seqmodels.evaluation.text_metric import TextMetric


class EntityF1(TextMetric):
    """Precision, recall and F1 of entities; see `inputs_text` for the options."""

    description_text = (
        "entity_f1 counts the entities of tagged sentences (B-PER, I-PER, O, ...): one is found if "
        "its first word, its last word and its type are right. Micro-averaged over the corpus, as "
        "the evaluation script of CoNLL-2003 does it, with a table by type."
    )
    inputs_text = """
Args:
    predictions: one list of tags per sentence, one tag per word.
    references: the same, the right tags.
    scheme: None (default) reads any scheme as the script of CoNLL-2003 does; "IOB1", "IOB2",
        "IOBES" or "BILOU" count only entities that are well-formed in it.

Returns:
    f1, precision, recall: of the whole corpus, 0 to 100.
    accuracy: share of words with the right tag, 0 to 100.
    num_correct, num_predicted, num_entities: entities found, predicted, in the references.
    types: the figures of each type by its name, without accuracy.
    num_items: number of sentences.

Examples:
    >>> from hf_seqmodels.evaluation import load_metric
    >>> entity_f1 = load_metric("entity_f1")
    >>> tags, right = ["B-PER", "I-PER", "O", "B-LOC"], ["B-PER", "I-PER", "O", "O"]
    >>> result = entity_f1.compute(predictions=[tags], references=[right])
    >>> result["precision"], result["recall"], result["types"]["PER"]["f1"]
    (50.0, 100.0, 100.0)
"""
    citation_text = """\
@inproceedings{tjong-kim-sang-de-meulder-2003,
    title = "Introduction to the {CoNLL}-2003 Shared Task: Language-Independent Named Entity
        Recognition",
    author = "Tjong Kim Sang, Erik F. and De Meulder, Fien",
    booktitle = "Proceedings of CoNLL-2003",
    year = "2003",
    pages = "142--147",
}
"""

    def _info(self) -> evaluate.MetricInfo:
        tags = datasets.List(datasets.Value("string"))
        return evaluate.MetricInfo(
            description=self.description_text,
            citation=self.citation_text,
            inputs_description=self.inputs_text,
            features=datasets.Features({"predictions": tags, "references": tags}),
        )

    def add_batch(
        self,
        *,
        predictions: Sequence[Any] | None = None,
        references: Sequence[Any] | None = None,
        **inputs: Any,
    ) -> None:
        """Add sentences to be scored by the next call of compute().

        Args:
            predictions: tags of each sentence.
            references: the right ones.
            **inputs: refused by `evaluate`; it takes part in its signature.

        Raises:
            ValueError: if the sentences do not fit together, or something is not a tag.
        """
        _check_sentences(predictions, references)
        if predictions:
            evaluate.Metric.add_batch(
                self, predictions=predictions, references=references, **inputs
            )

    def _compute(
        self,
        *,
        predictions: list[Any],
        references: list[Any],
        scheme: Scheme | None = None,
    ) -> dict[str, Any]:
        scores = entity_scores(predictions, references, scheme=scheme)
        return scores | {"num_items": len(predictions)}


def _check_sentences(predictions: Any, references: Any) -> None:
    """Refuse what is not one list of tags per sentence on both sides, word for word."""
    for name, sentences in (("predictions", predictions), ("references", references)):
        if sentences is None or isinstance(sentences, str):
            raise ValueError(
                f"{name} must be a list of tagged sentences, got {sentences!r}. "
                "Write [['B-PER', 'O'], ...]."
            )
        for index, tags in enumerate(sentences):
            if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
                raise ValueError(
                    f"{name} must hold one list of tags per sentence, got {tags!r} at sentence "
                    f"{index}. Turn label ids into names first, with config.id2label."
                )
            entities(tags)
    if len(predictions) != len(references):
        raise ValueError(
            "predictions and references must have the same count of sentences, got "
            f"{len(predictions)} and {len(references)}."
        )
    for index, (tags, right) in enumerate(zip(predictions, references, strict=True)):
        if len(tags) != len(right):
            raise ValueError(
                f"a sentence must have one tag per word on both sides, got {len(tags)} and "
                f"{len(right)} at sentence {index}. Words cut off by a length limit need a tag too."
            )
