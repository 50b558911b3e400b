"""BERT and TextEncoder, both ways, with every head."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForNextSentencePrediction,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    BertPreTrainedModel,
)

from hf_seqmodels.conversion.common import (
    check_choice,
    check_options,
    fill_like,
    rename_weights,
)
from hf_seqmodels.models.configuration_text_encoder import TextEncoderConfig
from hf_seqmodels.models.modeling_text_encoder import (
    TextEncoderForMaskedLM,
    TextEncoderForMultipleChoice,
    TextEncoderForNextSentencePrediction,
    TextEncoderForPreTraining,
    TextEncoderForQuestionAnswering,
    TextEncoderForSequenceClassification,
    TextEncoderForTokenClassification,
    TextEncoderModel,
    TextEncoderPreTrainedModel,
)

BERT_CLASSES: dict[type[BertPreTrainedModel], type[TextEncoderPreTrainedModel]] = {
    BertModel: TextEncoderModel,
    BertForPreTraining: TextEncoderForPreTraining,
    BertForMaskedLM: TextEncoderForMaskedLM,
    BertForSequenceClassification: TextEncoderForSequenceClassification,
    BertForTokenClassification: TextEncoderForTokenClassification,
    BertForQuestionAnswering: TextEncoderForQuestionAnswering,
    BertForMultipleChoice: TextEncoderForMultipleChoice,
    BertForNextSentencePrediction: TextEncoderForNextSentencePrediction,
}
# BERT's option: ours, where the value stays
BERT_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "layer_norm_eps": "norm_eps",
    "hidden_dropout_prob": "hidden_dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "classifier_dropout": "classifier_dropout",
    "initializer_range": "initializer_range",
    "tie_word_embeddings": "tie_word_embeddings",
    "pad_token_id": "pad_token_id",
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
    "id2label": "id2label",
    "label2id": "label2id",
    "problem_type": "problem_type",
}
# activations by BERT's name; the first two are one function, ours computed in one kernel
BERT_ACTIVATIONS = {
    "gelu_new": "gelu_pytorch_tanh",
    "gelu_pytorch_tanh": "gelu_pytorch_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
}
BERT_NEEDS = {
    "is_decoder": False,
    "add_cross_attention": False,
    # of earlier versions of transformers; the present one does not compute anything else either
    "position_embedding_type": "absolute",
}
TEXT_ENCODER_NEEDS = {
    "position_embedding": "learned",
    "norm_position": "post",
    "norm_embedding": True,
    "norm_type": "layer",
    "gated_mlp": False,
    "scale_embedding": False,
    "sliding_window": None,
    "pooling": "cls",
    "label_smoothing": 0,
}
# modules of the body, BERT's and ours
BODY = {
    "embeddings.word_embeddings": "embed_tokens",
    "embeddings.position_embeddings": "positions",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "embedding_norm",
    "encoder.layer.*.attention.self.query": "layers.*.self_attn.q_proj",
    "encoder.layer.*.attention.self.key": "layers.*.self_attn.k_proj",
    "encoder.layer.*.attention.self.value": "layers.*.self_attn.v_proj",
    "encoder.layer.*.attention.output.dense": "layers.*.self_attn.o_proj",
    "encoder.layer.*.attention.output.LayerNorm": "layers.*.attention_norm",
    "encoder.layer.*.intermediate.dense": "layers.*.mlp.up_proj",
    "encoder.layer.*.output.dense": "layers.*.mlp.down_proj",
    "encoder.layer.*.output.LayerNorm": "layers.*.mlp_norm",
    "pooler.dense": "pooler.dense",
}
HEADS = {
    "cls.predictions.transform.dense": "transform.dense",
    "cls.predictions.transform.LayerNorm": "transform.norm",
    "cls.predictions.decoder": "lm_head",
    "cls.seq_relationship": "seq_relationship",
    "classifier": "score",
    "qa_outputs": "qa_outputs",
}
MODULES = BODY | {f"bert.{theirs}": f"model.{ours}" for theirs, ours in BODY.items()} | HEADS
OURS_TO_THEIRS = {ours: theirs for theirs, ours in MODULES.items()}
TABLES = ("word_embeddings", "position_embeddings", "token_type_embeddings")
# buffers that earlier versions of transformers saved
POSITION_IDS = ("embeddings.position_ids", "bert.embeddings.position_ids")


def text_encoder_config_from_bert(config: BertConfig) -> TextEncoderConfig:
    """Return the options with which TextEncoder computes what BERT computes.

    Args:
        config: of a BERT.

    Returns:
        A new config.

    Raises:
        ValueError: if an option has no equal here.
    """
    check_options(config, BERT_NEEDS, "TextEncoder")
    check_choice(config, "hidden_act", BERT_ACTIVATIONS, "TextEncoder")
    options: dict[str, Any] = {
        ours: getattr(config, theirs) for theirs, ours in BERT_FIELDS.items()
    }
    options["hidden_act"] = BERT_ACTIVATIONS[config.hidden_act]
    return TextEncoderConfig(embedding_dropout=config.hidden_dropout_prob, **options)


def bert_config_from_text_encoder(config: TextEncoderConfig) -> BertConfig:
    """Return the options with which BERT computes what a TextEncoder computes.

    Args:
        config: of a TextEncoder.

    Returns:
        A new config.

    Raises:
        ValueError: if an option has no equal in BERT.
    """
    check_options(config, TEXT_ENCODER_NEEDS, "BERT")
    heads = config.num_attention_heads
    if config.num_key_value_heads != heads or heads * (config.head_dim or 0) != config.hidden_size:
        raise ValueError(
            f"BERT splits its width among heads of queries, keys and values alike, got "
            f"hidden_size={config.hidden_size}, num_attention_heads={heads}, "
            f"num_key_value_heads={config.num_key_value_heads}, head_dim={config.head_dim}. Such "
            f"a model cannot be converted."
        )
    if config.embedding_dropout != config.hidden_dropout:
        raise ValueError(
            f"BERT has one rate for embeddings and layers, got "
            f"embedding_dropout={config.embedding_dropout} and "
            f"hidden_dropout={config.hidden_dropout}. Set both to the same before converting; "
            f"without training they change nothing."
        )
    activations = {ours: theirs for theirs, ours in reversed(BERT_ACTIVATIONS.items())}
    options = {theirs: getattr(config, ours) for theirs, ours in BERT_FIELDS.items()}
    options["type_vocab_size"] = max(config.type_vocab_size, 1)
    if config.classifier_dropout == config.hidden_dropout:
        options["classifier_dropout"] = None
    return BertConfig(hidden_act=activations[config.hidden_act], **options)


def text_encoder_state_from_bert(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a BERT under the names of the TextEncoder with the same head.

    Args:
        state: `state_dict()` of the model, or what a checkpoint of it holds, where tied weights
            may be left out.

    Returns:
        A state dict, whose tensors are those of `state`.

    Raises:
        ValueError: if a weight has no counterpart.
    """
    state = {name: state[name] for name in state if name not in POSITION_IDS}
    bias = state.pop("cls.predictions.bias", None)
    if bias is not None:  # the same as the decoder's, and kept where both are saved as one
        state.setdefault("cls.predictions.decoder.bias", bias)
    return rename_weights(state, MODULES)


def bert_state_from_text_encoder(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a TextEncoder under the names of the BERT with the same head.

    BERT always has biases and token types: a model without gets such of zero.

    Args:
        state: `state_dict()` of the model, or what a checkpoint of it holds, where tied weights
            may be left out.

    Returns:
        A state dict, whose tensors are those of `state`.

    Raises:
        ValueError: if a weight has no counterpart.
    """
    theirs = rename_weights(state, OURS_TO_THEIRS)
    for name, weight in list(theirs.items()):
        module, _, kind = name.rpartition(".")
        if kind == "weight" and not module.endswith(TABLES):
            theirs.setdefault(f"{module}.bias", weight.new_zeros(weight.shape[0]))
        if module.endswith("word_embeddings"):
            types = name.replace("word_embeddings", "token_type_embeddings")
            theirs.setdefault(types, weight.new_zeros(1, weight.shape[1]))
    if "cls.predictions.decoder.bias" in theirs:
        theirs["cls.predictions.bias"] = theirs["cls.predictions.decoder.bias"]
    return theirs


def text_encoder_from_bert(model: BertPreTrainedModel) -> TextEncoderPreTrainedModel:
    """Return a TextEncoder that computes what a BERT computes.

    Padding stays different where BERT reads it: here the positions of a row begin at its first real
    token, wherever padding stands, and no answer to a question starts or ends at padding.

    Args:
        model: of a class of `BERT_CLASSES`; stays as it is.

    Returns:
        A new model with the same head, of the same type, device, mode and attention implementation.

    Raises:
        ValueError: if the class, an option or a weight has no equal here.
    """
    ours = _counterpart(model, BERT_CLASSES)
    config = text_encoder_config_from_bert(model.config)
    converted = ours(config, **_without_pooler(model))
    return fill_like(converted, text_encoder_state_from_bert(model.state_dict()), like=model)


def bert_from_text_encoder(model: TextEncoderPreTrainedModel) -> BertPreTrainedModel:
    """Return a BERT that computes what a TextEncoder computes.

    Args:
        model: of a class of `BERT_CLASSES`; stays as it is.

    Returns:
        A new model with the same head, of the same type, device, mode and attention implementation.

    Raises:
        ValueError: if the class, an option or a weight has no equal in BERT.
    """
    theirs = _counterpart(model, {ours: theirs for theirs, ours in BERT_CLASSES.items()})
    config: Any = model.config
    converted = theirs(bert_config_from_text_encoder(config), **_without_pooler(model))
    return fill_like(converted, bert_state_from_text_encoder(model.state_dict()), like=model)


def _counterpart(model: Any, classes: Mapping[Any, Any]) -> Any:
    if type(model) not in classes:
        known = ", ".join(known.__name__ for known in classes)
        raise ValueError(
            f"A model to convert must be of one of the classes {known}, got "
            f"{type(model).__name__}. Load it with one of these; adapters are merged first."
        )
    return classes[type(model)]


def _without_pooler(model: Any) -> dict[str, bool]:
    """Return what to construct the counterpart with: a body alone may have no pooler."""
    is_body = isinstance(model, BertModel | TextEncoderModel)
    return {"add_pooling_layer": False} if is_body and model.pooler is None else {}
