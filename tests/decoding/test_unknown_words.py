"""Unknown tokens and the source words that take their place."""

import pytest

from hf_seqmodels.data import train_tokenizer
from hf_seqmodels.decoding import replace_unknown_words
from hf_seqmodels.decoding.unknown_words import attended_word, put_in, source_words
from hf_seqmodels.evaluation import alignments, decode_corpus

QUIET = {"progress": False}


def test_unknown_tokens_become_the_word_of_the_highest_attention(attention_model, tokenizer):
    """Words that the tokenizer does not know among them."""
    sources = ["a Ötzi c", "b", "d e New-York f g"]
    targets = [[4, 3, 5, 3, 2], [5, 2], [3, 3, 3, 6, 2]]
    found = replace_unknown_words(
        attention_model, tokenizer, sources, targets, dictionary={"c": "sea"}, **QUIET
    )
    rows = alignments(attention_model, tokenizer, sources, targets, **QUIET)
    for text, source, target, alignment in zip(found, sources, targets, rows, strict=True):
        words = source.split()
        expected = []
        for token, weights in zip(target, alignment.weights, strict=True):
            if token == 3:
                word = words[int(weights[: len(words)].argmax())]  # the end token has no word
                expected.append({"c": "sea"}.get(word, word))
            elif token != 2:
                expected.append("abcdefghijklm"[token - 4])
        assert text == " ".join(expected)


def test_outputs_without_unknown_tokens_stay_as_they_are(rnn, tokenizer):
    options = {"max_new_tokens": 5, "num_beams": 2, "suppress_tokens": [3]}
    sources = ["a b", "c", ""]
    assert replace_unknown_words(rnn, tokenizer, sources, **options, **QUIET) == decode_corpus(
        rnn, tokenizer, sources, **options, **QUIET
    )


def test_unknown_tokens_of_the_decoder_are_replaced(rnn, tokenizer):
    def unknown_then_end(source, tokens):
        return [3] if len(tokens) == 1 else [2]

    (text,) = replace_unknown_words(
        rnn,
        tokenizer,
        ["Ötzi"],
        prefix_allowed_tokens_fn=unknown_then_end,
        max_new_tokens=3,
        **QUIET,
    )
    assert text == "Ötzi"


def test_words_are_those_between_blanks_whatever_the_pieces():
    tokenizer = train_tokenizer(["under water", "water under"] * 9, model="char")
    source = "  under wåter"
    tokens = tokenizer(source)["input_ids"]
    words = source_words(tokenizer, source, len(tokens))
    assert {word for word in words if word} == {(2, "under"), (8, "wåter")}
    assert words[-1] is None  # the end token
    weights = [0.1] * len(tokens)
    weights[words.index((2, "under"))] = 0.15  # one token more than all of the others
    assert attended_word(words, weights) == "under"
    assert attended_word([None, None], [0.5, 0.5]) == ""


def test_words_stand_where_the_unknown_tokens_stood(tokenizer):
    assert put_in(tokenizer, [3, 4, 3, 2, 0], ["X", "<unk>"]) == "X a <unk>"
    assert put_in(tokenizer, [3, 2], [""]) == ""


def test_errors(rnn, tokenizer):
    with pytest.raises(ValueError, match="nothing is generated, so top_k has no effect"):
        replace_unknown_words(rnn, tokenizer, ["a"], [[3]], top_k=3, **QUIET)
    tokenizer.unk_token = None
    with pytest.raises(ValueError, match=r"got unk_token=None\. Decode with decode_corpus"):
        replace_unknown_words(rnn, tokenizer, ["a"])
