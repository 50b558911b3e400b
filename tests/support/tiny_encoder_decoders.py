"""Tiny random encoder-decoders of several families, and a tokenizer for them."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from hf_seqmodels import (
    RnnSeq2SeqConfig,
    RnnSeq2SeqForConditionalGeneration,
    TransformerSeq2SeqConfig,
    TransformerSeq2SeqForConditionalGeneration,
)

VOCAB_SIZE = 17
SPECIAL_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@torch.no_grad()
def sharpen(model, *, scale, end_bias):
    """Make the outputs of a random model differ clearly and end at different lengths."""
    model.get_output_embeddings().weight.mul_(scale)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias[:, 2] += end_bias
    elif model.get_output_embeddings().bias is not None:
        model.get_output_embeddings().bias[2] += end_bias
    else:
        model.get_output_embeddings().weight[2] *= end_bias
    return model


def make_bart(**options):
    model = BartForConditionalGeneration(
        BartConfig(
            vocab_size=VOCAB_SIZE,
            d_model=12,
            encoder_layers=1,
            decoder_layers=2,
            encoder_attention_heads=3,
            decoder_attention_heads=3,
            encoder_ffn_dim=8,
            decoder_ffn_dim=8,
            max_position_embeddings=32,
            init_std=0.7,
            decoder_start_token_id=2,
            forced_eos_token_id=None,
            **SPECIAL_IDS,
            **options,
        )
    )
    return sharpen(model, scale=1.0, end_bias=0.0)


def make_marian():
    """Marian as published: the decoder starts from the pad token, which may not be generated."""
    model = MarianMTModel(
        MarianConfig(
            vocab_size=VOCAB_SIZE,
            d_model=12,
            encoder_layers=1,
            decoder_layers=2,
            encoder_attention_heads=3,
            decoder_attention_heads=3,
            encoder_ffn_dim=8,
            decoder_ffn_dim=8,
            max_position_embeddings=32,
            init_std=0.4,
            decoder_start_token_id=0,
            forced_eos_token_id=None,
            **SPECIAL_IDS,
        )
    )
    model.generation_config.bad_words_ids = [[0]]
    return sharpen(model, scale=1.5, end_bias=1.0)


def make_t5():
    model = T5ForConditionalGeneration(
        T5Config(
            vocab_size=VOCAB_SIZE,
            d_model=12,
            d_kv=4,
            d_ff=8,
            num_layers=2,
            num_heads=3,
            decoder_start_token_id=0,
            tie_word_embeddings=False,
            **SPECIAL_IDS,
        )
    )
    return sharpen(model, scale=0.6, end_bias=2.0)


def make_rnn(**options):
    settings = {
        "vocab_size": VOCAB_SIZE,
        "embedding_size": 10,
        "hidden_size": 12,
        "num_decoder_layers": 2,
        "initializer_range": 1.0,
    }
    model = RnnSeq2SeqForConditionalGeneration(RnnSeq2SeqConfig(**{**settings, **options}))
    return sharpen(model, scale=10.0 if model.config.cell_type == "lstm" else 5.0, end_bias=1.0)


def make_transformer(**options):
    settings = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 12,
        "num_encoder_layers": 1,
        "num_decoder_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 8,
        "max_position_embeddings": 32,
        "initializer_range": 0.5,
    }
    config = TransformerSeq2SeqConfig(**{**settings, **options})
    return sharpen(TransformerSeq2SeqForConditionalGeneration(config), scale=1.0, end_bias=1.0)


MODELS = {
    "bart": make_bart,
    "marian": make_marian,
    "t5": make_t5,
    "transformer": make_transformer,
    "rnn_gru_additive": make_rnn,
    "rnn_lstm_previous_general": lambda: make_rnn(
        cell_type="lstm",
        attention_scorer="general",
        attention_query="previous",
        encoder_hidden_size=8,
        reverse_source=True,
    ),
    "rnn_elman_multi_head": lambda: make_rnn(
        cell_type="elman",
        attention_scorer="multi_head",
        num_attention_heads=3,
        input_feeding=True,
    ),
    "rnn_without_attention": lambda: make_rnn(
        attention_scorer=None, num_encoder_layers=2, bridge="copy"
    ),
}


def make_tokenizer(words="abcdefghijklm", **options):
    """A tokenizer of blank-separated letters, with the end token behind."""
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
    vocabulary |= {word: len(vocabulary) + index for index, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 2)]
    )
    special = {
        "pad_token": "<pad>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    return PreTrainedTokenizerFast(tokenizer_object=backend, **{**special, **options})
