"""Perplexity of a language model over a whole corpus, no token skipped and none counted twice.

The loss that a Trainer reports is a mean over batches that cut the text: the first token of every
row goes unpredicted, and what follows it is predicted from little. Here

    nats = - sum_n log p(x_n | x_<n),   perplexity = exp(nats / tokens),
    bits per token = log2(perplexity),  bits per byte = nats / ln 2 / bytes.

Perplexities compare models of one tokenization of one text; bits per byte (or character) of the
same text compare models of any. A recurrent model reads the text once, its state carried on, so
that x_<n is all that came before. A transformer sees windows of W tokens that move on by a stride
of s: every token but those of the first window is predicted from at least W - s others.
"""

import inspect
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from hf_seqmodels.data.contiguous_batches import ContiguousWindows, collate_windows, join_tokens

RECURRENT_WINDOW = 512  # tokens at a time; the result does not depend on it
MOST_WINDOWS_AT_ONCE = 8
SCORES_AT_ONCE = 2**26  # of all tokens of these windows: 256 MB


@dataclass(frozen=True)
class CorpusPerplexity:
    """How well a model predicts a corpus.

    Args:
        total_nats: sum of -log p over the tokens that were predicted.
        num_tokens: how many these are.
    """

    total_nats: float
    num_tokens: int

    @property
    def nats_per_token(self) -> float:
        """The mean loss."""
        return self.total_nats / self.num_tokens

    @property
    def bits_per_token(self) -> float:
        """The mean loss in bits, J in perplexity = 2^J."""
        return self.nats_per_token / math.log(2)

    @property
    def perplexity(self) -> float:
        """exp(nats per token); infinite where that overflows."""
        return math.exp(self.nats_per_token) if self.nats_per_token < 700 else math.inf

    def bits_per_unit(self, num_units: int) -> float:
        """Share the total out to other units of the same text.

        Args:
            num_units: bytes, characters or words of the text that the tokens stand for.

        Returns:
            Bits per byte, character or word.

        Raises:
            ValueError: if there are none.
        """
        if num_units < 1:
            raise ValueError(f"num_units must be at least 1, got {num_units}. Count the text.")
        return self.total_nats / math.log(2) / num_units


def corpus_perplexity(
    model: PreTrainedModel,
    corpus: Any,
    *,
    window_size: int | None = None,
    stride: int | None = None,
    batch_size: int | None = None,
    start_token_id: int | None = None,
    progress: bool = False,
) -> CorpusPerplexity:
    """Score every token of a corpus once.

    Args:
        model: a causal language model of this package or of transformers.
        corpus: ids, in a tensor of one axis or a sequence, or documents, which are read one after
            the other as one text: sequences of ids or mappings with `input_ids`.
        window_size: W, tokens that are read at once. None is `max_position_embeddings` of a
            transformer. For a recurrent model it changes nothing but memory.
        stride: s, tokens that each window of a transformer predicts behind the first window, less
            than W; None is W / 2. Less is slower and more favourable.
        batch_size: windows of a transformer at once, by default up to 8; for a recurrent model rows
            that the text is cut into, 1 by default. More are faster, and the first tokens of each
            row then have no past.
        start_token_id: what the first token is predicted from; None leaves the first token out, the
            only one that nothing precedes.
        progress: show a progress bar.

    Returns:
        Sum of the nats and number of tokens.

    Raises:
        ValueError: if the corpus has fewer than two tokens, or a size does not fit.
    """
    token_ids = join_tokens(corpus)
    if start_token_id is not None:
        token_ids = F.pad(token_ids, (1, 0), value=start_token_id)
    is_recurrent = hasattr(model.base_model, "new_cache")
    if is_recurrent and stride is not None:
        raise ValueError(
            f"stride={stride} moves windows that know nothing of one another, but the state of "
            f"{type(model).__name__} is carried on. Leave stride out."
        )
    for name, value in (("window_size", window_size), ("batch_size", batch_size)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    if is_recurrent:
        parts = _carried_nats(model, token_ids, window_size or RECURRENT_WINDOW, batch_size or 1)
    else:
        window_size = _fitting_window(model, window_size)
        stride = _fitting_stride(stride, window_size)
        window_size = min(window_size, len(token_ids))
        parts = _strided_nats(model, token_ids, window_size, stride, batch_size)
    was_training = model.training
    model.eval()
    total_nats = 0.0
    num_tokens = len(token_ids) - 1
    try:
        with torch.no_grad(), tqdm(total=num_tokens, unit="tok", disable=not progress) as bar:
            for nats, num_scored in parts:
                total_nats += nats
                bar.update(num_scored)
    finally:
        model.train(was_training)
    return CorpusPerplexity(total_nats, num_tokens)


def _carried_nats(
    model: PreTrainedModel, token_ids: Tensor, window_size: int, num_rows: int
) -> Iterator[tuple[float, int]]:
    """Yield nats and number of tokens of each window; the state goes on from one to the next."""
    windows = ContiguousWindows(token_ids, num_rows=num_rows, window_size=window_size)
    state = None
    for start in range(0, len(windows), num_rows):
        batch = collate_windows([windows[index] for index in range(start, start + num_rows)])
        labels = batch["labels"].to(model.device)
        outputs = model(
            input_ids=batch["input_ids"].to(model.device),
            labels=labels,
            past_key_values=state,
            use_cache=True,
            logits_to_keep=1,
            num_items_in_batch=1,
        )
        state = outputs.past_key_values
        yield outputs.loss.item(), int((labels >= 0).sum())


def _strided_nats(
    model: PreTrainedModel, token_ids: Tensor, window_size: int, stride: int, batch_size: int | None
) -> Iterator[tuple[float, int]]:
    """Yield nats and number of tokens of each batch of windows."""
    num_tokens = len(token_ids)
    # each window ends where it has scored `stride` tokens more than the one before
    ends = [*range(window_size, num_tokens, stride), num_tokens]
    numbers = [
        window_size - 1,
        *(end - before for before, end in itertools.pairwise(ends)),
    ]
    if batch_size is None:
        scores_of_a_window = window_size * model.config.get_text_config().vocab_size
        batch_size = min(MOST_WINDOWS_AT_ONCE, max(1, SCORES_AT_ONCE // scores_of_a_window))
    batches = [[0], *(range(i, i + batch_size) for i in range(1, len(ends), batch_size))]
    can_leave_out = "logits_to_keep" in inspect.signature(model.forward).parameters
    for batch in batches:
        batch = [index for index in batch if index < len(ends)]
        windows = [token_ids[ends[index] - window_size : ends[index]] for index in batch]
        input_ids = torch.stack(windows).to(model.device)  # (B, W)
        most = max(numbers[index] for index in batch)
        kept = {"logits_to_keep": most + 1} if can_leave_out else {}
        logits = model(input_ids=input_ids, use_cache=False, **kept).logits[:, -most - 1 : -1]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        losses = F.cross_entropy(
            logits.flatten(0, 1), input_ids[:, -most:].flatten(), reduction="none"
        ).view(len(batch), most)
        for row, index in enumerate(batch):
            yield losses[row, most - numbers[index] :].double().sum().item(), numbers[index]


def _fitting_window(model: PreTrainedModel, window_size: int | None) -> int:
    longest = getattr(model.config, "max_position_embeddings", None)
    if window_size is None:
        window_size = RECURRENT_WINDOW if longest is None else int(longest)
    goes_on = getattr(model.config, "position_embedding", "learned") != "learned"
    if longest is not None and window_size > longest and not goes_on:
        raise ValueError(
            f"window_size must be at most max_position_embeddings={longest} of the model, got "
            f"{window_size}."
        )
    if window_size < 2:
        raise ValueError(
            f"window_size must be at least 2 for a token to be predicted from another, got "
            f"{window_size}."
        )
    return window_size


def _fitting_stride(stride: int | None, window_size: int) -> int:
    if stride is None:
        return max(1, window_size // 2)
    if not 1 <= stride < window_size:
        raise ValueError(
            f"stride must be at least 1 and less than window_size, so that every token has one "
            f"before it in its window, got stride={stride} and window_size={window_size}."
        )
    return stride
