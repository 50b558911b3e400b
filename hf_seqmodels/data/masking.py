"""Masking tokens for masked language models, with masks that are the same wherever they are made.

Source: Devlin et al. 2019, arXiv:1810.04805, section 3.1 and appendix A.1, and the code published
with it. Of a row with n tokens that may be chosen, exactly max(1, round(0.15 n)) are chosen at
random. A chosen token becomes `[MASK]` with probability 0.8, a random token with probability 0.1,
and stays as it is with probability 0.1; the model is to tell what stood there.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import (
    DataCollatorForLanguageModeling,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from hf_seqmodels.data.collators import IGNORED_LABEL, pad_rows
from hf_seqmodels.data.word_starts import WordStarts

LEFT_OUT = ("special_tokens_mask", "offset_mapping", "word_ids", "mask_epoch")
NEVER_WORD = -1


@dataclass
class MaskingCollator(DataCollatorForLanguageModeling):
    """Choose and replace tokens of rows, and pad the rows to a batch.

    The options are those of transformers' collator. What is added to it:

    - The masks of a row follow from `seed`, the epoch and the row's tokens alone: not from the
      batch, the order, the number of workers or processes, or from where a run was resumed. There
      every one of them changes the masks: the generator lives in the collator, is not in a
      checkpoint, and starts again in each worker. Here only `set_epoch` changes them;
      `MaskEpochs` calls it for a Trainer.
    - Fixed masks: `mask_row` gives a row with `labels`, and rows that bring `labels` are only
      padded. Evaluate on such rows, and every evaluation asks for the same tokens.
    - Exactly mlm_probability of a row is chosen, as BERT does (there each token has that chance, so
      that a short row may have none), and a row with candidates has at least one.
    - Whole words keep the three kinds of replacement (there all become the mask token), and are
      found from the tokens themselves, with any tokenizer of `WordStarts` (there from offsets, so
      that `don't` or `end.` is one word); or from a column `word_ids`.
    - A random token is never a special one, and `[UNK]` is never chosen.

    Rows without `attention_mask` that are of one length make a batch without one, so that attention
    can take its fastest form. With `mlm=False` it is transformers' own collator.

    Args:
        tokenizer: gives mask, padding and special tokens, and the vocabulary.
        mlm: False pads only, as for a causal language model.
        whole_word_mask: choose whole words, in a random order, each that still fits into the number
            of tokens to choose; the first one in any case.
        mlm_probability: share of the candidates that is chosen; a row with none has no labels.
        mask_replace_prob: of a chosen token, to become the mask token.
        random_replace_prob: to become a random token; otherwise it stays as it is.
        pad_to_multiple_of: the width of a batch is rounded up to a multiple of this.
        return_tensors: "pt" or "np".
        seed: of the masks; None is 0.

    Raises:
        ValueError: if the tokenizer has no mask token or no padding token, a probability is out of
            range, or whole words cannot be found.
    """

    def __post_init__(self):
        whole_words, self.whole_word_mask = self.whole_word_mask, False
        super().__post_init__()  # would turn whole words into mask tokens only
        self.whole_word_mask = whole_words
        if not self.mlm:
            if whole_words:
                raise ValueError(
                    "whole_word_mask chooses tokens to mask. Leave it out with mlm=False."
                )
            return
        if self.tokenizer.pad_token_id is None:
            raise ValueError(
                "a batch needs a pad token, but the tokenizer has none. "
                "Set one, for example tokenizer.pad_token = tokenizer.eos_token."
            )
        self.seed: int = self.seed or 0
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # workers see it change
        self._is_special = np.zeros(len(self.tokenizer), dtype=bool)
        self._is_special[self.tokenizer.all_special_ids] = True
        self._ordinary_ids = np.flatnonzero(~self._is_special)
        self._word_starts: WordStarts | None = None

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose masks come next, in this process and in its workers.

        Args:
            epoch: counted from 0.
        """
        self._epoch.fill_(epoch)

    def torch_call(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the masked batch of some rows as tensors.

        Args:
            examples: rows with `input_ids` (lists of token ids, without or with padding) and
                columns of the same length such as `token_type_ids`; or with one number, such as
                `next_sentence_label`. With `labels` a row is masked already. `word_ids` and
                `special_tokens_mask` say which tokens are a word and which are never chosen.
                `mask_epoch` stands for the epoch that was set.

        Returns:
            `input_ids` and `labels` (B, S), labels being -100 where nothing was chosen;
            `attention_mask` (B, S) if the rows have it or differ in length; the other columns.

        Raises:
            ValueError: if there are no rows, or their columns differ or have other lengths.
        """
        if not self.mlm:
            return super().torch_call(list(examples))
        return {name: torch.from_numpy(value) for name, value in self._batch(examples).items()}

    def numpy_call(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the masked batch of some rows as arrays; see `torch_call`."""
        return super().numpy_call(list(examples)) if not self.mlm else self._batch(examples)

    def mask_row(self, row: Mapping[str, Any], *, epoch: int = 0) -> dict[str, Any]:
        """Choose and replace tokens of one row.

        Args:
            row: as in a batch.
            epoch: the masks of which epoch.

        Returns:
            The row with replaced `input_ids` and with `labels`, without the columns that only guide
            the choice.

        Raises:
            ValueError: if a column is not as long as `input_ids`, or an id is not in the
                vocabulary.
        """
        token_ids = np.asarray(row["input_ids"], dtype=np.int64)  # (S,)
        if token_ids.size and not 0 <= token_ids.min() <= token_ids.max() < len(self._is_special):
            raise ValueError(
                f"input_ids must be in the vocabulary of {len(self._is_special)} tokens, got ids "
                f"from {token_ids.min()} to {token_ids.max()}. Encode the rows with this tokenizer."
            )
        random = self._random_numbers(token_ids, epoch)  # (3, S)
        chosen = self._chosen(self._words(row, token_ids), random[0])  # (S,)
        labels = np.where(chosen, token_ids, IGNORED_LABEL)
        becomes_mask = chosen & (random[1] < self.mask_replace_prob)
        becomes_random = chosen & ~becomes_mask & (random[1] >= 1 - self.random_replace_prob)
        drawn = self._ordinary_ids[(random[2] * len(self._ordinary_ids)).astype(np.int64)]
        mask_token_id: Any = self.tokenizer.mask_token_id
        token_ids = np.where(becomes_mask, mask_token_id, token_ids)
        token_ids = np.where(becomes_random, drawn, token_ids)
        others = {name: value for name, value in row.items() if name not in LEFT_OUT}
        return others | {"input_ids": token_ids, "labels": labels}

    def _random_numbers(self, token_ids: np.ndarray, epoch: int) -> np.ndarray:
        """Return three numbers in [0, 1) for each token, which depend on nothing but the row."""
        content = np.array([self.seed, epoch, *token_ids], dtype="<i8").tobytes()
        key = np.frombuffer(hashlib.blake2b(content, digest_size=16).digest(), dtype="<u8")
        return np.random.Generator(np.random.Philox(key=key)).random((3, len(token_ids)))

    def _words(self, row: Mapping[str, Any], token_ids: np.ndarray) -> np.ndarray:
        """Return the number of the word of each token, -1 where it is never chosen: (S,)."""
        is_excluded = self._is_special[token_ids]
        for name, excluding in (("special_tokens_mask", 1), ("attention_mask", 0)):
            if row.get(name) is not None:
                is_excluded = is_excluded | (self._column(row, name, token_ids) == excluding)
        if not self.whole_word_mask:
            words = np.arange(len(token_ids))
        elif row.get("word_ids") is not None:
            given = [NEVER_WORD if word is None else word for word in row["word_ids"]]
            given = self._column({"word_ids": given}, "word_ids", token_ids)
            is_excluded = is_excluded | (given == NEVER_WORD)
            # the words of a pair or of packed documents are numbered anew
            words = np.cumsum(np.diff(given, prepend=NEVER_WORD) != 0)
        else:
            if self._word_starts is None:
                self._word_starts = WordStarts(self.tokenizer)
            starts = self._word_starts(token_ids)
            starts[1:] |= is_excluded[:-1]
            words = np.cumsum(starts)
        return np.where(is_excluded, NEVER_WORD, words)

    @staticmethod
    def _column(row: Mapping[str, Any], name: str, token_ids: np.ndarray) -> np.ndarray:
        column = np.asarray(row[name])
        if column.shape != token_ids.shape:
            raise ValueError(
                f"{name} must be as long as input_ids, got {column.size} and {len(token_ids)}. "
                "Pass what the tokenizer returned for this row."
            )
        return column

    def _chosen(self, words: np.ndarray, order: np.ndarray) -> np.ndarray:
        """Choose tokens: (S,) word numbers, (S,) random numbers -> (S,) of bool."""
        candidates = np.flatnonzero(words != NEVER_WORD)
        chosen = np.zeros(len(words), dtype=bool)
        if not len(candidates) or not self.mlm_probability:
            return chosen
        wanted = max(1, round(self.mlm_probability * len(candidates)))
        if not self.whole_word_mask:
            chosen[candidates[np.argsort(order[candidates])[:wanted]]] = True
            return chosen
        _, first, sizes = np.unique(words[candidates], return_index=True, return_counts=True)
        taken = 0
        for word in np.argsort(order[candidates[first]]):
            if taken and taken + sizes[word] > wanted:
                continue
            start = first[word]
            chosen[candidates[start : start + sizes[word]]] = True
            taken += sizes[word]
            if taken >= wanted:
                break
        return chosen

    def _batch(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
        """Mask the rows that are not masked yet, and pad all of them."""
        if not examples:
            raise ValueError("a batch needs at least one row, got none. Check the batch sampler.")
        epoch = int(self._epoch)
        rows = [
            {name: value for name, value in row.items() if name not in LEFT_OUT}
            if row.get("labels") is not None
            else self.mask_row(row, epoch=row.get("mask_epoch", epoch))
            for row in examples
        ]
        tokenizer: Any = self.tokenizer
        fills = {
            "input_ids": tokenizer.pad_token_id,
            "labels": IGNORED_LABEL,
            "token_type_ids": tokenizer.pad_token_type_id,
        }
        lengths = [len(row["input_ids"]) for row in rows]
        multiple = self.pad_to_multiple_of or 1
        width = -(-max(1, *lengths) // multiple) * multiple
        if min(lengths) < width:
            rows = [{"attention_mask": np.ones(len(row["input_ids"]), int), **row} for row in rows]
        batch = {}
        for name in rows[0]:
            values = [row[name] for row in rows]
            if np.ndim(values[0]) == 0:
                batch[name] = np.asarray(values)
                continue
            columns = [self._column(row, name, np.empty(len(row["input_ids"]))) for row in rows]
            on_the_left = tokenizer.padding_side == "left"
            batch[name] = pad_rows(columns, fills.get(name, 0), width, on_the_left=on_the_left)
        return batch


class MaskEpochs(TrainerCallback):
    """Tells a masking collator of each epoch of a Trainer, so that each has masks of its own.

    Args:
        collator: that the Trainer uses.
    """

    def __init__(self, collator: MaskingCollator):
        self.collator = collator
        self.epoch = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin with the epoch in which training begins or goes on."""
        self.epoch = int((state.epoch or 0) + 1e-6)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take the masks of the epoch that begins."""
        self.collator.set_epoch(self.epoch)
        self.epoch += 1
