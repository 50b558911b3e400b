"""Padding and cutting rows of token ids."""

import numpy as np
import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, DataCollatorForSeq2Seq

from hf_seqmodels.data import Seq2SeqCollator, train_tokenizer

ROWS = [
    {"input_ids": [5, 6, 7, 2], "attention_mask": [1, 1, 1, 1], "labels": [4, 2], "locale": "en"},
    {"input_ids": [8, 2], "attention_mask": [1, 1], "labels": [5, 6, 2], "locale": "de"},
    {"input_ids": [2], "attention_mask": [1], "labels": [2], "locale": "fr"},
]


@pytest.fixture
def tokenizer():
    return train_tokenizer(["abcdefg"], model="char")


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("multiple", [None, 3, 8])
def test_padding_is_that_of_transformers_but_for_labels_on_the_left(tokenizer, side, multiple):
    rows = [{name: row[name] for name in row if name != "locale"} for row in ROWS]
    tokenizer.padding_side = side
    theirs = DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=multiple)(rows)
    ours = Seq2SeqCollator(tokenizer, pad_to_multiple_of=multiple, padding_side=side)(ROWS)
    assert set(ours) == {"input_ids", "attention_mask", "labels"}
    assert torch.equal(ours["input_ids"], theirs["input_ids"])
    assert torch.equal(ours["attention_mask"], theirs["attention_mask"])
    tokenizer.padding_side = "right"
    theirs = DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=multiple)(rows)
    assert torch.equal(ours["labels"], theirs["labels"])
    assert all(tensor.dtype == torch.int64 for tensor in ours.values())


def test_rows_are_cut_and_closed_again(tokenizer):
    collator = Seq2SeqCollator(tokenizer, max_source_length=3, max_target_length=2)
    batch = collator([*ROWS, {"input_ids": [4, 5, 6, 7], "attention_mask": [1] * 4, "labels": [9]}])
    assert batch["input_ids"].tolist() == [[5, 6, 2], [8, 2, 0], [2, 0, 0], [4, 5, 6]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]]
    assert batch["labels"].tolist() == [[4, 2], [5, 2], [2, -100], [9, -100]]
    assert ROWS[0]["input_ids"] == [5, 6, 7, 2]


def test_a_row_without_tokens_is_padding_throughout(tokenizer):
    empty = {"input_ids": [], "attention_mask": [], "labels": []}
    batch = Seq2SeqCollator(tokenizer)([empty, ROWS[1]])
    assert batch["input_ids"].tolist() == [[0, 0], [8, 2]]
    assert batch["attention_mask"].tolist() == [[0, 0], [1, 1]]
    assert batch["labels"].tolist() == [[-100] * 3, [5, 6, 2]]
    alone = Seq2SeqCollator(tokenizer)([{"input_ids": [], "labels": []}])
    assert {name: tensor.tolist() for name, tensor in alone.items()} == {
        "input_ids": [[0]],
        "attention_mask": [[0]],
        "labels": [[-100]],
    }


def test_masks_are_made_and_labels_are_optional(tokenizer):
    batch = Seq2SeqCollator(tokenizer)([{"input_ids": [5, 2]}, {"input_ids": np.array([2])}])
    assert set(batch) == {"input_ids", "attention_mask"}
    assert batch["attention_mask"].tolist() == [[1, 1], [1, 0]]
    tensors = [{"input_ids": torch.tensor([5, 2]), "labels": torch.tensor([4])}]
    assert Seq2SeqCollator(tokenizer)(tensors)["labels"].tolist() == [[4]]


def test_decoder_inputs_are_made_where_the_model_can(tokenizer):
    config = BartConfig(
        vocab_size=11,
        d_model=4,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=1,
        decoder_attention_heads=1,
        encoder_ffn_dim=4,
        decoder_ffn_dim=4,
        pad_token_id=0,
        decoder_start_token_id=1,
    )
    collator = Seq2SeqCollator(tokenizer, model=BartForConditionalGeneration(config))
    batch = collator(ROWS)
    assert batch["decoder_input_ids"].tolist() == [[1, 4, 2], [1, 5, 6], [1, 2, 0]]


def test_batches_that_cannot_be_made_are_refused(tokenizer):
    collator = Seq2SeqCollator(tokenizer)
    refusals = [
        ([], "at least one row, got none"),
        ([{"words": "a"}], "each row needs input_ids, got words. Encode"),
        ([ROWS[0], {"input_ids": [2]}], "rows of a batch have attention_mask or none, but row 1"),
        ([{"input_ids": [[2]]}], r"flat list of token ids in each row, got \[\[2\]\] in row 0"),
        ([{"input_ids": [2.5]}], r"flat list of token ids in each row, got \[2.5\] in row 0"),
        ([{"input_ids": [4, 2], "attention_mask": [1]}], "got 1 and 2 in row 0 of the batch"),
    ]
    for rows, message in refusals:
        with pytest.raises(ValueError, match=message):
            collator(rows)


def test_options_out_of_range_are_refused(tokenizer):
    for name in ("max_source_length", "max_target_length", "pad_to_multiple_of"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, or None .* got 0"):
            Seq2SeqCollator(tokenizer, **{name: 0})
    with pytest.raises(ValueError, match="padding_side must be 'right' or 'left', got 'both'"):
        Seq2SeqCollator(tokenizer, padding_side="both")
    tokenizer.pad_token = None
    with pytest.raises(ValueError, match="a batch needs a pad token, but the tokenizer has none"):
        Seq2SeqCollator(tokenizer)
