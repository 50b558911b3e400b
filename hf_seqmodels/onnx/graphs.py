# pyright: basic
"""Models as graphs: functions of tensors alone, with every state an input and an output.

Shapes: B batch, S source length, T tokens read now, P tokens read before, D hidden size, L layers,
H heads, V vocabulary.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel

from hf_seqmodels.models import layers_recurrent, modeling_rnn_lm, modeling_rnn_seq2seq
from hf_seqmodels.models.cache_recurrent import RecurrentCache
from hf_seqmodels.models.layers_recurrent import RecurrentLayer, RecurrentStack, SequenceLayout
from hf_seqmodels.models.outputs import RecurrentEncoderOutput
from hf_seqmodels.onnx.recurrent_ops import ExportedRecurrentLayer

# lengths of the axes of the batch that a graph is traced with: all differ, none is 0 or 1
SIZES = {"batch": 2, "source": 5, "length": 3, "past": 4, "choices": 6}
ROWS = ("batch", "length")


@dataclass(frozen=True)
class Value:
    """An input or output of a graph.

    Args:
        name: in the graph.
        shape: of the tensor; a word is an axis of any length.
        dtype: of the tensor.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: torch.dtype = torch.float32

    @property
    def axes(self) -> dict[int, str]:
        """Axes of any length, by their place."""
        return {place: axis for place, axis in enumerate(self.shape) if isinstance(axis, str)}

    def example(self) -> Tensor:
        """Return a tensor of that shape; integers are ones, which is right for ids and masks."""
        shape = [SIZES[axis] if isinstance(axis, str) else axis for axis in self.shape]
        return torch.ones(shape, dtype=self.dtype)


@dataclass(frozen=True)
class Graph:
    """One function of a model.

    Args:
        module: computes it, from one tensor for each of `inputs`.
        inputs: in order.
        outputs: names, in order.
    """

    module: nn.Module
    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Graphs:
    """All graphs of a model, and how a decoding loop connects them.

    Args:
        kind: "encoder_decoder", "language_model" or "forward".
        graphs: {name of the file: graph}.
        memory: outputs of the encoder that every step reads.
        states: what a step reads as `name` and puts out as `new_name`.
    """

    kind: str
    graphs: Mapping[str, Graph]
    memory: tuple[Value, ...] = ()
    states: tuple[Value, ...] = field(default_factory=tuple)


class TracedLayout(SequenceLayout):
    """`SequenceLayout` without a look at the data: rows are brought into reading order always.

    Args:
        attention_mask: 1 at real tokens, anywhere in the row, (B, S); None means no padding.
        reverse: read every row from its last real token to its first.
        like: (B, S, ...) tensor that gives size and device.
    """

    def __init__(self, attention_mask: Tensor | None, *, reverse: bool, like: Tensor):
        self.keep_mask = self.lengths = self.order = None
        if attention_mask is None:
            assert not reverse, "graphs read sources with their mask"
            return
        self.keep_mask = attention_mask.bool()
        self.lengths = self.keep_mask.sum(dim=1)
        places = torch.arange(like.shape[1])[None]  # (1, S)
        order = torch.where(self.keep_mask, places, places + like.shape[1]).argsort(dim=1)
        if reverse:
            mirrored = self.lengths[:, None] - 1 - places
            order = order.gather(1, torch.where(mirrored >= 0, mirrored, places))
        self.order = order


@contextlib.contextmanager
def traceable(model: PreTrainedModel) -> Iterator[None]:
    """Let a model compute in a form that can be traced, and put it back afterwards.

    Attention runs in its plain form, and recurrent layers become operators of their own.

    Args:
        model: in evaluation mode.

    Yields:
        Nothing.
    """
    config: Any = model.config
    implementation = config._attn_implementation
    stacks = [module for module in model.modules() if isinstance(module, RecurrentStack)]
    layers = [list(stack.layers) for stack in stacks]
    with contextlib.ExitStack() as undo:
        for module in (layers_recurrent, modeling_rnn_lm, modeling_rnn_seq2seq):
            undo.enter_context(patch.object(module, "SequenceLayout", TracedLayout))
        if implementation is not None:
            undo.callback(setattr, config, "_attn_implementation", implementation)
            config._attn_implementation = "eager"
        for stack, originals in zip(stacks, layers, strict=True):
            undo.callback(setattr, stack, "layers", nn.ModuleList(originals))
            typed = [layer for layer in originals if isinstance(layer, RecurrentLayer)]
            stack.layers = nn.ModuleList(ExportedRecurrentLayer(layer) for layer in typed)
        yield


def tokens(name: str, *axes: str) -> Value:
    """Return an input of whole numbers, one for each token."""
    return Value(name, axes or ROWS, torch.int64)


def as_state(value: Value) -> Value:
    """Return the same state after a step."""
    return Value(f"new_{value.name}", value.shape, value.dtype)


# Recurrent states


def recurrent_states(sizes: list[int], num_vectors: int) -> list[Value]:
    """Return the states of layers of these widths, (B, D) each."""
    kinds = ("hidden", "cell")[:num_vectors]
    return [
        Value(f"{kind}_{index}", ("batch", size))
        for index, size in enumerate(sizes)
        for kind in kinds
    ]


def filled_cache(states: list[Tensor], num_vectors: int, num_layers: int) -> RecurrentCache:
    """Return a cache that holds states, `num_vectors` for each layer and one for what is beside."""
    split = num_layers * num_vectors
    layers = [tuple(states[i : i + num_vectors]) for i in range(0, split, num_vectors)]
    layers += [(state,) for state in states[split:]]
    cache = RecurrentCache(len(layers))
    cache.update_states(layers, 0)
    return cache


def cached_states(cache: RecurrentCache) -> list[Tensor]:
    """Return the vectors of a cache one by one."""
    return [part for state in cache.get_states() or () for part in state]


class RnnLanguageModel(nn.Module):
    """(ids, mask of the new tokens, states) -> (logits, states) of RnnLMForCausalLM."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model
        self.stack: Any = model.model.stack
        self.num_vectors: int = self.stack.layers[0].cell.num_states

    def states(self) -> list[Value]:
        """Return the states of all layers."""
        sizes = [layer.rnn.hidden_size for layer in self.stack.layers]
        return recurrent_states(sizes, self.num_vectors)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, *states: Tensor
    ) -> tuple[Tensor, ...]:
        """Read a prompt or one more token of every row."""
        cache = filled_cache(list(states), self.num_vectors, len(self.stack.layers))
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=cache,
            use_cache=True,
            return_dict=True,
        )
        return outputs.logits, *cached_states(outputs.past_key_values)


class RnnEncoder(nn.Module):
    """(source ids, mask) -> (memory, first states of the decoder) of RnnSeq2Seq."""

    def __init__(self, model: Any):
        super().__init__()
        self.encoder = model.model.encoder
        self.decoder = model.model.decoder
        self.config = model.config

    def memory(self) -> list[Value]:
        """Return what the decoder reads of the source at every step."""
        config = self.config
        source, width = ("batch", "source"), config.source_state_size
        if config.attention_scorer is None:
            return [Value("memory_summary", ("batch", width))]
        if config.attention_scorer == "multi_head":
            heads = config.num_attention_heads
            shape = ("batch", heads, "source", config.hidden_size // heads)
            memory = [Value("memory_keys", shape), Value("memory_values", shape)]
            if self.copies_words():
                memory.append(Value("memory_states", (*source, width)))
        else:
            is_plain = config.attention_scorer in ("dot", "scaled_dot")
            key_size = width if is_plain else config.hidden_size
            memory = [Value("memory_keys", (*source, key_size))]
            memory.append(Value("memory_values", (*source, width)))
        if self.copies_words():
            memory.append(tokens("memory_ids", *source))
        return memory

    def copies_words(self) -> bool:
        """Tell whether the output layer reads the source."""
        return bool(getattr(self.config, "pointer_generator", False))

    def states(self) -> list[Value]:
        """Return the states of the decoder."""
        config = self.config
        num_vectors = self.decoder.recurrence.stack.layers[0].cell.num_states
        states = recurrent_states([config.hidden_size] * config.num_decoder_layers, num_vectors)
        if config.input_feeding:
            states.append(Value("fed", ("batch", config.hidden_size)))
        if getattr(config, "coverage_attention", False):
            states.append(Value("coverage", ("batch", "source")))
        return states

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        """Read the source."""
        outputs = self.encoder(input_ids=input_ids, attention_mask=attention_mask, return_dict=True)
        keys, values = self.decoder.project_memory(outputs)
        parts = {
            "memory_summary": outputs.final_hidden_state[:, -1],
            "memory_keys": keys,
            "memory_values": values,
            "memory_states": outputs.last_hidden_state,
            "memory_ids": input_ids,
        }
        memory = [parts[value.name].clone() for value in self.memory()]
        states = [part for state in self.decoder.bridge(outputs) for part in state]
        if self.config.input_feeding:
            states.append(torch.zeros_like(states[0]))
        if getattr(self.config, "coverage_attention", False):
            states.append(torch.zeros_like(input_ids, dtype=states[0].dtype))
        return *memory, *states


class RnnDecoderStep(nn.Module):
    """(target id, source mask, memory, states) -> (logits, weights, states) of RnnSeq2Seq."""

    def __init__(self, model: Any, memory: list[Value]):
        super().__init__()
        self.model = model
        self.names = [value.name for value in memory]
        self.num_layers = model.config.num_decoder_layers
        self.num_vectors = model.model.decoder.recurrence.stack.layers[0].cell.num_states

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, *memory_and_states: Tensor
    ) -> tuple[Tensor, ...]:
        """Read one target token of every row."""
        memory = dict(zip(self.names, memory_and_states, strict=False))
        states = list(memory_and_states[len(memory) :])
        width = self.model.config.source_state_size
        # what no step reads, in the shape that the model checks
        unread = torch.zeros(*attention_mask.shape, width)
        last = states[0].new_zeros(states[0].shape[0], 1, width)
        source_states = memory.get("memory_values", unread)
        if source_states.dim() == 4:
            source_states = memory.get("memory_states", unread)
        summary = memory.get("memory_summary")
        copied: Any = {"source_ids": memory["memory_ids"]} if "memory_ids" in memory else {}
        outputs = self.model(
            attention_mask=attention_mask,
            decoder_input_ids=input_ids,
            encoder_outputs=RecurrentEncoderOutput(
                last_hidden_state=source_states,
                final_hidden_state=last if summary is None else summary[:, None],
                final_cell_state=last,
                attention_keys=memory.get("memory_keys"),
                attention_values=memory.get("memory_values"),
                **copied,
            ),
            past_key_values=filled_cache(states, self.num_vectors, self.num_layers),
            use_cache=True,
            output_attentions="memory_keys" in memory,
            return_dict=True,
        )
        weights = () if outputs.cross_attentions is None else (outputs.cross_attentions[0],)
        return outputs.logits, *weights, *cached_states(outputs.past_key_values)


# Keys and values


def key_value_states(config: Any, num_layers: int, axis: str, prefix: str = "") -> list[Value]:
    """Return keys and values of all layers, (B, G, P, width) each."""
    shape = ("batch", config.num_key_value_heads, axis, config.head_dim)
    return [
        Value(f"{prefix}{kind}_{index}", shape)
        for index in range(num_layers)
        for kind in ("keys", "values")
    ]


def key_value_cache(states: list[Tensor]) -> DynamicCache:
    """Return a cache that holds keys and values, one pair for each layer."""
    cache = DynamicCache()
    for index in range(0, len(states), 2):
        cache.update(states[index], states[index + 1], index // 2)
    return cache


def keys_and_values(cache: Any) -> list[Tensor]:
    """Return the tensors of a cache one by one."""
    return [part for layer in cache.layers for part in (layer.keys, layer.values)]


class TransformerLanguageModel(nn.Module):
    """(ids, mask of the new tokens, mask so far, keys, values) -> (logits, the same longer) of
    DecoderLMForCausalLM."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def states(self) -> list[Value]:
        """Return the mask of the tokens read before, their keys and their values."""
        config = self.model.config
        mask = tokens("past_mask", "batch", "past")
        return [mask, *key_value_states(config, config.num_hidden_layers, "past")]

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, past_mask: Tensor, *states: Tensor
    ) -> tuple[Tensor, ...]:
        """Read a prompt or one more token of every row."""
        mask = torch.cat([past_mask, attention_mask], dim=1)  # (B, P + T)
        num_read = past_mask.sum(dim=1, keepdim=True)  # (B, 1)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=mask,
            position_ids=(num_read + attention_mask.cumsum(dim=1) - 1).clamp(min=0),  # (B, T)
            past_key_values=key_value_cache(list(states)),
            use_cache=True,
            return_dict=True,
        )
        return outputs.logits, mask, *keys_and_values(outputs.past_key_values)


class TransformerEncoder(nn.Module):
    """(source ids, mask) -> keys and values of the source in every decoder layer."""

    def __init__(self, model: Any):
        super().__init__()
        self.encoder = model.model.encoder
        self.layers = model.model.decoder.layers
        self.config = model.config

    def memory(self) -> list[Value]:
        """Return keys and values of the source."""
        return key_value_states(self.config, self.config.num_decoder_layers, "source", "memory_")

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        """Read the source."""
        outputs = self.encoder(input_ids=input_ids, attention_mask=attention_mask, return_dict=True)
        attentions = [layer.cross_attn for layer in self.layers]
        return tuple(
            attention.split_heads(projection(outputs.last_hidden_state))
            for attention in attentions
            for projection in (attention.k_proj, attention.v_proj)
        )


class TransformerDecoderStep(nn.Module):
    """(target id, source mask, memory, keys, values) -> (logits, keys, values) of
    TransformerSeq2Seq."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def states(self) -> list[Value]:
        """Return keys and values of the target."""
        config = self.model.config
        return key_value_states(config, config.num_decoder_layers, "past")

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, *memory_and_states: Tensor
    ) -> tuple[Tensor, ...]:
        """Read one target token of every row."""
        half = len(memory_and_states) // 2
        memory, states = memory_and_states[:half], memory_and_states[half:]
        cache = EncoderDecoderCache(key_value_cache(list(states)), key_value_cache(list(memory)))
        cache.is_updated = dict.fromkeys(range(half // 2), True)
        unread = torch.zeros(*attention_mask.shape, self.model.config.hidden_size)
        outputs = self.model(
            attention_mask=attention_mask,
            decoder_input_ids=input_ids,
            encoder_outputs=(unread,),
            past_key_values=cache,
            use_cache=True,
            return_dict=True,
        )
        return outputs.logits, *keys_and_values(cache.self_attention_cache)


# One forward pass

FORWARD_OUTPUTS = (
    "last_hidden_state",
    "pooler_output",
    "logits",
    "prediction_logits",
    "seq_relationship_logits",
    "start_logits",
    "end_logits",
)


class ForwardPass(nn.Module):
    """(ids, mask, kinds of tokens) -> everything that a model puts out."""

    def __init__(self, model: PreTrainedModel):
        super().__init__()
        self.model = model
        self.has_types = bool(getattr(model.config, "type_vocab_size", 0))

    def inputs(self) -> list[Value]:
        """Return ids, mask and, where there are any, kinds of tokens."""
        is_choice = type(self.model).__name__.endswith("ForMultipleChoice")
        axes = ("batch", "choices", "length") if is_choice else ROWS
        names = ["input_ids", "attention_mask"] + ["token_type_ids"] * self.has_types
        return [tokens(name, *axes) for name in names]

    def named(self, *inputs: Tensor) -> dict[str, Tensor]:
        """Return the outputs by their names."""
        names = [value.name for value in self.inputs()]
        outputs = self.model(**dict(zip(names, inputs, strict=True)), return_dict=True)
        parts = {name: outputs.get(name) for name in FORWARD_OUTPUTS}
        return {name: part for name, part in parts.items() if part is not None}

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, *token_type_ids: Tensor
    ) -> tuple[Tensor, ...]:
        """Read whole texts."""
        return tuple(self.named(input_ids, attention_mask, *token_type_ids).values())
