"""What the trainers of all scripts share: a finished run is recognised, its card is left alone."""

from pathlib import Path
from typing import Any

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
