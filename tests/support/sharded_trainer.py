"""FSDP2 of accelerate through transformers' Trainer, as users of GPUs start it; see gloo_group.

accelerate shards on accelerators alone, so the processes tell it that theirs is one; all the rest
is what runs on GPUs.
"""

from functools import partial
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from torch.distributed.tensor import DTensor

import gloo_group
from family_cases import Case, representatives_of
from family_grids import GRIDS
from gradient_checks import loss_gradients
from padded_rows import pad_rows
from small_training import losses_of, make_trainer

CASES = {
    "seqmodels_rnn_seq2seq": "luong",
    "seqmodels_transformer_seq2seq": "modern",
    "seqmodels_decoder_lm": "gpt2",
    "seqmodels_rnn_lm": "awd_lstm",
    "seqmodels_text_encoder": "bert",
}
TIED = "vaswani"  # encoder, decoder and output layer


def train(case: Case, folder: Path, resume_from: Path | None = None):
    """Train for four steps, or for the last two, and return the trainer."""
    wrapped_by = {"auto_wrap_policy": "NO_WRAP"} if "rnn_seq2seq" in case.grid.model_type else {}
    trainer = make_trainer(
        case,
        case.model(**case.grid.no_dropout, dtype=torch.float32, seed=1 if resume_from else 0),
        folder,
        batch_size=4,
        max_steps=4,
        save_strategy="steps",
        save_steps=2,
        optim="adamw_torch",
        ddp_backend="gloo",
        fsdp=True,
        fsdp_config={"version": 2, **wrapped_by},
    )
    assert trainer.accelerator.is_fsdp2
    trainer.train(resume_from_checkpoint=resume_from and str(resume_from))
    return trainer


def as_an_accelerator() -> None:
    """Let accelerate take the CPU for a device that it shards on."""
    make_state = PartialState.__init__

    def make(self, *args, **kwargs):
        make_state(self, *args, **kwargs)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    PartialState.__init__ = make


def check_case(case: Case, folder: Path) -> None:
    """Train in halves, resume, and load what was saved as a whole."""
    as_an_accelerator()
    whole = case.model(**case.grid.no_dropout).train()
    batch = pad_rows(case, whole.config, rows=case.grid.make_rows(whole.config, 8)).batch
    trained = train(case, folder / "straight")
    for name, parameter in trained.model.named_parameters():
        assert isinstance(parameter, DTensor), f"{name} is not sharded"
        assert parameter.to_local().numel() < parameter.numel(), name
    losses = losses_of(trained)
    torch.testing.assert_close(losses[0], whole(**batch).loss.item(), rtol=1e-5, atol=0)
    optimizer = torch.optim.AdamW(whole.parameters(), lr=0.01, weight_decay=0.0)
    for loss in losses:  # the second one depends on the gradients of the first
        torch.testing.assert_close(loss, whole(**batch).loss.item(), rtol=1e-3, atol=0)
        loss_gradients(whole, batch)
        optimizer.step()

    resumed = train(case, folder / "resumed", folder / "straight" / "checkpoint-2")
    parameters = (trainer.model.parameters() for trainer in (trained, resumed))
    assert all(torch.equal(a.to_local(), b.to_local()) for a, b in zip(*parameters, strict=True))
    assert losses_of(resumed) == losses

    trained.save_model(str(folder / "end"))
    torch.distributed.barrier()
    reloaded = case.grid.model_class.from_pretrained(folder / "end").train()
    expected = {name: tensor.full_tensor() for name, tensor in trained.model.named_parameters()}
    for name, parameter in reloaded.named_parameters():
        assert torch.equal(parameter, expected[name]), name


def check_refusal(case: Case, folder: Path) -> None:
    """accelerate parts the tied tables of an encoder-decoder, which torch refuses."""
    as_an_accelerator()
    try:
        train(case, folder)
    except ValueError as error:
        assert "is shared with a parameter already managed by another FSDP group" in str(error)
    else:
        raise AssertionError("docs/distributed.md says that this is refused")


JOBS: dict[str, gloo_group.Job] = {}
for grid in GRIDS:
    for case in representatives_of(grid):
        if case.id == CASES[grid.model_type]:
            JOBS[f"{grid.model_type}-{case.id}"] = partial(check_case, case)
        elif case.id == TIED and grid.model_type == "seqmodels_transformer_seq2seq":
            JOBS[f"{grid.model_type}-{case.id}"] = partial(check_refusal, case)

if __name__ == "__main__":
    gloo_group.main(JOBS)
