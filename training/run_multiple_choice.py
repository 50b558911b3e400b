"""Fine-tune a model, or train one from scratch, to choose among answers.

    python training/run_multiple_choice.py --model_name_or_path path/to/encoder \\
        --train_file train.jsonl --validation_file dev.jsonl --output_dir runs/mine
    accelerate launch training/run_multiple_choice.py ...

A row has a context, a question or both, and two or more choices, as many as it likes: a list in one
column (JSON), or a column for each (CSV, where an empty one is no choice). Rows of SWAG (sent1,
sent2, ending0 to ending3) are read as they are. Any model that AutoModelForMultipleChoice loads
will do. Everything that can be refused is refused before training begins, and then nothing is
written. `--help` lists all options.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import datasets
import numpy as np
from finetune_arguments import FinetuneDataArguments
from finetune_data import Corpus, Part, check_columns, encode_texts, listed
from finetune_run import FinetuneTask, command
from finetune_trainer import FinetuneTrainer, Loss, cross_entropy, softmax
from transformers import (
    MODEL_FOR_MULTIPLE_CHOICE_MAPPING,
    AutoModelForMultipleChoice,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_seqmodels.data import MultipleChoiceCollator
from hf_seqmodels.data.choices import mask_choices

CONTEXTS, QUESTIONS = ("context", "sent1"), ("question", "sent2")
CHOICES = (("choices",), ("ending0", "ending1", "ending2", "ending3"))


@dataclass
class DataTrainingArguments(FinetuneDataArguments):
    """Which columns hold the context, the question, the choices and the right one."""

    context_column: str | None = field(
        default=None,
        metadata={
            "help": "Column of a text that the question is about. Default: context or sent1."
        },
    )
    question_column: str | None = field(
        default=None,
        metadata={
            "help": "Column of the question, or of how a choice begins. Default: question or sent2."
        },
    )
    choices_columns: str | None = field(
        default=None,
        metadata={
            "help": "Column with a list of choices, or several with commas between. Default: "
            "choices, or ending0 to ending3."
        },
    )
    label_column_name: str = field(
        default="label",
        metadata={"help": "Column of the right choice: its number from 0, or its text."},
    )


class ChoiceTrainer(FinetuneTrainer):
    """Trains any model on questions with different numbers of choices."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Compute the loss over the choices that a question has.

        Args:
            model: to train.
            inputs: a batch of `MultipleChoiceCollator`.
            *args: passed on to the trainer.
            **kwargs: passed on to the trainer.

        Returns:
            What the trainer returns.
        """
        attention_mask = inputs["attention_mask"]
        is_filling = ~attention_mask.bool().any(dim=-1)  # (B, C)
        readable = attention_mask.clone()
        readable[..., 0] |= is_filling.to(readable.dtype)  # no attention gives NaN in some models

        def choose(**model_inputs: Any) -> Any:
            outputs = model(**model_inputs)
            outputs["logits"] = mask_choices(outputs["logits"], attention_mask)
            return outputs

        inputs = {**inputs, "attention_mask": readable}
        return super().compute_loss(choose, inputs, *args, **kwargs)


class MultipleChoiceTask(FinetuneTask):
    """Choice of one answer among several."""

    script = "run_multiple_choice.py"
    option_class = DataTrainingArguments
    auto_class = AutoModelForMultipleChoice
    head_classes = MODEL_FOR_MULTIPLE_CHOICE_MAPPING
    model_kind = "a registered model for multiple choice"
    metrics = ("accuracy",)

    options: DataTrainingArguments
    context_column: str | None
    question_column: str | None
    choices_columns: Sequence[str]

    def check_options(self) -> None:
        """Refuse label smoothing: no class is there in every row."""
        if self.args.label_smoothing_factor:
            raise ValueError(
                "label_smoothing_factor spreads probability over classes that all rows share, got "
                f"{self.args.label_smoothing_factor:g}. Leave it out."
            )

    def read(self, corpus: Corpus, stored: PreTrainedConfig | None) -> None:
        """Find the columns, and the choices of every row.

        Args:
            corpus: the parts of the data.
            stored: configuration of the checkpoint; not looked at.
        """
        options, part = self.options, next(iter(corpus.values()))
        self.context_column = _column(part, options.context_column, CONTEXTS)
        self.question_column = _column(part, options.question_column, QUESTIONS)
        self.choices_columns = _choices_columns(part, options.choices_columns)
        for name, columns in (
            ("context_column", [self.context_column]),
            ("question_column", [self.question_column]),
            ("choices_columns", self.choices_columns),
        ):
            check_columns(corpus, [column for column in columns if column], name)
        if self.context_column is None and self.question_column is None:
            raise ValueError(
                "question_column: cannot tell what the choices answer among "
                f"{listed(part.columns)}. Pass --question_column or --context_column."
            )
        self.choices = {name: self._read_choices(part) for name, part in corpus.items()}
        label_column = options.label_column_name
        self.right = {
            name: _right_choices(part, self.choices[name], label_column)
            for name, part in corpus.items()
            if name != "test" or any(row.get(label_column) not in (None, -1) for row in part.rows)
        }

    def _read_choices(self, part: Part) -> list[list[str]]:
        """Return the choices of every row."""
        found = []
        for row, place in zip(part.rows, part.places, strict=True):
            values = [row.get(column) for column in self.choices_columns]
            if len(values) == 1:
                values = values[0]
            else:
                while values and values[-1] in (None, ""):  # this row has fewer choices
                    values = values[:-1]
            is_list = isinstance(values, list) and all(
                isinstance(value, str) and value for value in values
            )
            if not is_list or len(values) < 2:
                raise ValueError(
                    f"{place}: a row needs a list of at least two texts to choose from, got "
                    f"{values!r} in {listed(self.choices_columns)}. Complete the row or leave it "
                    "out."
                )
            found.append(values)
        return found

    def training_texts(self, part: Part) -> Iterable[str]:
        """Return all texts.

        Args:
            part: the training rows.

        Returns:
            Contexts, questions and choices.
        """
        columns = [self.context_column, self.question_column]
        texts = [text for column in columns if column for text in part.texts(column)]
        return texts + [choice for choices in self.choices["train"] for choice in choices]

    def encode(
        self, part: Part, tokenizer: PreTrainedTokenizerBase, max_length: int | None
    ) -> datasets.Dataset:
        """Turn each choice into a pair: context, and question with choice; or question and choice.

        Args:
            part: the rows.
            tokenizer: of the model.
            max_length: tokens to cut at; the longer text of a pair is cut first.

        Returns:
            A row for each row, with a list for each choice.
        """
        choices, (firsts, beginnings) = self.choices[part.name], self._contexts(part)
        flat = encode_texts(
            [first for first, own in zip(firsts, choices, strict=True) for _ in own],
            [
                f"{beginning} {choice}".strip()
                for beginning, own in zip(beginnings, choices, strict=True)
                for choice in own
            ],
            tokenizer,
            max_length,
            name=f"{part.name} choices",
        )
        ends = np.cumsum([len(own) for own in choices])
        columns = {
            name: [values[end - len(own) : end] for own, end in zip(choices, ends, strict=True)]
            for name, values in flat.items()
        }
        if part.name in self.right:
            columns["labels"] = self.right[part.name]
        return datasets.Dataset.from_dict(columns)

    def _contexts(self, part: Part) -> tuple[list[str], list[str]]:
        """Return the first text of each row's pairs, and how the second ones begin."""
        if self.context_column is None:
            assert self.question_column is not None  # `read` refuses rows without both
            return part.texts(self.question_column), [""] * len(part)
        if self.question_column is None:
            return part.texts(self.context_column), [""] * len(part)
        return part.texts(self.context_column), part.texts(self.question_column)

    def collator(
        self, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel
    ) -> MultipleChoiceCollator:
        """Return what pads choices to a batch.

        Args:
            tokenizer: of the model.
            model: to train.

        Returns:
            The collator.
        """
        max_length = self.options.max_seq_length if self.options.pad_to_max_length else None
        return MultipleChoiceCollator(tokenizer, max_length=max_length)

    def trainer_class(self) -> type[FinetuneTrainer]:
        """Return the trainer that leaves filled-up choices out."""
        return ChoiceTrainer

    def loss(self) -> Loss:
        """Return the loss over the choices of a question, in nats."""
        return cross_entropy

    def score(self, part: Part, predictions: np.ndarray) -> dict[str, float]:
        """Count right choices.

        Args:
            part: the rows.
            predictions: scores, (rows, C).

        Returns:
            The accuracy; nothing for rows without labels.
        """
        if part.name not in self.right:
            return {}
        chosen = [scores.argmax() for scores in self._scores(part, predictions)]
        return {"accuracy": 100 * float(np.mean(np.array(chosen) == self.right[part.name]))}

    def _scores(self, part: Part, predictions: np.ndarray) -> Iterable[np.ndarray]:
        """Yield the scores of the choices that each row has."""
        for scores, choices in zip(predictions, self.choices[part.name], strict=True):
            yield scores[: len(choices)]

    def prediction_lines(self, part: Part, predictions: np.ndarray) -> Iterable[dict[str, Any]]:
        """Yield each row with its prediction and the probability of every choice.

        Args:
            part: the rows.
            predictions: scores, (rows, C).

        Yields:
            Context, question, `choices`, `label` where the row has one, `prediction` (both numbers
            from 0), `probabilities`.
        """
        columns = [column for column in (self.context_column, self.question_column) if column]
        for row, scores in enumerate(self._scores(part, predictions)):
            line: dict[str, Any] = {column: part.rows[row][column] for column in columns}
            line["choices"] = self.choices[part.name][row]
            if part.name in self.right:
                line["label"] = self.right[part.name][row]
            line["prediction"] = int(scores.argmax())
            line["probabilities"] = [round(float(share), 6) for share in softmax(scores)]
            yield line


def _column(part: Part, named: str | None, usual: Sequence[str]) -> str | None:
    return named or next((name for name in usual if name in part.columns), None)


def _choices_columns(part: Part, named: str | None) -> list[str]:
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip()]
    found = next((names for names in CHOICES if {*names} <= {*part.columns}), None)
    if found is None:
        raise ValueError(
            "choices_columns: cannot tell which columns hold the choices among "
            f"{listed(part.columns)}. Pass --choices_columns."
        )
    return list(found)


def _right_choices(part: Part, choices: Sequence[Sequence[str]], column: str) -> list[int]:
    """Return the number of the right choice of every row."""
    numbers = []
    for row, own, place in zip(part.rows, choices, part.places, strict=True):
        value = row.get(column)
        number = own.index(value) if value in own else value
        if isinstance(number, str) and number.strip().isdecimal():
            number = int(number)
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(own):
            raise ValueError(
                f"{place}: the column {column!r} must hold the number of the right choice, 0 to "
                f"{len(own) - 1} here, or its text, got {value!r}. Correct the row, or pass "
                "--label_column_name."
            )
        numbers.append(number)
    return numbers


if __name__ == "__main__":
    command(MultipleChoiceTask)
