"""Watch a small transformer learn to write like Python's documentation, character by character.

    python training/demo_lm.py
    python training/demo_lm.py --train_file my_book.txt     # a text of your own

Further options go to run_clm.py and win over the recipe, e.g. `--max_steps 300`.
"""

import argparse
import json
import logging
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import run_clm
import torch
from transformers.utils.logging import disable_progress_bar

RECIPE = Path(__file__).resolve().parent / "recipes" / "python_docs.yaml"
HELD_OUT = 0.1  # of the help topics
DATA_SEED = 1


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Make or take the text, train, and show what the model writes.

    Args:
        argv: the words after the script's name; None takes those of the process.

    Returns:
        The content of metrics.json.
    """
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--train_file", help="a text of your own")
    parser.add_argument("--output_dir", help="default: runs/demo_lm, or runs/demo_lm_NAME")
    choices, others = parser.parse_known_args(argv)
    name = f"demo_lm_{Path(choices.train_file).name.split('.')[0]}" if choices.train_file else ""
    output_dir = Path(choices.output_dir or f"runs/{name or 'demo_lm'}")
    if choices.train_file:
        options = ["--train_file", choices.train_file, "--text_unit", "file"]
    else:
        options = help_topic_options(output_dir.with_name(output_dir.name + "_data"))
    run = run_clm.prepare(
        [str(RECIPE), *options, "--output_dir", str(output_dir), "--overwrite_output_dir", *others]
    )
    num_tokens = run.corpus.origins["train"]["tokens"]
    print(
        f"Training {run.trainer.model.num_parameters():,} parameters on {num_tokens:,} "
        f"tokens of a vocabulary of {len(run.tokenizer)} ..."
    )
    record = run_clm.run_all(run)
    show_figures(record)
    show_samples(output_dir)
    show_use(output_dir)
    return record


def help_topic_options(folder: Path) -> list[str]:
    """Write Python's help topics, some of them held out, and return the options that name them.

    Args:
        folder: where the files go.

    Returns:
        Options of run_clm.py.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(topics)
    random.Random(DATA_SEED).shuffle(names)
    num_held_out = round(HELD_OUT * len(names))
    print(
        f"Writing {len(names)} help topics of Python {sys.version_info.major}."
        f"{sys.version_info.minor} to {folder}, {num_held_out} of them held out ..."
    )
    options = []
    for part, chosen in (("train", names[num_held_out:]), ("validation", names[:num_held_out])):
        path = folder / f"{part}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            file.writelines(
                json.dumps({"text": topics[name]}, ensure_ascii=False) + "\n" for name in chosen
            )
        options += [f"--{part}_file", str(path)]
    return options


def show_figures(record: dict[str, Any]) -> None:
    """Print how well the model predicts text it has not seen.

    Args:
        record: the content of metrics.json.
    """
    figures = record["validation"]
    print(
        f"\nOn held-out text: {figures['loss']:.3f} nats a token, perplexity "
        f"{figures['perplexity']:.2f}, {figures['bits_per_character']:.3f} bits a character "
        f"(training took {record['train']['minutes']:.1f} minutes)"
    )


def show_samples(output_dir: Path) -> None:
    """Print what the model writes by each way of choosing tokens.

    Args:
        output_dir: the folder of the run.
    """
    with (output_dir / "samples.jsonl").open(encoding="utf-8") as file:
        samples = [json.loads(line) for line in file]
    previous = None
    for sample in samples:
        if sample["prompt"] != previous:
            previous = sample["prompt"]
            print(f"\n--- going on from {previous!r}")
        per_token = sample["log_probability"] / max(sample["num_tokens"], 1)
        print(
            f"\n[{sample['method']}: log-probability {sample['log_probability']:.1f}, "
            f"{per_token:.2f} a token]\n{sample['prompt']}{sample['text']}"
        )


def show_use(output_dir: Path) -> None:
    """Print where the pictures are and how to load the model.

    Args:
        output_dir: the folder of the run.
    """
    for name, text in (("learning_curve.png", "Learning curve"), ("README.md", "Model card")):
        if (output_dir / name).exists():
            print(f"\n{text}: {output_dir / name}", end="")
    print("\n\nLoad the model with three lines of Python:\n")
    print("    import hf_seqmodels, transformers")
    for name, auto in (("model", "AutoModelForCausalLM"), ("tokenizer", "AutoTokenizer")):
        print(f'    {name} = transformers.{auto}.from_pretrained("{output_dir}")')


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), 2))
    disable_progress_bar()  # of loading and saving; training keeps its own
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"demo_lm.py: error: {error}")
