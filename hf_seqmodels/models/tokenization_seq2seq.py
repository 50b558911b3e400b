# pyright: basic
"""Tokenizers of encoder-decoders: a source and a target side that travel as one, or one tokenizer
whose unknown words can be copied."""

import contextlib
import copy
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from transformers import (
    AutoTokenizer,
    BatchEncoding,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils.generic import to_py_obj

TARGET_FOLDER = "target_tokenizer"
BLANK = "\u2581"  # how word-level and sub-word models write a blank at the head of a token
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
    """A tokenizer for sources that carries the tokenizer for targets with it; or one tokenizer for
    both whose unknown words can be copied.

    The pair, made by `Seq2SeqTokenizer.from_pair(source_tokenizer, target_tokenizer)`:

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

    For models with `pointer_generator`, made by `Seq2SeqTokenizer.for_copying(tokenizer)`: the k-th
    distinct unknown word of a source has the id `len(tokenizer) + k`, in this source and in the
    target that is encoded with it, up to `max_copied_words` of them; other unknown words have the
    id of the unknown token (the extended vocabulary of See et al. 2017, arXiv:1704.04368, section
    2.2). Such ids mean something beside their source alone, so `decode` and `batch_decode` take
    the text of the `source`.
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
        pair = cls(**_options_of(source_tokenizer), target_folder=TARGET_FOLDER)
        pair.target_tokenizer = copy.deepcopy(target_tokenizer)
        return pair

    @classmethod
    def for_copying(
        cls, tokenizer: PreTrainedTokenizerFast, *, max_copied_words: int = 32
    ) -> "Seq2SeqTokenizer":
        """Give the unknown words of every source ids of their own; the tokenizer stays as it is.

        Args:
            tokenizer: encodes sources and targets.
            max_copied_words: how many distinct unknown words of one source have an id, the
                `max_copied_words` of the model's config.

        Returns:
            The tokenizer.

        Raises:
            ValueError: if it is no fast tokenizer, is a pair, has no unknown token, or the number
                is not positive.
        """
        if not isinstance(tokenizer, PreTrainedTokenizerFast) or isinstance(tokenizer, cls):
            raise ValueError(
                "Copying needs one fast tokenizer for sources and targets, got "
                f"{type(tokenizer).__name__}. Make it with train_tokenizer from the texts of both."
            )
        if tokenizer.unk_token_id is None:
            raise ValueError(
                "Copying is for unknown words, but the tokenizer has no unknown token. Train one "
                'with train_tokenizer(model="word"), or leave it as it is: it knows everything.'
            )
        if max_copied_words < 1:
            raise ValueError(f"max_copied_words must be at least 1, got {max_copied_words}.")
        return cls(**_options_of(tokenizer), max_copied_words=max_copied_words)

    @property
    def max_copied_words(self) -> int:
        """How many unknown words of a source have an id of their own; 0 without copying."""
        return self.init_kwargs.get("max_copied_words", 0)

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
        max_target_length = kwargs.pop("max_target_length", None)
        options = dict(kwargs)
        if max_target_length is not None:
            options["max_length"] = max_target_length
        if self.max_copied_words and text is not None:
            encode = super().__call__
            return self._encode_with_copies(encode, text, text_pair, text_target, kwargs, options)
        if self.target_tokenizer is None or text_target is None:
            if text is None:
                kwargs = options
            return super().__call__(text, text_pair, text_target, text_pair_target, **kwargs)
        targets = self.target_tokenizer(text_target, text_pair_target, **options)
        if text is None:
            return targets
        encoding = super().__call__(text, text_pair, **kwargs)
        encoding["labels"] = targets["input_ids"]
        return encoding

    def _encode_with_copies(
        self,
        encode: Callable[..., BatchEncoding],
        text: Any,
        text_pair: Any,
        text_target: Any,
        source_options: dict[str, Any],
        target_options: dict[str, Any],
    ) -> BatchEncoding:
        """Encode sources and their targets, with ids for the unknown words of the sources."""
        sources = [text] if isinstance(text, str) else list(text)
        if text_pair is not None or not all(isinstance(source, str) for source in sources):
            raise ValueError(
                "Where unknown words are copied, a source must be one text, got "
                f"{'a pair of texts' if text_pair is not None else repr(sources[0])}. Join what "
                "belongs together to one text."
            )
        encoding = encode(text, **source_options)
        rows: Any = encoding.encodings
        words = [
            self._unknown_words(source, row) for source, row in zip(sources, rows, strict=True)
        ]
        ids_of_words = [self._number_words(row_words) for row_words in words]
        _write_ids(encoding, text, words, ids_of_words)
        if text_target is not None:
            targets = [text_target] if isinstance(text_target, str) else list(text_target)
            target_encoding = encode(text_target, **target_options)
            rows = target_encoding.encodings
            words = [
                self._unknown_words(target, row) for target, row in zip(targets, rows, strict=True)
            ]
            _write_ids(target_encoding, text_target, words, ids_of_words)
            encoding["labels"] = target_encoding["input_ids"]
        return encoding

    def _unknown_words(self, text: str, encoding: Any) -> list[tuple[int, str]]:
        """Return position and token of what the tokenizer does not know of a text."""
        backend = self.backend_tokenizer
        has_blanks = "Metaspace" in repr(backend.decoder)
        begins_with_blank = has_blanks and "prepend_scheme=always" in repr(backend.decoder)
        unknown: Any = self.unk_token_id
        added = set(self.added_tokens_decoder) - {unknown}
        words = []
        for position, token_id in enumerate(encoding.ids):
            start, end = encoding.offsets[position]
            word = text[start:end]
            if token_id != unknown or word in ("", self.unk_token):
                continue
            if backend.normalizer is not None:
                word = backend.normalizer.normalize_str(word)
            if has_blanks:
                word = word.replace(" ", BLANK)
            follows_added = position > 0 and encoding.ids[position - 1] in added
            is_first = start == 0 or follows_added
            if begins_with_blank and is_first and not word.startswith(BLANK):
                word = BLANK + word
            words.append((position, word))
        return words

    def _number_words(self, words: list[tuple[int, str]]) -> dict[str, int]:
        """Return the id of each unknown word of a source that has one."""
        distinct = list(dict.fromkeys(word for _, word in words))[: self.max_copied_words]
        return {word: len(self) + k for k, word in enumerate(distinct)}

    def decode(
        self, token_ids: Any, skip_special_tokens: bool = False, source: Any = None, **kwargs: Any
    ) -> str | list[str]:
        """Return the text of target token ids, or the texts of several rows.

        Args:
            token_ids: one row of ids or several.
            skip_special_tokens: leave out `<pad>`, `</s>` and the like.
            source: text of the source, or one for each row, where words are copied from it. Without
                it such words are unknown; a tokenizer that does not copy looks at none.
            **kwargs: as for any tokenizer.

        Returns:
            The text, or a list of texts.

        Raises:
            ValueError: if there is not one source for each row.
        """
        if self.max_copied_words:
            return self._decode_with_copies(token_ids, skip_special_tokens, source, **kwargs)
        if self.target_tokenizer is None:
            return self.decode_source(token_ids, skip_special_tokens, **kwargs)
        return self.target_tokenizer.decode(token_ids, skip_special_tokens, **kwargs)

    def _decode_with_copies(
        self, token_ids: Any, skip_special_tokens: bool, source: Any, **kwargs: Any
    ) -> str | list[str]:
        rows: Any = to_py_obj(token_ids)
        if isinstance(rows, int) or not rows or not isinstance(rows[0], (list, tuple)):
            row = [rows] if isinstance(rows, int) else list(rows)
            return self._decode_row(row, skip_special_tokens, source, **kwargs)
        sources = [source] * len(rows) if source is None or isinstance(source, str) else source
        if len(sources) != len(rows):
            raise ValueError(
                f"source must be one text for each row of token ids, {len(rows)}, got "
                f"{len(sources)}. Repeat a source that has several outputs."
            )
        return [
            self._decode_row(list(row), skip_special_tokens, text, **kwargs)
            for row, text in zip(rows, sources, strict=True)
        ]

    def _decode_row(
        self, row: list[int], skip_special_tokens: bool, source: str | None, **kwargs: Any
    ) -> str:
        size = len(self)
        if all(token < size for token in row):
            return str(super().decode(row, skip_special_tokens, **kwargs))
        special = set(self.all_special_ids) if skip_special_tokens else set()
        tokens = self.target_tokens(row, source)
        kept = [
            token
            for token_id, token in zip(row, tokens, strict=True)
            if token_id not in special and not (skip_special_tokens and token == self.unk_token)
        ]
        decoder = self.backend_tokenizer.decoder
        return " ".join(kept) if decoder is None else decoder.decode(kept)

    def target_tokens(self, token_ids: Sequence[int], source: str | None = None) -> list[str]:
        """Return the tokens of one target, those of words that are copied included.

        Args:
            token_ids: one row of ids.
            source: text of the source; without it words to copy are unknown.

        Returns:
            One token per id.
        """
        side = self if self.target_tokenizer is None else self.target_tokenizer
        words: list[str] = []
        if source is not None and self.max_copied_words:
            rows: Any = super().__call__(source).encodings
            words = list(self._number_words(self._unknown_words(source, rows[0])))
        size = len(side)
        copied = {size + k: word for k, word in enumerate(words)}
        unknown: Any = side.unk_token_id
        known = side.convert_ids_to_tokens(
            [token if token < size else unknown for token in token_ids]
        )
        return [
            copied.get(token_id, token) for token_id, token in zip(token_ids, known, strict=True)
        ]

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


def _options_of(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """Return what makes a tokenizer of another class the same."""
    options = {
        name: value
        for name, value in copy.deepcopy(tokenizer.init_kwargs).items()
        if name not in _NOT_CARRIED_OVER
    }
    options |= tokenizer.special_tokens_map
    for name in ("model_max_length", "padding_side", "truncation_side", "model_input_names"):
        options[name] = getattr(tokenizer, name)
    return options | {"tokenizer_object": tokenizer.backend_tokenizer}


def _write_ids(
    encoding: BatchEncoding,
    texts: Any,
    words: Sequence[list[tuple[int, str]]],
    ids_of_words: Sequence[dict[str, int]],
) -> None:
    """Put the ids of unknown words into the rows of an encoding."""
    for index, (row_words, known) in enumerate(zip(words, ids_of_words, strict=True)):
        ids = encoding["input_ids"]
        is_flat = isinstance(texts, str) and isinstance(ids, list)
        row = ids if is_flat else ids[index]
        for position, word in row_words:
            if word in known:
                row[position] = known[word]


def _names_code(folder: str | os.PathLike) -> bool:
    """Say whether the config.json in a folder names code files beside it."""
    try:
        config = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and "auto_map" in config
