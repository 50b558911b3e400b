"""Positions: each formula against a plain loop, or numbers of its paper."""

import cmath
import math

import pytest
import torch

from hf_seqmodels.models.layers_positions import (
    LearnedPositions,
    SinusoidalPositions,
    alibi_biases,
    alibi_slopes,
    check_no_holes,
    count_positions,
    join_biases_and_mask,
    rotary_waves,
    rotate,
)

POSITIONS = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 0, 1, 900]])  # (B, T)


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoids_are_those_of_the_paper(width):
    vectors = SinusoidalPositions(5, width)(POSITIONS)
    assert vectors.shape == (2, 5, width)
    for row, positions in enumerate(POSITIONS.tolist()):
        for place, n in enumerate(positions):
            for i in range(width):
                wave = math.sin if i % 2 == 0 else math.cos
                expected = wave(n / 10000 ** ((i - i % 2) / width))
                assert vectors[row, place, i].item() == pytest.approx(expected, abs=1e-12)


def test_rotation_is_a_product_of_complex_numbers():
    head_dim, theta = 6, 50.0
    vectors = torch.randn(2, 3, 5, head_dim, dtype=torch.float64)  # (B, H, T, P)
    waves = rotary_waves(POSITIONS, head_dim=head_dim, theta=theta, dtype=torch.float64)
    turned = rotate(vectors, waves)
    half = head_dim // 2
    for row, head, place, pair in torch.cartesian_prod(*map(torch.arange, (2, 3, 5, half))):
        one = vectors[row, head, place]
        angle = POSITIONS[row, place].item() / theta ** (2 * pair.item() / head_dim)
        expected = complex(one[pair], one[pair + half]) * cmath.exp(1j * angle)
        actual = turned[row, head, place]
        assert complex(actual[pair], actual[pair + half]) == pytest.approx(expected, abs=1e-12)


def test_a_rotated_product_depends_on_the_distance_alone():
    query, key = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def product(query_position: int, key_position: int) -> float:
        turned = [
            rotate(one, rotary_waves(torch.tensor([[n]]), head_dim=8, theta=1e4, dtype=one.dtype))
            for one, n in ((query, query_position), (key, key_position))
        ]
        return (turned[0] * turned[1]).sum().item()

    assert product(9, 4) == pytest.approx(product(105, 100), abs=1e-12)
    assert abs(product(9, 4) - product(9, 5)) > 1e-3


def test_slopes_are_those_of_the_paper():
    # Press et al. 2022, section 3: 1/2, 1/4, .., 1/256 for 8 heads; for 16 the steps are halved
    assert alibi_slopes(8) == [0.5**power for power in range(1, 9)]
    assert alibi_slopes(16) == pytest.approx([0.5 ** (power / 2) for power in range(1, 17)])
    # the code of the authors, for 6 heads: those of 4, then the 1st and 3rd of 8
    assert alibi_slopes(6) == [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]
    assert alibi_slopes(1) == [1 / 256]
    assert alibi_slopes(12) == pytest.approx(
        [0.5**power for power in range(1, 9)] + [0.5**power for power in (0.5, 1.5, 2.5, 3.5)]
    )


@pytest.mark.parametrize("as_numbers", [False, True])
def test_biases_are_slopes_times_distances_where_a_key_may_be_seen(as_numbers):
    queries, keys = torch.tensor([[3, 4]]), torch.tensor([[0, 1, 2, 3, 4]])
    biases = alibi_biases(queries, keys, num_heads=3, dtype=torch.float64)  # (1, H, T, K)
    keep = keys[:, None] <= queries[:, :, None]
    lowest = torch.finfo(torch.float64).min
    mask = torch.zeros(keep.shape).double().masked_fill(~keep, lowest) if as_numbers else keep
    joined = join_biases_and_mask(biases, mask[:, None], torch.float64)
    for head, slope in enumerate(alibi_slopes(3)):
        for row, query in enumerate((3, 4)):
            for key in range(5):
                expected = -slope * (query - key) if key <= query else lowest
                assert joined[0, head, row, key].item() == expected


def test_biases_of_half_precision_stay_finite():
    biases = alibi_biases(
        torch.tensor([[5000]]), torch.arange(5001)[None], num_heads=2, dtype=torch.float16
    )
    mask = torch.full((1, 1, 1, 5001), torch.finfo(torch.float16).min, dtype=torch.float16)
    assert join_biases_and_mask(biases, mask, torch.float16).isfinite().all()


def test_positions_count_real_tokens():
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 0, 1, 0, 1], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]])
    expected = [[0, 0, 0, 1, 2], [0, 0, 1, 1, 2], [0, 1, 2, 2, 2], [0, 0, 0, 0, 0]]
    device = torch.device("cpu")
    whole = count_positions(mask, num_read=0, num_new=5, device=device)
    assert whole.tolist() == expected
    rest = count_positions(mask, num_read=3, num_new=2, device=device)
    assert rest.tolist() == [row[3:] for row in expected]
    assert count_positions(None, num_read=3, num_new=2, device=device).tolist() == [[3, 4]]


def test_learned_positions_are_rows_of_a_table_with_an_end():
    positions = LearnedPositions(9, 4)
    assert torch.equal(positions(POSITIONS[:1]), positions.weight[POSITIONS[:1]])
    with pytest.raises(ValueError, match=r"max_position_embeddings=9 tokens, got position 900"):
        positions(POSITIONS)


def test_padding_between_tokens_is_found():
    check_no_holes(torch.tensor([[0, 1, 1], [1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 1, 1]]))
    with pytest.raises(ValueError, match=r"padding between them in row 1\. Move it"):
        check_no_holes(torch.tensor([[0, 1, 1], [1, 0, 1]]))
