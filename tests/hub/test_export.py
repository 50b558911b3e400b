"""A folder that export writes: complete, in its place or nowhere, and right for strangers."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BartConfig, BartModel

import hf_seqmodels.models
from family_cases import representatives_of
from family_grids import GRIDS
from hf_seqmodels import RnnSeq2SeqForConditionalGeneration, auto_map_for
from hf_seqmodels.data import train_tokenizer
from hf_seqmodels.hub import export, exporting, load_checkpoint, push, verification
from hf_seqmodels.hub.__main__ import main
from hf_seqmodels.hub.exporting import MOST_CODE_FILES, files_of, has_its_code, is_export
from hub_checkpoints import assert_same, make_model, make_tokenizer, outputs_of, pull_as_stranger
from hub_connection import hub_environment
from loopback_hub import OWNER

MODELS = Path(hf_seqmodels.models.__file__).parent
WEIGHTS_AND_SETTINGS = {"README.md", "config.json", "model.safetensors"}
PAIR = {
    *("tokenizer.json", "tokenizer_config.json", "tokenization_seq2seq.py"),
    *("target_tokenizer/tokenizer.json", "target_tokenizer/tokenizer_config.json"),
}


def quick_export(folder, **options):
    return export(make_model(), make_tokenizer(), folder, verify=False, **options)


def read(folder, name="config.json"):
    return json.loads((folder / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: grid.model_type)
def test_export_of_every_family_is_complete_and_comes_back(grid, tmp_path):
    model = grid.model_class(grid.family.config_class(**grid.base))
    folder = export(model, None, tmp_path / "exported", verify=False)

    names = set(files_of(folder))
    code = {name for name in names if name.endswith(".py")}
    settings = {"generation_config.json"} if grid.generates else set()
    assert names == WEIGHTS_AND_SETTINGS | settings | code
    has_pair = grid.family.tokenizer_class is not None
    assert len(code) + has_pair <= MOST_CODE_FILES == 10
    for name in code:
        assert (folder / name).read_bytes() == (MODELS / name).read_bytes()
    assert read(folder)["auto_map"] == auto_map_for(model.config)
    assert set(read(folder).get("custom_pipelines", ())) == set(grid.family.pipelines)
    loaded, tokenizer = load_checkpoint(folder, with_tokenizer=False)
    assert tokenizer is None
    torch.testing.assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_export_with_a_pair_of_tokenizers_holds_both_and_ten_code_files(tmp_path):
    folder = quick_export(tmp_path / "exported")
    assert set(files_of(folder)) >= PAIR
    assert len(list(folder.glob("*.py"))) <= MOST_CODE_FILES
    for option in (None, True):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=option)
        encoding = tokenizer("abc", text_target="AB")
        assert dict(encoding) == dict(make_tokenizer()("abc", text_target="AB"))


def test_folder_that_lacks_a_code_file_is_told(tmp_path):
    folder = quick_export(tmp_path / "exported")
    assert has_its_code(folder)
    make_tokenizer().save_pretrained(tmp_path / "plain")
    settings = read(folder, "tokenizer_config.json")
    shutil.copy(tmp_path / "plain" / "tokenizer_config.json", folder)
    assert not has_its_code(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    for name in ("pipeline_seq2seq_generation.py", "configuration_rnn_seq2seq.py"):
        (folder / name).rename(tmp_path / name)
        assert is_export(folder) and not has_its_code(folder)
        (tmp_path / name).rename(folder / name)
    assert has_its_code(folder)


def test_exporting_again_replaces_the_export_and_leaves_nothing_else(tmp_path):
    folder = quick_export(tmp_path / "exported")
    (folder / "layers_of_old.py").touch()  # of an earlier version
    assert is_export(folder)
    assert quick_export(folder) == folder
    assert not (folder / "layers_of_old.py").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["exported"]


def test_export_keeps_its_hands_off_other_files(tmp_path, monkeypatch):
    folder = tmp_path / "exported"
    folder.mkdir()
    quick_export(folder)  # an empty folder is fine
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"holds other files \(.*Choose another.*--overwrite"):
        quick_export(folder)
    assert (folder / "notes.txt").read_text() == "mine"
    quick_export(folder, overwrite=True)
    assert not (folder / "notes.txt").exists()

    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"'.*file' is a file"):
        quick_export(tmp_path / "file")
    for place in (folder, tmp_path):
        with pytest.raises(ValueError, match="is the checkpoint itself, holds it"):
            quick_export(place, source=folder, overwrite=True)
    monkeypatch.chdir(folder)
    with pytest.raises(ValueError, match="where you are"):
        quick_export(".", overwrite=True)


@pytest.mark.parametrize("was_there", [False, True])
def test_export_that_fails_leaves_what_was_there(was_there, tmp_path, monkeypatch):
    folder = tmp_path / "exported"
    before = {}
    if was_there:
        quick_export(folder)
        before = {name: path.read_bytes() for name, path in files_of(folder).items()}

    def fail(*arguments):
        raise RuntimeError("does not compute")

    monkeypatch.setattr(exporting, "verify_export", fail)
    with pytest.raises(RuntimeError, match="does not compute"):
        export(make_model(seed=2), make_tokenizer(), folder)
    monkeypatch.undo()

    rename = os.rename
    moves = iter([rename, fail, rename] if was_there else [fail])
    with pytest.raises((RuntimeError, OSError)), monkeypatch.context() as patch:

        def move(*places):
            try:
                return next(moves)(*places)
            except RuntimeError as error:
                raise OSError("no space") from error

        patch.setattr(os, "rename", move)
        quick_export(folder)
    assert {name: path.read_bytes() for name, path in files_of(folder).items()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["exported"] * was_there


def test_card_of_the_user_comes_first_and_pictures_come_along(tmp_path):
    source = tmp_path / "run"
    source.mkdir()
    (source / "README.md").write_text("# Mine\n\n![alignments](alignments.png)\n")
    (source / "alignments.png").write_bytes(b"picture")
    kept = quick_export(tmp_path / "kept", source=source)
    assert (kept / "README.md").read_text() == (source / "README.md").read_text()
    assert (kept / "alignments.png").read_bytes() == b"picture"
    assert is_export(kept)

    given = quick_export(tmp_path / "given", source=source, card="# Yours\n")
    assert (given / "README.md").read_text() == "# Yours\n"
    assert not (given / "alignments.png").exists()

    written = quick_export(tmp_path / "new", repo_id="ada/words", facts={"license": "mit"})
    text = (written / "README.md").read_text()
    assert "license: mit" in text and '"ada/words"' in text


def test_export_refuses_models_and_tokenizers_that_do_not_belong(tmp_path):
    class Mine(RnnSeq2SeqForConditionalGeneration):
        pass

    model = make_model()
    tiny = BartConfig(d_model=16, encoder_layers=1, decoder_layers=1, vocab_size=9)
    for stranger in (BartModel(tiny), Mine(model.config), torch.nn.DataParallel(model)):
        with pytest.raises(ValueError, match=rf"got .*{type(stranger).__name__}\. Pass the model"):
            export(stranger, None, tmp_path / "exported")
    larger = train_tokenizer(["abcdefghijklmnopqrstuvwxyz"], model="char")
    with pytest.raises(ValueError, match=r"tokenizer must have at most the \d+ tokens.*got 30"):
        export(model, larger, tmp_path / "exported")
    assert list(tmp_path.iterdir()) == []


def test_difference_is_named_and_small_noise_is_none():
    logits = torch.tensor([[0.5, -2.0]])
    expected = {"outputs.logits": logits, "beams": torch.tensor([[1, 2]]), "class": "A"}
    verification._compare({**expected, "outputs.logits": logits * (1 + 1e-7)}, expected)
    wrong = {"outputs.logits": logits + 0.001, "beams": torch.tensor([[1, 3]]), "more": 1}
    with pytest.raises(RuntimeError, match=r"beams, class, more, outputs\.logits differ"):
        verification._compare(wrong, expected)


RESAVED = """
import sys
sys.modules["hf_seqmodels"] = None  # any import of the package fails from here on
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
for loaded, saved in zip(sys.argv[1:], sys.argv[2:]):
    model = AutoModelForSeq2SeqLM.from_pretrained(loaded, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(loaded, trust_remote_code=True)
    model.save_pretrained(saved)
    tokenizer.save_pretrained(saved)
"""


def saved_again_by_a_stranger(name, folders, place, environment):
    """Load a model without the package, save it, load that, and so on; return the folders."""
    command = [sys.executable, "-c", RESAVED, name, *folders]
    finished = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return [place / folder for folder in folders]


def assert_complete(folder, contents):
    """Check that a folder holds what was loaded, but for the card."""
    assert set(files_of(folder)) == set(contents) - {"README.md", ".gitattributes"}
    for name, path in files_of(folder).items():
        if not name.endswith("tokenizer_config.json"):  # whose defaults are written out
            assert path.read_bytes() == contents[name], name


@pytest.mark.slow
def test_exported_checkpoint_is_the_same_for_strangers_and_stays_complete(tmp_path, capsys):
    model, tokenizer = make_model(), make_tokenizer()
    checkpoint, folder = tmp_path / "checkpoint-7", tmp_path / "exported"
    model.save_pretrained(checkpoint)
    tokenizer.save_pretrained(checkpoint)
    assert not list(checkpoint.glob("*.py"))

    main(["export", str(checkpoint), str(folder)])  # checks what it writes in a fresh process

    assert "checked in a process without hf_seqmodels" in capsys.readouterr().out
    environment = hub_environment("http://127.0.0.1:9", tmp_path / "home", HF_HUB_OFFLINE="1")
    found = pull_as_stranger("exported", tmp_path, environment)
    assert_same(found, outputs_of(model, tokenizer))
    # saved again by somebody without the package, it has all its files again
    contents = {path: file.read_bytes() for path, file in files_of(folder).items()}
    for again in saved_again_by_a_stranger("exported", ("b", "c"), tmp_path, environment):
        assert_complete(again, contents)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_pulled_model_is_saved_complete_by_strangers(hub, signed_in, tmp_path):
    name = f"{OWNER}/words"
    push(make_model(), name, tokenizer=make_tokenizer(), verify=False)
    contents = {path: file.content for path, file in hub.files(name).items()}
    environment = hub_environment(hub.endpoint, tmp_path / "home")
    (again,) = saved_again_by_a_stranger(name, ("again",), tmp_path, environment)
    assert_complete(again, contents)


@pytest.mark.slow
@pytest.mark.parametrize(
    "grid",
    [grid for grid in GRIDS if grid.family.tokenizer_class is None],  # the others: above
    ids=lambda grid: grid.model_type,
)
def test_export_of_every_other_family_passes_its_own_check(grid, tmp_path):
    tokenizer = train_tokenizer(["abc cab"], model="char")
    model = representatives_of(grid)[0].model(dtype=torch.float32)
    assert is_export(export(model, tokenizer, tmp_path / "exported"))


@pytest.mark.slow
def test_export_that_does_not_load_says_so(tmp_path):
    folder = quick_export(tmp_path / "exported")
    (folder / "outputs.py").write_text("raise ImportError('nothing here')\n")
    with pytest.raises(RuntimeError, match=r"(?s)does not load without the package.*nothing here"):
        verification.verify_export(folder, make_model(), make_tokenizer())
