"""Runs of the training scripts that several processes have to repeat, and a driver that repeats
them in two; see gloo_group.

A job `NAME` runs a script with the words of NAME.json in the folder of the driver.
"""

import importlib
import itertools
import json
import random
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

TRAINING = Path(__file__).resolve().parents[2] / "training"
sys.path.insert(0, str(TRAINING))

import gloo_group  # noqa: E402

WORDS = ["the", "a", "cat", "dog", "sees", "hears", "old", "new", "house", "tree", "runs"]
NUM_TRAIN, NUM_VALIDATION, NUM_TEST = 24, 7, 5  # steps are whole, evaluations are not
BATCH_SIZE = 4
NO_DROPOUT = "embedding_dropout=0,hidden_dropout=0"
LAYERS = "hidden_size=12,num_attention_heads=2,intermediate_size=16"
ENCODER = f"{LAYERS},num_hidden_layers=1,{NO_DROPOUT},attention_dropout=0"
MODELS = {
    "run_seq2seq": (
        "seqmodels_transformer_seq2seq",
        f"{LAYERS},num_encoder_layers=1,num_decoder_layers=1,{NO_DROPOUT}",
    ),
    "run_clm": ("seqmodels_decoder_lm", f"{ENCODER}"),
    "run_clm_stateful": (
        "seqmodels_rnn_lm",
        f"embedding_size=8,hidden_size=12,num_hidden_layers=1,{NO_DROPOUT}",
    ),
    **dict.fromkeys(
        ("run_mlm", "run_classification", "run_ner", "run_qa", "run_multiple_choice"),
        ("seqmodels_text_encoder", f"{ENCODER},max_position_embeddings=48"),
    ),
}
TEXT = ["--tokenizer_model", "char", "--block_size", "10", "--num_samples", "0"]
TEXT += ["--dataloader_drop_last"]  # else the launcher fills up the last batch
RANDOM = ["--train_sampling_strategy", "random"]  # groups of one length depend on the batch size
LINES = ["--tokenizer_vocab_size", "60", "--num_samples", "0", "--line_by_line"]
STREAMED = ["--streaming", "--max_steps", "11", "--tokenizer_documents", "24"]
STREAMED += ["--eval_strategy", "no", "--load_best_model_at_end", "false"]
# {name: script, words}; the streams end in the middle of a pass, whose last rows are short
RUNS: dict[str, tuple[str, list[str]]] = {
    "run_seq2seq": ("run_seq2seq", []),
    "run_clm": ("run_clm", TEXT),
    "run_clm_stateful": ("run_clm", [*TEXT, "--stateful"]),
    "run_clm_streaming": ("run_clm", [*TEXT, *STREAMED]),
    "run_mlm": ("run_mlm", LINES),
    "run_mlm_streaming": ("run_mlm", [*LINES, *STREAMED]),
    "run_classification": ("run_classification", RANDOM),
    "run_ner": ("run_ner", RANDOM),
    "run_qa": ("run_qa", RANDOM),
    "run_multiple_choice": ("run_multiple_choice", RANDOM),
}

TASKS = {
    "run_classification": "ClassificationTask",
    "run_ner": "TokenTask",
    "run_qa": "QuestionTask",
    "run_multiple_choice": "MultipleChoiceTask",
}


def rows_of(script: str) -> Iterator[dict | str]:
    """Yield rows that the script reads, no two the same."""
    draw = random.Random(script)
    for number in itertools.count():
        words = draw.choices(WORDS, k=4 + number % 5)
        text = " ".join(words)
        if script == "run_seq2seq":
            yield f"{text}\t{' '.join(reversed(words))}"
        elif script in ("run_clm", "run_mlm"):
            yield text
        elif script == "run_classification":
            yield {"sentence": text, "label": number % 2}
        elif script == "run_ner":
            yield {"tokens": words, "ner_tags": [draw.choice(["O", "B-X"]) for _ in words]}
        elif script == "run_multiple_choice":
            choices = [" ".join(draw.choices(WORDS, k=3)) for _ in range(2 + number % 2)]
            yield {"question": text, "choices": choices, "label": number % 2}
        else:
            answer = {"text": [words[-1]], "answer_start": [len(text) - len(words[-1])]}
            row = {"question": " ".join(draw.choices(WORDS, k=3)), "context": text}
            yield {"id": str(number), **row, "answers": answer}


def write_files(script: str, folder: Path) -> list[str]:
    """Write a training, a validation and a test file, and return the options that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, words = rows_of(script), []
    for part, count in ("train", NUM_TRAIN), ("validation", NUM_VALIDATION), ("test", NUM_TEST):
        lines = [
            row if isinstance(row, str) else json.dumps(row)
            for row in itertools.islice(rows, count)
        ]
        ending = {"run_seq2seq": "tsv", "run_clm": "txt", "run_mlm": "txt"}.get(script, "jsonl")
        path = folder / f"{part}.{ending}"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        words += [f"--{part}_file", str(path)]
    return words


def words_of(name: str, folder: Path, output_dir: Path, *, num_processes: int) -> list[str]:
    """Return the command line of a run whose steps are the same in any number of processes."""
    script, more = RUNS[name]
    model_type, overrides = MODELS[name if name in MODELS else script]
    return [
        *("--model_type", model_type, "--config_overrides", overrides),
        *write_files(script, folder / "data"),
        *("--output_dir", str(output_dir), "--use_cpu", "--disable_tqdm", "true", "--seed", "3"),
        *("--per_device_train_batch_size", str(BATCH_SIZE // num_processes)),
        *("--per_device_eval_batch_size", "2", "--num_train_epochs", "1", "--logging_steps", "2"),
        # not Adam, which blows up the rounding of gradients that are zero, as of key biases
        *("--optim", "sgd", "--learning_rate", "0.1", "--lr_scheduler_type", "constant"),
        *more,
    ]


def run_script(name: str, words: list[str]) -> None:
    """Run a script in this process."""
    script = RUNS[name][0]
    module = importlib.import_module(script)
    if script in TASKS:
        importlib.import_module("finetune_run").main(getattr(module, TASKS[script]), words)
    else:
        module.main(words)


def repeat(name: str, folder: Path) -> None:
    """Run a script in one of the two processes."""
    words = json.loads(folder.with_suffix(".json").read_text(encoding="utf-8"))
    run_script(name, [*words, "--ddp_backend", "gloo"])


if __name__ == "__main__":
    gloo_group.main({name: partial(repeat, name) for name in RUNS})
