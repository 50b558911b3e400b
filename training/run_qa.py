"""Fine-tune a model, or train one from scratch, to answer questions with a piece of a text.

    python training/run_qa.py --model_name_or_path path/to/encoder \\
        --train_file train-v1.1.json --validation_file dev-v1.1.json --output_dir runs/mine
    python training/run_qa.py --model_name_or_path path/to/encoder --version_2_with_negative \\
        --train_file train.jsonl --output_dir runs/squad2
    accelerate launch training/run_qa.py ...

Files are SQuAD's own, or hold a row for each question: `question`, `context`, and `answers` with
`text` and `answer_start`. Long contexts are read in overlapping windows. Any model that
AutoModelForQuestionAnswering loads will do. Everything that can be refused is refused before
training begins, and then nothing is written. An interrupted run goes on where it stopped when the
same command is given again. `--help` lists all options.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from finetune_arguments import FinetuneDataArguments
from finetune_data import Corpus, Part, check_columns
from finetune_run import FinetuneTask, command
from transformers import (
    MODEL_FOR_QUESTION_ANSWERING_MAPPING,
    AutoModelForQuestionAnswering,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_seqmodels.data.context_windows import (
    USUAL_LENGTH,
    Columns,
    QuestionCollator,
    question_windows,
)
from hf_seqmodels.data.question_files import Question, question_of_row, read_question_rows
from hf_seqmodels.data.table_files import Row
from hf_seqmodels.evaluation.answer_scores import answer_score, corpus_answer_scores
from hf_seqmodels.evaluation.answer_spans import Answer, Answers, best_answers

Predictions = tuple[np.ndarray, np.ndarray]  # logits of starts and of ends, (windows, T) each
MOST_SURE = 1e6  # no-answer score of a context that offers no answer, in place of infinity


@dataclass
class DataTrainingArguments(FinetuneDataArguments):
    """Which columns are read, how contexts are windowed, and which spans are answers."""

    max_seq_length: int | None = field(
        default=None,
        metadata={
            "help": "Tokens of a window with its question; default: 384, or what the model can "
            "take if that is less."
        },
    )
    doc_stride: int | None = field(
        default=None,
        metadata={
            "help": "Tokens of the context that neighbouring windows share; default: 128, or a "
            "third of max_seq_length if that is less."
        },
    )
    max_question_length: int | None = field(
        default=None, metadata={"help": "Longer questions are cut; default: none is cut."}
    )
    max_answer_length: int = field(
        default=30, metadata={"help": "Longest answer that is predicted, in tokens."}
    )
    n_best_size: int = field(
        default=20, metadata={"help": "Answers per question in predictions.jsonl."}
    )
    version_2_with_negative: bool = field(
        default=False, metadata={"help": "Some questions have no answer, as in SQuAD 2.0."}
    )
    null_score_diff_threshold: float = field(
        default=0.0,
        metadata={
            "help": "By how much the score of no answer must exceed that of the best answer for "
            "none to be predicted; only with version_2_with_negative."
        },
    )
    question_column: str = field(
        default="question", metadata={"help": "Column of the question, in rows."}
    )
    context_column: str = field(
        default="context", metadata={"help": "Column of the context, in rows."}
    )
    answer_column: str = field(
        default="answers", metadata={"help": "Column of the answers, in rows."}
    )


class QuestionTask(FinetuneTask):
    """Answers that are pieces of a context."""

    script = "run_qa.py"
    option_class = DataTrainingArguments
    auto_class = AutoModelForQuestionAnswering
    head_classes = MODEL_FOR_QUESTION_ANSWERING_MAPPING
    model_kind = "a registered model for extractive question answering"
    num_outputs = 2

    options: DataTrainingArguments

    @staticmethod
    def read_file(path: Path) -> Iterable[tuple[int, Row]]:
        """Return number and row of each question of a file.

        Args:
            path: of the file.

        Returns:
            A row per question.
        """
        return read_question_rows(path)

    def check_options(self) -> None:
        """Refuse numbers out of range and options without effect."""
        options = self.options
        least = (("max_answer_length", 1), ("n_best_size", 1), ("doc_stride", 0))
        for name, limit in (*least, ("max_question_length", 1)):
            value = getattr(options, name)
            if value is not None and value < limit:
                raise ValueError(f"{name} must be at least {limit}, got {value}.")
        if options.null_score_diff_threshold and not options.version_2_with_negative:
            raise ValueError(
                "null_score_diff_threshold decides between an answer and none, got "
                f"{options.null_score_diff_threshold:g}. Pass --version_2_with_negative, or leave "
                "it out."
            )
        if self.args.label_smoothing_factor:
            raise ValueError(
                "label_smoothing_factor cannot be honoured: a model for question answering "
                f"computes its own loss, got {self.args.label_smoothing_factor:g}. Leave it out."
            )

    def read(self, corpus: Corpus, stored: PreTrainedConfig | None) -> None:
        """Read the questions and check their answers.

        Args:
            corpus: the parts of the data.
            stored: configuration of the checkpoint that the run goes on from, if any.
        """
        options = self.options
        names = {
            name: getattr(options, name)
            for name in ("question_column", "context_column", "answer_column")
        }
        for name in ("question_column", "context_column"):
            check_columns(corpus, [names[name]], name)
        self.questions: dict[str, list[Question]] = {
            part_name: [
                question_of_row(row, place, **names)
                for row, place in zip(part.rows, part.places, strict=True)
            ]
            for part_name, part in corpus.items()
        }
        answer = options.answer_column
        self.labelled = [
            name
            for name, part in corpus.items()
            if name != "test" or any(row.get(answer) is not None for row in part.rows)
        ]
        labelled_parts = {name: part for name, part in corpus.items() if name != "test"}
        check_columns(labelled_parts, [answer], "answer_column")
        if not options.version_2_with_negative:
            for name in self.labelled:
                _check_answered(corpus[name], self.questions[name])
        self.columns: dict[str, Columns] = {}
        self.found: dict[str, tuple[Any, list[Answers]]] = {}

    @property
    def metrics(self) -> Sequence[str]:
        """F1 first, as in SQuAD."""
        return "f1", "exact_match"

    def training_texts(self, part: Part) -> Iterable[str]:
        """Return every context once, and the questions.

        Args:
            part: the training rows.

        Returns:
            Texts.
        """
        questions = self.questions[part.name]
        contexts = dict.fromkeys(question.context for question in questions)
        return [*contexts, *(question.text for question in questions)]

    def encode(
        self, part: Part, tokenizer: PreTrainedTokenizerBase, max_length: int | None
    ) -> datasets.Dataset:
        """Turn questions and windows of their contexts into rows of tokens.

        Args:
            part: the rows.
            tokenizer: of the model.
            max_length: tokens that the options ask for, or that the model can take.

        Returns:
            A row per window, with the positions of the first answer where there are answers.
        """
        options, questions = self.options, self.questions[part.name]
        if options.max_seq_length is None:
            max_length = min(max_length or USUAL_LENGTH, USUAL_LENGTH)
        assert max_length is not None
        self.max_length = max_length
        columns = question_windows(
            tokenizer,
            [question.text for question in questions],
            [question.context for question in questions],
            [question.span for question in questions] if part.name in self.labelled else None,
            max_length=max_length,
            doc_stride=options.doc_stride,
            max_question_length=options.max_question_length,
        )
        read = (*tokenizer.model_input_names, "start_positions", "end_positions")
        self.columns[part.name] = {
            name: values for name, values in columns.items() if name not in read
        }
        return datasets.Dataset.from_dict(
            {name: values for name, values in columns.items() if name in read}
        )

    def collator(
        self, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel
    ) -> QuestionCollator:
        """Return what pads rows to a batch.

        Args:
            tokenizer: of the model.
            model: to train.

        Returns:
            The collator.
        """
        fixed = self.max_length if self.options.pad_to_max_length else None
        return QuestionCollator(tokenizer, max_length=fixed)

    def answers(self, part: Part, predictions: Predictions) -> list[Answers]:
        """Return the best answers to each question.

        Args:
            part: the rows.
            predictions: logits.

        Returns:
            The answers, kept for the next call with the same predictions.
        """
        kept = self.found.get(part.name)
        if kept is None or kept[0] is not predictions:
            answers = best_answers(
                *predictions,
                self.columns[part.name],
                [question.context for question in self.questions[part.name]],
                n_best=self.options.n_best_size,
                max_answer_length=self.options.max_answer_length,
                with_no_answer=self.options.version_2_with_negative,
                no_answer_threshold=self.options.null_score_diff_threshold,
            )
            kept = self.found[part.name] = predictions, answers
        return kept[1]

    def score(self, part: Part, predictions: Predictions) -> dict[str, float]:
        """Compare the answers with the right ones.

        Args:
            part: the rows.
            predictions: logits.

        Returns:
            The figures of `squad`; none for rows without answers.
        """
        if part.name not in self.labelled:
            return {}
        answers = self.answers(part, predictions)
        right = [question.answers or [""] for question in self.questions[part.name]]
        if not self.options.version_2_with_negative:
            return corpus_answer_scores([one.best.text for one in answers], right)
        spans = [one.best_span for one in answers]
        return corpus_answer_scores(
            [span.text if span else "" for span in spans],
            right,
            no_answer_scores=[min(one.no_answer_score, MOST_SURE) for one in answers],
            no_answer_threshold=self.options.null_score_diff_threshold,
        )

    def prediction_lines(self, part: Part, predictions: Predictions) -> Iterable[dict[str, Any]]:
        """Yield each question with its answers.

        Args:
            part: the rows.
            predictions: logits.

        Yields:
            `id`, `question`, `answers` where the row has them, with `exact_match` and `f1` (0 to
            1); `prediction`, `start`, `end` (characters), `score`, `probability`; `n_best`, the
            same for all answers; `no_answer_score`, with version_2_with_negative.
        """
        found = self.answers(part, predictions)
        for question, answers in zip(self.questions[part.name], found, strict=True):
            line: dict[str, Any] = {"id": question.name, "question": question.text}
            if part.name in self.labelled:
                score = answer_score(answers.best.text, question.answers or [""])
                line |= {"answers": question.answers, "exact_match": bool(score.exact_match)}
                line["f1"] = round(score.f1, 6)
            best = _written(answers.best)
            line |= {"prediction": best.pop("text"), **best}
            if self.options.version_2_with_negative:
                line["no_answer_score"] = round(min(answers.no_answer_score, MOST_SURE), 4)
            line["n_best"] = [_written(answer) for answer in answers.answers]
            yield line

    def more_figures(self, part: Part, predictions: Predictions) -> dict[str, Any]:
        """Return the width of windows that was settled on.

        Args:
            part: the rows.
            predictions: logits.

        Returns:
            `max_seq_length` and the number of windows.
        """
        windows = {name: len(columns["example"]) for name, columns in self.columns.items()}
        return {"max_seq_length": self.max_length, "windows": windows}

    def card_examples(self, part: Part, predictions: Predictions) -> list[list[str]]:
        """Return questions with their answers.

        Args:
            part: the rows.
            predictions: logits.

        Returns:
            Pairs, three at most, that are right.
        """
        found = self.answers(part, predictions)
        pairs = zip(self.questions[part.name], found, strict=True)
        right = [
            [question.text, answers.best.text]
            for question, answers in pairs
            if answers.best.text and answers.best.text in question.answers
        ]
        return right[:3]


def _written(answer: Answer) -> dict[str, Any]:
    return {
        "text": answer.text,
        "start": answer.start,
        "end": answer.end,
        "score": round(answer.score, 4),
        "probability": round(answer.probability, 6),
    }


def _check_answered(part: Part, questions: Sequence[Question]) -> None:
    """Refuse questions without an answer where all should have one."""
    for question, place in zip(questions, part.places, strict=True):
        if not question.answers:
            raise ValueError(
                f"{place}: every question needs an answer, {question.text[:60]!r} has none. "
                "Complete the row, or pass --version_2_with_negative if there are questions that "
                "the context does not answer."
            )


if __name__ == "__main__":
    command(QuestionTask)
