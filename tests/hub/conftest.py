"""A hub of one's own for a test, and this process as its client."""

import pytest
from huggingface_hub import close_session

from hub_connection import connect, do_not_wait
from loopback_hub import OWNER_TOKEN, LoopbackHub


@pytest.fixture
def hub():
    """Serve an empty hub on 127.0.0.1 that made no mistake of its own by the end of the test."""
    with LoopbackHub() as served:
        yield served
    assert not served.errors, served.errors[0]


@pytest.fixture
def signed_in(hub, monkeypatch, tmp_path):
    """Make this process a client of the hub, with its owner's token and an empty cache.

    Returns a function that changes the user (None is a stranger) and empties the cache.
    """
    caches = iter(range(100))

    def sign_in(token):
        connect(monkeypatch, hub.endpoint, tmp_path / f"cache{next(caches)}", token=token)

    sign_in(OWNER_TOKEN)
    do_not_wait(monkeypatch)
    yield sign_in
    close_session()
