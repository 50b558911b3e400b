"""What all fine-tuning scripts do: read, train, keep the best model, predict, report.

A script is a `FinetuneTask`, which says what its rows are, how they become tokens, what is computed
from the predictions and how they are written down, and two lines:

    if __name__ == "__main__":
        command(MyTask)
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import run_folder
import run_report
from finetune_arguments import (
    FinetuneDataArguments,
    FinetuneScriptArguments,
    check_numbers,
    settle_best_metric,
)
from finetune_data import Corpus, Part, load_corpus, row_lengths
from finetune_model import (
    load_or_make_model,
    load_or_train_tokenizer,
    settle_max_length,
    stored_config,
)
from finetune_seeds import SeedRuns
from finetune_task import FinetuneTask, Predictions
from finetune_trainer import FinetuneTrainer
from script_arguments import given_options, parse_arguments
from script_data import settle_parts
from script_models import ModelArguments, check_model_choice, check_same_model, shared_by_processes
from script_run import early_stopping, finish, output_folder, run_command
from transformers import (
    EvalPrediction,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)

import hf_seqmodels  # noqa: F401  (registers the model types)
from hf_seqmodels.data import LengthGroupedBatchSampler


@dataclass
class Run:
    """A run that has passed every check and may begin."""

    argv: list[str]
    given: dict[str, Any]  # what the user said, without defaults
    options: FinetuneDataArguments
    args: FinetuneScriptArguments
    task: FinetuneTask
    corpus: Corpus
    max_length: int | None
    tokenizer: PreTrainedTokenizerBase
    encoded: dict[str, datasets.Dataset] = field(default_factory=dict)
    orders: dict[str, np.ndarray] = field(default_factory=dict)  # of rows in `encoded`
    trainer: FinetuneTrainer = None  # type: ignore[assignment]
    checkpoint: Path | None = None


def prepare(task_class: type[FinetuneTask], argv: Sequence[str]) -> Run | SeedRuns:
    """Read options and rows, make tokenizer, model and trainer, and refuse whatever cannot work.

    Args:
        task_class: the script.
        argv: the words after the script's name.

    Returns:
        The run, ready for `run_all`; or several, one for each seed.

    Raises:
        ValueError: if an option, a file, or their combination is wrong; nothing has been written
            then.
    """
    option_classes = option_classes_of(task_class)
    model_options, options, args = parse_arguments(option_classes, argv)
    if options.seeds and len(options.seeds) > 1:
        return SeedRuns(
            *(list(argv), options.seeds, args, options.overwrite_output_dir, option_classes),
            prepare_one=partial(prepare, task_class),
            run_one=run_all,
        )
    if options.seeds:
        args.seed = options.seeds[0]
    given = given_options(option_classes, argv)
    check_model_choice(
        *(model_options, task_class.head_classes, task_class.model_kind),
        may_change_checkpoint=True,  # its dropout, for instance; weights must still fit
    )
    check_numbers(options)
    task = task_class(options, args)
    task.check_options()
    checkpoint = run_folder.find_checkpoint(
        args.output_dir,
        resume_from=args.resume_from_checkpoint,
        overwrite=options.overwrite_output_dir,
    )
    corpus = load_corpus(options, task_class.read_file)
    settle_parts(args, options, corpus, given, rows="rows")
    task.read(corpus, stored_config(model_options))
    settle_best_metric(
        args,
        chosen=task.chosen_metric,
        computed=[*task.metrics, "loss"],
        lower_is_better=task.lower_is_better,
        given=given,
    )
    set_seed(args.seed)
    tokenizer, model = _tokenizer_and_model(task, model_options, corpus, checkpoint)
    max_length = settle_max_length(options, model, tokenizer)
    run = Run(list(argv), given, options, args, task, corpus, max_length, tokenizer)
    run.checkpoint = checkpoint
    for name, part in corpus.items():
        _add_rows(run, name, part)
    run.trainer = make_trainer(run, model)
    return run


def option_classes_of(task_class: type[FinetuneTask]) -> tuple[type, ...]:
    """Return the dataclasses whose fields are the options of a script.

    Args:
        task_class: the script.

    Returns:
        Model, data and training arguments.
    """
    return ModelArguments, task_class.option_class, FinetuneScriptArguments


def _tokenizer_and_model(
    task: FinetuneTask, model_options: ModelArguments, corpus: Corpus, checkpoint: Path | None
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    train = corpus.get("train")
    tokenizer = shared_by_processes(
        lambda: load_or_train_tokenizer(
            model_options,
            task.options,
            None if train is None else lambda: task.training_texts(train),
            checkpoint,
        ),
        task.args,
    )
    model = load_or_make_model(
        task.auto_class, model_options, task.options, tokenizer, task.config_values()
    )
    if checkpoint is not None:
        check_same_model(checkpoint, model.config)
    return tokenizer, model


def _add_rows(run: Run, name: str, part: Part) -> None:
    """Encode a part; rows that are only predicted are sorted by length, to save padding."""
    rows = run.task.encode(part, run.tokenizer, run.max_length)
    order = np.arange(len(rows))
    if name != "train":
        order = np.argsort(row_lengths(rows), kind="stable")
        rows = rows.select(order)
    run.encoded[name], run.orders[name] = rows, order


def make_trainer(run: Run, model: PreTrainedModel) -> FinetuneTrainer:
    """Make the trainer; not before this moment the output folder may come to be.

    Args:
        run: all of it but the trainer.
        model: to train.

    Returns:
        The trainer.
    """
    args, task, sampler = run.args, run.task, None
    if args.do_train and args.train_sampling_strategy == "group_by_length":
        seed = args.data_seed if args.data_seed is not None else args.seed
        lengths = row_lengths(run.encoded["train"])
        sampler = LengthGroupedBatchSampler(
            lengths, args.train_batch_size, seed=seed, drop_last=args.dataloader_drop_last
        )
    with output_folder(args, resumes=run.checkpoint is not None):
        return task.trainer_class()(
            model=model,
            args=args,
            loss=task.loss(),
            num_outputs=task.num_outputs,
            data_collator=task.collator(run.tokenizer, model),
            train_dataset=run.encoded.get("train"),
            eval_dataset=run.encoded.get("validation"),
            processing_class=run.tokenizer,
            callbacks=early_stopping(run.options),
            compute_metrics=_scorer(run),
            train_batch_sampler=sampler,
        )


def _scorer(run: Run) -> Callable[[EvalPrediction], dict[str, float]]:
    def score(evaluation: EvalPrediction) -> dict[str, float]:
        predictions = in_order(evaluation.predictions, run.orders["validation"])
        return run.task.score(run.corpus["validation"], predictions)

    return score


def in_order(predictions: Predictions, order: np.ndarray) -> Predictions:
    """Bring predictions of sorted rows back into the order of the data.

    Args:
        predictions: an array, or a tuple of arrays, (rows, ...).
        order: which row of the data each sorted row is.

    Returns:
        The same in the order of the data.
    """
    if isinstance(predictions, tuple):
        return tuple(in_order(item, order) for item in predictions)
    restored = np.empty_like(predictions[: len(order)])
    restored[order] = predictions[: len(order)]
    return restored


def run_all(run: Run | SeedRuns) -> dict[str, Any]:
    """Train, evaluate the best model, and write the output folder.

    Args:
        run: what `prepare` returned.

    Returns:
        The content of metrics.json.
    """
    if isinstance(run, SeedRuns):
        return run.run_all()
    args, trainer = run.args, run.trainer
    record = run_report.new_record(trainer, run.given, run.argv, script=run.task.script)
    record["data"] = {name: part.origin for name, part in run.corpus.items()}
    record["max_seq_length"] = run.max_length
    if args.do_train:
        record["train"] = trainer.train_from(run.checkpoint)
    predictions = {}
    for name in ("validation", "test"):
        if name in run.corpus and (name == "validation" or args.do_predict):
            predictions[name], record[name] = predict(run, name)
    finish(trainer, lambda folder: write_report(run, folder, record, predictions))
    return record


def predict(run: Run, name: str) -> tuple[Predictions, dict[str, Any]]:
    """Predict a part with the model that is saved, and score it.

    Args:
        run: the run, trained.
        name: of the part.

    Returns:
        The predictions in the order of `encode`, and the figures.
    """
    run.trainer.compute_metrics = None  # scored below
    start = time.perf_counter()
    output = run.trainer.predict(run.encoded[name], metric_key_prefix=name)
    seconds = time.perf_counter() - start
    predictions = in_order(output.predictions, run.orders[name])
    scores: dict[str, Any] = dict(run.task.score(run.corpus[name], predictions))
    if f"{name}_loss" in output.metrics:
        scores["loss"] = float(output.metrics[f"{name}_loss"])
    return predictions, scores | {"seconds": round(seconds, 1)}


def write_report(
    run: Run, folder: Path, record: dict[str, Any], predictions: dict[str, Predictions]
) -> None:
    """Write predictions, the learning curve, the state of the trainer, the card and metrics.json.

    Args:
        run: the run, trained.
        folder: where to write.
        record: the content of metrics.json.
        predictions: of each part.
    """
    record["files"] = {run_folder.FINISHED_FILE: "all figures of the run"}
    if predictions:
        name = "test" if "test" in predictions else "validation"
        part, found = run.corpus[name], predictions[name]
        run_report.write_lines(folder / "predictions.jsonl", run.task.prediction_lines(part, found))
        record["files"]["predictions.jsonl"] = f"every prediction for the {name} rows"
        record |= run.task.more_figures(part, found)
        record["examples"] = run.task.card_examples(part, found)
    run_report.draw_learning_curve(
        folder / "learning_curve.png",
        run.trainer.state.log_history,
        run.args.metric_for_best_model,
    )
    if run.args.do_train:
        run.trainer.state.save_to_json(str(folder / "trainer_state.json"))
        run_report.write_card(folder, record, model=run.trainer.model, tokenizer=run.tokenizer)
    run_report.write_json(folder / "metrics.json", record)


def main(task_class: type[FinetuneTask], argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run a script and return the content of metrics.json.

    Args:
        task_class: the script.
        argv: the words after the script's name; None takes those of the process.

    Returns:
        The figures of the run.
    """
    return run_all(prepare(task_class, sys.argv[1:] if argv is None else argv))


def command(task_class: type[FinetuneTask]) -> None:
    """Run a script for a person.

    Args:
        task_class: the script.
    """
    run_command(
        task_class.script,
        lambda argv: prepare(task_class, argv),
        run_all,
        result="Model, card, metrics and predictions",
    )
