"""Data parallel training (DDP) through transformers' Trainer; see gloo_group."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType
from transformers import TrainerCallback

import gloo_group
import stateful_parallel
from family_cases import Case, representatives_of
from family_grids import GRIDS
from gloo_group import RANKS
from gradient_checks import assert_same_tensors, loss_gradients
from padded_rows import pad_rows
from small_training import losses_of, make_trainer

FEW = ("bahdanau", "luong", "all_tied_of_other_width")
EXACT = {"rtol": 1e-10, "atol": 1e-12}
# rows of a process in a micro-batch, micro-batches of a step: eight rows in any case
SPLITS = ((4, 1), (2, 2), (1, 4))


class SeenGradients(TrainerCallback):
    """Keeps what the optimizer is given."""

    def on_pre_optimizer_step(self, args, state, control, *, model: Any, **kwargs):
        self.gradients = {name: p.grad.clone() for name, p in model.named_parameters()}


def targets_of(case: Case, batch: dict) -> torch.Tensor:
    """Count the targets of a batch."""
    return (batch["labels"][:, case.grid.label_shift :] != -100).sum()


def check_case(case: Case, folder: Path) -> None:
    """Compare the gradients and the loss of a step with those of one process on all rows."""
    whole = case.model(**case.grid.no_dropout).train()
    batch = pad_rows(case, whole.config, rows=case.grid.make_rows(whole.config, 8)).batch
    expected = loss_gradients(whole, batch)
    loss = whole(**batch).loss.item()
    for batch_size, num_parts in SPLITS:
        seen = SeenGradients()
        model = case.model(**case.grid.no_dropout)
        trainer = make_trainer(
            case,
            model,
            folder / f"{batch_size}x{num_parts}",
            batch_size=batch_size,
            gradient_accumulation_steps=num_parts,
            max_steps=1,
            optim="sgd",
            ddp_backend="gloo",
        )
        assert trainer.accelerator.distributed_type == DistributedType.MULTI_CPU
        trainer.add_callback(seen)
        if num_parts == 1:  # else a mean of means would do
            counts = [torch.zeros((), dtype=torch.long) for _ in range(RANKS)]
            own = targets_of(case, next(iter(trainer.get_train_dataloader())))
            torch.distributed.all_gather(counts, own)
            assert counts[0] != counts[1]
            assert sum(counts) == targets_of(case, batch)
        trainer.train()
        assert_same_tensors(seen.gradients, expected, **EXACT)
        torch.testing.assert_close(losses_of(trainer), [loss], rtol=1e-6, atol=0)


def check_stateful(folder: Path) -> None:
    """Train on a text with carried state; the test compares with one process."""
    stateful_parallel.train_in_parallel(folder, 2)


JOBS = {
    f"{grid.model_type}-{case.id}": partial(check_case, case)
    for grid in GRIDS
    for case in [case for case in representatives_of(grid) if case.id in FEW]
    or representatives_of(grid)[:1]
} | {"stateful": check_stateful}

if __name__ == "__main__":
    gloo_group.main(JOBS)
