"""lm-evaluation-harness on both families of language models, with tasks from files alone."""

import json
import math
import sys
from pathlib import Path

import pytest
import torch

from family_cases import randomize
from hf_seqmodels.__main__ import main
from hf_seqmodels.evaluation import corpus_perplexity
from tiny_language_models import (
    LANGUAGE_MODELS,
    character_tokenizer,
    log_probabilities,
    make_language_model,
)

lm_eval = pytest.importorskip("lm_eval", reason="needs lm_eval of the extra clients")

pytestmark = pytest.mark.slow
CHOICES = [
    ("ab", ["ca", "b", "cab ba"], 1),
    ("cab bac", ["c", "abc abc", "bb"], 0),
    ("b", ["cb", "a b c", "aa"], 2),
]
TEXTS = ["abc bab ca", "cab", "ba cab ba cab bac bac b aab cc"]
TASKS = {
    "tiny_choices": """
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list:
  - metric: acc
""",
    "tiny_texts": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - metric: byte_perplexity
  - metric: bits_per_byte
""",
    "tiny_answers": """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{choices[answer]}}"
generation_kwargs:
  until: ["c"]
  max_gen_toks: 7
metric_list:
  - metric: exact_match
""",
}


@pytest.fixture(scope="module")
def tokenizer():
    return character_tokenizer()


@pytest.fixture(scope="module")
def tasks(tmp_path_factory) -> Path:
    """A folder of tasks and their data."""
    folder = tmp_path_factory.mktemp("tasks")
    choices = [
        {"question": question, "choices": ends, "answer": answer}
        for question, ends, answer in CHOICES
    ]
    rows = {"choices": choices, "texts": [{"text": text} for text in TEXTS]}
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for task, rest in TASKS.items():
        data = folder / ("texts.jsonl" if task == "tiny_texts" else "choices.jsonl")
        start = (
            f"task: {task}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {data}}}}}\n"
        )
        (folder / f"{task}.yaml").write_text(f"{start}test_split: test{rest}")
    return folder


@pytest.fixture(autouse=True)
def no_survey_of_the_machine(monkeypatch):
    """Leave out the list of installed packages in the results: it takes seconds."""
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)


def saved_model(family: str, tokenizer, folder, **options):
    """Save a model of random weights that is far from uniform, and return it."""
    model = make_language_model(family, tokenizer, **options)
    randomize(model, seed=3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def harness(folder, **options):
    """Return the model of a folder as the harness loads it."""
    from lm_eval.models.huggingface import HFLM

    return HFLM(pretrained=str(folder), device="cpu", dtype="float32", **options)


def evaluate(model, tasks: Path, names: list[str]):
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    return lm_eval.simple_evaluate(
        model=model, tasks=names, task_manager=manager, bootstrap_iters=0
    )


def scored_choices(model, tokenizer) -> list[list[float]]:
    """Return log p(choice | question) of every choice, row by row."""
    rows = []
    for question, ends, _ in CHOICES:
        rows.append([])
        for end in ends:
            scores = log_probabilities(model, tokenizer(f"{question} {end}").input_ids)
            rows[-1].append(scores[-len(end) - 1 :].sum().item())
    return rows


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("family", LANGUAGE_MODELS)
@torch.no_grad()
def test_scores_and_texts_are_ours(family, batch_size, tokenizer, tasks, tmp_path):
    model = saved_model(family, tokenizer, tmp_path)
    found = evaluate(harness(tmp_path, batch_size=batch_size), tasks, list(TASKS))
    expected = scored_choices(model, tokenizer)
    for sample in found["samples"]["tiny_choices"]:
        scores = [response[0][0] for response in sample["resps"]]
        assert scores == pytest.approx(expected[sample["doc_id"]], abs=1e-4)
    right = [
        scores.index(max(scores)) == answer
        for scores, (*_, answer) in zip(expected, CHOICES, strict=True)
    ]
    assert found["results"]["tiny_choices"]["acc,none"] == pytest.approx(sum(right) / len(right))

    scored = [
        corpus_perplexity(model, tokenizer(text).input_ids, start_token_id=tokenizer.bos_token_id)
        for text in TEXTS
    ]
    for sample in found["samples"]["tiny_texts"]:
        total = scored[sample["doc_id"]].total_nats
        assert sample["resps"][0][0] == pytest.approx(-total, abs=1e-4)
    nats = sum(score.total_nats for score in scored) / sum(map(len, TEXTS))
    figures = found["results"]["tiny_texts"]
    assert figures["byte_perplexity,none"] == pytest.approx(math.exp(nats), rel=1e-5)
    assert figures["bits_per_byte,none"] == pytest.approx(nats / math.log(2), rel=1e-5)

    written = {
        sample["doc_id"]: sample["resps"][0][0] for sample in found["samples"]["tiny_answers"]
    }
    for index, (question, *_) in enumerate(CHOICES):
        inputs = tokenizer(question, return_tensors="pt")
        ids = model.generate(**inputs, max_new_tokens=7, do_sample=False)[0, len(question) :]
        assert written[index] == tokenizer.decode(ids, skip_special_tokens=True).split("c")[0]
    assert any(written.values())


@torch.no_grad()
def test_long_texts_are_cut_into_windows_unless_the_length_is_raised(tokenizer, tasks, tmp_path):
    text = TEXTS[2]
    ids, start = tokenizer(text).input_ids, {"start_token_id": tokenizer.bos_token_id}
    totals = {}
    for family, options in {"decoder_lm": {"position_embedding": "rotary"}, "rnn_lm": {}}.items():
        folder = tmp_path / family
        model = saved_model(family, tokenizer, folder, max_position_embeddings=12, **options)
        for length in (None, 64):
            results = evaluate(harness(folder, max_length=length), tasks, ["tiny_texts"])
            samples = results["samples"]["tiny_texts"]
            totals[family, length] = next(
                -sample["resps"][0][0] for sample in samples if sample["doc"]["text"] == text
            )
        windows = {} if family == "rnn_lm" else {"window_size": 64}
        whole = corpus_perplexity(model, ids, **windows, **start).total_nats
        assert totals[family, 64] == pytest.approx(whole, abs=1e-4)
        assert abs(totals[family, None] - whole) > 1e-3
        if family == "decoder_lm":  # the last token of a window is the first of the next one
            cut = corpus_perplexity(model, ids, window_size=13, stride=12, **start).total_nats
            assert totals[family, None] == pytest.approx(cut, abs=1e-4)


@torch.no_grad()
def test_its_command_finds_the_families_and_a_folder_of_tasks(
    tokenizer, tasks, tmp_path, monkeypatch
):
    model = saved_model("rnn_lm", tokenizer, tmp_path / "model")
    command = Path(sys.executable).parent / "lm_eval"
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    arguments = [
        "run", "--model", "hf", "--model_args", f"pretrained={tmp_path / 'model'},dtype=float32",
        "--include_path", str(tasks), "--tasks", "tiny_choices", "--batch_size", "2",
        "--device", "cpu", "--output_path", str(tmp_path / "results"), "--log_samples",
    ]  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        main([str(command), *arguments])
    assert not ended.value.code
    (file,) = (tmp_path / "results").rglob("samples_tiny_choices_*.jsonl")
    expected = scored_choices(model, tokenizer)
    for line in file.read_text().splitlines():
        sample = json.loads(line)
        scores = [float(response[0][0]) for response in sample["resps"]]
        assert scores == pytest.approx(expected[sample["doc_id"]], abs=1e-4)
