"""Error rates over words, phones or characters, by edit distance (jiwer)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jiwer

from hf_seqmodels.evaluation.text_metric import normalize_text

Unit = Literal["word", "character"]


@dataclass(frozen=True)
class EditCounts:
    """The edits that turn a reference into a prediction, in units (words, phones or characters)."""

    hits: int = 0
    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0

    @property
    def edits(self) -> int:
        """Substitutions, deletions and insertions together."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def reference_length(self) -> int:
        """Units of the reference."""
        return self.hits + self.substitutions + self.deletions


def error_rates(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    unit: Unit,
    rate_name: str,
    lowercase: bool = False,
    unicode_form: str | None = None,
) -> dict[str, Any]:
    """Return the error rate of a corpus and the share of items with an error, in percent.

    rate = 100 (substitutions + deletions + insertions) / units of the references, each summed
    over the corpus; item_error_rate = 100 (items with an edit) / items.

    An item with several references counts with the reference of fewest edits (of those, the
    longest; of those, the first). An empty prediction deletes every unit of its reference; an empty
    reference has no units, so whatever is predicted is inserted. Where all references are empty the
    rate has no denominator: it is 0 without an insertion and 100 with any.

    Args:
        predictions: one text per item.
        references: at least one text per item.
        unit: "word": what blanks separate (words, or phones); "character": Unicode code points,
            blanks between words included, those at both ends not.
        rate_name: key of the rate in the result.
        lowercase: whether to compare in lower case.
        unicode_form: Unicode normal form to compare in, or None.

    Returns:
        The rate under `rate_name`, `item_error_rate`, and the counts behind them.

    Raises:
        ValueError: if the unit or the normal form is unknown.
    """
    if unit not in ("word", "character"):
        raise ValueError(f"unit must be 'word' or 'character', got {unit!r}.")

    def prepare(text: str) -> str:
        text = normalize_text(text, lowercase=lowercase, unicode_form=unicode_form)
        return " ".join(text.split()) if unit == "word" else text.strip()

    pairs = [
        (prepare(prediction), prepare(reference))
        for prediction, texts in zip(predictions, references, strict=True)
        for reference in texts
    ]
    counts = iter(count_edits(pairs, unit))
    best = []
    for texts in references:
        candidates = [next(counts) for _ in texts]
        best.append(min(candidates, key=lambda count: (count.edits, -count.reference_length)))
    edits = sum(count.edits for count in best)
    reference_length = sum(count.reference_length for count in best)
    rate = 100 * edits / reference_length if reference_length else 100.0 * (edits > 0)
    return {
        rate_name: rate,
        "item_error_rate": 100 * sum(count.edits > 0 for count in best) / len(best),
        "hits": sum(count.hits for count in best),
        "substitutions": sum(count.substitutions for count in best),
        "deletions": sum(count.deletions for count in best),
        "insertions": sum(count.insertions for count in best),
        "reference_length": reference_length,
        "num_items": len(best),
    }


def count_edits(pairs: Sequence[tuple[str, str]], unit: Unit) -> list[EditCounts]:
    """Count the edits of every (prediction, reference) pair."""
    process = jiwer.process_words if unit == "word" else jiwer.process_characters
    # Releases of jiwer differ on empty references (an error before 4.0), so they never get there.
    spoken = [pair for pair in pairs if pair[1]]
    results = iter([])
    if spoken:
        output = process([pair[1] for pair in spoken], [pair[0] for pair in spoken])
        results = iter(output.alignments)
    return [
        _sum_chunks(next(results))
        if reference
        else EditCounts(insertions=len(prediction.split() if unit == "word" else prediction))
        for prediction, reference in pairs
    ]


def _sum_chunks(chunks: Sequence[jiwer.AlignmentChunk]) -> EditCounts:
    """Add up the pieces of one alignment; the spans tell the kind of edit."""
    hits = substitutions = deletions = insertions = 0
    for chunk in chunks:
        num_reference = chunk.ref_end_idx - chunk.ref_start_idx
        num_predicted = chunk.hyp_end_idx - chunk.hyp_start_idx
        if chunk.type == "equal":
            hits += num_reference
        elif num_reference and num_predicted:
            substitutions += num_reference
        else:
            deletions += num_reference
            insertions += num_predicted
    return EditCounts(hits, substitutions, deletions, insertions)
