"""Evaluation of trained models: the figures of the run itself, and those of an ensemble."""

import json
import shutil

import numpy as np
import pytest
import torch
from evaluate_seq2seq import main, prepare
from run_seq2seq import main as train
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, set_seed

from hf_seqmodels.data import read_pharaoh, train_tokenizer
from hf_seqmodels.decoding import decode_minimum_risk, encode_bad_words, replace_unknown_words
from hf_seqmodels.evaluation import EnsembleForSeq2SeqLM, alignments, decode_corpus, n_best
from read_alignment_page import Page
from tiny_encoder_decoders import make_rnn, make_tokenizer


@pytest.fixture(scope="module")
def trained(shared_options):
    """The record of a run with beams."""
    options = ("--num_beams", "3", "--length_penalty", "0.5", "--metrics", "exact_match", "cer")
    return train(shared_options(*options, name="first"))


@pytest.fixture(scope="module")
def folders(trained, shared_options, tmp_path_factory):
    """Two checkpoints with one pair of tokenizers: that of the run, and one shaken from it."""
    argv = shared_options(name="first")
    first = argv[argv.index("--output_dir") + 1]
    second = str(tmp_path_factory.mktemp("models") / "second")
    shutil.copytree(first, second)
    model = AutoModelForSeq2SeqLM.from_pretrained(first)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(second)
    return [first, second]


def read_predictions(folder):
    with (folder / "predictions.jsonl").open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_a_single_model_has_the_figures_of_its_run(trained, folders, pair_files, tmp_path):
    record = main(
        [
            *("--model_name_or_path", folders[0], "--output_dir", str(tmp_path / "out")),
            *("--validation_file", pair_files["validation"], "--test_file", pair_files["test"]),
            *("--metrics", "exact_match", "cer", "--per_device_eval_batch_size", "5"),
        ]
    )
    for part in ("validation", "test"):
        for name in ("exact_match", "cer", "item_error_rate"):
            assert record[part][name] == pytest.approx(trained[part][name])
    assert record["decoding"] == trained["decoding"]  # kept in the checkpoint
    assert record["data"]["test"] == trained["data"]["test"]
    assert json.loads((tmp_path / "out" / "metrics.json").read_text(encoding="utf-8")) == record
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "metrics.json",
        "predictions.jsonl",
    ]


def test_several_models_are_an_ensemble(folders, pair_files, tmp_path):
    record = main(
        [
            *("--model_name_or_path", *folders, "--output_dir", str(tmp_path)),
            *("--test_file", pair_files["test"], "--num_beams", "4", "--length_penalty", "1"),
            *("--num_return_sequences", "2", "--max_target_length", "6"),
        ]
    )
    rows = read_predictions(tmp_path)
    model = EnsembleForSeq2SeqLM([AutoModelForSeq2SeqLM.from_pretrained(name) for name in folders])
    tokenizer = AutoTokenizer.from_pretrained(folders[0])
    sources = [row["source"] for row in rows]
    settings = {"num_beams": 4, "length_penalty": 1.0, "max_new_tokens": 6, "progress": False}
    assert [row["prediction"] for row in rows] == decode_corpus(
        model, tokenizer, sources, **settings
    )
    lists = n_best(model, tokenizer, sources, num_return_sequences=2, **settings)
    for row, expected in zip(rows, lists, strict=True):
        found = [entry["score"] for entry in row["n_best"]]
        assert found == pytest.approx([one.score for one in expected], abs=1e-5)
    assert record["model_types"] == ["seqmodels_rnn_seq2seq"] * 2
    assert record["decoding"] == {"num_beams": 4, "length_penalty": 1.0, "max_length": 7}
    assert record["num_parameters"] == 2 * model.members[0].num_parameters()
    assert 0 <= record["test"]["exact_match"] <= 100


def test_outputs_are_those_of_the_search_that_was_asked_for(folders, pair_files, tmp_path):
    model = AutoModelForSeq2SeqLM.from_pretrained(folders[0])
    tokenizer = AutoTokenizer.from_pretrained(folders[0])

    def predictions(name, *words):
        argv = [
            *("--model_name_or_path", folders[0], "--output_dir", str(tmp_path / name)),
            *("--test_file", pair_files["test"], "--max_target_length", "6", *words),
        ]
        record = main(argv)
        rows = read_predictions(tmp_path / name)
        return (
            record["decoding"],
            [row["source"] for row in rows],
            [row["prediction"] for row in rows],
        )

    settings = {"coverage_penalty": 0.2, "length_normalization": "gnmt", "num_beam_groups": 2}
    settings |= {"diversity_penalty": 0.5, "num_beams": 4, "length_penalty": 0.5}
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    decoding, sources, texts = predictions("beams", *words, "--replace_unknown")
    assert decoding == settings | {"max_length": 7, "replace_unknown": True}
    quiet = {"max_new_tokens": 6, "progress": False}
    assert texts == replace_unknown_words(model, tokenizer, sources, **settings, **quiet)
    letter = max("".join(texts), key="".join(texts).count)
    decoding, _, texts = predictions(
        "risk", "--minimum_risk", "edit", "--num_candidates", "4", "--avoid_words", letter
    )
    assert decoding["minimum_risk"] == "edit" and decoding["num_candidates"] == 4
    set_seed(1)
    choices = decode_minimum_risk(
        model,
        tokenizer,
        sources,
        utility="edit",
        num_candidates=4,
        batch_size=64,
        bad_words_ids=encode_bad_words(tokenizer, [letter]),
        **quiet,
    )
    assert texts == [choice.text for choice in choices]
    assert letter not in "".join(texts)


def test_outputs_keep_the_rules_of_their_rows(folders, tmp_path):
    data = tmp_path / "terms.jsonl"
    terms = [["ce"], [], ["a", "dd"], None]
    rows = [{"source": "abcd"[:n] + "e", "target": "x", "terms": terms[n]} for n in range(4)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    shared = ["--model_name_or_path", folders[0], "--test_file", str(data)]
    shared += ["--max_target_length", "6", "--num_beams", "4", "--length_penalty", "1"]
    record = main(
        [
            *(*shared, "--output_dir", str(tmp_path / "include"), "--must_include", "b"),
            *("--must_include_column", "terms", "--avoid_words", "ca"),
        ]
    )
    texts = [row["prediction"] for row in read_predictions(tmp_path / "include")]
    for text, phrases in zip(texts, terms, strict=True):
        assert all(phrase in text for phrase in ["b", *(phrases or [])]) and "ca" not in text
    tokenizer = AutoTokenizer.from_pretrained(folders[0])
    assert texts == decode_corpus(
        AutoModelForSeq2SeqLM.from_pretrained(folders[0]),
        tokenizer,
        [row["source"] for row in rows],
        must_include=[["b", *(phrases or [])] for phrases in terms],
        bad_words_ids=encode_bad_words(tokenizer, ["ca"]),
        num_beams=4,
        length_penalty=1.0,
        max_new_tokens=6,
        progress=False,
    )
    rules = {"must_include": ["b"], "must_include_column": "terms", "avoid_words": ["ca"]}
    assert record["decoding"].items() >= rules.items()
    allowed = tmp_path / "allowed.txt"
    allowed.write_text("aaa\nbab\nebb\n", encoding="utf-8")
    main([*shared, "--output_dir", str(tmp_path / "list"), "--allowed_outputs_file", str(allowed)])
    texts = {row["prediction"] for row in read_predictions(tmp_path / "list")}
    assert texts <= {"aaa", "bab", "ebb"}


def test_alignments_are_those_of_the_outputs(folders, pair_files, tmp_path):
    argv = ["--model_name_or_path", folders[0], "--test_file", pair_files["test"]]
    argv += ["--num_beams", "3", "--length_penalty", "1", "--max_target_length", "6"]
    argv += ["--coverage_penalty", "0.2", "--output_dir", str(tmp_path)]
    main(argv)
    plain = read_predictions(tmp_path)
    argv += ["--overwrite_output_dir", "--num_alignments", "3", "--pharaoh", "tokens"]
    main([*argv, "--num_return_sequences", "2"])
    rows = read_predictions(tmp_path)
    assert [row["prediction"] for row in rows] == [row["prediction"] for row in plain]
    model = AutoModelForSeq2SeqLM.from_pretrained(folders[0])
    tokenizer = AutoTokenizer.from_pretrained(folders[0])
    sources = [row["source"] for row in rows]
    search = {"num_beams": 3, "max_new_tokens": 6, "coverage_penalty": 0.2, "progress": False}
    ids = [one[0].token_ids for one in n_best(model, tokenizer, sources, **search)]
    items = alignments(model, tokenizer, sources, ids, progress=False)
    assert read_pharaoh(tmp_path / "alignments.pharaoh") == [item.links() for item in items]
    page = Page((tmp_path / "alignments.html").read_text(encoding="utf-8"))
    for pair, place in enumerate((0, 2, 4)):  # three of eight
        assert page.tokens(pair) == (items[place].source_tokens, items[place].target_tokens)
        np.testing.assert_allclose(page.weights(pair), items[place].weights, atol=6e-5)
    assert len(page.pairs) == 3 and (tmp_path / "alignments.png").exists()
    argv = [*argv[: argv.index("--num_alignments")], "--minimum_risk", "edit"]
    argv = [word for word in argv if word not in ("--coverage_penalty", "0.2")]
    main([*argv, "--num_candidates", "2", "--pharaoh", "words", "--pharaoh_threshold", "0.2"])
    texts = [row["prediction"] for row in read_predictions(tmp_path)]
    items = alignments(model, tokenizer, sources, texts, progress=False)
    links = [item.merge_words().links(threshold=0.2) for item in items]
    assert read_pharaoh(tmp_path / "alignments.pharaoh") == links
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"metrics.json", "predictions.jsonl", "alignments.pharaoh"}, "nothing is stale"


def test_a_model_without_attention_has_no_alignments_to_write(pair_files, tmp_path):
    make_rnn(attention_scorer=None).save_pretrained(tmp_path / "model")
    make_tokenizer().save_pretrained(tmp_path / "model")
    argv = ["--model_name_or_path", str(tmp_path / "model"), "--test_file", pair_files["test"]]
    with pytest.raises(ValueError, match=r"returned none.*attention_scorer=None"):
        prepare([*argv, "--output_dir", str(tmp_path / "out"), "--pharaoh", "tokens"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--num_alignments", "-1"], "num_alignments must be at least 0, got -1"),
        (["--pharaoh", "words", "--pharaoh_threshold", "1.5"], "at most 1, got 1.5"),
        (["--pharaoh_threshold", "0.5"], "Pass --pharaoh tokens or --pharaoh words, too"),
        (["--minimum_risk", "chrf", "--must_include", "a"], "which must_include cannot steer"),
        (["--minimum_risk", "chrf", "--coverage_penalty", "0.2"], "so coverage_penalty has no"),
        (["--minimum_risk", "chrf", "--replace_unknown"], "so replace_unknown has no effect"),
        (["--replace_unknown", "--num_return_sequences", "2"], "changes the best output alone"),
    ],
)
def test_searches_that_exclude_one_another_are_refused(folders, tmp_path, words, message):
    argv = ["--model_name_or_path", folders[0], "--output_dir", str(tmp_path / "out")]
    with pytest.raises(ValueError, match=message):
        prepare([*argv, "--test_file", "missing.tsv", *words])


def test_options_that_cannot_work_are_refused(folders, pair_files, tmp_path):
    output = ("--output_dir", str(tmp_path / "out"))
    data = ("--test_file", pair_files["test"])
    model = ("--model_name_or_path", folders[0])
    for argv, reason in (
        ((*output, *data), "no model: pass --model_name_or_path"),
        ((*output, *model), "no data: pass"),
        ((*model, *data), "output_dir must be given"),
        ((*model, *data, "--output_dir", folders[0]), "files that no evaluation has written"),
        ((*model, *data, "--output_dir", pair_files["test"]), "must be a folder, but"),
        ((*model, *data, *output, "--num_beam", "2"), "did you mean num_beams"),
        ((*model, *data, *output, "--num_train_epochs", "2"), "unknown options"),
        ((*model, *data, *output, "--num_return_sequences", "9"), "must not exceed num_beams"),
        ((*data, *output, "--model_name_or_path", "nowhere/at/all"), "cannot load"),
    ):
        with pytest.raises(ValueError, match=reason):
            prepare(list(argv))
    assert not (tmp_path / "out").exists()


def test_figures_are_replaced_only_on_request(folders, pair_files, tmp_path):
    argv = [
        *("--model_name_or_path", folders[0], "--output_dir", str(tmp_path)),
        *("--test_file", pair_files["test"], "--num_beams", "1"),
    ]
    main(argv)
    with pytest.raises(ValueError, match=r"finished evaluation.*overwrite_output_dir"):
        main(argv)
    record = main([*argv, "--overwrite_output_dir", "--max_predict_samples", "3"])
    assert record["data"]["test"]["rows"] == len(read_predictions(tmp_path)) == 3


def test_models_with_other_tokenizers_are_refused(folders, pair_files, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(folders[1], other)
    tokenizer = AutoTokenizer.from_pretrained(folders[1])
    swapped = type(tokenizer).from_pair(
        train_tokenizer(["e d c b a"], model="char"), tokenizer.target_tokenizer
    )
    swapped.save_pretrained(other)
    with pytest.raises(ValueError, match="must share the source tokenizer"):
        prepare(
            [
                *("--model_name_or_path", folders[0], str(other)),
                *("--test_file", pair_files["test"], "--output_dir", str(tmp_path / "out")),
            ]
        )
