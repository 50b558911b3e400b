"""Where words begin in a row of token ids, for tokenizers of any kind.

What decoding does with tokens tells which of them go on with a word:

| tokenizer | decoder | a token goes on with the word before it if |
|---|---|---|
| BERT, wordpiece | WordPiece | it is written with `##` |
| RoBERTa, GPT-2 | ByteLevel | no blank (`Ġ`) begins it, and letters meet |
| bpe, unigram, word, sentencepiece | Metaspace | no blank (`▁`) begins it, and letters meet |
| char | Fuse | letters meet |
| GPT, XLM | BPEDecoder | the token before it is not written with `</w>` |
| symbol, whole words | none | never |

Letters meet where the last character of the one token and the first of the other are letters, marks
or digits, or parts of characters: punctuation marks are words of their own. A blank that is a token
begins a word, whatever follows.
"""

import json
import unicodedata
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

BLANK = "\u2581"


class WordStarts:
    """Finds where words begin in rows of token ids.

    Args:
        tokenizer: of the rows, of any kind in the table above.

    Raises:
        ValueError: if the tokenizer does not tell how its tokens make up words.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        kinds, settings = _decoders(tokenizer)
        tokens: Any = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        tokens = [token or "" for token in tokens]  # numbers may be left out
        size = len(tokens)
        self.goes_on = np.zeros(size, dtype=bool)  # this token may go on with a word
        self.stays_open = np.ones(size, dtype=bool)  # a word may go on behind this token
        self.is_blank = np.zeros(size, dtype=bool)  # whatever follows belongs to this token
        if not kinds:
            return
        if "WordPiece" in kinds:
            prefix = settings["WordPiece"].get("prefix", "##")
            self.goes_on[:] = [token.startswith(prefix) for token in tokens]
        elif "BPEDecoder" in kinds:
            suffix = settings["BPEDecoder"].get("suffix", "</w>")
            self.goes_on[:] = True
            self.stays_open[:] = [not token.endswith(suffix) for token in tokens]
        elif kinds & {"ByteLevel", "Metaspace", "Replace", "Fuse"}:
            spelled = tokens
            if "ByteLevel" in kinds:
                spelled = [_decoded_bytes(token) for token in tokens]
            elif kinds != {"Fuse"}:
                spelled = [token.replace(BLANK, " ") for token in tokens]
            self.goes_on[:] = [_is_of_word(token[:1]) for token in spelled]
            self.stays_open[:] = [_is_of_word(token[-1:]) for token in spelled]
            self.is_blank[:] = [token == " " for token in spelled]
        else:
            raise _unknown_kind(tokenizer, kinds)

    def __call__(self, token_ids: np.ndarray) -> np.ndarray:
        """Tell which tokens begin a word; special tokens are words of their own or parts of none.

        Args:
            token_ids: of one row, (S,).

        Returns:
            (S,) of bool. The first token always begins one.
        """
        starts = np.ones(len(token_ids), dtype=bool)
        before = token_ids[:-1]
        goes_on = self.goes_on[token_ids[1:]] & self.stays_open[before]
        starts[1:] = ~(goes_on | self.is_blank[before])
        return starts


def _decoders(tokenizer: PreTrainedTokenizerBase) -> tuple[set[str], dict[str, dict[str, Any]]]:
    """Return the kinds of decoders of a tokenizer, and the settings of each."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise _unknown_kind(tokenizer, set())
    decoder = backend.decoder
    if decoder is None:
        return set(), {}
    state = json.loads(decoder.__getstate__())
    steps = state["decoders"] if state["type"] == "Sequence" else [state]
    return {step["type"] for step in steps}, {step["type"]: step for step in steps}


def _decoded_bytes(token: str) -> str:
    """Return the text of a token whose characters stand for bytes; one cut in two stays unread."""
    try:
        return bytes(_BYTE_OF[char] for char in token).decode(errors="replace")
    except KeyError:  # an added token is written as it is
        return token


def _byte_alphabet() -> dict[str, int]:
    """Return the byte for each character of GPT-2's alphabet (Radford et al. 2019).

    A byte that is a printed character stands for itself; the others follow from U+0100 on.
    """
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printed]
    moved = {chr(256 + index): byte for index, byte in enumerate(others)}
    return {chr(byte): byte for byte in printed} | moved


_BYTE_OF = _byte_alphabet()


def _is_of_word(char: str) -> bool:
    """Tell whether a character belongs to a word: a letter, a mark, a digit, or part of one."""
    return char == "\ufffd" or unicodedata.category(char or " ")[0] in "LMN"


def _unknown_kind(tokenizer: PreTrainedTokenizerBase, kinds: set[str]) -> ValueError:
    return ValueError(
        "whole_word_mask needs to know where words begin, but "
        f"{type(tokenizer).__name__} does not tell: its decoder is "
        f"{' + '.join(sorted(kinds)) or 'not one of the tokenizers library'}. Give every row "
        "word_ids, as the tokenizer's encodings have them, or leave whole_word_mask out."
    )
