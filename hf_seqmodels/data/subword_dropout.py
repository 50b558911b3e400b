"""Sub-word regularisation: training pairs that are cut into sub-words anew at every reading."""

import copy
from collections.abc import Sequence
from typing import Any

from tokenizers import models
from torch.utils.data import Dataset
from transformers import BatchEncoding, PreTrainedTokenizerBase

from hf_seqmodels.models.pipeline_seq2seq_generation import copies_words


def with_bpe_dropout(tokenizer: PreTrainedTokenizerBase, dropout: float) -> PreTrainedTokenizerBase:
    """Return a copy of a tokenizer that leaves out merges at random.

    Source: Provilkov et al. 2020, arXiv:1910.13267. The draws come from the tokenizers library,
    which cannot be seeded.

    Args:
        tokenizer: a fast tokenizer, or a pair (`Seq2SeqTokenizer`); stays as it is.
        dropout: rate at which a merge is left out, in (0, 1); 0.1 is the paper's.

    Returns:
        The copy; of a pair, every side that is a BPE leaves out merges.

    Raises:
        ValueError: if no side is a BPE, or the rate is out of range.
    """
    if not 0 < dropout < 1:
        raise ValueError(
            f"bpe_dropout must lie between 0 and 1, got {dropout}. Leave it out for 0."
        )
    copied = copy.deepcopy(tokenizer)
    sides = [copied, getattr(copied, "target_tokenizer", None)]
    found = [getattr(getattr(side, "backend_tokenizer", None), "model", None) for side in sides]
    learned = [model for model in found if isinstance(model, models.BPE)]
    if not learned:
        kinds = ", ".join(type(model).__name__ for model in found if model is not None) or "none"
        raise ValueError(
            f"bpe_dropout leaves out merges, which only a fast BPE tokenizer has, got {kinds}. "
            "Train one with model='bpe', or leave bpe_dropout out."
        )
    for model in learned:
        model.dropout = dropout
    return copied


class ResampledPairs(Dataset):
    """Pairs of text that become token ids when they are read, each time anew.

    Args:
        sources: the source texts.
        targets: one target text per source.
        tokenizer: called with the sources, and with the targets as `text_target`; see
            `with_bpe_dropout`.
        max_source_length: longer sources are cut, in tokens; None cuts nothing.
        max_target_length: the same for targets.

    Raises:
        ValueError: if there are not as many targets as sources.
    """

    def __init__(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_source_length: int | None = None,
        max_target_length: int | None = None,
    ):
        if len(sources) != len(targets):
            raise ValueError(
                f"targets must be one text for each source, got {len(targets)} for "
                f"{len(sources)}. Write a source with several targets several times."
            )
        self.sources, self.targets = list(sources), list(targets)
        self.tokenizer = tokenizer
        self.max_source_length = max_source_length
        self.max_target_length = max_target_length

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, list[int]]]:
        """Return rows with `input_ids`, `attention_mask` and `labels`; a loader reads whole
        batches by this."""
        sources = [self.sources[int(index)] for index in indices]
        targets = [self.targets[int(index)] for index in indices]
        inputs = self._encode(self.max_source_length, text=sources)["input_ids"]
        name, beside = "input_ids", {}
        if copies_words(self.tokenizer):
            name, beside = "labels", {"text": sources}
        labels = self._encode(self.max_target_length, **beside, text_target=targets)[name]
        return [
            {"input_ids": source, "attention_mask": [1] * len(source), "labels": target}
            for source, target in zip(inputs, labels, strict=True)
        ]

    def _encode(self, limit: int | None, **texts: list[str]) -> BatchEncoding:
        cut: Any = (
            {"truncation": False} if limit is None else {"truncation": True, "max_length": limit}
        )
        return self.tokenizer(**texts, **cut, verbose=False)
