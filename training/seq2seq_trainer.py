"""A Seq2SeqTrainer with batch samplers and in-order evaluation."""

from batch_trainer import BatchSamplerMixin
from transformers import Seq2SeqTrainer


class BatchSamplerTrainer(BatchSamplerMixin, Seq2SeqTrainer):
    """Train on the batches of a batch sampler, and predict by generate."""
