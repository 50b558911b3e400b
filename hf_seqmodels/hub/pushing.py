"""Send a model to the Hub: one commit, and errors that say what to do."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import (
    CommitInfo,
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    constants,
    get_token,
    is_offline_mode,
)
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import validate_repo_id
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_seqmodels.hub.checkpoints import load_checkpoint
from hf_seqmodels.hub.exporting import (
    CARD_FILE,
    WRITTEN,
    export,
    files_of,
    has_its_code,
    is_export,
)
from hf_seqmodels.model_cards import card_for_export

TOKEN_PAGE = "https://huggingface.co/settings/tokens"
PULL_REQUEST = "refs/pr/"
NOT_TWICE = "What has arrived is not sent twice."  # a lost answer may have been that of the commit
TransportError: Any = HfHubHTTPError.__bases__[0]  # of httpx, or of what the client replaces it by


class HubError(OSError):
    """A push that could not be done, and what to do about it."""


def push(
    model: PreTrainedModel | str | os.PathLike,
    repo_id: str,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    private: bool | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
    token: str | None = None,
    create_pr: bool = False,
    card: str | None = None,
    facts: Mapping[str, Any] | None = None,
    with_tokenizer: bool = True,
    verify: bool = True,
) -> CommitInfo:
    """Push a complete model to the Hub in one commit, after it has loaded without this package.

    The repository is made if it is not there. Files of an earlier push that this one does not
    write (shards of the weights, code files) are removed in the same commit; other files stay.

    Args:
        model: a model, or a folder: an export, a checkpoint of a Trainer, or the output of a run.
        repo_id: "user/name".
        tokenizer: of the model; a folder brings its own.
        private: whether a new repository is private; None is as the account is set.
        revision: branch, made if it is not there, or "refs/pr/<number>"; None is main.
        commit_message: title of the commit.
        token: access token with write permission; None takes HF_TOKEN or that of `hf auth login`.
        create_pr: open a pull request instead of changing main.
        card: text of README.md; None writes one or keeps an edited one.
        facts: fields of `hf_seqmodels.model_cards.CardFacts`, such as the licence.
        with_tokenizer: whether a folder has to hold a tokenizer.
        verify: load the export in a fresh process before anything is sent.

    Returns:
        Address, hash and pull request of the commit.

    Raises:
        ValueError: if an argument cannot be, or the folder is no complete checkpoint.
        HubError: if the Hub cannot be reached or refuses.
        RuntimeError: if the export does not compute the same without the package.
    """
    _check_arguments(model, repo_id, tokenizer, revision, create_pr=create_pr)
    access = _access_token(token)
    source = None if isinstance(model, PreTrainedModel) else Path(model)
    options = {"card": card, "facts": facts, "repo_id": repo_id}
    with tempfile.TemporaryDirectory() as scratch:
        if source is not None:
            model, tokenizer = load_checkpoint(source, with_tokenizer=with_tokenizer)
        assert isinstance(model, PreTrainedModel)
        if source is not None and is_export(source) and has_its_code(source):
            contents: dict[str, Any] = dict(files_of(source))
            contents[CARD_FILE] = _card_of_export(source, model, tokenizer, **options).encode()
        else:
            folder = Path(scratch, repo_id.rpartition("/")[2])
            contents = files_of(
                export(model, tokenizer, folder, source=source, verify=verify, **options)
            )
        message = commit_message or f"Upload {type(model).__name__}"
        with _explained(repo_id, revision):
            api = HfApi(token=access)
            api.create_repo(repo_id, private=private, exist_ok=True)
            if revision is not None and not revision.startswith(PULL_REQUEST):
                api.create_branch(repo_id, branch=revision, exist_ok=True)
            return api.create_commit(
                repo_id,
                _operations(contents, api.list_repo_files(repo_id, revision=revision)),
                commit_message=message,
                revision=revision,
                create_pr=create_pr,
            )


def _check_arguments(
    model: Any, repo_id: str, tokenizer: Any, revision: str | None, *, create_pr: bool
) -> None:
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"repo_id must be 'user/name', got {repo_id!r}. {error}") from None
    if "/" not in repo_id:
        raise ValueError(
            f"repo_id must be 'user/name', got {repo_id!r}. Put your user name or that of an "
            "organization in front."
        )
    if tokenizer is not None and not isinstance(model, PreTrainedModel):
        raise ValueError(
            f"A folder brings its own tokenizer, but push({str(model)!r}) was given one more. Load "
            "the model and push it with the tokenizer."
        )
    if create_pr and revision is not None:
        raise ValueError(
            f"A pull request is opened against main, got revision={revision!r} and create_pr=True. "
            "Give one of them."
        )


def _access_token(token: str | None) -> str:
    """Find the access token; it is never part of a message."""
    if is_offline_mode():
        raise HubError(
            "Pushing needs the network, but HF_HUB_OFFLINE is set. Unset it; or export now "
            "(python -m hf_seqmodels.hub export) and push the folder later."
        )
    found = (token or get_token() or "").strip()
    if not found:
        raise HubError(
            "Pushing needs an access token with write permission, and none was found. Make one at "
            f"{TOKEN_PAGE}, then run `hf auth login` or set HF_TOKEN."
        )
    if not found.isascii() or any(not letter.isprintable() or letter == " " for letter in found):
        raise HubError(
            "An access token is one word of plain letters and digits, and the one that was found "
            "is not. Copy it again, and run `hf auth login` or set HF_TOKEN."
        )
    return found


def _card_of_export(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    card: str | None,
    facts: Mapping[str, Any] | None,
    repo_id: str,
) -> str:
    """Return the card of an export, written anew for the Hub unless somebody edited it."""
    if card is not None:
        return card
    name = repo_id.rpartition("/")[2]
    return card_for_export(
        model, tokenizer, source=folder, name=name, repo_id=repo_id, **facts or {}
    )


def _operations(contents: Mapping[str, Any], there: list[str]) -> list[Any]:
    """Return what the commit does: add the files, remove those of an earlier push."""
    outdated = [name for name in there if WRITTEN.fullmatch(name) and name not in contents]
    added = [
        CommitOperationAdd(path_in_repo=name, path_or_fileobj=content)
        for name, content in contents.items()
    ]
    return [*added, *(CommitOperationDelete(path_in_repo=name) for name in outdated)]


@contextlib.contextmanager
def _explained(repo_id: str, revision: str | None) -> Iterator[None]:
    """Turn what the client raises into one error that says what to do."""
    place = constants.ENDPOINT
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise HubError("Pushing needs the network: unset HF_HUB_OFFLINE.") from error
    except RevisionNotFoundError as error:
        raise HubError(
            f"{repo_id} has no revision {revision!r}. Name a branch, which is made if it is not "
            "there, or a pull request that exists."
        ) from error
    except RepositoryNotFoundError as error:
        raise HubError(
            f"{place} has no repository {repo_id}, or none that this access token may see. Check "
            "the name, and that the token has write permission for it."
        ) from error
    except HfHubHTTPError as error:
        raise HubError(_refusal(error, repo_id, place)) from error
    except (TransportError, ConnectionError, TimeoutError) as error:
        raise HubError(
            f"{place} cannot be reached: {error}. Check the network and, if it is set, "
            f"HF_ENDPOINT; then push again. {NOT_TWICE}"
        ) from error
    except RuntimeError as error:  # the client's word for a large file that did not arrive
        raise HubError(
            f"{error} Nothing was committed; push again when the connection is better."
        ) from error


def _refusal(error: HfHubHTTPError, repo_id: str, place: str) -> str:
    status = error.response.status_code
    said = error.server_message or f"status {status}"
    if status == 401:
        return (
            f"{place} does not know this access token: {said}. Make one with write permission at "
            f"{TOKEN_PAGE}, then run `hf auth login` or set HF_TOKEN."
        )
    if status == 403:
        return (
            f"This access token may not write to {repo_id}: {said}. Use your own user name or an "
            f"organization you belong to, and a token with write permission ({TOKEN_PAGE})."
        )
    if status >= 500 or status == 429:
        return f"{place} is busy or broken: {said}. Later, push again. {NOT_TWICE}"
    return f"{place} refused to push {repo_id}: {said}. Nothing was committed."
