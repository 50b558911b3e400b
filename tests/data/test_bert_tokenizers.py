"""Tokenizers in the style of BERT: special tokens, pairs, masks, and BERT's own way of cutting."""

import pytest
from transformers import AutoTokenizer, BertTokenizer

from hf_seqmodels.data import TOKENIZER_MODELS, train_tokenizer

TEXTS = [
    "The cat's cradle, the well-known Café (really)!",
    "déjà vu 日本語, the\tsame\u0000 cat",
] * 2
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def train(model, **options):
    if model not in ("char", "symbol", "word"):
        options.setdefault("vocab_size", 120)
    return train_tokenizer(TEXTS, model=model, style="bert", **options)


@pytest.mark.parametrize("model", TOKENIZER_MODELS)
def test_every_model_can_be_that_of_an_encoder(model, tmp_path):
    tokenizer = train(model, extra_tokens=["<b>"], model_max_length=9)
    assert tokenizer.convert_tokens_to_ids([*SPECIAL, "<b>"]) == [0, 1, 2, 3, 4, 5]
    roles = ("pad", "unk", "cls", "sep", "mask")
    assert [getattr(tokenizer, f"{role}_token_id") for role in roles] == [0, 1, 2, 3, 4]
    assert tokenizer.bos_token is None and tokenizer.eos_token is None
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
    for found in (tokenizer, loaded):
        alone = found("the cat", add_special_tokens=False)["input_ids"]
        single = found("the cat")
        assert single["input_ids"] == [2, *alone, 3]
        assert single["token_type_ids"] == [0] * (len(alone) + 2)
        pair = found("the cat", "the cat")
        assert pair["input_ids"] == [2, *alone, 3, *alone, 3]
        assert pair["token_type_ids"] == [0] * (len(alone) + 2) + [1] * (len(alone) + 1)
        assert len(found(TEXTS[0], truncation=True)["input_ids"]) == 9


@pytest.mark.parametrize("model", ["wordpiece", "word", "bpe", "unigram"])
def test_a_mask_stands_for_a_word_and_the_blank_before_it(model):
    tokenizer = train(model)
    ids = tokenizer("the cat's cradle")["input_ids"]
    word = tokenizer("cradle" if model == "wordpiece" else " cradle")["input_ids"][1:-1]
    assert ids[-1 - len(word) : -1] == word
    assert tokenizer("the cat's [MASK]")["input_ids"] == [*ids[: -1 - len(word)], 4, 3]


@pytest.mark.parametrize("lowercase", [True, False])
def test_wordpiece_cuts_texts_as_berts_own_tokenizer(lowercase):
    tokenizer = train("wordpiece", lowercase=lowercase, vocab_size=90)
    theirs = BertTokenizer(vocab=tokenizer.get_vocab(), do_lower_case=lowercase)
    for text in [*TEXTS, "THE café\u0301 is [MASK], don't “quote” a_b 日本!", "x" * 50, ""]:
        assert dict(tokenizer(text)) == dict(theirs(text))
        assert dict(tokenizer(text, "a cat")) == dict(theirs(text, "a cat"))
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids) == theirs.decode(ids)
    assert ("cafe" in tokenizer.decode(tokenizer("Café")["input_ids"])) == lowercase


def test_training_is_deterministic_in_this_style():
    states = {train("wordpiece").backend_tokenizer.to_str() for _ in range(4)}
    assert len(states) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"style": "roberta"}, "style must be one of text, bert, got 'roberta'"),
        ({"extra_tokens": ["[SEP]"]}, r"special tokens \[PAD\], .*, got '\[SEP\]'"),
        ({"vocab_size": 5}, "at least 6 here: 5 special tokens, 0 extra tokens and one unit"),
    ],
)
def test_options_that_make_no_such_tokenizer_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        train_tokenizer(["ab c"], **{"model": "char", "style": "bert", **options})
