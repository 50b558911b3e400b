"""Batches of questions with choices: shapes, filling, losses, errors."""

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForMultipleChoice

from hf_seqmodels import TextEncoderConfig, TextEncoderForMultipleChoice
from hf_seqmodels.data import MultipleChoiceCollator, train_tokenizer
from hf_seqmodels.data.choices import mask_choices

SIZES = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
QUESTIONS = [("ab", ["c", "dd", "abcd"]), ("ba d", ["a", "bc"])]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["abcd "], model="char", style="bert")


@pytest.fixture
def rows(tokenizer):
    rows = []
    for question, choices in QUESTIONS:
        encoded = tokenizer([question] * len(choices), choices)
        rows.append({**encoded, "labels": 1})
    return rows


def test_rows_are_padded_to_choices_and_length(tokenizer, rows):
    batch = MultipleChoiceCollator(tokenizer)(rows)
    assert batch["input_ids"].shape == (2, 3, 9)
    assert batch["labels"].tolist() == [1, 1]
    for number, row in enumerate(rows):
        for choice, ids in enumerate(row["input_ids"]):
            kept = batch["attention_mask"][number, choice].bool()
            assert batch["input_ids"][number, choice][kept].tolist() == ids
            kinds = batch["token_type_ids"][number, choice][kept]
            assert kinds.tolist() == row["token_type_ids"][choice]
    assert not batch["attention_mask"][1, 2].any()
    unlabelled = [{k: v for k, v in row.items() if k != "labels"} for row in rows]
    assert "labels" not in MultipleChoiceCollator(tokenizer)(unlabelled)
    wide = MultipleChoiceCollator(tokenizer, pad_to_multiple_of=8)(rows)
    assert wide["input_ids"].shape == (2, 3, 16)
    wide = MultipleChoiceCollator(tokenizer, max_length=11)(rows)
    assert wide["input_ids"].shape == (2, 3, 11)


@pytest.mark.parametrize("padding_free", ["off", "on"])
def test_filling_changes_no_score_and_never_wins(tokenizer, rows, padding_free):
    torch.manual_seed(0)
    config = TextEncoderConfig(
        vocab_size=len(tokenizer), padding_free=padding_free, intermediate_size=16, **SIZES
    )
    model = TextEncoderForMultipleChoice(config).eval()
    nn.init.constant_(model.score.bias, -50.0)  # every score is low
    collate = MultipleChoiceCollator(tokenizer)
    batch = collate(rows)
    together = model(**batch)
    alone = [model(**collate([row])) for row in rows]
    for number, output in enumerate(alone):
        count = len(rows[number]["input_ids"])
        torch.testing.assert_close(together.logits[number, :count], output.logits[0])
    assert together.logits[1].argmax() < 2
    torch.testing.assert_close(together.loss, sum(output.loss for output in alone) / 2)


def test_scores_of_other_models_are_masked(tokenizer, rows):
    torch.manual_seed(0)
    model = BertForMultipleChoice(
        BertConfig(vocab_size=len(tokenizer), intermediate_size=16, **SIZES)
    ).eval()
    collate = MultipleChoiceCollator(tokenizer)
    batch = collate(rows)
    logits = model(
        **{**batch, "attention_mask": batch["attention_mask"].index_fill(2, torch.tensor([0]), 1)}
    ).logits
    logits = mask_choices(logits, batch["attention_mask"])
    loss = nn.functional.cross_entropy(logits, batch["labels"])
    alone = torch.stack([model(**collate([row])).loss for row in rows])
    torch.testing.assert_close(loss, alone.mean())
    assert logits[1, 2] == torch.finfo(logits.dtype).min


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": 3}, "one of the 3 choices, counted from 0, got 3 in row 0"),
        ({"labels": None}, "got None in row 0 of the batch"),
        ({"input_ids": []}, "every row needs input_ids with at least one choice"),
        ({"attention_mask": [[1]]}, r"'attention_mask': 1.* in row 0 of the batch"),
    ],
)
def test_rows_that_make_no_batch_are_refused(tokenizer, rows, change, message):
    rows[0] = {**rows[0], **change}
    with pytest.raises(ValueError, match=message):
        MultipleChoiceCollator(tokenizer)(rows)
    with pytest.raises(ValueError, match="at least one row"):
        MultipleChoiceCollator(tokenizer)([])
