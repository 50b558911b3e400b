"""The loopback hub answers the real client as the Hub does."""

import hashlib
import io
import warnings

import pytest
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    ModelCard,
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    snapshot_download,
)
from huggingface_hub.errors import (
    BadRequestError,
    EntryNotFoundError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import get_session

from loopback_hub import OWNER, OWNER_TOKEN, READER_TOKEN, Fault

# the client's own way of sending a file
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

MODEL = f"{OWNER}/model"
WEIGHTS = bytes(range(256)) * 40


@pytest.fixture
def api(signed_in):
    """The real client, signed in, with one empty repository."""
    client = HfApi()
    client.create_repo(MODEL)
    return client


def commit(api, files, message="change", **options):
    """Commit {path: content}; content None deletes the path."""
    operations = [
        CommitOperationDelete(path) if content is None else CommitOperationAdd(path, content)
        for path, content in files.items()
    ]
    return api.create_commit(MODEL, operations, commit_message=message, **options)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def test_user_is_who_the_token_says(api, signed_in):
    assert api.whoami()["name"] == OWNER
    with pytest.raises(HfHubHTTPError, match="Invalid user token"):
        api.whoami(token="hf_nobody")
    signed_in(READER_TOKEN)
    assert HfApi().whoami()["name"] == "grace"


def test_repositories_come_and_go(api, hub):
    assert api.create_repo(MODEL, exist_ok=True).repo_id == MODEL
    with pytest.raises(HfHubHTTPError, match="already created"):
        api.create_repo(MODEL)
    assert api.create_repo("short").repo_id == f"{OWNER}/short"
    assert api.list_repo_files(MODEL) == [".gitattributes"]
    api.delete_repo(MODEL)
    assert not api.repo_exists(MODEL)
    assert api.repo_exists(f"{OWNER}/short")
    with pytest.raises(RepositoryNotFoundError):
        api.delete_repo(MODEL)


def test_folder_arrives_whole_in_one_commit(api, hub, tmp_path):
    folder = tmp_path / "folder"
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "model é.py").write_text("x = 1\n")
    (folder / "config.json").write_text("{}")
    (folder / "empty.bin").write_bytes(b"")
    (folder / "model.safetensors").write_bytes(WEIGHTS)

    info = api.upload_folder(repo_id=MODEL, folder_path=folder, commit_message="all")

    files = hub.files(MODEL)
    assert {path: file.is_lfs for path, file in files.items()} == {
        ".gitattributes": False,
        "code/model é.py": False,
        "config.json": False,
        "empty.bin": False,
        "model.safetensors": True,
    }
    assert hub.titles(MODEL) == ["all", "initial commit"]
    assert api.model_info(MODEL).sha == info.oid
    pulled = snapshot_download(MODEL)
    for path, file in files.items():
        assert read(f"{pulled}/{path}") == file.content
    tree = api.list_repo_tree(MODEL)
    assert sorted(item.path for item in tree) == sorted({*files, "code"} - {"code/model é.py"})
    assert [item.path for item in api.list_repo_tree(MODEL, "code")] == ["code/model é.py"]
    with pytest.raises(EntryNotFoundError):
        list(api.list_repo_tree(MODEL, "nowhere"))


def test_metadata_name_the_content(api):
    oid = commit(api, {"model.safetensors": WEIGHTS, "config.json": b"{}"}).oid
    sha256 = hashlib.sha256(WEIGHTS).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize 10240\n"

    large = get_hf_file_metadata(hf_hub_url(MODEL, "model.safetensors"))
    small = get_hf_file_metadata(hf_hub_url(MODEL, "config.json"))
    (large_line,) = [
        file
        for file in api.model_info(MODEL, files_metadata=True).siblings
        if file.rfilename == "model.safetensors"
    ]
    (tree_line,) = [file for file in api.list_repo_tree(MODEL) if file.lfs]

    assert (large.commit_hash, large.etag, large.size) == (oid, sha256, len(WEIGHTS))
    # `git hash-object` of the two bytes {}
    git_hash = "9e26dfeeb6e641a33dae4961196235bdb965b21b"
    assert (small.commit_hash, small.etag, small.size) == (oid, git_hash, 2)
    assert large_line.lfs.sha256 == tree_line.lfs.sha256 == sha256
    assert large_line.lfs.pointer_size == tree_line.lfs.pointer_size == len(pointer)
    framed = f"blob {len(pointer)}\0{pointer}".encode()
    assert large_line.blob_id == tree_line.blob_id == hashlib.sha1(framed).hexdigest()


def test_every_revision_keeps_its_files(api):
    first = commit(api, {"config.json": b"1"}).oid
    api.create_tag(MODEL, tag="v1", tag_message="first")
    api.create_branch(MODEL, branch="try/it")
    second = commit(api, {"config.json": b"2", "extra.txt": b"e"}, message="second").oid
    third = commit(api, {"config.json": b"3"}, revision="try/it").oid
    commit(api, {"extra.txt": None}, message="fourth")

    seen = {
        revision: read(hf_hub_download(MODEL, "config.json", revision=revision))
        for revision in (first, "v1", "try/it", third, second, "main")
    }

    expected = {first: b"1", "v1": b"1", "try/it": b"3", third: b"3", second: b"2", "main": b"2"}
    assert seen == expected
    assert "extra.txt" in api.list_repo_files(MODEL, revision=second)
    assert "extra.txt" not in api.list_repo_files(MODEL)
    refs = api.list_repo_refs(MODEL)
    assert {ref.name: ref.target_commit for ref in refs.branches}["try/it"] == third
    assert [(tag.ref, tag.target_commit) for tag in refs.tags] == [("refs/tags/v1", first)]
    titles = [item.title for item in api.list_repo_commits(MODEL)]
    assert titles == ["fourth", "second", "change", "initial commit"]
    with pytest.raises(HfHubHTTPError, match="Reference already exists"):
        api.create_branch(MODEL, branch="try/it")
    api.delete_branch(MODEL, branch="try/it")
    api.delete_tag(MODEL, tag="v1")
    for revision in ("try/it", "v1", "0" * 40):
        with pytest.raises(RevisionNotFoundError):
            hf_hub_download(MODEL, "config.json", revision=revision)


def test_pull_request_leaves_main_alone(api, hub):
    info = commit(api, {"config.json": b"{}"}, create_pr=True)
    assert info.pr_num == 1 and info.pr_revision == "refs/pr/1"
    assert "config.json" not in api.list_repo_files(MODEL)
    assert read(hf_hub_download(MODEL, "config.json", revision="refs/pr/1")) == b"{}"
    (request,) = api.list_repo_refs(MODEL, include_pull_requests=True).pull_requests
    assert request.target_commit == info.oid


def test_commit_is_all_or_nothing(api, hub):
    before = commit(api, {"config.json": b"1"}).oid
    with pytest.raises(EntryNotFoundError, match="doesn't exist"):
        commit(api, {"config.json": b"2", "nowhere.txt": None})
    with pytest.raises(HfHubHTTPError, match="A commit has happened since"):
        commit(api, {"config.json": b"2"}, parent_commit="a" * 40)
    api.create_tag(MODEL, tag="fixed")
    with pytest.raises(BadRequestError, match="only a branch can move"):
        commit(api, {"config.json": b"2"}, revision="fixed")
    hub.faults.append(Fault("POST", "*/commit/*", status=403))
    with pytest.raises(HfHubHTTPError, match="the test asked for"):
        commit(api, {"config.json": b"2"})
    assert api.model_info(MODEL).sha == before
    assert commit(api, {"config.json": b"2"}, parent_commit=before).oid != before


def test_what_is_there_is_not_sent_again(api, hub):
    sent = commit(api, {"model.safetensors": WEIGHTS, "config.json": b"1"}).oid
    commit(api, {"copy.safetensors": WEIGHTS})
    again = commit(api, {"model.safetensors": WEIGHTS, "config.json": b"1"})
    assert [seen.method for seen in hub.seen].count("PUT") == 1
    assert again.oid == api.model_info(MODEL).sha != sent


def test_large_files_go_ahead_of_the_commit_or_not_at_all(api, hub, monkeypatch):
    hub.faults.append(Fault("PUT", "/lfs/*", times=99))
    with pytest.raises(RuntimeError, match=r"Error while uploading 'model.safetensors'"):
        commit(api, {"model.safetensors": WEIGHTS})
    assert api.list_repo_files(MODEL) == [".gitattributes"]
    assert not hub.repositories[MODEL].large_files
    hub.faults[:] = [Fault("PUT", "/lfs/*"), Fault("PUT", "/lfs/*", status=503)]
    commit(api, {"model.safetensors": io.BytesIO(WEIGHTS)})
    assert hub.files(MODEL)["model.safetensors"].content == WEIGHTS
    assert [seen.status for seen in hub.seen if seen.method == "PUT"][-3:] == [None, 503, 200]
    monkeypatch.setattr("loopback_hub.LARGEST_SINGLE_UPLOAD", 1000)
    with pytest.raises(ValueError, match="No upload in parts"):
        commit(api, {"larger.safetensors": WEIGHTS + b"!"})


def test_storage_takes_only_what_was_announced(api, hub):
    oid = hashlib.sha256(b"announced").hexdigest()
    path = f"/lfs/{MODEL}/{oid}"
    signed = f"{hub.endpoint}{path}?signature={hub.signature(path)}"
    client = get_session()
    assert client.put(hub.endpoint + path, content=b"announced").status_code == 403
    assert client.put(signed, content=b"something else").status_code == 400
    assert client.put(signed, content=iter([b"annou", b"nced"])).status_code == 200
    assert hub.repositories[MODEL].large_files == {oid: b"announced"}


def test_ranges_of_a_file(api, hub):
    commit(api, {"model.safetensors": WEIGHTS})
    url = hf_hub_url(MODEL, "model.safetensors")
    client = get_session()
    for asked, expected in (("5-9", WEIGHTS[5:10]), ("10000-", WEIGHTS[10000:])):
        answer = client.get(url, headers={"Range": f"bytes={asked}"})
        assert (answer.status_code, answer.content) == (206, expected)
        assert answer.headers["Content-Range"].endswith("/10240")
    assert client.get(url, headers={"Range": "bytes=99999-"}).status_code == 416
    head = client.head(url)
    assert (head.headers["Content-Length"], head.content) == ("10240", b"")
    assert client.get(f"{hub.endpoint}/api/datasets/{MODEL}").status_code == 501


def test_private_repository_is_hidden_from_others(api, hub, signed_in):
    commit(api, {"config.json": b"{}"})
    api.update_repo_settings(MODEL, private=True)
    assert api.model_info(MODEL).private
    for token in (None, READER_TOKEN):
        signed_in(token)
        with pytest.raises(RepositoryNotFoundError):
            HfApi().model_info(MODEL)
        with pytest.raises(RepositoryNotFoundError):
            hf_hub_download(MODEL, "config.json")
        with pytest.raises(RepositoryNotFoundError):
            snapshot_download(MODEL)
        assert not HfApi().repo_exists(MODEL)
    signed_in("hf_nobody")
    with pytest.raises(HfHubHTTPError, match="Invalid credentials"):
        hf_hub_download(MODEL, "config.json")
    assert read(hf_hub_download(MODEL, "config.json", token=OWNER_TOKEN)) == b"{}"
    api.create_repo("born-private", private=True, token=OWNER_TOKEN)
    assert hub.repositories[f"{OWNER}/born-private"].private


def test_only_the_owner_writes(api, hub, signed_in):
    before = api.model_info(MODEL).sha
    signed_in(READER_TOKEN)
    with pytest.raises(HfHubHTTPError, match="You don't have the rights"):
        commit(HfApi(), {"config.json": b"{}"})
    with pytest.raises(HfHubHTTPError, match="You don't have the rights"):
        HfApi().create_repo(f"{OWNER}/another")
    signed_in(None)
    with pytest.raises(RepositoryNotFoundError):
        commit(HfApi(), {"config.json": b"{}"})
    signed_in("hf_nobody")
    with pytest.raises(HfHubHTTPError, match="Invalid credentials"):
        commit(HfApi(), {"config.json": b"{}"})
    assert hub.repositories[MODEL].refs == {"main": before}


def test_metadata_of_a_card_are_checked_first(api, hub):
    with pytest.raises(ValueError, match="YAML mapping"):
        commit(api, {"README.md": b"---\n- a\n- list\n---\n"})
    assert not [seen for seen in hub.seen if "/preupload/" in seen.path]
    with pytest.warns(UserWarning, match="empty or missing yaml metadata"):
        commit(api, {"README.md": b"# Title"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        commit(api, {"README.md": b"---\nlicense: mit\n---\n# Title"})
    assert ModelCard.load(MODEL).data.license == "mit"


def test_storage_is_not_shown_the_token(api, hub):
    commit(api, {"model.safetensors": WEIGHTS})
    assert {seen.user for seen in hub.seen if "/commit/" in seen.path} == {OWNER}
    assert {seen.user for seen in hub.seen if seen.method == "PUT"} == {None}
