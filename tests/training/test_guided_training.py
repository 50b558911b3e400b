"""Training guided by a column of word alignments."""

import itertools
import json

import pytest
from run_seq2seq import prepare, run_all

from hf_seqmodels.evaluation import alignments


@pytest.fixture
def options(tmp_path):
    """Options of a run on pairs whose words are turned round, with their alignments."""
    path = tmp_path / "pairs.jsonl"
    rows = [
        {"source": " ".join(words), "target": " ".join(words[::-1]), "links": "0-2 1-1 2-0"}
        for words in itertools.permutations("abcde", 3)
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return [
        *("--train_file", str(path), "--output_dir", str(tmp_path / "run"), "--use_cpu"),
        *("--source_tokenizer_model", "symbol", "--model_type", "seqmodels_rnn_seq2seq"),
        *("--disable_tqdm", "true", "--num_train_epochs", "10", "--learning_rate", "0.02"),
        *("--validation_split", "0", "--eval_strategy", "no", "--save_strategy", "no"),
        *("--alignment_column", "links"),
    ]


WEIGHT = (
    "--config_overrides",
    "guided_alignment_weight=1,embedding_size=16,hidden_size=24,hidden_dropout=0",
)


def test_attention_follows_the_column(options):
    run = prepare([*options, *WEIGHT])
    assert run.encoded["train"]["alignments"][0] == [0, 2, 1, 1, 2, 0]
    batch = next(iter(run.trainer.get_train_dataloader()))
    assert batch["alignments"].shape == (*batch["labels"].shape, batch["input_ids"].shape[1])
    run_all(run)
    found = alignments(run.trainer.model, run.tokenizer, ["a b c"], ["c b a"], progress=False)
    assert found[0].weights[[0, 1, 2], [2, 1, 0]].min() > 0.6


def test_alignments_that_nothing_would_read_are_refused(options):
    with pytest.raises(ValueError, match="guided_alignment_weight above 0"):
        prepare(options)
    for name, value in (("--source_prefix", "x "), ("--tag_columns", "links")):
        with pytest.raises(ValueError, match=f"does not go with {name[2:]}"):
            prepare([*options, *WEIGHT, name, value])
    options[-1] = "alignment"
    with pytest.raises(ValueError, match="must hold word alignments such as '0-0 1-2', got None"):
        prepare([*options, *WEIGHT])
