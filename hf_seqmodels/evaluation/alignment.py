"""The alignment of one source with one target, and what can be made of it.

Shapes: S source length, T target length.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

from hf_seqmodels.data.pharaoh import format_pharaoh
from hf_seqmodels.models.pipeline_seq2seq_generation import WORD_START

CONTINUATION = "##"  # wordpiece


@dataclass(frozen=True, eq=False)
class Alignment:
    """Attention of the target tokens over the source tokens.

    Args:
        source_tokens: S tokens, special ones included.
        target_tokens: T tokens, special ones included.
        weights: attention of each target token over the source, (T, S); each row sums to 1.
        source_is_special: which source tokens are special (the end token, ...); empty means none.
        target_is_special: which target tokens are special; empty means none.
    """

    source_tokens: list[str]
    target_tokens: list[str]
    weights: np.ndarray
    source_is_special: list[bool] = field(default_factory=list)
    target_is_special: list[bool] = field(default_factory=list)

    def __post_init__(self):
        shape = (len(self.target_tokens), len(self.source_tokens))
        if self.weights.shape != shape:
            raise ValueError(
                "weights must have one row per target token and one column per source token, "
                f"{shape}, got {self.weights.shape}."
            )
        for flags, tokens in (("source_is_special", shape[1]), ("target_is_special", shape[0])):
            value = getattr(self, flags) or [False] * tokens
            if len(value) != tokens:
                raise ValueError(
                    f"{flags} must have one flag per token, {tokens}, got {len(value)}."
                )
            object.__setattr__(self, flags, value)

    def links(
        self, *, threshold: float | None = None, keep_special: bool = False
    ) -> list[tuple[int, int]]:
        """Return which tokens belong together: pairs of source and target, counted from zero.

        Special tokens have no links and are not counted, so the indices are those of the text's own
        tokens. A target token that attends most to a special source token stays without a link.
        Links of words are those of `merge_words()`.

        Args:
            threshold: link every pair of at least this weight; None links each target token to the
                source token of its largest weight (of equal ones, the first).
            keep_special: whether to link and count special tokens like any other.

        Returns:
            Pairs in order of source, then target.

        Raises:
            ValueError: if the threshold is not in (0, 1].
        """
        if threshold is not None and not 0 < threshold <= 1:
            raise ValueError(
                f"threshold must be in (0, 1], got {threshold}. "
                "Leave it out to link each target token to its largest weight."
            )
        is_linked = np.zeros(self.weights.shape, dtype=bool)
        if threshold is not None:
            is_linked = self.weights >= threshold
        elif self.source_tokens:
            is_linked[np.arange(len(is_linked)), self.weights.argmax(axis=1)] = True
        if not keep_special:
            is_linked = is_linked[~np.array(self.target_is_special, dtype=bool)]
            is_linked = is_linked[:, ~np.array(self.source_is_special, dtype=bool)]
        return [(int(source), int(target)) for source, target in np.argwhere(is_linked.T)]

    def to_pharaoh(self, *, threshold: float | None = None, keep_special: bool = False) -> str:
        """Return the links in the Pharaoh format: pairs `i-j`, source-target, counted from zero.

        `hf_seqmodels.data.write_pharaoh` writes the `links` of many, `read_pharaoh` reads them.

        Args:
            threshold: see `links`.
            keep_special: see `links`.

        Returns:
            Pairs separated by blanks, in order of source, then target.

        Raises:
            ValueError: if the threshold is not in (0, 1].
        """
        return format_pharaoh(self.links(threshold=threshold, keep_special=keep_special))

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the interactive page, in a frame of its own."""
        from hf_seqmodels.analysis import render_alignment_page

        page = escape(render_alignment_page([self], titles=["Attention"]))
        frame = '<iframe sandbox="allow-scripts" width="100%" height="420" srcdoc="{}"></iframe>'
        return frame.format(page)

    def merge_words(self) -> "Alignment":
        """Return the alignment between words, where tokens are parts of words.

        Weights are added up over the tokens of a source word and averaged over those of a target
        word, so that rows still sum to 1. What begins a word is read off the tokens: "▁" in front
        (sentencepiece, byte-level), no "##" in front (wordpiece), or a blank between characters. On
        a side without such signs every token is a word. Special tokens stand alone.

        Returns:
            A new alignment; the words are written without the signs.
        """
        source_groups = word_groups(self.source_tokens, self.source_is_special)
        target_groups = word_groups(self.target_tokens, self.target_is_special)
        columns = [self.weights[:, group].sum(axis=1) for group in source_groups]
        by_source_word = np.stack(columns, axis=1) if columns else self.weights
        rows = [by_source_word[group].mean(axis=0) for group in target_groups]
        return Alignment(
            source_tokens=[
                join_word([self.source_tokens[i] for i in group]) for group in source_groups
            ],
            target_tokens=[
                join_word([self.target_tokens[i] for i in group]) for group in target_groups
            ],
            weights=np.stack(rows) if rows else by_source_word,
            source_is_special=[self.source_is_special[group[0]] for group in source_groups],
            target_is_special=[self.target_is_special[group[0]] for group in target_groups],
        )


def word_groups(tokens: Sequence[str], is_special: Sequence[bool]) -> list[list[int]]:
    """Return the positions of the tokens of each word; see `Alignment.merge_words` for the rule.

    Args:
        tokens: the tokens of one side.
        is_special: which of them are special.

    Returns:
        Lists of positions, in order, that cover every token once.
    """
    plain = [token for token, special in zip(tokens, is_special, strict=True) if not special]
    has_starts = any(token.startswith((WORD_START, " ")) for token in plain)
    has_continuations = any(token.startswith(CONTINUATION) for token in plain)
    groups: list[list[int]] = []
    after_special = True
    for index, (token, special) in enumerate(zip(tokens, is_special, strict=True)):
        if has_starts:
            begins = token.startswith((WORD_START, " "))
        else:
            begins = not (has_continuations and token.startswith(CONTINUATION))
        if begins or special or after_special:
            groups.append([])
        groups[-1].append(index)
        after_special = special
    return groups


def join_word(tokens: Sequence[str]) -> str:
    """Return the word that the tokens make, without the signs of the tokenizer."""
    text = "".join(token.removeprefix(CONTINUATION) for token in tokens)
    return text.replace(WORD_START, " ").strip() or text
