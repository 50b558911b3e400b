"""What is pushed is what is pulled, whichever way it went up, at every revision."""

import json
import subprocess
import sys

import pytest
import torch
from huggingface_hub import HfApi
from transformers import AutoModelForSeq2SeqLM

from family_cases import representatives_of
from family_grids import GRIDS
from hf_seqmodels.hub import HubError, push
from hub_checkpoints import (
    assert_same,
    code_of,
    make_model,
    make_tokenizer,
    outputs_of,
    pull,
    pull_as_stranger,
)
from hub_connection import hub_environment
from loopback_hub import OWNER, OWNER_TOKEN, Fault
from padded_rows import pad_rows
from stranger import TASK, texts_of

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

NAME = f"{OWNER}/words"


def push_with_package(model, tokenizer, **options):
    return push(model, NAME, tokenizer=tokenizer, verify=False, **options)


def push_with_transformers(model, tokenizer, **options):
    model.push_to_hub(NAME, **options)
    tokenizer.push_to_hub(NAME, **options)


def visible(hub):
    """What everybody sees of a repository: its refs, and all files of main."""
    repo = hub.repositories[NAME]
    return dict(repo.refs), {path: file.content for path, file in hub.files(NAME).items()}


def assert_weights_equal(found, expected):
    weights = found.state_dict()
    assert weights.keys() == expected.state_dict().keys()
    assert all(torch.equal(weights[name], one) for name, one in expected.state_dict().items())


@pytest.mark.parametrize("way", [push_with_package, push_with_transformers])
def test_every_way_of_pushing_brings_numbers_and_code(way, hub, signed_in):
    model, tokenizer = make_model(), make_tokenizer()
    expected = outputs_of(model, tokenizer)

    way(model, tokenizer)

    signed_in(None)
    assert_same(pull(NAME), expected)
    files = hub.files(NAME)
    assert code_of(files) == code_of(model, tokenizer)
    assert [path for path, file in files.items() if file.is_lfs] == ["model.safetensors"]
    settings = json.loads(files["config.json"].content)
    assert settings["auto_map"].keys() == {"AutoConfig", "AutoModel", "AutoModelForSeq2SeqLM"}
    assert TASK in settings["custom_pipelines"]
    assert "README.md" in files
    assert not [path for path, file in files.items() if OWNER_TOKEN.encode() in file.content]


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: grid.model_type)
def test_every_family_comes_back(grid, hub, signed_in):
    case = representatives_of(grid)[0]
    model = case.model(dtype=torch.float32)
    batch = pad_rows(case, model.config).batch

    push(model, NAME, verify=False)

    signed_in(None)
    pulled = grid.auto_class.from_pretrained(NAME)
    assert type(pulled) is type(model)
    assert_weights_equal(pulled, model)
    with torch.no_grad():
        torch.testing.assert_close(pulled(**batch).logits, model(**batch).logits)
    assert code_of(hub.files(NAME)) == code_of(model)
    settings = json.loads(hub.files(NAME)["config.json"].content)
    assert settings["auto_map"] == grid.family.auto_map


def test_push_is_one_commit_after_one_upload(hub, signed_in):
    commit = push_with_package(make_model(), make_tokenizer(), commit_message="my words")

    assert hub.titles(NAME) == ["my words", "initial commit"]
    assert commit.oid == hub.repositories[NAME].refs["main"]
    writes = [seen for seen in hub.seen if seen.method == "PUT" or "/commit/" in seen.path]
    assert [seen.method for seen in writes] == ["PUT", "POST"]
    (large,) = hub.repositories[NAME].large_files.values()
    assert hub.files(NAME)["model.safetensors"].content == large


def test_same_model_again_changes_nothing(hub, signed_in):
    push_with_package(make_model(), make_tokenizer())
    before = visible(hub)
    push_with_package(make_model(), make_tokenizer())
    assert visible(hub) == before
    assert [seen.method for seen in hub.seen].count("PUT") == 1


def test_older_revisions_give_older_weights(hub, signed_in):
    models, tokenizer = {seed: make_model(seed) for seed in (1, 2, 3)}, make_tokenizer()
    first = push_with_package(models[1], tokenizer).oid
    HfApi().create_tag(NAME, tag="v1")
    second = push_with_package(models[2], tokenizer).oid
    push_with_package(models[3], tokenizer, revision="try/other")

    signed_in(None)
    expected = {seed: outputs_of(model, tokenizer) for seed, model in models.items()}
    seen = {first: 1, "v1": 1, second: 2, "main": 2, None: 2, "try/other": 3}
    for revision, seed in seen.items():
        assert_same(pull(NAME, revision=revision), expected[seed])
    with pytest.raises(OSError, match="v9 is not a valid git identifier"):
        AutoModelForSeq2SeqLM.from_pretrained(NAME, revision="v9")


def test_pull_request_holds_the_new_weights_only(hub, signed_in):
    old, new, tokenizer = make_model(1), make_model(2), make_tokenizer()
    push_with_package(old, tokenizer)
    commit = push_with_package(new, tokenizer, create_pr=True)
    assert commit.pr_url == f"{hub.endpoint}/{NAME}/discussions/1"
    assert_same(pull(NAME), outputs_of(old, tokenizer))
    assert_same(pull(NAME, revision="refs/pr/1"), outputs_of(new, tokenizer))


def test_files_of_an_earlier_push_go_and_others_stay(hub, signed_in, tmp_path):
    tokenizer = make_tokenizer()
    push_with_package(make_model(1), tokenizer)
    api = HfApi()
    mine = ["notes.md", "data/model.safetensors", "figure.png"]
    for path in mine:
        api.upload_file(path_or_fileobj=b"mine", path_in_repo=path, repo_id=NAME)
    outdated = ["model-00001-of-00002.safetensors", "layers_old.py"]
    for path in outdated:
        api.upload_file(path_or_fileobj=b"old", path_in_repo=path, repo_id=NAME)
    number_of_commits = len(hub.titles(NAME))

    push_with_package(make_model(2), tokenizer)

    files = hub.files(NAME)
    assert set(mine) <= set(files) and not set(outdated) & set(files)
    assert len(hub.titles(NAME)) == number_of_commits + 1


FAULTS = {
    "large file cut off": Fault("PUT", "/lfs/*", times=99),
    "storage down": Fault("PUT", "/lfs/*", status=503, times=99),
    "commit refused": Fault("POST", "*/commit/*", status=403, times=99),
    "commit cut off": Fault("POST", "*/commit/*", times=99),
    "hub down at the commit": Fault("POST", "*/commit/*", status=500, times=99),
    "hub down at the start": Fault("POST", "*/repos/create", status=502, times=99),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_interrupted_push_leaves_nothing_half_done(fault, hub, signed_in):
    old, new, tokenizer = make_model(1), make_model(2), make_tokenizer()
    push_with_package(old, tokenizer)
    before = visible(hub)
    hub.faults.append(fault)

    with pytest.raises(HubError) as caught:
        push_with_package(new, tokenizer)

    assert fault.times < 99
    assert "push again" in str(caught.value) or "Use your own user name" in str(caught.value)
    assert visible(hub) == before
    fault.times = 0
    assert_same(pull(NAME), outputs_of(old, tokenizer))
    push_with_package(new, tokenizer)
    assert_same(pull(NAME), outputs_of(new, tokenizer))
    assert len(hub.titles(NAME)) == 3


def test_lost_answer_does_not_make_a_second_commit(hub, signed_in):
    hub.faults.append(Fault("POST", "*/commit/*", loses_answer=True))
    with pytest.raises(HubError, match=r"push again\. What has arrived is not sent twice"):
        push_with_package(make_model(), make_tokenizer())
    after = visible(hub)
    assert "model.safetensors" in hub.files(NAME)
    assert push_with_package(make_model(), make_tokenizer()).oid == after[0]["main"]
    assert visible(hub) == after


def test_first_push_interrupted_shows_no_model(hub, signed_in):
    hub.faults.append(Fault("PUT", "/lfs/*", times=99))
    with pytest.raises(HubError):
        push_with_package(make_model(), make_tokenizer())
    assert hub.titles(NAME) == ["initial commit"]
    assert set(hub.files(NAME)) == {".gitattributes"}


def test_short_breaks_are_survived(hub, signed_in):
    hub.faults.append(Fault("PUT", "/lfs/*"))
    hub.faults.append(Fault("POST", "*/lfs/objects/batch", status=503))
    push_with_package(make_model(), make_tokenizer())
    assert_same(pull(NAME), outputs_of(make_model(), make_tokenizer()))


@pytest.mark.slow
def test_command_line_pushes_what_strangers_load(hub, signed_in, tmp_path):
    """All in fresh processes: push with the environment alone, load without the package."""
    old, new, tokenizer = make_model(1), make_model(2), make_tokenizer()
    expected = {1: outputs_of(old, tokenizer), 2: outputs_of(new, tokenizer)}
    first = push_with_package(old, tokenizer).oid
    checkpoint = tmp_path / "run" / "checkpoint-7"
    new.save_pretrained(checkpoint)
    tokenizer.save_pretrained(checkpoint)
    home = tmp_path / "home"

    finished = subprocess.run(
        [sys.executable, "-m", "hf_seqmodels.hub", "push", str(checkpoint), NAME],
        env=hub_environment(hub.endpoint, home, token=OWNER_TOKEN),
        capture_output=True,
        text=True,
    )

    assert finished.returncode == 0, finished.stderr
    commit = hub.repositories[NAME].refs["main"]
    assert f"{hub.endpoint}/{NAME}/commit/{commit}" in finished.stdout
    assert OWNER_TOKEN not in finished.stdout + finished.stderr
    assert len(hub.titles(NAME)) == 3
    environment = hub_environment(hub.endpoint, home)
    signed_in(None)
    for revision, seed in ((None, 2), (first, 1)):
        found = pull_as_stranger(NAME, tmp_path, environment, revision=revision)
        assert_same(found, {**expected[seed], "texts": texts_of(NAME, revision=revision)})
