# pyright: basic
"""TransformerSeq2Seq as a model of CTranslate2, an engine in C++ for translation on CPU and GPU.

Its own loader of Marian models takes the last row of the tables for padding and starts decoding
from a vector of zeros, so that it changes what a converted model of ours computes. Here weights go
into CTranslate2's general description of a transformer.
"""

from collections.abc import Iterable
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from hf_seqmodels.conversion.common import check_choice
from hf_seqmodels.models.modeling_transformer_seq2seq import (
    TransformerSeq2SeqForConditionalGeneration,
)

# {our activation: its name in CTranslate2}
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_pytorch_tanh": "GELUTanh", "silu": "SWISH"}
POSITIONS = ("sinusoidal", "learned")


def ctranslate2_from_transformer_seq2seq(
    model: TransformerSeq2SeqForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | PathLike,
    *,
    quantization: str | None = None,
) -> Path:
    """Write a TransformerSeq2Seq as a model of CTranslate2, with the same numbers.

    Read it with `ctranslate2.Translator(folder)`, whose `translate_batch` takes rows of tokens:
    `tokenizer.convert_ids_to_tokens(tokenizer(text).input_ids)`.

    Args:
        model: on the CPU; stays as it is.
        tokenizer: of the model, one for both sides or a pair.
        folder: where to; must not exist.
        quantization: "int8", "int16", "float16", ... of CTranslate2; None keeps the type.

    Returns:
        The folder.

    Raises:
        ValueError: if an option of the model has no equal there, or the tokenizer has more tokens
            than the model.
        ImportError: if ctranslate2 is not installed.
        RuntimeError: if the folder exists.
    """

    class ModelConverter(load_ctranslate2().converters.Converter):
        def _load(self) -> Any:
            with torch.no_grad():
                return make_spec(model, tokenizer)

    ModelConverter().convert(str(folder), quantization=quantization)
    return Path(folder)


def load_ctranslate2() -> Any:
    """Return the package, or say how to get it."""
    try:
        return import_module("ctranslate2")
    except ImportError as error:
        raise ImportError(
            "A model of CTranslate2 is written with its package, which is not installed. Run pip "
            "install ctranslate2."
        ) from error


def make_spec(
    model: TransformerSeq2SeqForConditionalGeneration, tokenizer: PreTrainedTokenizerBase
) -> Any:
    """Return CTranslate2's description of a model, with its weights and vocabularies.

    Args:
        model: that is described.
        tokenizer: of the model.

    Returns:
        A `TransformerSpec`.

    Raises:
        ValueError: if an option has no equal.
    """
    specs, config = load_ctranslate2().specs, cast(Any, model.config)
    _check(config)
    spec = specs.TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_attention_heads,
        pre_norm=config.norm_position == "pre",
        activation=getattr(specs.common_spec.Activation, ACTIVATIONS[config.hidden_act]),
        ffn_glu=config.gated_mlp,
        rms_norm=config.norm_type == "rms",
    )
    _fill_side(spec.encoder, spec.encoder.embeddings[0], model.model.encoder)
    _fill_side(spec.decoder, spec.decoder.embeddings, model.model.decoder)
    _fill_linear(spec.decoder.projection, model.lm_head)
    target = getattr(tokenizer, "target_tokenizer", None) or tokenizer
    spec.register_source_vocabulary(list_tokens(tokenizer, config.vocab_size))
    tokens = list_tokens(target, config.target_vocab_size)
    spec.register_target_vocabulary(tokens)
    spec.config.decoder_start_token = tokens[config.decoder_start_token_id]
    spec.config.eos_token = tokens[config.eos_token_id]
    spec.config.layer_norm_epsilon = config.norm_eps
    for name in ("bos_token", "unk_token"):
        if getattr(target, name) is not None:
            setattr(spec.config, name, getattr(target, name))
    return spec


def list_tokens(tokenizer: PreTrainedTokenizerBase, size: int) -> list[str]:
    """Return the tokens of a vocabulary by their ids, with fillers where the model has more.

    Args:
        tokenizer: of one side.
        size: tokens of the model.

    Returns:
        As many tokens.

    Raises:
        ValueError: if the tokenizer has more.
    """
    if len(tokenizer) > size:
        raise ValueError(
            f"The tokenizer must have no more tokens than the model, {size}, got {len(tokenizer)}. "
            f"Pass the one that the model was trained with."
        )
    tokens = {index: token for token, index in tokenizer.get_vocab().items()}
    return [tokens.get(index, f"<filler {index}>") for index in range(size)]


def _check(config: Any) -> None:
    check_choice(config, "position_embedding", POSITIONS, "CTranslate2")
    check_choice(config, "hidden_act", ACTIVATIONS, "CTranslate2")
    heads = config.num_attention_heads
    if config.num_key_value_heads != heads or heads * config.head_dim != config.hidden_size:
        raise ValueError(
            f"CTranslate2 splits the width of an encoder-decoder among heads of queries, keys and "
            f"values alike, got hidden_size={config.hidden_size}, num_attention_heads={heads}, "
            f"num_key_value_heads={config.num_key_value_heads}, head_dim={config.head_dim}. Such "
            f"a model cannot be converted."
        )
    if not isinstance(config.eos_token_id, int):
        raise ValueError(
            f"CTranslate2 ends outputs with one token, got eos_token_id={config.eos_token_id}. "
            f"Set one."
        )


def _fill_side(spec: Any, embeddings: Any, side: Any) -> None:
    config = side.config
    embeddings.weight = side.embed_tokens.weight
    spec.scale_embeddings = side.embedding_scale or 1.0
    places = torch.arange(config.max_position_embeddings)[None]
    spec.position_encodings.encodings = side.positions(places)[0].float()
    if side.norm is not None:
        _fill_norm(spec.layer_norm, side.norm)
    for part, layer in zip(spec.layer, side.layers, strict=True):
        attention, own = layer.self_attn, part.self_attention
        _fuse(own.linear[0], (attention.q_proj, attention.k_proj, attention.v_proj))
        _fill_linear(own.linear[1], attention.o_proj)
        _fill_norm(own.layer_norm, layer.attention_norm)
        if hasattr(layer, "cross_attn"):
            attention, other = layer.cross_attn, part.attention
            _fill_linear(other.linear[0], attention.q_proj)
            _fuse(other.linear[1], (attention.k_proj, attention.v_proj))
            _fill_linear(other.linear[2], attention.o_proj)
            _fill_norm(other.layer_norm, layer.cross_attention_norm)
        _fill_norm(part.ffn.layer_norm, layer.mlp_norm)
        _fill_linear(part.ffn.linear_1, layer.mlp.down_proj)
        if config.gated_mlp:
            _fill_linear(part.ffn.linear_0, layer.mlp.gate_proj)
            _fill_linear(part.ffn.linear_0_noact, layer.mlp.up_proj)
        else:
            _fill_linear(part.ffn.linear_0, layer.mlp.up_proj)


def _fill_linear(spec: Any, layer: nn.Linear) -> None:
    _fuse(spec, (layer,))


def _fuse(spec: Any, layers: Iterable[nn.Linear]) -> None:
    layers = list(layers)
    spec.weight = torch.cat([layer.weight for layer in layers])
    if layers[0].bias is not None:
        spec.bias = torch.cat([layer.bias for layer in layers])


def _fill_norm(spec: Any, norm: Any) -> None:
    spec.gamma = norm.weight
    if isinstance(norm, nn.LayerNorm):
        spec.beta = torch.zeros_like(norm.weight) if norm.bias is None else norm.bias
