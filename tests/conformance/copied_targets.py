"""An encoder-decoder for suites that give it a source alone."""

from torch import Tensor
from transformers.modeling_outputs import Seq2SeqLMOutput

from hf_seqmodels import TransformerSeq2SeqForConditionalGeneration


class TransformerSeq2SeqReadingItsSource(TransformerSeq2SeqForConditionalGeneration):
    """The decoder reads the ids of the source: models of this package do not guess a target."""

    def forward(self, input_ids: Tensor) -> Seq2SeqLMOutput:
        """Return the scores of the next tokens for ids, (B, S), as source and as target."""
        return super().forward(input_ids, decoder_input_ids=input_ids)
