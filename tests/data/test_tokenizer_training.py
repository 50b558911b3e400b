"""The six kinds of tokenizer: what they split, what survives, what they refuse."""

import random
import unicodedata

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from hf_seqmodels.data import TOKENIZER_MODELS, train_tokenizer

TEXTS = [
    "the cat's cradle, the well-known café (really)!",
    "de\u0301ja\u0300 vu and déjà vu: the same to the eye",  # combining marks, then none
    "Ελλάδα «Россия» हिन्दी 日本語 \U0001d4b3 👩\u200d👧",
    "a\ttab and a\nline",
    "two  blanks and one at the end ",
]
LOSSLESS = ("char", "bpe", "unigram")
SINGLE_BLANKS = ("symbol", "wordpiece")


def train(model, texts=TEXTS, **options):
    if model not in ("char", "symbol", "word"):
        options.setdefault("vocab_size", 200)
    return train_tokenizer(texts, model=model, **options)


def round_trip(tokenizer, text):
    return tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True)


def tokens(tokenizer, text):
    return tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])


@pytest.mark.parametrize("model", TOKENIZER_MODELS)
def test_special_ids_and_the_end_token_are_always_the_same(model):
    tokenizer = train(model, extra_tokens=["<en_US>", "<de_DE>"])
    ids = tokenizer.convert_tokens_to_ids(["<pad>", "<s>", "</s>", "<unk>", "<en_US>", "<de_DE>"])
    assert ids == [0, 1, 2, 3, 4, 5]
    named = (
        tokenizer.pad_token_id,
        tokenizer.bos_token_id,
        tokenizer.eos_token_id,
        tokenizer.unk_token_id,
    )
    assert named == (0, 1, 2, 3)
    for text in [*TEXTS, ""]:
        encoding = tokenizer(text)
        assert set(encoding) == {"input_ids", "attention_mask"}
        assert encoding["input_ids"][-1] == 2
        assert 1 not in encoding["input_ids"] and encoding["input_ids"].count(2) == 1
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))


@pytest.mark.parametrize("model", TOKENIZER_MODELS)
def test_decoding_gives_the_text_back(model):
    tokenizer = train(model)
    new_text = " ".join(reversed(TEXTS[0].split(" ")))
    for text in [*TEXTS, new_text, ""]:
        expected = " ".join(text.split()) if model in SINGLE_BLANKS else text
        assert 3 not in tokenizer(text)["input_ids"]
        assert round_trip(tokenizer, text) == expected


@pytest.mark.parametrize("model", LOSSLESS)
def test_blanks_survive_wherever_they_stand(model):
    tokenizer = train(model)
    for text in [" a", "a ", "  a   the  ", " ", "   "]:
        assert round_trip(tokenizer, text) == text


def test_a_word_tokenizer_loses_only_a_blank_at_the_very_beginning():
    tokenizer = train("word", [*TEXTS, " , "])
    assert round_trip(tokenizer, " the  cat's ,") == "the  cat's ,"


def test_what_each_model_takes_for_one_token():
    word = ["\u2581the", "\u2581cat's", "\u2581cradle", ",", "\u2581the", "\u2581well-known"]
    word += ["\u2581café", "\u2581(", "really", ")", "!", "</s>"]
    assert tokens(train("word"), TEXTS[0]) == word
    symbol = ["the", "cat's", "cradle,", "the", "well-known", "café", "(really)!", "</s>"]
    assert tokens(train("symbol"), TEXTS[0]) == symbol
    assert tokens(train("char"), "cafe\u0301 a") == ["c", "a", "f", "e", "\u0301", " ", "a", "</s>"]


def test_symbols_are_phonemes_of_several_characters():
    tokenizer = train_tokenizer(["t͡s ɛː n", "n ɛː t͡s t͡s"], model="symbol")
    assert tokenizer.convert_ids_to_tokens(range(4, len(tokenizer))) == ["t͡s", "n", "ɛː"]
    assert round_trip(tokenizer, "n t͡s ɛː") == "n t͡s ɛː"


@pytest.mark.parametrize("model", TOKENIZER_MODELS)
def test_unknown_characters_become_unk_and_nothing_else_does(model):
    tokenizer = train(model)
    ids = tokenizer("the ☃ same")["input_ids"]
    known = tokenizer("the  same" if model in LOSSLESS else "the same")["input_ids"]
    assert ids.count(3) == 1
    assert [index for index in ids if index != 3] == known or model == "word"
    assert tokenizer.decode(ids, skip_special_tokens=True).split() == ["the", "same"]


@pytest.mark.parametrize("model", ["char", "bpe", "unigram", "wordpiece"])
def test_every_character_is_known_in_every_place(model):
    tokenizer = train(model, ["ab", "cd"])
    for text in ["da", "bbbb", "cabd"]:
        assert round_trip(tokenizer, text) == text


@pytest.mark.parametrize("model", TOKENIZER_MODELS)
def test_extra_tokens_stay_whole_and_survive_decoding(model):
    texts = ["<en_US> the cat", "<de_DE> the cat", "<e the cat en_US de_DE"]
    tokenizer = train(model, texts, extra_tokens=["<de_DE>", "<en_US>", "<e"])
    ids = tokenizer("<en_US> the cat")["input_ids"]
    assert ids[0] == 5 and 4 not in ids and 6 not in ids  # the longest one that fits
    assert round_trip(tokenizer, "<en_US> the cat") == "<en_US> the cat"
    learned = "".join(tokenizer.convert_ids_to_tokens(range(7, len(tokenizer))))
    assert "<" not in learned and ">" not in learned  # what stands in a tag teaches nothing


def test_extra_tokens_may_run_into_the_text():
    for model in TOKENIZER_MODELS:
        tokenizer = train(model, ["<V><PST>walk"], extra_tokens=["<V>", "<PST>"])
        assert tokenizer("<V><PST>walk")["input_ids"][:2] == [4, 5]
        parted = "<V><PST> walk" if model == "word" else "<V> <PST> walk"
        expected = "<V><PST>walk" if model in LOSSLESS else parted
        assert round_trip(tokenizer, "<V><PST>walk") == expected


def test_extra_tokens_are_found_before_lower_casing():
    tokenizer = train_tokenizer(["<V>WALK"], model="char", extra_tokens=["<V>"], lowercase=True)
    assert tokens(tokenizer, "<V>Walk") == ["<V>", "w", "a", "l", "k", "</s>"]


@pytest.mark.parametrize("form", ["nfc", "nfd", "nfkc", "nfkd"])
def test_normalization_is_that_of_the_standard_library(form):
    text = "Ǆ ﬁ é e\u0301 ½ 한"
    tokenizer = train_tokenizer([text], model="char", normalization=form)
    assert round_trip(tokenizer, text) == unicodedata.normalize(form.upper(), text)
    lower = train_tokenizer([text], model="char", normalization=form, lowercase=True)
    assert round_trip(lower, text) == unicodedata.normalize(form.upper(), text).lower()


def test_equally_frequent_units_stand_in_code_point_order():
    tokenizer = train_tokenizer(["b a c", "c"], model="symbol")
    assert tokenizer.convert_ids_to_tokens(range(4, 7)) == ["c", "a", "b"]


@pytest.mark.parametrize(("model", "kept"), [("char", ["a", "b"]), ("symbol", ["aab", "a"])])
def test_vocab_size_keeps_the_most_frequent_units(model, kept):
    texts = ["aab aab aab", "aab a a a", "cb c"]
    texts = [text.replace(" ", "") for text in texts] if model == "char" else texts
    tokenizer = train_tokenizer(texts, model=model, vocab_size=6)
    assert tokenizer.convert_ids_to_tokens(range(4, len(tokenizer))) == kept


@pytest.mark.parametrize("model", ["bpe", "wordpiece", "unigram"])
def test_pieces_fill_the_vocabulary_and_make_texts_shorter(model):
    generator = random.Random(0)
    syllables = [consonant + vowel for consonant in "bdfgklmn" for vowel in "aeiou"]
    stems = ["".join(generator.choices(syllables, k=2)) for _ in range(60)]
    words = [generator.choice(stems) + generator.choice(syllables) for _ in range(300)]
    lengths = []
    for vocab_size in (50, 80, 120):
        tokenizer = train_tokenizer(words, model=model, vocab_size=vocab_size)
        assert vocab_size - 2 <= len(tokenizer) <= vocab_size
        lengths.append(sum(map(len, tokenizer(words)["input_ids"])))
    assert lengths[0] > lengths[1] > lengths[2]
    assert train_tokenizer(words, model=model).vocab_size <= 8000


@pytest.mark.parametrize("model", TOKENIZER_MODELS)
def test_rare_units_become_unk(model):
    texts = ["abab abab abab", "abzb abab", "abab q"]
    tokenizer = train(model, texts, min_frequency=3)
    assert all("z" not in token and "q" not in token for token in tokenizer.get_vocab())
    assert 3 in tokenizer("abzb")["input_ids"]
    assert round_trip(tokenizer, "abab abab") == "abab abab"


@pytest.mark.parametrize("model", ["bpe", "unigram", "wordpiece"])
def test_a_rare_blank_is_left_out_like_any_character(model):
    texts = ["abab"] * 9 + ["ab ab", "ab\u2581ab"]
    tokenizer = train(model, texts, min_frequency=3)
    assert round_trip(tokenizer, "abab") == "abab"
    assert not any("\u2581" in token for token in tokenizer.get_vocab())


@pytest.mark.parametrize("model", TOKENIZER_MODELS)
def test_training_is_deterministic(model):
    states = {train(model, TEXTS * 3).backend_tokenizer.to_str() for _ in range(4)}
    assert len(states) == 1


@pytest.mark.parametrize("model", TOKENIZER_MODELS)
def test_a_generator_does_as_well_as_a_list(model):
    from_list = train(model).backend_tokenizer.to_str()
    assert train(model, (text for text in TEXTS)).backend_tokenizer.to_str() == from_list


@pytest.mark.parametrize("model", TOKENIZER_MODELS)
def test_saved_and_loaded_it_is_the_same(model, tmp_path):
    tokenizer = train(model, extra_tokens=["<b>"], model_max_length=5, lowercase=True)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(loaded, PreTrainedTokenizerFast)
    assert loaded.model_max_length == 5
    assert loaded.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
    for text in TEXTS:
        assert loaded(text, verbose=False)["input_ids"] == tokenizer(text)["input_ids"]
        assert round_trip(loaded, text) == round_trip(tokenizer, text)
    cut = loaded(TEXTS[0], truncation=True)["input_ids"]
    assert len(cut) == 5 and cut[-1] == 2


def test_pairs_of_texts_end_twice():
    tokenizer = train_tokenizer(["ab"], model="char")
    assert tokens(tokenizer, "a") == ["a", "</s>"]
    assert tokenizer("a", "b")["input_ids"] == [4, 2, 5, 2]


def test_spelled_out_special_tokens_are_special():
    tokenizer = train_tokenizer(["a<unk>b", "<s>"], model="char")
    assert tokenizer("a<unk>b</s>")["input_ids"] == [4, 3, 5, 2, 2]
    assert len(tokenizer) == 6


REFUSALS = {
    "unknown model": ({"model": "morpheme"}, "model must be one of char, symbol, .*got 'morpheme'"),
    "no texts": ({"texts": []}, "needs texts to learn from, but there are none"),
    "empty texts": ({"texts": ["", ""]}, "needs texts to learn from, but there are none"),
    "one string": ({"texts": "abc"}, r"must be a sequence of texts, got one string, 'abc'. Pass"),
    "not a text": (
        {"texts": ["a", None]},
        "must be strings, got None of type NoneType as number 1",
    ),
    "surrogate": ({"texts": ["a\ud800"]}, "lone surrogate in number 0"),
    "zero": ({"vocab_size": 0}, "vocab_size must be a whole number of at least 1 or None, got 0"),
    "fraction": ({"vocab_size": 10.5}, "vocab_size must be a whole number .* got 10.5"),
    "frequency": ({"min_frequency": 0}, "min_frequency must be .* at least 1, got 0"),
    "length": ({"model_max_length": -1}, "model_max_length must be .*, got -1"),
    "form": ({"normalization": "NFC"}, "normalization must be one of nfc, .* got 'NFC'"),
    "extra string": ({"extra_tokens": "<b>"}, r"got one string. Pass \['<b>'\]"),
    "extra special": ({"extra_tokens": ["</s>"]}, "special tokens <pad>, .*, got '</s>'"),
    "extra blank": ({"extra_tokens": [" "]}, "strings other than blanks .* got ' '"),
    "extra twice": ({"extra_tokens": ["<b>", "<b>"]}, "must differ, got '<b>' twice"),
    "all rare": ({"min_frequency": 9}, "occurs at least min_frequency=9 times"),
    "no room": ({"vocab_size": 4}, "vocab_size must be at least 5 here: 4 special .* got 4"),
    "no room for characters": (
        {"model": "bpe", "vocab_size": 8, "extra_tokens": ["<b>"]},
        "at least 9 here: 4 special tokens, 1 extra tokens and 4 characters; got 8",
    ),
    "no room for both forms": (
        {"model": "wordpiece", "vocab_size": 9},
        "at least 10 here: .* and 3 characters in two forms each; got 9",
    ),
    "no room for unigrams": ({"model": "unigram", "vocab_size": 7}, "and 4 characters; got 7"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_options_that_make_no_tokenizer_are_refused(case):
    options, message = REFUSALS[case]
    options = {"texts": ["ab c"], "model": "char", **options}
    with pytest.raises(ValueError, match=message):
        train_tokenizer(options.pop("texts"), **options)


@pytest.mark.parametrize("model", TOKENIZER_MODELS)
def test_a_tokenizer_for_prompts_leaves_the_end_open(model, tmp_path):
    texts = ["one two three", "two three four"]
    closed = train_tokenizer(texts, model=model, vocab_size=60)
    open_ended = train_tokenizer(texts, model=model, vocab_size=60, append_eos=False)
    open_ended.save_pretrained(tmp_path)
    reloaded = AutoTokenizer.from_pretrained(tmp_path)
    for tokenizer in (open_ended, reloaded):
        assert tokenizer("two four")["input_ids"] == closed("two four")["input_ids"][:-1]
        assert tokenizer.eos_token_id == 2
