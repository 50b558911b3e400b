"""Truncated backpropagation through time with transformers' Trainer.

Source: Williams and Peng 1990; Mikolov et al. 2010. Gradients are cut every T tokens, the recurrent
state is carried on.
"""

import math
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import EvalLoopOutput

from hf_seqmodels.data.collators import IGNORED_LABEL
from hf_seqmodels.data.contiguous_batches import ContiguousWindows, collate_windows

STATE_FILE = "recurrent_state"


class StatefulTrainer(Trainer):
    """Train a recurrent language model on a long text, the state carried from batch to batch.

    The text is cut into `per_device_train_batch_size` rows (times processes), see
    `ContiguousWindows`. A micro-batch is one window of every row; the state behind it, detached,
    is where the next one starts. The state is zero at the beginning of each epoch. Checkpoints hold
    it, so that a resumed run equals one that was never interrupted, bit for bit.

    - Gradient accumulation over k steps: the state goes on through k windows, gradients are cut at
      the end of each, and one update is made from the mean over all their tokens.
    - Several processes: each reads rows of its own, its own stretch of the text.
    - With `varied_windows` the learning rate of an update is scaled by the length of its windows
      over `window_size`, as Merity et al. 2018 do.
    - Evaluation reads the text as `per_device_eval_batch_size` rows (times processes) in the same
      way and reports the mean over all tokens but the first, `eval_loss` in nats and
      `eval_perplexity`. With one row the state is carried over the whole text; with more the first
      tokens of each row have no past.

    Datasets are corpora: a tensor of ids, or tokenized documents with `input_ids`, which are joined
    in their order.

    Args:
        *args: as of Trainer.
        window_size: T, tokens between cuts, in training and evaluation.
        varied_windows: vary the lengths of training windows from epoch to epoch.
        **kwargs: as of Trainer.

    Raises:
        ValueError: if the model carries no state, or for an argument that has no meaning here.
    """

    def __init__(
        self, *args: Any, window_size: int = 64, varied_windows: bool = False, **kwargs: Any
    ):
        for name, why in (
            ("data_collator", "batches are windows of the corpus"),
            ("compute_metrics", "evaluation reports loss and perplexity, and keeps no logits"),
        ):
            if kwargs.get(name) is not None:
                raise ValueError(f"StatefulTrainer takes no {name}: {why}. Leave it out.")
        super().__init__(*args, **kwargs)
        if not getattr(self.model, "_is_stateful", False):
            raise ValueError(
                f"StatefulTrainer needs a model that carries a recurrent state, got "
                f"{type(self.model).__name__}. Use RnnLMForCausalLM, or transformers.Trainer."
            )
        if self.args.label_smoothing_factor:
            raise ValueError(
                f"StatefulTrainer does not smooth labels, got label_smoothing_factor="
                f"{self.args.label_smoothing_factor}. Set label_smoothing in the model's config."
            )
        if self.args.n_gpu > 1:
            raise ValueError(
                f"StatefulTrainer needs one process for each device, got {self.args.n_gpu} devices "
                "in one. Launch it with torchrun or accelerate, or show it one device "
                "(CUDA_VISIBLE_DEVICES)."
            )
        self.window_size = window_size
        self.varied_windows = varied_windows
        self._state: Any = None  # cache behind the last micro-batch
        self._windows: Any = None  # of training, once there are some
        self._tokens_since_update: list[int] = []  # length of each window
        self.add_callback(_StatefulSteps(self))

    # Batches

    def get_train_dataloader(self) -> DataLoader:
        """Return the windows of this process, in order.

        Returns:
            A loader with one batch for each window.

        Raises:
            ValueError: if there is no training corpus.
        """
        if self.train_dataset is None:
            raise ValueError("StatefulTrainer: training requires a train_dataset.")
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        self._windows = self._cut(
            self.train_dataset,
            self.args.per_device_train_batch_size,
            varied=self.varied_windows,
            seed=seed,
        )
        return self._loader(self._windows)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        """Return the windows of an evaluation corpus.

        Args:
            eval_dataset: a corpus, the name of one in `eval_dataset`, or None for that itself.

        Returns:
            A loader with one batch for each window.

        Raises:
            ValueError: if there is none.
        """
        known: Any = self.eval_dataset
        if isinstance(eval_dataset, str):
            eval_dataset = known[eval_dataset]
        elif eval_dataset is None:
            eval_dataset = known
        if eval_dataset is None:
            raise ValueError("StatefulTrainer: evaluation requires an eval_dataset.")
        return self._loader(self._cut(eval_dataset, self.args.per_device_eval_batch_size))

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader:
        """Return the windows of a test corpus.

        Args:
            test_dataset: a corpus.

        Returns:
            A loader with one batch for each window.
        """
        return self.get_eval_dataloader(test_dataset)

    def _cut(self, corpus: Any, rows_per_process: int, **options: Any) -> ContiguousWindows:
        return ContiguousWindows(
            corpus,
            num_rows=rows_per_process * self.args.world_size,
            window_size=self.window_size,
            process_index=self.args.process_index,
            num_processes=self.args.world_size,
            **options,
        )

    def _loader(self, windows: ContiguousWindows) -> DataLoader:
        # Not prepared by accelerate, which would share out batches between processes.
        return DataLoader(
            windows,
            batch_size=windows.num_rows,
            collate_fn=collate_windows,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory and self.args.device.type != "cpu",
        )

    # Training

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Compute the loss of one window from the state behind the last one; keep the new state.

        Args:
            model: as wrapped for training.
            inputs: of `collate_windows`.
            return_outputs: also return the model's outputs.
            num_items_in_batch: targets of the whole update.

        Returns:
            The loss in nats per target, and the outputs if asked for.
        """
        inputs = dict(inputs)
        if inputs.pop("starts_row"):
            self._state = None
        elif self._state is None:
            raise ValueError(
                f"Training goes on within the text, but the checkpoint has no "
                f"{self._state_name()}. Resume from a checkpoint that StatefulTrainer wrote "
                "without save_only_model, or start anew."
            )
        self._tokens_since_update.append(inputs["input_ids"].shape[1])
        inputs |= {"past_key_values": self._state, "use_cache": True}
        result: Any = super().compute_loss(
            model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch
        )
        loss, outputs = result
        self._state = outputs.past_key_values
        self._state.detach()  # here backpropagation is cut
        return (loss, outputs) if return_outputs else loss

    def _state_name(self) -> str:
        several = self.args.world_size > 1
        return f"{STATE_FILE}_{self.args.process_index}.pt" if several else f"{STATE_FILE}.pt"

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        if self._state is not None:
            torch.save(
                {"states": self._state.get_states(), "num_read": self._state.get_seq_length()},
                Path(output_dir, self._state_name()),
            )

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        path = Path(checkpoint or "", self._state_name())
        if checkpoint is None or not path.is_file():
            return
        stored = torch.load(path, map_location=self.args.device, weights_only=True)
        self._state = self.accelerator.unwrap_model(self.model).base_model.new_cache()
        self._state.update_states(stored["states"], stored["num_read"])

    # Evaluation

    def evaluation_loop(
        self,
        dataloader: DataLoader,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Read a text once, the state carried, and report loss and perplexity.

        Args:
            dataloader: of `get_eval_dataloader`.
            description: what to call it.
            prediction_loss_only: the loss is all there is.
            ignore_keys: of outputs; none are kept.
            metric_key_prefix: in front of the names of the metrics.

        Returns:
            Metrics without predictions.
        """
        model: Any = self.model
        optimizer: Any = self.optimizer
        callback_handler: Any = self.callback_handler
        model.to(self.args.device).eval()
        if callable(getattr(optimizer, "eval", None)):  # schedule-free ones
            optimizer.eval()
        callback_handler.eval_dataloader = dataloader
        totals = torch.zeros(2, dtype=torch.float64, device=self.args.device)  # nats, tokens
        state = None
        for batch in dataloader:
            inputs = self._prepare_inputs(batch)
            inputs.pop("starts_row")
            with torch.no_grad(), self.accelerator.autocast():
                outputs = model(
                    **inputs,
                    past_key_values=state,
                    use_cache=True,
                    logits_to_keep=1,
                    num_items_in_batch=1,
                )
            state = outputs.past_key_values
            totals[0] += outputs.loss
            totals[1] += (inputs["labels"] != IGNORED_LABEL).sum()
            self.control = callback_handler.on_prediction_step(self.args, self.state, self.control)
        summed: Any = self.accelerator.reduce(totals)
        nats, num_tokens = summed.tolist()
        mean = nats / num_tokens
        metrics = {
            f"{metric_key_prefix}_loss": mean,
            f"{metric_key_prefix}_perplexity": math.exp(mean) if mean < 700 else math.inf,
        }
        nothing: Any = None
        return EvalLoopOutput(nothing, label_ids=None, metrics=metrics, num_samples=int(num_tokens))


class _StatefulSteps(TrainerCallback):
    """Tells the windows which epoch it is, and scales the learning rate where windows vary."""

    def __init__(self, trainer: StatefulTrainer):
        self.trainer = trainer
        self.learning_rates: list[float] = []

    def on_epoch_begin(self, args, state, control, **kwargs):
        self.trainer._windows.set_epoch(math.floor(state.epoch or 0))

    def on_pre_optimizer_step(self, args, state, control, optimizer: Any = None, **kwargs):
        lengths = self.trainer._tokens_since_update
        scale = sum(lengths) / len(lengths) / self.trainer.window_size
        lengths.clear()
        if self.trainer.varied_windows:
            self.learning_rates = [group["lr"] for group in optimizer.param_groups]
            for group in optimizer.param_groups:
                group["lr"] *= scale

    def on_optimizer_step(self, args, state, control, optimizer: Any = None, **kwargs):
        if self.trainer.varied_windows:
            for group, learning_rate in zip(
                optimizer.param_groups, self.learning_rates, strict=True
            ):
                group["lr"] = learning_rate
