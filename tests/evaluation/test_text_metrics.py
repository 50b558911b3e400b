"""The metrics' numbers, by sacrebleu itself, a plain edit distance and by hand."""

import random

import pytest
import sacrebleu

from hf_seqmodels.evaluation import load_metric
from hf_seqmodels.evaluation.metric_loading import TEXT_METRICS


def edit_distance(reference, prediction):
    """Levenshtein distance by the textbook table."""
    previous = list(range(len(prediction) + 1))
    for row, left in enumerate(reference, start=1):
        current = [row]
        for column, right in enumerate(prediction, start=1):
            current.append(
                min(
                    previous[column] + 1,
                    current[-1] + 1,
                    previous[column - 1] + (left != right),
                )
            )
        previous = current
    return previous[-1]


def random_corpus(num_items, *, symbols="abcd ", longest=9, num_references=3):
    """Texts with empty ones, doubled blanks and repeats among them."""

    def text():
        return "".join(random.choices(symbols, k=random.randrange(longest)))

    predictions = [text() for _ in range(num_items)]
    references = [
        [text() for _ in range(random.randint(1, num_references))] for _ in range(num_items)
    ]
    return predictions, references


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_single_references_give_the_score_of_sacrebleu(name):
    predictions = ["the cat sat on the mat .", "there is a dog", "yes"]
    references = ["the cat sat on a mat.", "there is the dog", "yes indeed"]
    result = load_metric(name).compute(predictions=predictions, references=references)
    function = {"bleu": sacrebleu.corpus_bleu, "chrf": sacrebleu.corpus_chrf}[name]
    assert result[name] == function(predictions, [references]).score
    assert 0 < result[name] < 100
    assert result["num_items"] == 3
    assert result["signature"].startswith("nrefs:1|case:mixed|eff:")
    assert f"version:{sacrebleu.__version__}" in result["signature"]


def test_references_of_differing_counts_are_alternatives():
    """As if the missing ones were the first one again, which changes no n-gram maximum."""
    predictions = ["the cat sat on the mat", "a dog is there"]
    references = [["a cat is on the mat", "the cat sat on a mat"], ["there is a dog"]]
    padded = [["a cat is on the mat", "there is a dog"], ["the cat sat on a mat", "there is a dog"]]
    bleu = load_metric("bleu").compute(predictions=predictions, references=references)
    assert bleu["bleu"] == pytest.approx(sacrebleu.corpus_bleu(predictions, padded).score)
    assert bleu["signature"].startswith("nrefs:var|")
    chrf = load_metric("chrf").compute(predictions=predictions, references=references)
    assert chrf["chrf"] == pytest.approx(sacrebleu.corpus_chrf(predictions, padded).score)


@pytest.mark.parametrize(
    ("name", "options", "signature"),
    [
        ("bleu", {"lowercase": True}, "case:lc"),
        ("bleu", {"tokenize": "char"}, "tok:char"),
        ("bleu", {"smooth_method": "add-k", "smooth_value": 2}, "smooth:add-k[2.00]"),
        ("chrf", {"word_order": 2}, "nw:2"),
        ("chrf", {"char_order": 4}, "nc:4"),
        ("chrf", {"lowercase": True}, "case:lc"),
        ("chrf", {"whitespace": True}, "space:yes"),
        ("chrf", {"eps_smoothing": True, "beta": 1}, "nc:6"),
    ],
)
def test_options_reach_sacrebleu_and_its_signature(name, options, signature):
    predictions, references = (
        ["A cat sat up then", "no x"],
        [["a cat sat up", "the cat sat"], ["No"]],
    )
    metric = load_metric(name)
    result = metric.compute(predictions=predictions, references=references, **options)
    assert signature in result["signature"]
    direct = {"bleu": sacrebleu.BLEU, "chrf": sacrebleu.CHRF}[name](**options)
    streams = [["a cat sat up", "No"], ["the cat sat", None]]
    assert result[name] == direct.corpus_score(predictions, streams).score
    assert result[name] != metric.compute(predictions=predictions, references=references)[name]


def test_effective_order_is_for_texts_shorter_than_four_tokens():
    texts = {"predictions": ["a b"], "references": ["a b"]}
    assert load_metric("bleu").compute(**texts)["bleu"] == 0
    result = load_metric("bleu").compute(**texts, effective_order=True)
    assert result["bleu"] == pytest.approx(100)
    assert "eff:yes" in result["signature"]


def test_bleu_reports_what_it_is_made_of():
    """Hand-worked: 3 of 4 words, 1 of 3 pairs, one word short of the reference."""
    result = load_metric("bleu").compute(
        predictions=["a b x c"], references=["a b c d e"], smooth_method="none"
    )
    assert result["counts"] == [3, 1, 0, 0]
    assert result["totals"] == [4, 3, 2, 1]
    assert result["precisions"][:2] == pytest.approx([75, 100 / 3])
    assert (result["prediction_length"], result["reference_length"]) == (4, 5)
    assert result["brevity_penalty"] == pytest.approx(2.718281828 ** (1 - 5 / 4))
    assert result["bleu"] == 0


def test_exact_match_counts_equality_with_any_reference():
    metric = load_metric("exact_match")
    predictions = ["a b", "A b", "a  b ", "", "café"]
    references = [["x", "a b"], "a b", "a b", "", "cafe\u0301"]

    def share(**options):
        return metric.compute(predictions=predictions, references=references, **options)

    assert share() == {"exact_match": 40.0, "num_matches": 2, "num_items": 5}
    assert share(lowercase=True)["num_matches"] == 3
    assert share(collapse_blanks=True)["num_matches"] == 3
    assert share(unicode_form="NFC")["num_matches"] == 3
    everything = share(lowercase=True, collapse_blanks=True, unicode_form="NFD")
    assert everything["exact_match"] == 100.0


@pytest.mark.parametrize(
    ("name", "split"),
    [("wer", str.split), ("per", str.split), ("error_rate", str.split), ("cer", str.strip)],
)
def test_error_rates_equal_a_plain_edit_distance(name, split):
    predictions, references = random_corpus(200)
    result = load_metric(name).compute(predictions=predictions, references=references)
    edits = length = wrong = 0
    for prediction, texts in zip(predictions, references, strict=True):
        candidates = [
            (edit_distance(split(text), split(prediction)), -len(split(text))) for text in texts
        ]
        fewest, negative_length = min(candidates)
        edits += fewest
        length -= negative_length
        wrong += fewest > 0
    assert result[name] == pytest.approx(100 * edits / length)
    assert result["item_error_rate"] == pytest.approx(100 * wrong / 200)
    assert result["substitutions"] + result["deletions"] + result["insertions"] == edits
    assert result["hits"] + result["substitutions"] + result["deletions"] == length
    assert result["reference_length"] == length
    assert result["num_items"] == 200


def test_kinds_of_edits_by_hand():
    """One substitution, two deletions, one insertion, in seven words."""
    result = load_metric("wer").compute(
        predictions=["a x", "d e f g", ""], references=["a b c", "d e f", "h"]
    )
    kinds = {kind: result[kind] for kind in ("hits", "substitutions", "deletions", "insertions")}
    assert kinds == {"hits": 4, "substitutions": 1, "deletions": 2, "insertions": 1}
    assert result["wer"] == pytest.approx(100 * 4 / 7)
    assert result["item_error_rate"] == 100.0


def test_word_error_rate_of_pronunciation_is_the_item_error_rate():
    """One wrong phone of six in one word of two: 16.7 % of the phones, 50 % of the words."""
    result = load_metric("per").compute(
        predictions=["k æ t", "d ɔ g"], references=[["k a t", "k æ t"], ["d ɒ g"]]
    )
    assert result["per"] == pytest.approx(100 / 6)
    assert result["item_error_rate"] == 50.0


def test_item_error_rate_is_one_minus_exact_match():
    predictions, references = random_corpus(300, symbols="ab ", longest=5)
    per = load_metric("per").compute(predictions=predictions, references=references)
    match = load_metric("exact_match").compute(
        predictions=predictions, references=references, collapse_blanks=True
    )
    assert 0 < per["item_error_rate"] < 100
    assert per["item_error_rate"] == pytest.approx(100 - match["exact_match"])


@pytest.mark.parametrize("name", ["wer", "cer", "per", "error_rate"])
def test_empty_references_count_what_is_inserted(name):
    metric = load_metric(name)
    mixed = metric.compute(predictions=["a", "b"], references=["", "b"])
    assert (mixed[name], mixed["item_error_rate"], mixed["insertions"]) == (100.0, 50.0, 1)
    nothing = metric.compute(predictions=["", " "], references=[" ", ""])
    assert (nothing[name], nothing["item_error_rate"]) == (0.0, 0.0)
    only_insertions = metric.compute(predictions=["a", ""], references=["", ""])
    assert (only_insertions[name], only_insertions["item_error_rate"]) == (100.0, 50.0)


def test_empty_predictions_delete_everything():
    result = load_metric("cer").compute(predictions=["", ""], references=["ab", "abc"])
    assert (result["cer"], result["deletions"]) == (100.0, 5)


def test_of_equally_good_references_the_longer_counts():
    result = load_metric("wer").compute(predictions=["a b"], references=[["a", "a b c", "b"]])
    assert (result["reference_length"], result["deletions"], result["insertions"]) == (3, 1, 0)


def test_characters_are_code_points_with_blanks_between_words():
    result = load_metric("cer").compute(predictions=[" a b "], references=["ab"])
    assert (result["insertions"], result["reference_length"]) == (1, 2)
    composed = {"predictions": ["é"], "references": ["e\u0301"]}
    assert load_metric("cer").compute(**composed)["cer"] == 100.0
    assert load_metric("cer").compute(**composed, unicode_form="NFC")["cer"] == 0.0
    assert (
        load_metric("cer").compute(predictions=["A"], references=["a"], lowercase=True)["cer"] == 0
    )


def test_error_rate_takes_the_unit():
    texts = {"predictions": ["ab cd"], "references": ["ab ce"]}
    metric = load_metric("error_rate")
    assert metric.compute(**texts)["error_rate"] == 50.0
    assert metric.compute(**texts, unit="character")["error_rate"] == 20.0
    with pytest.raises(ValueError, match="unit must be 'word' or 'character', got 'phone'"):
        metric.compute(**texts, unit="phone")


@pytest.mark.parametrize("name", TEXT_METRICS)
def test_texts_added_piece_by_piece_give_the_same(name):
    predictions, references = random_corpus(7)
    metric = load_metric(name)
    expected = metric.compute(predictions=predictions, references=references)
    metric.add(prediction=predictions[0], reference=references[0])
    metric.add_batch(predictions=[], references=[])
    metric.add_batch(predictions=predictions[1:4], references=references[1:4])
    metric.add_batch(predictions=predictions[4:6], references=references[4:6])
    assert metric.compute(predictions=predictions[6:], references=references[6:]) == expected


@pytest.mark.parametrize("name", TEXT_METRICS)
def test_one_text_and_a_list_of_one_are_the_same_also_mixed(name):
    predictions = ["a b c d", "e f g h", "i"]
    metric = load_metric(name)
    expected = metric.compute(predictions=predictions, references=["a b c d", "e f h", "k"])
    for references in ([["a b c d"], ["e f h"], ["k"]], ["a b c d", ["e f h"], "k"]):
        assert metric.compute(predictions=predictions, references=references) == expected


@pytest.mark.parametrize("name", TEXT_METRICS)
def test_bad_input_is_refused_with_the_way_out(name):
    metric = load_metric(name)
    with pytest.raises(ValueError, match="same count, got 2 and 1"):
        metric.compute(predictions=["a", "b"], references=["a"])
    with pytest.raises(ValueError, match=r"predictions must be texts, got 3 \(int\) at item 1"):
        metric.compute(predictions=["a", 3], references=["a", "b"])
    with pytest.raises(ValueError, match=r"references must be texts.*got None at item 0"):
        metric.compute(predictions=["a"], references=[None])
    with pytest.raises(ValueError, match="at least one reference, got an empty list at item 1"):
        metric.compute(predictions=["a", "b"], references=["a", []])
    with pytest.raises(ValueError, match="predictions must be a list"):
        metric.compute(predictions="a", references=["a"])
    with pytest.raises(ValueError, match=r"references must be a list.*got None"):
        metric.compute(predictions=["a"])
    with pytest.raises(ValueError, match="at least one text, got an empty list"):
        metric.compute(predictions=[], references=[])
    with pytest.raises(ValueError, match="at least one prediction with its reference, got none"):
        metric.compute()
    assert metric.compute(predictions=["a b c d"], references=["a b c d"])["num_items"] == 1


def test_unknown_normal_form_is_refused():
    with pytest.raises(ValueError, match=r"unicode_form must be one of NFC, .* got 'nfc'"):
        load_metric("wer").compute(predictions=["a"], references=["a"], unicode_form="nfc")
