"""Models of transformers as models of this package, and back, with the same numbers.

from transformers import AutoModelForCausalLM
from hf_seqmodels.conversion import convert_checkpoint, decoder_lm_from_gpt2, gpt2_from_decoder_lm

model = decoder_lm_from_gpt2(AutoModelForCausalLM.from_pretrained("my-gpt2"))
gpt2_from_decoder_lm(model).save_pretrained("my-gpt2-again")
convert_checkpoint("my-bert", "my-text-encoder")  # a folder, with its tokenizer

For each pair of families there is a function for models, one for configs and one for state dicts,
both ways.

| theirs | ours |
|---|---|
| BERT, with every head | TextEncoder |
| GPT-2 | DecoderLM |
| Marian | TransformerSeq2Seq |

`ctranslate2_from_transformer_seq2seq` writes a TransformerSeq2Seq for the engine CTranslate2.
"""

from typing import TYPE_CHECKING

from hf_seqmodels.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from hf_seqmodels.conversion.bert import (
        bert_config_from_text_encoder,
        bert_from_text_encoder,
        bert_state_from_text_encoder,
        text_encoder_config_from_bert,
        text_encoder_from_bert,
        text_encoder_state_from_bert,
    )
    from hf_seqmodels.conversion.checkpoints import convert_checkpoint
    from hf_seqmodels.conversion.ctranslate2_models import ctranslate2_from_transformer_seq2seq
    from hf_seqmodels.conversion.gpt2 import (
        decoder_lm_config_from_gpt2,
        decoder_lm_from_gpt2,
        decoder_lm_state_from_gpt2,
        gpt2_config_from_decoder_lm,
        gpt2_from_decoder_lm,
        gpt2_state_from_decoder_lm,
    )
    from hf_seqmodels.conversion.marian import (
        marian_config_from_transformer_seq2seq,
        marian_from_transformer_seq2seq,
        marian_state_from_transformer_seq2seq,
        transformer_seq2seq_config_from_marian,
        transformer_seq2seq_from_marian,
        transformer_seq2seq_state_from_marian,
    )

__all__ = [
    "bert_config_from_text_encoder",
    "bert_from_text_encoder",
    "bert_state_from_text_encoder",
    "convert_checkpoint",
    "ctranslate2_from_transformer_seq2seq",
    "decoder_lm_config_from_gpt2",
    "decoder_lm_from_gpt2",
    "decoder_lm_state_from_gpt2",
    "gpt2_config_from_decoder_lm",
    "gpt2_from_decoder_lm",
    "gpt2_state_from_decoder_lm",
    "marian_config_from_transformer_seq2seq",
    "marian_from_transformer_seq2seq",
    "marian_state_from_transformer_seq2seq",
    "text_encoder_config_from_bert",
    "text_encoder_from_bert",
    "text_encoder_state_from_bert",
    "transformer_seq2seq_config_from_marian",
    "transformer_seq2seq_from_marian",
    "transformer_seq2seq_state_from_marian",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "bert_config_from_text_encoder": "bert",
        "bert_from_text_encoder": "bert",
        "bert_state_from_text_encoder": "bert",
        "convert_checkpoint": "checkpoints",
        "ctranslate2_from_transformer_seq2seq": "ctranslate2_models",
        "decoder_lm_config_from_gpt2": "gpt2",
        "decoder_lm_from_gpt2": "gpt2",
        "decoder_lm_state_from_gpt2": "gpt2",
        "gpt2_config_from_decoder_lm": "gpt2",
        "gpt2_from_decoder_lm": "gpt2",
        "gpt2_state_from_decoder_lm": "gpt2",
        "marian_config_from_transformer_seq2seq": "marian",
        "marian_from_transformer_seq2seq": "marian",
        "marian_state_from_transformer_seq2seq": "marian",
        "text_encoder_config_from_bert": "bert",
        "text_encoder_from_bert": "bert",
        "text_encoder_state_from_bert": "bert",
        "transformer_seq2seq_config_from_marian": "marian",
        "transformer_seq2seq_from_marian": "marian",
        "transformer_seq2seq_state_from_marian": "marian",
    },
)
