"""Links of two directions combined, worked out by hand."""

import pytest

from hf_seqmodels.evaluation import symmetrize

# both have 0-0 and 4-4; 1-1 and 2-2 hang on to 0-0, one after the other; 4-3 gives target 3 its
# first link; 0-4 and 6-6 touch no link that is there, and 0 and 4 have links already
FORWARD = {(0, 0), (1, 1), (4, 4), (0, 4)}
BACKWARD = {(0, 0), (2, 2), (4, 4), (4, 3), (6, 6)}


def test_intersection_and_union_are_those_of_sets():
    assert symmetrize(FORWARD, BACKWARD) == [(0, 0), (4, 4)]
    assert symmetrize(list(FORWARD), BACKWARD, method="union") == sorted(FORWARD | BACKWARD)


def test_links_grow_from_the_intersection():
    grown = [(0, 0), (1, 1), (2, 2), (4, 3), (4, 4)]
    assert symmetrize(FORWARD, BACKWARD, method="grow_diag") == grown
    final = symmetrize(FORWARD, BACKWARD, method="grow_diag_final_and")
    assert final == [*grown, (6, 6)], "6-6 joins two tokens without any link, 0-4 does not"


def test_a_neighbour_between_linked_tokens_is_left_out():
    """0-1 is beside 0-0 and 1-1, but source 0 and target 1 have their links."""
    both = {(0, 0), (1, 1)}
    assert symmetrize(both | {(0, 1)}, both, method="grow_diag") == [(0, 0), (1, 1)]


@pytest.mark.parametrize("method", ["intersection", "union", "grow_diag", "grow_diag_final_and"])
def test_every_method_lies_between_intersection_and_union(method):
    found = set(symmetrize(FORWARD, BACKWARD, method=method))
    assert FORWARD & BACKWARD <= found <= FORWARD | BACKWARD
    assert symmetrize(FORWARD, FORWARD, method=method) == sorted(FORWARD)
    assert symmetrize([], [], method=method) == []


def test_other_methods_are_refused():
    with pytest.raises(ValueError, match=r"method must be one of intersection, .*, got 'grow'"):
        symmetrize([], [], method="grow")
