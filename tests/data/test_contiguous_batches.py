"""Rows of a corpus that go on from batch to batch: what each window holds, worked out by hand."""

import itertools

import pytest
import torch
from torch.utils.data import DataLoader

from hf_seqmodels.data.contiguous_batches import ContiguousWindows, collate_windows, join_tokens


def batches_of(windows: ContiguousWindows):
    """Return the batches of an epoch."""
    return list(DataLoader(windows, batch_size=windows.num_rows, collate_fn=collate_windows))


def test_windows_are_those_of_the_picture():
    windows = ContiguousWindows(range(13), num_rows=3, window_size=3)  # a is 0, m is 12
    first, second = batches_of(windows)
    assert first["input_ids"].tolist() == [[0, 1, 2], [4, 5, 6], [8, 9, 10]]
    assert first["labels"].tolist() == [[-100, 1, 2, 3], [-100, 5, 6, 7], [-100, 9, 10, 11]]
    assert second["input_ids"].tolist() == [[3], [7], [11]]
    assert second["labels"].tolist() == [[-100, 4], [-100, 8], [-100, 12]]
    assert [first["starts_row"], second["starts_row"]] == [True, False]


def test_shorter_rows_end_with_a_position_that_predicts_nothing():
    windows = ContiguousWindows(range(12), num_rows=3, window_size=2)
    last = batches_of(windows)[-1]  # 11 predictions: rows of 4, 4 and 3
    assert last["input_ids"].tolist() == [[2, 3], [6, 7], [10, 11]]
    assert last["labels"].tolist() == [[-100, 3, 4], [-100, 7, 8], [-100, 11, -100]]


@pytest.mark.parametrize("varied", [False, True])
@pytest.mark.parametrize(
    ("num_tokens", "num_rows", "window_size"),
    [(2, 1, 1), (13, 12, 4), (101, 7, 5), (50, 3, 1), (997, 4, 70), (23, 2, 500), (400, 3, 9)],
)
def test_every_token_but_the_first_is_predicted_once(num_tokens, num_rows, window_size, varied):
    windows = ContiguousWindows(
        torch.arange(num_tokens), num_rows=num_rows, window_size=window_size, varied=varied
    )
    predicted = []
    for epoch in (0, 1):
        windows.set_epoch(epoch)
        batches = batches_of(windows)
        assert len(windows) == len(batches) * num_rows
        rows = [
            torch.cat([batch["input_ids"][row] for batch in batches]) for row in range(num_rows)
        ]
        for row in rows:  # each reads on where it stopped
            assert row.tolist() == list(range(row[0], row[0] + len(row)))
        predicted = torch.cat([batch["labels"].flatten() for batch in batches])
        assert sorted(predicted[predicted >= 0].tolist()) == list(range(1, num_tokens))
        for batch in batches:
            is_target = batch["labels"][:, 1:] >= 0
            follows = batch["labels"][:, 1:] == batch["input_ids"] + 1
            assert torch.equal(follows, is_target)


def test_processes_share_the_rows_of_one_text():
    options = {"num_rows": 6, "window_size": 4, "varied": True, "seed": 3}
    together = batches_of(ContiguousWindows(range(100), **options))
    parts = [
        batches_of(ContiguousWindows(range(100), **options, process_index=i, num_processes=3))
        for i in range(3)
    ]
    for batch, *shares in zip(together, *parts, strict=True):
        for name in ("input_ids", "labels"):
            assert torch.equal(torch.cat([share[name] for share in shares]), batch[name])


def lengths(windows: ContiguousWindows) -> list[int]:
    """Return the lengths of the windows of the epoch."""
    return [end - start for start, end in itertools.pairwise(windows.window_bounds)]


def test_varied_windows_differ_between_epochs_and_come_back_from_the_seed():
    options = {"num_rows": 2, "window_size": 70, "varied": True}
    windows = ContiguousWindows(torch.arange(20_001), **options, seed=1)
    seen = []
    for epoch in (0, 1, 0):
        windows.set_epoch(epoch)
        seen.append(lengths(windows))
    assert seen[0] == seen[2] != seen[1]
    assert len(seen[0]) == len(seen[1])
    assert lengths(ContiguousWindows(torch.arange(20_001), **options, seed=2)) != seen[0]


def test_varied_windows_have_the_lengths_of_awd_lstm():
    windows = ContiguousWindows(torch.arange(700_001), num_rows=1, window_size=70, varied=True)
    drawn = torch.tensor(lengths(windows), dtype=torch.float64)
    is_short = drawn < 52
    assert is_short.double().mean() == pytest.approx(0.05, abs=0.01)
    assert drawn[~is_short].mean() == pytest.approx(70, abs=1)
    assert drawn[~is_short].std() == pytest.approx(5, abs=0.5)
    assert drawn[is_short].mean() == pytest.approx(35, abs=1)


@pytest.mark.parametrize(
    "corpus",
    [
        torch.arange(7),
        torch.arange(7, dtype=torch.int32),
        list(range(7)),
        range(7),
        [[0, 1, 2], [], [3, 4, 5, 6]],
        [{"input_ids": [0, 1]}, {"input_ids": [2, 3, 4, 5, 6]}],
    ],
)
def test_a_corpus_is_ids_or_documents(corpus):
    assert join_tokens(corpus).tolist() == list(range(7))
    assert join_tokens(corpus).dtype == torch.int64


@pytest.mark.parametrize(
    ("corpus", "options", "message"),
    [
        ([5], {}, "at least two token ids in one sequence.*shape \\(1,\\)"),
        (torch.ones(2, 3), {}, "at least two token ids.*got torch.float32 of the shape \\(2, 3\\)"),
        (range(4), {"num_rows": 4}, "got 4 rows for 4 tokens. Use fewer rows"),
        (range(4), {"num_rows": 0}, "num_rows must be at least 1, got 0"),
        (range(4), {"window_size": 0}, "window_size must be at least 1, got 0"),
        (range(9), {"num_rows": 3, "num_processes": 2}, "a multiple of num_processes, got 3 and 2"),
    ],
)
def test_what_does_not_fit_is_refused(corpus, options, message):
    with pytest.raises(ValueError, match=message):
        ContiguousWindows(corpus, **{"num_rows": 1, "window_size": 2, **options})


def test_items_outside_are_refused():
    windows = ContiguousWindows(range(9), num_rows=2, window_size=2)
    with pytest.raises(IndexError, match=r"index must lie in \[0, 4\), got 4"):
        windows[4]
