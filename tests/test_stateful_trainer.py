"""Truncated backpropagation with the Trainer: against loops by hand, and interrupted runs."""

import itertools
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback, TrainingArguments

from hf_seqmodels import RnnLMConfig, RnnLMForCausalLM
from hf_seqmodels.evaluation.perplexity import corpus_perplexity
from hf_seqmodels.stateful_trainer import StatefulTrainer
from stateful_parallel import TOKENS

NO_DROPOUT = {"embedding_dropout": 0.0, "hidden_dropout": 0.0}
EVERY_DROPOUT = {
    "word_dropout": 0.2,
    "embedding_dropout": 0.3,
    "hidden_dropout": 0.2,
    "output_dropout": 0.4,
    "weight_dropout": 0.5,
    "variational_dropout": True,
    "activation_regularization": 2.0,
    "temporal_activation_regularization": 1.0,
}


def make_model(**options) -> RnnLMForCausalLM:
    """Return a tiny model in float64, from a fixed seed."""
    torch.manual_seed(0)
    config = RnnLMConfig(
        vocab_size=11, embedding_size=5, hidden_size=7, **{"num_hidden_layers": 1, **options}
    )
    return RnnLMForCausalLM(config).double()


def make_trainer(model, folder: Path, *, window_size=4, varied=False, callbacks=(), **arguments):
    """Return a trainer over TOKENS: 3 rows of 20, 20 and 19 predictions, plain SGD."""
    settings = {
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "optim": "sgd",
        "learning_rate": 0.5,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "per_device_train_batch_size": 3,
        "num_train_epochs": 2,
        "seed": 11,
        **arguments,
    }
    return StatefulTrainer(
        model=model,
        args=TrainingArguments(output_dir=str(folder), **settings),
        train_dataset=TOKENS,
        eval_dataset=TOKENS[:31],
        window_size=window_size,
        varied_windows=varied,
        callbacks=list(callbacks),
    )


class PlainLM(nn.Module):
    """The same weights in modules of torch, and truncated backpropagation written out."""

    def __init__(self, model: RnnLMForCausalLM):
        super().__init__()
        self.embedding = nn.Embedding(11, 5)
        self.rnn = nn.LSTM(5, 7, batch_first=True)
        self.output = nn.Linear(7, 11)
        self.double()
        self.embedding.load_state_dict(model.model.embed_tokens.state_dict())
        self.rnn.load_state_dict(model.model.stack.layers[0].rnn.state_dict())
        self.output.load_state_dict(model.lm_head.state_dict())

    def train_epoch(self, bounds, *, accumulated=1, max_norm=math.inf, rates=None):
        """Take one step of SGD for every `accumulated` windows of three rows."""
        state = None
        steps = [bounds[i : i + accumulated] for i in range(0, len(bounds), accumulated)]
        for number, windows in enumerate(steps):
            total, count = 0.0, 0
            for start, end in windows:
                rows = [TOKENS[r + start : min(r + end, e) + 1] for r, e in ROWS]
                state, nats, targets = self.read(rows, state, end - start)
                total, count = total + nats, count + targets
            self.zero_grad()
            (total / count).backward()
            nn.utils.clip_grad_norm_(self.parameters(), max_norm)
            for parameter in self.parameters():
                parameter.data -= (0.5 if rates is None else rates[number]) * parameter.grad

    def read(self, rows, state, length):
        """Return the detached state, the sum of the losses and the number of targets."""
        inputs = torch.stack([F.pad(row, (0, length + 1 - len(row))) for row in rows])
        outputs, state = self.rnn(self.embedding(inputs[:, :length]), state)
        nats, targets = 0.0, 0
        for row, output in zip(rows, outputs, strict=True):
            scores = self.output(output[: len(row) - 1]).log_softmax(-1)
            nats = nats - scores.gather(1, row[1:, None]).sum()
            targets += len(row) - 1
        return tuple(part.detach() for part in state), nats, targets

    def assert_equals(self, model: RnnLMForCausalLM):
        """Assert that both have the same weights."""
        for mine, theirs in (
            (self.embedding, model.model.embed_tokens),
            (self.rnn, model.model.stack.layers[0].rnn),
            (self.output, model.lm_head),
        ):
            for name, value in mine.state_dict().items():
                torch.testing.assert_close(theirs.state_dict()[name], value, msg=name)


ROWS = [(0, 20), (20, 40), (40, 59)]
WINDOWS = [(0, 4), (4, 8), (8, 12), (12, 16), (16, 20)]


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("max_norm", [0.05, None])
def test_training_equals_a_loop_that_detaches_by_hand(tmp_path, accumulated, max_norm):
    model = make_model(**NO_DROPOUT)
    plain = PlainLM(model)
    make_trainer(
        model, tmp_path, gradient_accumulation_steps=accumulated, max_grad_norm=max_norm or 0.0
    ).train()
    for _ in range(2):  # the state is zero again at the beginning of an epoch
        plain.train_epoch(WINDOWS, accumulated=accumulated, max_norm=max_norm or math.inf)
    plain.assert_equals(model)


def test_varied_windows_scale_the_learning_rate_by_their_length(tmp_path):
    model = make_model(**NO_DROPOUT)
    plain = PlainLM(model)
    trainer = make_trainer(model, tmp_path, varied=True, window_size=6, num_train_epochs=1)
    trainer.train()
    bounds = trainer._windows.window_bounds
    windows = list(itertools.pairwise(bounds))
    rates = [0.5 * (end - start) / 6 for start, end in windows]
    assert len(set(rates)) > 1
    plain.train_epoch(windows, rates=rates)
    plain.assert_equals(model)
    assert {entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry} == {
        0.5
    }


class StopAt(TrainerCallback):
    """Ends the training after a step, as an interruption would."""

    def __init__(self, step: int):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == self.step


@pytest.mark.parametrize("stop", [2, 5, 7])  # within an epoch, at its end, within the second
def test_an_interrupted_run_equals_one_that_was_not_bit_for_bit(tmp_path, stop):
    options = {
        "varied": True,
        "optim": "adamw_torch",
        "learning_rate": 0.02,
        "lr_scheduler_type": "linear",
        "num_train_epochs": 3,
        "save_strategy": "steps",
        "save_steps": 1,
    }
    whole = make_model(num_hidden_layers=2, **EVERY_DROPOUT)
    straight = make_trainer(whole, tmp_path / "straight", **options)
    straight.train()
    broken = make_model(num_hidden_layers=2, **EVERY_DROPOUT)
    make_trainer(broken, tmp_path / "broken", callbacks=[StopAt(stop)], **options).train()
    resumed = make_model(num_hidden_layers=2, **EVERY_DROPOUT)
    trainer = make_trainer(resumed, tmp_path / "broken", **options)
    torch.manual_seed(99)
    trainer.train(resume_from_checkpoint=str(tmp_path / "broken" / f"checkpoint-{stop}"))
    assert trainer.state.global_step == straight.state.global_step > 2 * stop - 5
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
    losses = [
        [entry["loss"] for entry in each.state.log_history if "loss" in entry]
        for each in (straight, trainer)
    ]
    assert losses[0] == losses[1]


def test_evaluation_scores_every_token_once_and_leaves_training_alone(tmp_path):
    model = make_model(**NO_DROPOUT)
    expected = make_model(**NO_DROPOUT)
    make_trainer(expected, tmp_path / "without").train()
    trainer = make_trainer(
        model,
        tmp_path / "with",
        eval_strategy="steps",
        eval_steps=2,
        per_device_eval_batch_size=1,
    )
    trainer.train()
    for name, value in expected.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name
    metrics = trainer.evaluate()
    figures = corpus_perplexity(model, TOKENS[:31])
    assert metrics["eval_loss"] == pytest.approx(figures.nats_per_token, rel=1e-12)
    assert metrics["eval_perplexity"] == pytest.approx(figures.perplexity, rel=1e-12)
    trainer.args.per_device_eval_batch_size = 4
    figures = corpus_perplexity(model, TOKENS[:31], batch_size=4)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(figures.nats_per_token, rel=1e-12)
    metrics = trainer.evaluate({"a": TOKENS[:9], "b": [[1, 2], [3, 4, 5]]})
    assert {"eval_a_loss", "eval_b_perplexity"} <= metrics.keys()
    assert trainer.predict(TOKENS[:9]).metrics["test_loss"] > 0


def test_what_has_no_meaning_here_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no data_collator: batches are windows .* Leave it out"):
        StatefulTrainer(model=make_model(), data_collator=lambda rows: rows)
    with pytest.raises(ValueError, match=r"no compute_metrics: evaluation reports loss"):
        StatefulTrainer(model=make_model(), compute_metrics=lambda prediction: {})
    with pytest.raises(ValueError, match=r"got label_smoothing_factor=0.1. Set label_smoothing in"):
        make_trainer(make_model(), tmp_path, label_smoothing_factor=0.1)
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=11, n_embd=4, n_layer=1, n_head=1))
    with pytest.raises(ValueError, match="carries a recurrent state, got GPT2LMHeadModel"):
        make_trainer(gpt2, tmp_path)
    trainer = make_trainer(make_model(), tmp_path)
    trainer.train_dataset, trainer.eval_dataset = None, None
    with pytest.raises(ValueError, match="training requires a train_dataset"):
        trainer.train()
    with pytest.raises(ValueError, match="evaluation requires an eval_dataset"):
        trainer.evaluate()


def test_a_checkpoint_without_the_state_is_not_resumed_within_the_text(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 2}
    make_trainer(make_model(), tmp_path, callbacks=[StopAt(2)], **options).train()
    (tmp_path / "checkpoint-2" / "recurrent_state.pt").unlink()
    trainer = make_trainer(make_model(), tmp_path, **options)
    with pytest.raises(ValueError, match=r"the checkpoint has no recurrent_state\.pt\. Resume"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
