"""The trainers of run_clm.py."""

import math
from typing import Any

from run_trainer import RunTrainerMixin
from torch.optim.lr_scheduler import LambdaLR
from transformers import Trainer

from hf_seqmodels.stateful_trainer import StatefulTrainer


class EpochDecayMixin(RunTrainerMixin):
    """Multiplies the learning rate by `lr_epoch_decay` with each epoch after the first few.

    This is the schedule of Zaremba et al. 2014, section 4.1; without `lr_epoch_decay` the schedule
    is that of lr_scheduler_type.
    """

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Make the schedule of the learning rate.

        Args:
            num_training_steps: of the whole run.
            optimizer: whose learning rate it sets; None means the trainer's.

        Returns:
            The scheduler.
        """
        args: Any = self.args
        if args.lr_epoch_decay is None:
            return super().create_scheduler(num_training_steps, optimizer)
        steps_per_epoch = num_training_steps / math.ceil(args.num_train_epochs)

        def factor(step: int) -> float:
            epoch = int(step / steps_per_epoch)  # from 0
            return args.lr_epoch_decay ** max(0, epoch + 1 - args.lr_constant_epochs)

        self.lr_scheduler = LambdaLR(optimizer or self.optimizer, factor)
        return self.lr_scheduler


class RowTrainer(EpochDecayMixin, Trainer):
    """Trains on rows that have nothing to do with one another."""


class StatefulRunTrainer(EpochDecayMixin, StatefulTrainer):
    """Trains on a text whose hidden state is carried on."""
