"""One command, several seeds: a run for each, mean and spread of their figures."""

import json
import logging
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import run_folder
import run_report
from script_arguments import given_options
from transformers import TrainingArguments

logger = logging.getLogger("finetune")

PARTS = ("validation", "test")


@dataclass
class SeedRuns:
    """Runs that differ in their seed.

    Args:
        argv: the words after the script's name.
        seeds: one run for each.
        args: training arguments of all of them; the folder of a run lies in their output_dir.
        overwrite: whether runs that are there are done again.
        option_classes: the dataclasses whose fields are the options.
        prepare_one: makes the run of other words, all checks passed.
        run_one: runs that and returns the content of metrics.json.
    """

    argv: list[str]
    seeds: Sequence[int]
    args: TrainingArguments
    overwrite: bool
    option_classes: Sequence[type]
    prepare_one: Callable[[Sequence[str]], Any]
    run_one: Callable[[Any], dict[str, Any]]

    def __post_init__(self):
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds must differ, got {self.seeds}. Give each of them once.")
        if self.args.push_to_hub or self.args.resume_from_checkpoint:
            raise ValueError(
                "push_to_hub and resume_from_checkpoint are for one run, and seeds makes "
                f"{len(self.seeds)}. Interrupted runs go on by themselves when the same command is "
                "given again; push the folder that you choose with python -m hf_seqmodels.hub push."
            )
        self.records = {seed: self.finished(seed) for seed in self.seeds}
        to_run = [seed for seed, record in self.records.items() if record is None]
        # what is wrong with the options or the data shows before anything is trained
        self.prepared = {seed: self.prepare_one(self.words(seed)) for seed in to_run[:1]}

    def words(self, seed: int) -> list[str]:
        """Return the command line of one run.

        Args:
            seed: of the run.

        Returns:
            Words after the script's name.
        """
        own = {"seeds": str(seed), "output_dir": str(self.folder(seed))}
        words = without_options(self.argv, own)
        return words + [word for name in own for word in (f"--{name}", own[name])]

    def folder(self, seed: int) -> Path:
        """Return the output folder of one run.

        Args:
            seed: of the run.

        Returns:
            The folder.
        """
        return Path(self.args.output_dir) / f"seed_{seed}"

    def finished(self, seed: int) -> dict[str, Any] | None:
        """Return the figures of a run that is there already.

        Args:
            seed: of the run.

        Returns:
            The content of its metrics.json; None if it has to be run.

        Raises:
            ValueError: if it was run with other options.
        """
        path = self.folder(seed) / run_folder.FINISHED_FILE
        if self.overwrite or not path.is_file():
            return None
        record = json.loads(path.read_text(encoding="utf-8"))
        options = run_report.shown_options(given_options(self.option_classes, self.words(seed)))
        if record["options"] != json.loads(json.dumps(options)):
            raise ValueError(
                f"{str(self.folder(seed))!r} holds a run with other options. Choose another "
                "output_dir, or pass --overwrite_output_dir to run all seeds again."
            )
        logger.info(f"{self.folder(seed)} is finished already.")
        return record

    def run_all(self) -> dict[str, Any]:
        """Run what is not finished, and write mean and spread.

        Returns:
            The content of metrics.json.
        """
        for seed in self.seeds:
            if self.records[seed] is None:
                run = self.prepared.pop(seed, None) or self.prepare_one(self.words(seed))
                self.records[seed] = self.run_one(run)
        summary = summarize({seed: record for seed, record in self.records.items() if record})
        if self.args.should_save:
            run_report.write_json(Path(self.args.output_dir) / run_folder.FINISHED_FILE, summary)
        return summary


def without_options(argv: Sequence[str], names: Collection[str]) -> list[str]:
    """Leave options with their values out of a command line.

    Args:
        argv: the words after the script's name.
        names: of the options.

    Returns:
        The other words.
    """
    kept, is_left_out = [], False
    for word in argv:
        if word.startswith("--"):
            is_left_out = word[2:].split("=")[0] in names
        if not is_left_out:
            kept.append(word)
    return kept


def summarize(records: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Take the mean of the figures of several runs.

    Args:
        records: {seed: content of metrics.json}.

    Returns:
        For each part of the data and figure: `mean`, `spread` (the standard deviation of a sample;
        0 for a single run), and `values` in the order of the seeds.
    """
    summary: dict[str, Any] = {"seeds": list(records)}
    runs = list(records.values())
    for part in PARTS:
        names = [
            name
            for name, value in runs[0].get(part, {}).items()
            if isinstance(value, float) and all(name in run.get(part, {}) for run in runs)
        ]
        if names:
            summary[part] = {name: _spread([run[part][name] for run in runs]) for name in names}
    minutes = [run["train"]["minutes"] for run in runs if "train" in run]
    return summary | ({"minutes": _spread(minutes)} if minutes else {})


def _spread(values: list[float]) -> dict[str, Any]:
    return {
        "mean": statistics.fmean(values),
        "spread": statistics.stdev(values) if len(values) > 1 else 0.0,
        "values": values,
    }
