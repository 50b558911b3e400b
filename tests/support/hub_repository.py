"""What a loopback hub keeps: files, commits and revisions of a repository, in memory."""

import fnmatch
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

# As in the .gitattributes that the Hub puts into a new repository, as far as models need it.
LFS_PATTERNS = ("*.bin", "*.ckpt", "*.gz", "*.h5", "*.model", "*.npz", "*.onnx", "*.pickle")
LFS_PATTERNS += ("*.pkl", "*.pt", "*.pth", "*.safetensors", "*.zip", "*tfevents*")
LARGEST_REGULAR_FILE = 10_000_000  # bytes


class Refusal(Exception):
    """What cannot be done, as HTTP tells it.

    Args:
        status: of the answer.
        message: for the user.
        code: kind of the error, where the client tells it apart.
    """

    def __init__(self, status: int, message: str, *, code: str | None = None):
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


def must_be_lfs(path: str, size: int, sample: bytes) -> bool:
    """Say whether git must not hold a file itself: by its name, its size or its first bytes."""
    by_name = any(fnmatch.fnmatch(path.rpartition("/")[2], pattern) for pattern in LFS_PATTERNS)
    return size > 0 and (by_name or size > LARGEST_REGULAR_FILE or b"\0" in sample)


@dataclass(frozen=True)
class StoredFile:
    """One version of a file: its content, and whether git holds it or only a pointer to it."""

    content: bytes
    is_lfs: bool = False

    @cached_property
    def sha256(self) -> str:
        """Name of a large file in the storage, and its ETag."""
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def pointer(self) -> bytes:
        """What git holds in place of a large file."""
        version = "https://git-lfs.github.com/spec/v1"
        return f"version {version}\noid sha256:{self.sha256}\nsize {len(self.content)}\n".encode()

    @cached_property
    def blob_id(self) -> str:
        """Name of the blob that git holds."""
        blob = self.pointer if self.is_lfs else self.content
        return hashlib.sha1(b"blob %d\0" % len(blob) + blob).hexdigest()

    @property
    def etag(self) -> str:
        """What the client names the file in its cache."""
        return self.sha256 if self.is_lfs else self.blob_id

    def as_tree_line(self, path: str) -> dict[str, Any]:
        """Describe the file as the answer to `tree` does."""
        line = {"type": "file", "path": path, "oid": self.blob_id, "size": len(self.content)}
        return line | ({"lfs": {"oid": self.sha256, **self._lfs_sizes}} if self.is_lfs else {})

    def as_sibling(self, path: str) -> dict[str, Any]:
        """Describe the file as the answer about the whole repository does."""
        line = {"rfilename": path, "blobId": self.blob_id, "size": len(self.content)}
        return line | ({"lfs": {"sha256": self.sha256, **self._lfs_sizes}} if self.is_lfs else {})

    @property
    def _lfs_sizes(self) -> dict[str, int]:
        return {"size": len(self.content), "pointerSize": len(self.pointer)}


@dataclass(frozen=True)
class Commit:
    """A state of a repository: all files by path, and how it came about."""

    oid: str
    files: Mapping[str, StoredFile]
    title: str
    description: str = ""
    parent: "Commit | None" = None

    def history(self) -> Iterator["Commit"]:
        """Walk from this commit to the first."""
        commit: Commit | None = self
        while commit is not None:
            yield commit
            commit = commit.parent


@dataclass
class Repository:
    """A repository of one owner.

    Args:
        private: hide it from everybody else.
        commits: {oid: commit}, those of all branches.
        refs: {branch, tag or "refs/pr/N": oid}.
        tags: the refs that are tags.
        large_files: {sha256: content}; what has been uploaded, committed or not.
    """

    private: bool = False
    commits: dict[str, Commit] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    tags: set[str] = field(default_factory=set)
    large_files: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self):
        attributes = "".join(
            f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in LFS_PATTERNS
        )
        files = {".gitattributes": StoredFile(attributes.encode())}
        self.add_commit("main", files, title="initial commit")

    def add_commit(self, ref: str, files: Mapping[str, StoredFile], **message) -> Commit:
        """Move a branch, new or not, to a new state; nobody sees anything between the two."""
        parent = self.commits.get(self.refs.get(ref, self.refs.get("main", "")))
        names = [f"{path} {file.blob_id}" for path, file in sorted(files.items())]
        identity = "\n".join([*names, ref, message["title"], str(len(self.commits))])
        oid = hashlib.sha1(identity.encode()).hexdigest()
        self.commits[oid] = Commit(oid, dict(files), parent=parent, **message)
        self.refs[ref] = oid
        return self.commits[oid]

    def resolve(self, revision: str) -> Commit:
        """Return the commit that a branch, a tag or a commit's own name stands for."""
        commit = self.commits.get(self.refs.get(revision, revision))
        if commit is None:
            raise Refusal(404, f"Invalid rev id: {revision}", code="RevisionNotFound")
        return commit


def tree_lines(files: Mapping[str, StoredFile], folder: str, *, recursive: bool) -> list[dict]:
    """List a folder: its folders and files, and with `recursive` all below them.

    Args:
        files: by path.
        folder: path; "" is the root.
        recursive: go into folders.

    Raises:
        Refusal: if no file lies in the folder.
    """
    prefix = folder.rstrip("/") + "/" if folder else ""
    below = {path: file for path, file in sorted(files.items()) if path.startswith(prefix)}
    if prefix and not below:
        raise Refusal(404, f"{folder} does not exist", code="EntryNotFound")
    lines: dict[str, dict] = {}
    for path, file in below.items():
        *parents, _ = path[len(prefix) :].split("/")
        for depth in range(1, 1 + (len(parents) if recursive else min(len(parents), 1))):
            parent = prefix + "/".join(parents[:depth])
            oid = hashlib.sha1(parent.encode()).hexdigest()
            lines[parent] = {"type": "directory", "path": parent, "oid": oid, "size": 0}
        if recursive or not parents:
            lines[path] = file.as_tree_line(path)
    return list(lines.values())
