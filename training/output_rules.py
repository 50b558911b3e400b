"""What the outputs of evaluate_seq2seq.py must contain, must not contain, and may be at all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seq2seq_data import Example
from transformers import PreTrainedTokenizerBase

from hf_seqmodels.data import read_texts
from hf_seqmodels.decoding import PhraseAutomaton, TokenTrie, encode_bad_words, encode_phrases
from hf_seqmodels.evaluation.model_inputs import encode_targets
from hf_seqmodels.model_cards import without_folders

DEFAULT_MAX_LENGTH = 20  # of generate()


@dataclass
class RuleArguments:
    """What may be written."""

    must_include: list[str] | None = field(
        default=None, metadata={"help": "Phrases that every output must contain."}
    )
    must_include_column: str | None = field(
        default=None,
        metadata={
            "help": "Column with the phrases that the output of a row must contain, beside "
            "must_include: a list of texts, or a text with phrase_separator between phrases; "
            "nothing where there are none. Of several rows with one source the first one counts."
        },
    )
    phrase_separator: str = field(
        default=";", metadata={"help": "What stands between the phrases of must_include_column."}
    )
    avoid_words: list[str] | None = field(
        default=None, metadata={"help": "Words that no output may contain."}
    )
    avoid_file: str | None = field(
        default=None, metadata={"help": "Text file with more such words, one on a line."}
    )
    allowed_outputs_file: str | None = field(
        default=None,
        metadata={"help": "Text file with all outputs that are allowed, one on a line."},
    )


@dataclass
class OutputRules:
    """The rules as token ids.

    Args:
        phrases: for each part of the data the phrases of every row, where there are any.
        settings: arguments of generate() for every part.
    """

    phrases: dict[str, list[list[list[int]]]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def arguments(self, part: str) -> dict[str, Any]:
        """Return what decoding one part of the data needs.

        Args:
            part: validation or test.

        Returns:
            Arguments of `n_best` and `decode_corpus`.
        """
        phrases = {"must_include": self.phrases[part]} if part in self.phrases else {}
        return phrases | self.settings


def check_rules(args: RuleArguments, *, samples: bool) -> None:
    """Refuse rules that exclude one another.

    Args:
        args: the rules.
        samples: whether outputs are sampled.

    Raises:
        ValueError: naming the two.
    """
    given = [name for name in ("must_include", "must_include_column") if getattr(args, name)]
    if samples and given:
        raise ValueError(
            f"minimum_risk takes its candidates from samples, which {given[0]} cannot steer. Leave "
            "out the one or the other."
        )
    given += [name for name in ("avoid_words", "avoid_file") if getattr(args, name)]
    if args.allowed_outputs_file and given:
        raise ValueError(
            f"allowed_outputs_file holds all that may be written, so {given[0]} has no effect "
            "beside it. Leave lines out of the file instead."
        )
    if not args.phrase_separator:
        raise ValueError("phrase_separator must be a text, got ''. Leave it out for ';'.")


def make_rules(
    args: RuleArguments,
    parts: Mapping[str, Sequence[Example]],
    tokenizer: PreTrainedTokenizerBase,
    generation_config: Any,
) -> OutputRules:
    """Turn the rules into token ids.

    Args:
        args: the rules.
        parts: validation and test rows.
        tokenizer: of both sides.
        generation_config: of the model, settled.

    Returns:
        The rules for decoding.

    Raises:
        ValueError: if a phrase or a word cannot be written, phrases of a row do not fit into its
            output or hold a word to avoid, an allowed output is too long, or a column is missing.
    """
    rules = OutputRules()
    longest = (generation_config.max_length or DEFAULT_MAX_LENGTH) - 1  # without the start token
    avoided = [*(args.avoid_words or []), *(read_texts(args.avoid_file) if args.avoid_file else [])]
    if avoided:
        already = generation_config.bad_words_ids or []
        rules.settings["bad_words_ids"] = [*already, *_encoded_words(tokenizer, avoided)]
    if args.allowed_outputs_file:
        trie = _read_trie(args.allowed_outputs_file, tokenizer, longest)
        rules.settings["prefix_allowed_tokens_fn"] = trie.allowed_tokens_fn()
    if args.must_include or args.must_include_column:
        bad_words = {word: _encoded_words(tokenizer, [word]) for word in avoided}
        for part, examples in parts.items():
            rules.phrases[part] = [
                _encoded_phrases(example, args, tokenizer, longest, bad_words)
                for example in examples
            ]
    return rules


def _encoded_words(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> list[list[int]]:
    try:
        return encode_bad_words(tokenizer, words)
    except ValueError as error:
        raise ValueError(f"avoid_words: {error}") from error


def _encoded_phrases(
    example: Example,
    args: RuleArguments,
    tokenizer: PreTrainedTokenizerBase,
    longest: int,
    bad_words: Mapping[str, Sequence[Sequence[int]]],
) -> list[list[int]]:
    """Return the token ids of the phrases of one row, all of which an output can hold."""
    phrases = row_phrases(example, args)
    name = f"must_include of the row with source {example.source!r}"
    try:
        encoded = encode_phrases(tokenizer, phrases)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    for phrase, ids in zip(phrases, encoded, strict=True):
        for word, forms in bad_words.items():
            if any(_holds(ids, form) for form in forms):
                raise ValueError(
                    f"{name}: {phrase!r} holds {word!r}, which avoid_words rules out. Leave out "
                    "the one or the other."
                )
    num_tokens = PhraseAutomaton(encoded).num_tokens
    if num_tokens > longest:
        raise ValueError(
            f"{name} must fit into an output of {longest} tokens, but {phrases} have {num_tokens}. "
            "Raise max_target_length, or leave phrases out."
        )
    return encoded


def _holds(tokens: Sequence[int], part: Sequence[int]) -> bool:
    width = len(part)
    return any(list(tokens[at : at + width]) == list(part) for at in range(len(tokens) - width + 1))


def row_phrases(example: Example, args: RuleArguments) -> list[str]:
    """Return the phrases that the output of a row must contain.

    Args:
        example: the row.
        args: the rules.

    Returns:
        The texts.

    Raises:
        ValueError: if the column is missing, or holds neither text nor a list of texts.
    """
    phrases = list(args.must_include or [])
    if args.must_include_column is None:
        return phrases
    if args.must_include_column not in example.columns:
        present = ", ".join(example.columns) or "none besides source and target"
        raise ValueError(
            f"must_include_column names a column of phrases, but there is no "
            f"{args.must_include_column!r}. Other columns: {present}."
        )
    value = example.columns[args.must_include_column]
    if isinstance(value, str):
        pieces = [piece.strip() for piece in value.split(args.phrase_separator)]
        return phrases + [piece for piece in pieces if piece]
    value = [] if value is None else value
    if not isinstance(value, list) or not all(isinstance(phrase, str) for phrase in value):
        raise ValueError(
            f"must_include_column names a column of texts or lists of texts, but "
            f"{args.must_include_column!r} of the row with source {example.source!r} holds "
            f"{value!r}."
        )
    return phrases + value


def _read_trie(path: str, tokenizer: PreTrainedTokenizerBase, longest: int) -> TokenTrie:
    """Return the outputs of a file, all of which can be written to their end."""
    texts = read_texts(path)
    trie = TokenTrie.from_texts(tokenizer, texts)
    for text, ids in zip(texts, encode_targets(tokenizer, texts), strict=True):
        length = len(ids) + (ids[-1:] != [trie.end_id])
        if length > longest:
            raise ValueError(
                f"{path}: outputs end after {longest} tokens, but {text!r} has {length}. Raise "
                "max_target_length, or leave it out."
            )
    return trie


def rules_record(args: RuleArguments) -> dict[str, Any]:
    """Return the rules as metrics.json tells them.

    Args:
        args: the rules.

    Returns:
        What was given, without folders of the machine.
    """
    texts = ("must_include", "must_include_column", "avoid_words")
    given = {name: getattr(args, name) for name in texts}
    for name in ("avoid_file", "allowed_outputs_file"):
        given[name] = without_folders(getattr(args, name))
    return {name: value for name, value in given.items() if value}
