"""Answers to questions from the texts that hold them, by any extractive model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from hf_seqmodels.data.context_windows import (
    USUAL_LENGTH,
    Columns,
    QuestionCollator,
    question_windows,
)
from hf_seqmodels.evaluation.answer_spans import Answers, best_answers
from hf_seqmodels.evaluation.model_inputs import evaluation_mode, longest_input


def answer_questions(
    model: Any,
    tokenizer: Any,
    pairs: Sequence[tuple[str, str]],
    *,
    n_best: int = 1,
    max_answer_length: int = 30,
    with_no_answer: bool = False,
    no_answer_threshold: float = 0.0,
    max_length: int | None = None,
    doc_stride: int | None = None,
    max_question_length: int | None = None,
    batch_size: int = 32,
    progress: bool = True,
    device: Any = None,
) -> list[Answers]:
    """Answer questions, each with a piece of its context; `best_answers` says how they are ranked.

    Example: `answer_questions(model, tokenizer, [("Who wrote it?", "Ann wrote it.")])[0].best.text`

    Contexts may be of any length: a long one is read in windows. Rows of like length share a batch.

    Args:
        model: what AutoModelForQuestionAnswering loads.
        tokenizer: of the model, a fast one.
        pairs: question and context.
        n_best: answers per question.
        max_answer_length: of an answer, in tokens.
        with_no_answer: whether a question may have no answer; only for models that learned that.
        no_answer_threshold: by how much no answer must beat the best answer.
        max_length: tokens of a row; None for 384, or what the model can take if that is less.
        doc_stride: tokens that neighbouring windows share; None for 128, or a third of max_length
            if that is less.
        max_question_length: tokens of a question; longer ones are cut. None cuts none.
        batch_size: rows per batch.
        progress: whether to show a progress bar.
        device: where to compute, for instance "cuda"; None computes where the model is.

    Returns:
        The answers to each question, in the order of the pairs.

    Raises:
        ValueError: if pairs are not pairs of texts, a number is out of range, the tokenizer is not
            fast, or the model does not give the logits of starts and ends.
    """
    questions, contexts = _check_pairs(pairs)
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
    if max_length is None:
        max_length = min(USUAL_LENGTH, longest_input(model, tokenizer) or USUAL_LENGTH)
    columns = question_windows(
        tokenizer,
        questions,
        contexts,
        max_length=max_length,
        doc_stride=doc_stride,
        max_question_length=max_question_length,
    )
    if not columns:
        return []
    starts, ends = _logits(model, tokenizer, columns, batch_size, progress, device)
    return best_answers(
        starts,
        ends,
        columns,
        contexts,
        n_best=n_best,
        max_answer_length=max_answer_length,
        with_no_answer=with_no_answer,
        no_answer_threshold=no_answer_threshold,
    )


def _check_pairs(pairs: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Return questions and contexts."""
    for number, pair in enumerate(pairs):
        is_pair = not isinstance(pair, str) and len(pair) == 2
        if not is_pair or not all(isinstance(text, str) for text in pair):
            raise ValueError(
                f"pairs must be pairs of a question and a context, got {str(pair)[:60]!r} at "
                f"position {number}. Write [('Who wrote it?', 'Ann wrote it.'), ...]."
            )
    return [question for question, _ in pairs], [context for _, context in pairs]


def _logits(
    model: Any, tokenizer: Any, columns: Columns, batch_size: int, progress: bool, device: Any
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the logits of starts and ends of every row, the longest rows computed first."""
    collate = QuestionCollator(tokenizer)
    lengths = [len(ids) for ids in columns["input_ids"]]
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    starts, ends = ([np.empty(0)] * len(order) for _ in range(2))
    names = [name for name in tokenizer.model_input_names if name in columns]
    with (
        evaluation_mode(model, device) as place,
        tqdm(total=len(order), desc="Answering", unit="row", disable=not progress) as bar,
    ):
        for begin in range(0, len(order), batch_size):
            rows = order[begin : begin + batch_size]
            batch = collate([{name: columns[name][row] for name in names} for row in rows])
            output = model(**{name: tensor.to(place) for name, tensor in batch.items()})
            if getattr(output, "start_logits", None) is None:
                raise ValueError(
                    "model must give start_logits and end_logits, as those do that "
                    f"AutoModelForQuestionAnswering loads, got {type(model).__name__}."
                )
            for logits, found in ((output.start_logits, starts), (output.end_logits, ends)):
                for row, values in zip(rows, logits.float().cpu().numpy(), strict=True):
                    found[row] = values[: lengths[row]]
            bar.update(len(rows))
    return starts, ends
