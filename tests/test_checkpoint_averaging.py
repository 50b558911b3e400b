"""The mean of checkpoints, against loops over the tensors and against the model itself."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM

from hf_seqmodels.checkpoint_averaging import (
    average_checkpoints,
    choose_checkpoints,
    exponential_weights,
    main,
)
from tiny_encoder_decoders import make_bart, make_rnn, make_tokenizer


@pytest.fixture
def run(tmp_path):
    """A run of three checkpoints of a tied model, with what a Trainer leaves beside them."""
    torch.manual_seed(0)
    for step, loss in ((1, 0.5), (2, 0.9), (10, 0.4)):
        model = make_rnn(tie_word_embeddings=True)
        folder = tmp_path / "run" / f"checkpoint-{step}"
        model.save_pretrained(folder)
        make_tokenizer().save_pretrained(folder)
        (folder / "optimizer.pt").write_bytes(b"state")
        history = [
            {"step": 1, "eval_loss": 0.5, "eval_bleu": 3.0},
            {"step": 2, "eval_loss": 0.9, "eval_bleu": 5.0},
            {"step": 10, "eval_loss": loss, "eval_bleu": 5.0},
            {"step": 10, "loss": 0.1},
        ]
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    return tmp_path / "run"


def folders_of(run):
    return [run / f"checkpoint-{step}" for step in (1, 2, 10)]


def tensors_of(folder):
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 5.0]])
def test_every_tensor_is_the_mean(run, tmp_path, weights):
    average_checkpoints(folders_of(run), tmp_path / "out", weights=weights)
    parts = [tensors_of(folder) for folder in folders_of(run)]
    shares = weights or [1.0, 1.0, 1.0]
    averaged = tensors_of(tmp_path / "out")
    assert averaged.keys() == parts[0].keys()
    for name, found in averaged.items():
        expected = torch.zeros_like(found, dtype=torch.float64)
        for share, part in zip(shares, parts, strict=True):
            expected += share / sum(shares) * part[name].double()
        torch.testing.assert_close(found, expected.float())


def test_identical_checkpoints_average_to_the_checkpoint(run, tmp_path):
    """Bit by bit, whatever the weights, for a tied and a bfloat16 model."""
    folder = run / "checkpoint-1"
    average_checkpoints([folder] * 3, tmp_path / "out", weights=[0.1, 0.3, 0.7])
    for name, tensor in tensors_of(tmp_path / "out").items():
        assert torch.equal(tensor, tensors_of(folder)[name])
    torch.manual_seed(0)
    make_bart().to(torch.bfloat16).save_pretrained(tmp_path / "half")
    average_checkpoints([tmp_path / "half"] * 3, tmp_path / "half_out")
    for name, tensor in tensors_of(tmp_path / "half_out").items():
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(tensor, tensors_of(tmp_path / "half")[name])


def test_the_folder_is_a_checkpoint_with_its_ties(run, tmp_path):
    output = average_checkpoints(folders_of(run), tmp_path / "out")
    model, report = AutoModelForSeq2SeqLM.from_pretrained(output, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    tied = model.get_output_embeddings().weight
    assert tied.data_ptr() == model.get_decoder().get_input_embeddings().weight.data_ptr()
    names = {path.name for path in output.iterdir()}
    assert {"config.json", "generation_config.json", "tokenizer.json"} <= names
    assert not names & {"optimizer.pt", "trainer_state.json"}


def test_shards_and_integers_are_taken_as_they_are(run, tmp_path):
    folders = folders_of(run)[:2]
    for number, folder in enumerate(folders):
        tensors = tensors_of(folder) | {"steps": torch.tensor([number + 7])}
        (folder / "model.safetensors").unlink()
        names = sorted(tensors)
        parts = {"a.safetensors": names[:2], "b.safetensors": names[2:]}
        for file, members in parts.items():
            save_file({name: tensors[name] for name in members}, folder / file)
        index = {name: file for file, members in parts.items() for name in members}
        text = json.dumps({"weight_map": index})
        (folder / "model.safetensors.index.json").write_text(text)
    average_checkpoints(folders, tmp_path / "out")
    averaged = tensors_of(tmp_path / "out")
    assert averaged["steps"].tolist() == [8]
    assert not list((tmp_path / "out").glob("*.index.json"))
    AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")


def test_checkpoints_are_chosen_by_step_or_metric(run):
    first, second, third = folders_of(run)
    assert choose_checkpoints(run, "last", 2) == [second, third]
    assert choose_checkpoints(run, "best", 2) == [first, third]
    assert choose_checkpoints(run, "best", 1, metric="bleu") == [third]
    assert choose_checkpoints(run, "best", 2, metric="eval_bleu") == [second, third]
    assert choose_checkpoints(run, "best", 1, metric="bleu", greater_is_better=False) == [first]


def test_exponential_weights_fall_from_the_newest():
    assert exponential_weights(3, 0.5) == pytest.approx([1 / 7, 2 / 7, 4 / 7])
    assert exponential_weights(2, 1.0) == [0.5, 0.5]


def test_command_writes_a_checkpoint(run, tmp_path, capsys):
    main([str(run), str(tmp_path / "out"), "--exponential", "0.5"])
    assert "the mean of checkpoint-1, checkpoint-2, checkpoint-10" in capsys.readouterr().out
    parts = [tensors_of(folder)["lm_head.bias"] for folder in folders_of(run)]
    torch.testing.assert_close(
        tensors_of(tmp_path / "out")["lm_head.bias"],
        (parts[0] + 2 * parts[1] + 4 * parts[2]) / 7,
    )
    with pytest.raises(SystemExit, match="must hold at least 9 checkpoints, got 3: checkpoint-1,"):
        main([str(run), str(tmp_path / "more"), "--last", "9"])
    main([str(run), str(tmp_path / "best"), "--best", "2", "--metric", "bleu"])
    assert "checkpoint-2, checkpoint-10" in capsys.readouterr().out


def test_what_cannot_be_averaged_is_refused(run, tmp_path):
    first, second, _ = folders_of(run)
    output = tmp_path / "out"

    def refuse(message, folders=(first, second), **options):
        with pytest.raises(ValueError, match=message):
            average_checkpoints(folders, output, **options)
        assert not output.exists()

    refuse("at least one checkpoint, got none", folders=[])
    refuse(r"one number above 0 per checkpoint, 2, got \[1.0\]", weights=[1.0])
    refuse(r"got \[1.0, 0.0\]", weights=[1.0, 0.0])
    refuse("is not a checkpoint: config.json is missing", folders=[first, tmp_path])
    make_rnn(hidden_size=14).save_pretrained(tmp_path / "other")
    refuse("configs agree, but .* is ", folders=[first, tmp_path / "other"])
    tensors = tensors_of(second)
    tensors["lm_head.bias"] = tensors["lm_head.bias"].half()
    save_file(tensors, second / "model.safetensors")
    refuse("lm_head.bias is .*float16 and .*float32")
    del tensors["lm_head.bias"]
    save_file(tensors, second / "model.safetensors")
    refuse("the same tensors, but lm_head.bias is not in all")
    (second / "model.safetensors").unlink()
    refuse("must hold model.safetensors, which is missing")
    with pytest.raises(ValueError, match="must be a new or an empty folder"):
        average_checkpoints([first], run)
    with pytest.raises(ValueError, match=r"value of eval_chrf .* none for step 1"):
        choose_checkpoints(run, "best", 1, metric="chrf")
    with pytest.raises(ValueError, match=r"decay must be in \(0, 1\], got 1.5"):
        exponential_weights(2, 1.5)
