"""Training tokenizers that load anywhere with `AutoTokenizer`, without this package.

The models differ in what they take as one token, and in what decoding gives back:

| model | one token is | decoding gives back |
|---|---|---|
| char | a Unicode code point; a combining mark is a token of its own | the text |
| symbol | what stands between blanks, such as a phoneme | the text with single blanks |
| word | a word or a punctuation mark; `don't` and `well-known` are words | the text |
| bpe | a frequent string within a word, found by merging pairs | the text |
| wordpiece | the same, with `##` before a piece inside a word | the text with single blanks |
| unigram | a string within a word, chosen by a language model | the text |

This holds for texts that consist of what the training texts consist of, after the normalizer. The
models word, bpe and unigram write a blank as U+2581 (`▁`) at the head of a token, so that character
decodes as a blank; word begins every text with one, so a text loses a blank at its very beginning,
and gains one where an extra token runs into a word. wordpiece cannot tell a word that begins with
`##` from the inside of a word.

In the style "text", `<pad>` is 0, `<s>` 1, `</s>` 2 and `<unk>` 3, so that source and target agree;
every encoding ends with `</s>` (without it where `append_eos` says so), with nothing in front.

In the style "bert", for encoders, `[PAD]` is 0, `[UNK]` 1, `[CLS]` 2, `[SEP]` 3 and `[MASK]` 4. A
text becomes `[CLS] text [SEP]`, a pair `[CLS] first [SEP] second [SEP]`, and `token_type_ids` are 0
up to the first `[SEP]` and 1 behind it. wordpiece then cuts texts as BERT does: control characters
are removed, punctuation marks and Chinese characters are words of their own, and `lowercase` also
removes accents (Devlin et al. 2019, arXiv:1810.04805, and the code published with it).

A text that spells out one of the special tokens is encoded as that token.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from hf_seqmodels.data.unigram_training import learn_unigram_pieces

# special tokens by role, in the order of their ids
STYLES = {
    "text": {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "unk": "<unk>"},
    "bert": {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
}
DEFAULT_NUM_PIECES = 8000  # vocab_size of bpe, wordpiece and unigram
BLANK = "\u2581"
PIECE_PREFIX = "##"
FIRST_STAND_IN = 0x100000  # a plane of Unicode for private use; the planes of real text end before
MAX_PIECED_WORD = 1000  # characters; wordpiece takes a longer word for unknown
# letters, digits and marks, with apostrophes and hyphens between them; or any single character
WORD_PATTERN = rf"{BLANK}?([\w\p{{M}}]+(['\u2019\-][\w\p{{M}}]+)*|[^{BLANK}])|{BLANK}"

NORMALIZERS = {
    "nfc": normalizers.NFC,
    "nfd": normalizers.NFD,
    "nfkc": normalizers.NFKC,
    "nfkd": normalizers.NFKD,
}


@dataclass(frozen=True)
class _Plan:
    """What the steps of a training share: the options, checked."""

    model: str
    style: str
    vocab_size: int | None
    min_frequency: int
    extra_tokens: tuple[str, ...]
    split_punctuation: bool = False

    @property
    def num_pieces(self) -> int:
        return DEFAULT_NUM_PIECES if self.vocab_size is None else self.vocab_size

    @property
    def special(self) -> dict[str, str]:
        """Special tokens by role, in the order of their ids."""
        return STYLES[self.style]

    @property
    def reserved(self) -> tuple[str, ...]:
        """Special and extra tokens in the order of their ids."""
        return (*self.special.values(), *self.extra_tokens)

    @property
    def cuts_as_bert(self) -> bool:
        return self.style == "bert" and self.model == "wordpiece"


def train_tokenizer(
    texts: Iterable[str],
    *,
    model: str,
    vocab_size: int | None = None,
    min_frequency: int = 1,
    lowercase: bool = False,
    normalization: str | None = None,
    extra_tokens: Sequence[str] = (),
    model_max_length: int | None = None,
    append_eos: bool = True,
    style: str = "text",
    split_punctuation: bool = False,
) -> PreTrainedTokenizerFast:
    """Train a tokenizer; the same texts in the same order give the same tokenizer.

    Args:
        texts: what to learn the vocabulary from.
        model: "char", "symbol", "word", "bpe", "wordpiece" or "unigram"; the docstring of the
            module compares them.
        vocab_size: number of ids at most, special and extra tokens included. char, symbol and word
            keep the most frequent units, or all of them with None; bpe, wordpiece and unigram learn
            as many pieces as there is room for and the texts give rise to, with None up to 8000.
        min_frequency: how often a unit must occur in the texts; a rarer one is encoded as `<unk>`.
            Units are words for word, symbols for symbol, and characters for all others; bpe and
            wordpiece merge only pairs that occur as often.
        lowercase: write texts in lower case first.
        normalization: Unicode normal form given to texts first: "nfc", "nfd", "nfkc" or "nfkd".
        extra_tokens: strings that are one token wherever they occur, such as tags. Their ids follow
            those of the special tokens, in this order; decoding keeps them.
        model_max_length: length in tokens to which `truncation=True` cuts; None for no limit.
        append_eos: whether every encoding ends with `</s>`. A language model goes on from its
            prompt, so its tokenizer must not.
        style: "text", or "bert" for encoders: its special tokens, `[CLS]` before and `[SEP]` behind
            every text (whatever `append_eos` says), and `token_type_ids`.
        split_punctuation: bpe and unigram cut words as the model word does first, so that no piece
            holds both a letter and a punctuation mark at the edge of a word.

    Returns:
        A fast tokenizer that `save_pretrained` writes as tokenizer.json.

    Raises:
        ValueError: if the texts hold nothing to learn from, `vocab_size` has no room for what a
            vocabulary must hold, or an option has no such value.
    """
    if style not in STYLES:
        raise ValueError(f"style must be one of {', '.join(STYLES)}, got {style!r}.")
    _check_options(model, vocab_size, min_frequency, normalization, model_max_length)
    _check_extra_tokens(extra_tokens, style)
    if split_punctuation and model not in ("bpe", "unigram"):
        raise ValueError(
            f"split_punctuation is for the models bpe and unigram, got {model!r}. Leave it out: "
            "the others cut as their description says."
        )
    plan = _Plan(
        model, style, vocab_size, min_frequency, tuple(extra_tokens), bool(split_punctuation)
    )
    backend = _empty_backend(plan)
    backend.normalizer = _normalizer(lowercase, normalization, as_bert=plan.cuts_as_bert)
    chunks = list(_chunks(texts, plan, backend.normalizer))
    if not chunks:
        raise ValueError(
            "a tokenizer needs texts to learn from, but there are none, or all of them are empty. "
            "Check the file or the column that they come from."
        )
    learn = _learn_pieces if model in _TRAINERS else _count_units
    backend.model = learn(plan, backend.pre_tokenizer, chunks)
    return _finish(backend, plan, model_max_length, append_eos=append_eos)


def _empty_backend(plan: _Plan) -> Tokenizer:
    """Return a tokenizer that splits and joins as the model does, with nothing learned yet."""
    model, unk = plan.model, plan.special["unk"]
    backend = Tokenizer(models.WordLevel({unk: 0}, unk_token=unk))
    if model == "char":
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        backend.decoder = decoders.Fuse()
    elif model == "symbol":
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # no decoder: joins with blanks
    elif model == "word":
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Metaspace(BLANK, prepend_scheme="always", split=False),
                pre_tokenizers.Split(Regex(WORD_PATTERN), "isolated"),
            ]
        )
        backend.decoder = decoders.Metaspace(BLANK, prepend_scheme="always")
    elif model == "wordpiece":
        backend.pre_tokenizer = (
            pre_tokenizers.BertPreTokenizer()
            if plan.cuts_as_bert
            else pre_tokenizers.WhitespaceSplit()
        )
        backend.decoder = decoders.WordPiece(PIECE_PREFIX, cleanup=plan.cuts_as_bert)
    else:
        blanks = pre_tokenizers.Metaspace(BLANK, prepend_scheme="never")
        words = pre_tokenizers.Split(Regex(WORD_PATTERN), "isolated")
        backend.pre_tokenizer = (
            pre_tokenizers.Sequence([blanks, words]) if plan.split_punctuation else blanks
        )
        backend.decoder = decoders.Metaspace(BLANK, prepend_scheme="never")
    return backend


def _normalizer(
    lowercase: bool, normalization: str | None, *, as_bert: bool
) -> normalizers.Normalizer | None:
    steps = []
    if normalization is not None:
        steps.append(NORMALIZERS[normalization]())
    if as_bert:
        steps.append(normalizers.BertNormalizer(lowercase=lowercase))
    elif lowercase:
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence(steps) if steps else None


def _chunks(
    texts: Iterable[str], plan: _Plan, normalizer: normalizers.Normalizer | None
) -> Iterator[str]:
    """Yield the texts, normalized, without the reserved tokens that occur in them."""
    if isinstance(texts, str):
        raise ValueError(
            f"texts must be a sequence of texts, got one string, {texts[:40]!r}. "
            "Pass [text], or read_texts(path) for a file."
        )
    longest_first = sorted(plan.reserved, key=len, reverse=True)
    reserved = re.compile("|".join(map(re.escape, longest_first)))
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(
                f"texts must be strings, got {text!r} of type {type(text).__name__} as number "
                f"{index}. Convert it, or leave it out."
            )
        if _is_broken(text):
            raise ValueError(
                f"texts must be valid Unicode, got a lone surrogate in number {index}, {text!r}. "
                "Read the file again with the right encoding."
            )
        for chunk in reserved.split(text):
            if chunk:
                yield normalizer.normalize_str(chunk) if normalizer else chunk


def _is_broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _count_units(
    plan: _Plan, splitter: pre_tokenizers.PreTokenizer, chunks: list[str]
) -> models.WordLevel:
    """Return a model of the most frequent units, the commonest first, equals in code point
    order."""
    counts: Counter[str] = Counter()
    for chunk in chunks:
        units = chunk if plan.model == "char" else _split(splitter, chunk)
        counts.update(units)
    for token in plan.reserved:
        counts.pop(token, None)  # a normalizer can turn a text into one of them
    frequent = [unit for unit, count in counts.items() if count >= plan.min_frequency]
    _check_not_empty(frequent, plan)
    frequent.sort(key=lambda unit: (-counts[unit], unit))
    if plan.vocab_size is not None:
        room = plan.vocab_size - len(plan.reserved)
        _check_room(plan, 1, "one unit")
        frequent = frequent[:room]
    vocabulary = {unit: index for index, unit in enumerate([*plan.reserved, *frequent])}
    return models.WordLevel(vocabulary, unk_token=plan.special["unk"])


def _learn_pieces(
    plan: _Plan, splitter: pre_tokenizers.PreTokenizer, chunks: list[str]
) -> models.Model:
    """Return a model of characters and of the strings within words that are worth a token."""
    counts: Counter[str] = Counter()
    for chunk in chunks:
        counts.update("".join(_split(splitter, chunk)))
    alphabet = sorted(char for char, count in counts.items() if count >= plan.min_frequency)
    _check_not_empty(alphabet, plan)
    if rare := sorted(counts.keys() - set(alphabet)):
        # nothing is learned from a rare character, nor from what stands around it
        spelled = [f"[ {BLANK}]" if char == BLANK else re.escape(char) for char in rare]
        pattern = re.compile("|".join(spelled))
        chunks = [part for chunk in chunks for part in pattern.split(chunk) if part]
    return _TRAINERS[plan.model](plan, splitter, chunks, alphabet)


def _train_bpe(
    plan: _Plan, splitter: pre_tokenizers.PreTokenizer, chunks: list[str], alphabet: list[str]
) -> models.Model:
    _check_room(plan, len(alphabet), f"{len(alphabet)} characters")
    tokenizer = Tokenizer(models.BPE(unk_token=plan.special["unk"]))
    tokenizer.pre_tokenizer = splitter
    tokenizer.train_from_iterator(chunks, _bpe_trainer(plan, plan.num_pieces, plan.reserved))
    return tokenizer.model


def _train_wordpiece(
    plan: _Plan, splitter: pre_tokenizers.PreTokenizer, chunks: list[str], alphabet: list[str]
) -> models.Model:
    # every character in both of its forms: a word may begin with any of them, and go on with any
    characters = [prefix + char for prefix in ("", PIECE_PREFIX) for char in alphabet]
    _check_room(plan, len(characters), f"{len(alphabet)} characters in two forms each")
    # The library numbers characters inside a word in the order of a randomly seeded hash table, and
    # equally frequent pairs are merged in the order of their numbers. Written with a stand-in of
    # its own, such a character is one more letter, numbered by its code point.
    inner = {ord(char): chr(FIRST_STAND_IN + index) for index, char in enumerate(alphabet)}
    outer = {ord(stand_in): char for char, stand_in in zip(alphabet, inner.values(), strict=True)}
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    marked = (
        " ".join(word[0] + word[1:].translate(inner) for word in _split(splitter, chunk))
        for chunk in chunks
    )
    num_learned = plan.num_pieces - len(plan.reserved)
    tokenizer.train_from_iterator(marked, _bpe_trainer(plan, num_learned, ()))
    learned = [
        (PIECE_PREFIX if ord(piece[0]) in outer else "") + piece.translate(outer)
        for piece, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    ]
    pieces = list(dict.fromkeys([*plan.reserved, *characters, *learned]))[: plan.num_pieces]
    return models.WordPiece(
        {piece: index for index, piece in enumerate(pieces)},
        unk_token=plan.special["unk"],
        max_input_chars_per_word=MAX_PIECED_WORD,
        continuing_subword_prefix=PIECE_PREFIX,
    )


def _train_unigram(
    plan: _Plan, splitter: pre_tokenizers.PreTokenizer, chunks: list[str], alphabet: list[str]
) -> models.Model:
    _check_room(plan, len(alphabet), f"{len(alphabet)} characters")
    words = Counter(word for chunk in chunks for word in _split(splitter, chunk))
    learned = learn_unigram_pieces(words, plan.num_pieces - len(plan.reserved))
    learned = [(piece, score) for piece, score in learned if piece not in plan.reserved]
    reserved = [(token, 0.0) for token in plan.reserved]
    return models.Unigram([*reserved, *learned], unk_id=list(plan.special).index("unk"))


def _bpe_trainer(plan: _Plan, num_pieces: int, reserved: Sequence[str]) -> trainers.BpeTrainer:
    return trainers.BpeTrainer(
        vocab_size=num_pieces,
        min_frequency=plan.min_frequency,
        special_tokens=list(reserved),
        show_progress=False,
    )


_TRAINERS = {"bpe": _train_bpe, "wordpiece": _train_wordpiece, "unigram": _train_unigram}
TOKENIZER_MODELS = ("char", "symbol", "word", *_TRAINERS)


def _split(splitter: pre_tokenizers.PreTokenizer, chunk: str) -> list[str]:
    return [unit for unit, _ in splitter.pre_tokenize_str(chunk)]


def _finish(
    backend: Tokenizer, plan: _Plan, model_max_length: int | None, *, append_eos: bool
) -> PreTrainedTokenizerFast:
    """Add the special and extra tokens and the template of encodings, and wrap the backend."""
    special = plan.special
    # a mask stands for a word with the blank at its head, where that is part of a word's token
    takes_blank = isinstance(backend.decoder, decoders.Metaspace)
    backend.add_special_tokens(
        [
            AddedToken(token, normalized=False, special=True, lstrip=role == "mask" and takes_blank)
            for role, token in special.items()
        ]
    )
    backend.add_tokens([AddedToken(token, normalized=False) for token in plan.extra_tokens])
    if template := _template(plan, append_eos=append_eos):
        ids = [(token, index) for index, token in enumerate(special.values())]
        backend.post_processor = processors.TemplateProcessing(
            single=template[0], pair=template[1], special_tokens=ids
        )
    limit = {} if model_max_length is None else {"model_max_length": model_max_length}
    inputs = ["input_ids", "attention_mask"]
    if plan.style == "bert":
        inputs.insert(1, "token_type_ids")
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        **{
            f"{role}_token": backend.get_added_tokens_decoder()[index]
            for index, role in enumerate(special)
        },
        model_input_names=inputs,
        clean_up_tokenization_spaces=False,
        **limit,
    )


def _template(plan: _Plan, *, append_eos: bool) -> tuple[str, str] | None:
    """Return what surrounds a text and a pair of texts, None for nothing."""
    if plan.style == "bert":
        cls, sep = plan.special["cls"], plan.special["sep"]
        single = f"{cls}:0 $A:0 {sep}:0"
        return single, f"{single} $B:1 {sep}:1"
    eos = plan.special["eos"]
    return (f"$A {eos}", f"$A {eos} $B:1 {eos}:1") if append_eos else None


def _check_options(
    model: str,
    vocab_size: int | None,
    min_frequency: int,
    normalization: str | None,
    model_max_length: int | None,
) -> None:
    if model not in TOKENIZER_MODELS:
        raise ValueError(f"model must be one of {', '.join(TOKENIZER_MODELS)}, got {model!r}.")
    if normalization is not None and normalization not in NORMALIZERS:
        raise ValueError(
            f"normalization must be one of {', '.join(NORMALIZERS)} or None, got {normalization!r}."
        )
    numbers = {"vocab_size": vocab_size, "model_max_length": model_max_length}
    for name, value in {"min_frequency": min_frequency, **numbers}.items():
        if (value is None and name in numbers) or (isinstance(value, int) and value >= 1):
            continue
        or_none = " or None" if name in numbers else ""
        raise ValueError(f"{name} must be a whole number of at least 1{or_none}, got {value!r}.")


def _check_extra_tokens(extra_tokens: Sequence[str], style: str) -> None:
    special = STYLES[style].values()
    if isinstance(extra_tokens, str):
        raise ValueError(
            f"extra_tokens must be a sequence of strings, got one string. Pass [{extra_tokens!r}]."
        )
    for token in extra_tokens:
        if not isinstance(token, str) or not token.strip() or token in special:
            raise ValueError(
                "extra_tokens must be strings other than blanks and the special tokens "
                f"{', '.join(special)}, got {token!r}. Leave it out or spell it differently."
            )
    repeated = [token for token, count in Counter(extra_tokens).items() if count > 1]
    if repeated:
        raise ValueError(f"extra_tokens must differ, got {repeated[0]!r} twice. Leave one out.")


def _check_not_empty(units: Sequence[str], plan: _Plan) -> None:
    if not units:
        raise ValueError(
            f"nothing in the texts occurs at least min_frequency={plan.min_frequency} times, so "
            "the vocabulary would be empty. Lower min_frequency or pass more texts."
        )


def _check_room(plan: _Plan, num_needed: int, what: str) -> None:
    needed = len(plan.reserved) + num_needed
    size = plan.vocab_size if plan.vocab_size is not None else plan.num_pieces
    if size < needed:
        raise ValueError(
            f"vocab_size must be at least {needed} here: {len(plan.special)} special tokens, "
            f"{len(plan.extra_tokens)} extra tokens and {what}; got {size}. Raise vocab_size, or "
            "leave out rare characters with min_frequency."
        )
