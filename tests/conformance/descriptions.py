"""How the suites of transformers see each family: tiny configs that between them use most parts."""

import torch

from copied_targets import TransformerSeq2SeqReadingItsSource
from family_suites import Description

NO_DROPOUT = {"embedding_dropout": 0.0, "hidden_dropout": 0.0}
TINY = {"vocab_size": 99, "hidden_size": 32, **NO_DROPOUT}
BLOCKS = {**TINY, "attention_dropout": 0.0, "num_attention_heads": 4, "intermediate_size": 37}
STACK = {"num_hidden_layers": 2}
BOTH_STACKS = {"num_encoder_layers": 2, "num_decoder_layers": 2}
# blocks as language models have them today
MODERN = {
    "position_embedding": "rotary",
    "gated_mlp": True,
    "hidden_act": "silu",
    "use_bias": False,
    "norm_position": "pre",
    "num_key_value_heads": 2,
}
# the bias of the keys changes no attention weight: what Adam makes of its gradient is rounding
WITHOUT_BIASES = {"use_bias": False}
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads")
RECURRENT = {"has_attentions": False}


def labels_of_pretraining(num_rows: int, num_tokens: int) -> dict[str, torch.Tensor]:
    """Return labels of masked tokens and of the next sentence."""
    return {
        "labels": torch.zeros(num_rows, num_tokens, dtype=torch.long),
        "next_sentence_label": torch.zeros(num_rows, dtype=torch.long),
    }


DESCRIPTIONS = (
    Description(
        name="RnnSeq2SeqLuong",
        model_type="seqmodels_rnn_seq2seq",
        options={
            **TINY,
            **BOTH_STACKS,
            "embedding_size": 32,
            "cell_type": "lstm",
            "attention_query": "current",
            "input_feeding": True,
            "share_embeddings": True,
        },
        trained_by="AutoModelForSeq2SeqLM",
        trained_options={"num_attention_heads": 1},  # the suite sets 4, which one scorer alone has
        attributes=RECURRENT,
    ),
    Description(
        name="RnnSeq2SeqBahdanau",
        model_type="seqmodels_rnn_seq2seq",
        options={
            **TINY,
            **BOTH_STACKS,
            "embedding_size": 32,
            "cell_type": "gru",
            "attention_query": "previous",
            "share_embeddings": True,
            "tie_word_embeddings": True,
        },
        trained_by="AutoModelForSeq2SeqLM",
        trained_options={"num_attention_heads": 1},  # the suite sets 4, which one scorer alone has
        attributes=RECURRENT,
    ),
    Description(
        name="TransformerSeq2Seq",
        model_type="seqmodels_transformer_seq2seq",
        options={**BLOCKS, **BOTH_STACKS, "share_embeddings": True, "tie_word_embeddings": True},
        sizes=SIZES,
        # the suite doubles the width, so the range is the default for twice that; with the narrow
        # one's, Adam makes steps of the rounding of gradients near zero (in float64, DDP and FSDP
        # then agree to 1e-12)
        trained_options={**WITHOUT_BIASES, "initializer_range": 64**-0.5},
        trained_by="AutoModelForSeq2SeqLM",
        reading_class=TransformerSeq2SeqReadingItsSource,
    ),
    Description(
        name="TransformerSeq2SeqModern",
        model_type="seqmodels_transformer_seq2seq",
        # one table: the suites embed source and target by get_input_embeddings()
        options={
            **BLOCKS,
            **BOTH_STACKS,
            **MODERN,
            "norm_type": "rms",
            "share_embeddings": True,
        },
        sizes=SIZES,
        trained_by="AutoModelForSeq2SeqLM",
        reading_class=TransformerSeq2SeqReadingItsSource,
    ),
    Description(
        name="DecoderLM",
        model_type="seqmodels_decoder_lm",
        options={**BLOCKS, **STACK},
        sizes=SIZES,
        trained_options=WITHOUT_BIASES,
    ),
    Description(
        name="DecoderLMModern",
        model_type="seqmodels_decoder_lm",
        options={**BLOCKS, **STACK, **MODERN, "norm_type": "rms", "tie_word_embeddings": False},
        sizes=SIZES,
    ),
    Description(
        name="RnnLM",
        model_type="seqmodels_rnn_lm",
        options={**TINY, **STACK, "embedding_size": 32},
        # 300 steps at a thousandth teach so narrow a recurrent layer too little
        attributes={**RECURRENT, "training_overfit_learning_rate": 1e-2},
    ),
    Description(
        name="TextEncoder",
        model_type="seqmodels_text_encoder",
        options={**BLOCKS, **STACK},
        sizes=SIZES,
        trained_options=WITHOUT_BIASES,
        trained_by="AutoModelForMaskedLM",
        extra_labels={"TextEncoderForPreTraining": labels_of_pretraining},
    ),
    Description(
        name="TextEncoderModern",
        model_type="seqmodels_text_encoder",
        options={
            **BLOCKS,
            **STACK,
            "position_embedding": "rotary",
            "gated_mlp": True,
            "use_bias": False,
            "norm_position": "pre",
            "norm_embedding": True,
            "type_vocab_size": 0,
            "pooling": "mean",
            "tie_word_embeddings": False,
            "sliding_window": 3,
            "global_attention_every": 2,
            "padding_free": "on",
        },
        sizes=SIZES,
        trained_by="AutoModelForMaskedLM",
        holes=False,  # a local window counts tokens, so that the model refuses padding between them
        extra_labels={"TextEncoderForPreTraining": labels_of_pretraining},
    ),
)
