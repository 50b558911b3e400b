"""A small model hub on 127.0.0.1, for tests with the real client: no mock, no network.

It speaks the part of the Hub's HTTP protocol that `huggingface_hub` uses for models, and keeps
everything in memory. What happens, in the order of a push and a pull:

    POST   /api/repos/create                      {name, organization, visibility}; 409 if it exists
    POST   /api/validate-yaml                     {content} of a README.md, before anything is sent
    POST   /api/models/ID/preupload/REV           which files go in the commit, which ahead of it
    POST   /ID.git/info/lfs/objects/batch         where the large ones go; none that are there
    PUT    /lfs/ID/SHA256?signature=...           one large file; the address is the permission
    POST   /ID.git/info/lfs/objects/verify        {oid, size}: has it arrived whole?
    POST   /api/models/ID/commit/REV              lines of JSON: header, then one per operation

    GET    /api/models/ID[/revision/REV]          which commit a revision is, which files it has
    GET    /api/models/ID/tree/REV[/FOLDER]       files and folders, with hashes and sizes
    HEAD   /ID/resolve/REV/PATH                   commit, hash and size of a file
    GET    /ID/resolve/REV/PATH                   the file, or the range asked for

beside `whoami-v2`, refs, commits, branches, tags, settings and deletion. REV is a branch, a tag, a
commit or `refs/pr/N`. An error carries its text in `X-Error-Message` and, where the client is to
know its kind, `X-Error-Code`. Chunked storage (Xet) is not offered: run the client with
HF_HUB_DISABLE_XET=1. What is not spoken is answered with 501.
"""

import base64
import fnmatch
import hashlib
import hmac
import json
import re
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

import yaml

from hub_repository import Commit, Refusal, Repository, StoredFile, must_be_lfs, tree_lines

OWNER, OWNER_TOKEN = "ada", "hf_OwnerOwnerOwnerOwnerOwner"
READER, READER_TOKEN = "grace", "hf_ReaderReaderReaderReader"
LARGEST_SINGLE_UPLOAD = 100_000_000  # bytes; the Hub takes larger files in parts, we refuse them
DATE = "2024-05-17T12:00:00.000Z"  # of everything: tests have no clock


class Answer(NamedTuple):
    """What a request gets: JSON for a mapping or a list, bytes as they are."""

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = {}


def _error(refusal: Refusal) -> Answer:
    headers = {"X-Error-Message": refusal.message.encode("ascii", "replace").decode()}
    if refusal.code is not None:
        headers["X-Error-Code"] = refusal.code
    return Answer({"error": refusal.message}, refusal.status, headers)


@dataclass
class Fault:
    """What goes wrong with the next requests that match.

    Args:
        method: of the requests.
        path: shell pattern of their path, as in "*/commit/*".
        status: answer with this error; None reads half of what was sent and hangs up.
        times: how many requests it hits.
        loses_answer: do what was asked, and hang up instead of saying so.
    """

    method: str
    path: str
    status: int | None = None
    times: int = 1
    loses_answer: bool = False


class Seen(NamedTuple):
    """A request that was answered, or hung up on (status None); for assertions."""

    method: str
    path: str
    status: int | None
    user: str | None


class LoopbackHub:
    """The hub: `with LoopbackHub() as hub:` serves `hub.endpoint` until the block ends.

    Attributes:
        repositories: {"owner/name": repository}.
        users: {token: user name}; READER may look at what is public, OWNER may write.
        faults: what is to go wrong.
        seen: the requests so far.
        errors: tracebacks of mistakes in this file; a test should find none.
    """

    def __init__(self):
        self.repositories: dict[str, Repository] = {}
        self.users = {OWNER_TOKEN: OWNER, READER_TOKEN: READER}
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.errors: list[str] = []
        self.lock = threading.RLock()
        handler = type("Handler", (Conversation,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> "LoopbackHub":
        serve = {"target": self.server.serve_forever, "args": (0.05,), "daemon": True}
        threading.Thread(**serve).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def files(self, repo_id: str, revision: str = "main") -> dict[str, StoredFile]:
        """Return what everybody sees of a repository."""
        return dict(self.repositories[repo_id].resolve(revision).files)

    def titles(self, repo_id: str, revision: str = "main") -> list[str]:
        """Return the messages of a revision's commits, the newest first."""
        return [commit.title for commit in self.repositories[repo_id].resolve(revision).history()]

    def take_fault(self, method: str, path: str) -> Fault | None:
        """Return what goes wrong with a request, and count it."""
        with self.lock:
            for fault in self.faults:
                if fault.times and fault.method == method and fnmatch.fnmatch(path, fault.path):
                    fault.times -= 1
                    return fault
        return None

    def signature(self, path: str) -> str:
        """Return what makes the address of an upload a permission."""
        return hmac.new(OWNER_TOKEN.encode(), path.encode(), "sha256").hexdigest()


class Conversation(BaseHTTPRequestHandler):
    """One connection of a client, request after request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub: LoopbackHub

    def do_GET(self):
        """Answer any request: faults first, then who asks, then what."""
        address = urlsplit(self.path)
        self.query, self.user = parse_qs(address.query), None
        fault = self.hub.take_fault(self.command, address.path)
        if fault is not None and fault.status is None and not fault.loses_answer:
            self.rfile.read(int(self.headers.get("Content-Length", 0)) // 2)
            self.close_connection = True
            self.hub.seen.append(Seen(self.command, address.path, None, None))
            return
        self.body = self._read_body()
        try:
            if fault is not None and fault.status is not None:
                raise Refusal(fault.status, "A fault that the test asked for.")
            self.user = self._who_asks()
            answer = self._dispatch(address.path)
        except Refusal as refusal:
            answer = _error(refusal)
        except Exception:
            self.hub.errors.append(traceback.format_exc())
            answer = _error(Refusal(400, "The loopback hub made a mistake: see its `errors`."))
        self.hub.seen.append(Seen(self.command, address.path, answer.status, self.user))
        if fault is not None and fault.loses_answer:
            self.close_connection = True
        else:
            self._send(answer)

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, *_):
        """Keep quiet; `hub.seen` knows."""

    # the layer of HTTP

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _send(self, answer: Answer):
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        kind = "application/octet-stream" if answer.body is body else "application/json"
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), **answer.headers}
        self.send_response(answer.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _who_asks(self) -> str | None:
        header = self.headers.get("Authorization")
        if header is None:
            return None
        try:
            return self.hub.users[header.removeprefix("Bearer ")]
        except KeyError:
            raise Refusal(401, "Invalid credentials in Authorization header") from None

    def _dispatch(self, path: str) -> Answer:
        method = "GET" if self.command == "HEAD" else self.command
        for route_method, pattern, answer in ROUTES:
            match = re.fullmatch(pattern, path)
            if match and route_method == method:
                parts = {name: unquote(part) for name, part in match.groupdict("").items()}
                with self.hub.lock:
                    return answer(self, **parts)
        raise Refusal(501, f"The loopback hub does not speak {method} {path}.")

    # who may do what

    def _readable(self, repo_id: str) -> Repository:
        repo = self.hub.repositories.get(repo_id)
        if repo is None or (repo.private and self.user != repo_id.partition("/")[0]):
            # to strangers the Hub says 401 alone, which the client takes for this code on https
            status = 401 if self.user is None else 404
            raise Refusal(status, "Repository not found", code="RepoNotFound")
        return repo

    def _writable(self, repo_id: str) -> Repository:
        repo = self._readable(repo_id)
        if self.user is None:
            raise Refusal(401, "Invalid username or password.", code="RepoNotFound")
        if self.user != repo_id.partition("/")[0]:
            raise Refusal(403, f"You don't have the rights to write to {repo_id}")
        return repo

    # the user and the repositories

    def whoami(self) -> Answer:
        """Name the user of the token."""
        if self.user is None:
            raise Refusal(401, "Invalid username or password.")
        access = {"type": "access_token", "accessToken": {"displayName": "test", "role": "write"}}
        return Answer({"type": "user", "name": self.user, "orgs": [], "auth": access})

    def validate_card(self) -> Answer:
        """Check that the metadata of a card is a YAML mapping."""
        metadata = re.match(r"---\r?\n(.*?)\r?\n---", json.loads(self.body)["content"], re.DOTALL)
        warnings = [] if metadata else [{"message": "empty or missing yaml metadata in repo card"}]
        try:
            fine = metadata is None or isinstance(yaml.safe_load(metadata[1]), dict)
        except yaml.YAMLError:
            fine = False
        errors = [] if fine else [{"message": "metadata is not a YAML mapping"}]
        return Answer({"errors": errors, "warnings": warnings}, 200 if fine else 400)

    def _named_repo_id(self) -> str:
        asked = json.loads(self.body)
        if asked.get("type") not in (None, "model"):
            raise Refusal(501, "The loopback hub holds models only.")
        return f"{asked.get('organization') or self.user}/{asked['name']}"

    def create_repo(self) -> Answer:
        """Make an empty repository for the user of the token."""
        if self.user is None:
            raise Refusal(401, "Invalid username or password.")
        repo_id, asked = self._named_repo_id(), json.loads(self.body)
        if repo_id.partition("/")[0] != self.user:
            raise Refusal(403, f"You don't have the rights to create a model as {repo_id}")
        found = {"url": f"{self.hub.endpoint}/{repo_id}", "name": repo_id}
        if repo_id in self.hub.repositories:
            return Answer({"error": "You already created this model repo", **found}, 409)
        private = asked.get("private") or asked.get("visibility") == "private"
        self.hub.repositories[repo_id] = Repository(private=bool(private))
        return Answer(found)

    def delete_repo(self) -> Answer:
        """Forget a repository."""
        repo_id = self._named_repo_id()
        self._writable(repo_id)
        del self.hub.repositories[repo_id]
        return Answer({})

    def change_settings(self, repo: str) -> Answer:
        """Hide a repository or show it."""
        asked = json.loads(self.body)
        private = asked.get("private") or asked.get("visibility") == "private"
        self._writable(repo).private = bool(private)
        return Answer({"private": bool(private)})

    # push

    def preupload(self, repo: str, revision: str) -> Answer:
        """Say for each file whether it goes into the commit or ahead of it, and if it is new."""
        files = self._writable(repo).resolve(revision).files
        answers = []
        for file in json.loads(self.body)["files"]:
            large = must_be_lfs(file["path"], file["size"], base64.b64decode(file["sample"]))
            known = files.get(file["path"])
            answer = {"path": file["path"], "uploadMode": "lfs" if large else "regular"}
            answers.append({**answer, "shouldIgnore": False, "oid": known and known.etag})
        return Answer({"files": answers})

    def lfs_batch(self, repo: str) -> Answer:
        """Give an address for each large file that is not there yet."""
        stored = self._writable(repo).large_files
        answers = []
        for large in json.loads(self.body)["objects"]:
            answer = {"oid": large["oid"], "size": large["size"]}
            if large["size"] > LARGEST_SINGLE_UPLOAD:
                answer["error"] = {"code": 422, "message": "No upload in parts: file too large"}
            elif large["oid"] not in stored:
                path = f"/lfs/{quote(repo)}/{large['oid']}"
                upload = f"{self.hub.endpoint}{path}?signature={self.hub.signature(path)}"
                verify = f"{self.hub.endpoint}/{quote(repo)}.git/info/lfs/objects/verify"
                answer["actions"] = {"upload": {"href": upload}, "verify": {"href": verify}}
            answers.append(answer)
        return Answer({"transfer": "basic", "objects": answers})

    def lfs_upload(self, repo: str, oid: str) -> Answer:
        """Take a large file, if the address came from us and the file has come whole."""
        path = urlsplit(self.path).path
        if self.query.get("signature") != [self.hub.signature(path)]:
            raise Refusal(403, "SignatureDoesNotMatch")
        if hashlib.sha256(self.body).hexdigest() != oid:
            raise Refusal(400, "The content does not have the announced hash.")
        self.hub.repositories[repo].large_files[oid] = self.body
        return Answer(headers={"ETag": f'"{oid}"'})

    def lfs_verify(self, repo: str) -> Answer:
        """Say whether a large file has arrived."""
        asked = json.loads(self.body)
        if len(self._writable(repo).large_files.get(asked["oid"], b"")) != asked["size"]:
            raise Refusal(404, "The large file has not arrived.")
        return Answer({})

    def commit(self, repo: str, revision: str) -> Answer:
        """Apply all operations at once, or none."""
        target = self._writable(repo)
        before = target.resolve(revision)
        operations = [json.loads(line) for line in self.body.splitlines()]
        header = operations.pop(0)["value"]
        if header.get("parentCommit", before.oid) != before.oid:
            raise Refusal(412, "A commit has happened since. Please refresh and try again.")
        files = dict(before.files)
        for operation in operations:
            self._apply(operation["key"], operation["value"], files, target)
        ref, answer = revision, {}
        if self.query.get("create_pr") == ["1"]:
            number = 1 + sum(name.startswith("refs/pr/") for name in target.refs)
            ref = f"refs/pr/{number}"
            target.refs[ref] = before.oid
            answer["pullRequestUrl"] = f"{self.hub.endpoint}/{repo}/discussions/{number}"
        elif revision in target.tags or revision not in target.refs:
            raise Refusal(400, f"{revision} is not a branch: only a branch can move.")
        made = target.add_commit(
            ref, files, title=header["summary"], description=header["description"]
        )
        url = f"{self.hub.endpoint}/{repo}/commit/{made.oid}"
        return Answer({"success": True, "commitUrl": url, "commitOid": made.oid, **answer})

    def _apply(self, key: str, value: dict, files: dict[str, StoredFile], repo: Repository):
        path = value["path"]
        if key == "file":
            content = base64.b64decode(value["content"])
            if must_be_lfs(path, len(content), content[:512]):
                raise Refusal(400, f"{path} is binary or large: upload it with LFS.")
            files[path] = StoredFile(content)
        elif key == "lfsFile":
            if value["oid"] not in repo.large_files:
                raise Refusal(400, f"{path} points to a large file that has not been uploaded.")
            files[path] = StoredFile(repo.large_files[value["oid"]], is_lfs=True)
        elif key in ("deletedFile", "deletedFolder"):
            folder = path.rstrip("/") + "/"
            gone = [name for name in files if name == path or name.startswith(folder)]
            if not gone:
                raise Refusal(404, "A file with this name doesn't exist", code="EntryNotFound")
            for name in gone:
                del files[name]
        else:
            raise Refusal(400, f"Unknown operation {key}.")

    # revisions

    def list_refs(self, repo: str) -> Answer:
        """List branches, tags and, when asked for, pull requests."""
        found = self._readable(repo)
        lists = {"branches": [], "converts": [], "tags": [], "pullRequests": []}
        for name, oid in found.refs.items():
            pull_request = name.startswith("refs/pr/")
            kind = "pullRequests" if pull_request else "branches"
            kind, folder = ("tags", "tags") if name in found.tags else (kind, "heads")
            ref = name if pull_request else f"refs/{folder}/{name}"
            lists[kind].append({"name": name, "ref": ref, "targetCommit": oid})
        return Answer(lists)

    def _add_ref(self, repo: Repository, name: str, commit: Commit) -> Answer:
        if name in repo.refs:
            raise Refusal(409, f"Reference already exists: {name}")
        repo.refs[name] = commit.oid
        return Answer({})

    def create_branch(self, repo: str, name: str) -> Answer:
        """Start a branch, from main unless another revision is named."""
        target, asked = self._writable(repo), json.loads(self.body or b"{}")
        return self._add_ref(target, name, target.resolve(asked.get("startingPoint") or "main"))

    def create_tag(self, repo: str, name: str) -> Answer:
        """Give a commit a name that stays; here `name` is the revision to tag."""
        target, tag = self._writable(repo), json.loads(self.body)["tag"]
        answer = self._add_ref(target, tag, target.resolve(name))
        target.tags.add(tag)
        return answer

    def delete_ref(self, repo: str, name: str) -> Answer:
        """Forget a branch or a tag; its commits stay."""
        target = self._writable(repo)
        target.resolve(name)
        target.tags.discard(name)
        del target.refs[name]
        return Answer({})

    def list_commits(self, repo: str, revision: str) -> Answer:
        """List the commits of a revision, the newest first."""
        history = self._readable(repo).resolve(revision).history()
        author = {"user": repo.partition("/")[0]}
        keys = ("id", "title", "message", "date", "authors")
        lines = [(item.oid, item.title, item.description, DATE, [author]) for item in history]
        return Answer([dict(zip(keys, line, strict=True)) for line in lines])

    # pull

    def model_info(self, repo: str, revision: str = "") -> Answer:
        """Describe a repository at a revision."""
        found = self._readable(repo)
        commit = found.resolve(revision or "main")
        siblings = [file.as_sibling(path) for path, file in sorted(commit.files.items())]
        described = {"id": repo, "modelId": repo, "author": repo.partition("/")[0]}
        described |= {"sha": commit.oid, "private": found.private, "siblings": siblings}
        described |= {"createdAt": DATE, "lastModified": DATE, "tags": [], "gated": False}
        return Answer(described)

    def list_tree(self, repo: str, revision: str, folder: str) -> Answer:
        """List a folder, all below it when `recursive`."""
        files = self._readable(repo).resolve(revision).files
        recursive = self.query.get("recursive", ["false"])[0].lower() == "true"
        return Answer(tree_lines(files, folder, recursive=recursive))

    def resolve(self, repo: str, revision: str, path: str) -> Answer:
        """Send a file, or the range of it that is asked for."""
        commit = self._readable(repo).resolve(revision)
        file = commit.files.get(path)
        headers = {"X-Repo-Commit": commit.oid, "Accept-Ranges": "bytes"}
        if file is None:
            refused = _error(Refusal(404, "Entry not found", code="EntryNotFound"))
            return refused._replace(headers={**refused.headers, **headers})
        size = len(file.content)
        headers["ETag"] = f'"{file.blob_id if file.is_lfs else file.etag}"'
        if file.is_lfs:
            headers |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(size)}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            return Answer(file.content, 200, headers)
        first, last = int(asked[1]), min(int(asked[2] or size - 1), size - 1)
        if first > last:
            return Answer(b"", 416, {**headers, "Content-Range": f"bytes */{size}"})
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        return Answer(file.content[first : last + 1], 206, headers)


_ID = r"(?P<repo>[\w.-]+/[\w.-]+)"
_API, _REVISION = rf"/api/models/{_ID}", r"(?P<revision>[^/]+)"
ROUTES = (
    ("GET", "/api/whoami-v2", Conversation.whoami),
    ("POST", "/api/validate-yaml", Conversation.validate_card),
    ("POST", "/api/repos/create", Conversation.create_repo),
    ("DELETE", "/api/repos/delete", Conversation.delete_repo),
    ("PUT", rf"{_API}/settings", Conversation.change_settings),
    ("POST", rf"{_API}/preupload/{_REVISION}", Conversation.preupload),
    ("POST", rf"/{_ID}\.git/info/lfs/objects/batch", Conversation.lfs_batch),
    ("POST", rf"/{_ID}\.git/info/lfs/objects/verify", Conversation.lfs_verify),
    ("PUT", rf"/lfs/{_ID}/(?P<oid>[0-9a-f]{{64}})", Conversation.lfs_upload),
    ("POST", rf"{_API}/commit/{_REVISION}", Conversation.commit),
    ("GET", rf"{_API}/refs", Conversation.list_refs),
    ("POST", rf"{_API}/branch/(?P<name>[^/]+)", Conversation.create_branch),
    ("POST", rf"{_API}/tag/(?P<name>[^/]+)", Conversation.create_tag),
    ("DELETE", rf"{_API}/(?:branch|tag)/(?P<name>[^/]+)", Conversation.delete_ref),
    ("GET", rf"{_API}/commits/{_REVISION}", Conversation.list_commits),
    ("GET", rf"{_API}(?:/revision/{_REVISION})?", Conversation.model_info),
    ("GET", rf"{_API}/tree/{_REVISION}(?:/(?P<folder>.+))?", Conversation.list_tree),
    ("GET", rf"/{_ID}/resolve/{_REVISION}/(?P<path>.+)", Conversation.resolve),
)
