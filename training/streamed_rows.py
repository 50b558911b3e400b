"""Rows that are read while training, by several processes."""

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info
from transformers import TrainingArguments


class StreamedRows(IterableDataset):
    """Rows that are made and shuffled while training, dealt to the processes, pass after pass.

    Every process makes all rows in the same order and takes its turn, so that each row of a pass
    goes to exactly one of them, and a step of several processes holds the rows of a step of one
    whose batch is as large as all theirs. That the stream has no end lets a run resume wherever it
    was: Trainer skips rows of one pass only.

    Args:
        make_rows: makes the rows of a pass, given its number.
        options: give the size of the buffer that rows are drawn from.
        args: give the seed and the processes.
    """

    def __init__(
        self,
        make_rows: Callable[[int], Iterable[dict[str, Any]]],
        options: Any,
        args: TrainingArguments,
    ):
        self.make_rows, self.seed = make_rows, args.seed
        self.buffer_size = options.shuffle_buffer_size
        self.num_processes, self.process_index = args.world_size, args.process_index

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of this process, or of this worker of its data loader, without end.

        Yields:
            Rows.
        """
        worker = get_worker_info()
        num_workers, worker_index = (worker.num_workers, worker.id) if worker else (1, 0)
        first = self.process_index + self.num_processes * worker_index
        yield from itertools.islice(self._passes(), first, None, self.num_processes * num_workers)

    def _passes(self) -> Iterator[dict[str, Any]]:
        for number in itertools.count():
            rows = shuffled(
                self.make_rows(number), self.buffer_size, random.Random(f"{self.seed} {number}")
            )
            row = None
            for row in rows:
                yield row
            if row is None:
                raise ValueError(
                    "the streamed training text must hold a row of at least two known tokens, got "
                    "none. Check the file and the tokenizer."
                )


def shuffled(rows: Iterable[Any], buffer_size: int, generator: random.Random) -> Iterator[Any]:
    """Yield rows in another order: each is drawn from a buffer of the next ones.

    Args:
        rows: of one pass.
        buffer_size: how many wait at most.
        generator: draws.

    Yields:
        Every row once.
    """
    waiting: list[Any] = []
    for row in rows:
        if len(waiting) < buffer_size:
            waiting.append(row)
            continue
        place = generator.randrange(buffer_size)
        yield waiting[place]
        waiting[place] = row
    generator.shuffle(waiting)
    yield from waiting
