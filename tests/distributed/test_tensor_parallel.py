"""Tensor parallelism: two processes that share every layer compute what one does."""

import pytest
import torch
from packaging.version import Version

from gloo_group import run_driver

pytestmark = pytest.mark.slow


@pytest.mark.skipif(Version(torch.__version__) < Version("2.8"), reason="needs torch 2.8")
def test_shared_layers_compute_what_whole_ones_do(tmp_path):
    names = [
        *("seqmodels_decoder_lm-gpt2", "seqmodels_decoder_lm-llama", "seqmodels_decoder_lm-press"),
        "seqmodels_decoder_lm-rotary_post_wide_heads",  # one key head for two processes: refused
        *("seqmodels_text_encoder-bert", "seqmodels_text_encoder-modernbert"),
        *("seqmodels_transformer_seq2seq-vaswani", "seqmodels_transformer_seq2seq-marian"),
        *("seqmodels_transformer_seq2seq-modern", "seqmodels_transformer_seq2seq-learned"),
        "seqmodels_transformer_seq2seq-rotary_post_wide_heads",
        *("seqmodels_rnn_lm", "seqmodels_rnn_seq2seq"),  # no plan: refused
    ]
    assert sorted(run_driver("tensor_parallel.py", tmp_path)) == sorted(names)
