"""A few steps of transformers' Trainer on a tiny model.

Run as a script it stores the golden losses again, after a change that is meant to move them:

    python tests/support/small_training.py
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

from family_cases import Case, Row, representatives_of
from padded_rows import pad_rows

GOLDEN_LOSSES = Path(__file__).parents[1] / "contract" / "golden_losses.json"
GOLDEN_STEPS = 6


def make_trainer(
    case: Case,
    model,
    folder: Path,
    *,
    rows: Sequence[Row] | None = None,
    batch_size: int = 3,
    **arguments,
) -> Seq2SeqTrainer:
    """Return a Trainer over rows, on the CPU, silent, without clipping or schedule.

    Args:
        case: makes the rows.
        model: to train.
        folder: for checkpoints.
        rows: to train on; None takes eight of the case.
        batch_size: rows per device and step.
        arguments: further ones of Seq2SeqTrainingArguments.
    """
    settings = {
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "learning_rate": 0.01,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "dataloader_pin_memory": False,
        "seed": 11,
        **arguments,
    }
    return Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(
            output_dir=str(folder), per_device_train_batch_size=batch_size, **settings
        ),
        train_dataset=case.grid.make_rows(model.config, 8) if rows is None else list(rows),
        data_collator=lambda features: pad_rows(case, model.config, rows=features).batch,
    )


def losses_of(trainer: Seq2SeqTrainer) -> list[float]:
    """Return the training loss of every logged step, in nats per target token."""
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def golden_run(case: Case, folder: Path) -> list[float]:
    """Return the losses of a short run from the family's own initialisation, without dropout:
    random masks differ between machines."""
    torch.manual_seed(3)
    model = case.grid.model_class(case.config(**case.grid.no_dropout))
    trainer = make_trainer(case, model, folder, max_steps=GOLDEN_STEPS)
    trainer.train()
    return losses_of(trainer)


def store_golden_losses() -> None:
    """Write the losses of every case that has some stored already."""
    from family_grids import GRIDS

    stored = json.loads(GOLDEN_LOSSES.read_text())
    for grid in GRIDS:
        cases = {case.id: case for case in representatives_of(grid)}
        for name in stored.get(grid.model_type, {}):
            with tempfile.TemporaryDirectory() as folder:
                losses = golden_run(cases[name], Path(folder))
            stored[grid.model_type][name] = [round(loss, 6) for loss in losses]
    GOLDEN_LOSSES.write_text(json.dumps(stored, indent=2) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    store_golden_losses()
