"""What a fine-tuning script says about its task; `finetune_run` does the rest."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import datasets
from finetune_arguments import FinetuneScriptArguments
from finetune_data import Corpus, Part, rows_with_header
from finetune_trainer import FinetuneTrainer, Loss
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_seqmodels.data.table_files import Row

Predictions = Any  # an array (rows, ...), or a tuple of num_outputs of them


class FinetuneTask(ABC):
    """What one script adds to the others.

    The methods are called in the order in which they stand here; all but `score` once for each part
    of the data at most. Errors of what a user gave are ValueErrors.

    Args:
        options: the data options; an instance of `option_class`.
        args: the training arguments.
    """

    script: ClassVar[str]  # "run_something.py"
    option_class: ClassVar[type]  # a dataclass that inherits from FinetuneDataArguments
    auto_class: ClassVar[Any]  # what loads such models
    head_classes: ClassVar[Mapping[type, Any]]  # of that Auto class: {config class: model class}
    model_kind: ClassVar[str]  # how an error calls such models: "a registered ..."
    num_outputs: ClassVar[int] = 1  # of the model, that make up a prediction
    lower_is_better: ClassVar[frozenset[str]] = frozenset({"loss"})

    def __init__(self, options: Any, args: FinetuneScriptArguments):
        self.options = options
        self.args = args

    def check_options(self) -> None:  # noqa: B027  (most scripts have none)
        """Refuse options that contradict each other, before any file is read."""

    @staticmethod
    def read_file(path: Path) -> Iterable[tuple[int, Row]]:
        """Read a data file; a script with files of its own form overrides this.

        Args:
            path: of the file.

        Returns:
            Line number and row of each row.
        """
        return rows_with_header(path)

    @abstractmethod
    def read(self, corpus: Corpus, stored: PreTrainedConfig | None) -> None:
        """Look at the rows: find the columns, decide on the labels, refuse what cannot work.

        Args:
            corpus: the parts of the data.
            stored: configuration of the checkpoint that the run goes on from, if any.
        """

    @property
    @abstractmethod
    def metrics(self) -> Sequence[str]:
        """The figures of `score` that can tell the best model, the default first."""

    @property
    def chosen_metric(self) -> str | None:
        """The one that an option of the script names, if any."""
        return getattr(self.options, "metric_name", None)

    @abstractmethod
    def training_texts(self, part: Part) -> Iterable[str]:
        """Return the texts to train a tokenizer on.

        Args:
            part: the training rows.

        Returns:
            Texts.
        """

    def config_values(self) -> dict[str, Any]:
        """Return fields of the model's configuration that follow from the data."""
        return {}

    @abstractmethod
    def encode(
        self, part: Part, tokenizer: PreTrainedTokenizerBase, max_length: int | None
    ) -> datasets.Dataset:
        """Turn rows into tokens.

        Args:
            part: the rows.
            tokenizer: of the model.
            max_length: tokens to cut at; None cuts nothing.

        Returns:
            `input_ids`, `attention_mask`, .. and `labels` where there are any. Predictions come
            back in the same order; there may be more of them than rows.
        """

    @abstractmethod
    def collator(
        self, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel
    ) -> Callable[[list[dict[str, Any]]], Mapping[str, Any]]:
        """Return what makes a batch of encoded rows.

        Args:
            tokenizer: of the model.
            model: to train.

        Returns:
            A function of encoded rows.
        """

    def trainer_class(self) -> type[FinetuneTrainer]:
        """Return the trainer of this task."""
        return FinetuneTrainer

    def loss(self) -> Loss | None:
        """Return what computes the loss from outputs and labels; None leaves it to the model."""
        return None

    @abstractmethod
    def score(self, part: Part, predictions: Predictions) -> dict[str, float]:
        """Compute the figures of a part with labels, among them those of `metrics` but the loss.

        Args:
            part: the rows.
            predictions: what the model puts out, in the order of `encode`.

        Returns:
            Floats by name; shares are percentages. Empty for rows without labels.
        """

    @abstractmethod
    def prediction_lines(self, part: Part, predictions: Predictions) -> Iterable[dict[str, Any]]:
        """Return the lines of predictions.jsonl.

        Args:
            part: the rows.
            predictions: what the model puts out, in the order of `encode`.

        Returns:
            Plain values by name for each line.
        """

    def more_figures(self, part: Part, predictions: Predictions) -> dict[str, Any]:
        """Return further entries of metrics.json, such as a table of confusions.

        Args:
            part: the rows that predictions.jsonl holds.
            predictions: of them.

        Returns:
            Plain values by name.
        """
        return {}

    def card_examples(self, part: Part, predictions: Predictions) -> list[list[str]]:
        """Return pairs of an input and an output for the model card, the best first.

        Args:
            part: the rows that predictions.jsonl holds.
            predictions: of them.

        Returns:
            The pairs.
        """
        return []
