"""What the trainers of all scripts share: a finished run is recognised, its card is left alone."""

import time
from pathlib import Path
from typing import Any

from run_folder import checkpoint_step
from streamed_rows import StreamedRows
from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback, PreTrainedModel, Trainer, TrainerState
from transformers.trainer import TRAINER_STATE_NAME


class RunTrainerMixin(Trainer):
    """To be inherited from before a Trainer.

    Args:
        model: the model to train; `use_cache` keeps what its config says, which Trainer changes.
        **kwargs: passed on to the trainer.
    """

    def __init__(self, *, model: PreTrainedModel, **kwargs: Any):
        self.use_cache = getattr(model.config, "use_cache", None)
        super().__init__(model=model, **kwargs)

    def get_train_dataloader(self) -> DataLoader:
        """Return the training batches of this process."""
        if not isinstance(self.train_dataset, StreamedRows):
            return super().get_train_dataloader()
        args = self.args
        return DataLoader(  # accelerate would have the first process read for all
            self.train_dataset,
            batch_size=self._train_batch_size,
            collate_fn=self.data_collator,
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory,
            persistent_workers=args.dataloader_persistent_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
        )

    def train_from(self, checkpoint: Path | None) -> dict[str, Any]:
        """Train from the beginning or from a checkpoint, and load the best model.

        Args:
            checkpoint: where the run resumes; None begins anew.

        Returns:
            Figures of the training: epochs, steps, best_step, last_loss in nats per token, minutes
            (since the resumption), resumed_at_step.
        """
        start = time.perf_counter()
        if checkpoint is None or not self.take_finished_state(checkpoint):
            self.train(resume_from_checkpoint=checkpoint and str(checkpoint))
        self.model.config.use_cache = self.use_cache  # Trainer turns it off while it trains
        losses = [entry["loss"] for entry in self.state.log_history if "loss" in entry]
        return {
            "epochs": round(self.state.epoch or 0, 2),
            "steps": self.state.global_step,
            "best_step": self.state.best_global_step or self.state.global_step,
            "last_loss": losses[-1] if losses else None,
            "minutes": round((time.perf_counter() - start) / 60, 2),
            "resumed_at_step": checkpoint_step(checkpoint) if checkpoint else 0,
        }

    def take_finished_state(self, checkpoint: Path) -> bool:
        """Load the best model of a run that had ended its training when it was interrupted.

        Trainer itself would take one more step when such a run is resumed.

        Args:
            checkpoint: where the run resumes.

        Returns:
            Whether nothing is left to train.
        """
        state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
        stoppers = [
            cb for cb in self.callback_handler.callbacks if isinstance(cb, EarlyStoppingCallback)
        ]
        waited = state.stateful_callbacks.get("EarlyStoppingCallback", {}).get("attributes", {})
        stopped_early = any(
            waited.get("early_stopping_patience_counter", 0) >= cb.early_stopping_patience
            for cb in stoppers
        )
        if not stopped_early and not 0 < self.args.max_steps <= state.global_step:
            return False
        best = state.best_model_checkpoint if self.args.load_best_model_at_end else None
        self.state = state
        self._load_from_checkpoint(best or str(checkpoint))
        return True

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Leave the README.md of the run in place: transformers' draft knows less."""
