"""Padding rows of token ids to one batch."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

IGNORED_LABEL = -100  # what the losses of transformers skip


class Seq2SeqCollator:
    """Pad source and target token ids to a batch for an encoder-decoder.

    Labels are padded with -100, and always on the right, since the decoder starts at their first
    position. Columns other than `input_ids`, `attention_mask`, `labels` and `alignments` are
    dropped. A row without any source token is legal: its attention mask is zero throughout.

    Args:
        tokenizer: gives the pad token, and the end token that closes a row after cutting.
        model: if it can `prepare_decoder_input_ids_from_labels`, the batch holds
            `decoder_input_ids` too, which the Trainer's label smoothing needs.
        max_source_length: longer sources are cut, in tokens; an end token that closes a row stays.
        max_target_length: the same for labels.
        pad_to_multiple_of: widths of the batch are rounded up to a multiple of this.
        padding_side: where sources are padded.

    Raises:
        ValueError: if an option is out of range, or the tokenizer has no pad token.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        model: PreTrainedModel | None = None,
        max_source_length: int | None = None,
        max_target_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: Literal["right", "left"] = "right",
    ):
        if tokenizer.pad_token_id is None:
            raise ValueError(
                "a batch needs a pad token, but the tokenizer has none. "
                "Set one, for example tokenizer.pad_token = tokenizer.eos_token."
            )
        if padding_side not in ("right", "left"):
            raise ValueError(f"padding_side must be 'right' or 'left', got {padding_side!r}.")
        limits = {
            "max_source_length": max_source_length,
            "max_target_length": max_target_length,
            "pad_to_multiple_of": pad_to_multiple_of,
        }
        for name, limit in limits.items():
            if limit is not None and limit < 1:
                raise ValueError(f"{name} must be at least 1, or None for no limit, got {limit}.")
        self.pad_token_id: Any = tokenizer.pad_token_id
        self.eos_token_id: Any = tokenizer.eos_token_id
        self.model = model
        self.max_source_length = max_source_length
        self.max_target_length = max_target_length
        self.pad_to_multiple_of = pad_to_multiple_of or 1
        self.padding_side = padding_side

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return the batch of some rows.

        Args:
            features: rows with `input_ids`, and with `attention_mask` and `labels` if all of them
                have it; where all have `alignments`, those are links between tokens, source and
                target in turn, as `link_tokens` finds them, flattened.

        Returns:
            `input_ids` and `attention_mask` (B, S); with labels also `labels` (B, T), and
            `decoder_input_ids` (B, T) where the model asks for them; with links `alignments`
            (B, T, S), 1 where a target token is linked with a source token.

        Raises:
            ValueError: if there are no rows, a column is missing in some of them, or a row is not
                flat.
        """
        sources = _token_rows(features)
        attention = _column(features, "attention_mask") or [np.ones_like(row) for row in sources]
        for index, (row, mask) in enumerate(zip(sources, attention, strict=True)):
            if len(row) != len(mask):
                raise ValueError(
                    f"attention_mask must be as long as input_ids, got {len(mask)} and {len(row)} "
                    f"in row {index} of the batch. Pass the mask that the tokenizer returned, or "
                    "leave it out."
                )
        limit, on_the_left = self.max_source_length, self.padding_side == "left"
        input_ids = [_cut(row, limit, self.eos_token_id) for row in sources]
        batch = {
            "input_ids": self._pad(input_ids, self.pad_token_id, on_the_left=on_the_left),
            "attention_mask": self._pad(
                [row[:limit] for row in attention], 0, on_the_left=on_the_left
            ),
        }
        labels = _column(features, "labels")
        if labels is not None:
            rows = [_cut(row, self.max_target_length, self.eos_token_id) for row in labels]
            batch["labels"] = self._pad(rows, IGNORED_LABEL, on_the_left=False)
            shift = getattr(self.model, "prepare_decoder_input_ids_from_labels", None)
            if shift is not None:
                batch["decoder_input_ids"] = shift(labels=batch["labels"])
            links = _column(features, "alignments")
            if links is not None:
                batch["alignments"] = self._alignments(links, input_ids, batch)
        return batch

    def _alignments(
        self, links: list[np.ndarray], input_ids: list[np.ndarray], batch: dict[str, Tensor]
    ) -> Tensor:
        """Return the links of every row as (B, T, S); those behind a cut are left out."""
        width = batch["input_ids"].shape[1]
        alignments = np.zeros((*batch["labels"].shape, width), dtype=np.float32)
        for index, (row, ids) in enumerate(zip(links, input_ids, strict=True)):
            sources, targets = row.reshape(-1, 2).T.astype(np.int64)
            is_left = (sources < len(ids)) & (targets < alignments.shape[1])
            skipped = width - len(ids) if self.padding_side == "left" else 0
            alignments[index, targets[is_left], sources[is_left] + skipped] = 1.0
        return torch.from_numpy(alignments)

    def _pad(self, rows: list[np.ndarray], fill: int, *, on_the_left: bool) -> Tensor:
        """Return the rows as (B, width) with `fill` on one side; the width is never zero."""
        width = max(1, *map(len, rows))
        width = -(-width // self.pad_to_multiple_of) * self.pad_to_multiple_of
        return _pad(rows, fill, width, on_the_left=on_the_left)


class LanguageModelingCollator:
    """Pad rows of token ids to a batch for a causal language model, which shifts labels itself.

    Rows of one length, such as all but the last of `token_blocks`, make a batch without
    `attention_mask`, so that attention can take its fastest form. Shorter rows are filled up on the
    right, with labels of -100.

    Args:
        tokenizer: gives the pad token; without one, only rows of one length make a batch.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self.pad_token_id: Any = tokenizer.pad_token_id

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return the batch of some rows.

        Args:
            features: rows with `input_ids`, and with `labels` and `position_ids` if all of them
                have it.

        Returns:
            `input_ids` and `labels` (B, T), the labels being the input where the rows bring none;
            `position_ids` (B, T) if the rows bring them, and else `attention_mask` (B, T) if a row
            is padded.

        Raises:
            ValueError: if there are no rows, a column is missing in some of them, a row is not
                flat, or padding is needed and there is no pad token.
        """
        rows = _token_rows(features)
        labels = _column(features, "labels") or rows
        positions = _column(features, "position_ids")
        width = max(1, *map(len, rows))
        is_padded = any(len(row) < width for row in rows)
        if is_padded and self.pad_token_id is None:
            raise ValueError(
                "rows of different lengths need a pad token, but the tokenizer has none. "
                "Set one, for example tokenizer.pad_token = tokenizer.eos_token."
            )
        batch = {
            "input_ids": _pad(rows, self.pad_token_id if is_padded else 0, width),
            "labels": _pad(labels, IGNORED_LABEL, width),
        }
        if positions is not None:
            batch["position_ids"] = _pad(positions, 0, width)  # each pad begins a text of its own
        elif is_padded:
            batch["attention_mask"] = _pad([np.ones_like(row) for row in rows], 0, width)
        return batch


def _token_rows(features: Sequence[Mapping[str, Any]]) -> list[np.ndarray]:
    if not features:
        raise ValueError("a batch needs at least one row, got none. Check the batch sampler.")
    rows = _column(features, "input_ids")
    if rows is None:
        raise ValueError(
            f"each row needs input_ids, got {', '.join(features[0]) or 'no columns'}. "
            "Encode the texts with the tokenizer first."
        )
    return rows


def pad_rows(
    rows: Sequence[np.ndarray], fill: int, width: int, *, on_the_left: bool = False
) -> np.ndarray:
    """Write rows of numbers below one another.

    Args:
        rows: each with `width` numbers at most.
        fill: what is written where a row has ended.
        width: of the result.
        on_the_left: whether to fill before the rows instead of behind them.

    Returns:
        Whole numbers, (B, width).
    """
    padded = np.full((len(rows), width), fill, dtype=np.int64)
    for padded_row, row in zip(padded, rows, strict=True):
        if on_the_left:
            padded_row[width - len(row) :] = row
        else:
            padded_row[: len(row)] = row
    return padded


def _pad(rows: list[np.ndarray], fill: int, width: int, *, on_the_left: bool = False) -> Tensor:
    return torch.from_numpy(pad_rows(rows, fill, width, on_the_left=on_the_left))


def _column(features: Sequence[Mapping[str, Any]], name: str) -> list[np.ndarray] | None:
    """Return a column as one array for each row, or None if no row has it."""
    present = [row.get(name) is not None for row in features]
    if not any(present):
        return None
    if not all(present):
        raise ValueError(
            f"either all rows of a batch have {name} or none, but row {present.index(False)} has "
            "none. Encode all rows in the same way."
        )
    rows = [np.asarray(row[name]) for row in features]
    for index, row in enumerate(rows):
        if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
            raise ValueError(
                f"{name} must be a flat list of token ids in each row, got "
                f"{features[index][name]!r} in row {index} of the batch. Encode one text a row."
            )
    return rows


def _cut(row: np.ndarray, limit: int | None, end: int | None) -> np.ndarray:
    """Shorten a row to `limit` tokens; an end token that closed it closes it again."""
    if limit is None or len(row) <= limit:
        return row
    shortened = row[:limit].copy()
    if end is not None and row[-1] == end:
        shortened[-1] = end
    return shortened
