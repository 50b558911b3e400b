"""Who may push and pull, and what a person reads who may not; no token is ever shown."""

import subprocess
import sys

import pytest
from huggingface_hub import constants
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from hf_seqmodels.hub import HubError, push
from hub_checkpoints import assert_same, make_model, make_tokenizer, outputs_of, pull
from hub_connection import connect, hub_environment
from loopback_hub import OWNER, OWNER_TOKEN, READER, READER_TOKEN, LoopbackHub

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

NAME = f"{OWNER}/words"
WRONG_TOKEN = "hf_WrongWrongWrongWrongWrong"
TOKENS = (OWNER_TOKEN, READER_TOKEN, WRONG_TOKEN)


def push_words(repo_id=NAME, **options):
    return push(make_model(), repo_id, tokenizer=make_tokenizer(), verify=False, **options)


def everything_said(error):
    """Return the message of an error and of all that led to it."""
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


def refused_push(**options):
    """Return the message of a push that must fail, having looked for tokens in it."""
    with pytest.raises(HubError) as caught:
        push_words(**options)
    assert not [token for token in TOKENS if token in everything_said(caught.value)]
    return str(caught.value)


def refused_pull(**options):
    """Return the message of a load that must fail, having looked for tokens in it."""
    with pytest.raises(OSError) as caught:
        AutoModelForSeq2SeqLM.from_pretrained(NAME, **options)
    assert not [token for token in TOKENS if token in everything_said(caught.value)]
    return str(caught.value)


def test_private_model_is_for_its_owner(hub, signed_in):
    push_words(private=True)
    expected = outputs_of(make_model(), make_tokenizer())
    assert hub.repositories[NAME].private
    for token in (None, READER_TOKEN):
        signed_in(token)
        assert "If this is a private repository, make sure to pass a token" in refused_pull()
    signed_in(WRONG_TOKEN)
    refused_pull()
    signed_in(None)
    assert_same(pull(NAME, token=OWNER_TOKEN), expected)
    signed_in(OWNER_TOKEN)
    assert_same(pull(NAME), expected)


def test_private_stays_private_and_public_stays_public(hub, signed_in):
    push_words(private=True)
    push_words(commit_message="again")
    assert hub.repositories[NAME].private
    push_words(f"{OWNER}/open")
    assert not hub.repositories[f"{OWNER}/open"].private


def test_token_given_to_push_comes_before_that_of_the_environment(hub, signed_in):
    signed_in(WRONG_TOKEN)
    push_words(token=OWNER_TOKEN)
    assert hub.titles(NAME)[1:] == ["initial commit"]
    assert {seen.user for seen in hub.seen if seen.method != "PUT"} == {OWNER}


def test_push_without_a_token_says_where_one_comes_from(hub, signed_in):
    signed_in(None)
    message = refused_push()
    assert "hf auth login" in message and "HF_TOKEN" in message and "write permission" in message
    assert not hub.seen


def test_push_with_an_unknown_token_says_to_make_another(hub, signed_in):
    signed_in(WRONG_TOKEN)
    message = refused_push()
    assert "does not know this access token" in message and "HF_TOKEN" in message
    assert not hub.repositories
    signed_in(OWNER_TOKEN)
    assert "does not know this access token" in refused_push(token=WRONG_TOKEN)


@pytest.mark.parametrize("token", ["", "  ", "hf_two words", "hf_line\nbreak", "hf_é"])
def test_push_with_no_possible_token_is_refused_unsent(token, hub, signed_in):
    signed_in(None)
    with pytest.raises(HubError, match="HF_TOKEN") as caught:
        push_words(token=token)
    assert not hub.seen
    assert not token.strip() or token not in everything_said(caught.value)


def test_push_as_somebody_else_is_refused(hub, signed_in):
    push_words()
    before = dict(hub.repositories[NAME].refs)
    signed_in(READER_TOKEN)
    message = refused_push()
    assert f"may not write to {NAME}" in message and "your own user name" in message
    assert hub.repositories[NAME].refs == before
    assert "your own user name" in refused_push(repo_id=f"{OWNER}/new")
    push_words(f"{READER}/words")
    assert hub.titles(f"{READER}/words")[1:] == ["initial commit"]


def test_private_repository_of_somebody_else_is_not_given_away(hub, signed_in):
    push_words(private=True)
    signed_in(READER_TOKEN)
    message = refused_push()
    assert "private" not in message
    assert message == refused_push(repo_id=f"{OWNER}/nothing").replace("nothing", "words")


def test_missing_revisions_are_named(hub, signed_in):
    push_words()
    assert "v9 is not a valid git identifier" in refused_pull(revision="v9")
    message = refused_push(revision="refs/pr/9")
    assert "no revision 'refs/pr/9'" in message and "Name a branch" in message


def test_offline_what_was_pulled_loads_and_nothing_is_pushed(hub, signed_in, monkeypatch):
    push_words()
    expected = pull(NAME)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.seen.clear()
    assert_same(pull(NAME), expected)
    assert "HF_HUB_OFFLINE" in refused_push()
    with pytest.raises(OSError, match="offline mode"):
        AutoConfig.from_pretrained(f"{OWNER}/other")
    assert not hub.seen


def test_unreachable_hub_is_named(signed_in, monkeypatch, tmp_path):
    with LoopbackHub() as gone:
        pass
    connect(monkeypatch, gone.endpoint, tmp_path, token=OWNER_TOKEN)
    message = refused_push()
    assert f"{gone.endpoint} cannot be reached" in message and "HF_ENDPOINT" in message
    assert f"couldn't connect to '{gone.endpoint}'" in refused_pull()


@pytest.mark.slow
def test_command_line_says_it_in_one_line(hub, tmp_path):
    make_model().save_pretrained(tmp_path / "model")
    make_tokenizer().save_pretrained(tmp_path / "model")
    for settings, expected in (
        ({"token": None}, "hf auth login"),
        ({"token": WRONG_TOKEN}, "does not know this access token"),
    ):
        command = [sys.executable, "-m", "hf_seqmodels.hub", "push", "model", NAME, "--no_verify"]
        finished = subprocess.run(
            command,
            cwd=tmp_path,
            env=hub_environment(hub.endpoint, tmp_path / "home", **settings),
            capture_output=True,
            text=True,
        )
        assert finished.returncode == 1
        assert finished.stderr.startswith("hf_seqmodels.hub: error: ")
        assert expected in finished.stderr and len(finished.stderr.splitlines()) == 1
        assert WRONG_TOKEN not in finished.stdout + finished.stderr
    assert not hub.repositories
