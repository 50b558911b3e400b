"""Labels of words on rows of tokens, against a plain loop."""

import logging

import pytest

from hf_seqmodels.data.word_labels import labels_of_words, set_prefix_space, word_label_windows
from tiny_tokenizers import TEXTS, TOKENIZERS, bert_tokenizer, roberta_tokenizer

SENTENCES = [TEXTS[0].split(), [], ["naïve"], TEXTS[5].split(), TEXTS[3].split(), ["東京は日本"]]
LABELS = [
    [(7 * place + number) % 5 for place in range(len(words))]
    for number, words in enumerate(SENTENCES)
]


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    tokenizer = TOKENIZERS[request.param]()
    set_prefix_space(tokenizer)
    return tokenizer


@pytest.mark.parametrize("label_all_tokens", [False, True])
def test_labels_are_those_of_a_plain_loop(tokenizer, label_all_tokens):
    columns = word_label_windows(
        tokenizer, SENTENCES, LABELS, label_all_tokens=label_all_tokens, continuing_labels={1: 2}
    )
    assert columns["sentence"] == [0, 2, 3, 4, 5]  # a sentence without words has no row
    for row, number in enumerate(columns["sentence"]):
        expected, ids = [], []
        for word, label in zip(SENTENCES[number], LABELS[number], strict=True):
            pieces = tokenizer([word], is_split_into_words=True, add_special_tokens=False)
            pieces = pieces["input_ids"]
            others = {1: 2}.get(label, label) if label_all_tokens else -100
            expected += [label] + [others] * (len(pieces) - 1)
            ids += pieces
        assert columns["input_ids"][row][1:-1] == ids
        assert columns["labels"][row] == [-100, *expected, -100]


@pytest.mark.parametrize(("max_length", "stride"), [(9, 3), (9, 0), (12, None), (16, 13)])
def test_every_word_of_a_long_sentence_counts_once(tokenizer, max_length, stride):
    words = [word for text in TEXTS for word in text.split()]
    labels = list(range(len(words)))
    columns = word_label_windows(tokenizer, [words], [labels], max_length=max_length, stride=stride)
    assert len(columns["input_ids"]) > 1
    assert max(map(len, columns["input_ids"])) <= max_length
    kept = [label for row in columns["labels"] for label in row if label != -100]
    assert sorted(kept) == labels
    assert sorted(word for row in columns["words"] for word in row) == labels
    assert labels_of_words(columns["labels"], columns, 1) == [labels]
    # and where a word counts, its first token is the one that carries it
    for ids, chosen, positions in zip(
        columns["input_ids"], columns["words"], columns["positions"], strict=True
    ):
        for word, position in zip(chosen, positions, strict=True):
            piece = tokenizer([words[word]], is_split_into_words=True, add_special_tokens=False)
            assert ids[position] == piece["input_ids"][0]


def test_a_word_counts_where_most_of_its_neighbours_are_seen():
    words = ["a"] * 12
    columns = word_label_windows(bert_tokenizer(), [words], max_length=10, stride=4)  # 8 a row
    assert columns["words"] == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def test_all_tokens_of_a_word_are_labelled_in_its_own_window_alone():
    words = ["Zoebellkraków"] * 6
    columns = word_label_windows(
        bert_tokenizer(), [words], [list(range(6))], max_length=16, stride=6, label_all_tokens=True
    )
    for labels, chosen in zip(columns["labels"], columns["words"], strict=True):
        assert set(labels) - {-100} == set(chosen)


def test_words_that_the_tokenizer_drops_become_its_unknown_token(caplog):
    tokenizer = bert_tokenizer()
    words = ["Anna", "\u200b", "\u0301", "Bell"]
    with caplog.at_level(logging.WARNING):
        columns = word_label_windows(tokenizer, [words], [[0, 1, 2, 3]])
    assert "leaves nothing of 2 words ('\\u200b' in sentence 0); each becomes [UNK]" in caplog.text
    assert [label for label in columns["labels"][0] if label != -100] == [0, 1, 2, 3]
    assert words[1] == "\u200b"  # what the caller gave is left alone
    tokenizer.unk_token = None
    with pytest.raises(ValueError, match="no token for word 1 of sentence 0"):
        word_label_windows(tokenizer, [words])


def test_prefix_space_makes_words_read_as_text(tmp_path):
    tokenizer = roberta_tokenizer()
    text = "She was born"
    assert set_prefix_space(tokenizer)
    assert not set_prefix_space(tokenizer)
    ids = tokenizer(text.split(), is_split_into_words=True)["input_ids"]
    assert ids == roberta_tokenizer()(" " + text)["input_ids"]
    tokenizer.save_pretrained(tmp_path)
    again = type(tokenizer).from_pretrained(tmp_path)
    assert again(text.split(), is_split_into_words=True)["input_ids"] == ids
    assert not set_prefix_space(bert_tokenizer())


@pytest.mark.parametrize(
    ("sentences", "labels", "options", "message"),
    [
        ([["a", "b"]], [[0]], {}, "one label per word, got 1 labels for 2 words in sentence 0"),
        (["a b"], None, {}, "a sentence must be a list of words, got 'a b' as sentence 0"),
        ([["a"]], [[0], [1]], {}, "given for every sentence, got 2 for 1"),
        ([["a"]], None, {"max_length": 8, "stride": 6}, "less than the 6 tokens.*got 6"),
        ([["a"]], None, {"max_length": 2}, "less than the 0 tokens"),
    ],
)
def test_bad_input_is_refused(sentences, labels, options, message):
    with pytest.raises(ValueError, match=message):
        word_label_windows(bert_tokenizer(), sentences, labels, **options)
