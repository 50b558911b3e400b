"""A source and a target tokenizer that travel as one."""

import copy
import os
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

TARGET_FOLDER = "target_tokenizer"
_HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "token")


class Seq2SeqTokenizer(PreTrainedTokenizerFast):
    """A tokenizer for sources that carries the tokenizer for targets with it.

    The tokenizer itself is the source side: ids, vocabulary, special tokens, padding and truncation are
    those of the source tokenizer. The target side, `target_tokenizer`, encodes `text_target` and decodes
    what a model has written: `decode` and `batch_decode` belong to it. `decode_source` decodes sources.

    `save_pretrained` writes the source side into the folder and the target side into the folder
    `target_tokenizer` in it, each as a plain tokenizer.json. With this package imported
    `AutoTokenizer.from_pretrained(folder)` loads both sides. Without it the same call loads the source
    side alone, and `AutoTokenizer.from_pretrained(folder, subfolder="target_tokenizer")` the target side.

    Make one with `Seq2SeqTokenizer.from_pair(source_tokenizer, target_tokenizer)`.
    """

    # No __init__: a tokenizer class that has one is rebuilt from its vocabulary instead of being read
    # from tokenizer.json. A class attribute, so that the base class finds it while it is being built.
    target_tokenizer: PreTrainedTokenizerBase | None = None

    @classmethod
    def from_pair(
        cls, source_tokenizer: PreTrainedTokenizerFast, target_tokenizer: PreTrainedTokenizerFast
    ) -> "Seq2SeqTokenizer":
        """Join two tokenizers; both stay as they are.

        Args:
            source_tokenizer: encodes the sources.
            target_tokenizer: encodes and decodes the targets.

        Returns:
            The pair.

        Raises:
            ValueError: if one of them is no fast tokenizer or is a pair itself, or if their ids for
                padding, beginning, end and unknown differ, since a model has one of each.
        """
        for side, tokenizer in (("source", source_tokenizer), ("target", target_tokenizer)):
            if not isinstance(tokenizer, PreTrainedTokenizerFast) or isinstance(tokenizer, cls):
                raise ValueError(
                    f"{side}_tokenizer must be one fast tokenizer, got {type(tokenizer).__name__}. "
                    "Make it with train_tokenizer, or load it with AutoTokenizer."
                )
        for name in ("pad_token_id", "bos_token_id", "eos_token_id", "unk_token_id"):
            ids = getattr(source_tokenizer, name), getattr(target_tokenizer, name)
            if ids[0] != ids[1]:
                raise ValueError(
                    f"source and target tokenizer must agree on {name}, since the model has only one, "
                    f"got {ids[0]} and {ids[1]}. Train both with train_tokenizer, which fixes these ids."
                )
        options = {
            name: value
            for name, value in copy.deepcopy(source_tokenizer.init_kwargs).items()
            if name not in ("tokenizer_file", "tokenizer_object", "name_or_path", "backend")
        }
        options |= source_tokenizer.special_tokens_map
        options |= {"model_max_length": source_tokenizer.model_max_length}
        pair = cls(tokenizer_object=source_tokenizer.backend_tokenizer, **options)
        pair.padding_side = source_tokenizer.padding_side
        pair.truncation_side = source_tokenizer.truncation_side
        pair.target_tokenizer = copy.deepcopy(target_tokenizer)
        return pair

    @classmethod
    def from_pretrained(cls, name: str | os.PathLike, *inputs: Any, **kwargs: Any) -> Any:
        """Load both sides.

        Args:
            name: folder, or name on the Hub.
            *inputs: as for any tokenizer.
            **kwargs: as for any tokenizer; options other than those of the Hub go to the source side.

        Returns:
            The pair.

        Raises:
            OSError: if the folder holds only one side.
        """
        pair = super().from_pretrained(name, *inputs, **kwargs)
        subfolder = "/".join(part for part in (kwargs.get("subfolder"), TARGET_FOLDER) if part)
        options = {key: kwargs[key] for key in _HUB_OPTIONS if key in kwargs}
        try:
            pair.target_tokenizer = AutoTokenizer.from_pretrained(
                name, subfolder=subfolder, **options
            )
        except (OSError, ValueError) as error:
            raise OSError(
                f"a Seq2SeqTokenizer needs both sides, but {str(name)!r} has no target side that can be "
                f"read in {subfolder}/. Copy that folder too, or load the source side alone with "
                "PreTrainedTokenizerFast.from_pretrained."
            ) from error
        return pair
