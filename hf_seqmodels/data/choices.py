"""Batches of questions with choices, as many for each question as it has."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase


class MultipleChoiceCollator:
    """Pad questions to one number of choices, and choices to one length.

    What fills up the choices of a question has `attention_mask` 0 everywhere: for
    `TextEncoderForMultipleChoice` that is no choice at all, and other models need `mask_choices`.

    Args:
        tokenizer: of the model.
        max_length: pad all choices to this many tokens; None pads to the longest of the batch.
        pad_to_multiple_of: lengths are multiples of it; None for any.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
    ):
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.pad_to_multiple_of = pad_to_multiple_of

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return the batch of some questions.

        Args:
            features: a list for each choice under each name that the tokenizer returns, such as
                `input_ids`, and the number of the right choice under `label` or `labels`, in all
                rows or in none.

        Returns:
            `input_ids`, `attention_mask` and what else there is, (B, C, T), and `labels`, (B,).

        Raises:
            ValueError: if there are no rows, a row has no choices or different numbers of them
                under different names, or a label is none of its choices.
        """
        if not features:
            raise ValueError("a batch needs at least one row, got none. Check the batch sampler.")
        names = [name for name in features[0] if name not in ("label", "labels")]
        counts = [self._count_choices(row, names, index) for index, row in enumerate(features)]
        most = max(counts)
        flat = [
            {name: row[name][choice] if choice < count else [] for name in names}
            for row, count in zip(features, counts, strict=True)
            for choice in range(most)
        ]
        padded = self.tokenizer.pad(
            flat,
            padding="longest" if self.max_length is None else "max_length",
            max_length=self.max_length,
            pad_to_multiple_of=self.pad_to_multiple_of,
            return_attention_mask=True,
            return_tensors="pt",
        )
        batch: dict[str, Any] = {
            name: values.view(len(features), most, -1) for name, values in padded.items()
        }
        labels = self._labels(features, counts)
        return batch if labels is None else batch | {"labels": torch.tensor(labels)}

    def _count_choices(self, row: Mapping[str, Any], names: Sequence[str], index: int) -> int:
        sizes = {name: len(row[name]) if name in row else 0 for name in names}
        count = sizes.get("input_ids", 0)
        if count < 1 or any(size != count for size in sizes.values()):
            raise ValueError(
                "every row needs input_ids with at least one choice, and as many under every other "
                f"name, got {sizes} in row {index} of the batch. Encode one list a choice."
            )
        return count

    def _labels(
        self, features: Sequence[Mapping[str, Any]], counts: Sequence[int]
    ) -> list[int] | None:
        labels = [row.get("labels", row.get("label")) for row in features]
        if all(label is None for label in labels):
            return None
        for index, (label, count) in enumerate(zip(labels, counts, strict=True)):
            if label is None or not 0 <= label < count:
                raise ValueError(
                    f"a label must be the number of one of the {count} choices, counted from 0, "
                    f"got {label!r} in row {index} of the batch. Correct the row."
                )
        return [int(label) for label in labels]


def mask_choices(logits: Tensor, attention_mask: Tensor) -> Tensor:
    """Take what fills up the choices of a question out of the softmax.

    Args:
        logits: scores of the choices, (B, C).
        attention_mask: 1 at real tokens, (B, C, T); a choice without any is none.

    Returns:
        The scores, with the lowest number for each such choice, (B, C).
    """
    is_choice = attention_mask.to(logits.device).bool().any(dim=-1)
    return logits.masked_fill(~is_choice, torch.finfo(logits.dtype).min)
