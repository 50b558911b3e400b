"""The same fine-tuning of two models: Trainer, seed, batches."""

from pathlib import Path

import torch
from torch import Tensor
from transformers import Trainer, TrainingArguments


class RecordingTrainer(Trainer):
    """Trainer that keeps the loss of every step; the log has it rounded."""

    def training_step(self, *arguments, **keywords) -> Tensor:
        loss = super().training_step(*arguments, **keywords)
        self.losses = [*getattr(self, "losses", []), loss.item()]
        return loss


def loss_curve(model, rows: list[dict], collate, folder: Path, **settings) -> list[float]:
    """Train a model and return the loss of every step.

    Args:
        model: is changed.
        rows: to train on, shuffled by the seed.
        collate: makes a batch of rows.
        folder: for the Trainer, which writes nothing.
        settings: further ones of TrainingArguments.
    """
    arguments = {
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "dataloader_pin_memory": False,
        "per_device_train_batch_size": 8,
        "warmup_steps": 2,
        "weight_decay": 0.01,
        "seed": 11,
    }
    trainer = RecordingTrainer(
        model=model,
        args=TrainingArguments(output_dir=str(folder), **arguments | settings),
        train_dataset=rows,
        data_collator=collate,
    )
    trainer.train()
    return trainer.losses


def make_opinions(num_rows: int, *, vocab_size: int, seed: int = 4) -> list[dict]:
    """Return sentences as ids, 3 to 11 long, with a label: which of two kinds of words prevails.

    Args:
        num_rows: how many.
        vocab_size: ids from 3 on are words; those of the first half are friendly. The others begin
            a sentence (1), end it (2) and fill it up (0).
        seed: of the draw.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(num_rows):
        length = int(torch.randint(1, 5, (), generator=generator)) * 2 + 1  # odd: no draw
        words = torch.randint(3, vocab_size, (length,), generator=generator)
        friendly = (words < (vocab_size + 3) // 2).sum() * 2 > length
        ids = [1, *words.tolist(), 2]
        rows.append({"input_ids": ids, "labels": int(friendly)})
    return rows


def pad_opinions(rows: list[dict]) -> dict[str, Tensor]:
    """Return rows of ids as a batch, padded on the right with id 0."""
    length = max(len(row["input_ids"]) for row in rows)
    ids = [row["input_ids"] + [0] * (length - len(row["input_ids"])) for row in rows]
    mask = [[1] * len(row["input_ids"]) + [0] * (length - len(row["input_ids"])) for row in rows]
    labels = [row["labels"] for row in rows]
    batch = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    return {name: torch.tensor(values) for name, values in batch.items()}
