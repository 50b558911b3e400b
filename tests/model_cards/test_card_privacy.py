"""Access tokens and folders of a machine get into no card."""

from pathlib import Path

import pytest

from carded_models import make_carded
from hf_seqmodels.model_cards import render_card, shell_command, without_folders
from hf_seqmodels.model_cards.privacy import (
    is_secret,
    publishable_command,
    without_secrets,
)

TOKEN = "hf_" + "aB3" * 11


@pytest.mark.parametrize(
    ("option", "secret"),
    [
        *((name, True) for name in ("token", "--hub_token", "--hub-token", "hf_token", "api-key")),
        *((name, True) for name in ("push_to_hub_token", "WANDB_API_KEY", "password")),
        *((name, False) for name in ("pad_token", "--source_extra_tokens", "max_tokens_per_batch")),
        *((name, False) for name in ("tokenizer", "unk_token", "seed")),
    ],
)
def test_secret_options_are_known_by_their_names(option, secret):
    assert is_secret(option) is secret


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/data/me/train.tsv", "train.tsv"),
        ("/data/my name/train set.tsv", "train set.tsv"),
        ("~/data/train.tsv", "train.tsv"),
        ("~me/train.tsv", "train.tsv"),
        ("file:///data/me/train.tsv", "train.tsv"),
        (r"C:\Users\me\train.tsv", "train.tsv"),
        ("C:/data/me/train.tsv", "train.tsv"),
        ("a=/data/me/x,b=/data/me/y", "a=x,b=y"),
        (Path("/data/me/x"), "x"),
        ({"a": ["/data/me/x", 1], "b": None}, {"a": ["x", 1], "b": None}),
        *((text, text) for text in ("data/train.tsv", "../train.tsv", "/x", "/g2p/ ", "a/b", "")),
        *(
            (text, text)
            for text in ("https://host/a/b", "s3://bucket/a", "1/2", "~", "to German: ")
        ),
    ],
)
def test_absolute_paths_are_cut_down_to_their_last_part(value, expected):
    assert without_folders(value) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python /data/me/run.py --seed 1", "python run.py --seed 1"),
        ("/opt/bin/python run.py", "python run.py"),
        ("run --train '/data/my name/x.tsv' -o runs/a", "run --train 'x.tsv' -o runs/a"),
        ('run --train="/data/my name/x.tsv"', 'run --train="x.tsv"'),
        ("run --a=/data/me/x,/data/me/y \\\n  ~/z/w", "run --a=x,y \\\n  w"),
        (
            "HF_TOKEN=abc MY_TOKEN='a b' run --token abc",
            "HF_TOKEN=*** MY_TOKEN=*** run --token ***",
        ),
        ("run --hub-token=abc --pad_token x y=z", "run --hub-token=*** --pad_token x y=z"),
        ("run --push --token abc -o x", "run --push --token *** -o x"),
        ("HF_HOME=/data/me/cache run $DATA/x.tsv", "HF_HOME=cache run $DATA/x.tsv"),
        (
            "run https://host/a/b s3://bucket/a ./x ../y",
            "run https://host/a/b s3://bucket/a ./x ../y",
        ),
    ],
)
def test_commands_keep_everything_but_secrets_and_absolute_paths(command, expected):
    assert publishable_command(command) == expected


def test_commands_from_words_are_quoted_and_hide_secrets():
    words = ["--hub_token", "abc", "--token=abc", "--pad_token", "<p>", "--train", "/a/b/c d"]
    assert shell_command("python training/run.py", words) == (
        "python training/run.py --hub_token '***' '--token=***' --pad_token '<p>' --train 'c d'"
    )


def test_what_looks_like_a_token_or_password_is_hidden_anywhere():
    text = f"a {TOKEN} https://me:pass@host/x b"
    assert without_secrets(text) == "a *** https://***@host/x b"
    assert without_secrets("hf_seqmodels") == "hf_seqmodels"


def test_no_secret_and_no_folder_is_in_a_card(monkeypatch, tmp_path):
    model, tokenizer = make_carded("seqmodels_rnn_seq2seq", "AutoModelForSeq2SeqLM")
    monkeypatch.setattr(Path, "home", lambda: Path("/homes/somebody"))
    model.config.name_or_path = "/homes/somebody/start"
    card = render_card(
        model,
        tokenizer,
        name="a",
        place="/homes/somebody/runs/a",
        command=f"HF_TOKEN={TOKEN} python run.py --train /homes/somebody/x.tsv",
        options={"hub_token": "abcd1234", "train_file": "/homes/somebody/x.tsv", "seed": 1},
        data={"train": {"name": "/homes/somebody/x.tsv"}},
        environment={"cache": "/homes/somebody/cache", "note": "in /homes/somebody/y z"},
        training={"from": "/homes/somebody/start"},
        examples=[[f"my token is {TOKEN}", "x"]],
    )
    for secret in ("somebody", TOKEN, "abcd1234", "hub_token"):
        assert secret not in card
    assert "x.tsv" in card
