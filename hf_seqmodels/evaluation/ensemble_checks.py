"""What models must share to be one ensemble."""

import json
import math
from collections.abc import Sequence
from typing import Any

from transformers import AutoTokenizer

from hf_seqmodels.evaluation.decoding import decoder_start_id
from hf_seqmodels.models.pipeline_seq2seq_generation import (
    end_token_ids,
    generate_setting,
    target_side,
)

# Arguments of from_pretrained that say where files are, for models and tokenizers alike.
PLACE_ARGUMENTS = (
    *("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token"),
    "trust_remote_code",
)
PIPELINE_PARTS = ("normalizer", "pre_tokenizer", "post_processor")  # of a tokenizer


def share_weights(weights: Sequence[float] | None, num_models: int) -> list[float]:
    """Return the share of every model in the mean.

    Args:
        weights: positive numbers, or None for equal shares.
        num_models: number of models.

    Returns:
        Shares that sum to one.

    Raises:
        ValueError: if the count differs or a weight is not a positive number.
    """
    weights = [1.0] * num_models if weights is None else [float(weight) for weight in weights]
    if len(weights) != num_models:
        raise ValueError(
            f"weights must hold one number per model, got {len(weights)} for {num_models} models. "
            "Leave them out to weigh all alike."
        )
    wrong = [weight for weight in weights if not 0 < weight < math.inf]
    if wrong:
        raise ValueError(
            f"weights must be positive numbers, got {wrong[0]}. Leave out a model that should not "
            "count."
        )
    return [weight / sum(weights) for weight in weights]


def check_agreement(models: Sequence[Any]) -> dict[str, Any]:
    """Check that models write the same language: vocabulary size and special tokens.

    Args:
        models: the members of an ensemble.

    Returns:
        What they agree on.

    Raises:
        ValueError: if they do not.
    """
    facts = [
        {
            "target vocabulary size": _target_vocab_size(model),
            "decoder start token": decoder_start_id(model),
            "end tokens": sorted(end_token_ids(model, {})),
            "pad token": generate_setting(model, {}, "pad_token_id"),
        }
        for model in models
    ]
    for position, other in enumerate(facts):
        for name, value in facts[0].items():
            if other[name] != value:
                raise ValueError(
                    f"All models of an ensemble must have the same {name}, got {value} in model 0 "
                    f"({type(models[0]).__name__}) and {other[name]} in model {position} "
                    f"({type(models[position]).__name__}). Train them with one tokenizer and the "
                    "same special tokens."
                )
    return facts[0]


def _target_vocab_size(model: Any) -> int:
    """Return how many scores a model gives, those of words to copy included."""
    config, layer = model.config, model.get_output_embeddings()
    copied = config.max_copied_words if getattr(config, "pointer_generator", False) else 0
    if layer is not None:
        return layer.weight.shape[0] + copied
    return (getattr(config, "decoder_vocab_size", None) or config.vocab_size) + copied


def check_saved_tokenizers(names: Sequence[str], **kwargs: Any) -> None:
    """Check that the tokenizers saved with several models give every text the same ids.

    Compared are the vocabularies of both sides and, where the tokenizers library does the work,
    what happens to a text before and after it is cut into tokens.

    Args:
        names: folders or names on the Hub.
        **kwargs: of from_pretrained; those that say where files are are used.

    Raises:
        ValueError: if a tokenizer cannot be loaded or two of them differ.
    """
    place = {key: value for key, value in kwargs.items() if key in PLACE_ARGUMENTS}
    tokenizers = []
    for name in names:
        try:
            tokenizers.append(AutoTokenizer.from_pretrained(name, **place))
        except (OSError, ValueError) as error:
            raise ValueError(
                "Every member must come with its tokenizer, which must agree with the others, but "
                f"that of {name!r} cannot be loaded ({error}). Save it there, or load the models "
                "yourself and pass them to EnsembleForSeq2SeqLM."
            ) from error
    for name, tokenizer in zip(names, tokenizers, strict=True):
        pairs = {
            "source": (tokenizers[0], tokenizer),
            "target": (target_side(tokenizers[0]), target_side(tokenizer)),
        }
        for side, pair in pairs.items():
            difference = _difference(*pair)
            if difference:
                raise ValueError(
                    f"All models of an ensemble must share the {side} tokenizer, but {difference} "
                    f"({names[0]!r} and {name!r}). Train them with one tokenizer: "
                    "--tokenizer_name of training/run_seq2seq.py."
                )


def _difference(first: Any, other: Any) -> str | None:
    """Say in what two tokenizers differ; None if in nothing that matters for token ids."""
    expected, found = first.get_vocab(), other.get_vocab()
    if expected != found:
        token = min(set(expected.items()) ^ set(found.items()))[0]
        return f"token {token!r} is {expected.get(token)} in one and {found.get(token)} in another"
    for part in PIPELINE_PARTS:
        if _pipeline(first).get(part) != _pipeline(other).get(part):
            return f"the {part} of one differs from that of another"
    return None


def _pipeline(tokenizer: Any) -> dict[str, Any]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return {} if backend is None else json.loads(backend.to_str())
