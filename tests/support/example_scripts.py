"""What the example scripts of transformers read here: rows, metrics, checkpoints, arguments."""

import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

NAMES, PLACES = ("anna", "bert", "carla", "dora"), ("oslo", "rome", "bern", "lima")
SIDES = {"oslo": 1, "bern": 1, "rome": 0, "lima": 0}  # north or not
PARTS = {"train": slice(0, 8), "validation": slice(8, 13), "test": slice(13, 16)}
BLOCK_SIZE = 16
MOST_TOKENS = 12  # of what is generated
RECURRENT = {"embedding_size": 10, "hidden_size": 12}
TRANSFORMER = {"hidden_size": 12, "num_attention_heads": 2, "intermediate_size": 16}
LANGUAGE_MODELS = ("decoder_lm", "rnn_lm")
ENCODERS = ("text_encoder", "decoder_lm")
ENCODER_DECODERS = ("rnn_seq2seq", "transformer_seq2seq")


@dataclass(frozen=True)
class Script:
    """An example script and what it is given.

    Args:
        path: below `examples/pytorch`.
        families: whose checkpoints it takes.
        files: extension of the files of rows, and the parts that are read.
        arguments: more words of the command line.
        result: what it reports of the validation rows beside the loss.
    """

    path: str
    families: tuple[str, ...]
    files: tuple[str, ...]
    arguments: tuple[str, ...]
    result: str


TRAIN_AND_VALIDATION, ALL_PARTS = ("train", "validation"), ("train", "validation", "test")
PREDICT = ("--do_predict",)
GENERATE = (*PREDICT, "--predict_with_generate", "--num_beams", "2")
SHORT = ("--max_target_length", str(MOST_TOKENS))
SCRIPTS = {
    "run_clm": Script(
        "language-modeling/run_clm.py",
        LANGUAGE_MODELS,
        ("txt", *TRAIN_AND_VALIDATION),
        ("--block_size", str(BLOCK_SIZE)),
        "accuracy",
    ),
    "run_mlm": Script(
        "language-modeling/run_mlm.py",
        ("text_encoder",),
        ("txt", *TRAIN_AND_VALIDATION),
        ("--line_by_line", "--max_seq_length", "16", "--mlm_probability", "0.4"),
        "accuracy",
    ),
    "run_glue": Script(
        "text-classification/run_glue.py",
        ENCODERS,
        ("csv", *ALL_PARTS),
        ("--max_seq_length", "32", *PREDICT),
        "accuracy",
    ),
    "run_classification": Script(
        "text-classification/run_classification.py",
        ENCODERS,
        ("csv", *ALL_PARTS),
        ("--max_seq_length", "32", "--text_column_names", "sentence", *PREDICT),
        "accuracy",
    ),
    "run_ner": Script(
        "token-classification/run_ner.py",
        ENCODERS,
        ("json", *ALL_PARTS),
        PREDICT,
        "f1",
    ),
    "run_qa": Script(
        "question-answering/run_qa.py",
        ("text_encoder",),
        ("json", *ALL_PARTS),
        ("--max_seq_length", "24", "--doc_stride", "4", *PREDICT),
        "exact_match",
    ),
    "run_swag": Script(
        "multiple-choice/run_swag.py",
        ("text_encoder",),
        ("json", *TRAIN_AND_VALIDATION),
        ("--max_seq_length", "24"),
        "accuracy",
    ),
    "run_translation": Script(
        "translation/run_translation.py",
        ENCODER_DECODERS,
        ("json", *ALL_PARTS),
        ("--source_lang", "en", "--target_lang", "de", *GENERATE, *SHORT),
        "bleu",
    ),
    "run_summarization": Script(
        "summarization/run_summarization.py",
        ENCODER_DECODERS,
        ("json", *ALL_PARTS),
        (*GENERATE, *SHORT, "--max_source_length", "1100"),  # more than the models have places
        "rouge1",
    ),
}
METRIC = """
import datasets
import evaluate
import numpy


class Metric(evaluate.Metric):
    def _info(self):
        features = datasets.Features({features})
        texts = dict.fromkeys(("description", "citation", "inputs_description"), "")
        return evaluate.MetricInfo(**texts, features=features)

    def _compute(self, predictions, references, **options):
{body}
"""
NUMBER, TEXT = 'datasets.Value("int64")', 'datasets.Value("string")'
ANSWERS = f'{{"text": datasets.List({TEXT}), "answer_start": datasets.List({NUMBER})}}'
# in place of the metrics of the hub: what each asks for and returns, computed in the simplest way
METRICS = {
    "accuracy": (
        (NUMBER, NUMBER),
        "return {'accuracy': float(numpy.mean(numpy.equal(predictions, references)))}",
    ),
    "seqeval": (
        (f"datasets.List({TEXT})", f"datasets.List({TEXT})"),
        "tags = [pair for row in zip(predictions, references) for pair in zip(*row)]\n"
        "share = sum(found == right for found, right in tags) / len(tags)\n"
        "return {'overall_' + name: share for name in ('precision', 'recall', 'f1', 'accuracy')}",
    ),
    "squad": (
        (
            f'{{"id": {TEXT}, "prediction_text": {TEXT}}}',
            f'{{"id": {TEXT}, "answers": {ANSWERS}}}',
        ),
        "right = [row['answers']['text'] for row in references]\n"
        "found = [row['prediction_text'] in text for row, text in zip(predictions, right)]\n"
        "return {'exact_match': 100 * float(numpy.mean(found))}",
    ),
    "sacrebleu": (
        (TEXT, f"datasets.List({TEXT})"),
        "import sacrebleu\n"
        "streams = [list(texts) for texts in zip(*references)]\n"
        "return {'score': sacrebleu.corpus_bleu(predictions, streams).score}",
    ),
    "rouge": (  # codespell:ignore rouge
        (TEXT, TEXT),
        "shared = [set(a.split()) & set(b.split()) for a, b in zip(predictions, references)]\n"
        "parts = zip(shared, references)\n"
        "return {'rouge1': float(numpy.mean([len(a) / len(set(b.split())) for a, b in parts]))}",
    ),
}


def sentence(name: str, place: str) -> str:
    """Return the sentence that all rows are made of."""
    return f"{name} lives in {place} ."


def rows_of(script: str) -> list[Any]:
    """Return the rows of a script, in the form it reads."""
    pairs = list(product(NAMES, PLACES))
    if script in ("run_clm", "run_mlm"):
        return [sentence(*pair) for pair in pairs]
    if script in ("run_glue", "run_classification"):
        return [{"sentence": sentence(*pair), "label": SIDES[pair[1]]} for pair in pairs]
    if script == "run_ner":
        tags = ["B-PER", "O", "O", "B-LOC", "O"]
        return [{"tokens": sentence(*pair).split(), "ner_tags": tags} for pair in pairs]
    if script == "run_qa":
        return [question(index, *pair) for index, pair in enumerate(pairs)]
    if script == "run_swag":
        return [choice(*pair) for pair in pairs]
    if script == "run_translation":
        return [
            {"translation": {"en": sentence(*pair), "de": translation(*pair)}} for pair in pairs
        ]
    return [{"text": 2 * (sentence(*pair) + " "), "summary": " ".join(pair)} for pair in pairs]


def question(index: int, name: str, place: str) -> dict[str, Any]:
    """Return a row of a question that its text answers."""
    text = sentence(name, place)
    answers = {"text": [place], "answer_start": [text.index(place)]}
    asked = f"where lives {name} ?"
    return {"id": str(index), "question": asked, "context": text, "answers": answers}


def choice(name: str, place: str) -> dict[str, Any]:
    """Return a row of four places to choose from."""
    endings = {f"ending{index}": known for index, known in enumerate(PLACES)}
    right = {"label": PLACES.index(place)}
    return {"sent1": sentence(name, place), "sent2": f"{name} lives in", **endings, **right}


def translation(name: str, place: str) -> str:
    """Return the sentence in the other language."""
    return f"{name} wohnt in {place.capitalize()} ."


def write_rows(script: str, folder: Path) -> list[str]:
    """Write the rows of a script and return the words of its command line that name the files."""
    extension, *parts = SCRIPTS[script].files
    words = []
    for part in parts:
        path = folder / f"{part}.{extension}"
        rows = rows_of(script)[PARTS[part]]
        if extension == "txt":
            text = "".join(f"{row}\n" for row in rows)
        elif extension == "csv":
            text = "".join(
                ",".join(map(str, row)) + "\n" for row in [rows[0], *map(dict.values, rows)]
            )
        elif script == "run_qa":
            text = json.dumps({"data": rows})
        else:
            text = "".join(json.dumps(row) + "\n" for row in rows)
        path.write_text(text, encoding="utf-8")
        words += [f"--{part}_file", str(path)]
    return words


def write_metrics(folder: Path) -> None:
    """Write the metrics as folders that `evaluate.load` finds when it runs in this one."""
    for name, ((predictions, references), body) in METRICS.items():
        features = f'{{"predictions": {predictions}, "references": {references}}}'
        lines = "".join(f"        {line}\n" for line in body.splitlines())
        path = folder / name / f"{name}.py"
        path.parent.mkdir(parents=True)
        path.write_text(METRIC.format(features=features, body=lines), encoding="utf-8")


def write_punkt(folder: Path) -> None:
    """Write data of nltk that cuts sentences: no abbreviations, nothing learned."""
    (folder / "tokenizers" / "punkt").mkdir(parents=True)
    english = folder / "tokenizers" / "punkt_tab" / "english"
    english.mkdir(parents=True)
    for name in ("collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab"):
        (english / name).write_text("")


def make_checkpoint(family: str) -> tuple[Any, Any]:
    """Return a tiny model of a family, as it comes from pretraining, and its tokenizer."""
    import hf_seqmodels
    from hf_seqmodels.data import Seq2SeqTokenizer, train_tokenizer

    pairs = list(product(NAMES, PLACES))
    texts = [sentence(*pair) for pair in pairs]
    torch.manual_seed(4)
    if family in LANGUAGE_MODELS:
        tokenizer = train_tokenizer([f"{text}\n" for text in texts], model="char", append_eos=False)
    elif family == "text_encoder":
        words = [*texts, *(question(0, *pair)["question"] for pair in pairs)]
        tokenizer = train_tokenizer(words, model="wordpiece", style="bert")
    else:
        targets = [translation(*pair) for pair in pairs] + [" ".join(pair) for pair in pairs]
        tokenizer = Seq2SeqTokenizer.from_pair(
            train_tokenizer(texts, model="word"), train_tokenizer(targets, model="word")
        )
    name, head, sizes = CLASSES[family]
    options: dict[str, Any] = {"vocab_size": len(tokenizer), **sizes}
    if family in ENCODER_DECODERS:
        options["decoder_vocab_size"] = len(tokenizer.target_tokenizer)
    config = getattr(hf_seqmodels, f"{name}Config")(**options)
    return getattr(hf_seqmodels, f"{name}For{head}")(config).eval(), tokenizer


CLASSES = {
    "decoder_lm": ("DecoderLM", "CausalLM", TRANSFORMER),
    "rnn_lm": ("RnnLM", "CausalLM", RECURRENT),
    "text_encoder": ("TextEncoder", "MaskedLM", TRANSFORMER),
    "rnn_seq2seq": ("RnnSeq2Seq", "ConditionalGeneration", RECURRENT),
    "transformer_seq2seq": ("TransformerSeq2Seq", "ConditionalGeneration", TRANSFORMER),
}


def command_line(script: str, model: list[str], folder: Path) -> list[str]:
    """Return what stands behind the name of a script: a run of two steps in a folder.

    Args:
        script: which.
        model: the words that name the model.
        folder: takes the rows and, as `out`, what the script writes.
    """
    return [
        *model,
        *write_rows(script, folder),
        *("--output_dir", str(folder / "out"), "--do_train", "--do_eval", "--max_steps", "2"),
        *("--per_device_train_batch_size", "4", "--per_device_eval_batch_size", "8"),
        *("--learning_rate", "0.01", "--seed", "3", "--use_cpu", "--disable_tqdm", "true"),
        *("--save_strategy", "no", "--report_to", "none"),
        *SCRIPTS[script].arguments,
    ]
