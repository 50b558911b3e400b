"""FSDP2: two processes that hold half of every parameter train, save and resume as one."""

from importlib.util import find_spec

import pytest
import torch
from packaging.version import Version

from gloo_group import run_driver
from hf_seqmodels.auto_classes import FAMILIES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        Version(torch.__version__) < Version("2.8")
        or find_spec("transformers.distributed.checkpoint") is None,
        reason="transformers shards at load time with torch 2.8 and a transformers newer than 5.17",
    ),
]


def test_every_family_trains_saves_and_resumes_in_halves(tmp_path):
    # tied tables, in ways that would let the processes drift apart
    tied = [
        "seqmodels_rnn_seq2seq-all_tied_of_other_width",
        "seqmodels_transformer_seq2seq-vaswani",
        "seqmodels_decoder_lm-gpt2",
        "seqmodels_rnn_lm-awd_lstm",
        "seqmodels_text_encoder-bert",
    ]
    assert {name.partition("-")[0] for name in tied} == {family.model_type for family in FAMILIES}
    assert run_driver("sharded_training.py", tmp_path, *tied) == tied


@pytest.mark.launch
def test_other_options_train_save_and_resume_in_halves(tmp_path):
    assert len(run_driver("sharded_training.py", tmp_path)) == 13


@pytest.mark.launch
@pytest.mark.skipif(Version(torch.__version__) < Version("2.13"), reason="2.13 refuses parted ties")
def test_trainer_shards_with_accelerate(tmp_path):
    assert len(run_driver("sharded_trainer.py", tmp_path)) == 6
