"""Blocks hold every token once; separate documents are marked off from one another."""

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from hf_seqmodels.data import LanguageModelingCollator, token_blocks, train_tokenizer

DOCUMENTS = [[11, 12, 13, 2], [2], [21, 22, 23, 24, 25, 26, 27, 2], [31, 2]]


@pytest.fixture(scope="module")
def collator():
    return LanguageModelingCollator(train_tokenizer(["abc"], model="char"))


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("block_size", [2, 5, 15, 40])
def test_every_token_stands_in_one_block(block_size, separate):
    blocks = list(token_blocks(DOCUMENTS, block_size, separate=separate))
    joined = [token_id for document in DOCUMENTS for token_id in document]
    assert [token_id for block in blocks for token_id in block["input_ids"]] == joined
    assert all(len(block["input_ids"]) == block_size for block in blocks[:-1])
    assert all(len(row) == len(blocks[-1]["input_ids"]) for row in blocks[-1].values())


def test_separate_documents_begin_at_position_zero_without_a_label():
    blocks = list(token_blocks(DOCUMENTS, 6, separate=True))
    assert [block["position_ids"] for block in blocks] == [
        [0, 1, 2, 3, 0, 0],
        [0, 1, 2, 3, 4, 5],  # goes on, but its row cannot see what was before
        [0, 0, 1],
    ]
    assert [block["labels"] for block in blocks] == [
        [-100, 12, 13, 2, -100, -100],
        [-100, 23, 24, 25, 26, 27],
        [-100, -100, 2],
    ]


def test_joined_documents_predict_one_another():
    blocks = list(token_blocks(DOCUMENTS, 6))
    assert all(block["labels"] == block["input_ids"] for block in blocks)
    assert all("position_ids" not in block for block in blocks)


def test_a_block_without_a_prediction_is_refused():
    with pytest.raises(ValueError, match=r"block_size must be at least 2 .* got 1"):
        list(token_blocks(DOCUMENTS, 1))


def test_full_rows_make_a_batch_without_a_mask(collator):
    batch = collator([{"input_ids": [5, 6, 7]}, {"input_ids": [6, 7, 2]}])
    assert set(batch) == {"input_ids", "labels"}
    assert batch["labels"].tolist() == batch["input_ids"].tolist() == [[5, 6, 7], [6, 7, 2]]


def test_short_rows_are_padded_and_their_padding_is_no_target(collator):
    batch = collator([{"input_ids": [5, 6, 7]}, {"input_ids": [2]}])
    assert batch["input_ids"].tolist() == [[5, 6, 7], [2, 0, 0]]
    assert batch["labels"].tolist() == [[5, 6, 7], [2, -100, -100]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert all(value.dtype == torch.int64 for value in batch.values())


def test_padding_after_separate_documents_is_marked_off_by_its_position(collator):
    rows = list(token_blocks(DOCUMENTS, 6, separate=True))
    batch = collator([rows[0], rows[2]])
    assert set(batch) == {"input_ids", "labels", "position_ids"}
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 0, 0], [0, 0, 1, 0, 0, 0]]
    assert batch["labels"][1].tolist() == [-100, -100, 2, -100, -100, -100]


def test_bad_rows_are_refused(collator):
    with pytest.raises(ValueError, match="at least one row"):
        collator([])
    with pytest.raises(ValueError, match="needs input_ids, got text"):
        collator([{"text": "a"}])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=train_tokenizer(["a"], model="char").backend_tokenizer
    )
    without_pad = LanguageModelingCollator(tokenizer)
    assert without_pad([{"input_ids": [1, 2]}])["input_ids"].tolist() == [[1, 2]]
    with pytest.raises(ValueError, match="need a pad token"):
        without_pad([{"input_ids": [1, 2]}, {"input_ids": [1]}])
