"""Pretrain an encoder on text: masked words, and with --next_sentence pairs of texts too.

    python training/run_mlm.py --model_type seqmodels_text_encoder \\
        --train_file books.txt --output_dir runs/encoder
    python training/run_mlm.py --model_name_or_path bert-base-uncased \\
        --train_file notes.jsonl --line_by_line --output_dir runs/notes
    python training/run_mlm.py --model_type bert --next_sentence --text_unit paragraph ...
    accelerate launch training/run_mlm.py ...

A tokenizer is trained on the text where none is given. Evaluation always asks for the same tokens.
Everything that can be refused is refused before training begins, and then nothing is written. An
interrupted run goes on where it stopped when the same command is given again. `--help` lists all
options.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import datasets
import run_folder
import run_report
from mlm_arguments import DataTrainingArguments, MaskedLMScriptArguments, check_options
from mlm_data import RowMaker
from mlm_model import MaskedLMTrainer, load_or_make_model, settle_max_length
from mlm_samples import texts_with_a_mask
from script_arguments import given_options, parse_arguments
from script_models import ModelArguments, check_model_choice, check_same_model, shared_by_processes
from script_run import early_stopping, finish, output_folder, run_command
from text_arguments import settle_arguments
from text_corpus import Corpus, load_corpus
from text_tokenizer import load_or_train_tokenizer
from transformers import (
    MODEL_FOR_MASKED_LM_MAPPING,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)

import hf_seqmodels  # noqa: F401  (registers the model types)
from hf_seqmodels.data import LengthGroupedBatchSampler, MaskEpochs, MaskingCollator, WordStarts
from hf_seqmodels.evaluation import FilledMask, fill_masks, masked_token_figures

OPTION_CLASSES = (ModelArguments, DataTrainingArguments, MaskedLMScriptArguments)
FILES = {
    "samples.jsonl": "what the model fills in",
    run_folder.FINISHED_FILE: "all figures of the run",
}
MODEL_KIND = MODEL_FOR_MASKED_LM_MAPPING, "a registered masked language model"
EVALUATION_SEED = 0  # of masks and pairs, whatever the run's seed, so that runs compare


@dataclass
class Run:
    """A run that has passed every check and may begin."""

    argv: list[str]
    given: dict[str, Any]  # what the user said, without defaults
    options: DataTrainingArguments
    args: MaskedLMScriptArguments
    corpus: Corpus
    max_length: int
    tokenizer: PreTrainedTokenizerBase
    rows: dict[str, Any]  # of each part; those to evaluate on are masked
    trainer: MaskedLMTrainer
    checkpoint: Path | None


def prepare(argv: Sequence[str]) -> Run:
    """Read options and text, make tokenizer, model and trainer, and refuse whatever cannot work.

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
    check_options(options, args)
    checkpoint = run_folder.find_checkpoint(
        args.output_dir,
        resume_from=args.resume_from_checkpoint,
        overwrite=options.overwrite_output_dir,
    )
    corpus = load_corpus(options)
    settle_arguments(args, options, corpus.parts, given)
    set_seed(args.seed)
    tokenizer = shared_by_processes(
        lambda: load_or_train_tokenizer(
            *(model_options, options, corpus, checkpoint), default_model="wordpiece", style="bert"
        ),
        args,
    )
    model = load_or_make_model(model_options, options, tokenizer)
    if checkpoint is not None:
        check_same_model(checkpoint, model.config)
    check_samples(options, tokenizer)
    max_length = settle_max_length(options, model, tokenizer)
    collator = make_collator(options, tokenizer, max_length, seed=args.seed)
    rows = make_rows(options, args, corpus, tokenizer, max_length)
    trainer = make_trainer(args, options, model, tokenizer, rows, collator, checkpoint)
    return Run(
        *(list(argv), given, options, args, corpus, max_length, tokenizer, rows),
        trainer=trainer,
        checkpoint=checkpoint,
    )


def check_samples(options: DataTrainingArguments, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse texts to fill in that have nothing to fill in.

    Args:
        options: sample_texts.
        tokenizer: has the mask token.

    Raises:
        ValueError: if there is such a text.
    """
    for text in options.sample_texts or ():
        if tokenizer.mask_token not in text:
            raise ValueError(
                f"sample_texts must hold the mask token {tokenizer.mask_token}, got {text!r}. "
                "Write it where a word is missing."
            )


def make_collator(
    options: DataTrainingArguments,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    *,
    seed: int,
) -> MaskingCollator:
    """Make what masks rows.

    Args:
        options: say how.
        tokenizer: of the model.
        max_length: tokens in a row at most.
        seed: of the masks.

    Returns:
        The collator.

    Raises:
        ValueError: if a share is out of range, or whole words cannot be found.
    """
    if options.whole_word_mask:
        WordStarts(tokenizer)  # refuses tokenizers that do not tell
    return MaskingCollator(
        tokenizer,
        whole_word_mask=options.whole_word_mask,
        mlm_probability=options.mlm_probability,
        mask_replace_prob=options.mask_replace_prob,
        random_replace_prob=options.random_replace_prob,
        pad_to_multiple_of=max_length if options.pad_to_max_length else None,
        seed=seed,
    )


def make_rows(
    options: DataTrainingArguments,
    args: MaskedLMScriptArguments,
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
) -> dict[str, Any]:
    """Turn the text into rows; those to evaluate on are masked once and for all.

    Args:
        options: say how.
        args: give the seed.
        corpus: the text.
        tokenizer: of the model.
        max_length: tokens in a row at most.

    Returns:
        Datasets by part.

    Raises:
        ValueError: if a part has no rows.
    """
    rows: dict[str, Any] = {}
    maker = RowMaker(options, tokenizer, max_length, args.seed)
    if corpus.train_stream and args.do_train:
        rows["train"] = maker.stream(corpus.train_stream, args)
    elif corpus.train and args.do_train:
        rows["train"] = maker.dataset(corpus.train, "train")
        corpus.origins["train"]["tokens"] = sum(map(len, rows["train"]["input_ids"]))
    maker = RowMaker(options, tokenizer, max_length, EVALUATION_SEED)
    collator = make_collator(options, tokenizer, max_length, seed=EVALUATION_SEED)
    for part in ("validation", "test"):
        if texts := getattr(corpus, part):
            plain = maker.dataset(texts, part)
            corpus.origins[part]["tokens"] = sum(map(len, plain["input_ids"]))
            rows[part] = datasets.Dataset.from_list([collator.mask_row(row) for row in plain])
    return rows


def make_trainer(
    args: MaskedLMScriptArguments,
    options: DataTrainingArguments,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: dict[str, Any],
    collator: MaskingCollator,
    checkpoint: Path | None,
) -> MaskedLMTrainer:
    """Make the trainer; not before this moment the output folder may come to be.

    Args:
        args: the training arguments.
        options: the data options.
        model: to train.
        tokenizer: of the model.
        rows: datasets by part.
        collator: masks rows.
        checkpoint: where the run resumes.

    Returns:
        The trainer.
    """
    sampler = None
    if args.train_sampling_strategy == "group_by_length" and args.do_train:
        if options.streaming:
            raise ValueError(
                "group_by_length needs all rows before training, and streaming has none. Leave "
                "train_sampling_strategy out."
            )
        sampler = LengthGroupedBatchSampler(
            list(map(len, rows["train"]["input_ids"])),
            args.train_batch_size,
            seed=args.seed if args.data_seed is None else args.data_seed,
            drop_last=args.dataloader_drop_last,
        )
    args.prediction_loss_only = True  # all scores of all tokens would have to be kept
    with output_folder(args, resumes=checkpoint is not None):
        return MaskedLMTrainer(
            model=model,
            args=args,
            processing_class=tokenizer,
            callbacks=[*early_stopping(options), MaskEpochs(collator)],
            train_dataset=rows.get("train"),
            eval_dataset=rows.get("validation"),
            data_collator=collator,
            train_batch_sampler=sampler,
        )


def run_all(run: Run) -> dict[str, Any]:
    """Train, evaluate the best model, and write the output folder.

    Args:
        run: what `prepare` returned.

    Returns:
        The content of metrics.json.
    """
    args, trainer = run.args, run.trainer
    record = run_report.new_record(trainer, run.given, run.argv, script="run_mlm.py")
    record |= {"data": run.corpus.origins, "max_seq_length": run.max_length, "files": FILES}
    if args.do_train:
        record["train"] = trainer.train_from(run.checkpoint)
    for part in ("validation", "test"):
        if part in run.rows and (part == "validation" or args.do_predict):
            record[part] = evaluate(run, part)
    finish(trainer, lambda folder: write_report(run, folder, record))
    return record


def evaluate(run: Run, part: str) -> dict[str, Any]:
    """Measure how well the saved model tells the masked tokens of a part of the text.

    Args:
        run: the run.
        part: validation or test.

    Returns:
        `loss` in nats per masked token, `perplexity`, `accuracy` (a percentage), `tokens` (masked
        ones), `next_sentence_accuracy` where it is trained, and `seconds`.
    """
    start = time.perf_counter()
    found = masked_token_figures(
        run.trainer.model,
        run.rows[part],
        run.trainer.data_collator,
        batch_size=run.args.per_device_eval_batch_size,
        progress=not run.args.disable_tqdm and run.args.should_log,
    )
    figures = {
        "loss": found.nats_per_token,
        "perplexity": found.perplexity,
        "accuracy": found.accuracy,
    }
    if found.next_sentence_accuracy is not None:
        figures["next_sentence_accuracy"] = found.next_sentence_accuracy
    seconds = round(time.perf_counter() - start, 1)
    return figures | {"tokens": found.num_tokens, "seconds": seconds}


def write_report(run: Run, folder: Path, record: dict[str, Any]) -> None:
    """Write samples, the learning curve, the state of the trainer, the card and metrics.json.

    Args:
        run: the run, trained.
        folder: where to write.
        record: the content of metrics.json.
    """
    samples = make_samples(run)
    run_report.write_lines(folder / "samples.jsonl", map(asdict, samples))
    record["examples"] = [[sample.text, sample.filled] for sample in samples if not sample.place]
    history = run.trainer.state.log_history
    run_report.draw_learning_curve(folder / "learning_curve.png", history, None)
    if run.args.do_train:
        run.trainer.state.save_to_json(str(folder / "trainer_state.json"))
        run_report.write_card(folder, record, model=run.trainer.model, tokenizer=run.tokenizer)
    run_report.write_json(folder / "metrics.json", record)


def make_samples(run: Run) -> list[FilledMask]:
    """Let the model fill in masks of the user's texts, or of validation texts.

    Args:
        run: the run, trained.

    Returns:
        What it fills in.
    """
    options, corpus = run.options, run.corpus
    texts = options.sample_texts
    if texts is None:
        documents = corpus.validation or corpus.test or corpus.train
        texts = texts_with_a_mask(documents, run.tokenizer, options.num_samples)
    model: Any = run.trainer.model
    return fill_masks(
        model, run.tokenizer, texts[: options.num_samples], top_k=options.sample_top_k
    )


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
    run_command("run_mlm.py", prepare, run_all, result="Model, card, metrics and samples")


if __name__ == "__main__":
    command()
