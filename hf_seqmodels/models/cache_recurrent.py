# pyright: basic
"""The recurrent state as a transformers cache: what `past_key_values` holds for recurrent
decoders."""

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class RecurrentCacheLayer(CacheLayerMixin):
    """The state that one layer carries from token to token: vectors with the batch first, (B, D)
    each."""

    is_compileable = False  # nothing to compile for: generate() would build 4D masks
    is_croppable = False
    supports_early_init = False

    def __init__(self):
        super().__init__()
        self.states: tuple[Tensor, ...] | None = None
        self.seen_tokens = 0

    def update_state(self, states: tuple[Tensor, ...], num_new_tokens: int) -> None:
        """Replace the state by the one after `num_new_tokens` more tokens."""
        self.states = states
        self.is_initialized = True
        self.seen_tokens += num_new_tokens

    def get_seq_length(self) -> int:
        """Return the number of tokens that the state has read."""
        return self.seen_tokens

    def get_max_length(self) -> int:
        """Return -1: a recurrent state has no length."""
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the sizes of a mask over the new tokens alone: earlier ones cannot be attended
        to."""
        return query_length, 0

    def _map(self, function) -> None:
        if self.states is not None:
            self.states = tuple(function(state) for state in self.states)

    def reset(self) -> None:
        """Forget everything."""
        self.states = None
        self.is_initialized = False
        self.seen_tokens = 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Let row i continue from the state of row `beam_idx[i]`."""
        self._map(lambda state: state.index_select(0, beam_idx.to(state.device)))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the rows at `indices`."""
        self._map(lambda state: state[indices.to(state.device)])

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row `repeats` times in place."""
        self._map(lambda state: state.repeat_interleave(repeats, dim=0))

    def detach(self) -> None:
        """Cut the state off from how it was computed."""
        self._map(Tensor.detach)

    def offload(self) -> None:
        """Move the state to the CPU; the next step moves what it reads back."""
        self._map(lambda state: state.to("cpu", non_blocking=True))

    def prefetch(self) -> None:
        """Do nothing: one vector per row is moved when it is read."""

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse: a recurrent state cannot be unread.

        Args:
            tokens_to_remove: number of tokens to take back.

        Raises:
            ValueError: if it is not zero.
        """
        if tokens_to_remove:
            raise ValueError(
                f"A recurrent state cannot take back tokens, asked for {tokens_to_remove}. "
                "Keep a copy of the cache (copy.deepcopy) at the point to return to, or run "
                "without a cache."
            )

    def lazy_initialization(self, *args, **kwargs) -> None:
        """Do nothing: the first `update_state` sets shapes, type and device."""

    def update(self, *args: Any, **kwargs: Any):
        """Refuse: there are no keys and values here.

        Args:
            *args: keys and values.
            **kwargs: as in transformers.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "A recurrent layer stores states, not keys and values: call update_state()."
        )


class RecurrentCache(Cache):
    """The states of a recurrent decoder: one layer per recurrent layer, in order, and extra vectors
    after them.

    Args:
        num_layers: recurrent layers plus extra carried vectors (the attentional vector of input
            feeding).
    """

    layers: list[RecurrentCacheLayer]

    def __init__(self, num_layers: int):
        super().__init__(layers=[RecurrentCacheLayer() for _ in range(num_layers)])

    @property
    def batch_size(self) -> int:
        """Rows of the state, or -1 before the first step."""
        states = self.layers[0].states
        return -1 if states is None else states[0].shape[0]

    @property
    def is_initialized(self) -> bool:
        """Whether there are states; transformers' own version looks at other kinds of layers."""
        return all(layer.is_initialized for layer in self.layers)

    def get_states(self) -> list[tuple[Tensor, ...]] | None:
        """Return the state of every layer, or None before the first step."""
        states = [layer.states for layer in self.layers if layer.states is not None]
        return states or None

    def update_states(self, states: list[tuple[Tensor, ...]], num_new_tokens: int) -> None:
        """Store the state of every layer after `num_new_tokens` more tokens."""
        for layer, layer_states in zip(self.layers, states, strict=True):
            layer.update_state(layer_states, num_new_tokens)

    def detach(self) -> None:
        """Cut the states off from how they were computed: where truncated backpropagation stops."""
        for layer in self.layers:
            layer.detach()
