"""Masks of masked language models: their statistics, whole words, and where they come from."""

import copy
import math

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    RobertaTokenizerFast,
    Trainer,
    TrainingArguments,
)

from hf_seqmodels.data import MaskEpochs, MaskingCollator, WordStarts, train_tokenizer

TEXTS = ["the cat's cradle, a well-known trick (really)!", "no catkin, no cattle; the trickster"]
TEXTS += ["crackling really knows the cradled cat"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS * 3, model="wordpiece", style="bert", vocab_size=90)


@pytest.fixture(scope="module")
def roberta():
    """Byte-level pieces that cut words, as RoBERTa has them."""
    blank = chr(0x120)
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *pre_tokenizers.ByteLevel.alphabet()]
    merges = [("c", "a"), ("ca", "t"), (blank, "t"), (f"{blank}t", "h"), (f"{blank}th", "e")]
    pieces += ["".join(pair) for pair in merges]
    vocab = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    return RobertaTokenizerFast(vocab=vocab, merges=merges)


def random_rows(tokenizer, count, length, seed=0):
    """Rows of ordinary tokens in [CLS] and [SEP], one of them unknown."""
    generator = np.random.default_rng(seed)
    body = generator.integers(5, len(tokenizer), (count, length))
    body[:, length // 2] = tokenizer.unk_token_id
    return [{"input_ids": [2, *row.tolist(), 3]} for row in body]


def within(count, trials, probability):
    """Whether a count lies within five standard deviations of its expectation."""
    spread = math.sqrt(trials * probability * (1 - probability))
    return abs(count - trials * probability) <= 5 * spread


@pytest.mark.parametrize("whole_words", [False, True])
def test_shares_are_those_of_bert_and_special_tokens_are_left_alone(tokenizer, whole_words):
    rows = random_rows(tokenizer, 400, 41)
    original = torch.tensor([row["input_ids"] for row in rows])
    batch = MaskingCollator(tokenizer, whole_word_mask=whole_words)(rows)
    chosen = batch["labels"] != -100
    assert "attention_mask" not in batch  # rows of one length
    assert torch.equal(batch["labels"][chosen], original[chosen])
    assert torch.equal(batch["input_ids"][~chosen], original[~chosen])
    special = torch.isin(original, torch.tensor(tokenizer.all_special_ids))
    assert special.sum() == 3 * len(rows) and not (chosen & special).any()
    counts = chosen.sum(dim=1)
    if whole_words:  # up to the size of the last word that would not fit
        assert counts.max() <= 6 + 8 and 5 <= counts.float().mean() <= 6.2
    else:
        assert set(counts.tolist()) == {round(0.15 * 40)}
    found, total = batch["input_ids"][chosen], int(chosen.sum())
    is_mask, is_same = found == tokenizer.mask_token_id, found == original[chosen]
    other = ~is_mask & ~is_same
    assert within(int(is_mask.sum()), total, 0.8)
    same_by_chance = 0.1 / (len(tokenizer) - 5)
    assert within(int(is_same.sum()), total, 0.1 + same_by_chance)
    assert within(int(other.sum()), total, 0.1 - same_by_chance)
    assert not torch.isin(found[other], torch.tensor(tokenizer.all_special_ids)).any()
    assert len(found[other].unique()) > 0.7 * (len(tokenizer) - 5)  # from the whole vocabulary


def test_every_candidate_is_chosen_equally_often(tokenizer):
    collator, row = MaskingCollator(tokenizer), {"input_ids": [2, *range(5, 25), 3]}
    counts = np.zeros(22)
    for epoch in range(2000):
        counts += collator.mask_row(row, epoch=epoch)["labels"] != -100
    assert counts[0] == counts[-1] == 0
    assert all(within(count, 2000, 3 / 20) for count in counts[1:-1])


@pytest.mark.parametrize(
    ("mask", "random", "expected"), [(1.0, 0.0, "mask"), (0.0, 1.0, "random"), (0.0, 0.0, "same")]
)
def test_replacements_follow_the_options(tokenizer, mask, random, expected):
    collator = MaskingCollator(
        tokenizer, mlm_probability=0.5, mask_replace_prob=mask, random_replace_prob=random
    )
    row = {"input_ids": [2, *[7] * 60, 3]}
    masked = collator.mask_row(row)
    chosen = masked["labels"] != -100
    assert chosen.sum() == 30
    found = set(masked["input_ids"][chosen].tolist())
    if expected == "random":
        assert len(found) > 10 and tokenizer.mask_token_id not in found
    else:
        assert found == {tokenizer.mask_token_id if expected == "mask" else 7}


def test_short_rows_have_one_chosen_token_and_empty_ones_none(tokenizer):
    collator = MaskingCollator(tokenizer)
    labels = collator([{"input_ids": [2, 9, 3]}, {"input_ids": [2, 3]}])["labels"]
    assert labels.tolist() == [[-100, 9, -100], [-100, -100, -100]]
    assert (collator.mask_row({"input_ids": []})["labels"]).tolist() == []
    none = MaskingCollator(tokenizer, mlm_probability=0.0)
    assert (none([{"input_ids": [2, 9, 3]}])["labels"] == -100).all()


def spans(starts):
    return [int(start) for start in np.flatnonzero(starts)]


@pytest.mark.parametrize("model", ["wordpiece", "bpe", "unigram", "char", "word", "symbol"])
def test_words_are_those_of_the_text_for_every_model(model):
    options = {} if model in ("char", "word", "symbol") else {"vocab_size": 80}
    tokenizer = train_tokenizer(TEXTS * 3, model=model, style="bert", **options)
    for text in TEXTS:
        ids = np.array(tokenizer(text, add_special_tokens=False)["input_ids"])
        found = np.split(ids, spans(WordStarts(tokenizer)(ids))[1:])
        words = [tokenizer.decode(part).strip().replace(" ", "") for part in found]
        blanks = text.split()
        if model in ("word", "symbol"):
            assert all(len(part) == 1 for part in found)
        elif model == "wordpiece":
            expected = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)
            assert words == [word for word, _ in expected]
        else:
            assert "".join(words) == "".join(blanks)
            assert set(words) >= {word for word in blanks if word.isalpha()}
            # bpe and unigram know pieces such as "s," or "y)!"
            assert model != "char" or all(word.isalnum() or len(word) == 1 for word in words)


def test_words_of_byte_level_pieces_are_those_of_the_text(roberta):
    encoded = roberta("the cattle, the (theca) café naïve 日本!", add_special_tokens=False)
    words = np.array(encoded.word_ids())
    assert words.max() < len(words) / 2
    found = WordStarts(roberta)(np.array(encoded["input_ids"]))
    assert spans(found) == spans(np.diff(words, prepend=-1) != 0)


def test_a_tokenizer_that_hides_its_words_takes_them_from_the_rows(tokenizer):
    class Hidden:
        backend_tokenizer = None

        def __len__(self):
            return 9

    with pytest.raises(ValueError, match=r"Hidden does not tell: .* Give every row word_ids"):
        WordStarts(Hidden())
    ids = [2, *range(5, 25), 3]
    word_ids = [None, *[0] * 5, *[1] * 5, *[0] * 5, None, *[1] * 4, None]  # two texts
    collator = MaskingCollator(tokenizer, whole_word_mask=True, mlm_probability=0.3)
    seen = set()
    for epoch in range(60):
        row = collator.mask_row({"input_ids": ids, "word_ids": word_ids}, epoch=epoch)
        chosen = np.flatnonzero(row["labels"] != -100)
        seen.add(tuple(chosen.tolist()))
        assert "word_ids" not in row and len(chosen) in (4, 5)
    assert seen == {(*range(1, 6),), (*range(6, 11),), (*range(11, 16),), (*range(17, 21),)}


@pytest.mark.parametrize("kind", ["wordpiece", "roberta"])
def test_whole_words_stay_whole(kind, tokenizer, roberta):
    tokenizer = {"wordpiece": tokenizer, "roberta": roberta}[kind]
    collator = MaskingCollator(tokenizer, whole_word_mask=True, mlm_probability=0.4)
    encoded = tokenizer("the rattle tank tackled a real attic trinket")
    words, ids = encoded.word_ids(), encoded["input_ids"]
    assert len(ids) > 1.5 * len(set(words))
    wanted, shares = round(0.4 * (len(ids) - 2)), []
    for epoch in range(50):
        labels = collator.mask_row({"input_ids": ids}, epoch=epoch)["labels"]
        chosen = {word for word, label in zip(words, labels, strict=True) if label != -100}
        assert (labels != -100).sum() == sum(word in chosen for word in words)
        shares.append((labels != -100).sum())
    assert max(shares) <= max(wanted, 9) and np.mean(shares) > 0.8 * wanted


def rows_of_lengths(tokenizer, lengths):
    return [random_rows(tokenizer, 1, length, seed=length)[0] for length in lengths]


def test_masks_depend_on_seed_epoch_and_row_alone(tokenizer):
    rows = rows_of_lengths(tokenizer, [30, 41, 52, 63])
    collator = MaskingCollator(tokenizer, seed=5)
    together = collator(rows)
    for index, row in enumerate(rows):  # alone, in another order, after other batches
        alone = collator([row])
        width = len(row["input_ids"])
        for name in ("input_ids", "labels"):
            assert torch.equal(together[name][index, :width], alone[name][0])
    assert torch.equal(MaskingCollator(tokenizer, seed=5)(rows)["labels"], together["labels"])
    assert not torch.equal(MaskingCollator(tokenizer, seed=6)(rows)["labels"], together["labels"])
    collator.set_epoch(1)
    later = collator(rows)["labels"]
    assert not torch.equal(later, together["labels"])
    own = [{**row, "mask_epoch": 1} for row in rows]  # a row's own epoch stands above
    assert torch.equal(MaskingCollator(tokenizer, seed=5)(own)["labels"], later)
    assert torch.equal(copy.deepcopy(collator)(rows)["labels"], later)


def test_masks_stay_the_same_from_version_to_version(tokenizer):
    masked = MaskingCollator(tokenizer, seed=1).mask_row({"input_ids": [2, *range(5, 25), 3]})
    assert np.flatnonzero(masked["labels"] != -100).tolist() == [5, 15, 17]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_workers_change_nothing_and_hear_of_epochs(tokenizer, num_workers):
    rows, collator = rows_of_lengths(tokenizer, [20, 30, 40, 50]), MaskingCollator(tokenizer)
    more = {"persistent_workers": True} if num_workers else {}
    loader = DataLoader(rows, batch_size=2, collate_fn=collator, num_workers=num_workers, **more)
    for epoch in (0, 1):
        collator.set_epoch(epoch)
        expected = [collator(rows[:2])["labels"], collator(rows[2:])["labels"]]
        found = [batch["labels"] for batch in loader]
        assert all(map(torch.equal, found, expected))


def test_rows_with_labels_are_only_padded(tokenizer):
    collator = MaskingCollator(tokenizer)
    rows = [collator.mask_row(row) for row in rows_of_lengths(tokenizer, [12, 20])]
    collator.set_epoch(7)
    batch = collator(rows)
    assert batch["labels"].tolist() == [[*rows[0]["labels"], *[-100] * 8], [*rows[1]["labels"]]]
    assert batch["input_ids"][0].tolist() == [*rows[0]["input_ids"], *[0] * 8]
    assert batch["attention_mask"].tolist() == [[1] * 14 + [0] * 8, [1] * 22]


def test_other_columns_are_kept_and_padding_is_never_chosen(tokenizer):
    row = {"input_ids": [2, 9, 3, 8, 3], "token_type_ids": [0, 0, 0, 1, 1]}
    rows = [{**row, "next_sentence_label": 1}]
    rows += [{"input_ids": [2, 7, 3], "token_type_ids": [0, 0, 0], "next_sentence_label": 0}]
    collator = MaskingCollator(tokenizer, pad_to_multiple_of=4)
    batch = collator(rows)
    assert batch["next_sentence_label"].tolist() == [1, 0]
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 0, 0, 0], [0] * 8]
    assert batch["attention_mask"].sum(dim=1).tolist() == [5, 3]
    arrays = MaskingCollator(tokenizer, pad_to_multiple_of=4, return_tensors="np")(rows)
    assert all(np.array_equal(arrays[name], batch[name].numpy()) for name in batch)
    padded = {"input_ids": [2, 9, 8, 8], "attention_mask": [1, 1, 0, 0]}  # a pad like any token
    guided = {"input_ids": [2, 9, 8, 7], "special_tokens_mask": [1, 0, 1, 1]}
    for one in (padded, guided):
        assert collator([one])["labels"].tolist() == [[-100, 9, -100, -100]]


def test_it_is_transformers_collator_with_the_same_options(tokenizer):
    collator = MaskingCollator(tokenizer, mlm=False)
    assert isinstance(collator, DataCollatorForLanguageModeling)
    rows = [{"input_ids": [2, 9, 3], "attention_mask": [1, 1, 1]}]
    expected = DataCollatorForLanguageModeling(tokenizer, mlm=False)(copy.deepcopy(rows))
    assert {name: value.tolist() for name, value in collator(rows).items()} == {
        name: value.tolist() for name, value in expected.items()
    }


def test_a_trainer_masks_every_epoch_anew(tokenizer, tmp_path):
    seen = []

    class Watching(MaskingCollator):
        def torch_call(self, examples):
            batch = super().torch_call(examples)
            seen.append(batch["labels"].clone())
            return batch

    collator = Watching(tokenizer)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=1, num_attention_heads=2
    )
    options = {"report_to": "none", "use_cpu": True, "save_strategy": "no", "disable_tqdm": True}
    options |= {"num_train_epochs": 3, "per_device_train_batch_size": 4}
    rows = random_rows(tokenizer, 4, 20)
    trainer = Trainer(
        BertForMaskedLM(config),
        TrainingArguments(str(tmp_path), **options),
        data_collator=collator,
        train_dataset=rows,
        callbacks=[MaskEpochs(collator)],
    )
    trainer.train()
    plain = MaskingCollator(tokenizer)
    for epoch, labels in enumerate(seen[:3]):
        plain.set_epoch(epoch)
        expected = plain(rows)["labels"]
        assert sorted(labels.tolist()) == sorted(expected.tolist())


REFUSALS = {
    "no mask": ({"style": "text"}, {}, "does not have a mask token"),
    "probability": ({}, {"mlm_probability": 1.5}, "mlm_probability should be between 0 and 1"),
    "sum": ({}, {"random_replace_prob": 0.3}, "should not exceed 1"),
    "not masked": ({}, {"mlm": False, "whole_word_mask": True}, "Leave it out with mlm=False"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_options_that_make_no_masks_are_refused(case):
    of_tokenizer, options, message = REFUSALS[case]
    tokenizer = train_tokenizer(["ab"], model="char", **{"style": "bert", **of_tokenizer})
    with pytest.raises(ValueError, match=message):
        MaskingCollator(tokenizer, **options)


def test_rows_that_do_not_fit_are_refused(tokenizer):
    collator = MaskingCollator(tokenizer, whole_word_mask=True)
    with pytest.raises(ValueError, match=r"vocabulary of \d+ tokens, got ids from 2 to 900"):
        collator([{"input_ids": [2, 900]}])
    with pytest.raises(ValueError, match="word_ids must be as long as input_ids, got 1 and 2"):
        collator([{"input_ids": [2, 9], "word_ids": [0]}])
    with pytest.raises(ValueError, match="at least one row, got none"):
        collator([])
    backend = Tokenizer(models.WordLevel({"a": 0, "[MASK]": 1}, unk_token="a"))
    unpadded = PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="[MASK]")
    with pytest.raises(ValueError, match="a batch needs a pad token"):
        MaskingCollator(unpadded)
