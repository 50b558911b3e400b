"""The section of README.md about text encoders works as it stands, with real weights."""

import re
import shlex
from pathlib import Path

import pytest
from finetune_run import main
from run_classification import ClassificationTask

from hf_seqmodels.conversion.__main__ import main as convert
from minilm import minilm_folder

README = Path(__file__).parents[2] / "README.md"
FRIENDLY, UNFRIENDLY = ("fine", "moving", "a joy"), ("dull", "bad", "pointless")


def blocks(language):
    """Return the code blocks of the section."""
    text = README.read_text(encoding="utf-8")
    section = text.partition("## Text encoders")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, flags=re.DOTALL)


@pytest.mark.slow
def test_commands_and_code_run_on_real_weights(tmp_path, monkeypatch, capsys):
    pytest.importorskip("sentence_transformers", reason="needs the extra dev")
    weights = minilm_folder()
    monkeypatch.chdir(tmp_path)
    rows = [f"{word},{number}" for number in (0, 1) for word in (UNFRIENDLY, FRIENDLY)[number]]
    for name in ("train.csv", "dev.csv"):
        Path(name).write_text("\n".join(["text,label", *rows]) + "\n")
    conversion, training = (shlex.split(block.replace("\\\n", " ")) for block in blocks("bash"))
    assert conversion[:3] == ["python", "-m", "hf_seqmodels.conversion"]
    convert([str(weights), conversion[4]])
    assert capsys.readouterr().out == "Wrote TextEncoderModel to path/to/minilm.\n"

    (code,) = blocks("python")[:1]
    exec(compile(code, "README.md", "exec"), {})
    itself, music, stocks = map(float, re.findall(r"-?\d+\.\d+", capsys.readouterr().out)[:3])
    assert itself > 0.999 and music > stocks + 0.2

    assert training[:2] == ["python", "training/run_classification.py"]
    few = ["--use_cpu", "--disable_tqdm", "true", "--max_steps", "2"]
    few += ["--per_device_train_batch_size", "2", "--save_strategy", "no", "--eval_strategy", "no"]
    figures = main(ClassificationTask, [*training[2:], *few])
    assert Path("runs/opinions/model.safetensors").is_file()
    assert 0 <= figures["validation"]["accuracy"] <= 100
