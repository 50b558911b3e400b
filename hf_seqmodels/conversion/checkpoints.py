"""Convert what a folder holds: model, tokenizer and the settings of sentence-transformers."""

import json
import shutil
from collections.abc import Mapping
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoTokenizer, PreTrainedModel
from transformers.utils import CONFIG_NAME, logging

import hf_seqmodels

# {model_type of a checkpoint: (module of this package, its function for models)}
CONVERTERS = {
    "bert": ("bert", "text_encoder_from_bert"),
    "gpt2": ("gpt2", "decoder_lm_from_gpt2"),
    "marian": ("marian", "transformer_seq2seq_from_marian"),
    "seqmodels_decoder_lm": ("gpt2", "gpt2_from_decoder_lm"),
    "seqmodels_text_encoder": ("bert", "bert_from_text_encoder"),
    "seqmodels_transformer_seq2seq": ("marian", "marian_from_transformer_seq2seq"),
}
TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json", "vocab.txt")
MODULES_FILE = "modules.json"
SENTENCE_TRANSFORMERS_FILES = (
    MODULES_FILE,
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
)


def convert_checkpoint(folder: str | PathLike, converted_folder: str | PathLike) -> PreTrainedModel:
    """Write the checkpoint of one family as that of another, with the same numbers.

    Which, `model_type` in its config.json says: see `CONVERTERS`. A body alone, saved without a
    pooler, stays so. What is saved under the name of one BERT head often holds the weights of both
    pretraining heads, and the pooler with them: then all of them are kept. Files of
    sentence-transformers (pooling, longest length) go along as they are.

    Args:
        folder: what save_pretrained, a Trainer or sentence-transformers wrote.
        converted_folder: where to; new or empty.

    Returns:
        The converted model, in evaluation mode.

    Raises:
        ValueError: if the folder holds nothing that can be converted, an option has no equal,
            weights are missing or left over, or the new folder is not empty.
        ImportError: if the tokenizer needs a package that is not installed.
    """
    source, target = Path(folder), Path(converted_folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(
            f"What is converted goes into a new or empty folder, and {str(target)!r} is not empty. "
            f"Name another."
        )
    settings = _read_settings(source)
    module, function = CONVERTERS[settings["model_type"]]
    convert = getattr(import_module(f"hf_seqmodels.conversion.{module}"), function)
    has_tokenizer = any((source / name).is_file() for name in TOKENIZER_FILES)
    tokenizer = AutoTokenizer.from_pretrained(source) if has_tokenizer else None
    converted = convert(_load_whole(source, settings))
    converted.save_pretrained(target)
    if tokenizer is not None:
        tokenizer.save_pretrained(target)
    _copy_sentence_transformers(source, target)
    return converted


def _read_settings(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_NAME
    if not path.is_file():
        raise ValueError(
            f"A checkpoint must hold a {CONFIG_NAME}, and {str(folder)!r} holds none. Name the "
            f"folder that the weights are in."
        )
    settings = json.loads(path.read_text(encoding="utf-8"))
    if settings.get("model_type") not in CONVERTERS:
        raise ValueError(
            f"model_type in {path} must be one of {', '.join(CONVERTERS)}, got "
            f"{settings.get('model_type')!r}. Others have no counterpart."
        )
    return settings


def _load_whole(folder: Path, settings: Mapping[str, Any]) -> PreTrainedModel:
    """Return the model of a folder with every weight of its own, and none drawn at random."""
    (name, *others) = settings.get("architectures") or [""]
    model_class = getattr(hf_seqmodels, name, None) or getattr(transformers, name, None)
    if others or not name or model_class is None:
        raise ValueError(
            f"architectures in {folder / CONFIG_NAME} must name one class of transformers or of "
            f"this package, got {settings.get('architectures')}. Save the model with "
            f"save_pretrained."
        )
    model, missing, left_over = _load(model_class, folder)
    if missing and all("pooler." in key for key in missing):
        model, missing, left_over = _load(model_class, folder, add_pooling_layer=False)
    if left_over and not missing and settings["model_type"] == "bert":
        pretrained = _load(transformers.BertForPreTraining, folder)
        if pretrained[1:] == ([], []):
            return pretrained[0]
    if missing or left_over:
        found = (
            f"missing {', '.join(missing) or 'none'}, left over {', '.join(left_over) or 'none'}"
        )
        raise ValueError(
            f"{str(folder)!r} must hold the weights of {model_class.__name__}, all and no others, "
            f"got: {found}. Load it with the class that it was "
            f"saved with, and save it again."
        )
    return model


def _load(model_class: Any, folder: Path, **options: Any) -> tuple[Any, list[str], list[str]]:
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # what is missing or left over, _load_whole deals with
    try:
        model, report = model_class.from_pretrained(
            folder, dtype="auto", output_loading_info=True, **options
        )
    finally:
        logging.set_verbosity(verbosity)
    return model, sorted(report["missing_keys"]), sorted(report["unexpected_keys"])


def _copy_sentence_transformers(source: Path, target: Path) -> None:
    if not (source / MODULES_FILE).is_file():
        return
    for name in SENTENCE_TRANSFORMERS_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    for module in json.loads((source / MODULES_FILE).read_text(encoding="utf-8")):
        part = source / module["path"]
        if module["path"] and part.is_dir():
            shutil.copytree(part, target / module["path"])
