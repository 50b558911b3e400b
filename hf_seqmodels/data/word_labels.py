"""Labels of words on rows of sub-words: every word in exactly one row, however long its sentence.

A sentence longer than a row is split in overlapping windows; each word then counts in the window
that shows most of its neighbours, so that no word is cut off and none counts twice.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from hf_seqmodels.data.collators import IGNORED_LABEL

logger = logging.getLogger(__name__)

Columns = dict[str, list[Any]]


def word_label_windows(
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sequence[str]],
    labels: Sequence[Sequence[int]] | None = None,
    *,
    max_length: int | None = None,
    stride: int | None = None,
    label_all_tokens: bool = False,
    continuing_labels: Mapping[int, int] | None = None,
) -> Columns:
    """Turn sentences of words into rows of tokens, with a label on the first token of each word.

    A word of which the tokenizer leaves nothing (a control character, say) becomes its unknown
    token, with a warning that counts such words. A sentence without words has no row.

    Args:
        tokenizer: any fast tokenizer.
        sentences: the words of each.
        labels: one label id per word; -100 is skipped by the losses. None for words to be labelled.
        max_length: tokens of a row, special tokens included; None never splits a sentence.
        stride: tokens that neighbouring windows share; None for a quarter of max_length.
        label_all_tokens: whether the other tokens of a word are labelled too, instead of -100.
        continuing_labels: {label of a word: label of its other tokens} where those differ, such as
            that of B-PER: that of I-PER.

    Returns:
        Columns with one entry per row: what the tokenizer gives a model; `labels` (with labels);
        and for `labels_of_words` the number of the `sentence`, its `words` that count in this row,
        and the `positions` of their first tokens.

    Raises:
        ValueError: if the tokenizer is not fast, cannot split, or has no token for some word; if
            labels and words do not fit together; if stride leaves no room.
    """
    _check_input(tokenizer, sentences, labels)
    columns: Columns = {}
    filled = [(number, list(words)) for number, words in enumerate(sentences) if len(words)]
    if not filled:
        return columns
    encoding, first_rows = _encode(tokenizer, filled, max_length, stride)
    for (number, words), (first, last) in zip(filled, pairwise(first_rows), strict=True):
        rows = [encoding.word_ids(row) for row in range(first, last)]
        for row, chosen in zip(range(first, last), _choose(rows, len(words)), strict=True):
            if not chosen:
                continue
            for name in tokenizer.model_input_names:
                if name in encoding:
                    columns.setdefault(name, []).append(encoding[name][row])
            columns.setdefault("sentence", []).append(number)
            columns.setdefault("words", []).append(list(chosen))
            columns.setdefault("positions", []).append(list(chosen.values()))
            if labels is not None:
                row_labels = _row_labels(
                    rows[row - first],
                    chosen,
                    labels[number],
                    continuing_labels or {},
                    label_all_tokens=label_all_tokens,
                )
                columns.setdefault("labels", []).append(row_labels)
    return columns


def labels_of_words(
    row_labels: Sequence[Sequence[Any]], columns: Mapping[str, Sequence[Any]], num_sentences: int
) -> list[list[Any]]:
    """Bring what a model says of tokens back to the words, in the order of the sentences.

    Args:
        row_labels: of each row, one value per token (further ones, for padding, are not looked at).
        columns: what `word_label_windows` returned.
        num_sentences: how many sentences it was given.

    Returns:
        One value per word of each sentence: that of its first token.
    """
    found: list[dict[int, Any]] = [{} for _ in range(num_sentences)]
    rows = zip(
        row_labels,
        columns.get("sentence", ()),
        columns.get("words", ()),
        columns.get("positions", ()),
        strict=True,
    )
    for values, sentence, words, positions in rows:
        found[sentence] |= {
            word: values[position] for word, position in zip(words, positions, strict=True)
        }
    return [[values[word] for word in sorted(values)] for values in found]


def _check_input(
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sequence[str]],
    labels: Sequence[Sequence[int]] | None,
) -> None:
    check_fast(tokenizer)
    for number, words in enumerate(sentences):
        if isinstance(words, str) or not all(isinstance(word, str) for word in words):
            raise ValueError(
                f"a sentence must be a list of words, got {words!r} as sentence {number}. "
                "Split the text into the words that have labels."
            )
        if labels is not None and len(labels[number]) != len(words):
            raise ValueError(
                f"a sentence must have one label per word, got {len(labels[number])} labels for "
                f"{len(words)} words in sentence {number}: {' '.join(words)[:60]!r}."
            )
    if labels is not None and len(labels) != len(sentences):
        raise ValueError(
            f"labels must be given for every sentence, got {len(labels)} for {len(sentences)}."
        )


def check_fast(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a tokenizer that cannot say from where in the text a token comes.

    Args:
        tokenizer: to look at.

    Raises:
        ValueError: if it is not one of the tokenizers library.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            "the tokenizer must be a fast one, which knows where in the text each token stands, "
            f"got {type(tokenizer).__name__}. Load it with AutoTokenizer, or convert it to a "
            "tokenizer.json."
        )


def set_prefix_space(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Let a byte-level tokenizer (RoBERTa, GPT-2) see the blank before each word of a list.

    Such tokenizers write " b" otherwise than "b"; without this setting a list of words would look
    to them like one word after another without blanks, unlike the text they were trained on.

    Args:
        tokenizer: any fast tokenizer, changed in place; it keeps the setting when it is saved.

    Returns:
        Whether the setting had to be changed.
    """
    check_fast(tokenizer)
    backend: Any = tokenizer
    description = json.loads(backend.backend_tokenizer.to_str())
    step = description.get("pre_tokenizer") or {}
    steps = [step, *step.get("pretokenizers", ())]
    lacking = [one for one in steps if one.get("add_prefix_space") is False]
    for one in lacking:
        one["add_prefix_space"] = True
    if lacking:
        changed = Tokenizer.from_str(json.dumps(description))
        backend.backend_tokenizer.pre_tokenizer = changed.pre_tokenizer
        backend.add_prefix_space = backend.init_kwargs["add_prefix_space"] = True
    return bool(lacking)


def _encode(
    tokenizer: PreTrainedTokenizerBase,
    filled: Sequence[tuple[int, list[str]]],
    max_length: int | None,
    stride: int | None,
) -> tuple[Any, list[int]]:
    """Return the encoding of all sentences, and the first row of each (and one past the last)."""
    cut: dict[str, Any] = {}
    if max_length is not None:
        room = max_length - tokenizer.num_special_tokens_to_add(pair=False)
        stride = min(max_length // 4, max(room - 1, 0)) if stride is None else stride
        if not 0 <= stride < room:
            raise ValueError(
                f"stride must be at least 0 and less than the {room} tokens that a row of "
                f"max_length={max_length} has for words, got {stride}. Lower it or raise "
                "max_length."
            )
        cut = {"truncation": True, "max_length": max_length, "stride": stride}

    def encode() -> Any:
        return tokenizer(
            [words for _, words in filled],
            is_split_into_words=True,
            return_overflowing_tokens=True,
            return_attention_mask=True,
            verbose=False,
            **cut,
        )

    encoding = encode()
    first_rows = _first_rows(encoding, len(filled))
    if _replace_empty_words(tokenizer, filled, encoding, first_rows):
        encoding = encode()
        first_rows = _first_rows(encoding, len(filled))
        for number, place, _ in _empty_words(filled, encoding, first_rows):
            raise ValueError(
                f"the tokenizer has no token for word {place} of sentence {number}, not even its "
                "unknown token. Remove the word, or take another tokenizer."
            )
    return encoding, first_rows


def _first_rows(encoding: Any, num_sentences: int) -> list[int]:
    owners = encoding["overflow_to_sample_mapping"]
    counts = [0] * num_sentences
    for owner in owners:
        counts[owner] += 1
    firsts = [0]
    for count in counts:
        firsts.append(firsts[-1] + count)
    return firsts


def _empty_words(
    filled: Sequence[tuple[int, list[str]]], encoding: Any, first_rows: Sequence[int]
) -> Iterator[tuple[int, int, list[str]]]:
    """Yield sentence number, place and words of each word without a token."""
    for (number, words), (first, last) in zip(filled, pairwise(first_rows), strict=True):
        seen = {word for row in range(first, last) for word in encoding.word_ids(row)}
        for place in range(len(words)):
            if place not in seen:
                yield number, place, words


def _replace_empty_words(
    tokenizer: PreTrainedTokenizerBase,
    filled: Sequence[tuple[int, list[str]]],
    encoding: Any,
    first_rows: Sequence[int],
) -> int:
    """Write the unknown token in the place of words without a token; return how many."""
    count, example = 0, ""
    for number, place, words in list(_empty_words(filled, encoding, first_rows)):
        count, example = count + 1, example or f"{words[place]!r} in sentence {number}"
        words[place] = str(tokenizer.unk_token or words[place])
    if count:
        logger.warning(
            f"The tokenizer leaves nothing of {count} words ({example}); each becomes "
            f"{tokenizer.unk_token}."
        )
    return count


def _choose(rows: Sequence[Sequence[int | None]], num_words: int) -> list[dict[int, int]]:
    """Say for each window which words count in it, and where the first token of each stands.

    Args:
        rows: of each window of a sentence, the word of every token; None for special tokens.
        num_words: words of the sentence.

    Returns:
        {word: position of its first token} for each window; together every word once.
    """
    chosen: list[dict[int, int]] = [{} for _ in rows]
    best: dict[int, tuple[float, int, int]] = {}  # word: (tokens around it, window, position)
    for window, words in enumerate(rows):
        inside = [position for position, word in enumerate(words) if word is not None]
        previous: int | None = None
        for place, position in enumerate(inside):
            word = words[position]
            # a window after the first may begin within a word, whose first token is elsewhere
            begins = word != previous and (place or window == 0 or word not in best)
            previous = word
            if word is None or not begins:
                continue
            around = min(place, len(inside) - 1 - place)
            if word not in best or around > best[word][0]:
                best[word] = around, window, position
    for word in range(num_words):
        _, window, position = best[word]
        chosen[window][word] = position
    return chosen


def _row_labels(
    words: Sequence[int | None],
    chosen: Mapping[int, int],
    labels: Sequence[int],
    continuing_labels: Mapping[int, int],
    *,
    label_all_tokens: bool,
) -> list[int]:
    """Return one label per token of a window."""
    row = [IGNORED_LABEL] * len(words)
    for position, word in enumerate(words):
        if word is None or word not in chosen:
            continue
        if position == chosen[word]:
            row[position] = labels[word]
        elif label_all_tokens:
            row[position] = continuing_labels.get(labels[word], labels[word])
    return row
