"""Train and evaluate a language model on text: characters, words or pieces of words.

    python training/run_clm.py --model_type seqmodels_decoder_lm \\
        --train_file book.txt --output_dir runs/book
    python training/run_clm.py --model_type seqmodels_rnn_lm --stateful \\
        --tokenizer_model symbol --train_file ptb.train.txt ... --output_dir runs/ptb
    accelerate launch training/run_clm.py ...

Everything that can be refused is refused before training begins, and then nothing is written. An
interrupted run goes on where it stopped when the same command is given again. `--help` lists all
options.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import run_folder
import run_report
from clm_arguments import (
    CausalLMScriptArguments,
    DataTrainingArguments,
    check_options,
)
from clm_data import encode_documents, streamed_rows, training_rows
from clm_model import (
    is_recurrent,
    load_or_make_model,
    settle_block_size,
    settle_decoding,
)
from clm_samples import default_prompts, draw_samples, sampling_methods
from clm_trainers import RowTrainer, StatefulRunTrainer
from script_arguments import given_options, parse_arguments
from script_models import ModelArguments, check_model_choice, check_same_model, shared_by_processes
from script_run import early_stopping, finish, output_folder, run_command
from text_arguments import settle_arguments
from text_corpus import Corpus, load_corpus, row_dataset
from text_tokenizer import load_or_train_tokenizer
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)

import hf_seqmodels  # noqa: F401  (registers the model types)
from hf_seqmodels.data import LanguageModelingCollator
from hf_seqmodels.evaluation import CorpusPerplexity, corpus_perplexity

OPTION_CLASSES = (ModelArguments, DataTrainingArguments, CausalLMScriptArguments)
FILES = {
    "samples.jsonl": "what the model writes",
    run_folder.FINISHED_FILE: "all figures of the run",
}
MODEL_KIND = MODEL_FOR_CAUSAL_LM_MAPPING, "a registered causal language model"


@dataclass
class Run:
    """A run that has passed every check and may begin."""

    argv: list[str]
    given: dict[str, Any]  # what the user said, without defaults
    options: DataTrainingArguments
    args: CausalLMScriptArguments
    corpus: Corpus
    token_ids: dict[str, list[list[int]]]  # documents of each part that is held in memory
    block_size: int
    tokenizer: PreTrainedTokenizerBase
    trainer: RowTrainer | StatefulRunTrainer
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
            *(model_options, options, corpus, checkpoint),
            default_model="bpe",
            append_eos=False,  # a prompt is not the end of a text
        ),
        args,
    )
    model = load_or_make_model(model_options, options, tokenizer, args)
    if checkpoint is not None:
        check_same_model(checkpoint, model.config)
    block_size = settle_block_size(options, model)
    settle_decoding(model, tokenizer, block_size)
    token_ids = {
        part: list(encode_documents(getattr(corpus, part), tokenizer))
        for part in ("train", "validation", "test")
        if getattr(corpus, part)
    }
    for part, documents in token_ids.items():
        corpus.origins[part]["tokens"] = sum(map(len, documents))
    run = Run(
        *(list(argv), given, options, args, corpus, token_ids, block_size, tokenizer),
        trainer=None,  # the output folder may come to be when it is made
        checkpoint=checkpoint,
    )
    run.trainer = make_trainer(run, model)
    return run


def make_trainer(run: Run, model: PreTrainedModel) -> RowTrainer | StatefulRunTrainer:
    """Make the trainer; not before this moment the output folder may come to be.

    Args:
        run: all of it but the trainer.
        model: to train.

    Returns:
        The trainer.
    """
    args, options = run.args, run.options
    common = {
        "model": model,
        "args": args,
        "processing_class": run.tokenizer,
        "callbacks": early_stopping(options),
    }
    if options.stateful:
        kind = StatefulRunTrainer
        common |= {
            "train_dataset": joined(run, "train"),
            "eval_dataset": joined(run, "validation"),
            "window_size": run.block_size,
            "varied_windows": options.varied_windows,
        }
    else:
        kind = RowTrainer
        common |= {
            "train_dataset": rows(run, "train") if args.do_train else None,
            "eval_dataset": rows(run, "validation"),
            "data_collator": LanguageModelingCollator(run.tokenizer),
        }
    with output_folder(args, resumes=run.checkpoint is not None):
        return kind(**common)


def joined(run: Run, part: str) -> list[int] | None:
    """Return a part of the text as one long row of tokens.

    Args:
        run: the run.
        part: of the data.

    Returns:
        Token ids, or None if there is no such part.
    """
    documents = run.token_ids.get(part)
    return documents and [token_id for document in documents for token_id in document]


def rows(run: Run, part: str) -> Any:
    """Return a part of the text as rows for the Trainer.

    Args:
        run: the run.
        part: of the data.

    Returns:
        A dataset, or None if there is no such part.
    """
    if part == "train" and run.corpus.train_stream:
        return streamed_rows(
            run.corpus.train_stream, run.tokenizer, run.options, run.block_size, run.args
        )
    if part not in run.token_ids:
        return None
    return row_dataset(training_rows(run.token_ids[part], run.options, run.block_size), part)


def run_all(run: Run) -> dict[str, Any]:
    """Train, evaluate the best model, and write the output folder.

    Args:
        run: what `prepare` returned.

    Returns:
        The content of metrics.json.
    """
    args, trainer = run.args, run.trainer
    record = new_record(run)
    if args.do_train:
        record["train"] = trainer.train_from(run.checkpoint)
    for part in ("validation", "test"):
        if part in run.token_ids and (part == "validation" or args.do_predict):
            record[part] = evaluate(run, part)
    finish(trainer, lambda folder: write_report(run, folder, record))
    return record


def new_record(run: Run) -> dict[str, Any]:
    """Return what is known about a run before it begins.

    Args:
        run: the run.

    Returns:
        The first part of metrics.json.
    """
    record = run_report.new_record(run.trainer, run.given, run.argv, script="run_clm.py")
    return record | {"data": run.corpus.origins, "block_size": run.block_size, "files": FILES}


def evaluate(run: Run, part: str) -> dict[str, Any]:
    """Measure how well the saved model predicts a part of the text, every token counted once.

    Args:
        run: the run.
        part: validation or test.

    Returns:
        `loss` in nats per token, `perplexity`, `bits_per_byte`, `bits_per_character`, `tokens` and
        `seconds`.
    """
    origin, start = run.corpus.origins[part], time.perf_counter()
    found = corpus_figures(run, run.token_ids[part])
    return {
        "loss": found.nats_per_token,
        "perplexity": found.perplexity,
        "bits_per_byte": found.bits_per_unit(origin["bytes"]),
        "bits_per_character": found.bits_per_unit(origin["characters"]),
        "tokens": found.num_tokens,
        "seconds": round(time.perf_counter() - start, 1),
    }


def corpus_figures(run: Run, documents: list[list[int]]) -> CorpusPerplexity:
    """Score documents as the model was trained to read them.

    Args:
        run: the run, trained.
        documents: token ids.

    Returns:
        The sum over all documents. Where documents follow one another, every token counts, the
        first one predicted from the end-of-text token; where they do not see one another, the first
        token of each document is predicted from nothing and left out.
    """
    model, options = run.trainer.model.eval(), run.options
    window: dict[str, Any] = {"window_size": run.block_size}
    if not is_recurrent(model):
        window["stride"] = options.stride
    if options.packing == "concatenate":
        start = run.tokenizer.eos_token_id
        return corpus_perplexity(model, documents, start_token_id=start, progress=True, **window)
    scored = [
        corpus_perplexity(model, document, **window) for document in documents if len(document) > 1
    ]
    return CorpusPerplexity(
        total_nats=sum(item.total_nats for item in scored),
        num_tokens=sum(item.num_tokens for item in scored),
    )


def write_report(run: Run, folder: Path, record: dict[str, Any]) -> None:
    """Write samples, the learning curve, the state of the trainer, the card and metrics.json.

    Args:
        run: the run, trained.
        folder: where to write.
        record: the content of metrics.json.
    """
    samples = make_samples(run)
    with (folder / "samples.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(sample, ensure_ascii=False) + "\n" for sample in samples)
    record["examples"] = card_examples(run, list(dict.fromkeys(s["prompt"] for s in samples)))
    run_report.draw_learning_curve(
        folder / "learning_curve.png", run.trainer.state.log_history, None
    )
    if run.args.do_train:
        run.trainer.state.save_to_json(str(folder / "trainer_state.json"))
        run_report.write_card(folder, record, model=run.trainer.model, tokenizer=run.tokenizer)
    run_report.write_json(folder / "metrics.json", record)


def make_samples(run: Run) -> list[dict[str, Any]]:
    """Let the model go on from the prompts by every method.

    Args:
        run: the run, trained.

    Returns:
        See `draw_samples`.
    """
    options, tokenizer = run.options, run.tokenizer
    if options.sample_prompts:
        prompts = [tokenizer(text)["input_ids"] for text in options.sample_prompts]
        prompts = [[i for i in ids if i != tokenizer.eos_token_id] for ids in prompts]
    else:
        corpus = run.corpus
        texts = corpus.validation or corpus.test or corpus.train
        prompts = default_prompts(texts, tokenizer, options.num_samples)
    set_seed(run.args.seed)
    return draw_samples(
        run.trainer.model.eval(),
        tokenizer,
        [prompt for prompt in prompts if prompt][: options.num_samples],
        sampling_methods(options.temperature, options.top_k, options.top_p),
        num_tokens=options.sample_tokens,
    )


def card_examples(run: Run, prompts: Sequence[str]) -> list[list[str]]:
    """Return prompts with what the code on the card prints for them.

    Args:
        run: the run, trained.
        prompts: texts.

    Returns:
        Pairs of a prompt and the whole text, prompt included.
    """
    model, tokenizer, pairs = run.trainer.model, run.tokenizer, []
    for prompt in prompts:
        batch = tokenizer([prompt], return_tensors="pt").to(model.device)
        written = model.generate(**batch)
        pairs.append([prompt, tokenizer.batch_decode(written, skip_special_tokens=True)[0]])
    return pairs


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
    run_command("run_clm.py", prepare, run_all, result="Model, card, metrics and samples")


if __name__ == "__main__":
    command()
