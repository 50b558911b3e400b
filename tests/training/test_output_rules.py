"""Rules for outputs as texts in, as token ids out; what contradicts itself is refused."""

import pytest
from output_rules import RuleArguments, check_rules, make_rules, row_phrases, rules_record
from seq2seq_data import Example
from transformers import GenerationConfig

from tiny_encoder_decoders import make_tokenizer


@pytest.fixture
def rules():
    """Make the rules for rows with a column, outputs of at most five tokens."""

    def make(*columns, max_length=6, **options):
        examples = [Example(f"s{place}", ["t"], column) for place, column in enumerate(columns)]
        config = GenerationConfig(max_length=max_length, bad_words_ids=[[0]])
        return make_rules(RuleArguments(**options), {"test": examples}, make_tokenizer(), config)

    return make


def test_phrases_of_the_option_and_of_the_column_come_together(rules):
    columns = {"terms": "b c; d ;"}, {"terms": ["e", "f"]}, {"terms": ""}, {"terms": None}
    found = rules(*columns, must_include=["a"], must_include_column="terms").arguments("test")
    assert found == {"must_include": [[[4], [5, 6], [7]], [[4], [8], [9]], [[4]], [[4]]]}
    example = Example("s", ["t"], {"terms": "b; c|d"})
    arguments = RuleArguments(must_include_column="terms", phrase_separator="|")
    assert row_phrases(example, arguments) == ["b; c", "d"]
    assert rules({}).arguments("test") == {}


def test_words_to_avoid_come_from_the_option_and_from_a_file(rules, tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("b c\n\nd\n", encoding="utf-8")
    found = rules({}, avoid_words=["a"], avoid_file=str(path)).arguments("test")
    assert found == {"bad_words_ids": [[0], [4], [5, 6], [7]]}, "those of the model stay"
    record = rules_record(RuleArguments(avoid_words=["a"], avoid_file=str(path)))
    assert record == {"avoid_words": ["a"], "avoid_file": "words.txt"}


def test_allowed_outputs_are_those_of_the_file(rules, tmp_path):
    path = tmp_path / "outputs.txt"
    path.write_text("a b\na c d\n", encoding="utf-8")
    allowed = rules({}, allowed_outputs_file=str(path)).settings["prefix_allowed_tokens_fn"]

    class Written(list):
        tolist = list.copy

    assert [allowed(0, Written([1, *prefix])) for prefix in ([], [4], [4, 5], [4, 6])] == [
        [4],
        [5, 6],
        [2],
        [7],
    ]


@pytest.mark.parametrize(
    ("column", "options", "message"),
    [
        ({"x": ""}, {"must_include_column": "y"}, "there is no 'y'. Other columns: x"),
        ({}, {"must_include_column": "y"}, "Other columns: none besides source and target"),
        ({"y": 3}, {"must_include_column": "y"}, r"'y' of the row with source 's0' holds 3"),
        ({"y": ["a", 3]}, {"must_include_column": "y"}, "texts or lists of texts, but 'y'"),
        ({"y": "a; z"}, {"must_include_column": "y"}, "with source 's0': A phrase must .* 'z'"),
        ({}, {"must_include": ["a b c", "d e f"]}, "into an output of 5 tokens.*have 6"),
        ({}, {"must_include": ["a b c"], "avoid_words": ["b c"]}, "'a b c' holds 'b c', which"),
        ({}, {"avoid_words": ["z"]}, "avoid_words: A phrase must consist of tokens"),
    ],
)
def test_rules_that_no_output_can_keep_are_refused(rules, column, options, message):
    with pytest.raises(ValueError, match=message):
        rules(column, **options)


def test_allowed_outputs_that_are_too_long_are_refused(rules, tmp_path):
    path = tmp_path / "outputs.txt"
    path.write_text("a\na b c d e\n", encoding="utf-8")
    with pytest.raises(ValueError, match="end after 5 tokens, but 'a b c d e' has 6"):
        rules({}, allowed_outputs_file=str(path))
    assert rules({}, allowed_outputs_file=str(path), max_length=7)


@pytest.mark.parametrize(
    ("options", "samples", "message"),
    [
        ({"must_include": ["a"]}, True, "from samples, which must_include cannot steer"),
        ({"must_include_column": "y"}, True, "which must_include_column cannot steer"),
        ({"allowed_outputs_file": "f", "avoid_words": ["a"]}, False, "so avoid_words has no"),
        ({"allowed_outputs_file": "f", "must_include": ["a"]}, False, "so must_include has no"),
        ({"phrase_separator": ""}, False, "phrase_separator must be a text, got ''"),
    ],
)
def test_rules_that_exclude_one_another_are_refused(options, samples, message):
    with pytest.raises(ValueError, match=message):
        check_rules(RuleArguments(**options), samples=samples)
