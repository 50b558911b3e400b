"""Where a token stands: learned and sinusoidal vectors, rotations, linear biases.

Shapes: B batch, T tokens read now, K keys so far, D hidden size, H heads, P head width. Positions
count real tokens from 0. Nothing here keeps a table that a checkpoint would have to carry, but the
learned one.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Cache


def is_padding_mask(attention_mask: Any) -> bool:
    """Tell a mask with one value for each token from none, and from one made for attention."""
    return isinstance(attention_mask, Tensor) and attention_mask.dim() == 2


def count_positions(
    attention_mask: Any, *, num_read: int | Tensor, num_new: int, device: torch.device
) -> Tensor:
    """Return how many real tokens stand before each of the new ones.

    Args:
        attention_mask: 1 at real tokens, (B, K) with K = read + new; anything else counts every
            token.
        num_read: tokens read before.
        num_new: tokens read now, T.
        device: of the result.

    Returns:
        Positions, (B, T), or (1, T) without a mask; 0 at padding in front.
    """
    if not is_padding_mask(attention_mask):
        return torch.arange(num_new, device=device)[None] + num_read
    return _count(attention_mask, device)[:, -num_new:]


def _count(attention_mask: Tensor, device: torch.device) -> Tensor:
    return (attention_mask.to(device).bool().cumsum(dim=-1) - 1).clamp(min=0)  # (B, K)


def check_no_holes(attention_mask: Any):
    """Check on the CPU that no padding stands between the tokens of a row.

    A sliding window counts places, of real tokens or not.

    Args:
        attention_mask: 1 at real tokens, (B, K); anything else passes.

    Raises:
        ValueError: if there is padding between tokens.
    """
    can_look = is_padding_mask(attention_mask) and not torch.compiler.is_compiling()
    if can_look and attention_mask.device.type == "cpu":
        starts = F.pad(attention_mask.bool().int(), (1, 0)).diff(dim=-1) == 1  # (B, K)
        row = int(starts.sum(dim=-1).argmax())
        if starts[row].sum() > 1:
            raise ValueError(
                f"With sliding_window, padding must stand before or behind the tokens of a row, "
                f"got padding between them in row {row}. Move it to one side."
            )


class LearnedPositions(nn.Embedding):
    """One learned vector for every position, added to the input (Vaswani et al. 2017, 3.5).

    Args:
        num_positions: rows of the table.
        width: of a vector.
    """

    def __init__(self, num_positions: int, width: int):
        super().__init__(num_positions, width)

    def forward(self, position_ids: Tensor) -> Tensor:
        """Return vectors: (B, T) -> (B, T, D).

        Args:
            position_ids: from 0, (B, T).

        Returns:
            Rows of the table.

        Raises:
            ValueError: if a position lies behind the table, seen on the CPU alone.
        """
        if position_ids.device.type == "cpu" and not torch.compiler.is_compiling():
            last = int(position_ids.max())
            if last >= self.num_embeddings:
                raise ValueError(
                    f"Learned positions end at max_position_embeddings={self.num_embeddings} "
                    f"tokens, got position {last}. Cut the input, or train a model with more "
                    f"positions or another position_embedding."
                )
        return super().forward(position_ids)


class SinusoidalPositions(nn.Module):
    """r_{n,i} = sin(n / L^(i/D)) for even i, cos(n / L^((i-1)/D)) for odd i, with L = 10000.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5.

    Args:
        num_positions: read by no one, the waves have no end.
        width: of a vector, D.
    """

    def __init__(self, num_positions: int, width: int):
        super().__init__()
        self.width = width

    def extra_repr(self) -> str:
        """Say what the printed model shows of the layer."""
        return f"width={self.width}"

    def forward(self, position_ids: Tensor) -> Tensor:
        """Return vectors in float64, or float32 on devices without: (B, T) -> (B, T, D)."""
        is_cpu = position_ids.device.type == "cpu"
        dtype = torch.float64 if is_cpu else torch.float32
        index = torch.arange(self.width, device=position_ids.device)
        is_odd = index % 2
        wave_lengths = 10000.0 ** ((index - is_odd).to(dtype) / self.width)  # (D)
        angles = position_ids[..., None].to(dtype) / wave_lengths  # (B, T, D)
        return torch.where(is_odd == 1, angles.cos(), angles.sin())


ADDED_POSITIONS: dict[str, type[nn.Module]] = {
    "learned": LearnedPositions,
    "sinusoidal": SinusoidalPositions,
}


def rotary_waves(
    position_ids: Tensor, *, head_dim: int, theta: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of n / theta^(2j/P) for position n and pair j.

    Args:
        position_ids: n, (B, T).
        head_dim: P, even.
        theta: base of the wave lengths.
        dtype: of the result; angles are computed in float32 at least.

    Returns:
        Cosines and sines, (B, 1, T, P), the second half of the last axis repeating the first.
    """
    exact = torch.promote_types(dtype, torch.float32)
    pairs = torch.arange(0, head_dim, 2, dtype=exact, device=position_ids.device)
    frequencies = 1.0 / theta ** (pairs / head_dim)  # (P / 2)
    angles = position_ids[:, None, :, None].to(exact) * frequencies  # (B, 1, T, P / 2)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(vectors: Tensor, waves: tuple[Tensor, Tensor]) -> Tensor:
    """Turn the pairs (x_j, x_{j + P/2}) of queries or keys by their angles.

    Source: Su et al. 2021, arXiv:2104.09864, equation 34, in the order of pairs that GPT-NeoX and
    Llama use.

    Args:
        vectors: (B, H, T, P).
        waves: cosines and sines, (B, 1, T, P).

    Returns:
        Turned vectors, (B, H, T, P).
    """
    cosines, sines = waves
    first, second = vectors.chunk(2, dim=-1)
    return vectors * cosines + torch.cat([-second, first], dim=-1) * sines


def alibi_slopes(num_heads: int) -> list[float]:
    """Return the slope of every head: 2^(-8/H), 2^(-16/H), ..., 2^-8 where H is a power of 2.

    For another H: the slopes of the largest power of 2 below, then every other one of the next.
    Source: Press et al. 2022, arXiv:2108.12409, section 3, and the code published with it.

    Args:
        num_heads: H.

    Returns:
        H slopes.
    """
    power = 2 ** (num_heads.bit_length() - 1)  # the largest power of 2 that is not above H
    slopes = [2.0 ** (-8.0 * head / power) for head in range(1, power + 1)]
    finer = [2.0 ** (-4.0 * head / power) for head in range(1, 2 * power + 1, 2)]
    return slopes + finer[: num_heads - power]


ALIBI_IMPLEMENTATIONS = ("eager", "sdpa", "flex_attention")


def check_alibi_implementation(attention_implementation: str | None):
    """Check that an attention implementation takes biases.

    Args:
        attention_implementation: name in transformers' table; None has not been chosen yet.

    Raises:
        ValueError: if it does not.
    """
    if attention_implementation not in (None, *ALIBI_IMPLEMENTATIONS):
        raise ValueError(
            f"position_embedding='alibi' adds biases to the scores, which attn_implementation="
            f"{attention_implementation!r} does not take. Choose one of "
            f"{', '.join(ALIBI_IMPLEMENTATIONS)}, or another position_embedding."
        )


def compared_positions(
    attention_mask: Any,
    position_ids: Tensor | None,
    past_key_values: Cache | None,
    *,
    num_new: int,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """Return where the queries and where the keys stand, to take distances between them.

    Args:
        attention_mask: 1 at real tokens, (B, K); anything else counts every token.
        position_ids: where the new tokens stand, (B, T); read where there is neither mask nor
            cache.
        past_key_values: names the keys that attention will see.
        num_new: T.
        device: of the result.

    Returns:
        Positions of queries, (B or 1, T), and of keys, (B or 1, K).
    """
    if past_key_values is None and attention_mask is None and position_ids is not None:
        return position_ids, position_ids
    num_read, num_keys, first_key = 0, num_new, 0
    if past_key_values is not None:
        num_read = past_key_values.get_seq_length()
        num_keys, first_key = past_key_values.get_mask_sizes(num_new, 0)
    last_key = first_key + num_keys
    if is_padding_mask(attention_mask):
        counts = _count(attention_mask, device)  # (B, tokens so far)
        keys = F.pad(counts, (0, max(0, last_key - counts.shape[1])))
        return counts[:, -num_new:], keys[:, first_key:last_key]
    queries = torch.arange(num_new, device=device) + num_read
    return queries[None], torch.arange(first_key, last_key, device=device)[None]


def alibi_biases(
    query_positions: Tensor, key_positions: Tensor, *, num_heads: int, dtype: torch.dtype
) -> Tensor:
    """Return - slope * distance for every head, the same before a token and behind it.

    Args:
        query_positions: (B, T).
        key_positions: (B, K).
        num_heads: H.
        dtype: of the model; biases are computed in float32 at least.

    Returns:
        Biases on the scores, (B, H, T, K).
    """
    exact = torch.promote_types(dtype, torch.float32)
    slopes = torch.tensor(alibi_slopes(num_heads), dtype=exact, device=query_positions.device)
    distances = (query_positions[:, :, None] - key_positions[:, None, :]).abs()  # (B, T, K)
    return -slopes[:, None, None] * distances[:, None].to(exact)


def join_biases_and_mask(biases: Tensor, mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return biases where a key may be seen, and the lowest number elsewhere.

    Args:
        biases: (B, H, T, K).
        mask: True where a key may be seen, or a number to add, (B, 1 or H, T, K).
        dtype: of the result.

    Returns:
        What to add to the scores, (B, H, T, K).
    """
    lowest = torch.finfo(dtype).min
    if mask.dtype == torch.bool:
        return torch.where(mask, biases.to(dtype), lowest)
    return (mask.to(biases.dtype) + biases).clamp(min=lowest).to(dtype)
