"""A corpus as a few long rows that go on from batch to batch, for truncated backpropagation.

The text is cut into B rows of equal length, which lie side by side; a batch is a window of T tokens
over all rows, and the next batch goes on where it stopped:

    text     a b c d e f g h i j k l m      B = 3, T = 2
    batches  a b | c d                      each row reads on; its first token is predicted
             e f | g h                      by the row above
             i j | k l    then m is what l predicts

Every token but the first of the text is predicted exactly once in an epoch.
"""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from hf_seqmodels.data.collators import IGNORED_LABEL

SHORT_WINDOWS = 0.05  # share of windows of half the length, as in AWD-LSTM
WINDOW_SPREAD = 5.0  # standard deviation of a window's length, in tokens


def join_tokens(corpus: Any) -> Tensor:
    """Return the ids of a corpus as one long sequence.

    Args:
        corpus: ids, in a tensor of one axis or a sequence; or documents one after the other, each a
            sequence of ids or a mapping with `input_ids`, as a tokenized dataset has them.

    Returns:
        Ids, (N).

    Raises:
        ValueError: if it holds something else, or fewer than two tokens.
    """
    if isinstance(corpus, Tensor):
        token_ids = corpus
    else:
        token_ids = torch.tensor(_flat(corpus), dtype=torch.long)
    if token_ids.dim() != 1 or len(token_ids) < 2 or token_ids.is_floating_point():
        raise ValueError(
            f"A corpus must be at least two token ids in one sequence, got {token_ids.dtype} of "
            f"the shape {tuple(token_ids.shape)}. Pass ids in reading order, or documents with "
            f"input_ids."
        )
    return token_ids.long()


def _flat(corpus: Iterable[Any]) -> list[int]:
    token_ids: list[int] = []
    for item in corpus:
        if isinstance(item, Integral):  # numpy's too
            token_ids.append(int(item))
        else:
            token_ids.extend(item["input_ids"] if hasattr(item, "keys") else item)
    return token_ids


class ContiguousWindows(Dataset):
    """Windows of a corpus, in the order in which truncated backpropagation reads them.

    Item `w * B + r` is window w of row r, so that batches of B items in order are what the rows
    read next. Rows differ in length by one token at most; the shorter ones end with a position that
    predicts nothing.

    Args:
        corpus: see `join_tokens`.
        num_rows: B, rows that the corpus is cut into.
        window_size: T, tokens of a window; the last window of an epoch holds what is left.
        varied: draw the lengths of the windows anew for each epoch, as AWD-LSTM does (Merity et al.
            2018, section 5): around T with a standard deviation of 5, one in twenty around T / 2.
            The number of windows stays the same.
        seed: of the lengths.
        process_index: which part of the rows these are, of `num_processes`.
        num_processes: parts that the rows are shared out to, each B / num_processes of them.

    Raises:
        ValueError: if a number is not positive, the rows cannot be shared out, or there are fewer
            predictions than rows.
    """

    def __init__(
        self,
        corpus: Any,
        *,
        num_rows: int,
        window_size: int,
        varied: bool = False,
        seed: int = 0,
        process_index: int = 0,
        num_processes: int = 1,
    ):
        self.token_ids = join_tokens(corpus)
        for name, value in (("num_rows", num_rows), ("window_size", window_size)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        num_predicted = len(self.token_ids) - 1
        if num_predicted < num_rows:
            raise ValueError(
                f"Every row must have a token to predict, got {num_rows} rows for "
                f"{num_predicted + 1} tokens. Use fewer rows (a smaller batch) or a longer text."
            )
        if num_rows % num_processes:
            raise ValueError(
                f"num_rows must be a multiple of num_processes, got {num_rows} and {num_processes}."
            )
        self.window_size = window_size
        self.varied = varied
        self.seed = seed
        shortest, num_longer = divmod(num_predicted, num_rows)
        self.row_length = shortest + (num_longer > 0)  # positions of the longest row
        starts = [row * shortest + min(row, num_longer) for row in range(num_rows + 1)]
        self.num_rows = num_rows // num_processes  # here
        first = process_index * self.num_rows
        self.row_bounds = list(
            zip(starts[first : first + self.num_rows], starts[first + 1 :], strict=False)
        )
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Draw the lengths of the windows of an epoch; without `varied` they are always the same.

        Args:
            epoch: from 0.
        """
        if self.varied:
            self.window_bounds = self._varied_bounds(epoch)
        else:
            self.window_bounds = [*range(0, self.row_length, self.window_size), self.row_length]

    def _varied_bounds(self, epoch: int) -> list[int]:
        mean_length = self.window_size * (1 - SHORT_WINDOWS / 2)
        num_windows = max(1, round(self.row_length / mean_length))
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        is_short = torch.rand(num_windows, generator=generator) < SHORT_WINDOWS
        means = torch.where(is_short, self.window_size / 2, float(self.window_size))
        noise = torch.randn(num_windows, generator=generator, dtype=torch.float64)
        # one token each, and what is left in proportion: the windows fill the row exactly
        parts = (means + WINDOW_SPREAD * noise - 1).clamp(min=min(4, self.window_size))
        ends = parts.cumsum(0) / parts.sum() * (self.row_length - num_windows)
        counted = torch.arange(1, num_windows + 1)
        return [0, *(ends.round().long() + counted).tolist()]

    def __len__(self) -> int:
        return (len(self.window_bounds) - 1) * self.num_rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return one window of one row.

        Args:
            index: window * rows + row.

        Returns:
            `input_ids` (T), `labels` (T + 1): the same ids behind one -100, so that the loss, which
            compares position t with label t + 1, has a target at every position; and
            `starts_row`, whether the window is the first of its row.

        Raises:
            IndexError: if there is no such item.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"index must lie in [0, {len(self)}), got {index}.")
        window, row = divmod(index, self.num_rows)
        row_start, row_end = self.row_bounds[row]
        start, end = (row_start + bound for bound in self.window_bounds[window : window + 2])
        labels = self.token_ids[start : min(end, row_end) + 1].clone()
        labels[0] = IGNORED_LABEL
        input_ids = self.token_ids[start:end]
        if end > row_end:  # the last position of a shorter row
            labels = torch.cat([labels, labels.new_full((end - row_end,), IGNORED_LABEL)])
        return {"input_ids": input_ids, "labels": labels, "starts_row": window == 0}


def collate_windows(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Lay windows of the same length side by side.

    Args:
        items: of `ContiguousWindows`.

    Returns:
        `input_ids` (B, T), `labels` (B, T + 1), and `starts_row`, one bool for all.
    """
    return {
        "input_ids": torch.stack([item["input_ids"] for item in items]),
        "labels": torch.stack([item["labels"] for item in items]),
        "starts_row": items[0]["starts_row"],
    }
