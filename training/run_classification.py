"""Fine-tune a model, or train one from scratch, to classify texts or pairs of texts.

    python training/run_classification.py --model_name_or_path path/to/encoder \\
        --train_file train.csv --validation_file dev.csv --output_dir runs/mine
    python training/run_classification.py --model_type seqmodels_text_encoder \\
        --train_file train.jsonl --text_column_names sentence1,sentence2 --output_dir runs/pairs
    accelerate launch training/run_classification.py ...

One label a row, several (a list, or a text with --label_separator), or a value (--do_regression).
Any model that AutoModelForSequenceClassification loads will do. Everything that can be refused is
refused before training begins, and then nothing is written. An interrupted run goes on where it
stopped when the same command is given again. `--help` lists all options.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import datasets
import numpy as np
from classification_labels import (
    MULTI,
    REGRESSION,
    SINGLE,
    LabelReader,
    Labels,
    decide_labels,
    encode_labels,
)
from finetune_arguments import FinetuneDataArguments
from finetune_data import Corpus, Part, check_columns, encode_texts, listed
from finetune_run import FinetuneTask, command
from finetune_trainer import (
    Loss,
    binary_cross_entropy,
    cross_entropy,
    sigmoid,
    softmax,
    squared_error,
)
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_seqmodels.evaluation.class_scores import (
    BINARY_SCORES,
    MULTI_LABEL_SCORES,
    REGRESSION_SCORES,
    SINGLE_LABEL_SCORES,
    confusions,
    multi_label_scores,
    regression_scores,
    single_label_scores,
)

USUAL_TEXT_COLUMNS = (
    ("text",),
    ("sentence",),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
)


@dataclass
class DataTrainingArguments(FinetuneDataArguments):
    """Which columns hold the texts and the labels, and which figure tells the best model."""

    text_column_names: str | None = field(
        default=None,
        metadata={
            "help": "Column of the text, or several with commas between: two are a pair of texts, "
            "unless text_column_delimiter joins them. Default: text, sentence, or a usual pair "
            "such as sentence1,sentence2."
        },
    )
    text_column_delimiter: str | None = field(
        default=None,
        metadata={"help": "Joins the text columns to one text, with this between them."},
    )
    label_column_name: str = field(
        default="label", metadata={"help": "Column of the label: a text, a number, or a list."}
    )
    label_separator: str | None = field(
        default=None,
        metadata={"help": "The label column holds several labels with this between them."},
    )
    label_list: list[str] | None = field(
        default=None,
        metadata={"help": "All labels in the order of their ids; default: those of the data."},
    )
    do_regression: bool | None = field(
        default=None,
        metadata={
            "help": "The label is a value to be predicted. Default: whether JSON or dataset rows "
            "hold numbers with a fraction."
        },
    )
    metric_name: str | None = field(
        default=None,
        metadata={
            "choices": sorted({*BINARY_SCORES, *MULTI_LABEL_SCORES, *REGRESSION_SCORES}),
            "help": "The figure that tells the best model; all of them are reported. Default: "
            "accuracy; micro_f1 for several labels a row; pearson for values.",
        },
    )
    threshold: float = field(
        default=0.5,
        metadata={"help": "Several labels a row: those at least as probable are predicted."},
    )


class ClassificationTask(FinetuneTask):
    """Classification of texts and pairs, one or several labels a row, and regression."""

    script = "run_classification.py"
    option_class = DataTrainingArguments
    auto_class = AutoModelForSequenceClassification
    head_classes = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
    model_kind = "a registered sequence classifier"
    lower_is_better = frozenset({"loss", "mse", "mae"})

    options: DataTrainingArguments
    text_columns: Sequence[str]
    labels: Labels

    def check_options(self) -> None:
        """Refuse a threshold out of range and options of labels that exclude each other."""
        options = self.options
        if not 0 < options.threshold < 1:
            raise ValueError(f"threshold must be between 0 and 1, got {options.threshold:g}.")
        if options.do_regression and (options.label_list or options.label_separator):
            raise ValueError(
                "do_regression predicts a value, so there are no labels to list or to separate. "
                "Leave out label_list and label_separator, or do_regression."
            )

    def read(self, corpus: Corpus, stored: PreTrainedConfig | None) -> None:
        """Find the columns and the labels.

        Args:
            corpus: the parts of the data.
            stored: configuration of the checkpoint that the run goes on from, if any.
        """
        options = self.options
        self.text_columns = text_columns(options, corpus)
        self.reader = LabelReader(
            options.label_column_name,
            options.label_separator,
            options.do_regression,
            options.label_list,
        )
        labelled = {
            name: part
            for name, part in corpus.items()
            if name != "test" or not self.reader.is_unlabelled(part)
        }
        check_columns(labelled, [options.label_column_name], "label_column_name")
        self.labels = decide_labels(self.reader, labelled or corpus, stored)
        self.encoded_labels = {
            name: encode_labels(self.reader, self.labels, part) for name, part in labelled.items()
        }
        if self.args.label_smoothing_factor and self.labels.problem_type != SINGLE:
            raise ValueError(
                "label_smoothing_factor spreads probability over classes of which one is right, "
                f"got {self.args.label_smoothing_factor:g} for {self.labels.problem_type}. Leave "
                "it out."
            )

    @property
    def metrics(self) -> Sequence[str]:
        """The figures for this kind of labels."""
        if self.labels.problem_type == REGRESSION:
            return REGRESSION_SCORES
        if self.labels.problem_type == MULTI:
            return MULTI_LABEL_SCORES
        return BINARY_SCORES if len(self.labels.names) == 2 else SINGLE_LABEL_SCORES

    def training_texts(self, part: Part) -> Iterable[str]:
        """Return the texts of all text columns.

        Args:
            part: the training rows.

        Returns:
            Texts.
        """
        return [text for column in self.text_columns for text in part.texts(column)]

    def config_values(self) -> dict[str, Any]:
        """Return the labels as configurations hold them."""
        return self.labels.config_values()

    def encode(
        self, part: Part, tokenizer: PreTrainedTokenizerBase, max_length: int | None
    ) -> datasets.Dataset:
        """Turn texts or pairs into tokens.

        Args:
            part: the rows.
            tokenizer: of the model.
            max_length: tokens to cut at; the longer text of a pair is cut first.

        Returns:
            A row for each row.
        """
        columns = encode_texts(*self.texts(part), tokenizer, max_length, name=part.name)
        if part.name in self.encoded_labels:
            columns["labels"] = self.encoded_labels[part.name]
        return datasets.Dataset.from_dict(columns)

    def texts(self, part: Part) -> tuple[list[str], list[str] | None]:
        """Return what the model reads of each row.

        Args:
            part: the rows.

        Returns:
            The texts, and the second ones of pairs.
        """
        columns = [part.texts(column) for column in self.text_columns]
        if self.options.text_column_delimiter is not None:
            joined = map(self.options.text_column_delimiter.join, zip(*columns, strict=True))
            return list(joined), None
        return columns[0], columns[1] if len(columns) == 2 else None

    def collator(
        self, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel
    ) -> DataCollatorWithPadding:
        """Return what pads rows to a batch.

        Args:
            tokenizer: of the model.
            model: to train.

        Returns:
            The collator of transformers.
        """
        if self.options.pad_to_max_length:
            return DataCollatorWithPadding(
                tokenizer, padding="max_length", max_length=self.options.max_seq_length
            )
        return DataCollatorWithPadding(tokenizer)

    def loss(self) -> Loss:
        """Return the loss for this kind of labels."""
        if self.labels.problem_type == REGRESSION:
            return squared_error
        if self.labels.problem_type == MULTI:
            return binary_cross_entropy
        return partial(cross_entropy, label_smoothing=self.args.label_smoothing_factor)

    def score(self, part: Part, predictions: np.ndarray) -> dict[str, float]:
        """Compare predictions with labels.

        Args:
            part: the rows.
            predictions: logits, (rows, C).

        Returns:
            The figures; none for rows without labels.
        """
        if part.name not in self.encoded_labels:
            return {}
        references = np.array(self.encoded_labels[part.name])
        if self.labels.problem_type == REGRESSION:
            return regression_scores(references, predictions[:, 0].astype(np.float64))
        if self.labels.problem_type == MULTI:
            chosen = sigmoid(predictions) >= self.options.threshold
            return multi_label_scores(references.astype(int), chosen.astype(int))
        classes = len(self.labels.names)
        return single_label_scores(references, predictions.argmax(axis=-1), classes=classes)

    def prediction_lines(self, part: Part, predictions: np.ndarray) -> Iterable[dict[str, Any]]:
        """Yield each row with its prediction and the probability of every class.

        Args:
            part: the rows.
            predictions: logits, (rows, C).

        Yields:
            The text columns, `label` where the row has one, `prediction`, `probabilities`.
        """
        names, kind = self.labels.names, self.labels.problem_type
        texts = [part.texts(column) for column in self.text_columns]
        references = self.encoded_labels.get(part.name)
        for row, logits in enumerate(predictions):
            line: dict[str, Any] = {
                column: column_texts[row]
                for column, column_texts in zip(self.text_columns, texts, strict=True)
            }
            if references is not None:
                line["label"] = self._written(references[row])
            if kind == REGRESSION:
                line["prediction"] = float(logits[0])
            else:
                shares = softmax(logits) if kind == SINGLE else sigmoid(logits)
                chosen = shares >= self.options.threshold
                line["prediction"] = (
                    names[shares.argmax()]
                    if kind == SINGLE
                    else [name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen]
                )
                line["probabilities"] = {
                    name: round(float(share), 6) for name, share in zip(names, shares, strict=True)
                }
            yield line

    def _written(self, label: Any) -> Any:
        if self.labels.problem_type == REGRESSION:
            return label
        if self.labels.problem_type == MULTI:
            return [name for name, one in zip(self.labels.names, label, strict=True) if one]
        return self.labels.names[label]

    def more_figures(self, part: Part, predictions: np.ndarray) -> dict[str, Any]:
        """Count confusions.

        Args:
            part: the rows.
            predictions: logits, (rows, C).

        Returns:
            `confusions`, where each row has one label.
        """
        if self.labels.problem_type != SINGLE or part.name not in self.encoded_labels:
            return {}
        table = confusions(
            self.encoded_labels[part.name],
            predictions.argmax(axis=-1),
            classes=len(self.labels.names),
        )
        return {
            "confusions": {
                "part": part.name,
                "labels": self.labels.names,
                "rows_are_right_columns_predicted": table,
            }
        }

    def card_examples(self, part: Part, predictions: np.ndarray) -> list[list[str]]:
        """Return texts that are classified rightly, with their class.

        Args:
            part: the rows.
            predictions: logits, (rows, C).

        Returns:
            Pairs, three at most; none for pairs of texts and for values.
        """
        texts, seconds = self.texts(part)
        if seconds is not None or self.labels.problem_type != SINGLE:
            return []
        references = self.encoded_labels.get(part.name)
        chosen = predictions.argmax(axis=-1)
        right = [
            row for row in range(len(part)) if not references or references[row] == chosen[row]
        ]
        return [[texts[row], self.labels.names[chosen[row]]] for row in right[:3]]


def text_columns(options: DataTrainingArguments, corpus: Corpus) -> list[str]:
    """Return the columns that the model reads.

    Args:
        options: may name them.
        corpus: the data.

    Returns:
        One column, a pair of them, or several that a delimiter joins.

    Raises:
        ValueError: if they are missing, or cannot be told.
    """
    part = next(iter(corpus.values()))
    if options.text_column_names is not None:
        names = [name.strip() for name in options.text_column_names.split(",") if name.strip()]
        check_columns(corpus, names, "text_column_names")
    else:
        names = list(next((n for n in USUAL_TEXT_COLUMNS if {*n} <= {*part.columns}), ()))
    if not names:
        raise ValueError(
            f"text_column_names: cannot tell which columns hold the texts among "
            f"{listed(part.columns)}. Pass --text_column_names."
        )
    if len(names) > 2 and options.text_column_delimiter is None:
        raise ValueError(
            f"text_column_names: a model reads one text or a pair, got {listed(names)}. Pass "
            "--text_column_delimiter to join them to one text."
        )
    return names


if __name__ == "__main__":
    command(ClassificationTask)
