"""run_mlm.py from end to end: what a run writes, that it resumes exactly, and what is refused."""

import json
import math

import pytest
import torch
from huggingface_hub import ModelCard
from mlm_arguments import DataTrainingArguments
from mlm_data import RowMaker
from mlm_samples import texts_with_a_mask
from run_mlm import main, prepare
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertForPreTraining,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaTokenizerFast,
    pipeline,
)

from hf_seqmodels.data import train_tokenizer

WORDS = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot"]
LINES = [f"The {a} {b} sees the {b}, {c}!" for a in WORDS for b in WORDS[:4] for c in WORDS[3:5]]
TINY = {
    "seqmodels_text_encoder": "hidden_size=16,num_hidden_layers=1,num_attention_heads=2",
    "bert": "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,intermediate_size=16",
}


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


@pytest.fixture(scope="module")
def text_files(tmp_path_factory):
    """Names of a training, a validation and a test file, a sentence a line."""
    folder = tmp_path_factory.mktemp("texts")
    parts = {"train": LINES[:36], "validation": LINES[36:42], "test": LINES[42:]}
    return {part: write(folder / f"{part}.txt", lines) for part, lines in parts.items()}


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Names of files with documents of four lines between blank lines."""
    folder = tmp_path_factory.mktemp("documents")
    parts = {"train": LINES[:36], "validation": LINES[36:]}
    return {
        part: write(
            folder / f"{part}.txt",
            [text for i in range(0, len(lines), 4) for text in [*lines[i : i + 4], ""]],
        )
        for part, lines in parts.items()
    }


def tiny_argv(files, output_dir, *more, model_type="seqmodels_text_encoder"):
    """Return the options of a run of a few steps; later options win."""
    model = ["--model_type", model_type, "--config_overrides", TINY.get(model_type)]
    return [
        *(model if model_type else ()),  # None is for a checkpoint
        *(word for part in files for word in (f"--{part}_file", files[part])),
        *("--max_seq_length", "16", "--use_cpu", "--seed", "3", "--disable_tqdm", "true"),
        *("--per_device_train_batch_size", "4", "--per_device_eval_batch_size", "2"),
        *("--learning_rate", "0.02", "--num_train_epochs", "2", "--logging_steps", "2"),
        *("--output_dir", str(output_dir), *more),
    ]


SMALL_TOKENIZER = ["--tokenizer_vocab_size", "90", "--lowercase"]


@pytest.fixture(scope="module")
def finished(text_files, tmp_path_factory):
    """The folder and the record of a finished run."""
    folder = tmp_path_factory.mktemp("runs") / "encoder"
    more = [*SMALL_TOKENIZER, "--num_train_epochs", "6", "--num_samples", "2"]
    return folder, main(tiny_argv(text_files, folder, *more))


def test_the_folder_holds_a_model_that_loads_and_its_report(finished):
    folder, record = finished
    names = {path.name for path in folder.iterdir()}
    assert names >= {"README.md", "metrics.json", "samples.jsonl", "learning_curve.png"}
    assert json.loads((folder / "metrics.json").read_text(encoding="utf-8")) == record
    card = ModelCard.load(folder / "README.md")
    assert {result.metric_type for result in card.data.eval_results} >= {"perplexity", "accuracy"}
    fill = pipeline("fill-mask", model=str(folder), top_k=5)
    samples = [json.loads(line) for line in (folder / "samples.jsonl").open(encoding="utf-8")]
    assert len(samples) == 2 and record["examples"][0] == [samples[0]["text"], samples[0]["filled"]]
    for sample in samples:
        found = fill(sample["text"])
        assert [item["token_str"] for item in found] == sample["tokens"]
        scores = [item["score"] for item in found]
        assert scores == pytest.approx(sample["probabilities"], abs=1e-5)


def test_figures_are_those_of_a_plain_loop_over_the_masked_rows(finished, text_files):
    folder, record = finished
    run = prepare(tiny_argv(text_files, folder.parent / "again", *SMALL_TOKENIZER))
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    nats, right, count = 0.0, 0, 0
    for row in run.rows["test"]:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([row["input_ids"]])).logits[0].double()
        for place, label in enumerate(row["labels"]):
            if label != -100:
                nats -= logits[place].log_softmax(-1)[label].item()
                right += int(logits[place].argmax() == label)
                count += 1
    found = record["test"]
    assert found["tokens"] == count
    assert found["loss"] == pytest.approx(nats / count, rel=1e-4)
    assert found["perplexity"] == pytest.approx(math.exp(nats / count), rel=1e-3)
    assert found["accuracy"] == pytest.approx(100 * right / count)
    assert found["loss"] < 0.8 * math.log(90)  # it has learned something


def test_packed_rows_hold_all_text_once_and_look_like_texts(text_files):
    tokenizer = train_tokenizer(LINES, model="wordpiece", style="bert", vocab_size=90)
    rows = list(RowMaker(DataTrainingArguments(), tokenizer, 16, 0)(LINES))
    assert all(len(row["input_ids"]) == 16 for row in rows[:-1])
    assert all(row["input_ids"][0] == 2 and row["input_ids"][-1] == 3 for row in rows)
    text = [token for row in rows for token in row["input_ids"] if token not in (2, 3)]
    encoded = tokenizer(LINES, add_special_tokens=False)["input_ids"]
    assert text == [token for ids in encoded for token in ids]
    inner = [token for row in rows for token in row["input_ids"][1:-1]]
    assert len(LINES) * 0.8 < inner.count(3) <= len(LINES) - 1  # between documents
    lines = RowMaker(DataTrainingArguments(line_by_line=True), tokenizer, 12, 0)
    assert [row["input_ids"] for row in lines(["", *LINES])] == [
        [2, *ids[:10], 3] for ids in encoded
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["group_by_length", "packed", "streaming"])
def test_an_interrupted_run_goes_on_as_if_nothing_had_been(kind, text_files, tmp_path):
    more = [*SMALL_TOKENIZER, "--save_strategy", "steps", "--save_steps", "2", "--num_samples", "0"]
    more += ["--eval_strategy", "no", "--load_best_model_at_end", "false"]
    if kind == "streaming":  # passes over its text once within the run
        more += ["--streaming", "--max_steps", "30", "--tokenizer_documents", "36"]
    elif kind == "group_by_length":
        more += ["--line_by_line", "--train_sampling_strategy", kind, "--whole_word_mask"]
    whole, halted = tmp_path / "whole", tmp_path / "halted"
    main(tiny_argv(text_files, whole, *more))
    stop = 27 if kind == "streaming" else 11  # in the second epoch
    run = prepare(tiny_argv(text_files, halted, *more))
    steps, taken = run.trainer.training_step, []

    def stop_in_step(*args, **kwargs):
        taken.append(1)
        if len(taken) == stop:
            raise KeyboardInterrupt
        return steps(*args, **kwargs)

    run.trainer.training_step = stop_in_step
    with pytest.raises(KeyboardInterrupt):
        run.trainer.train_from(None)
    record = main(tiny_argv(text_files, halted, *more))
    assert record["train"]["resumed_at_step"] == stop - stop % 2 - (stop % 2 == 0)
    weights = [AutoModelForMaskedLM.from_pretrained(path).state_dict() for path in (whole, halted)]
    for name in weights[0]:
        assert torch.equal(weights[0][name], weights[1][name]), name


def test_pairs_train_both_heads(documents, tmp_path):
    more = ["--next_sentence", "--text_unit", "paragraph", *SMALL_TOKENIZER]
    more += ["--max_seq_length", "32"]
    record = main(tiny_argv(documents, tmp_path / "run", *more, "--num_train_epochs", "1"))
    assert 0 <= record["validation"]["next_sentence_accuracy"] <= 100
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path / "run")
    assert type(loaded).__name__ == "TextEncoderForMaskedLM"
    run = prepare(tiny_argv(documents, tmp_path / "other", *more, model_type="bert"))
    assert isinstance(run.trainer.model, BertForPreTraining)
    labels = set(run.rows["train"]["next_sentence_label"])
    assert labels == {0, 1} and "token_type_ids" in run.rows["train"].column_names


def test_bert_has_the_loss_of_all_masked_tokens_of_a_step(documents, tmp_path):
    """Two batches at once give the gradient of one batch; transformers' own loss would not."""
    more = ["--next_sentence", "--text_unit", "paragraph", *SMALL_TOKENIZER]
    more += ["--max_seq_length", "32", "--max_steps", "1", "--eval_strategy", "no"]
    more += ["--load_best_model_at_end", "false", "--weight_decay", "0"]
    model = BertForPreTraining(
        BertConfig(
            vocab_size=90,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            hidden_dropout_prob=0,
            attention_probs_dropout_prob=0,
        )
    )
    model.save_pretrained(tmp_path / "bert")
    first = prepare(tiny_argv(documents, tmp_path / "x", *more, model_type="bert"))
    first.tokenizer.save_pretrained(tmp_path / "bert")
    more = [word for word in more if word not in SMALL_TOKENIZER]
    more += ["--model_name_or_path", str(tmp_path / "bert")]
    losses = []
    for size, steps in ((4, 1), (2, 2)):
        sizes = ["--per_device_train_batch_size", str(size)]
        sizes += ["--gradient_accumulation_steps", str(steps), "--logging_steps", "1"]
        run = prepare(tiny_argv(documents, tmp_path / f"run{size}", *more, *sizes, model_type=None))
        run.trainer.train_from(None)
        losses.append(run.trainer.state.log_history[0])
    assert losses[0]["grad_norm"] == pytest.approx(losses[1]["grad_norm"], rel=0.05)
    assert losses[0]["loss"] == pytest.approx(losses[1]["loss"], rel=0.01)


def test_a_roberta_checkpoint_goes_on(text_files, tmp_path):
    letters = sorted({letter for line in LINES for letter in line.replace(" ", "Ġ")})
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *letters]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = RobertaTokenizerFast(vocab=vocab, merges=[])
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=34,
    )
    for saved in (tokenizer, RobertaForMaskedLM(config)):
        saved.save_pretrained(tmp_path / "roberta")
    more = ["--model_name_or_path", str(tmp_path / "roberta"), "--whole_word_mask"]
    more += ["--max_seq_length", "32", "--pad_to_max_length", "--max_steps", "2"]
    record = main(tiny_argv(text_files, tmp_path / "run", *more, model_type=None))
    assert record["model_type"] == "roberta" and record["validation"]["tokens"] > 0
    with pytest.raises(ValueError, match="must not exceed the 32 tokens that the model can take"):
        prepare(
            tiny_argv(text_files, tmp_path / "no", *more, "--max_seq_length", "33", model_type=None)
        )
    with pytest.raises(ValueError, match=r"RobertaForMaskedLM has not both. Leave it out"):
        prepare(
            tiny_argv(
                text_files,
                tmp_path / "no",
                *more,
                "--next_sentence",
                "--text_unit",
                "file",
                model_type=None,
            )
        )


def test_masked_samples_hide_one_known_word():
    tokenizer = train_tokenizer(LINES, model="wordpiece", style="bert", vocab_size=120)
    texts = texts_with_a_mask(["", "a, b", *LINES], tokenizer, 3)
    assert len(texts) == 3
    for text in texts:
        before, after = text.split("[MASK]")
        assert any(line.startswith(before) and line.endswith(after) for line in LINES)
    assert texts_with_a_mask(LINES, tokenizer, 0) == []


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--mlm_probability", "0"], "mlm_probability must be above 0 and at most 1, got 0"),
        (["--random_replace_prob", "0.5"], "should not exceed 1"),
        (["--max_seq_length", "2"], "max_seq_length must be at least 3, got 2"),
        (["--next_sentence"], "text_unit is 'line'. Pass --text_unit paragraph"),
        (["--next_sentence", "--line_by_line"], "Leave line_by_line and streaming out"),
        (["--streaming"], "Pass --max_steps"),
        (["--sample_texts", "no mask"], r"must hold the mask token \[MASK\], got 'no mask'"),
        (["--next_sentence", "--text_unit", "file"], "must be 2 documents at least, got 1"),
        (["--model_type", "seqmodels_decoder_lm"], "a registered masked language model"),
        (["--config_overrides", "max_position_embeddings=8"], "must not exceed the 8 tokens"),
    ],
)
def test_contradictions_are_refused_before_anything_is_written(text_files, tmp_path, more, message):
    with pytest.raises(ValueError, match=message):
        prepare(tiny_argv(text_files, tmp_path / "run", *SMALL_TOKENIZER, *more))
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_without_a_mask_is_refused(text_files, tmp_path):
    train_tokenizer(LINES, model="word").save_pretrained(tmp_path / "words")
    options = ["--tokenizer_name", str(tmp_path / "words")]
    with pytest.raises(ValueError, match=r"needs a mask token, but .* has none. Leave"):
        prepare(tiny_argv(text_files, tmp_path / "run", *options))
