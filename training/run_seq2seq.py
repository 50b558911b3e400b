"""Train and evaluate an encoder-decoder on pairs of text: pronunciation, inflection, dates.

    python training/run_seq2seq.py --model_type seqmodels_rnn_seq2seq \\
        --train_file pairs.tsv --output_dir runs/mine
    python training/run_seq2seq.py training/recipes/g2p_dutch.yaml \\
        --train_file dut_train.jsonl ... --output_dir runs/dutch
    accelerate launch training/run_seq2seq.py ...

Everything that can be refused is refused before training begins, and then nothing is written. An
interrupted run goes on where it stopped when the same command is given again. `--help` lists all
options.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import datasets
import numpy as np
import run_folder
import run_report
from script_arguments import given_options, parse_arguments
from script_models import (
    ModelArguments,
    check_model_choice,
    check_same_model,
    shared_by_processes,
)
from script_run import early_stopping, finish, output_folder, run_command
from seq2seq_arguments import (
    DataTrainingArguments,
    Seq2SeqScriptArguments,
    settle_arguments,
)
from seq2seq_data import (
    Corpus,
    Example,
    by_length,
    encode_corpus,
    load_corpus,
    resample_corpus,
    row_lengths,
)
from seq2seq_model import (
    check_guidance,
    check_lengths,
    load_or_make_model,
    load_or_train_tokenizer,
    settle_copying,
    settle_decoding,
    target_side,
)
from seq2seq_trainer import BatchSamplerTrainer
from transformers import (
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    EvalPrediction,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

import hf_seqmodels  # noqa: F401  (registers the model types)
from hf_seqmodels.checkpoint_averaging import (
    average_checkpoints,
    choose_checkpoints,
    exponential_weights,
)
from hf_seqmodels.data import LengthGroupedBatchSampler, Seq2SeqCollator, TokenBudgetBatchSampler
from hf_seqmodels.evaluation import decode_corpus, n_best
from hf_seqmodels.models.pipeline_seq2seq_generation import decode_rows

OPTION_CLASSES = (ModelArguments, DataTrainingArguments, Seq2SeqScriptArguments)
MODEL_KIND = MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, "a registered encoder-decoder"


@dataclass
class Run:
    """A run that has passed every check and may begin."""

    argv: list[str]
    given: dict[str, Any]  # what the user said, without defaults
    options: DataTrainingArguments
    args: Seq2SeqScriptArguments
    corpus: Corpus
    encoded: dict[str, datasets.Dataset]
    tokenizer: PreTrainedTokenizerBase
    trainer: BatchSamplerTrainer
    checkpoint: Path | None


def prepare(argv: Sequence[str]) -> Run:
    """Read options and data, make tokenizer, model and trainer, and refuse whatever cannot work.

    Args:
        argv: the words after the script's name.

    Returns:
        The run, ready for `run_all`.

    Raises:
        ValueError: if an option, a file, or their combination is wrong; nothing has been written
            then.
    """
    model_options, options, args = parse_arguments(OPTION_CLASSES, argv)
    given = given_options(OPTION_CLASSES, argv)
    check_model_choice(model_options, *MODEL_KIND)
    checkpoint = run_folder.find_checkpoint(
        args.output_dir,
        resume_from=args.resume_from_checkpoint,
        overwrite=options.overwrite_output_dir,
    )
    corpus = load_corpus(options)
    settle_arguments(args, options, corpus, given)
    set_seed(args.seed)
    tokenizer = shared_by_processes(
        lambda: load_or_train_tokenizer(model_options, options, corpus, checkpoint), args
    )
    model = load_or_make_model(model_options, tokenizer, args)
    if checkpoint is not None:
        check_same_model(checkpoint, model.config)
    tokenizer = settle_copying(tokenizer, model.config)
    check_guidance(model.config, options)
    encoded = encode_corpus(corpus, tokenizer, options)
    lengths = {part: row_lengths(rows) for part, rows in encoded.items()}
    check_lengths(model.config, lengths)
    settle_decoding(model, tokenizer, options, lengths.get("train"))
    sampler = train_batches(lengths["train"], args, options) if args.do_train else None
    rows = dict(encoded)
    if args.do_train and options.bpe_dropout:
        rows["train"] = resample_corpus(corpus.train, tokenizer, options)
    trainer = make_trainer(
        model, tokenizer, args, options, rows, sampler=sampler, resumes=checkpoint is not None
    )
    return Run(list(argv), given, options, args, corpus, encoded, tokenizer, trainer, checkpoint)


def make_trainer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    args: Seq2SeqScriptArguments,
    options: DataTrainingArguments,
    encoded: dict[str, Any],
    *,
    sampler: LengthGroupedBatchSampler | TokenBudgetBatchSampler | None,
    resumes: bool,
) -> BatchSamplerTrainer:
    """Make the trainer; not before this moment the output folder may come to be.

    Args:
        model: to train.
        tokenizer: saved with every checkpoint.
        args: the training arguments.
        options: the data options.
        encoded: the data.
        sampler: of the training batches.
        resumes: whether the run goes on from a checkpoint.

    Returns:
        The trainer.
    """
    with output_folder(args, resumes=resumes):
        return BatchSamplerTrainer(
            model=model,
            args=args,
            data_collator=Seq2SeqCollator(tokenizer, model=model),
            train_dataset=encoded.get("train"),
            eval_dataset=encoded.get("validation"),
            processing_class=tokenizer,
            callbacks=early_stopping(options),
            train_batch_sampler=sampler,
        )


def train_batches(
    lengths: Sequence[tuple[int, int]], args: Seq2SeqScriptArguments, options: DataTrainingArguments
) -> LengthGroupedBatchSampler | TokenBudgetBatchSampler | None:
    """Return the batch sampler that the options ask for; None leaves sampling to transformers.

    Args:
        lengths: of the training pairs.
        args: batch size, seed and train_sampling_strategy.
        options: max_tokens_per_batch.

    Returns:
        The sampler.
    """
    seed = args.data_seed if args.data_seed is not None else args.seed
    if options.max_tokens_per_batch is not None:
        return TokenBudgetBatchSampler(
            lengths, options.max_tokens_per_batch, max_batch_size=args.train_batch_size, seed=seed
        )
    if args.train_sampling_strategy == "group_by_length":
        return LengthGroupedBatchSampler(
            lengths, args.train_batch_size, seed=seed, drop_last=args.dataloader_drop_last
        )
    return None


def run_all(run: Run) -> dict[str, Any]:
    """Train, evaluate the best model, and write the output folder.

    Args:
        run: what `prepare` returned.

    Returns:
        The content of metrics.json.
    """
    args, corpus, trainer = run.args, run.corpus, run.trainer
    record = new_record(run)
    if args.do_train:
        record["train"] = train(run)
    args.predict_with_generate = True
    texts = {}
    for part in ("validation", "test"):
        if getattr(corpus, part) and (part == "validation" or args.do_predict):
            texts[part], record[part] = predict(run, part)
    finish(trainer, lambda folder: write_report(run, folder, record, texts))
    return record


def new_record(run: Run) -> dict[str, Any]:
    """Return what is known about a run before it begins.

    Args:
        run: the run.

    Returns:
        The first part of metrics.json.
    """
    decoding = {
        "num_beams": run.options.num_beams,
        "max_length": run.trainer.model.generation_config.max_length,
    }
    if run.options.num_beams > 1:
        decoding["length_penalty"] = run.options.length_penalty
    record = run_report.new_record(run.trainer, run.given, run.argv, script="run_seq2seq.py")
    return record | {"data": run.corpus.origins, "decoding": decoding}


def train(run: Run) -> dict[str, Any]:
    """Train from the beginning or from the checkpoint, and load the best model.

    Args:
        run: the run.

    Returns:
        Figures of the training.
    """
    if run.args.predict_with_generate and run.corpus.validation:
        run.trainer.compute_metrics = scorer(run)
    figures = {"rows": len(run.corpus.train), **run.trainer.train_from(run.checkpoint)}
    averaged = average(run)
    return figures | ({"averaged_steps": averaged} if averaged else {})


def average(run: Run) -> list[int]:
    """Give the model the mean of the checkpoints that the options name.

    Args:
        run: the run, trained.

    Returns:
        Steps of these checkpoints; none without such an option.
    """
    options, folder = run.options, Path(run.args.output_dir)
    choice: Literal["last", "best"] = "best" if options.average_best else "last"
    wanted = options.average_best or options.average_last
    if not wanted:
        return []
    run.trainer.accelerator.wait_for_everyone()
    count = min(wanted, len(list(folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"))))
    metric = f"eval_{str(run.args.metric_for_best_model).removeprefix('eval_')}"
    chosen = choose_checkpoints(
        folder, choice, count, metric=metric, greater_is_better=run.args.greater_is_better
    )
    decay = options.average_decay
    weights = None if decay is None else exponential_weights(len(chosen), decay)
    with tempfile.TemporaryDirectory() as scratch:
        mean = average_checkpoints(chosen, Path(scratch, "mean"), weights=weights)
        run.trainer._load_from_checkpoint(str(mean))
    return [int(path.name.rpartition("-")[2]) for path in chosen]


def scorer(run: Run) -> Callable[[EvalPrediction], dict[str, float]]:
    """Return the function that the trainer calls with its predictions on the validation data.

    Args:
        run: the run.

    Returns:
        A function from token ids to scores.
    """
    examples = by_length(run.corpus.validation)

    def score(evaluation: EvalPrediction) -> dict[str, float]:
        texts = decode(np.asarray(evaluation.predictions), run, examples)
        return run_report.corpus_scores(run.options.metrics, texts, examples)[0]

    return score


def decode(token_ids: np.ndarray, run: Run, examples: Sequence[Example]) -> list[str]:
    """Turn predicted ids, filled up with -100, into texts.

    Args:
        token_ids: predictions, (rows, length), perhaps more rows than examples.
        run: the run.
        examples: what was predicted.

    Returns:
        One text per example.
    """
    tokenizer, prefix = run.tokenizer, run.options.source_prefix
    token_ids = token_ids[: len(examples)]
    token_ids = np.where(token_ids == -100, target_side(tokenizer).pad_token_id, token_ids)
    sources = [prefix + example.source for example in examples]
    return decode_rows(tokenizer, token_ids.tolist(), sources, skip_special_tokens=True)


def predict(run: Run, part: str) -> tuple[list[str], dict[str, Any]]:
    """Decode one part of the data as the saved model will and score it.

    Args:
        run: the run.
        part: validation or test.

    Returns:
        The texts in the order of the data, and the scores.
    """
    examples, settings = getattr(run.corpus, part), {"num_beams": run.options.num_beams}
    if run.options.num_beams > 1:
        settings["length_penalty"] = run.options.length_penalty
    run.trainer.compute_metrics = None  # scored below, once, in the order of the data
    start = time.perf_counter()
    output = run.trainer.predict(run.encoded[part], metric_key_prefix=part, **settings)
    seconds = time.perf_counter() - start
    in_order = by_length(examples)
    sorted_texts = decode(np.asarray(output.predictions), run, in_order)
    text_of = dict(zip((example.source for example in in_order), sorted_texts, strict=True))
    texts = [text_of[example.source] for example in examples]
    scores, signatures = run_report.corpus_scores(run.options.metrics, texts, examples)
    scores |= {"loss": output.metrics[f"{part}_loss"], "seconds": round(seconds, 1)}
    return texts, scores | ({"signatures": signatures} if signatures else {})


def write_report(
    run: Run, folder: Path, record: dict[str, Any], texts: dict[str, list[str]]
) -> None:
    """Write predictions, pictures, the state of the trainer, the card and metrics.json.

    Args:
        run: the run, trained.
        folder: where to write.
        record: the content of metrics.json.
        texts: predictions of each part.
    """
    model, tokenizer = run.trainer.model, run.tokenizer
    if texts:
        part = "test" if "test" in texts else "validation"
        record |= write_predictions(run, folder, getattr(run.corpus, part), texts[part])
    else:
        sources = [run.options.source_prefix + run.corpus.train[0].source]
        found = decode_corpus(
            model, tokenizer, sources, num_beams=run.options.num_beams, progress=False
        )
        record["examples"] = [[sources[0], found[0]]]
    run_report.draw_learning_curve(
        folder / "learning_curve.png",
        run.trainer.state.log_history,
        run.args.metric_for_best_model,
    )
    if run.args.do_train:
        run.trainer.state.save_to_json(str(folder / "trainer_state.json"))
        run_report.write_card(folder, record, model=model, tokenizer=tokenizer)
    run_report.write_json(folder / "metrics.json", record)


def write_predictions(
    run: Run, folder: Path, examples: Sequence[Example], texts: Sequence[str]
) -> dict[str, Any]:
    """Write predictions.jsonl, alignments.png and alignments.html.

    Args:
        run: the run, trained.
        folder: where to write.
        examples: the rows that were decoded.
        texts: what became of them.

    Returns:
        Entries of metrics.json: examples, the name of the picture, the files written.
    """
    model, tokenizer, options = run.trainer.model, run.tokenizer, run.options
    sources = [options.source_prefix + row.source for row in examples]
    hypotheses = None
    if options.num_return_sequences > 1:
        hypotheses = n_best(
            model,
            tokenizer,
            sources,
            num_beams=options.num_beams,
            num_return_sequences=options.num_return_sequences,
            length_penalty=options.length_penalty,
            batch_size=run.args.eval_batch_size,
        )
    run_report.write_predictions(folder / "predictions.jsonl", examples, texts, hypotheses)
    picture = folder / "alignments.png"
    is_drawn = run_report.draw_alignments(
        picture,
        model,
        tokenizer,
        sources,
        num_items=options.num_alignments,
        num_beams=options.num_beams,
    )
    page = {"alignments.html": "the attention on a few sources, to explore in a browser"}
    return {
        "examples": run_report.good_examples(sources, texts, examples),
        "alignment_picture": picture.name if is_drawn else None,
        "files": {
            "predictions.jsonl": "every prediction",
            run_folder.FINISHED_FILE: "all figures of the run",
            **(page if is_drawn else {}),
        },
    }


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the script and return the content of metrics.json.

    Args:
        argv: the words after the script's name; None takes those of the process.

    Returns:
        The figures of the run.
    """
    return run_all(prepare(sys.argv[1:] if argv is None else argv))


def command() -> None:
    """Run the script for a person."""
    run_command("run_seq2seq.py", prepare, run_all, result="Model, card, metrics and predictions")


if __name__ == "__main__":
    command()
