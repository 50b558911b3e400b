# pyright: basic
"""Computing on the tokens of a batch alone: sequences one behind the other in a single row, and
attention within each of them.

Shapes: B batch, T length, N tokens of all sequences, n sequences of a group, L longest of them, D
hidden size, H heads, G heads of keys and values, P head width.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.masking_utils import find_packed_sequence_indices

GROUPED_IMPLEMENTATIONS = ("eager", "sdpa")  # take one dense batch at a time
LEAST_PADDING = 0.1  # share of a batch below which it is not worth taking it out
SHORTEST_OF_GROUP = 0.75  # of the longest: shorter sequences begin another group


class RealTokens:
    """The tokens of a batch as one row without padding, and the way back.

    Args:
        lengths: tokens of every sequence, each at least 1, in the order of the batch.
        shape: B and T.
        places: where the tokens stand in the flattened batch, (N); None where there is no padding,
            and sequences share rows.
    """

    def __init__(self, lengths: list[int], shape: tuple[int, int], places: Tensor | None):
        self.lengths = lengths
        self.shape = shape
        self.places = places

    def is_worthwhile(self) -> bool:
        """Say whether a batch is computed on faster without its padding."""
        num_places = self.shape[0] * self.shape[1]
        return self.places is None or len(self.places) <= (1 - LEAST_PADDING) * num_places

    def flatten(self, values: Tensor) -> Tensor:
        """Take the tokens out of a batch: (B or 1, T, ..) -> (1, N, ..)."""
        values = values.expand(*self.shape, *values.shape[2:]).flatten(0, 1)
        return (values if self.places is None else values.index_select(0, self.places))[None]

    def restore(self, values: Tensor) -> Tensor:
        """Put them back, with zeros at padding: (1, N, D) -> (B, T, D)."""
        values = values[0]
        if self.places is not None:
            room = values.new_zeros(self.shape[0] * self.shape[1], values.shape[-1])
            values = room.index_copy(0, self.places, values)
        return values.view(*self.shape, -1)

    def kernel_arguments(self, device: torch.device) -> dict[str, Any]:
        """Return where sequences begin and end, as flash kernels of transformers' table take it."""
        ends = torch.tensor([0, *self.lengths], device=device).cumsum(0).to(torch.int32)
        longest = max(self.lengths)
        return {
            "cu_seq_lens_q": ends,
            "cu_seq_lens_k": ends,
            "max_length_q": longest,
            "max_length_k": longest,
        }


def is_flash(implementation: str | None) -> bool:
    """Say whether an attention implementation takes sequences by where they begin and end."""
    return implementation is not None and "flash" in implementation


def find_real_tokens(
    attention_mask: Tensor | None, position_ids: Tensor | None, *, shape: tuple[int, int]
) -> RealTokens | None:
    """Find the sequences of a batch: rows without their padding, or documents that share rows.

    Args:
        attention_mask: 1 at real tokens, (B, T); None means no padding.
        position_ids: where tokens stand, (B or 1, T), read where there is no mask; where they start
            again, another document begins. None means one sequence a row.
        shape: B and T.

    Returns:
        The tokens; None where every row is one sequence from end to end, or no row has a token.
    """
    if attention_mask is not None:
        is_real = attention_mask.bool()
        lengths = [length for length in is_real.sum(dim=-1).tolist() if length]
        if sum(lengths) in (0, is_real.numel()):
            return None
        return RealTokens(lengths, shape, is_real.flatten().nonzero()[:, 0])
    documents = None
    if position_ids is not None:
        documents = find_packed_sequence_indices(position_ids.expand(*shape))
    if documents is None:
        return None
    rows = torch.arange(shape[0], device=documents.device)[:, None] * shape[1]
    _, lengths = torch.unique_consecutive(documents + rows, return_counts=True)
    return RealTokens(lengths.tolist(), shape, None)


class SequenceGroup:
    """Sequences of about the same length, as a dense batch.

    Args:
        starts: first token of every sequence in the row of all, (n).
        lengths: its tokens, (n).
        longest: the largest of them, L.
    """

    def __init__(self, starts: Tensor, lengths: Tensor, longest: int):
        offsets = torch.arange(longest, device=starts.device)
        self.keep_mask = offsets < lengths[:, None]  # (n, L)
        indices = starts[:, None] + offsets * self.keep_mask  # padding reads the first token
        self.shape = tuple(indices.shape)
        self.indices = indices.flatten()  # (n * L)

    def gather(self, states: Tensor) -> Tensor:
        """Return queries, keys or values as a dense batch: (1, H, N, P) -> (n, H, L, P)."""
        by_token = states[0].transpose(0, 1)  # (N, H, P)
        gathered = by_token.index_select(0, self.indices)  # (n * L, H, P)
        return gathered.view(*self.shape, *gathered.shape[1:]).transpose(1, 2)


class SequenceGroups:
    """All sequences of a row, in groups of about the same length.

    Args:
        lengths: tokens of every sequence, in the order of the row.
        device: of the tokens.
    """

    def __init__(self, lengths: Sequence[int], device: torch.device):
        order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
        all_lengths = torch.tensor(lengths)
        all_starts = all_lengths.cumsum(0) - all_lengths
        self.groups = []
        for members in split_by_length(order, lengths):
            chosen = torch.tensor(members)
            starts, sizes = all_starts[chosen].to(device), all_lengths[chosen].to(device)
            self.groups.append(SequenceGroup(starts, sizes, lengths[members[0]]))
        indices = torch.cat([group.indices for group in self.groups])
        is_real = torch.cat([group.keep_mask.flatten() for group in self.groups])
        kept = is_real.nonzero()[:, 0]  # (N)
        self.way_back = torch.empty_like(kept)  # where each token stands in the groups, (N)
        self.way_back[indices[kept]] = kept

    def attend(
        self,
        implementation: Callable[..., tuple[Tensor, Tensor | None]],
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        masks: Sequence[Any],
        **options,
    ) -> tuple[Tensor, None]:
        """Run an attention implementation on one group after the other.

        Args:
            implementation: of transformers' table, or of its signature.
            module: that attends.
            query: (1, H, N, P).
            key: (1, G, N, P).
            value: (1, G, N, P).
            masks: one for each group, in the form that the implementation wants.
            **options: passed on to the implementation.

        Returns:
            Contexts, (1, N, H, P), and no weights.
        """
        contexts = []
        for group, mask in zip(self.groups, masks, strict=True):
            states = (group.gather(states) for states in (query, key, value))
            found, _ = implementation(module, *states, mask, **options)  # (n, L, H, P)
            contexts.append(found.flatten(0, 1))
        return torch.cat(contexts).index_select(0, self.way_back)[None], None


def split_by_length(order: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """Split sequences into groups that a dense batch wastes little on.

    Args:
        order: numbers of the sequences, the longest first.
        lengths: of all, by number.

    Returns:
        Numbers of the sequences of every group, the longest first.
    """
    groups: list[list[int]] = []
    for number in order:
        if groups and lengths[number] >= SHORTEST_OF_GROUP * lengths[groups[-1][0]]:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups
