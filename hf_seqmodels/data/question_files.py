"""Reading questions, the contexts that hold their answers, and the answers (SQuAD 1.1 and 2.0)."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_seqmodels.data.table_files import Row, file_ending, read_lines, read_rows


@dataclass(frozen=True)
class Question:
    """A question with its context.

    Args:
        name: its id, for predictions.
        text: the question.
        context: the text that holds the answer.
        answers: texts any of which is right; empty where there is no answer.
        starts: first character of each in the context.
    """

    name: str
    text: str
    context: str
    answers: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    @property
    def span(self) -> tuple[int, int] | None:
        """Characters (first, after the last) of the first answer; None if there is none."""
        if not self.answers:
            return None
        return self.starts[0], self.starts[0] + len(self.answers[0])


def read_question_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield the questions of a file, each as a row of its own.

    A .json file may have the form in which SQuAD is published: `data` holds articles, which hold
    `paragraphs`, which hold a `context` and `qas`. Any other file has a row for each question.

    Args:
        path: of the file; .gz may follow its ending.

    Yields:
        Line of the row, or number of the question in the published form, both from 1; and the row,
        with `id`, `title`, `context`, `question` and `answers` in the published form.

    Raises:
        ValueError: if the file is not as it should be.
        FileNotFoundError: if there is no such file.
    """
    articles = _published_articles(path) if file_ending(path) == ".json" else None
    if articles is None:
        yield from read_rows(path, header=True)
        return
    number = 0
    for article in articles:
        try:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    number += 1
                    yield (
                        number,
                        {
                            "id": question.get("id", str(number)),
                            "title": article.get("title", ""),
                            "context": paragraph["context"],
                            "question": question["question"],
                            "answers": question.get("answers"),
                        },
                    )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path}: the form of SQuAD is data > paragraphs > context and qas > question and "
                f"answers, but after question {number} this is not so: {error!r}. Complete the "
                "article, or write one question a line."
            ) from error


def _published_articles(path: Path) -> list[Any] | None:
    """Return the articles of a file in the form of SQuAD, None for one in another form."""
    try:
        content = json.loads("\n".join(line for _, line in read_lines(path)))
    except (json.JSONDecodeError, RecursionError):
        return None
    articles = content.get("data") if isinstance(content, dict) else None
    return articles if isinstance(articles, list) else None


def question_of_row(
    row: Mapping[str, Any],
    place: str,
    *,
    question_column: str = "question",
    context_column: str = "context",
    answer_column: str = "answers",
) -> Question:
    """Check a row and return what it holds.

    Args:
        row: with `id`, if it has one; the answers are {"text": [...], "answer_start": [...]}, or a
            list of {"text": ..., "answer_start": ...}, or missing.
        place: of the row, for errors.
        question_column: holds the question.
        context_column: holds the context.
        answer_column: holds the answers.

    Returns:
        The question.

    Raises:
        ValueError: if a text is missing, or an answer does not stand where it should.
    """
    texts = {name: row.get(name) for name in (question_column, context_column)}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise ValueError(
                f"{place}: the column {name!r} must hold a text, got {text!r}; the row has "
                f"{', '.join(map(repr, row))}. Name the columns of this file."
            )
    context = str(texts[context_column])
    answers, starts = _answers(row.get(answer_column), place)
    for answer, start in zip(answers, starts, strict=True):
        if context[start : start + len(answer)] != answer or not answer or start < 0:
            raise ValueError(
                f"{place}: an answer must stand in its context where answer_start says, but there "
                f"is {context[max(start, 0) : max(start, 0) + len(answer)]!r} at character {start} "
                f"instead of {answer!r}. Correct answer_start (it counts characters, not bytes)."
            )
    name = str(row.get("id", place))
    return Question(name, str(texts[question_column]), context, answers, starts)


def _answers(value: Any, place: str) -> tuple[list[str], list[int]]:
    """Return texts and first characters of answers in either form."""
    if value is None:
        return [], []
    if isinstance(value, list):
        value = {
            name: [item.get(name) if isinstance(item, Mapping) else None for item in value]
            for name in ("text", "answer_start")
        }
    texts = value.get("text") if isinstance(value, Mapping) else None
    starts = value.get("answer_start") if isinstance(value, Mapping) else None
    is_right = (
        isinstance(texts, list)
        and isinstance(starts, list)
        and len(texts) == len(starts)
        and all(isinstance(text, str) for text in texts)
        and all(isinstance(start, int) for start in starts)
    )
    if not is_right:
        raise ValueError(
            f"{place}: answers must be "
            '{"text": ["..."], "answer_start": [0]} with as many of both, or a list of '
            f'{{"text": "...", "answer_start": 0}}, got {str(value)[:80]}.'
        )
    assert isinstance(texts, list) and isinstance(starts, list)
    return list(texts), list(starts)
