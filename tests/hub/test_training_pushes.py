"""Training pushes what it trained: Trainer(push_to_hub=True), and the training script."""

import subprocess
import sys

import pytest
from huggingface_hub import HfApi, ModelCard
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from hf_seqmodels.data import Seq2SeqCollator
from hub_checkpoints import (
    ROOT,
    assert_same,
    code_of,
    make_model,
    make_tokenizer,
    outputs_of,
    pull,
    pull_as_stranger,
)
from hub_connection import hub_environment
from loopback_hub import OWNER, OWNER_TOKEN
from stranger import texts_of

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

NAME = f"{OWNER}/trained"


class PatientTrainer(Seq2SeqTrainer):
    """Ends each push before it goes on: a later checkpoint else changes files on their way."""

    def _push_from_checkpoint(self, checkpoint_folder):
        super()._push_from_checkpoint(checkpoint_folder)
        if self.push_in_progress is not None:
            self.push_in_progress.wait_until_done()


def train(folder, **options):
    """Train four steps on four pairs, with a checkpoint after every second, and push the end."""
    model, tokenizer = make_model(), make_tokenizer()
    pairs = [("abc", "CB"), ("ed", "AA"), ("da b", "C"), ("e", "BAC")]
    rows = [tokenizer(source, text_target=target) for source, target in pairs]
    settings = {"push_to_hub": True, "hub_model_id": NAME, "max_steps": 4, "save_steps": 2}
    settings |= {"per_device_train_batch_size": 2, "learning_rate": 0.01, "use_cpu": True}
    settings |= {"report_to": "none", "disable_tqdm": True, "hub_always_push": True}
    trainer = PatientTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(str(folder), **settings, **options),
        train_dataset=rows,
        data_collator=Seq2SeqCollator(tokenizer, model=model),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.push_to_hub()
    return trainer


def test_trainer_pushes_model_tokenizer_and_code_in_one_commit(hub, signed_in, tmp_path):
    trainer = train(tmp_path / "run", hub_strategy="end", hub_private_repo=True)
    expected = outputs_of(trainer.model, trainer.processing_class)

    assert hub.titles(NAME) == ["End of training", "initial commit"]
    assert hub.repositories[NAME].private
    assert code_of(hub.files(NAME)) == code_of(trainer.model, trainer.processing_class)
    assert not [path for path in hub.files(NAME) if path.startswith(("checkpoint", "_"))]
    signed_in(OWNER_TOKEN)
    assert_same(pull(NAME), expected)


def test_what_trainer_pushes_on_the_way_loads_too(hub, signed_in, tmp_path):
    """Checkpoints carry no code, so these commits need the package; the last one does not."""
    trainer = train(tmp_path / "run", hub_strategy="all_checkpoints")

    history = HfApi().list_repo_commits(NAME)
    steps = [item for item in history if item.title == "Training in progress, step 2"]
    assert history[0].title == "End of training" and len(steps) == 1
    half_way = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run" / "checkpoint-2")
    expected = outputs_of(half_way, make_tokenizer())
    assert_same(pull(NAME, revision=steps[0].commit_id), expected)
    assert_same(pull(NAME, subfolder="checkpoint-2"), expected)
    assert not [
        path for path in hub.files(NAME) if path.startswith("checkpoint-2/") and ".py" in path
    ]
    assert_same(pull(NAME), outputs_of(trainer.model, trainer.processing_class))


@pytest.mark.slow
def test_script_pushes_a_run_that_strangers_can_load(hub, signed_in, tmp_path):
    pairs = [(word, word[::-1]) for word in ("ab", "ba", "abc", "cab", "ca", "bca", "aab", "cc")]
    lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (tmp_path / "pairs.tsv").write_text(lines, encoding="utf-8")
    command = [
        *(sys.executable, str(ROOT / "training" / "run_seq2seq.py")),
        *("--model_type", "seqmodels_rnn_seq2seq", "--output_dir", "run", "--use_cpu"),
        *("--config_overrides", "embedding_size=8,hidden_size=12"),
        *("--train_file", "pairs.tsv", "--validation_file", "pairs.tsv"),
        *("--per_device_train_batch_size", "4", "--num_train_epochs", "1"),
        *("--push_to_hub", "--hub_model_id", NAME, "--hub_token", OWNER_TOKEN),
    ]
    environment = hub_environment(hub.endpoint, tmp_path / "cache")

    finished = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True
    )

    assert finished.returncode == 0, finished.stderr
    assert hub.titles(NAME) == ["End of training", "initial commit"]
    files = hub.files(NAME)
    assert {"README.md", "metrics.json", "predictions.jsonl", "alignments.png"} <= set(files)
    written = finished.stdout + finished.stderr
    assert OWNER_TOKEN not in written
    assert not [path for path, file in files.items() if OWNER_TOKEN.encode() in file.content]
    signed_in(None)
    model = AutoModelForSeq2SeqLM.from_pretrained(NAME)
    tokenizer = AutoTokenizer.from_pretrained(NAME)
    assert code_of(files) == code_of(model, tokenizer)
    assert ModelCard.load(NAME).data.library_name
    found = pull_as_stranger(NAME, tmp_path, hub_environment(hub.endpoint, tmp_path / "other"))
    assert_same(found, {**outputs_of(model, tokenizer), "texts": texts_of(NAME)})
