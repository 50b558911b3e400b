"""The demo on a handful of dates and on pairs of one's own."""

import re

import demo
import pytest
from run_seq2seq import prepare

QUICK = ["--max_steps", "4", "--eval_steps", "4", "--save_steps", "4", "--use_cpu"]
QUICK += ["--disable_tqdm", "true", "--config_overrides", "embedding_size=8,hidden_size=12"]
QUICK += ["--logging_steps", "2"]


@pytest.fixture
def shown(tmp_path, capsys):
    """What the demo prints for a few dates."""
    folder = tmp_path / "demo"
    record = demo.main(["--num_dates", "300", "30", "90", "--output_dir", str(folder), *QUICK])
    return folder, record, capsys.readouterr().out


def test_the_demo_shows_scores_examples_pictures_and_use(shown):
    folder, record, text = shown
    assert len(re.findall(r"[a-z]{2}_[A-Z]{2} +\d+\.\d\d %", text)) == 20  # each locale
    assert f"overall  {record['test']['exact_match']:6.2f} %" in text
    examples = re.findall(
        r"^  <([a-z]{2}_[A-Z]{2})> .*  ->  .*\((?:right|WRONG)", text, re.MULTILINE
    )
    assert len(examples) == 10
    assert len(set(examples)) == 10  # spread over the locales
    assert len(re.findall(r"^ {6}\s*[\d.e-]+  ", text, re.MULTILINE)) == 30  # three hypotheses each
    assert f"Alignments: {folder / 'alignments.png'}" in text
    assert f"in a browser: {folder / 'alignments.html'}" in text


def test_the_printed_lines_load_the_model(shown):
    text = shown[2]
    lines = [line.strip() for line in text.splitlines()[-3:]]
    names = {}
    exec("\n".join(lines), names)
    batch = names["tokenizer"](["<en_US> 3/4/21"], return_tensors="pt")
    assert batch["input_ids"].shape == (1, 9)  # the tag, a blank is a token too, and the end
    assert names["model"].generate(**batch).shape[0] == 1


def test_the_demo_takes_pairs_of_ones_own(pair_files, tmp_path, capsys):
    folder = tmp_path / "mine"
    files = ["--train_file", pair_files["train"], "--test_file", pair_files["test"]]
    record = demo.main([*files, "--output_dir", str(folder), *QUICK])
    text = capsys.readouterr().out
    assert record["data"]["train"]["rows"] + record["data"]["validation"]["rows"] == 45
    assert "Exact match on 8 test items" in text
    assert text.count("  ->  ") == 8


def test_the_demo_repeats_itself_in_its_own_folder(pair_files, tmp_path):
    options = ["--train_file", pair_files["train"], "--output_dir", str(tmp_path / "d"), *QUICK]
    demo.main(options)
    assert demo.main(options)["train"]["resumed_at_step"] == 0


def test_a_test_file_alone_is_refused():
    with pytest.raises(ValueError, match="a test file alone cannot be learned from"):
        demo.main(["--test_file", "x.tsv"])


def test_every_locale_tag_is_one_token(tmp_path):
    options = demo.date_options(tmp_path / "data", [100, 20, 20])
    run = prepare([str(demo.RECIPE), *options, "--output_dir", str(tmp_path / "run"), "--use_cpu"])
    for locale in demo.DATE_LOCALES:
        assert run.tokenizer(f"<{locale}>")["input_ids"][1:] == [2]
