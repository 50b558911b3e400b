"""The files in training/accelerate are what accelerate and transformers read."""

from pathlib import Path

import accelerate
import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.deepspeed import HfDeepSpeedConfig
from accelerate.utils.launch import prepare_multi_gpu_env
from packaging.version import Version

FOLDER = Path(__file__).resolve().parents[2] / "training" / "accelerate"


def launched(name):
    """Return the options of accelerate launch with a file."""
    words = ["--config_file", str(FOLDER / name), "script.py"]
    return _validate_launch_command(launch_command_parser().parse_args(words))[0]


@pytest.mark.parametrize(
    ("name", "num_processes", "num_machines"),
    [
        ("ddp.yaml", 2, 1),
        ("two_machines.yaml", 8, 2),
        ("fsdp2.yaml", 2, 1),
        ("deepspeed.yaml", 2, 1),
    ],
)
def test_accelerate_starts_as_many_processes_as_the_file_says(name, num_processes, num_machines):
    config = load_config_from_file(str(FOLDER / name))  # refuses keys that it does not know
    assert (config.num_processes, config.num_machines) == (num_processes, num_machines)
    args = launched(name)
    assert (args.num_processes, args.num_machines) == (num_processes, num_machines)
    assert args.use_fsdp == (name == "fsdp2.yaml")
    assert args.use_deepspeed == (name == "deepspeed.yaml")


def test_every_file_is_checked_here():
    names = {path.name for path in FOLDER.iterdir()}
    assert names == {
        *("ddp.yaml", "two_machines.yaml", "fsdp2.yaml", "deepspeed.yaml"),
        *("zero2.json", "zero3.json"),
    }


@pytest.mark.skipif(
    Version(accelerate.__version__) < Version("1.6"), reason="accelerate has FSDP2 since 1.6"
)
def test_fsdp2_reaches_the_processes(monkeypatch):
    for variable, value in prepare_multi_gpu_env(launched("fsdp2.yaml")).items():
        monkeypatch.setenv(variable, value)
    plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is True
    assert "FULL_STATE_DICT" in str(plugin.state_dict_type)
    assert plugin.cpu_ram_efficient_loading is False
    assert plugin.auto_wrap_policy.__name__ == "transformer_auto_wrap_policy"


@pytest.mark.parametrize(("name", "stage"), [("zero2.json", 2), ("zero3.json", 3)])
def test_deepspeed_files_name_their_stage(name, stage):
    config = HfDeepSpeedConfig(str(FOLDER / name))
    assert (config.is_zero2(), config.is_zero3()) == (stage == 2, stage == 3)
    assert config.get_value("train_micro_batch_size_per_gpu") == "auto"  # Trainer fills it in
    assert (FOLDER.parents[1] / launched("deepspeed.yaml").deepspeed_config_file).exists()
