"""The demo of language models, for a handful of steps."""

import demo_lm

QUICK = ["--max_steps", "4", "--eval_steps", "4", "--save_steps", "4", "--use_cpu"]
QUICK += ["--disable_tqdm", "true", "--logging_steps", "2", "--block_size", "24"]
QUICK += ["--config_overrides", "hidden_size=8,num_hidden_layers=1,num_attention_heads=2"]
QUICK += ["--sample_tokens", "6", "--max_eval_documents", "1"]


def test_the_demo_shows_figures_samples_and_use(tmp_path, capsys):
    folder = tmp_path / "demo"
    record = demo_lm.main(["--output_dir", str(folder), *QUICK, "--max_train_documents", "9"])
    text = capsys.readouterr().out
    assert f"perplexity {record['validation']['perplexity']:.2f}" in text
    for method in ("greedy", "top-k 20", "top-p 0.9", "temperature 0.8"):
        assert f"[{method}: log-probability -" in text
    assert f"Learning curve: {folder / 'learning_curve.png'}" in text
    lines = [line.strip() for line in text.splitlines()[-3:]]
    names = {}
    exec("\n".join(lines), names)
    batch = names["tokenizer"](["The "], return_tensors="pt")
    assert names["model"].generate(**batch).shape[1] > 4


def test_the_demo_takes_a_text_of_ones_own(tmp_path, capsys):
    book = tmp_path / "book.txt"
    book.write_text("Once upon a time\nthere was a test.\n" * 40)
    folder = tmp_path / "mine"
    record = demo_lm.main(["--train_file", str(book), "--output_dir", str(folder), *QUICK])
    assert record["data"]["train"]["rows"] == 1
    assert "held out from the end" in record["data"]["validation"]["name"]
    assert "going on from" in capsys.readouterr().out
