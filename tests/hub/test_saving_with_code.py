"""What save_pretrained writes: the code of the model, or none of it."""

import json
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
)

import hf_seqmodels.models
from family_grids import GRIDS
from hf_seqmodels import RnnSeq2SeqConfig, RnnSeq2SeqForConditionalGeneration, auto_map_for
from hf_seqmodels.auto_classes import InstalledPipelines
from hf_seqmodels.data import Seq2SeqCollator, Seq2SeqTokenizer, train_tokenizer
from loopback_hub import OWNER

MODELS = Path(hf_seqmodels.models.__file__).parent
every_family = pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: grid.model_type)
TINY = {"vocab_size": 23, "embedding_size": 10, "hidden_size": 12, "encoder_hidden_size": 14}


def tiny_model(grid):
    return grid.model_class(grid.family.config_class(**grid.base))


def read(folder, name="config.json"):
    return json.loads((folder / name).read_text(encoding="utf-8"))


def code_in(folder):
    return {path.name for path in folder.glob("*.py")}


@pytest.fixture
def pair():
    source = train_tokenizer(["abc", "déf"], model="char")
    target = train_tokenizer(["x y", "z"], model="symbol")
    return Seq2SeqTokenizer.from_pair(source, target)


@pytest.fixture
def model():
    return RnnSeq2SeqForConditionalGeneration(RnnSeq2SeqConfig(**TINY))


@every_family
def test_saved_model_brings_the_reviewed_files_and_names_every_auto_class(grid, tmp_path):
    tiny_model(grid).save_pretrained(tmp_path)
    assert read(tmp_path)["auto_map"] == auto_map_for(grid.family.config_class)
    assert {ref.split(".")[0] + ".py" for ref in grid.family.auto_map.values()} <= code_in(tmp_path)
    for name in code_in(tmp_path):
        assert (tmp_path / name).read_bytes() == (MODELS / name).read_bytes()


@every_family
@pytest.mark.parametrize("trust", [None, False, True])
def test_installed_classes_load_it_without_a_question(grid, trust, tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda question: pytest.fail(question))
    saved = tiny_model(grid)
    saved.save_pretrained(tmp_path)
    for auto_class, model_class in grid.family.model_classes.items():
        assert type(auto_class.from_pretrained(tmp_path, trust_remote_code=trust)) is model_class
    config = AutoConfig.from_pretrained(tmp_path, trust_remote_code=trust)
    assert type(config) is grid.family.config_class
    assert type(grid.auto_class.from_config(config, trust_remote_code=trust)) is grid.model_class


@every_family
def test_folder_of_a_trainer_checkpoint_stays_light(grid, tmp_path):
    light, full = tmp_path / "checkpoint-12", tmp_path / "checkpoint-best"
    model = tiny_model(grid)
    model.save_pretrained(full)
    assert code_in(full)
    # a config that came from a folder with code names that code
    grid.model_class.from_pretrained(full).save_pretrained(light)
    assert code_in(light) == set()
    assert {"auto_map", "custom_pipelines"}.isdisjoint(read(light))
    kept = read(full)
    for key in grid.family.code_entries:
        del kept[key]
    assert read(light) == kept


def test_processes_that_do_not_write_leave_the_folder_alone(model, tmp_path):
    model.save_pretrained(tmp_path, is_main_process=False)
    assert list(tmp_path.iterdir()) == []


def test_adapters_alone_bring_no_code(model, tmp_path, monkeypatch):
    # as PreTrainedModel does once an adapter of peft is attached
    monkeypatch.setattr(PreTrainedModel, "save_pretrained", lambda *args, **kwargs: None)
    model.save_pretrained(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_class_of_a_user_is_not_named_as_ours(tmp_path):
    class Mine(RnnSeq2SeqForConditionalGeneration):
        pass

    Mine(RnnSeq2SeqConfig(**TINY)).save_pretrained(tmp_path)
    assert "auto_map" not in read(tmp_path)
    assert code_in(tmp_path) == set()


def test_config_forgets_the_pipelines_that_are_installed_and_keeps_others():
    class Config(RnnSeq2SeqConfig):
        custom_pipelines = InstalledPipelines(["mine"])

    theirs = {"theirs": {"impl": "pipeline_b.B", "pt": ["AutoModel"]}}
    config = Config(custom_pipelines={"mine": {"impl": "pipeline_a.A"}, **theirs})
    assert config.custom_pipelines == theirs == config.to_dict()["custom_pipelines"]
    config.custom_pipelines = {"mine": {"impl": "pipeline_a.A"}}
    assert config.custom_pipelines == {}
    assert "custom_pipelines" not in config.to_dict()
    assert Config.custom_pipelines == {}


def test_pair_of_tokenizers_alone_needs_no_code(pair, tmp_path):
    pair.save_pretrained(tmp_path)
    assert "auto_map" not in read(tmp_path, "tokenizer_config.json")
    assert code_in(tmp_path) == set()


def test_pair_of_tokenizers_brings_its_code_to_a_model_with_code(pair, model, tmp_path):
    full, light = tmp_path / "full", tmp_path / "checkpoint-3"
    for folder in (full, light):
        model.save_pretrained(folder)
        pair.save_pretrained(folder)
    auto_map = {"AutoTokenizer": ["tokenization_seq2seq.Seq2SeqTokenizer", None]}
    assert read(full, "tokenizer_config.json")["auto_map"] == auto_map
    copied = (full / "tokenization_seq2seq.py").read_bytes()
    assert copied == (MODELS / "tokenization_seq2seq.py").read_bytes()
    assert "auto_map" not in read(light, "tokenizer_config.json")
    assert code_in(light) == set()


def test_pair_from_a_folder_with_code_is_saved_without_again(pair, model, tmp_path):
    model.save_pretrained(tmp_path / "full")
    pair.save_pretrained(tmp_path / "full")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "full")
    assert type(loaded) is Seq2SeqTokenizer
    loaded.save_pretrained(tmp_path / "again")
    assert "auto_map" not in read(tmp_path / "again", "tokenizer_config.json")


def test_trainer_saves_light_checkpoints_and_a_complete_model(pair, model, tmp_path):
    pairs = [pair("abc", text_target="x y")] * 4
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(tmp_path),
            max_steps=2,
            save_steps=1,
            per_device_train_batch_size=2,
            use_cpu=True,
            disable_tqdm=True,
            report_to=[],
        ),
        train_dataset=[dict(row) for row in pairs],
        data_collator=Seq2SeqCollator(pair, model=model),
        processing_class=pair,
    )
    trainer.train()
    trainer.save_model()
    for folder in (tmp_path / "checkpoint-1", tmp_path / "checkpoint-2"):
        assert code_in(folder) == set()
        assert "auto_map" not in read(folder)
        assert "auto_map" not in read(folder, "tokenizer_config.json")
    assert read(tmp_path)["auto_map"] == auto_map_for(model.config)
    assert "auto_map" in read(tmp_path, "tokenizer_config.json")
    loaded = type(model).from_pretrained(tmp_path)
    torch.testing.assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_saving_and_pushing_at_once_sends_the_code_from_any_folder(model, hub, signed_in, tmp_path):
    name, folder = f"{OWNER}/words", tmp_path / "checkpoint-3"
    for _ in range(2):  # the second time everything is there already
        model.save_pretrained(folder, push_to_hub=True, repo_id=name)
        files = hub.files(name)
        assert {path for path in files if path.endswith(".py")} == code_in(folder) != set()
        settings = json.loads(files["config.json"].content)
        assert settings["auto_map"] == auto_map_for(model.config)
