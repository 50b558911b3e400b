"""Marian and TransformerSeq2Seq, both ways.

Marian adds positions whose sines fill the first half of a vector and whose cosines fill the second;
ours alternate (Vaswani et al. 2017, section 3.5). So the units of the hidden vectors change places,
in every weight that reads or writes one, which changes no number beyond rounding.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from hf_seqmodels.conversion.common import check_choice, check_options, fill_like, rename_weights
from hf_seqmodels.models.configuration_transformer_seq2seq import TransformerSeq2SeqConfig
from hf_seqmodels.models.layers_positions import SinusoidalPositions
from hf_seqmodels.models.modeling_transformer_seq2seq import (
    TransformerSeq2SeqForConditionalGeneration,
)

# Marian's option: ours, where the value stays
MARIAN_FIELDS = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "encoder_layers": "num_encoder_layers",
    "decoder_layers": "num_decoder_layers",
    "encoder_attention_heads": "num_attention_heads",
    "encoder_ffn_dim": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "scale_embedding": "scale_embedding",
    "dropout": "hidden_dropout",
    "attention_dropout": "attention_dropout",
    "init_std": "initializer_range",
    "tie_word_embeddings": "tie_word_embeddings",
    "use_cache": "use_cache",
    "pad_token_id": "pad_token_id",
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
    "decoder_start_token_id": "decoder_start_token_id",
}
# activations by Marian's name; of several names of one function the last is written
MARIAN_ACTIVATIONS = {
    "gelu_new": "gelu_pytorch_tanh",
    "gelu_pytorch_tanh": "gelu_pytorch_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
MARIAN_NEEDS = {"activation_dropout": 0, "encoder_layerdrop": 0, "decoder_layerdrop": 0}
TRANSFORMER_SEQ2SEQ_NEEDS = {
    "position_embedding": "sinusoidal",
    "norm_position": "post",
    "norm_type": "layer",
    "norm_eps": 1e-5,
    "gated_mlp": False,
    "label_smoothing": 0,
}
ATTENTION = {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "out_proj": "o_proj"}
BLOCK = {
    **{f"self_attn.{theirs}": f"self_attn.{ours}" for theirs, ours in ATTENTION.items()},
    "self_attn_layer_norm": "attention_norm",
    "fc1": "mlp.up_proj",
    "fc2": "mlp.down_proj",
    "final_layer_norm": "mlp_norm",
}
DECODER_BLOCK = {
    **BLOCK,
    **{f"encoder_attn.{theirs}": f"cross_attn.{ours}" for theirs, ours in ATTENTION.items()},
    "encoder_attn_layer_norm": "cross_attention_norm",
}
MODULES = {
    **{f"model.encoder.layers.*.{a}": f"model.encoder.layers.*.{b}" for a, b in BLOCK.items()},
    **{
        f"model.decoder.layers.*.{a}": f"model.decoder.layers.*.{b}"
        for a, b in DECODER_BLOCK.items()
    },
    "model.encoder.embed_tokens": "model.encoder.embed_tokens",
    "model.decoder.embed_tokens": "model.decoder.embed_tokens",
    "lm_head": "lm_head",
}
BIAS, SHARED = "final_logits_bias", "model.shared.weight"  # of Marian, beside the modules
POSITIONS = tuple(f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder"))
TABLES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
WRITES_UNITS = ("o_proj", "down_proj", "norm")  # ours whose outputs are the hidden vectors
READS_UNITS = ("embed_tokens", "q_proj", "k_proj", "v_proj", "up_proj", "lm_head")


def transformer_seq2seq_config_from_marian(config: MarianConfig) -> TransformerSeq2SeqConfig:
    """Return the options with which TransformerSeq2Seq computes what Marian computes.

    Args:
        config: of a Marian.

    Returns:
        A new config.

    Raises:
        ValueError: if an option has no equal here.
    """
    both_sides = {
        "decoder_attention_heads": config.encoder_attention_heads,
        "decoder_ffn_dim": config.encoder_ffn_dim,
    }
    check_options(config, MARIAN_NEEDS | both_sides, "TransformerSeq2Seq")
    check_choice(config, "activation_function", MARIAN_ACTIVATIONS, "TransformerSeq2Seq")
    options: dict[str, Any] = {
        ours: getattr(config, theirs) for theirs, ours in MARIAN_FIELDS.items()
    }
    shares = config.share_encoder_decoder_embeddings
    return TransformerSeq2SeqConfig(
        decoder_vocab_size=None if shares else config.decoder_vocab_size,
        share_embeddings=shares and config.tie_word_embeddings,
        embedding_dropout=config.dropout,
        hidden_act=MARIAN_ACTIVATIONS[config.activation_function],  # pyright: ignore[reportArgumentType]
        norm_position="post",
        use_output_bias=True,
        **options,
    )


def marian_config_from_transformer_seq2seq(config: TransformerSeq2SeqConfig) -> MarianConfig:
    """Return the options with which Marian computes what a TransformerSeq2Seq computes.

    Args:
        config: of a TransformerSeq2Seq.

    Returns:
        A new config.

    Raises:
        ValueError: if an option has no equal in Marian.
    """
    needs = {"embedding_dropout": config.hidden_dropout}
    check_options(config, TRANSFORMER_SEQ2SEQ_NEEDS | needs, "Marian")
    heads = config.num_attention_heads
    if config.num_key_value_heads != heads or heads * (config.head_dim or 0) != config.hidden_size:
        raise ValueError(
            f"Marian splits its width among heads of queries, keys and values alike, got "
            f"hidden_size={config.hidden_size}, num_attention_heads={heads}, "
            f"num_key_value_heads={config.num_key_value_heads}, head_dim={config.head_dim}. Such "
            f"a model cannot be converted."
        )
    activations = {ours: theirs for theirs, ours in MARIAN_ACTIVATIONS.items()}
    return MarianConfig(
        decoder_vocab_size=config.target_vocab_size,
        share_encoder_decoder_embeddings=config.share_embeddings and config.tie_word_embeddings,
        decoder_attention_heads=heads,
        decoder_ffn_dim=config.intermediate_size or 4 * config.hidden_size,
        activation_function=activations[config.hidden_act],
        forced_eos_token_id=None,
        **{theirs: getattr(config, ours) for theirs, ours in MARIAN_FIELDS.items()},
    )


def transformer_seq2seq_state_from_marian(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a MarianMTModel under the names of
    TransformerSeq2SeqForConditionalGeneration.

    Args:
        state: `state_dict()` of the model, or what a checkpoint of it holds.

    Returns:
        A state dict.

    Raises:
        ValueError: if a weight has no counterpart.
    """
    beside = (BIAS, SHARED, *POSITIONS)
    weights: dict[str, Any] = {k: weight for k, weight in state.items() if k not in beside}
    for table in (*TABLES, "lm_head.weight"):  # a checkpoint holds a shared table once
        weights.setdefault(table, state.get(SHARED, weights.get(TABLES[1])))
    ours = rename_weights(weights, MODULES)
    width = ours["lm_head.weight"].shape[1]
    places = torch.argsort(_halves(width))
    ours = {name: _reorder(name, weight, places) for name, weight in ours.items()}
    num_tokens = ours["lm_head.weight"].shape[0]
    bias = state.get(BIAS, ours["lm_head.weight"].new_zeros(1, num_tokens))
    return ours | {"lm_head.bias": bias[0].clone()}


def marian_state_from_transformer_seq2seq(
    state: Mapping[str, Tensor], *, num_positions: int, shared: bool
) -> dict[str, Tensor]:
    """Return the weights of a TransformerSeq2SeqForConditionalGeneration under the names of
    MarianMTModel.

    A model without biases gets biases of zero, which Marian always has.

    Args:
        state: `state_dict()` of the model, or what a checkpoint of it holds.
        num_positions: rows of Marian's table of positions.
        shared: whether source, target and output have one table.

    Returns:
        A state dict.

    Raises:
        ValueError: if a weight has no counterpart.
    """
    weights: dict[str, Any] = dict(state)
    weights.setdefault(TABLES[1], weights[TABLES[0]])
    head = weights.setdefault("lm_head.weight", weights[TABLES[1]])
    bias = weights.pop("lm_head.bias", head.new_zeros(head.shape[0]))
    for name, weight in state.items():
        module, _, kind = name.rpartition(".")
        has_bias = "layers" in name and kind == "weight"
        if has_bias and f"{module}.bias" not in weights:
            weights[f"{module}.bias"] = weight.new_zeros(weight.shape[0])
    places = _halves(head.shape[1])
    theirs = rename_weights(
        {name: _reorder(name, weight, places) for name, weight in weights.items()},
        {ours: theirs for theirs, ours in MODULES.items()},
    )
    waves = SinusoidalPositions(num_positions, head.shape[1])(torch.arange(num_positions)[None])[0]
    table = waves[:, places].to(head.dtype).to(head.device)
    extra = {SHARED: theirs[TABLES[0]]} if shared else {}
    return theirs | {BIAS: bias[None].clone()} | {name: table for name in POSITIONS} | extra


def _halves(width: int) -> Tensor:
    """Return the numbers of our units in Marian's order: those of sines, then those of cosines."""
    units = torch.arange(width)
    return torch.cat([units[0::2], units[1::2]])


def _reorder(name: str, weight: Tensor, places: Tensor) -> Tensor:
    """Return a weight of ours with its hidden units in the order given."""
    module = name.rpartition(".")[0]
    places = places.to(weight.device)
    if module.endswith(WRITES_UNITS):
        return weight[places]
    if module.endswith(READS_UNITS) and weight.dim() == 2:
        return weight[:, places]
    return weight  # a bias of heads, or of the inside of a feed-forward layer


def transformer_seq2seq_from_marian(
    model: MarianMTModel,
) -> TransformerSeq2SeqForConditionalGeneration:
    """Return a TransformerSeq2Seq that computes what a Marian computes.

    Positions count the real tokens here and all tokens there, so a batch must be padded on the
    right to be read alike.

    Args:
        model: stays as it is.

    Returns:
        A new model of the same type, device and mode, with the same generation settings.

    Raises:
        ValueError: if an option has no equal here.
    """
    config = transformer_seq2seq_config_from_marian(model.config)
    converted = TransformerSeq2SeqForConditionalGeneration(config)
    state = transformer_seq2seq_state_from_marian(model.state_dict())
    return fill_like(converted, state, like=model)


def marian_from_transformer_seq2seq(
    model: TransformerSeq2SeqForConditionalGeneration,
) -> MarianMTModel:
    """Return a Marian that computes what a TransformerSeq2Seq computes.

    Args:
        model: stays as it is.

    Returns:
        A new model of the same type, device and mode, with the same generation settings.

    Raises:
        ValueError: if an option has no equal in Marian.
    """
    config = marian_config_from_transformer_seq2seq(model.config)
    state = marian_state_from_transformer_seq2seq(
        model.state_dict(),
        num_positions=config.max_position_embeddings,
        shared=config.share_encoder_decoder_embeddings,
    )
    return fill_like(MarianMTModel(config), state, like=model)
