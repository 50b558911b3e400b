"""Tiny data and options for the training scripts; a run of seconds."""

import itertools
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "training"))


def reversal_rows(count, *, first=0):
    """Words over five letters with their reversal; every row is another word."""
    words = [
        "".join(letters) for n in (2, 3, 4) for letters in itertools.product("abcde", repeat=n)
    ]
    words = words[::7] + [word for row, word in enumerate(words) if row % 7]
    return [(word, word[::-1]) for word in words[first : first + count]]


def write_tsv(path, rows):
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="session")
def pair_files(tmp_path_factory):
    """Names of a training, a validation and a test file of distinct words."""
    folder = tmp_path_factory.mktemp("pairs")
    return {
        "train": write_tsv(folder / "train.tsv", reversal_rows(45)),
        "validation": write_tsv(folder / "validation.tsv", reversal_rows(9, first=45)),
        "test": write_tsv(folder / "test.tsv", reversal_rows(8, first=54)),
    }


TINY_MODELS = {
    "seqmodels_rnn_seq2seq": ["embedding_size=8,hidden_size=12,hidden_dropout=0.3"],
    "seqmodels_transformer_seq2seq": [
        "hidden_size=12,num_encoder_layers=1,num_decoder_layers=1,num_attention_heads=3"
    ],
    "bart": [
        "d_model=12,encoder_layers=1,decoder_layers=1,encoder_attention_heads=3",
        "decoder_attention_heads=3,encoder_ffn_dim=8,decoder_ffn_dim=8,max_position_embeddings=32",
        "forced_eos_token_id=none",
    ],
}


def tiny_argv(files, output_dir, *more, model_type="seqmodels_rnn_seq2seq"):
    """Return the options of a run of twelve steps; later options win."""
    return [
        *("--model_type", model_type, "--config_overrides", *TINY_MODELS[model_type]),
        *(word for part in files for word in (f"--{part}_file", files[part])),
        *("--output_dir", str(output_dir), "--use_cpu", "--disable_tqdm", "true"),
        *("--per_device_train_batch_size", "8", "--per_device_eval_batch_size", "4"),
        *("--learning_rate", "0.02", "--num_train_epochs", "2", "--logging_steps", "2"),
        *("--seed", "3", *more),
    ]


@pytest.fixture
def tiny_options(pair_files, tmp_path):
    """Return a function that builds the options of a tiny run in the test's own folder."""

    def build(*more, files=pair_files, output_dir=tmp_path / "run", **choices):
        return tiny_argv(files, output_dir, *more, **choices)

    return build


@pytest.fixture(scope="module")
def shared_options(pair_files, tmp_path_factory):
    """Return a function that builds the options of a tiny run that several tests look at."""
    folder = tmp_path_factory.mktemp("shared")

    def build(*more, name):
        return tiny_argv(pair_files, folder / name, *more)

    return build
