"""Tokenizers and models for the fine-tuning scripts: load them, or make them from scratch."""

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from finetune_arguments import FinetuneDataArguments
from script_arguments import read_overrides, typed_overrides
from script_models import (
    ModelArguments,
    check_vocabulary,
    load_pretrained,
    make_config,
    refuse_tokenizer_training,
)
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_seqmodels.data import train_tokenizer
from hf_seqmodels.evaluation.model_inputs import longest_input

TOKENIZER_TRAINING = (
    *("tokenizer_model", "tokenizer_vocab_size", "tokenizer_min_frequency", "lowercase"),
)


def load_or_train_tokenizer(
    model_options: ModelArguments,
    options: FinetuneDataArguments,
    training_texts: Callable[[], Iterable[str]] | None,
    checkpoint: Path | None = None,
) -> PreTrainedTokenizerBase:
    """Load the tokenizer that the options name, or train one on the training texts.

    Args:
        model_options: may name a tokenizer or a checkpoint that brings one.
        options: describe the tokenizer to train.
        training_texts: returns them; None if there are none.
        checkpoint: where the run resumes; brings the tokenizer that the run began with.

    Returns:
        The tokenizer; one that is trained has the special tokens of BERT.

    Raises:
        ValueError: if a tokenizer is named and another described, or there is nothing to train one
            on.
    """
    if checkpoint is not None:
        return load_pretrained(AutoTokenizer, str(checkpoint), model_options)
    name = model_options.tokenizer_name or model_options.model_name_or_path
    if name:
        refuse_tokenizer_training(name, options, TOKENIZER_TRAINING)
        return load_pretrained(AutoTokenizer, name, model_options)
    if training_texts is None:
        raise ValueError(
            "a tokenizer can only be trained on training rows. Pass --train_file or "
            "--tokenizer_name."
        )
    return train_tokenizer(
        training_texts(),
        model=options.tokenizer_model or "wordpiece",
        vocab_size=options.tokenizer_vocab_size,
        min_frequency=options.tokenizer_min_frequency,
        lowercase=options.lowercase,
        style="bert",
    )


def stored_config(model_options: ModelArguments) -> PreTrainedConfig | None:
    """Return the configuration of the checkpoint that the options name.

    Args:
        model_options: the model options.

    Returns:
        The configuration, as it is stored; None for a fresh model.

    Raises:
        ValueError: if it cannot be loaded, or config_overrides do not fit it.
    """
    if model_options.model_name_or_path is None:
        return None
    config = load_pretrained(AutoConfig, model_options.model_name_or_path, model_options)
    typed_overrides(type(config), read_overrides(model_options.config_overrides))
    return config


def load_or_make_model(
    auto_class: Any,
    model_options: ModelArguments,
    options: FinetuneDataArguments,
    tokenizer: PreTrainedTokenizerBase,
    config_values: dict[str, Any],
) -> PreTrainedModel:
    """Load the checkpoint that the options name, or make a fresh model for the tokenizer.

    Args:
        auto_class: of the kind of model that is trained.
        model_options: the model options, already checked.
        options: say whether a head of another size may be replaced.
        tokenizer: gives a fresh model its vocabulary size and special ids; gets a pad token if it
            has none, and loses the kinds of tokens that the model cannot read.
        config_values: fields of the configuration that the task decides, such as id2label.

    Returns:
        The model.

    Raises:
        ValueError: if the checkpoint is damaged, or vocabulary and model do not fit.
    """
    name = model_options.model_name_or_path
    if name:
        stored = stored_config(model_options)
        changes = typed_overrides(type(stored), read_overrides(model_options.config_overrides))
        config = load_pretrained(AutoConfig, name, model_options, **config_values, **changes)
        model = load_pretrained(
            auto_class,
            name,
            model_options,
            config=config,
            ignore_mismatched_sizes=options.ignore_mismatched_sizes,
        )
    else:
        config = make_config(
            model_options,
            {
                "vocab_size": len(tokenizer),
                "pad_token_id": tokenizer.pad_token_id,
                "bos_token_id": tokenizer.bos_token_id,
                "eos_token_id": tokenizer.eos_token_id,
                **config_values,
            },
        )
        check_vocabulary(config, tokenizer)
        model = auto_class.from_config(config)
        if not reads_token_types(model) and "token_type_ids" in tokenizer.model_input_names:
            tokenizer.model_input_names = [
                name for name in tokenizer.model_input_names if name != "token_type_ids"
            ]
    check_vocabulary(model.config, tokenizer)
    _settle_padding(model, tokenizer)
    return model


def _settle_padding(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Give a tokenizer without a pad token, such as GPT-2's, its end token to pad with."""
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token is None:
            raise ValueError(
                "batches need a pad token, and the tokenizer has neither one nor an end token. "
                "Add one, save the tokenizer and pass --tokenizer_name."
            )
        tokenizer.pad_token = tokenizer.eos_token
    if model.config.get_text_config().pad_token_id is None:
        model.config.get_text_config().pad_token_id = tokenizer.pad_token_id


def reads_token_types(model: PreTrainedModel) -> bool:
    """Tell whether a model has a vector for the second text of a pair.

    Args:
        model: any model.

    Returns:
        True for BERT; False for models without `token_type_ids`, or with one kind of them.
    """
    takes_them = "token_type_ids" in inspect.signature(model.forward).parameters
    return takes_them and getattr(model.config, "type_vocab_size", 0) > 1


def settle_max_length(
    options: FinetuneDataArguments, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> int | None:
    """Return the number of tokens to which rows are cut.

    Args:
        options: max_seq_length.
        model: to train.
        tokenizer: of the model.

    Returns:
        Tokens; None where nothing is cut.

    Raises:
        ValueError: if more tokens are asked for than the model can take.
    """
    limit = longest_input(model, tokenizer)
    if options.max_seq_length is None:
        return limit
    if limit is not None and options.max_seq_length > limit:
        raise ValueError(
            f"max_seq_length must not exceed the {limit} tokens that the model can take, got "
            f"{options.max_seq_length}. Pass --max_seq_length {limit}, or a larger "
            "max_position_embeddings in --config_overrides for a fresh model."
        )
    return options.max_seq_length
