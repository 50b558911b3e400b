"""Entities in tagged sentences, and how many of them are found.

A tag is "O" or a letter and a type, "B-PER". The letters say where in its entity a word stands: B
begins, I is inside, E (or L) ends, S (or U) is the whole of it.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

Scheme = Literal["IOB1", "IOB2", "IOBES", "BILOU"]
Entity = tuple[str, int, int]  # type, first word, word after the last

SCHEMES = {"IOB1": "IOB", "IOB2": "IOB", "IOBES": "IOBES", "BILOU": "BILOU"}  # their letters
LETTERS = {**{letter: letter for letter in "BIOES"}, "L": "E", "U": "S"}
OUTSIDE = "O"


def entities(tags: Sequence[str], *, scheme: Scheme | None = None) -> list[Entity]:
    """Return the entities of one tagged sentence.

    Without a scheme the tags are read as the evaluation script of the CoNLL shared tasks reads them
    (Tjong Kim Sang and De Meulder 2003), which suits all schemes: an entity begins at B and S, at
    any tag after "O", E or S, and where the type changes; it ends before the next beginning or "O".
    Nothing that a model may write is then lost. With a scheme only what it allows is an entity:

    | scheme | an entity of type X is |
    |---|---|
    | IOB1 | I-X ..., or B-X I-X ... right after another word of type X |
    | IOB2 | B-X I-X ... |
    | IOBES | S-X, or B-X I-X ... E-X |
    | BILOU | U-X, or B-X I-X ... L-X |

    Args:
        tags: one tag per word.
        scheme: how strictly to read them.

    Returns:
        (type, first word, word after the last) of each, in order. The type of a bare letter is "_".

    Raises:
        ValueError: if the scheme or a tag is unknown.
    """
    if scheme is not None and scheme not in SCHEMES:
        raise ValueError(
            f"scheme must be one of {', '.join(SCHEMES)}, or None to read any of them leniently, "
            f"got {scheme!r}."
        )
    words = [_split(tag, SCHEMES[scheme] if scheme else "".join(LETTERS), scheme) for tag in tags]
    if scheme is None:
        return _lenient(words)
    if scheme in ("IOBES", "BILOU"):
        return _closed(words)
    return _begun(words, scheme)


def _split(tag: str, letters: str, scheme: str | None) -> tuple[str, str]:
    """Return letter (of IOBES) and type of a tag."""
    letter, dash, kind = tag.partition("-")
    if letter not in LETTERS or letter not in letters or (dash and not kind):
        raise ValueError(
            f"a tag must be O or one of {', '.join(letters.replace('O', ''))} with a type, such as "
            f"B-PER, got {tag!r}"
            + (f" in the scheme {scheme}." if scheme else ".")
            + " Convert the tags, or read them in another scheme."
        )
    return LETTERS[letter], kind or "_"


def _lenient(words: Sequence[tuple[str, str]]) -> list[Entity]:
    found: list[Entity] = []
    start, last_letter, last_kind = 0, "O", "_"
    for position, (letter, kind) in enumerate([*words, ("O", "_")]):
        in_entity = last_letter != "O"
        begins = letter in "BS" or last_letter in "OES" or kind != last_kind
        if in_entity and (letter == "O" or begins):
            found.append((last_kind, start, position))
        if letter != "O" and begins:
            start = position
        last_letter, last_kind = letter, kind
    return found


def _begun(words: Sequence[tuple[str, str]], scheme: str) -> list[Entity]:
    """Read IOB1 or IOB2, where an entity lasts as long as I goes on."""
    found: list[Entity] = []
    position = 0
    while position < len(words):
        letter, kind = words[position]
        if scheme == "IOB2":
            begins = letter == "B"
        elif letter == "B":  # only to part it from the word before, of the same type
            before = words[position - 1] if position else ("O", "_")
            begins = before[0] != "O" and before[1] == kind
        else:
            begins = letter == "I"
        start, position = position, position + 1
        if begins:
            while position < len(words) and words[position] == ("I", kind):
                position += 1
            found.append((kind, start, position))
    return found


def _closed(words: Sequence[tuple[str, str]]) -> list[Entity]:
    """Read IOBES, where an entity counts only if it is closed."""
    found: list[Entity] = []
    start = None
    for position, (letter, kind) in enumerate(words):
        goes_on = start is not None and letter in "IE" and words[start][1] == kind
        if letter == "S":
            found.append((kind, position, position + 1))
        elif goes_on and letter == "E":
            found.append((kind, start or 0, position + 1))
        if letter == "B":
            start = position
        elif not (goes_on and letter == "I"):
            start = None
    return found


def entity_scores(
    predictions: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    *,
    scheme: Scheme | None = None,
) -> dict[str, Any]:
    """Count entities found: both ends and the type must be right.

    precision = 100 correct / predicted, recall = 100 correct / in the references, F1 = their
    harmonic mean, each over the whole corpus (micro average) and for each type. A ratio without a
    denominator is 0.

    Args:
        predictions: tags of each sentence, one per word.
        references: the right ones.
        scheme: how strictly tags are read; None as in `entities`.

    Returns:
        f1, precision, recall, accuracy (of tags) in percent, counts, and a table by type.

    Raises:
        ValueError: if the sentences do not fit together, or a tag is unknown.
    """
    counts: dict[str, Counter[str]] = {"correct": Counter(), "predicted": Counter()}
    counts["reference"] = Counter()
    for predicted_tags, right_tags in zip(predictions, references, strict=True):
        predicted = set(entities(predicted_tags, scheme=scheme))
        right = set(entities(right_tags, scheme=scheme))
        counts["correct"].update(kind for kind, _, _ in predicted & right)
        counts["predicted"].update(kind for kind, _, _ in predicted)
        counts["reference"].update(kind for kind, _, _ in right)
    pairs = [
        (one == other)
        for tags, right_tags in zip(predictions, references, strict=True)
        for one, other in zip(tags, right_tags, strict=True)
    ]
    types = sorted(counts["predicted"] | counts["reference"])
    return {
        **_ratios(*(sum(counter.values()) for counter in counts.values())),
        "accuracy": 100 * sum(pairs) / max(len(pairs), 1),
        "types": {kind: _ratios(*(counter[kind] for counter in counts.values())) for kind in types},
    }


def _ratios(correct: int, predicted: int, reference: int) -> dict[str, Any]:
    return {
        "f1": 200 * correct / max(predicted + reference, 1),
        "precision": 100 * correct / max(predicted, 1),
        "recall": 100 * correct / max(reference, 1),
        "num_correct": correct,
        "num_predicted": predicted,
        "num_entities": reference,
    }
