"""The table of families: what the Auto classes load, and what a checkpoint's auto_map says."""

import importlib

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING, tokenizer_class_from_name

import hf_seqmodels
from family_grids import GRIDS
from hf_seqmodels import auto_classes
from hf_seqmodels.auto_classes import FAMILIES, Family, auto_map_for, register

# generate() of transformers treats classes differently that have one of these in their name
SPECIAL_NAMES = ("xlstm", "rwkv", "xlnet", "reformer", "minimax", "mamba")
TINY_SETTINGS = {grid.model_type: grid.base for grid in GRIDS}
every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.model_type)


def tiny_config(family):
    return family.config_class(**TINY_SETTINGS[family.model_type])


@every_family
def test_names_are_ours_alone(family):
    assert family.model_type.startswith("seqmodels_")
    for named in (family.config_class, *family.model_classes.values()):
        assert not hasattr(transformers, named.__name__)
        assert not any(special in named.__name__.lower() for special in SPECIAL_NAMES)


@every_family
def test_public_names_hold_every_class_of_the_table(family):
    for named in (family.config_class, *family.model_classes.values()):
        assert getattr(hf_seqmodels, named.__name__) is named
        assert named.__name__ in hf_seqmodels.__all__


@every_family
def test_auto_classes_make_the_classes_of_the_table(family):
    config = AutoConfig.for_model(family.model_type, **TINY_SETTINGS[family.model_type])
    assert type(config) is family.config_class
    for auto_class, model_class in family.model_classes.items():
        assert model_class.config_class is family.config_class
        assert type(auto_class.from_config(config)) is model_class


@every_family
def test_auto_tokenizer_knows_the_tokenizer_of_the_family(family):
    if family.tokenizer_class is not None:
        assert TOKENIZER_MAPPING[family.config_class] is family.tokenizer_class
        assert tokenizer_class_from_name(family.tokenizer_class.__name__) is family.tokenizer_class


@every_family
def test_auto_classes_load_what_was_saved(family, tmp_path):
    for auto_class, model_class in family.model_classes.items():
        saved = model_class(tiny_config(family))
        saved.save_pretrained(tmp_path)
        loaded = auto_class.from_pretrained(tmp_path)
        assert type(AutoConfig.from_pretrained(tmp_path)) is family.config_class
        assert type(loaded) is model_class
        torch.testing.assert_close(loaded.state_dict(), saved.state_dict(), rtol=0, atol=0)


@every_family
def test_auto_model_loads_the_body_of_a_model_with_a_head(family, tmp_path):
    body_class = family.model_classes[AutoModel]
    for model_class in family.model_classes.values():
        saved = model_class(tiny_config(family))
        saved.save_pretrained(tmp_path)
        loaded, report = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
        assert type(loaded) is body_class
        kept = saved.base_model.state_dict()
        assert set(report["missing_keys"]) == loaded.state_dict().keys() - kept.keys()
        assert all(name.startswith("pooler.") for name in report["missing_keys"])
        found = {name: loaded.state_dict()[name] for name in kept}
        torch.testing.assert_close(found, kept, rtol=0, atol=0)


def test_auto_map_of_the_recurrent_seq2seq_is_complete():
    expected = {
        "AutoConfig": "configuration_rnn_seq2seq.RnnSeq2SeqConfig",
        "AutoModel": "modeling_rnn_seq2seq.RnnSeq2SeqModel",
        "AutoModelForSeq2SeqLM": "modeling_rnn_seq2seq.RnnSeq2SeqForConditionalGeneration",
    }
    assert auto_map_for(hf_seqmodels.RnnSeq2SeqConfig) == expected
    assert auto_map_for(hf_seqmodels.RnnSeq2SeqConfig()) == expected


@every_family
def test_auto_map_names_classes_of_the_flat_folder(family):
    for reference in auto_map_for(family.config_class).values():
        module_name, class_name = reference.split(".")
        assert hasattr(importlib.import_module(f"hf_seqmodels.models.{module_name}"), class_name)


def test_auto_map_may_be_changed_by_its_receiver():
    auto_map_for(hf_seqmodels.RnnSeq2SeqConfig).clear()
    assert auto_map_for(hf_seqmodels.RnnSeq2SeqConfig)


@pytest.mark.parametrize("stranger", [transformers.BartConfig, transformers.BartConfig()])
def test_auto_map_refuses_a_config_of_others(stranger):
    with pytest.raises(
        ValueError, match=r"needs a config .*RnnSeq2SeqConfig.*got BartConfig\. Pass"
    ):
        auto_map_for(stranger)


def test_registering_again_changes_nothing():
    before = dict(AutoModelForSeq2SeqLM._model_mapping._extra_content)
    register()
    assert AutoModelForSeq2SeqLM._model_mapping._extra_content == before


def test_registering_refuses_a_model_type_of_transformers(monkeypatch):
    class Squatter(transformers.PreTrainedConfig):
        model_type = "bart"

    monkeypatch.setattr(auto_classes, "FAMILIES", (Family(Squatter, {}),))
    with pytest.raises(ValueError, match="'bart' is already used"):
        register()


@pytest.mark.parametrize(
    ("promises", "complaint"),
    [({"speed": "too slow"}, "got 'speed'"), ({"cache": " "}, "got 'cache'")],
)
def test_unkept_promise_needs_a_line_of_the_contract_and_a_reason(promises, complaint):
    with pytest.raises(ValueError, match=complaint):
        Family(hf_seqmodels.RnnSeq2SeqConfig, {}, unkept_promises=promises)
