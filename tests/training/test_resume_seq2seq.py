"""A run that is interrupted and started again gives what it would have given uninterrupted."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from run_folder import checkpoint_problem
from run_seq2seq import main, prepare, run_all
from safetensors.torch import load_file
from transformers import TrainerCallback


class PulledPlug(TrainerCallback):
    """Ends the process, as far as the run can tell, after a number of steps."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise KeyboardInterrupt


def interrupt(options, *, step):
    run = prepare(options)
    run.trainer.add_callback(PulledPlug(step))
    with pytest.raises(KeyboardInterrupt):
        run_all(run)


def assert_same_result(folder, other):
    weights, other_weights = (load_file(path / "model.safetensors") for path in (folder, other))
    assert weights.keys() == other_weights.keys()
    for name, weight in weights.items():
        assert torch.equal(weight, other_weights[name]), name
    states = [json.loads((path / "trainer_state.json").read_text()) for path in (folder, other)]
    for state in states:
        for entry in state["log_history"]:
            for name in [name for name in entry if name.endswith(("runtime", "per_second"))]:
                del entry[name]
    histories = [
        [entry for entry in state["log_history"] if "train_loss" not in entry] for state in states
    ]
    assert histories[0] == histories[1]
    predictions = [(path / "predictions.jsonl").read_text() for path in (folder, other)]
    assert predictions[0] == predictions[1]


SAMPLING = {
    "random": [],
    "by_length": ["--train_sampling_strategy", "group_by_length"],
    "token_budget": ["--max_tokens_per_batch", "60"],
    "accumulated": ["--gradient_accumulation_steps", "2", "--max_tokens_per_batch", "40"],
}


RHYTHM = ["--eval_strategy", "steps", "--save_strategy", "steps", "--eval_steps", "3"]
RHYTHM += ["--save_steps", "3", "--num_train_epochs", "3", "--logging_steps", "1"]


@pytest.fixture(scope="module", params=SAMPLING)
def straight(request, shared_options):
    """The options of one way of sampling and the folder of its uninterrupted run."""
    options = [*RHYTHM, *SAMPLING[request.param]]
    argv = shared_options(*options, name=request.param)
    main(argv)
    return options, Path(argv[argv.index("--output_dir") + 1])


@pytest.mark.parametrize("step", [4, 7])  # in the first epoch, and in the second
def test_resumed_run_equals_an_uninterrupted_one(tiny_options, tmp_path, straight, step):
    options, folder = straight
    argv = tiny_options(*options)
    interrupt(argv, step=step)
    record = main(argv)
    assert record["train"]["resumed_at_step"] == step // 3 * 3
    assert_same_result(folder, tmp_path / "run")


def test_resume_at_the_end_of_an_epoch_equals_an_uninterrupted_run(tiny_options, tmp_path):
    options = ["--num_train_epochs", "3", "--train_sampling_strategy", "group_by_length"]
    main(tiny_options(*options, output_dir=tmp_path / "straight"))
    broken = tiny_options(*options, output_dir=tmp_path / "broken")
    interrupt(broken, step=7)  # six steps an epoch
    main([*broken, "--resume_from_checkpoint", "true"])
    assert_same_result(tmp_path / "straight", tmp_path / "broken")


def test_early_stopping_remembers_how_long_it_has_waited(tiny_options, tmp_path):
    options = ["--learning_rate", "0", "--early_stopping_patience", "3", "--num_train_epochs", "9"]
    options += ["--metric_for_best_model", "loss"]
    straight = main(tiny_options(*options, output_dir=tmp_path / "straight"))
    broken = tiny_options(*options, output_dir=tmp_path / "broken")
    interrupt(broken, step=15)
    assert main(broken)["train"]["steps"] == straight["train"]["steps"] == 24


@pytest.mark.parametrize(
    "options",
    [
        ["--learning_rate", "0", "--early_stopping_patience", "2", "--num_train_epochs", "9"],
        [
            "--max_steps",
            "8",
            "--eval_strategy",
            "steps",
            "--eval_steps",
            "4",
            "--save_strategy",
            "steps",
            "--save_steps",
            "4",
        ],
    ],
    ids=["stopped early", "all steps done"],
)
def test_a_run_that_had_only_to_report_trains_no_further(tiny_options, tmp_path, options):
    argv = tiny_options(*options, "--metric_for_best_model", "loss")
    straight = main(argv)
    folder, copy = tmp_path / "run", tmp_path / "straight"
    shutil.copytree(folder, copy)
    for path in folder.iterdir():
        if not path.name.startswith("checkpoint-"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    record = main(argv)
    assert record["train"]["steps"] == straight["train"]["steps"]
    assert record["test"]["loss"] == straight["test"]["loss"]
    weights = [load_file(path / "model.safetensors") for path in (folder, copy)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_half_written_checkpoint_is_passed_over(tiny_options, tmp_path, caplog):
    options = tiny_options("--num_train_epochs", "3", "--save_total_limit", "9")
    interrupt(options, step=13)
    newest = tmp_path / "run" / "checkpoint-12"
    optimizer = newest / "optimizer.pt"
    optimizer.write_bytes(optimizer.read_bytes()[:100])
    caplog.set_level("INFO", logger="run_seq2seq")
    record = main(options)
    assert record["train"]["resumed_at_step"] == 6
    assert "checkpoint-12 is not complete (optimizer.pt is cut off or damaged)" in caplog.text
    assert "resuming at step 6 (checkpoint-6)" in caplog.text
    assert checkpoint_problem(newest) is None  # written again


@pytest.fixture(scope="module")
def cut_off(shared_options):
    """A run that stopped at step 7, after the checkpoint of step 6."""
    argv = shared_options(name="cut_off")
    interrupt(argv, step=7)
    return Path(argv[argv.index("--output_dir") + 1])


DAMAGES = {
    "no config": ("config.json", None, "config.json is missing"),
    "broken state": ("trainer_state.json", b"{", "trainer_state.json is cut off"),
    "broken scheduler": ("scheduler.pt", b"", "scheduler.pt is cut off"),
    "no random state": ("rng_state.pth", None, "rng_state.pth is missing"),
    "broken weights": ("model.safetensors", b"\x00" * 50, "model.safetensors is cut off"),
    "no weights": ("model.safetensors", None, r"the weights \(\*.safetensors\) are missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_refused(tiny_options, tmp_path, cut_off, damage):
    name, content, problem = DAMAGES[damage]
    checkpoint = shutil.copytree(cut_off / "checkpoint-6", tmp_path / "checkpoint-6")
    if content is None:
        (checkpoint / name).unlink()
    else:
        (checkpoint / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"cannot resume from .*checkpoint-6': {problem}"):
        prepare(tiny_options("--resume_from_checkpoint", str(checkpoint)))


def test_another_model_is_not_resumed(tiny_options, tmp_path, cut_off):
    shutil.copytree(cut_off, tmp_path / "run")
    message = "its model is another one: hidden_size is 12 there and 16 here"
    with pytest.raises(ValueError, match=message):
        prepare(tiny_options("--config_overrides", "hidden_size=16"))


def test_overwriting_begins_anew(tiny_options, tmp_path):
    main(tiny_options())
    record = main(tiny_options("--overwrite_output_dir", "--num_train_epochs", "1", "--seed", "4"))
    assert record["train"]["resumed_at_step"] == 0
    assert [path.name for path in (tmp_path / "run").glob("checkpoint-*")] == ["checkpoint-6"]


def test_a_finished_run_is_trained_further_only_on_request(tiny_options, tmp_path):
    main(tiny_options("--num_train_epochs", "1"))
    with pytest.raises(ValueError, match=r"holds a finished run\. Choose another folder"):
        prepare(tiny_options())
    record = main(tiny_options("--resume_from_checkpoint", "true"))
    assert (record["train"]["resumed_at_step"], record["train"]["steps"]) == (6, 12)


def test_a_failed_report_leaves_no_half_written_files(tiny_options, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("disk full")

    monkeypatch.setattr("run_report.write_card", fail)
    with pytest.raises(RuntimeError, match="disk full"):
        main(tiny_options())
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"checkpoint-6", "checkpoint-12"}
    monkeypatch.undo()
    assert main(tiny_options())["train"]["resumed_at_step"] == 12
