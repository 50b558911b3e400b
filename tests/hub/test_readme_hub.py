"""The section of README.md about the Hub works as it stands, but for the user name."""

import re
import shlex

import pytest

from hf_seqmodels.hub.__main__ import main
from hub_checkpoints import ROOT, make_model, make_tokenizer
from loopback_hub import OWNER

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


def blocks(language):
    """Return the code blocks of the section, with the name of a user in them."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Share a model on the Hub")[2].partition("\n## ")[0]
    found = re.findall(rf"```{language}\n(.*?)```", section, flags=re.DOTALL)
    return [block.replace("your-name", OWNER) for block in found]


def test_commands_publish_and_both_ways_of_loading_agree(
    hub, signed_in, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    make_model().save_pretrained("runs/demo")
    make_tokenizer().save_pretrained("runs/demo")
    (commands,) = blocks("bash")
    activation, login, push = commands.splitlines()
    assert (activation, login) == ("source .venv/bin/activate", "hf auth login")
    python, option, module, *arguments = shlex.split(push)
    assert (python, option, module) == ("python", "-m", "hf_seqmodels.hub")

    main([*arguments, "--no_verify"])  # what it verifies, test_export.py tests

    assert f"Pushed: {hub.endpoint}/{OWNER}/dates/commit/" in capsys.readouterr().out
    assert b"license: apache-2.0" in hub.files(f"{OWNER}/dates")["README.md"].content
    signed_in(None)
    printed = []
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})
        printed.append(capsys.readouterr().out)
    assert len(printed) == 2
    assert printed[0] == printed[1] and printed[0].startswith("['")
