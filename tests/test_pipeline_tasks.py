"""`pipeline()` knows the tasks of the table."""

import logging

import pytest
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, Pipeline, pipeline
from transformers.pipelines import PIPELINE_REGISTRY, get_supported_tasks

from hf_seqmodels import register
from hf_seqmodels.auto_classes import FAMILIES
from hf_seqmodels.models import pipeline_seq2seq_generation
from hf_seqmodels.models.pipeline_seq2seq_generation import Seq2SeqGenerationPipeline
from hf_seqmodels.pipeline_tasks import register_pipelines

TASK = "seq2seq-generation"


def test_every_seq2seq_family_has_the_task_of_seq2seq_models():
    for family in FAMILIES:
        assert (TASK in family.pipelines) == (AutoModelForSeq2SeqLM in family.model_classes)
    assert pipeline_seq2seq_generation.TASK == TASK
    assert TASK in get_supported_tasks()
    registered = PIPELINE_REGISTRY.check_task(TASK)[1]
    assert registered["impl"] is Seq2SeqGenerationPipeline
    assert registered["pt"] == (AutoModelForSeq2SeqLM,)


def test_registering_again_changes_and_says_nothing(caplog):
    before = dict(PIPELINE_REGISTRY.supported_tasks)
    with caplog.at_level(logging.WARNING):
        register()
    assert before == PIPELINE_REGISTRY.supported_tasks
    assert not caplog.records


def test_families_share_a_task(monkeypatch):
    monkeypatch.setattr(PIPELINE_REGISTRY, "supported_tasks", {})
    reference = "pipeline_seq2seq_generation.Seq2SeqGenerationPipeline"
    seq2seq, causal = {TASK: (reference, AutoModelForSeq2SeqLM)}, AutoModelForCausalLM
    register_pipelines([seq2seq, {}, seq2seq, {TASK: (reference, causal)}])
    assert PIPELINE_REGISTRY.supported_tasks[TASK]["pt"] == (AutoModelForSeq2SeqLM, causal)
    assert issubclass(PIPELINE_REGISTRY.supported_tasks[TASK]["impl"], Pipeline)


def test_the_task_without_a_model_says_what_to_pass():
    with pytest.raises(ValueError, match=r'needs a model, got none.*model="path or name"'):
        pipeline(TASK)
