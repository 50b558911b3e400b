"""Which folders can be exported: complete checkpoints, and what is said of others."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_seqmodels.hub import load_checkpoint
from hf_seqmodels.hub.__main__ import main
from hf_seqmodels.hub.exporting import is_export
from hub_checkpoints import make_model, make_tokenizer


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """A complete checkpoint; tests change copies of it."""
    folder = tmp_path_factory.mktemp("run") / "checkpoint-3"
    make_model().save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def checkpoint(complete, tmp_path):
    return shutil.copytree(complete, tmp_path / "checkpoint-3")


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_complete_checkpoint_loads_with_both_sides_of_its_tokenizer(checkpoint):
    model, tokenizer = load_checkpoint(checkpoint)
    expected = make_model()
    assert not model.training
    torch.testing.assert_close(model.state_dict(), expected.state_dict(), rtol=0, atol=0)
    assert tokenizer("abc", text_target="AB") == make_tokenizer()("abc", text_target="AB")


@pytest.mark.parametrize(
    "name",
    [
        *("config.json", "generation_config.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json", "target_tokenizer/tokenizer.json"),
    ],
)
def test_missing_file_is_named(name, checkpoint):
    (checkpoint / name).unlink()
    with pytest.raises(ValueError, match=r"is not a complete checkpoint: ") as caught:
        load_checkpoint(checkpoint)
    assert name.rpartition("/")[0] in str(caught.value)
    assert name in str(caught.value) or "target side cannot be read" in str(caught.value)


def test_shard_that_is_missing_is_named(checkpoint):
    make_model().save_pretrained(checkpoint, max_shard_size="3KB")
    (checkpoint / "model.safetensors").unlink()
    load_checkpoint(checkpoint)
    next(iter(sorted(checkpoint.glob("model-*.safetensors")))).unlink()
    with pytest.raises(ValueError, match=r"model-00001-of-0000\d\.safetensors missing"):
        load_checkpoint(checkpoint)


def test_damaged_files_are_named(checkpoint):
    weights = (checkpoint / "model.safetensors").read_bytes()
    (checkpoint / "model.safetensors").write_bytes(weights[:-10])
    with pytest.raises(ValueError, match=r"model\.safetensors \(.* bytes instead of .* cut off"):
        load_checkpoint(checkpoint)
    (checkpoint / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json cut off or damaged"):
        load_checkpoint(checkpoint)


def test_weights_that_do_not_fit_are_named(checkpoint):
    path = checkpoint / "model.safetensors"
    weights = load_file(path)
    bias = weights.pop("lm_head.bias")
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"weights with missing keys lm_head\.bias"):
        load_checkpoint(checkpoint)
    save_file({**weights, "lm_head.bias": bias, "extra": bias.clone()}, path, {"format": "pt"})
    with pytest.raises(ValueError, match=r"weights with unexpected keys extra"):
        load_checkpoint(checkpoint)


def test_model_of_others_is_refused(checkpoint):
    edit(checkpoint / "config.json", architectures=["Mine"])
    with pytest.raises(ValueError, match=r"architectures .*RnnSeq2SeqForCond.* got \['Mine'\]"):
        load_checkpoint(checkpoint)
    edit(checkpoint / "config.json", model_type="bart")
    with pytest.raises(ValueError, match=r"seqmodels_rnn_seq2seq.*got 'bart'\. Models of trans"):
        load_checkpoint(checkpoint)


def test_unfinished_run_names_its_checkpoints(checkpoint):
    shutil.copytree(checkpoint, checkpoint.parent / "checkpoint-12")
    with pytest.raises(ValueError, match=r"It holds checkpoint-3, checkpoint-12: name one"):
        load_checkpoint(checkpoint.parent)
    with pytest.raises(ValueError, match=r"must be a folder, and '.*nowhere' is none"):
        load_checkpoint(checkpoint / "nowhere")


def test_command_line_exports_and_says_what_is_wrong(checkpoint, tmp_path, capsys):
    exported = tmp_path / "exported"
    options = ["--no_verify", "--license", "mit", "--language", "en", "bg"]
    main(["export", str(checkpoint), str(exported), *options])
    assert capsys.readouterr().out == f"Exported to {exported}.\n"
    assert is_export(exported)
    assert "license: mit" in (exported / "README.md").read_text()

    (checkpoint / "tokenizer.json").unlink()
    with pytest.raises(SystemExit, match=r"^hf_seqmodels\.hub: error: .*tokenizer\.json missing"):
        main(["export", str(checkpoint), str(tmp_path / "other"), "--no_verify"])
    assert not (tmp_path / "other").exists()
    main(["export", str(checkpoint), str(exported), "--no_verify", "--no_tokenizer"])
    assert not (exported / "tokenizer_config.json").exists()
