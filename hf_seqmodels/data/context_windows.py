"""Questions and contexts as rows of tokens: sliding windows over long contexts, answers as spans.

A row holds the question and a window of the context, in the form that the tokenizer gives to pairs.
Windows overlap, so that an answer that is cut at the end of one stands whole in the next.

Legend: a position counts tokens of a row, a token number counts tokens of the whole context, a
character counts code points of the context. Ends of characters are exclusive, of tokens inclusive.
"""

import logging
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase
from transformers.data.data_collator import pad_without_fast_tokenizer_warning

from hf_seqmodels.data.word_labels import check_fast

logger = logging.getLogger(__name__)

Columns = dict[str, list[Any]]
Span = tuple[int, int]
USUAL_LENGTH = 384  # tokens of a row, and
USUAL_STRIDE = 128  # tokens that neighbours share, as BERT was fine-tuned on SQuAD
ZERO_WIDTH_JOINER = "\u200d"


def question_windows(
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[str],
    contexts: Sequence[str],
    answers: Sequence[Span | None] | None = None,
    *,
    max_length: int = USUAL_LENGTH,
    doc_stride: int | None = None,
    max_question_length: int | None = None,
) -> Columns:
    """Turn questions and their contexts into rows of tokens.

    Source: Devlin et al. 2019, arXiv:1810.04805, section 4.2, and 4.3 for questions without an
    answer: the span of such a question, and of a window that does not hold the whole answer, is the
    classification token.

    Args:
        tokenizer: any fast tokenizer; the question comes first.
        questions: one text each.
        contexts: as many texts.
        answers: characters (first, after the last) of the answer in each context, None where there
            is none; None for questions to be answered.
        max_length: tokens of a row, special tokens included.
        doc_stride: tokens of the context that neighbouring windows share; None for 128, or a third
            of max_length if that is less.
        max_question_length: tokens of a question; longer ones are cut, with a warning that counts
            them. None cuts none.

    Returns:
        Columns with one entry per row: what the tokenizer gives a model; the number of the
        `example`; `first_token`, the number of the first token of the context in the row;
        `context_start`, its position; `offsets`, the characters of each token of the context;
        `no_answer_position`, of the classification token; and with answers `start_positions` and
        `end_positions`.

    Raises:
        ValueError: if the tokenizer is not fast, texts do not fit together, a question leaves no
            room for its context, or an answer lies outside of it.
    """
    _check_input(tokenizer, questions, contexts, answers)
    columns: Columns = {}
    if not questions:
        return columns
    questions = _cut_questions(tokenizer, questions, max_question_length)
    doc_stride = min(USUAL_STRIDE, max_length // 3) if doc_stride is None else doc_stride
    _check_room(tokenizer, questions, max_length, doc_stride)
    encoding = tokenizer(
        list(questions),
        list(contexts),
        truncation="only_second",
        max_length=max_length,
        stride=doc_stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_attention_mask=True,
        padding=False,
    )
    names = [name for name in tokenizer.model_input_names if name in encoding]
    columns = {name: list(encoding[name]) for name in names}
    columns["example"] = list(encoding["overflow_to_sample_mapping"])
    _add_context_columns(columns, tokenizer, encoding, contexts, doc_stride)
    if answers is not None:
        _add_answer_columns(columns, answers)
    return columns


def _check_input(
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[str],
    contexts: Sequence[str],
    answers: Sequence[Span | None] | None,
) -> None:
    check_fast(tokenizer)
    given = {"questions": questions, "contexts": contexts}
    for name, texts in given.items():
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{name} must be a list of texts, got {str(texts)[:60]!r}.")
    counts = [len(questions), len(contexts), len(questions if answers is None else answers)]
    if len(set(counts)) > 1:
        raise ValueError(
            "there must be one context (and one answer, or None) per question, got "
            f"{counts[0]} questions, {counts[1]} contexts and {counts[2]} answers."
        )
    for number, (context, answer) in enumerate(
        zip(contexts, answers or [None] * len(contexts), strict=True)
    ):
        if answer is not None and not 0 <= answer[0] < answer[1] <= len(context):
            raise ValueError(
                f"an answer must lie in its context of {len(context)} characters, got characters "
                f"{answer[0]} to {answer[1]} for question {number}: {questions[number][:60]!r}."
            )


def _cut_questions(
    tokenizer: PreTrainedTokenizerBase, questions: Sequence[str], limit: int | None
) -> Sequence[str]:
    """Cut questions after so many tokens, as texts."""
    if limit is None:
        return questions
    if limit < 1:
        raise ValueError(f"max_question_length must be at least 1, or None, got {limit}.")
    encoding = tokenizer(
        list(questions), add_special_tokens=False, return_offsets_mapping=True, verbose=False
    )
    kept = [
        question if len(offsets) <= limit else question[: offsets[limit - 1][1]]
        for question, offsets in zip(questions, encoding["offset_mapping"], strict=True)
    ]
    num_cut = sum(len(offsets) > limit for offsets in encoding["offset_mapping"])
    if num_cut:
        logger.warning(
            f"{num_cut} of {len(questions)} questions have more than {limit} tokens and are cut."
        )
    return kept


def _check_room(
    tokenizer: PreTrainedTokenizerBase, questions: Sequence[str], max_length: int, doc_stride: int
) -> None:
    """Refuse questions that leave no room for the context to slide."""
    rows = tokenizer(list(questions), add_special_tokens=False, verbose=False)["input_ids"]
    longest = max(range(len(rows)), key=lambda row: len(rows[row]))
    num_special = tokenizer.num_special_tokens_to_add(pair=True)
    room = max_length - num_special - len(rows[longest])
    if doc_stride < 0 or room <= doc_stride:
        raise ValueError(
            f"doc_stride must be at least 0 and less than the tokens that a row of "
            f"max_length={max_length} has for the context: got {doc_stride}, where {num_special} "
            f"special tokens and the {len(rows[longest])} of question {longest} "
            f"({questions[longest][:60]!r}) leave {max(room, 0)}. Lower doc_stride, raise "
            "max_length, or cut questions with max_question_length."
        )


def _add_context_columns(
    columns: Columns,
    tokenizer: PreTrainedTokenizerBase,
    encoding: Any,
    contexts: Sequence[str],
    doc_stride: int,
) -> None:
    """Add where each row's window of the context stands, in the row and in the context."""
    names = ("first_token", "context_start", "offsets", "no_answer_position")
    columns |= {name: [] for name in names}
    example, first_token, num_tokens = -1, 0, 0
    for row, owner in enumerate(columns["example"]):
        sides = encoding.sequence_ids(row)
        start = sides.index(1) if 1 in sides else len(sides)
        offsets = encoding["offset_mapping"][row][start : start + sides.count(1)]
        # each window but the last is full, so all of them step by the same number of tokens
        first_token = first_token + num_tokens - doc_stride if owner == example else 0
        example, num_tokens = owner, len(offsets)
        columns["first_token"].append(first_token)
        columns["context_start"].append(start)
        columns["offsets"].append(_whole_characters(offsets, contexts[int(owner)]))
        columns["no_answer_position"].append(_no_answer_position(tokenizer, columns, row))


def _no_answer_position(tokenizer: PreTrainedTokenizerBase, columns: Columns, row: int) -> int:
    """Return where the classification token stands, or the first token where there is none."""
    ids = columns["input_ids"][row]
    return ids.index(tokenizer.cls_token_id) if tokenizer.cls_token_id in ids else 0


def _whole_characters(offsets: Sequence[Span], context: str) -> list[Span]:
    """Return the characters of each token without blanks around, and with the marks on the last.

    A tokenizer may count the blank before a word to its token, and may drop accents that are
    characters of their own, which are part of the answer's text all the same.
    """
    spans = []
    plain = context.isascii()
    for start, end in offsets:
        while start < end and context[start].isspace():
            start += 1
        while start < end and context[end - 1].isspace():
            end -= 1
        while not plain and start < end < len(context) and _continues(context[end]):
            end += 1
        spans.append((start, end))
    return spans


def _continues(character: str) -> bool:
    """Tell whether a character is a mark on the one before."""
    return unicodedata.category(character)[0] == "M" or character == ZERO_WIDTH_JOINER


def _add_answer_columns(columns: Columns, answers: Sequence[Span | None]) -> None:
    """Add the positions of the answers, that of the classification token where one is not whole."""
    spans = _answer_tokens(columns, answers)
    lost = {example for example, answer in enumerate(answers) if answer is not None}
    columns["start_positions"], columns["end_positions"] = [], []
    for row, example in enumerate(columns["example"]):
        first, last = columns["first_token"][row], columns["first_token"][row]
        last += len(columns["offsets"][row]) - 1
        start = end = columns["no_answer_position"][row]
        span = spans[example]
        if span is not None and first <= span[0] and span[1] <= last:
            shift = columns["context_start"][row] - first
            start, end = span[0] + shift, span[1] + shift
            lost.discard(example)
        columns["start_positions"].append(start)
        columns["end_positions"].append(end)
    if lost:
        logger.warning(
            f"{len(lost)} of {len(answers)} answers are whole in no window, as long as doc_stride "
            "or without a token, and count as no answer."
        )


def _answer_tokens(columns: Columns, answers: Sequence[Span | None]) -> list[Span | None]:
    """Return the numbers of the first and the last token of each answer in its context."""
    tokens = context_tokens(columns, len(answers))
    found: list[Span | None] = []
    for answer, offsets in zip(answers, tokens, strict=True):
        covering = [
            number
            for number, (start, end) in enumerate(offsets)
            if answer is not None and start < min(answer[1], end) and end > answer[0]
        ]
        found.append((covering[0], covering[-1]) if covering else None)
    return found


def context_tokens(columns: Mapping[str, Sequence[Any]], num_examples: int) -> list[list[Span]]:
    """Return the characters of every token of each context, put together from its windows.

    Args:
        columns: what `question_windows` returned.
        num_examples: how many questions it was given.

    Returns:
        One list of (first character, after the last) per question.
    """
    tokens: list[list[Span]] = [[] for _ in range(num_examples)]
    rows = zip(columns["example"], columns["first_token"], columns["offsets"], strict=True)
    for example, first, offsets in rows:
        seen = len(tokens[example])
        tokens[example] += [(start, end) for start, end in offsets[seen - first :]]
    return tokens


class QuestionCollator:
    """Pad rows of questions and contexts to a batch, on the right, since answers count positions.

    Args:
        tokenizer: gives the pad token and the names of the model's inputs.
        max_length: width of every batch; None for the longest row of each.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, max_length: int | None = None):
        self.tokenizer = tokenizer
        self.max_length = max_length

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return the batch of some rows.

        Args:
            features: rows of the columns that `question_windows` returns.

        Returns:
            The inputs of the model, (B, T), and the positions of the answers, (B,), if the rows
            have them.
        """
        names = [name for name in self.tokenizer.model_input_names if name in features[0]]
        batch = pad_without_fast_tokenizer_warning(
            self.tokenizer,
            [{name: row[name] for name in names} for row in features],
            padding="longest" if self.max_length is None else "max_length",
            max_length=self.max_length,
            padding_side="right",
            return_tensors="pt",
        )
        for name in ("start_positions", "end_positions"):
            if name in features[0]:
                batch[name] = torch.tensor([row[name] for row in features])
        return dict(batch)
