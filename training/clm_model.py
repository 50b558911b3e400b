"""Models for run_clm.py: load them, or make them from options."""

import inspect
from typing import Any

from clm_arguments import CausalLMScriptArguments, DataTrainingArguments
from script_models import (
    ModelArguments,
    check_vocabulary,
    load_pretrained,
    make_config,
)
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

DEFAULT_BLOCK_SIZE = 256


def load_or_make_model(
    model_options: ModelArguments,
    options: DataTrainingArguments,
    tokenizer: PreTrainedTokenizerBase,
    args: CausalLMScriptArguments,
) -> PreTrainedModel:
    """Load the checkpoint that the options name, or make a fresh model for the tokenizer.

    Args:
        model_options: the model options, already checked.
        options: block_size is the number of positions of a fresh model that needs one.
        tokenizer: gives a fresh model its vocabulary size and special ids.
        args: the training arguments; label_smoothing_factor moves into a fresh configuration that
            has the field `label_smoothing`, so that the loss is not smoothed twice.

    Returns:
        The model.

    Raises:
        ValueError: if the checkpoint is damaged, or vocabulary and model do not fit.
    """
    if model_options.model_name_or_path:
        model = load_pretrained(
            AutoModelForCausalLM, model_options.model_name_or_path, model_options
        )
        check_vocabulary(model.config, tokenizer)
        return model
    defaults = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "label_smoothing": args.label_smoothing_factor,
    }
    if options.block_size is not None:
        defaults["max_position_embeddings"] = options.block_size
    config = make_config(model_options, defaults)
    check_vocabulary(config, tokenizer)
    if hasattr(config, "label_smoothing"):
        args.label_smoothing_factor = 0.0
    return AutoModelForCausalLM.from_config(config)


def is_recurrent(model: PreTrainedModel) -> bool:
    """Tell whether a model carries a state of fixed size from token to token.

    Args:
        model: any causal language model.

    Returns:
        True for models such as RnnLM; False for those that attend to a window.
    """
    return bool(getattr(model, "_is_stateful", False))


def settle_block_size(options: DataTrainingArguments, model: PreTrainedModel) -> int:
    """Return the number of tokens in a row, and check the model against the options.

    Args:
        options: block_size, packing and stateful.
        model: to train.

    Returns:
        The number of tokens.

    Raises:
        ValueError: if the model has fewer positions, or cannot do what the options ask for.
    """
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    block_size = options.block_size or min(DEFAULT_BLOCK_SIZE, limit or DEFAULT_BLOCK_SIZE)
    if limit and block_size > limit and not is_recurrent(model):
        raise ValueError(
            f"block_size must not exceed the {limit} positions of the model "
            f"(max_position_embeddings), got {block_size}. Pass --block_size {limit}, or a larger "
            "max_position_embeddings in --config_overrides for a fresh model."
        )
    if options.stateful and not is_recurrent(model):
        raise ValueError(
            f"stateful carries the hidden state of a recurrent model, but {type(model).__name__} "
            "has none. Leave it out, or use model_type seqmodels_rnn_lm."
        )
    takes_positions = "position_ids" in inspect.signature(model.forward).parameters
    if options.packing == "separate" and (is_recurrent(model) or not takes_positions):
        raise ValueError(
            "packing='separate' needs a model that attends by position_ids, and "
            f"{type(model).__name__} does not. Use --packing none, or concatenate."
        )
    return block_size


def settle_decoding(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, block_size: int
) -> None:
    """Give the model generation defaults that work for its user: a limit and the special ids.

    Args:
        model: its generation_config is filled in where it says nothing.
        tokenizer: gives the special ids.
        block_size: tokens in a row, which is how long texts become by default.
    """
    settings = model.generation_config or GenerationConfig()
    ids: dict[str, Any] = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    for name, token_id in ids.items():
        if getattr(settings, name) is None:
            setattr(settings, name, token_id)
    if settings.max_length is None and settings.max_new_tokens is None:
        settings.max_length = block_size
    settings._from_model_config = False
    model.generation_config = settings
