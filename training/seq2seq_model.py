"""Tokenizers and models for run_seq2seq.py: load them, or make them from data and options."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from script_models import (
    ModelArguments,
    load_pretrained,
    make_config,
    refuse_tokenizer_training,
)
from seq2seq_arguments import DataTrainingArguments, Seq2SeqScriptArguments
from seq2seq_data import Corpus
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_seqmodels.data import Seq2SeqTokenizer, train_tokenizer
from hf_seqmodels.models.pipeline_seq2seq_generation import check_copying, copies_words

TOKENIZER_TRAINING = (
    *("source_tokenizer_model", "target_tokenizer_model", "source_vocab_size"),
    *("target_vocab_size", "source_extra_tokens", "tokenizer_min_frequency"),
    *("lowercase_source", "shared_tokenizer", "split_punctuation"),
)


def load_or_train_tokenizer(
    model_options: ModelArguments,
    options: DataTrainingArguments,
    corpus: Corpus,
    checkpoint: Path | None = None,
) -> PreTrainedTokenizerBase:
    """Load the tokenizer that the options name, or train the two sides on the training data.

    Args:
        model_options: may name a tokenizer or a checkpoint that brings one.
        options: describe the tokenizers to train.
        corpus: the data; its tags become whole tokens of the source side.
        checkpoint: where the run resumes; brings the tokenizer that the run began with.

    Returns:
        A tokenizer that takes sources as text and targets as `text_target`.

    Raises:
        ValueError: if a tokenizer is named and another described, or there is nothing to train one
            on.
    """
    name = model_options.tokenizer_name or model_options.model_name_or_path
    if checkpoint is not None:
        return load_pretrained(AutoTokenizer, str(checkpoint), model_options)
    if name:
        refuse_tokenizer_training(name, options, TOKENIZER_TRAINING)
        tokenizer = load_pretrained(AutoTokenizer, name, model_options)
        for attribute, value in (
            ("src_lang", options.source_lang),
            ("tgt_lang", options.target_lang),
        ):
            if value and hasattr(tokenizer, attribute):
                setattr(tokenizer, attribute, value)
        return tokenizer
    if not corpus.train:
        raise ValueError(
            "a tokenizer can only be trained on training data. Pass --train_file or "
            "--tokenizer_name."
        )
    return _train_tokenizers(options, corpus)


def _train_tokenizers(options: DataTrainingArguments, corpus: Corpus) -> PreTrainedTokenizerBase:
    sources = [options.source_prefix + example.source for example in corpus.train]
    targets = [example.references[0] for example in corpus.train]
    source_model = options.source_tokenizer_model or "char"
    target_model = options.target_tokenizer_model or source_model
    extra_tokens = list(dict.fromkeys([*(options.source_extra_tokens or ()), *corpus.tags]))
    common = {
        "min_frequency": options.tokenizer_min_frequency,
        "split_punctuation": options.split_punctuation,
    }
    if options.shared_tokenizer:
        _refuse_two_descriptions(options)
        return train_tokenizer(
            [*sources, *targets],
            model=source_model,
            vocab_size=options.source_vocab_size,
            lowercase=options.lowercase_source,
            extra_tokens=extra_tokens,
            **common,
        )
    source_side = train_tokenizer(
        sources,
        model=source_model,
        vocab_size=options.source_vocab_size,
        lowercase=options.lowercase_source,
        extra_tokens=extra_tokens,
        **common,
    )
    target_side = train_tokenizer(
        targets, model=target_model, vocab_size=options.target_vocab_size, **common
    )
    return Seq2SeqTokenizer.from_pair(source_side, target_side)


def _refuse_two_descriptions(options: DataTrainingArguments) -> None:
    for side in ("tokenizer_model", "vocab_size"):
        source, target = getattr(options, f"source_{side}"), getattr(options, f"target_{side}")
        if target is not None and target != source:
            raise ValueError(
                f"shared_tokenizer trains one tokenizer, described by source_{side}={source!r}, "
                f"but target_{side}={target!r} is given too. Leave it out or drop shared_tokenizer."
            )


def load_or_make_model(
    model_options: ModelArguments, tokenizer: PreTrainedTokenizerBase, args: Seq2SeqScriptArguments
) -> PreTrainedModel:
    """Load the checkpoint that the options name, or make a fresh model for the tokenizer.

    Args:
        model_options: the model options, already checked.
        tokenizer: gives a fresh model its vocabulary sizes and special ids.
        args: the training arguments; label_smoothing_factor moves into a fresh configuration that
            has the field `label_smoothing`, so that the loss is not smoothed twice.

    Returns:
        The model.

    Raises:
        ValueError: if the checkpoint is damaged, or vocabulary and model do not fit.
    """
    if model_options.model_name_or_path:
        model = load_pretrained(
            AutoModelForSeq2SeqLM, model_options.model_name_or_path, model_options
        )
        check_vocabularies(model.config, tokenizer)
        return model
    defaults = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "unk_token_id": tokenizer.unk_token_id,
        "decoder_start_token_id": _start_id(tokenizer),
        "label_smoothing": args.label_smoothing_factor,
    }
    if target_side(tokenizer) is not tokenizer:
        defaults["decoder_vocab_size"] = len(target_side(tokenizer))
    config = make_config(model_options, defaults)
    check_vocabularies(config, tokenizer)
    if hasattr(config, "label_smoothing"):
        args.label_smoothing_factor = 0.0
    return AutoModelForSeq2SeqLM.from_config(config)


def target_side(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the targets: the tokenizer itself if both sides share one.

    Args:
        tokenizer: any tokenizer.

    Returns:
        The tokenizer that decodes what the model writes.
    """
    return getattr(tokenizer, "target_tokenizer", None) or tokenizer


def settle_copying(
    tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig
) -> PreTrainedTokenizerBase:
    """Return a tokenizer whose unknown words have ids of their own if the model copies words.

    Args:
        tokenizer: of both sides.
        config: of the model.

    Returns:
        The tokenizer, or one like it.

    Raises:
        ValueError: if tokenizer and model disagree on which ids are words to copy.
    """
    copied = config.max_copied_words if getattr(config, "pointer_generator", False) else 0
    if copied and not copies_words(tokenizer):
        tokenizer = Seq2SeqTokenizer.for_copying(tokenizer, max_copied_words=copied)
    check_copying(tokenizer, config)
    return tokenizer


def check_guidance(config: PreTrainedConfig, options: DataTrainingArguments) -> None:
    """Refuse alignments that the model would not look at.

    Args:
        config: of the model.
        options: name the column of alignments.

    Raises:
        ValueError: if there is a column and the config does not ask for guidance.
    """
    if options.alignment_column and not getattr(config, "guided_alignment_weight", 0):
        raise ValueError(
            f"alignment_column={options.alignment_column!r} guides the attention of a model with "
            "guided_alignment_weight above 0. Pass --config_overrides guided_alignment_weight=0.1, "
            "or leave it out."
        )


def _start_id(tokenizer: PreTrainedTokenizerBase) -> int:
    for token_id in (tokenizer.bos_token_id, tokenizer.cls_token_id, tokenizer.pad_token_id):
        if token_id is not None:
            return token_id
    raise ValueError(
        "the decoder needs a first token, but the tokenizer has no bos, cls or pad token. "
        "Pass --config_overrides decoder_start_token_id=ID."
    )


def check_vocabularies(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a model whose tables do not fit the tokenizer.

    Args:
        config: of the model.
        tokenizer: of the data.

    Raises:
        ValueError: if they do not fit.
    """
    sides = {"vocab_size": tokenizer}
    if target_side(tokenizer) is not tokenizer:
        if getattr(config, "decoder_vocab_size", None) is None:
            raise ValueError(
                f"model_type {config.model_type!r} has one vocabulary, but source and target have "
                "a tokenizer each. Pass --shared_tokenizer, or use a model with "
                "decoder_vocab_size."
            )
        sides["decoder_vocab_size"] = target_side(tokenizer)
    for name, side in sides.items():
        if getattr(config, name) < len(side):
            raise ValueError(
                f"{name} of the model must hold all {len(side)} tokens of the tokenizer, got "
                f"{getattr(config, name)}. Leave it out of config_overrides, or use the tokenizer "
                "that belongs to the checkpoint."
            )


def check_lengths(
    config: PreTrainedConfig, lengths: Mapping[str, Sequence[tuple[int, int]]]
) -> None:
    """Refuse data that is longer than the positions of the model.

    Args:
        config: of the model; without `max_position_embeddings` every length is fine.
        lengths: source and target lengths in tokens for each part of the data.

    Raises:
        ValueError: if a source or target is too long.
    """
    limit = getattr(config, "max_position_embeddings", None)
    if not limit:
        return
    for part, pairs in lengths.items():
        for side, longest in zip(
            ("source", "target"), map(max, zip(*pairs, strict=True)), strict=True
        ):
            if longest > limit:
                raise ValueError(
                    f"the model takes {limit} positions (max_position_embeddings), but the longest "
                    f"{part} {side} has {longest} tokens. Pass --max_{side}_length {limit} to cut, "
                    "or a larger max_position_embeddings in --config_overrides for a fresh model."
                )


def settle_decoding(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    options: DataTrainingArguments,
    lengths: Sequence[tuple[int, int]] | None,
) -> None:
    """Settle how the model is decoded; its generation_config gives users the same.

    What the options leave open is taken from a checkpoint's generation_config.

    Args:
        model: the model.
        tokenizer: gives the special ids that the model does not set.
        options: num_beams and length_penalty are filled in where they are None.
        lengths: of the training pairs; None keeps the checkpoint's max_length.

    Raises:
        ValueError: if more hypotheses than beams are asked for.
    """
    settings = model.generation_config or GenerationConfig()
    options.num_beams = options.num_beams or settings.num_beams or 1
    if options.length_penalty is None:
        options.length_penalty = 1.0 if settings.length_penalty is None else settings.length_penalty
    if options.num_return_sequences > options.num_beams:
        raise ValueError(
            f"num_return_sequences must not exceed num_beams, got {options.num_return_sequences} "
            f"and {options.num_beams}. Raise --num_beams."
        )
    special_ids = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": model.config.decoder_start_token_id,
    }
    for name, token_id in special_ids.items():
        if getattr(settings, name) is None:
            setattr(settings, name, token_id)
    settings.num_beams = options.num_beams
    if options.num_beams > 1:
        settings.length_penalty = options.length_penalty
    settings.max_length = generation_length(model.config, options, lengths) or settings.max_length
    settings._from_model_config = False
    model.generation_config = settings


def generation_length(
    config: Any, options: DataTrainingArguments, lengths: Sequence[tuple[int, int]] | None
) -> int | None:
    """Return the longest output that generate may write, start token included.

    Args:
        config: of the model; its positions are an upper limit.
        options: may set max_target_length.
        lengths: of the training pairs.

    Returns:
        The length in tokens, or None to keep what the checkpoint says.
    """
    longest = options.max_target_length
    if longest is None and lengths:
        longest = max(target for _, target in lengths) * 3 // 2
    if longest is None:
        return None
    return min(longest + 1, getattr(config, "max_position_embeddings", None) or longest + 1)
