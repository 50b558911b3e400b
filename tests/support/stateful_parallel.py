"""Truncated backpropagation, in one process or in one of several."""

from pathlib import Path

import torch
from transformers import TrainingArguments

from hf_seqmodels import RnnLMForCausalLM
from hf_seqmodels.stateful_trainer import StatefulTrainer

TOKENS = torch.randint(11, (60,), generator=torch.Generator().manual_seed(3))


def train(folder: Path, rows_per_process: int, output: Path, **options) -> StatefulTrainer:
    """Load the model and train it for two epochs of windows of four tokens."""
    model = RnnLMForCausalLM.from_pretrained(folder, dtype=torch.float64)
    arguments = TrainingArguments(
        output_dir=str(output),
        per_device_train_batch_size=rows_per_process,
        per_device_eval_batch_size=rows_per_process,
        num_train_epochs=2,
        optim="sgd",
        learning_rate=0.5,
        lr_scheduler_type="constant",
        max_grad_norm=0.1,
        save_strategy="steps",
        save_steps=3,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        **options,
    )
    trainer = StatefulTrainer(
        model=model, args=arguments, train_dataset=TOKENS, eval_dataset=TOKENS, window_size=4
    )
    trainer.train()
    return trainer


def train_in_parallel(folder: Path, rows_per_process: int) -> None:
    """Train, and save what the first process ends with."""
    trainer = train(folder, rows_per_process, folder / "parallel", ddp_backend="gloo")
    assert trainer.args.world_size == 2
    loss = trainer.evaluate()["eval_loss"]
    if trainer.is_world_process_zero():
        torch.save({"weights": trainer.model.state_dict(), "loss": loss}, folder / "after.pt")
