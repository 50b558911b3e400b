"""GPT-2 and DecoderLM, both ways."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from hf_seqmodels.conversion.common import check_choice, check_options, fill_like
from hf_seqmodels.models.configuration_decoder_lm import DecoderLMConfig
from hf_seqmodels.models.modeling_decoder_lm import DecoderLMForCausalLM

# GPT-2's option: ours, where the value stays
GPT2_FIELDS = {
    "vocab_size": "vocab_size",
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "norm_eps",
    "embd_pdrop": "embedding_dropout",
    "resid_pdrop": "hidden_dropout",
    "attn_pdrop": "attention_dropout",
    "initializer_range": "initializer_range",
    "tie_word_embeddings": "tie_word_embeddings",
    "use_cache": "use_cache",
    "pad_token_id": "pad_token_id",
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
}
# activations by GPT-2's name; the first two are one function, ours computed in one kernel
GPT2_ACTIVATIONS = {
    "gelu_new": "gelu_pytorch_tanh",
    "gelu_pytorch_tanh": "gelu_pytorch_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
}
GPT2_NEEDS = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}
DECODER_LM_NEEDS = {
    "position_embedding": "learned",
    "norm_position": "pre",
    "norm_type": "layer",
    "gated_mlp": False,
    "scale_embedding": False,
    "sliding_window": None,
    "label_smoothing": 0,
}
# modules of a block, GPT-2's and ours; its linear layers store the transpose
GPT2_NORMS = {"ln_1": "attention_norm", "ln_2": "mlp_norm"}
GPT2_PROJECTIONS = {
    "attn.c_proj": "self_attn.o_proj",
    "mlp.c_fc": "mlp.up_proj",
    "mlp.c_proj": "mlp.down_proj",
}
QUERY_KEY_VALUE = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def decoder_lm_config_from_gpt2(config: GPT2Config) -> DecoderLMConfig:
    """Return the options with which DecoderLM computes what GPT-2 computes.

    Args:
        config: of a GPT-2.

    Returns:
        A new config.

    Raises:
        ValueError: if an option has no equal here.
    """
    check_options(config, GPT2_NEEDS, "DecoderLM")
    check_choice(config, "activation_function", GPT2_ACTIVATIONS, "DecoderLM")
    options: dict[str, Any] = {
        ours: getattr(config, theirs) for theirs, ours in GPT2_FIELDS.items()
    }
    options["hidden_act"] = GPT2_ACTIVATIONS[config.activation_function]
    return DecoderLMConfig(intermediate_size=config.n_inner, **options)


def gpt2_config_from_decoder_lm(config: DecoderLMConfig) -> GPT2Config:
    """Return the options with which GPT-2 computes what a DecoderLM computes.

    Args:
        config: of a DecoderLM.

    Returns:
        A new config.

    Raises:
        ValueError: if an option has no equal in GPT-2.
    """
    check_options(config, DECODER_LM_NEEDS, "GPT-2")
    heads = config.num_attention_heads
    if config.num_key_value_heads != heads or heads * (config.head_dim or 0) != config.hidden_size:
        raise ValueError(
            f"GPT-2 splits its width among heads of queries, keys and values alike, got "
            f"hidden_size={config.hidden_size}, num_attention_heads={heads}, "
            f"num_key_value_heads={config.num_key_value_heads}, head_dim={config.head_dim}. Such "
            f"a model cannot be converted."
        )
    activations = {ours: theirs for theirs, ours in reversed(GPT2_ACTIVATIONS.items())}
    return GPT2Config(
        n_inner=config.intermediate_size,
        activation_function=activations[config.hidden_act],
        **{theirs: getattr(config, ours) for theirs, ours in GPT2_FIELDS.items()},
    )


def decoder_lm_state_from_gpt2(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a GPT2LMHeadModel under the names of DecoderLMForCausalLM.

    Args:
        state: `state_dict()` of the model, or what a checkpoint of it holds.

    Returns:
        A state dict; tensors share their memory with `state` where their layout is the same.
    """
    ours = {
        "model.embed_tokens.weight": state["transformer.wte.weight"],
        "model.positions.weight": state["transformer.wpe.weight"],
        "model.norm.weight": state["transformer.ln_f.weight"],
        "model.norm.bias": state["transformer.ln_f.bias"],
    }
    ours["lm_head.weight"] = state.get("lm_head.weight", ours["model.embed_tokens.weight"])
    num_layers = sum(name.endswith(".attn.c_attn.weight") for name in state)
    for index in range(num_layers):
        block, layer = f"transformer.h.{index}.", f"model.layers.{index}."
        for kind in ("weight", "bias"):
            for theirs, name in GPT2_NORMS.items():
                ours[f"{layer}{name}.{kind}"] = state[f"{block}{theirs}.{kind}"]
            for theirs, name in GPT2_PROJECTIONS.items():
                ours[f"{layer}{name}.{kind}"] = _transposed(state[f"{block}{theirs}.{kind}"])
            joined = _transposed(state[f"{block}attn.c_attn.{kind}"])  # (3 D, D) or (3 D)
            for name, part in zip(QUERY_KEY_VALUE, joined.chunk(3), strict=True):
                ours[f"{layer}{name}.{kind}"] = part.contiguous()
    return ours


def gpt2_state_from_decoder_lm(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a DecoderLMForCausalLM under the names of GPT2LMHeadModel.

    A model without biases gets biases of zero, which GPT-2 always has.

    Args:
        state: `state_dict()` of the model, or what a checkpoint of it holds.

    Returns:
        A state dict; tensors share their memory with `state` where their layout is the same.
    """

    def part(name: str, kind: str) -> Tensor:
        weight = state[f"{name}.weight"]
        if kind == "weight":
            return weight
        return state.get(f"{name}.bias", weight.new_zeros(weight.shape[0]))

    theirs = {
        "transformer.wte.weight": state["model.embed_tokens.weight"],
        "transformer.wpe.weight": state["model.positions.weight"],
    }
    theirs["lm_head.weight"] = state.get("lm_head.weight", theirs["transformer.wte.weight"])
    num_layers = sum(name.endswith(".q_proj.weight") for name in state)
    for kind in ("weight", "bias"):
        theirs[f"transformer.ln_f.{kind}"] = part("model.norm", kind)
        for index in range(num_layers):
            block, layer = f"transformer.h.{index}.", f"model.layers.{index}."
            for name, ours in GPT2_NORMS.items():
                theirs[f"{block}{name}.{kind}"] = part(layer + ours, kind)
            for name, ours in GPT2_PROJECTIONS.items():
                theirs[f"{block}{name}.{kind}"] = _transposed(part(layer + ours, kind))
            joined = torch.cat([part(layer + ours, kind) for ours in QUERY_KEY_VALUE])
            theirs[f"{block}attn.c_attn.{kind}"] = _transposed(joined)
    return theirs


def _transposed(values: Tensor) -> Tensor:
    return values.t().contiguous() if values.dim() == 2 else values


def decoder_lm_from_gpt2(model: GPT2LMHeadModel) -> DecoderLMForCausalLM:
    """Return a DecoderLM that computes what a GPT-2 computes.

    Args:
        model: stays as it is.

    Returns:
        A new model of the same type, device and mode, with the same generation settings.

    Raises:
        ValueError: if an option has no equal here.
    """
    converted = DecoderLMForCausalLM(decoder_lm_config_from_gpt2(model.config))
    return fill_like(converted, decoder_lm_state_from_gpt2(model.state_dict()), like=model)


def gpt2_from_decoder_lm(model: DecoderLMForCausalLM) -> GPT2LMHeadModel:
    """Return a GPT-2 that computes what a DecoderLM computes.

    Args:
        model: stays as it is.

    Returns:
        A new model of the same type, device and mode, with the same generation settings.

    Raises:
        ValueError: if an option has no equal in GPT-2.
    """
    config: Any = model.config
    converted = GPT2LMHeadModel(gpt2_config_from_decoder_lm(config))
    return fill_like(converted, gpt2_state_from_decoder_lm(model.state_dict()), like=model)
