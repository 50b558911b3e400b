"""How well a masked language model tells masked tokens, and what it fills in."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_seqmodels.data.collators import IGNORED_LABEL

TOKEN_SCORES = ("prediction_logits", "logits")  # with a head for next sentences, without


@dataclass
class MaskedTokenFigures:
    """Sums over the masked tokens of a corpus.

    Args:
        total_nats: negative log-likelihood of what stood there.
        num_tokens: how many were masked.
        num_right: how many were the model's first guess.
        num_pairs: pairs of texts, for a model with a head for next sentences.
        num_right_pairs: how many of them it judged rightly.
    """

    total_nats: float = 0.0
    num_tokens: int = 0
    num_right: int = 0
    num_pairs: int = 0
    num_right_pairs: int = 0

    @property
    def nats_per_token(self) -> float:
        """Mean loss of a masked token."""
        return self.total_nats / self.num_tokens

    @property
    def perplexity(self) -> float:
        """exp of that loss; infinite where it is too large for a number."""
        return math.exp(self.nats_per_token) if self.nats_per_token < 700 else math.inf

    @property
    def accuracy(self) -> float:
        """Share of masked tokens that were guessed, a percentage."""
        return 100 * self.num_right / self.num_tokens

    @property
    def next_sentence_accuracy(self) -> float | None:
        """Share of pairs that were judged rightly, a percentage; None without pairs."""
        return 100 * self.num_right_pairs / self.num_pairs if self.num_pairs else None


@torch.inference_mode()
def masked_token_figures(
    model: PreTrainedModel,
    rows: Sequence[Mapping[str, Any]],
    collator: Callable[[list[Any]], Mapping[str, Any]],
    *,
    batch_size: int = 32,
    progress: bool = False,
) -> MaskedTokenFigures:
    """Let a model guess the masked tokens of rows, in evaluation mode.

    Args:
        model: any masked language model, with or without a head for next sentences.
        rows: masked rows, such as `MaskingCollator.mask_row` makes; the same rows give the same
            figures, whatever the batches.
        collator: makes a batch of them.
        batch_size: rows at once.
        progress: show a bar.

    Returns:
        The sums.

    Raises:
        ValueError: if no token of the rows is masked.
    """
    was_training = model.training
    model.eval()
    found = MaskedTokenFigures()
    starts = range(0, len(rows), batch_size)
    with tqdm(starts, disable=not progress, desc="Evaluating") as bar:
        for start in bar:
            batch = collator([rows[i] for i in range(start, min(start + batch_size, len(rows)))])
            inputs = {name: value.to(model.device) for name, value in batch.items()}
            labels = inputs.pop("labels")  # (B, S)
            follows = inputs.pop("next_sentence_label", None)
            outputs = model(**inputs)
            masked = labels != IGNORED_LABEL
            scores, targets = _token_scores(outputs)[masked].float(), labels[masked]  # (N, V), (N)
            found.total_nats += (
                F.cross_entropy(scores, targets, reduction="none").double().sum().item()
            )
            found.num_tokens += len(targets)
            found.num_right += int((scores.argmax(dim=-1) == targets).sum())
            if follows is not None:
                found.num_pairs += len(follows)
                judged = outputs.seq_relationship_logits.argmax(dim=-1)
                found.num_right_pairs += int((judged == follows).sum())
    model.train(was_training)
    if not found.num_tokens:
        raise ValueError(
            "no token of the rows is masked, so there is nothing to tell. Make the rows with "
            "MaskingCollator.mask_row."
        )
    return found


def _token_scores(outputs: Any) -> Tensor:
    return next(outputs[name] for name in TOKEN_SCORES if name in outputs)


@dataclass
class FilledMask:
    """What a model puts in place of one mask token.

    Args:
        text: the text with its mask tokens.
        place: which mask of the text, from 0.
        tokens: the most probable tokens, as text, the best first.
        probabilities: of these tokens.
        filled: the text with the best token at each mask.
    """

    text: str
    place: int
    tokens: list[str] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    filled: str = ""


@torch.inference_mode()
def fill_masks(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    *,
    top_k: int = 5,
) -> list[FilledMask]:
    """Fill in the mask tokens of texts, each by itself.

    Args:
        model: any masked language model.
        tokenizer: of the model.
        texts: with the tokenizer's mask token in them.
        top_k: tokens for each mask.

    Returns:
        One entry for each mask, in the order of the texts.

    Raises:
        ValueError: if a text has no mask token.
    """
    was_training = model.training
    model.eval()
    filled = []
    for text in texts:
        ids: Any = tokenizer(text, return_tensors="pt").to(model.device)
        places = (ids["input_ids"][0] == tokenizer.mask_token_id).nonzero()[:, 0]
        if not len(places):
            raise ValueError(
                f"a text to fill in needs the mask token {tokenizer.mask_token}, got {text!r}. "
                "Write it where a word is missing."
            )
        known = inspect.signature(model.forward).parameters
        inputs = {name: value for name, value in ids.items() if name in known}
        scores = _token_scores(model(**inputs))[0, places].float()  # (N, V)
        best = scores.softmax(dim=-1).topk(min(top_k, scores.shape[-1]), dim=-1)
        whole = ids["input_ids"][0].clone()
        whole[places] = best.indices[:, 0]
        sentence = str(tokenizer.decode(whole, skip_special_tokens=True))
        for number in range(len(places)):
            ids_of_place = best.indices[number].tolist()
            tokens = [str(tokenizer.decode([token])).strip() for token in ids_of_place]
            filled.append(FilledMask(text, number, tokens, best.values[number].tolist(), sentence))
    model.train(was_training)
    return filled
