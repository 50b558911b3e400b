"""Batch samplers that put rows of similar length together.

Both give every row once an epoch, in an order that depends on the seed and the epoch alone. That
makes a run that is resumed in the middle of an epoch see exactly the batches it has not seen:
accelerate's `skip_first_batches` counts them off. The number of batches is the same in every epoch,
which the Trainer's step count relies on.

Under accelerate each process takes every n-th batch. Where the number of batches is no multiple of
the number of processes, accelerate repeats rows of the first batches to give each process as many;
with `even_batches=False` nothing is repeated.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from torch.utils.data import Sampler


class _LengthAwareBatchSampler(Sampler[list[int]]):
    """What the two samplers share: checked lengths, the epoch, and its random numbers.

    accelerate reads the attributes `batch_size`, None where it varies, and `drop_last`.
    """

    def __init__(
        self, lengths: Sequence[int] | Sequence[tuple[int, int]], *, shuffle: bool, seed: int
    ):
        self.lengths = _as_columns(lengths)  # (N, 1) or (N, 2)
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0

    @property
    def sampler(self) -> "_LengthAwareBatchSampler":
        """Itself, since accelerate tells the epoch to the `sampler` of what it has wrapped."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order the next iteration follows.

        Args:
            epoch: counted from 0.
        """
        self.epoch = epoch

    def _random_numbers(self) -> np.random.Generator:
        return np.random.default_rng((self.seed, self.epoch))


class LengthGroupedBatchSampler(_LengthAwareBatchSampler):
    """Batches of a fixed number of rows, similar in length.

    The rows are shuffled and dealt into pools of `pool_size` batches; each pool is sorted by length
    and cut into batches, and the batches of all pools are shuffled. A larger pool means less
    padding, a smaller one batches that mix lengths more. If the last batch is not full, its rows
    are drawn from all lengths.

    Args:
        lengths: of the rows in tokens: one number each, or a pair for source and target.
        batch_size: rows in a batch.
        pool_size: batches in a pool.
        shuffle: False sorts all rows by length, the same way every epoch.
        seed: of the order.
        drop_last: leave out the last batch if it is not full; which rows that leaves out changes
            with every epoch.

    Raises:
        ValueError: if a length or an option is out of range.
    """

    def __init__(
        self,
        lengths: Sequence[int] | Sequence[tuple[int, int]],
        batch_size: int,
        *,
        pool_size: int = 50,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ):
        super().__init__(lengths, shuffle=shuffle, seed=seed)
        for name, value in (("batch_size", batch_size), ("pool_size", pool_size)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        self.batch_size = batch_size
        self.pool_size = pool_size
        self.drop_last = drop_last

    def __len__(self) -> int:
        num_full, remainder = divmod(len(self.lengths), self.batch_size)
        return num_full + bool(remainder and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        num_rows = len(self.lengths)
        if not self.shuffle:
            order = _by_length(self.lengths, np.arange(num_rows))
            batches = _slices(order, self.batch_size)
        else:
            generator = self._random_numbers()
            order = generator.permutation(num_rows)
            num_full = num_rows - num_rows % self.batch_size
            # the batch that is not full is drawn first: cut off last, it would hold the longest
            # rows
            batches = [
                batch
                for pool in _slices(order[:num_full], self.pool_size * self.batch_size)
                for batch in _slices(_by_length(self.lengths, pool), self.batch_size)
            ]
            batches = [batches[index] for index in generator.permutation(len(batches))]
            batches += _slices(order[num_full:], self.batch_size)
        for batch in batches[: len(self)]:
            yield batch.tolist()


class TokenBudgetBatchSampler(_LengthAwareBatchSampler):
    """Batches of as many rows as fit into a number of tokens, padding included.

    A batch of B rows holds B * (longest source + longest target) tokens. The rows are sorted by
    length and cut into batches from the short end; the batches are shuffled. Rows of equal lengths
    change places from epoch to epoch, so that a batch keeps its shape but not its rows.

    Args:
        lengths: of the rows in tokens: one number each, or a pair for source and target.
        max_tokens: tokens in a batch at most.
        max_batch_size: rows in a batch at most.
        shuffle: False keeps the batches sorted by length, with the same rows every epoch.
        seed: of the order.

    Raises:
        ValueError: if a length or an option is out of range, or one row alone exceeds the budget.
    """

    batch_size = None
    drop_last = False

    def __init__(
        self,
        lengths: Sequence[int] | Sequence[tuple[int, int]],
        max_tokens: int,
        *,
        max_batch_size: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
    ):
        super().__init__(lengths, shuffle=shuffle, seed=seed)
        if max_batch_size is not None and max_batch_size < 1:
            raise ValueError(
                f"max_batch_size must be at least 1, or None for no limit, got {max_batch_size}."
            )
        totals = self.lengths.sum(axis=1)
        longest = int(totals.argmax()) if len(totals) else 0
        if len(totals) and totals[longest] > max_tokens:
            raise ValueError(
                f"max_tokens must hold the longest row, but row {longest} has {totals[longest]} "
                f"tokens ({' + '.join(map(str, self.lengths[longest]))}) and max_tokens is "
                f"{max_tokens}. Raise max_tokens, cut the texts or leave the row out."
            )
        self.max_tokens = max_tokens
        self.max_batch_size = max_batch_size
        order = _by_length(self.lengths, np.arange(len(self.lengths)))
        self._batch_ends = self._cut(self.lengths[order])

    def __len__(self) -> int:
        return len(self._batch_ends)

    def __iter__(self) -> Iterator[list[int]]:
        if not self.shuffle:
            order = _by_length(self.lengths, np.arange(len(self.lengths)))
            batch_order = np.arange(len(self))
        else:
            generator = self._random_numbers()
            order = _by_length(self.lengths, generator.permutation(len(self.lengths)))
            batch_order = generator.permutation(len(self))
        starts = [0, *self._batch_ends[:-1]]
        for batch in batch_order:
            yield order[starts[batch] : self._batch_ends[batch]].tolist()

    def _cut(self, sorted_lengths: np.ndarray) -> list[int]:
        """Return where each batch ends, filling one after the other."""
        ends: list[int] = []
        start, widths = 0, np.zeros(sorted_lengths.shape[1], dtype=np.int64)
        for row, lengths in enumerate(sorted_lengths):
            wider = np.maximum(widths, lengths)
            num_rows = row + 1 - start
            too_many = self.max_batch_size is not None and num_rows > self.max_batch_size
            if num_rows > 1 and (too_many or num_rows * wider.sum() > self.max_tokens):
                ends.append(row)
                start, wider = row, lengths
            widths = wider
        return [*ends, len(sorted_lengths)] if len(sorted_lengths) else []


def _as_columns(lengths: Sequence[int] | Sequence[tuple[int, int]]) -> np.ndarray:
    """Return the lengths as (N, 1) or (N, 2)."""
    if not len(lengths):
        return np.empty((0, 1), dtype=np.int64)
    try:
        columns = np.asarray(lengths)
    except ValueError:  # rows of different shapes
        columns = np.empty(0, dtype=object)
    is_flat_or_paired = columns.ndim == 1 or columns.shape[1:] == (2,)
    if columns.dtype.kind not in "iu" or not is_flat_or_paired:
        raise ValueError(
            "lengths must be whole numbers, either one for each row or a pair (source, target) for "
            f"each row, got {lengths[0]!r} for the first of {len(lengths)} rows. "
            "Pass for example [len(ids) for ids in dataset['input_ids']]."
        )
    columns = columns.reshape(len(lengths), -1).astype(np.int64)
    if columns.min() < 0:
        row = int(columns.min(axis=1).argmin())
        raise ValueError(
            f"a length cannot be negative, got {lengths[row]!r} for row {row}. "
            "Pass the number of tokens of each row."
        )
    return columns


def _by_length(lengths: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sort rows by length, so that neighbours need little padding on either side.

    The longer side comes first. Rows that agree in it run from longer sources to longer targets,
    and at the next length back again, so that no two neighbours differ much. Rows of equal lengths
    stand together, in the order in which they came.
    """
    chosen = lengths[rows]
    longer_side = chosen.max(axis=1)
    difference = chosen[:, -1] - chosen[:, 0]
    turn = np.where(longer_side % 2, -1, 1)
    return rows[np.lexsort((turn * difference, longer_side))]


def _slices(rows: np.ndarray, size: int) -> list[np.ndarray]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
