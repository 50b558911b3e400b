"""Watch a small GRU with attention learn a real task, then look at what it does.

    python training/demo.py     # dates of 20 locales to ISO 8601
    python training/demo.py --train_file my.tsv --test_file my_test.tsv     # your own pairs

Further options go to run_seq2seq.py and win over the recipe, e.g. `--max_steps 500`.
"""

import argparse
import json
import logging
import math
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import run_seq2seq
import torch
from transformers.utils.logging import disable_progress_bar

from hf_seqmodels.data import DATE_LOCALES, date_splits
from hf_seqmodels.evaluation import n_best

RECIPE = Path(__file__).resolve().parent / "recipes" / "dates.yaml"
NUM_DATES = (40_000, 1_000, 4_000)  # train, validation, test
DATA_SEED = 1
NUM_SHOWN = 10
NUM_BEAMS = 5


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Make or take the data, train, and show the result.

    Args:
        argv: the words after the script's name; None takes those of the process.

    Returns:
        The content of metrics.json.
    """
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--train_file", help="your own training pairs (.tsv, .csv, .jsonl)")
    parser.add_argument("--test_file", help="your own test pairs")
    parser.add_argument(
        "--output_dir", help="default: runs/demo, or runs/demo_NAME for your own pairs"
    )
    parser.add_argument(
        "--num_dates",
        type=int,
        nargs=3,
        default=NUM_DATES,
        metavar="N",
        help="dates to make for training, validation and test",
    )
    choices, others = parser.parse_known_args(argv)
    if choices.test_file and not choices.train_file:
        raise ValueError(
            "a test file alone cannot be learned from. Pass --train_file (TRAIN=) as well."
        )
    name = f"demo_{Path(choices.train_file).name.split('.')[0]}" if choices.train_file else "demo"
    output_dir = Path(choices.output_dir or f"runs/{name}")
    if choices.train_file:
        options = ["--train_file", choices.train_file]
        options += ["--test_file", choices.test_file] if choices.test_file else []
    else:
        options = date_options(output_dir.with_name(output_dir.name + "_data"), choices.num_dates)
    run = run_seq2seq.prepare(
        [str(RECIPE), *options, "--output_dir", str(output_dir), "--overwrite_output_dir", *others]
    )
    print(
        f"Training {run.trainer.model.num_parameters():,} parameters on {len(run.corpus.train):,} "
        "pairs ..."
    )
    record = run_seq2seq.run_all(run)
    show_scores(record, output_dir)
    show_examples(run, output_dir)
    show_use(output_dir)
    return record


def date_options(folder: Path, num_dates: Sequence[int]) -> list[str]:
    """Write the splits of the date task and return the options that name them.

    Args:
        folder: where the files go.
        num_dates: how many examples for training, validation and test.

    Returns:
        Options of run_seq2seq.py.
    """
    folder.mkdir(parents=True, exist_ok=True)
    print(f"Writing {sum(num_dates):,} dates of {len(DATE_LOCALES)} locales to {folder} ...")
    splits = date_splits(*num_dates, seed=DATA_SEED)
    options = []
    for split in ("train", "validation", "test"):
        path = folder / f"{split}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in splits[split])
        options += [f"--{split}_file", str(path)]
    return [*options, "--source_extra_tokens", *(f"<{locale}>" for locale in DATE_LOCALES)]


def predictions_in(output_dir: Path) -> list[dict[str, Any]]:
    """Read predictions.jsonl.

    Args:
        output_dir: the folder of the run.

    Returns:
        Its lines.
    """
    with (output_dir / "predictions.jsonl").open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def group_of(line: dict[str, Any]) -> str:
    """Return the locale of a prediction, or "all" where rows have none.

    Args:
        line: of predictions.jsonl.

    Returns:
        The name of the group.
    """
    return line.get("columns", {}).get("locale", "all")


def show_scores(record: dict[str, Any], output_dir: Path) -> None:
    """Print the exact match of every locale and of all items.

    Args:
        record: the content of metrics.json.
        output_dir: the folder of the run.
    """
    groups = defaultdict(list)
    for line in predictions_in(output_dir):
        groups[group_of(line)].append(line["exact_match"])
    part = "test" if "test" in record else "validation"
    print(
        f"\nExact match on {len([hit for hits in groups.values() for hit in hits]):,} {part} items"
    )
    cells = [
        f"{name:8} {100 * sum(hits) / len(hits):6.2f} %" for name, hits in sorted(groups.items())
    ]
    for start in range(0, len(cells) if len(groups) > 1 else 0, 4):
        print("  " + "   ".join(cells[start : start + 4]))
    print(
        f"  overall  {record[part]['exact_match']:6.2f} %   (training took "
        f"{record['train']['minutes']:.1f} minutes)"
    )


def show_examples(run: run_seq2seq.Run, output_dir: Path) -> None:
    """Print decoded items, spread over the locales, with their best hypotheses.

    Args:
        run: the run, trained.
        output_dir: its folder.
    """
    groups = defaultdict(list)
    for line in predictions_in(output_dir):
        groups[group_of(line)].append(line)
    turns = [
        line
        for row in zip(*(groups[name][:NUM_SHOWN] for name in sorted(groups)), strict=False)
        for line in row
    ]
    shown = turns[:: max(len(groups) // NUM_SHOWN, 1)][:NUM_SHOWN]
    sources = [run.options.source_prefix + line["source"] for line in shown]
    hypotheses = n_best(
        run.trainer.model,
        run.tokenizer,
        sources,
        num_beams=NUM_BEAMS,
        num_return_sequences=3,
        length_penalty=0.0,  # ranked by probability
        progress=False,
    )
    print("\nExamples, each with its three best hypotheses and their probabilities")
    for line, items in zip(shown, hypotheses, strict=True):
        mark = (
            "right"
            if line["exact_match"]
            else f"WRONG, should be {' or '.join(line['references'])}"
        )
        print(f"  {line['source']}  ->  {line['prediction']}  ({mark})")
        for item in items:
            print(f"      {probability(item.log_probability)}  {item.text}")


def probability(log_probability: float) -> str:
    """Write a log-probability as a probability.

    Args:
        log_probability: in nats.

    Returns:
        A number such as 0.9731 or 2.1e-07.
    """
    value = math.exp(log_probability)
    return f"{value:7.4f}" if value >= 1e-4 else f"{value:7.0e}"


def show_use(output_dir: Path) -> None:
    """Print where the pictures are and how to load the model.

    Args:
        output_dir: the folder of the run.
    """
    for name, text in (
        ("alignments.png", "Alignments"),
        ("alignments.html", "Alignments to explore in a browser"),
        ("learning_curve.png", "Learning curve"),
        ("README.md", "Model card"),
    ):
        if (output_dir / name).exists():
            print(f"\n{text}: {output_dir / name}", end="")
    print("\n\nLoad the model with three lines of Python:\n")
    print("    import hf_seqmodels, transformers")
    for name, auto in (("model", "AutoModelForSeq2SeqLM"), ("tokenizer", "AutoTokenizer")):
        print(f'    {name} = transformers.{auto}.from_pretrained("{output_dir}")')


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # the matrices are small: more threads would mostly wait
    disable_progress_bar()  # of loading and saving; training keeps its own
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"demo.py: error: {error}")
