# pyright: basic
"""A source and a target tokenizer that travel as one."""

import contextlib
import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import (
    AutoTokenizer,
    BatchEncoding,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

TARGET_FOLDER = "target_tokenizer"
# Where a tokenizer was read from, or what the new backend brings with it.
_NOT_CARRIED_OVER = (
    "added_tokens_decoder",
    "backend",
    "is_local",
    "local_files_only",
    "name_or_path",
    "tokenizer_file",
    "tokenizer_object",
    "vocab_file",
)
_HUB_OPTIONS = (
    "cache_dir",
    "force_download",
    "local_files_only",
    "proxies",
    "revision",
    "token",
    "trust_remote_code",
)


class Seq2SeqTokenizer(PreTrainedTokenizerFast):
    """A tokenizer for sources that carries the tokenizer for targets with it.

    The tokenizer itself is the source side: ids, vocabulary, special tokens, padding and truncation
    are those of the source tokenizer. The target side, `target_tokenizer`, encodes `text_target`
    and decodes what a model has written: `decode` and `batch_decode` belong to it. `decode_source`
    decodes sources.

    `save_pretrained` writes the source side into the folder and the target side into the folder
    `target_tokenizer` in it, each as a plain tokenizer.json. With this package imported
    `AutoTokenizer.from_pretrained(folder)` loads both sides. Without it the same call loads the
    source side alone, and `AutoTokenizer.from_pretrained(folder, subfolder="target_tokenizer")` the
    target side.

    What is pushed to the Hub, or saved beside a model that brings its code, brings this file too;
    then both sides load without the package by
    `AutoTokenizer.from_pretrained(name, trust_remote_code=True)`.

    Make one with `Seq2SeqTokenizer.from_pair(source_tokenizer, target_tokenizer)`.
    """

    # No __init__: a tokenizer class that has one is rebuilt from its vocabulary instead of being
    # read from tokenizer.json. A class attribute, so that the base class finds it while it is being
    # built.
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
                    f"source and target tokenizer must agree on {name}, since the model has only "
                    f"one, got {ids[0]} and {ids[1]}. Train both with train_tokenizer, which fixes "
                    "these ids."
                )
        options = {
            name: value
            for name, value in copy.deepcopy(source_tokenizer.init_kwargs).items()
            if name not in _NOT_CARRIED_OVER
        }
        options |= source_tokenizer.special_tokens_map
        for name in ("model_max_length", "padding_side", "truncation_side", "model_input_names"):
            options[name] = getattr(source_tokenizer, name)
        options["target_folder"] = TARGET_FOLDER
        pair = cls(tokenizer_object=source_tokenizer.backend_tokenizer, **options)
        pair.target_tokenizer = copy.deepcopy(target_tokenizer)
        return pair

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike, *init_inputs: Any, **kwargs: Any
    ) -> "Seq2SeqTokenizer":
        """Load both sides.

        Args:
            pretrained_model_name_or_path: folder, or name on the Hub.
            *init_inputs: as for any tokenizer.
            **kwargs: as for any tokenizer; those that do not say where the files are go to the
                source side alone.

        Returns:
            The pair; or, where the folder was not written by a pair, its one tokenizer for both
            sides.

        Raises:
            OSError: if a pair was saved there but the target side is missing or damaged.
        """
        name = pretrained_model_name_or_path
        pair = super().from_pretrained(name, *init_inputs, **kwargs)
        target_folder = pair.init_kwargs.get("target_folder")
        if target_folder is None:
            return pair
        subfolder = "/".join(part for part in (kwargs.get("subfolder"), target_folder) if part)
        options = {key: kwargs[key] for key in _HUB_OPTIONS if key in kwargs}
        try:
            # no model lies in that folder; to look for its config needs a network and, in
            # transformers 5.17, forgets the access token
            pair.target_tokenizer = AutoTokenizer.from_pretrained(
                name, subfolder=subfolder, config=PreTrainedConfig(), **options
            )
        except Exception as error:  # a missing or damaged file: each its own kind
            raise OSError(
                f"{str(name)!r} holds a source and a target tokenizer, but the target side cannot "
                f"be read from its folder {subfolder}/: {error} Copy or save the whole folder "
                "again, or load the source side alone with PreTrainedTokenizerFast.from_pretrained."
            ) from error
        return pair

    def __call__(
        self,
        text: Any = None,
        text_pair: Any = None,
        text_target: Any = None,
        text_pair_target: Any = None,
        **kwargs: Any,
    ) -> BatchEncoding:
        """Encode sources, targets or both.

        Args:
            text: one source or a list of them.
            text_pair: second source sequence, as for any tokenizer.
            text_target: one target or a list of them.
            text_pair_target: second target sequence.
            **kwargs: as for any tokenizer; `max_target_length` limits the targets, by default
                `max_length` limits both.

        Returns:
            `input_ids` and `attention_mask` of the sources, and `labels` if there are targets; for
            targets alone, their `input_ids` and `attention_mask`.

        Raises:
            ValueError: if there is neither text nor text_target.
        """
        if self.target_tokenizer is None or text_target is None:
            return super().__call__(text, text_pair, text_target, text_pair_target, **kwargs)
        max_target_length = kwargs.pop("max_target_length", None)
        options = dict(kwargs)
        if max_target_length is not None:
            options["max_length"] = max_target_length
        targets = self.target_tokenizer(text_target, text_pair_target, **options)
        if text is None:
            return targets
        encoding = super().__call__(text, text_pair, **kwargs)
        encoding["labels"] = targets["input_ids"]
        return encoding

    def decode(
        self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any
    ) -> str | list[str]:
        """Return the text of target token ids, or the texts of several rows.

        Args:
            token_ids: one row of ids or several.
            skip_special_tokens: leave out `<pad>`, `</s>` and the like.
            **kwargs: as for any tokenizer.

        Returns:
            The text, or a list of texts.
        """
        if self.target_tokenizer is None:
            return self.decode_source(token_ids, skip_special_tokens, **kwargs)
        return self.target_tokenizer.decode(token_ids, skip_special_tokens, **kwargs)

    def decode_source(
        self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any
    ) -> str | list[str]:
        """Return the text of source token ids, or the texts of several rows.

        Args:
            token_ids: one row of ids or several.
            skip_special_tokens: leave out `<pad>`, `</s>` and the like.
            **kwargs: as for any tokenizer.

        Returns:
            The text, or a list of texts.
        """
        return super().decode(token_ids, skip_special_tokens, **kwargs)

    def save_pretrained(self, save_directory: str | os.PathLike, *args: Any, **kwargs: Any):
        """Save both sides, and this file with them where it belongs.

        Args:
            save_directory: the folder.
            *args: as for any tokenizer.
            **kwargs: as for any tokenizer.

        Returns:
            Names of the files.
        """
        brings_code = kwargs.get("push_to_hub") or _names_code(save_directory)
        if not brings_code and self._auto_class is None:
            self.init_kwargs.pop("auto_map", None)  # where it came from, the code was beside it
        with self._bringing_code() if brings_code else contextlib.nullcontext():
            return super().save_pretrained(save_directory, *args, **kwargs)

    def push_to_hub(self, *args: Any, **kwargs: Any):
        """Push both sides and this file to the Hub.

        Args:
            *args: as for any tokenizer.
            **kwargs: as for any tokenizer.

        Returns:
            What the Hub says of the commit.
        """
        with self._bringing_code():
            return super().push_to_hub(*args, **kwargs)

    @contextlib.contextmanager
    def _bringing_code(self) -> Iterator[None]:
        """Let transformers copy this file, too, and name it in tokenizer_config.json."""
        before = self._auto_class
        self._auto_class = "AutoTokenizer"
        try:
            yield
        finally:
            self._auto_class = before

    def _save_pretrained(
        self,
        save_directory: str | os.PathLike,
        file_names: tuple[str, ...],
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
    ) -> tuple[str, ...]:
        """Write both sides; called by save_pretrained before it pushes to the Hub."""
        files = super()._save_pretrained(save_directory, file_names, legacy_format, filename_prefix)
        if self.target_tokenizer is None:
            return files
        folder = os.path.join(save_directory, TARGET_FOLDER)
        target_files = self.target_tokenizer.save_pretrained(
            folder, legacy_format=legacy_format, filename_prefix=filename_prefix
        )
        # pushing looks at the time of the folder, which rewriting the files in it does not change
        os.utime(folder)
        return (*files, *target_files)


def _names_code(folder: str | os.PathLike) -> bool:
    """Say whether the config.json in a folder names code files beside it."""
    try:
        config = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and "auto_map" in config
