"""What trainers share that take their batches from a batch sampler and evaluate in order."""

from typing import Any

import datasets
from run_trainer import RunTrainerMixin
from torch.utils.data import DataLoader, SequentialSampler
from torch.utils.data.sampler import BatchSampler
from transformers import TrainerCallback
from transformers.trainer_utils import seed_worker


class BatchSamplerMixin(RunTrainerMixin):
    """To be inherited from before a Trainer: train on the batches of a batch sampler.

    The sampler's order depends on its seed and the epoch alone, so that a run resumed in the middle
    of an epoch skips exactly the batches it has seen; accelerate deals the batches to the
    processes.

    Args:
        train_batch_sampler: yields lists of row numbers and has `set_epoch`; None leaves sampling
            to transformers.
        **kwargs: passed on to the trainer.
    """

    def __init__(self, *, train_batch_sampler: BatchSampler | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.train_batch_sampler = train_batch_sampler
        if train_batch_sampler is not None:
            self.add_callback(_SetEpoch(train_batch_sampler))

    def get_train_dataloader(self) -> DataLoader:
        """Return the training batches of this process."""
        if self.train_batch_sampler is None:
            return super().get_train_dataloader()
        args, rows = self.args, self.train_dataset
        if isinstance(rows, datasets.Dataset):
            rows = self._remove_unused_columns(rows, description="training")
        dataloader = DataLoader(
            rows,
            batch_sampler=self.train_batch_sampler,
            collate_fn=self.data_collator,
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory,
            persistent_workers=args.dataloader_persistent_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
            worker_init_fn=_WorkerSeed(args.dataloader_num_workers, args.process_index),
        )
        return self.accelerator.prepare(dataloader)

    def _get_eval_sampler(self, eval_dataset: Any) -> SequentialSampler:
        """Keep the order of the rows: their references are held outside the dataset."""
        return SequentialSampler(eval_dataset)


class _SetEpoch(TrainerCallback):
    """Tell the sampler which epoch begins.

    The Trainer reaches the sampler itself only through one wrapper; a resumed epoch under
    accelerate has two.
    """

    def __init__(self, sampler: Any):
        self.sampler = sampler

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.sampler.set_epoch(int(state.epoch or 0))


class _WorkerSeed:
    """Seed a data loading worker (a class, because workers may have to pickle it)."""

    def __init__(self, num_workers: int, rank: int):
        self.num_workers, self.rank = num_workers, rank

    def __call__(self, worker_id: int) -> None:
        seed_worker(worker_id, self.num_workers, self.rank)
