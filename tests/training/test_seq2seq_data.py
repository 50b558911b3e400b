"""Tags, held-out sources, several references, cutting: the data of a run."""

import json

import datasets
import pytest
from script_models import ModelArguments
from seq2seq_arguments import DataTrainingArguments
from seq2seq_data import (
    Example,
    encode_pairs,
    group_by_source,
    load_corpus,
    one_target_each,
    split_by_source,
)
from seq2seq_model import load_or_train_tokenizer

ROWS = [
    {"lemma": "go", "form": "went", "features": "V;PST"},
    {"lemma": "go", "form": "goes", "features": "V;PRS;3"},
    {"lemma": "cat", "form": "cats", "features": "N;PL"},
]


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def inflection(tmp_path):
    return DataTrainingArguments(
        train_file=write_rows(tmp_path / "train.jsonl", ROWS),
        test_file=write_rows(tmp_path / "test.jsonl", ROWS[1:]),
        source_column="lemma",
        target_column="form",
        tag_columns=["features"],
        validation_split=0,
    )


def test_tags_stand_before_the_source(inflection):
    corpus = load_corpus(inflection)
    sources = [example.source for example in corpus.train]
    assert sources == ["<V><PST>go", "<V><PRS><3>go", "<N><PL>cat"]
    assert corpus.tags == ["<3>", "<N>", "<PL>", "<PRS>", "<PST>", "<V>"]


def test_each_tag_is_one_token_of_the_source_side(inflection):
    corpus = load_corpus(inflection)
    tokenizer = load_or_train_tokenizer(ModelArguments(), inflection, corpus)
    ids = tokenizer("<V><PRS><3>go")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["<V>", "<PRS>", "<3>", "g", "o", "</s>"]
    assert "<V>" not in tokenizer.target_tokenizer.get_vocab()


def test_other_columns_stay_with_the_row(inflection):
    example = load_corpus(inflection).test[0]
    assert example.columns["features"] == "V;PRS;3"


def test_origins_name_the_files_without_their_folders(inflection):
    origins = load_corpus(inflection).origins
    assert origins["train"]["name"] == "train.jsonl"
    assert (origins["train"]["rows"], len(origins["train"]["sha256"])) == (3, 64)


def test_test_sources_seen_in_training_are_reported(inflection, caplog):
    load_corpus(inflection)
    assert "2 of 2 test sources also occur in the training data" in caplog.text


def test_held_out_sources_keep_all_their_rows_together():
    rows = [Example(f"s{n % 10}", [f"t{n}"]) for n in range(30)]
    stay, held_out = split_by_source(rows, 0.2)
    assert (len(stay), len(held_out)) == (24, 6)
    assert not {row.source for row in stay} & {row.source for row in held_out}
    assert [row.references[0] for row in stay] == sorted(
        (row.references[0] for row in stay), key=lambda text: int(text[1:])
    )


def test_the_same_sources_are_held_out_every_time():
    rows = [Example(f"s{n}", [f"t{n}"]) for n in range(30)]
    assert split_by_source(rows, 5) == split_by_source(rows, 5)
    assert len(split_by_source(rows, 5)[1]) == 5


@pytest.mark.parametrize("size", [3, 1.5, -0.1, 7])
def test_a_split_must_leave_rows_on_both_sides(size):
    rows = [Example("a", ["x"]), Example("b", ["y"]), Example("c", ["z"])]
    if size == 1.5:
        assert len(split_by_source(rows, size)[1]) == 1
        return
    with pytest.raises(ValueError, match=f"got {size:g} of 3 distinct training sources"):
        split_by_source(rows, size)


def test_references_of_one_source_are_gathered_without_doubles():
    rows = [Example("a", ["x"], {"n": 1}), Example("b", ["y"]), Example("a", ["z", "x"])]
    assert group_by_source(rows) == [Example("a", ["x", "z"], {"n": 1}), Example("b", ["y"])]


def test_training_rows_have_one_target_each():
    rows = one_target_each([Example("a", ["x", "y"]), Example("b", ["z"])])
    assert [(row.source, row.references) for row in rows] == [
        ("a", ["x"]),
        ("a", ["y"]),
        ("b", ["z"]),
    ]


def test_any_reference_counts_in_the_scores():
    from run_report import corpus_scores

    examples = [Example("a", ["x y", "y x"]), Example("b", ["z"])]
    scores, signatures = corpus_scores(["exact_match", "per", "bleu"], ["y x", "w"], examples)
    assert (scores["exact_match"], scores["item_error_rate"]) == (50.0, 50.0)
    assert scores["per"] == pytest.approx(100 / 3)
    assert signatures["bleu"].startswith("nrefs:")


def test_samples_are_limited_part_by_part(inflection):
    inflection.max_train_samples, inflection.max_predict_samples = 2, 1
    corpus = load_corpus(inflection)
    assert (len(corpus.train), len(corpus.test)) == (2, 1)


def test_cut_rows_are_counted_and_still_end_with_the_end_token(inflection, caplog):
    corpus = load_corpus(inflection)
    tokenizer = load_or_train_tokenizer(ModelArguments(), inflection, corpus)
    rows = encode_pairs(corpus.train, tokenizer, max_source_length=4, max_target_length=3)
    assert [len(ids) for ids in rows["input_ids"]] == [4, 4, 4]
    assert all(ids[-1] == tokenizer.eos_token_id for ids in rows["input_ids"])
    assert rows["attention_mask"] == [[1] * 4] * 3
    assert "3 of 3 training sources have more than 4 tokens and are cut" in caplog.text
    assert "3 of 3 training targets have more than 3 tokens and are cut" in caplog.text


def test_a_dataset_by_name_reads_like_files(tmp_path):
    rows = [{"en": f"cat {n}", "de": f"Katze {n}"} for n in range(6)]
    folder = tmp_path / "pairs"
    folder.mkdir()
    write_rows(folder / "train.jsonl", [{"translation": row} for row in rows[:4]])
    write_rows(folder / "test.jsonl", [{"translation": row} for row in rows[4:]])
    options = DataTrainingArguments(
        dataset_name=str(folder), source_lang="en", target_lang="de", validation_split=1
    )
    corpus = load_corpus(options)
    assert [row.source for row in corpus.test] == ["cat 4", "cat 5"]
    assert corpus.test[0].references == ["Katze 4"]
    assert (len(corpus.train), len(corpus.validation)) == (3, 1)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"source_column": "english"}, "has no column english or target; it has en, de"),
        ({"source_lang": "en", "target_lang": "de"}, "has no column translation.en"),
    ],
)
def test_missing_columns_of_a_dataset_are_named(tmp_path, columns, message):
    folder = tmp_path / "pairs"
    folder.mkdir()
    write_rows(folder / "train.jsonl", [{"en": "cat", "de": "Katze"}])
    options = DataTrainingArguments(dataset_name=str(folder), **columns)
    with pytest.raises(ValueError, match=message):
        load_corpus(options)


def test_a_dataset_that_cannot_be_loaded_is_named(tmp_path):
    options = DataTrainingArguments(dataset_name=str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"dataset_name: cannot load .*nowhere"):
        load_corpus(options)


def test_a_prefix_is_encoded_with_the_source(inflection):
    corpus = load_corpus(inflection)
    tokenizer = load_or_train_tokenizer(ModelArguments(), inflection, corpus)
    rows = encode_pairs(corpus.train[:1], tokenizer, source_prefix="tac: ")
    assert isinstance(rows, datasets.Dataset)
    plain = tokenizer(corpus.train[0].source)["input_ids"]
    assert rows["input_ids"][0][-len(plain) :] == plain
    assert len(rows["input_ids"][0]) > len(plain)
