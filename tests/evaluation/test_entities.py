"""Entities and their F1 against hand-worked sentences and a plain reading of the rules."""

import itertools

import pytest

from hf_seqmodels.evaluation import load_metric
from hf_seqmodels.evaluation.named_entities import entities


def spans_as_conll(tags):
    """The two tests of the CoNLL script, word boundary by word boundary."""
    letters = [tag[0] for tag in tags]
    kinds = [tag[2:] or "_" for tag in tags]
    starts, ends = [], []
    for place in range(len(tags) + 1):
        before = (letters[place - 1], kinds[place - 1]) if place else ("O", "_")
        here = (letters[place], kinds[place]) if place < len(tags) else ("O", "_")
        parted = before[0] in "ES" or here[0] in "BS" or before[1] != here[1]
        if before[0] != "O" and (here[0] == "O" or parted):
            ends.append(place)
        if here[0] != "O" and (before[0] == "O" or parted):
            starts.append(place)
    return [(kinds[start], start, end) for start, end in zip(starts, ends, strict=True)]


def test_lenient_reading_is_that_of_the_conll_script():
    alphabet = ("O", "B-X", "I-X", "E-X", "S-Y", "I-Y")
    for length in range(5):
        for tags in itertools.product(alphabet, repeat=length):
            assert entities(tags) == spans_as_conll(tags)


@pytest.mark.parametrize(
    ("scheme", "tags", "expected"),
    [
        ("IOB1", "I-X I-X B-X I-Y O I-X", [("X", 0, 2), ("X", 2, 3), ("Y", 3, 4), ("X", 5, 6)]),
        ("IOB1", "B-X O I-X", [("X", 2, 3)]),  # B parts two entities, it begins none
        ("IOB2", "B-X I-X B-X I-Y O I-X", [("X", 0, 2), ("X", 2, 3)]),
        ("IOBES", "S-X B-Y I-Y E-Y B-X I-X O E-X", [("X", 0, 1), ("Y", 1, 4)]),
        ("IOBES", "B-X E-Y I-X E-X", []),
        ("BILOU", "U-X B-Y I-Y L-Y B-X I-X O L-X", [("X", 0, 1), ("Y", 1, 4)]),
        (None, "B I O S", [("_", 0, 2), ("_", 3, 4)]),
    ],
)
def test_schemes_take_only_what_they_allow(scheme, tags, expected):
    assert entities(tags.split(), scheme=scheme) == expected


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2", "IOBES", "BILOU"])
def test_strict_and_lenient_agree_where_all_is_well_formed(scheme):
    written = {
        "IOB1": "I-X B-X I-X I-Y O I-Y",
        "IOB2": "B-X B-X I-X B-Y O B-Y",
        "IOBES": "S-X B-X E-X S-Y O S-Y",
        "BILOU": "U-X B-X L-X U-Y O U-Y",
    }[scheme].split()
    expected = [("X", 0, 1), ("X", 1, 3), ("Y", 3, 4), ("Y", 5, 6)]
    assert entities(written) == entities(written, scheme=scheme) == expected


def test_scores_are_those_worked_by_hand():
    right = [["B-PER", "I-PER", "O", "B-LOC"], ["B-ORG", "O"]]
    found = [["B-PER", "I-PER", "O", "B-ORG"], ["B-ORG", "B-LOC"]]
    result = load_metric("entity_f1").compute(predictions=found, references=right)
    # PER and the second ORG are right; ORG for LOC and the last LOC are not
    assert (result["num_correct"], result["num_predicted"], result["num_entities"]) == (2, 4, 3)
    assert result["precision"] == 50
    assert result["recall"] == pytest.approx(200 / 3)
    assert result["f1"] == pytest.approx(400 / 7)
    assert result["accuracy"] == pytest.approx(400 / 6)
    assert result["num_items"] == 2
    assert list(result["types"]) == ["LOC", "ORG", "PER"]
    assert result["types"]["ORG"]["precision"] == 50
    assert result["types"]["ORG"]["recall"] == 100
    assert result["types"]["LOC"]["f1"] == 0


def test_scheme_of_the_metric_counts():
    sentence = {"predictions": [["I-X", "O"]], "references": [["B-X", "O"]]}
    metric = load_metric("entity_f1")
    assert metric.compute(**sentence)["f1"] == 100
    assert metric.compute(**sentence, scheme="IOB2")["num_predicted"] == 0


def test_sentences_may_be_added_one_by_one():
    metric = load_metric("entity_f1")
    metric.add(prediction=["B-X"], reference=["B-X"])
    metric.add_batch(predictions=[["O"], []], references=[["B-Y"], []])
    assert metric.compute()["f1"] == pytest.approx(200 / 3)


@pytest.mark.parametrize(
    ("predictions", "references", "message"),
    [
        ([["B-X"]], [["B-X", "O"]], "one tag per word on both sides, got 1 and 2 at sentence 0"),
        ([["O"], ["O"]], [["O"]], "same count of sentences, got 2 and 1"),
        ([[0]], [["O"]], "one list of tags per sentence, got .0. at sentence 0"),
        ("O", [["O"]], "must be a list of tagged sentences"),
        ([["X-PER"]], [["O"]], "a tag must be O or one of B, I, E, S, L, U.*got 'X-PER'"),
        ([], [], "at least one text, got an empty list"),
    ],
)
def test_bad_sentences_are_refused(predictions, references, message):
    with pytest.raises(ValueError, match=message):
        load_metric("entity_f1").compute(predictions=predictions, references=references)


def test_bad_schemes_and_tags_outside_them_are_refused():
    with pytest.raises(ValueError, match=r"scheme must be one of IOB1, IOB2, IOBES, BILOU"):
        entities(["O"], scheme="IO")
    with pytest.raises(ValueError, match=r"one of I, B with a type.*got 'S-X' in the scheme IOB2"):
        entities(["S-X"], scheme="IOB2")
