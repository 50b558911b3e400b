"""run_clm.py from end to end: what a run writes, that it works, and what is refused."""

import json
import math

import pytest
import run_clm
import torch
from clm_arguments import DataTrainingArguments
from clm_data import encode_documents, training_rows
from clm_samples import default_prompts, draw_samples, sampling_methods
from huggingface_hub import ModelCard
from run_clm import main, prepare
from text_corpus import split_off_end
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from hf_seqmodels.data import train_tokenizer

LINES = [f"the {a} {b} sees the {b} {c}" for a in "abcd" for b in "efg" for c in "hij"]
TINY = {
    "seqmodels_decoder_lm": "hidden_size=16,num_hidden_layers=1,num_attention_heads=2",
    "seqmodels_rnn_lm": "hidden_size=16,embedding_size=12,num_hidden_layers=1",
    "gpt2": "n_embd=16,n_layer=1,n_head=2",
}


@pytest.fixture(scope="module")
def text_files(tmp_path_factory):
    """Names of a training, a validation and a test file, a sentence a line."""
    folder = tmp_path_factory.mktemp("texts")
    parts = {"train": LINES[:26], "validation": LINES[26:31], "test": LINES[31:]}
    for part, lines in parts.items():
        (folder / f"{part}.txt").write_text("".join(f"{line}\n" for line in lines))
    return {part: str(folder / f"{part}.txt") for part in parts}


def tiny_argv(files, output_dir, *more, model_type="seqmodels_decoder_lm"):
    """Return the options of a run of a few steps; later options win."""
    return [
        *("--model_type", model_type, "--config_overrides", TINY[model_type]),
        *(word for part in files for word in (f"--{part}_file", files[part])),
        *("--tokenizer_model", "word", "--block_size", "12", "--use_cpu", "--seed", "3"),
        *("--per_device_train_batch_size", "4", "--per_device_eval_batch_size", "2"),
        *("--learning_rate", "0.02", "--num_train_epochs", "2", "--logging_steps", "2"),
        *("--disable_tqdm", "true", "--sample_tokens", "5", "--num_samples", "1"),
        *("--output_dir", str(output_dir), *more),
    ]


@pytest.fixture(scope="module", params=TINY)
def finished(request, text_files, tmp_path_factory):
    """A finished run of each kind of model: its folder and its record."""
    folder = tmp_path_factory.mktemp("runs") / request.param
    stateful = ["--stateful"] if request.param == "seqmodels_rnn_lm" else []
    return folder, main(tiny_argv(text_files, folder, *stateful, model_type=request.param))


def test_the_folder_holds_a_model_that_loads_and_its_report(finished):
    folder, record = finished
    names = {path.name for path in folder.iterdir()}
    assert names >= {"README.md", "metrics.json", "samples.jsonl", "learning_curve.png"}
    assert "_unfinished" not in names
    assert json.loads((folder / "metrics.json").read_text(encoding="utf-8")) == record
    model, tokenizer = (
        auto.from_pretrained(folder) for auto in (AutoModelForCausalLM, AutoTokenizer)
    )
    assert model.config.vocab_size == len(tokenizer)
    card = ModelCard.load(folder / "README.md")
    assert {result.metric_type for result in card.data.eval_results} >= {"perplexity"}
    prompt, text = record["examples"][0]
    written = model.generate(**tokenizer([prompt], return_tensors="pt"))
    assert tokenizer.batch_decode(written, skip_special_tokens=True) == [text]
    assert text.startswith(prompt)


def test_every_token_of_the_text_is_scored_once(finished, text_files):
    folder, record = finished
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with open(text_files["test"], encoding="utf-8") as file:
        text = file.read()
    ids = [2]  # the text before this one has ended
    for line in text.splitlines():
        ids += [*tokenizer(line)["input_ids"], 2]
    assert record["test"]["tokens"] == len(ids) - 1
    nats = 0.0
    for end in range(1, len(ids)):  # one token at a time, from what its window shows
        start = 0 if folder.name == "seqmodels_rnn_lm" else window_start(end, len(ids))
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids[start:end]])).logits[0, -1]
        nats -= logits.double().log_softmax(-1)[ids[end]].item()
    assert record["test"]["loss"] == pytest.approx(nats / (len(ids) - 1), rel=1e-4)
    assert record["test"]["perplexity"] == pytest.approx(math.exp(nats / (len(ids) - 1)), rel=1e-3)
    bits = nats / math.log(2)
    assert record["test"]["bits_per_byte"] == pytest.approx(bits / len(text.encode()), rel=1e-4)


def window_start(target, length, width=12, stride=6):
    """Where the first of the windows begins that hold a token of a text of some length."""
    ends = [*range(width, length, stride), length]
    return next(end for end in ends if end > target) - width


def test_samples_hold_the_models_own_probabilities():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=11, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    model = GPT2LMHeadModel(config).eval()
    tokenizer = train_tokenizer(["abcdefg"], model="char", append_eos=False)
    methods = sampling_methods(temperature=0.5, top_k=2, top_p=0.7)
    samples = draw_samples(model, tokenizer, [[4, 5, 6]], methods, num_tokens=40)
    assert [sample["method"] for sample in samples] == [
        *("greedy", "top-k 2", "top-p 0.7", "temperature 0.5")
    ]
    for sample in samples:
        assert sample["prompt"] == "abc"
        assert 0 < sample["num_tokens"] <= 13  # what the positions have room for
    greedy = samples[0]
    with torch.no_grad():
        ids = model.generate(torch.tensor([[4, 5, 6]]), max_length=16, do_sample=False)
        chosen = model(ids).logits.log_softmax(-1)[0, 2:-1].gather(-1, ids[0, 3:, None])
    assert greedy["num_tokens"] == ids.shape[1] - 3
    assert greedy["log_probability"] == pytest.approx(chosen.sum().item(), abs=1e-4)


def test_prompts_are_the_beginnings_of_texts_spread_over_the_corpus():
    tokenizer = train_tokenizer(LINES, model="word")
    prompts = default_prompts(["", *LINES], tokenizer, 3)
    assert len(prompts) == 3
    assert tokenizer.decode(prompts[0]).strip() == " ".join(LINES[0].split()[:3])
    assert default_prompts(["the"], tokenizer, 3) == [tokenizer("the")["input_ids"][:1]]


@pytest.mark.parametrize("packing", ["concatenate", "separate", "none"])
def test_rows_follow_the_packing(packing):
    documents = [[5, 6, 7, 2], [2], [8, 9, 2]]
    rows = list(training_rows(documents, DataTrainingArguments(packing=packing), 6))
    expected = {
        "concatenate": [[5, 6, 7, 2, 2, 8], [9, 2]],
        "separate": [[5, 6, 7, 2, 2, 8], [9, 2]],
        "none": [[5, 6, 7, 2], [8, 9, 2]],
    }
    assert [row["input_ids"] for row in rows] == expected[packing]
    assert all(("position_ids" in row) == (packing == "separate") for row in rows)


def test_documents_end_with_one_end_token_whatever_the_tokenizer_does():
    for append_eos in (True, False):
        tokenizer = train_tokenizer(["ab"], model="char", append_eos=append_eos)
        encoded = list(encode_documents(["ab", "", "b"] * 700, tokenizer))
        assert len(encoded) == 2100
        assert encoded[:3] == [[4, 5, 2], [2], [5, 2]]


def test_validation_text_is_split_off_the_end():
    assert split_off_end(["a", "b", "c", "d"], 0.25) == (["a", "b", "c"], ["d"])
    assert split_off_end(["abcdefghij"], 0.2) == (["abcdefgh"], ["ij"])
    with pytest.raises(ValueError, match="text on both sides"):
        split_off_end(["a"], 0.5)


def test_an_interrupted_run_ends_as_if_it_had_not_been(text_files, tmp_path):
    for kind, more in (("seqmodels_rnn_lm", ["--stateful"]), ("seqmodels_decoder_lm", [])):
        whole, halted = tmp_path / f"{kind}_whole", tmp_path / f"{kind}_halted"
        more = [*more, "--save_strategy", "steps", "--eval_strategy", "steps"]
        more += ["--save_steps", "2", "--eval_steps", "2", "--max_steps", "6"]
        main(tiny_argv(text_files, whole, *more, model_type=kind))
        run = prepare(tiny_argv(text_files, halted, *more, model_type=kind))
        run.args.max_steps, steps = 6, run.trainer.training_step

        def stop_in_step_five(*args, run=run, steps=steps, **kwargs):
            if run.trainer.state.global_step == 4:
                raise KeyboardInterrupt
            return steps(*args, **kwargs)

        run.trainer.training_step = stop_in_step_five
        with pytest.raises(KeyboardInterrupt):
            run.trainer.train_from(None)
        record = main(tiny_argv(text_files, halted, *more, model_type=kind))
        assert record["train"]["resumed_at_step"] == 4
        weights = [
            AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (whole, halted)
        ]
        for name in weights[0]:
            assert torch.equal(weights[0][name], weights[1][name]), name


def test_the_learning_rate_decays_from_epoch_to_epoch(text_files, tmp_path):
    more = ["--lr_epoch_decay", "0.5", "--lr_constant_epochs", "2", "--num_train_epochs", "4"]
    more += ["--learning_rate", "0.8", "--logging_steps", "1", "--packing", "none"]
    run = prepare(tiny_argv(text_files, tmp_path / "run", *more))
    run.trainer.train_from(None)
    rates = {}
    for entry in run.trainer.state.log_history:
        if "learning_rate" in entry:  # logged behind the step, for the next one
            rates.setdefault(math.ceil(entry["epoch"] - 1e-6), set()).add(entry["learning_rate"])
    assert [max(rates[epoch]) for epoch in (1, 2, 3, 4)] == [0.8, 0.8, 0.4, 0.2]


def test_streamed_text_trains_like_text_in_memory(text_files, tmp_path):
    more = ["--streaming", "--max_steps", "4", "--tokenizer_documents", "26"]
    more += ["--eval_strategy", "no", "--save_strategy", "no", "--load_best_model_at_end", "false"]
    record = main(tiny_argv(text_files, tmp_path / "run", *more))
    assert record["train"]["steps"] == 4
    assert "streamed" in record["data"]["train"]["name"]
    run = prepare(tiny_argv(text_files, tmp_path / "more", *more, "--packing", "none"))
    in_memory = prepare(tiny_argv(text_files, tmp_path / "memory", "--packing", "none"))
    expected = [list(row["input_ids"]) for row in in_memory.trainer.train_dataset]
    stream = iter(run.trainer.train_dataset)  # without end
    passes = [[next(stream)["input_ids"] for _ in expected] for _ in range(2)]
    assert [sorted(rows) for rows in passes] == [sorted(expected)] * 2
    assert passes[0] != passes[1]


def test_a_dataset_by_name_reads_like_files(text_files, tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for part, path in text_files.items():
        with open(path, encoding="utf-8") as file:
            rows = [json.dumps({"body": line.rstrip("\n")}) + "\n" for line in file]
        (folder / f"{part}.jsonl").write_text("".join(rows), encoding="utf-8")
    named = ["--dataset_name", str(folder), "--text_column", "body"]
    run = prepare(tiny_argv({}, tmp_path / "named", *named))
    expected = prepare(tiny_argv(text_files, tmp_path / "files"))
    assert run.token_ids == expected.token_ids
    streamed = [*named, "--streaming", "--max_steps", "2", "--tokenizer_documents", "26"]
    stream = prepare(tiny_argv({}, tmp_path / "streamed", *streamed)).corpus.train_stream
    assert list(stream) == LINES[:26]
    with pytest.raises(ValueError, match="has no column 'text'; it has body"):
        prepare(tiny_argv({}, tmp_path / "wrong", "--dataset_name", str(folder)))


def test_documents_that_do_not_see_one_another_are_scored_alone(text_files, tmp_path):
    run = prepare(tiny_argv(text_files, tmp_path / "run", "--packing", "none"))
    documents = [[5, 6, 7, 2], [2], [8, 9, 2]]
    found = run_clm.corpus_figures(run, documents)
    nats = 0.0
    with torch.no_grad():
        for ids in (documents[0], documents[2]):
            logits = run.trainer.model(input_ids=torch.tensor([ids])).logits[0, :-1]
            nats -= logits.double().log_softmax(-1).gather(-1, torch.tensor(ids)[1:, None]).sum()
    assert found.num_tokens == 5  # the first token of a document is predicted from nothing
    assert found.total_nats == pytest.approx(nats.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--stateful"], "stateful carries the hidden state .* DecoderLMForCausalLM has none"),
        (["--stateful", "--packing", "none"], "packing must be 'concatenate'"),
        (["--varied_windows"], "varied_windows varies the windows of stateful"),
        (["--streaming"], "Pass --max_steps"),
        (["--streaming", "--max_steps", "2"], "Pass --tokenizer_documents"),
        (["--lr_epoch_decay", "2"], "above 0 and at most 1, got 2"),
        (["--lr_epoch_decay", "0.5", "--max_steps", "2"], "Pass --num_train_epochs"),
        (["--block_size", "1"], "block_size must be at least 2, got 1"),
        (["--config_overrides", "max_position_embeddings=8"], "must not exceed the 8 positions"),
        (["--metric_for_best_model", "perplexity"], "metric_for_best_model must be loss"),
        (["--validation_split_percentage", "100"], "at least 0 and below 100"),
        (["--dataset_name", "x"], "either data files or dataset_name"),
        (["--text_unit", "page"], "invalid choice: 'page'"),
        (["--model_type", "seqmodels_rnn_seq2seq"], "registered causal language model"),
        (["--tokenizer_name", "folder"], "tokenizer comes from 'folder' as it is, so tok"),
    ],
)
def test_contradictions_are_refused_before_anything_is_written(text_files, tmp_path, more, message):
    with pytest.raises(ValueError, match=message):
        prepare(tiny_argv(text_files, tmp_path / "run", *more))
    assert not (tmp_path / "run").exists()


def test_text_without_a_token_is_refused(tmp_path, text_files):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    files = {**text_files, "train": str(empty)}
    with pytest.raises(ValueError, match=r"empty.txt: the train part must hold text, got 2 empty"):
        prepare(tiny_argv(files, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_separate_packing_needs_a_model_that_attends_by_position(tmp_path, text_files):
    options = tiny_argv(
        text_files, tmp_path / "run", "--packing", "separate", model_type="seqmodels_rnn_lm"
    )
    with pytest.raises(ValueError, match="RnnLMForCausalLM does not"):
        prepare(options)
