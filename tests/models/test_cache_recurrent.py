"""Every method of the recurrent cache, against plain indexing."""

import copy

import pytest
import torch
from transformers.cache_utils import Cache

from hf_seqmodels.models.cache_recurrent import RecurrentCache, RecurrentCacheLayer

B, D, L = 4, 5, 3


def random_states(num_rows: int = B) -> list[tuple[torch.Tensor, ...]]:
    """Return the states of L layers, two vectors each, (B, D)."""
    return [(torch.randn(num_rows, D), torch.randn(num_rows, D)) for _ in range(L)]


def filled_cache(num_tokens: int = 2) -> tuple[RecurrentCache, list[tuple[torch.Tensor, ...]]]:
    """Return a cache after some tokens, and a copy of its states."""
    cache, states = RecurrentCache(L), random_states()
    cache.update_states(states, num_tokens)
    return cache, [tuple(part.clone() for part in state) for state in states]


def assert_states(cache: RecurrentCache, expected):
    """Assert that the cache holds these states, exactly."""
    actual = cache.get_states()
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert isinstance(one, tuple)
        assert len(one) == len(other)
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_an_empty_cache_has_no_states_and_no_length():
    cache = RecurrentCache(L)
    assert isinstance(cache, Cache)
    assert len(cache.layers) == L
    assert cache.get_states() is None
    assert cache.batch_size == -1
    assert cache.get_seq_length() == 0
    assert not cache.is_initialized


def test_update_replaces_the_states_and_counts_the_tokens():
    cache, states = filled_cache(num_tokens=2)
    assert_states(cache, states)
    assert cache.get_seq_length() == 2
    assert cache.batch_size == B
    assert cache.is_initialized
    later = random_states()
    cache.update_states(later, 3)
    assert_states(cache, later)
    assert cache.get_seq_length() == 5
    assert [layer.get_seq_length() for layer in cache.layers] == [5] * L


def test_update_needs_a_state_for_every_layer():
    with pytest.raises(ValueError, match="zip"):
        RecurrentCache(L).update_states(random_states()[:-1], 1)


def test_layers_may_carry_different_numbers_of_vectors():
    cache = RecurrentCache(2)
    states = [(torch.randn(B, D), torch.randn(B, D)), (torch.randn(B, D + 1),)]
    cache.update_states(states, 1)
    cache.reorder_cache(torch.tensor([3, 2, 1, 0]))
    assert_states(cache, [tuple(part.flip(0) for part in state) for state in states])


def test_a_recurrent_state_has_no_greatest_length_and_masks_cover_new_tokens_alone():
    cache, _ = filled_cache()
    assert cache.get_max_length() == -1
    assert cache.layers[0].get_max_length() == -1
    assert cache.get_mask_sizes(7, 0) == (7, 0)
    assert not cache.is_compileable


def test_reorder_lets_each_row_continue_from_its_beam():
    cache, states = filled_cache()
    beams = [2, 0, 0, 3]
    cache.reorder_cache(torch.tensor(beams))
    assert_states(
        cache, [tuple(torch.stack([part[b] for b in beams]) for part in state) for state in states]
    )
    assert cache.get_seq_length() == 2


@pytest.mark.parametrize("indices", [[3, 1], [0], [2, 2, 2, 2, 2]])
def test_select_keeps_the_rows_at_the_indices(indices):
    cache, states = filled_cache()
    cache.batch_select_indices(torch.tensor(indices))
    assert_states(
        cache,
        [tuple(torch.stack([part[b] for b in indices]) for part in state) for state in states],
    )
    assert cache.batch_size == len(indices)


def test_repeat_puts_copies_of_a_row_side_by_side():
    cache, states = filled_cache()
    cache.batch_repeat_interleave(3)
    rows = [b for b in range(B) for _ in range(3)]
    assert_states(
        cache, [tuple(torch.stack([part[b] for b in rows]) for part in state) for state in states]
    )


def test_changes_leave_the_tensors_that_were_stored_as_they_were():
    cache, states = RecurrentCache(L), random_states()
    before = copy.deepcopy(states)
    cache.update_states(states, 1)
    cache.reorder_cache(torch.tensor([1, 0, 3, 2]))
    cache.batch_repeat_interleave(2)
    cache.batch_select_indices(torch.tensor([0, 5]))
    cache.reset()
    for one, other in zip(states, before, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_changes_to_an_empty_cache_change_nothing():
    cache = RecurrentCache(L)
    cache.reorder_cache(torch.tensor([1, 0]))
    cache.batch_repeat_interleave(2)
    cache.batch_select_indices(torch.tensor([0]))
    cache.layers[0].offload()
    cache.layers[0].prefetch()
    assert cache.get_states() is None
    assert cache.get_seq_length() == 0


def test_reset_forgets_everything():
    cache, _ = filled_cache()
    cache.reset()
    assert cache.get_states() is None
    assert cache.get_seq_length() == 0
    assert cache.batch_size == -1
    assert not cache.is_initialized
    states = random_states()
    cache.update_states(states, 1)
    assert_states(cache, states)
    assert cache.get_seq_length() == 1


def test_offload_and_prefetch_keep_the_values():
    cache, states = filled_cache()
    for layer in cache.layers:
        layer.offload()
        assert all(part.device.type == "cpu" for part in layer.states)
        layer.prefetch()
    assert_states(cache, states)


@pytest.mark.parametrize("tokens_to_remove", [1, -2])
def test_crop_refuses_to_unread(tokens_to_remove):
    cache, states = filled_cache()
    with pytest.raises(
        ValueError,
        match=rf"cannot take back tokens, asked for {tokens_to_remove}\. Keep a copy of the cache",
    ):
        cache.layers[0].crop(tokens_to_remove)
    assert_states(cache, states)


def test_crop_of_nothing_changes_nothing():
    cache, states = filled_cache()
    for layer in cache.layers:
        layer.crop(0)
    assert_states(cache, states)


def test_keys_and_values_are_refused():
    with pytest.raises(TypeError, match=r"stores states, not keys and values: call update_state"):
        RecurrentCache(L).update(torch.randn(B, 1, 2, D), torch.randn(B, 1, 2, D), 0)
    with pytest.raises(TypeError, match="update_state"):
        RecurrentCacheLayer().update(torch.randn(B, 1, 2, D), torch.randn(B, 1, 2, D))


def test_a_copy_is_independent():
    cache, states = filled_cache()
    kept = copy.deepcopy(cache)
    cache.update_states(random_states(), 1)
    assert_states(kept, states)
    assert kept.get_seq_length() == 2


def test_states_from_inference_mode_can_be_reordered_outside_it():
    cache = RecurrentCache(L)
    with torch.inference_mode():
        states = random_states()
        cache.update_states(states, 1)
    cache.reorder_cache(torch.tensor([3, 2, 1, 0]))
    assert_states(cache, [tuple(part.flip(0) for part in state) for state in states])
