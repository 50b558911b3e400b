"""Batches by length: complete, within their limits, repeatable, and dealt out by accelerate."""

import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard, prepare_data_loader, skip_first_batches
from torch.utils.data import DataLoader

from hf_seqmodels.data import LengthGroupedBatchSampler, TokenBudgetBatchSampler

NUM_ROWS = 503  # a prime: no batch size divides it


def make_lengths(num_rows=NUM_ROWS, *, pairs=True):
    generator = np.random.default_rng(5)
    sources = generator.integers(1, 40, num_rows)
    targets = np.maximum(1, sources + generator.integers(-4, 9, num_rows))
    return list(zip(sources.tolist(), targets.tolist(), strict=True)) if pairs else sources.tolist()


SAMPLERS = {
    "grouped": lambda **options: LengthGroupedBatchSampler(make_lengths(), 16, **options),
    "grouped by source": lambda **options: LengthGroupedBatchSampler(
        make_lengths(pairs=False), 7, pool_size=3, **options
    ),
    "budget": lambda **options: TokenBudgetBatchSampler(make_lengths(), 900, **options),
    "budget and rows": lambda **options: TokenBudgetBatchSampler(
        make_lengths(pairs=False), 300, max_batch_size=12, **options
    ),
}
each_sampler = pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)


def widths(lengths, batch):
    """Tokens in a batch, padding included, by a plain loop."""
    rows = [lengths[row] if isinstance(lengths[row], tuple) else (lengths[row],) for row in batch]
    return len(rows) * sum(max(side) for side in zip(*rows, strict=True))


def padding_share(lengths, batches):
    real = sum(np.sum(lengths[row]) for batch in batches for row in batch)
    return 1 - real / sum(widths(lengths, batch) for batch in batches)


@each_sampler
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_row_comes_exactly_once_an_epoch(make, shuffle):
    sampler = make(shuffle=shuffle)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert sorted(row for batch in batches for row in batch) == list(range(NUM_ROWS))
        assert len(batches) == len(sampler)  # also the same number in every epoch
        assert all(isinstance(row, int) for batch in batches for row in batch)


@each_sampler
def test_seed_and_epoch_alone_decide_the_order(make):
    orders = {}
    for seed in (0, 1):
        sampler = make(seed=seed)
        for epoch in (0, 1, 2, 0, 1, 2):
            sampler.set_epoch(epoch)
            torch.manual_seed(epoch + seed + len(orders))
            order = str(list(sampler))
            assert orders.setdefault((seed, epoch), order) == order
            assert order == str(list(sampler))
    assert len(set(orders.values())) == len(orders) == 6


@each_sampler
def test_without_shuffling_every_epoch_runs_from_short_to_long(make):
    sampler = make(shuffle=False, seed=0)
    batches = list(sampler)
    sampler.set_epoch(7)
    assert list(sampler) == batches == list(make(shuffle=False, seed=1))
    longest = [sampler.lengths[batch].max() for batch in batches]
    assert longest == sorted(longest)


def test_grouped_batches_are_full_but_for_the_last():
    for shuffle in (True, False):
        sizes = [len(batch) for batch in SAMPLERS["grouped"](shuffle=shuffle)]
        assert sizes == [16] * 31 + [7]
        sampler = SAMPLERS["grouped"](shuffle=shuffle, drop_last=True)
        assert [len(batch) for batch in sampler] == [16] * 31 and len(sampler) == 31
    assert len(LengthGroupedBatchSampler([3] * 32, 16)) == 2
    assert len(list(LengthGroupedBatchSampler([3] * 32, 16))) == 2


def test_budgets_are_kept_and_used():
    lengths = make_lengths()
    batches = list(TokenBudgetBatchSampler(lengths, 900))
    sizes = [widths(lengths, batch) for batch in batches]
    assert max(sizes) <= 900
    assert np.mean(sizes) > 0.9 * 900
    assert max(len(batch) for batch in batches) > 40
    limited = list(TokenBudgetBatchSampler(lengths, 900, max_batch_size=10))
    assert max(len(batch) for batch in limited) == 10
    assert max(widths(lengths, batch) for batch in limited) <= 900


def test_a_budget_of_the_longest_row_is_enough():
    assert [len(batch) for batch in TokenBudgetBatchSampler([(3, 4), (1, 1), (7, 0)], 7)] == [1] * 3
    assert [len(batch) for batch in TokenBudgetBatchSampler([2, 2, 2], 4, shuffle=False)] == [2, 1]


def test_batches_of_similar_length_hold_little_padding():
    lengths = make_lengths(5000)
    order = np.random.default_rng(0).permutation(5000)
    at_random = padding_share(lengths, np.split(order, 250))
    grouped = padding_share(lengths, list(LengthGroupedBatchSampler(lengths, 20)))
    small_pools = padding_share(lengths, list(LengthGroupedBatchSampler(lengths, 20, pool_size=5)))
    budget = padding_share(lengths, list(TokenBudgetBatchSampler(lengths, 1000)))
    assert at_random > 0.4
    assert grouped < 0.10 and budget < 0.05
    assert grouped < small_pools < at_random


def test_shuffling_mixes_lengths_over_the_epoch_and_rows_over_the_batches():
    lengths = make_lengths(4000)
    for sampler in (
        LengthGroupedBatchSampler(lengths, 20),
        TokenBudgetBatchSampler(lengths, 900),
    ):
        batches = list(sampler)
        means = np.array([np.mean([lengths[row] for row in batch]) for batch in batches])
        correlation = np.corrcoef(np.arange(len(means)), means)[0, 1]
        assert abs(correlation) < 4 / len(means) ** 0.5  # four standard errors
        half = means[: len(means) // 2].mean() / means[len(means) // 2 :].mean()
        assert 0.75 < half < 1.33
        sampler.set_epoch(1)
        partners = {frozenset(batch) for batch in batches}
        assert len(partners & {frozenset(batch) for batch in sampler}) < 0.1 * len(batches)


def test_the_incomplete_batch_holds_rows_of_any_length():
    sampler = LengthGroupedBatchSampler(list(range(1, 104)), 10)
    last = []
    for epoch in range(200):
        sampler.set_epoch(epoch)
        last += list(sampler)[-1]
    assert abs(np.mean(last) - 51) < 4 * 30 / len(last) ** 0.5


@each_sampler
@pytest.mark.parametrize("num_processes", [2, 3])
def test_accelerate_deals_every_batch_to_one_process(make, num_processes):
    expected = list(make())
    shards = [
        list(BatchSamplerShard(make(), num_processes, index, even_batches=False))
        for index in range(num_processes)
    ]
    for index, shard in enumerate(shards):
        assert shard == expected[index::num_processes]
    assert sorted(row for shard in shards for batch in shard for row in batch) == [*range(NUM_ROWS)]


@each_sampler
@pytest.mark.parametrize("num_processes", [2, 3])
def test_even_shares_repeat_rows_of_the_first_batches_only(make, num_processes):
    first = {row for batch in list(make())[:num_processes] for row in batch}
    shards = [list(BatchSamplerShard(make(), num_processes, i)) for i in range(num_processes)]
    assert len({len(shard) for shard in shards}) == 1
    counts = np.bincount([row for shard in shards for batch in shard for row in batch])
    assert counts.min() == 1 and len(counts) == NUM_ROWS
    assert set(np.flatnonzero(counts > 1)) <= first


def loader(sampler, **options):
    return prepare_data_loader(
        DataLoader(range(NUM_ROWS), batch_sampler=sampler, collate_fn=list),
        put_on_device=False,
        **options,
    )


@each_sampler
def test_skipping_batches_resumes_an_epoch_exactly(make):
    sampler = make()
    sampler.set_epoch(3)
    expected = list(sampler)
    plain = DataLoader(range(NUM_ROWS), batch_sampler=make(), collate_fn=list)
    plain.batch_sampler.set_epoch(3)
    assert list(skip_first_batches(plain, 5)) == expected[5:]
    prepared = loader(make())
    prepared.set_epoch(3)
    resumed = skip_first_batches(prepared, 5)
    resumed.set_epoch(3)
    assert list(resumed) == expected[5:]


@each_sampler
@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_prepared_loader_hands_the_epoch_on(make, num_processes):
    sampler = make()
    shares = [
        loader(make(), num_processes=num_processes, process_index=index, even_batches=False)
        for index in range(num_processes)
    ]
    for epoch in (0, 1, 2):  # accelerate counts epochs by itself
        sampler.set_epoch(epoch)
        expected = list(sampler)
        for index, share in enumerate(shares):
            assert list(share) == expected[index::num_processes]


def test_no_rows_give_no_batches():
    assert list(LengthGroupedBatchSampler([], 4)) == []
    assert list(TokenBudgetBatchSampler([], 4)) == []
    assert len(LengthGroupedBatchSampler([], 4)) == len(TokenBudgetBatchSampler([], 4)) == 0


def test_limits_and_lengths_out_of_range_are_refused():
    refusals = [
        (lambda: LengthGroupedBatchSampler([1], 0), "batch_size must be at least 1, got 0"),
        (lambda: LengthGroupedBatchSampler([1], 1, pool_size=0), "pool_size must be at least 1"),
        (lambda: TokenBudgetBatchSampler([1], 9, max_batch_size=0), "max_batch_size must be at le"),
        (
            lambda: TokenBudgetBatchSampler([(1, 1), (4, 6)], 9),
            r"must hold the longest row, but row 1 has 10 tokens \(4 \+ 6\) and max_tokens is 9",
        ),
        (lambda: LengthGroupedBatchSampler([1.5], 1), "lengths must be whole numbers.* got 1.5"),
        (lambda: LengthGroupedBatchSampler([(1, 2, 3)], 1), r"or a pair .* got \(1, 2, 3\)"),
        (lambda: LengthGroupedBatchSampler([(1, 2), 3], 1), r"or a pair .* got \(1, 2\)"),
        (lambda: LengthGroupedBatchSampler([3, -1], 1), "cannot be negative, got -1 for row 1"),
    ]
    for make, message in refusals:
        with pytest.raises(ValueError, match=message):
            make()
