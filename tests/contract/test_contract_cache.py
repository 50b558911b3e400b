"""Contract, line "cache": tokens read one by one or in chunks give the logits of one whole pass,
also after the cache has been reordered, repeated, selected from or copied."""

import copy

import pytest
import torch

from family_cases import Case
from family_grids import full_groups, representative_cases
from padded_rows import alone, pad_rows, skip_unless_taken
from stepping import Progress, run_in_chunks, without_labels


def assert_chunks_equal_whole(case: Case, model, batch, chunks, *, rows=None, change=None):
    """Assert that chunks give the logits of one pass at every real position.

    Args:
        case: names the sides.
        model: with a cache.
        batch: of the case, 5 target tokens.
        chunks: tokens of each chunk.
        rows: rows to go on with behind the first chunk, in the new order.
        change: does to a cache what the selection of `rows` does to a batch; returns the cache.
    """

    def between(now: Progress):
        if change is not None and not between.done:
            now.cache = change(now.cache)
            now.select_rows(rows)
            between.done = True

    between.done = False
    with torch.no_grad():
        logits = run_in_chunks(case, model, batch, chunks, between=between)
        whole = model(**without_labels(batch), use_cache=False).logits
    keep = batch[case.written_side.keep].bool()
    start = chunks[0]
    torch.testing.assert_close(logits[0][keep[:, :start]], whole[:, :start][keep[:, :start]])
    if rows is not None:
        keep, whole = keep[rows], whole[rows]
    rest = torch.cat(logits[1:], dim=1)
    torch.testing.assert_close(rest[keep[:, start:]], whole[:, start:][keep[:, start:]])


def reorder(cache):
    """Go on with rows 2, 0, 0, as a beam search would."""
    cache.reorder_cache(torch.tensor([2, 0, 0]))
    return cache


def repeat(cache):
    """Go on with every row twice."""
    cache.batch_repeat_interleave(2)
    return cache


def select(cache):
    """Go on with rows 2 and 0."""
    cache.batch_select_indices(torch.tensor([2, 0]))
    return cache


def duplicate(cache):
    """Go on with a copy, and spoil the original."""
    duplicated = copy.deepcopy(cache)
    cache.reset()
    return duplicated


CHANGES = {
    "reorder": (reorder, torch.tensor([2, 0, 0])),
    "repeat": (repeat, torch.tensor([0, 0, 1, 1, 2, 2])),
    "select": (select, torch.tensor([2, 0])),
    "duplicate": (duplicate, torch.tensor([0, 1, 2])),
}


@pytest.mark.parametrize("group", full_groups("cache", generates=True))
def test_chunks_equal_the_whole_after_a_reorder_in_any_combination(group):
    for case in group.cases:
        with case.named():
            model = case.model()
            batch = pad_rows(case, model.config, "mixed").batch
            change, rows = CHANGES["reorder"]
            assert_chunks_equal_whole(case, model, batch, (2, 1, 2), rows=rows, change=change)


@pytest.mark.parametrize("layout", ["right", "left", "holes"])
@pytest.mark.parametrize("case", representative_cases("cache", generates=True))
def test_chunks_equal_the_whole(case, layout):
    skip_unless_taken(case, layout)
    model = case.model()
    batch = pad_rows(case, model.config, layout).batch
    for chunks in ((1, 1, 1, 1, 1), (3, 2), (4, 1)):
        assert_chunks_equal_whole(case, model, batch, chunks)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("case", representative_cases("cache", generates=True))
def test_a_changed_cache_continues_as_its_rows_would(case, change):
    model = case.model()
    batch = pad_rows(case, model.config, "mixed").batch
    function, rows = CHANGES[change]
    assert_chunks_equal_whole(case, model, batch, (2, 1, 2), rows=rows, change=function)


@pytest.mark.parametrize("case", representative_cases("cache", generates=True))
def test_a_cache_counts_the_tokens_it_has_read_and_forgets_on_reset(case):
    model = case.model()
    lengths = []

    def note(now: Progress):
        lengths.append(now.cache.get_seq_length())

    batch = pad_rows(case, model.config, "mixed").batch
    with torch.no_grad():
        first = run_in_chunks(case, model, batch, (2, 1, 2), between=note)
        assert lengths == [2, 3]
        model_input = without_labels(batch)
        cache = model(**model_input, use_cache=True).past_key_values
        cache.reset()
        assert cache.get_seq_length() == 0
        again = model(**model_input, past_key_values=cache, use_cache=True).logits
    keep = batch[case.written_side.keep].bool()
    torch.testing.assert_close(again[keep], torch.cat(first, dim=1)[keep])


@pytest.mark.parametrize("case", representative_cases("cache", generates=True))
def test_a_cache_is_returned_when_asked_for(case):
    model = case.model()
    row = case.rows(model.config)[1]
    inputs = without_labels(alone(case, row))
    with torch.no_grad():
        assert model(**inputs, use_cache=False).past_key_values is None
        default = model(**inputs).past_key_values
        assert (default is not None) == model.config.use_cache
        outputs = model(**inputs, use_cache=True)
        cache = outputs.past_key_values
        next_token = {case.written_side.tokens: inputs[case.written_side.tokens][:, -1:]}
        expected = model(
            **inputs | next_token, past_key_values=copy.deepcopy(cache), use_cache=True
        ).logits
        logits = model(**inputs | next_token, past_key_values=cache, use_cache=False).logits
        torch.testing.assert_close(logits, expected)
