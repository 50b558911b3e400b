"""The tokenizer of the scripts that train on plain text: loaded, or trained on the text."""

import itertools
from pathlib import Path
from typing import Any

from script_models import ModelArguments, load_pretrained, refuse_tokenizer_training
from text_arguments import TextArguments
from text_corpus import Corpus
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from hf_seqmodels.data import train_tokenizer

TOKENIZER_TRAINING = (
    *("tokenizer_model", "tokenizer_vocab_size", "tokenizer_min_frequency"),
    *("tokenizer_documents", "lowercase"),
)


def load_or_train_tokenizer(
    model_options: ModelArguments,
    options: TextArguments,
    corpus: Corpus,
    checkpoint: Path | None = None,
    *,
    default_model: str,
    **training_options: Any,
) -> PreTrainedTokenizerBase:
    """Load the tokenizer that the options name, or train one on the training text.

    Args:
        model_options: may name a tokenizer or a checkpoint that brings one.
        options: describe the tokenizer to train.
        corpus: the text.
        checkpoint: where the run resumes; brings the tokenizer that the run began with.
        default_model: which tokenizer to train if the options do not say.
        **training_options: further arguments of `train_tokenizer`.

    Returns:
        The tokenizer.

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
    documents = corpus.train or corpus.train_stream
    if not documents:
        raise ValueError(
            "a tokenizer can only be trained on training text. Pass --train_file or "
            "--tokenizer_name."
        )
    if corpus.train_stream and options.tokenizer_documents is None:
        raise ValueError(
            "streaming does not read all text before training. Pass --tokenizer_documents with the "
            "number of documents to train a tokenizer on, or --tokenizer_name."
        )
    return train_tokenizer(
        itertools.islice(documents, options.tokenizer_documents),
        model=options.tokenizer_model or default_model,
        vocab_size=options.tokenizer_vocab_size,
        min_frequency=options.tokenizer_min_frequency,
        lowercase=options.lowercase,
        **training_options,
    )
