"""Where the Hub is: for this process while a test runs, and for fresh processes.

`huggingface_hub` reads its environment once, when it is imported, and other tests of this process
run without a network. So a test of this process moves the constants that were read, and puts
them back; a fresh process gets the environment alone, as with a user.
"""

import os
from pathlib import Path

import huggingface_hub
import pytest
import transformers.utils.hub
from huggingface_hub import constants
from huggingface_hub.utils import _http

SETTINGS = ("HF_ENDPOINT", "HF_HOME", "HF_TOKEN", "HF_HUB_CACHE", "HF_MODULES_CACHE")
SETTINGS += ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH")
SETTINGS += ("HF_OIDC_RESOURCE", "HF_HUB_DISABLE_IMPLICIT_TOKEN")
NO_PROXY = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


def hub_environment(
    endpoint: str, home: Path, *, token: str | None = None, **more: str
) -> dict[str, str]:
    """Return the environment of a fresh process.

    Args:
        endpoint: address of the hub.
        home: folder for its cache.
        token: of its user; None for a stranger.
        more: further variables.
    """
    kept = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    access = {} if token is None else {"HF_TOKEN": token}
    ours = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    ours |= {"HF_HUB_DISABLE_TELEMETRY": "1"}
    return {**kept, **ours, **NO_PROXY, **access, **more}


def connect(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, home: Path, *, token: str | None = None
) -> None:
    """Point this process to a hub until the test ends; call it again to change user or cache.

    Args:
        monkeypatch: pytest's fixture.
        endpoint: address of the hub.
        home: folder for its cache.
        token: of its user; None for a stranger.
    """
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    for name, value in {
        "ENDPOINT": endpoint,
        "HUGGINGFACE_CO_URL_TEMPLATE": template,
        "HF_HOME": str(home),
        "HF_HUB_CACHE": str(home / "hub"),
        "HF_TOKEN_PATH": str(home / "token"),
        "HF_STORED_TOKENS_PATH": str(home / "stored_tokens"),
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_DISABLE_TELEMETRY": True,
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": False,
    }.items():
        monkeypatch.setattr(constants, name, value)
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    for name, value in NO_PROXY.items():
        monkeypatch.setenv(name, value)
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    # the objects behind the functions that carry their own copy of the address
    monkeypatch.setattr(huggingface_hub.hf_api.api, "endpoint", endpoint)
    monkeypatch.setattr(transformers.utils.hub, "_hf_api", None, raising=False)
    huggingface_hub.close_session()


def do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the client try again at once where it would wait for seconds."""
    monkeypatch.setattr(_http, "time", type("NoTime", (), {"sleep": staticmethod(lambda _: None)}))
