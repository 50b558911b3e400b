"""Checkpoints that are cut off or damaged: the error names the file, and nothing is loaded."""

import json
import re

import pytest
from transformers import AutoModelForSeq2SeqLM

from hf_seqmodels import RnnSeq2SeqConfig, RnnSeq2SeqForConditionalGeneration
from hf_seqmodels.models.pretrained_base import describe_broken_weights

WEIGHTS = "model.safetensors"


@pytest.fixture
def checkpoint(tmp_path):
    """Save a tiny model and return its folder."""
    config = RnnSeq2SeqConfig(vocab_size=29, embedding_size=6, hidden_size=12)
    RnnSeq2SeqForConditionalGeneration(config).save_pretrained(tmp_path)
    return tmp_path


def damaged_header(content: bytes) -> bytes:
    """Turn a type in the header into one that does not exist; all sizes stay right."""
    return content.replace(b'"F32"', b'"F99"', 1)


DAMAGES = {
    "half": (lambda content: content[: len(content) // 2], r"\(\d+ bytes instead of \d+\)"),
    "one byte short": (lambda content: content[:-1], r"\(\d+ bytes instead of \d+\)"),
    "one byte more": (lambda content: content + b"\0", r"\(\d+ bytes instead of \d+\)"),
    "empty": (lambda content: b"", r"\(no header in its 0 bytes\)"),
    "four bytes": (lambda content: content[:4], r"\(no header in its 4 bytes\)"),
    "inside the header": (lambda content: content[:50], r"\(no header in its 50 bytes\)"),
    "other content": (lambda content: b"x" * 999, r"\(no header in its 999 bytes\)"),
    "header of a list": (lambda content: b"\2" + b"\0" * 7 + b"[]", r"\(no header in its 10 "),
    "zeros": (lambda content: b"\0" * len(content), r"\(no header in its \d+ bytes\)"),
}


@pytest.mark.parametrize("load", [RnnSeq2SeqForConditionalGeneration, AutoModelForSeq2SeqLM])
@pytest.mark.parametrize("damage", DAMAGES)
def test_broken_weights_are_named(checkpoint, damage, load):
    change, complaint = DAMAGES[damage]
    path = checkpoint / WEIGHTS
    path.write_bytes(change(path.read_bytes()))
    message = (
        rf"Every weight file must be whole, but {re.escape(str(path))} {complaint}.* cannot be "
        r"read \(.*\)\. Copy or save the checkpoint again; from the Hub, pass force_download=True"
    )
    with pytest.raises(OSError, match=message):
        load.from_pretrained(checkpoint)


def test_damage_that_only_the_reader_finds_names_the_folder(checkpoint):
    path = checkpoint / WEIGHTS
    path.write_bytes(damaged_header(path.read_bytes()))
    with pytest.raises(OSError, match=rf"but {re.escape(str(checkpoint))} cannot be read"):
        RnnSeq2SeqForConditionalGeneration.from_pretrained(checkpoint)


def test_a_broken_shard_is_named_and_whole_ones_are_not(checkpoint):
    model = RnnSeq2SeqForConditionalGeneration.from_pretrained(checkpoint)
    (checkpoint / WEIGHTS).unlink()
    model.save_pretrained(checkpoint, max_shard_size="4KB")
    shards = sorted(checkpoint.glob("*.safetensors"))
    assert len(shards) > 1
    assert describe_broken_weights(checkpoint) == ""
    shards[1].write_bytes(shards[1].read_bytes()[:-10])
    with pytest.raises(OSError, match=re.escape(shards[1].name)) as caught:
        RnnSeq2SeqForConditionalGeneration.from_pretrained(checkpoint)
    assert shards[0].name not in str(caught.value)


def test_weights_in_a_subfolder_are_named(checkpoint):
    inner = checkpoint / "inner"
    inner.mkdir()
    for name in ("config.json", WEIGHTS):
        (checkpoint / name).rename(inner / name)
    (inner / WEIGHTS).write_bytes(b"")
    with pytest.raises(OSError, match=re.escape(str(inner / WEIGHTS))):
        RnnSeq2SeqForConditionalGeneration.from_pretrained(checkpoint, subfolder="inner")


def test_missing_weights_are_the_error_of_transformers(checkpoint):
    (checkpoint / WEIGHTS).unlink()
    with pytest.raises(OSError, match=r"no file named model\.safetensors"):
        RnnSeq2SeqForConditionalGeneration.from_pretrained(checkpoint)


def test_weights_of_another_shape_are_an_error(checkpoint):
    config = json.loads((checkpoint / "config.json").read_text())
    config["embedding_size"] = 7
    (checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        RnnSeq2SeqForConditionalGeneration.from_pretrained(checkpoint)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:40], "is not a valid JSON file"),
        (lambda text: text.replace('"gru"', '"qru"'), "expected one of .*'gru'.* got qru"),
        (lambda text: text.replace('"hidden_size": 12', '"hidden_size": -12'), "at least 1, got -"),
    ],
)
def test_a_broken_config_says_what_is_wrong(checkpoint, change, message):
    path = checkpoint / "config.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(Exception, match=message):
        RnnSeq2SeqForConditionalGeneration.from_pretrained(checkpoint)
