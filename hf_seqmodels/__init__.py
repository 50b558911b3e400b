"""Classic sequence models as first-class citizens of the Hugging Face ecosystem.

Importing the package registers its model families with the Auto classes of transformers, and their
tasks with `pipeline()`; it does nothing else. What stands around the models loads on first use:
`hf_seqmodels.data` (tokenizers, files, batches), `hf_seqmodels.evaluation` (metrics, decoding,
n-best lists, alignments), `hf_seqmodels.decoding` (searches beyond generate()),
`hf_seqmodels.analysis` (plots), `hf_seqmodels.conversion` (models of transformers, both ways),
`hf_seqmodels.model_cards` (README.md of checkpoints), `hf_seqmodels.hub` (export, push) and
`hf_seqmodels.onnx` (graphs that run without torch).
"""

from typing import TYPE_CHECKING

from hf_seqmodels.auto_classes import auto_map_for, register
from hf_seqmodels.lazy_exports import lazy_exports
from hf_seqmodels.models.configuration_decoder_lm import DecoderLMConfig
from hf_seqmodels.models.configuration_rnn_lm import RnnLMConfig
from hf_seqmodels.models.configuration_rnn_seq2seq import RnnSeq2SeqConfig
from hf_seqmodels.models.configuration_text_encoder import TextEncoderConfig
from hf_seqmodels.models.configuration_transformer_seq2seq import TransformerSeq2SeqConfig
from hf_seqmodels.models.modeling_decoder_lm import (
    DecoderLMForCausalLM,
    DecoderLMForSequenceClassification,
    DecoderLMForTokenClassification,
    DecoderLMModel,
)
from hf_seqmodels.models.modeling_rnn_lm import RnnLMForCausalLM, RnnLMModel
from hf_seqmodels.models.modeling_rnn_seq2seq import (
    RnnSeq2SeqForConditionalGeneration,
    RnnSeq2SeqModel,
)
from hf_seqmodels.models.modeling_text_encoder import (
    TextEncoderForMaskedLM,
    TextEncoderForMultipleChoice,
    TextEncoderForNextSentencePrediction,
    TextEncoderForPreTraining,
    TextEncoderForQuestionAnswering,
    TextEncoderForSequenceClassification,
    TextEncoderForTokenClassification,
    TextEncoderModel,
)
from hf_seqmodels.models.modeling_transformer_seq2seq import (
    TransformerSeq2SeqForConditionalGeneration,
    TransformerSeq2SeqModel,
)
from hf_seqmodels.models.pipeline_seq2seq_generation import Seq2SeqGenerationPipeline

if TYPE_CHECKING:
    from hf_seqmodels import (
        analysis,
        conversion,
        data,
        decoding,
        evaluation,
        hub,
        model_cards,
        onnx,
    )

__version__ = "0.1.0.dev0"

__all__ = [
    "DecoderLMConfig",
    "DecoderLMForCausalLM",
    "DecoderLMForSequenceClassification",
    "DecoderLMForTokenClassification",
    "DecoderLMModel",
    "RnnLMConfig",
    "RnnLMForCausalLM",
    "RnnLMModel",
    "RnnSeq2SeqConfig",
    "RnnSeq2SeqForConditionalGeneration",
    "RnnSeq2SeqModel",
    "Seq2SeqGenerationPipeline",
    "TextEncoderConfig",
    "TextEncoderForMaskedLM",
    "TextEncoderForMultipleChoice",
    "TextEncoderForNextSentencePrediction",
    "TextEncoderForPreTraining",
    "TextEncoderForQuestionAnswering",
    "TextEncoderForSequenceClassification",
    "TextEncoderForTokenClassification",
    "TextEncoderModel",
    "TransformerSeq2SeqConfig",
    "TransformerSeq2SeqForConditionalGeneration",
    "TransformerSeq2SeqModel",
    "__version__",
    "analysis",
    "auto_map_for",
    "conversion",
    "data",
    "decoding",
    "evaluation",
    "hub",
    "model_cards",
    "onnx",
    "register",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        name: name
        for name in (
            *("analysis", "conversion", "data", "decoding", "evaluation", "hub"),
            *("model_cards", "onnx"),
        )
    },
)

register()
