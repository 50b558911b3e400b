"""FSDP2 of every family, as `from_pretrained(distributed_config=...)` shards it; see gloo_group.

Each model is compared with a whole one that is trained beside it on all rows: a plain loop,
float64, gradient descent with momentum.
"""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard
from transformers.distributed import DistributedConfig
from transformers.distributed.checkpoint import (
    load_optimizer_distributed,
    save_optimizer_distributed,
)
from transformers.distributed.utils import gather_full_state_dict

import gloo_group
from family_cases import Case, representatives_of
from family_grids import GRIDS
from gloo_group import RANKS, is_first
from gradient_checks import assert_same_tensors, loss_gradients
from padded_rows import pad_rows

# tables of 19 and 13 rows do not divide evenly: one process holds more of them than the other
CASES = {
    "seqmodels_rnn_seq2seq": ("bahdanau", "luong", "all_tied_of_other_width"),
    "seqmodels_transformer_seq2seq": ("modern", "vaswani", "shared_tables", "tied_output"),
    "seqmodels_decoder_lm": ("llama", "gpt2"),
    "seqmodels_rnn_lm": ("zaremba", "awd_lstm"),
    "seqmodels_text_encoder": ("modernbert", "bert"),
}
EXACT = {"rtol": 1e-9, "atol": 1e-11}
SHARES = (slice(0, 3), slice(3, 8))  # of eight rows: the numbers of targets differ


def optimizer_of(model) -> torch.optim.Optimizer:
    """Return an optimizer with a state that checkpoints have to hold."""
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def whole_tensors(named: dict[str, Tensor]) -> dict[str, Tensor]:
    """Put together what the processes hold."""
    return {name: tensor.full_tensor() for name, tensor in named.items()}


def check_shards(model, whole) -> None:
    """Each process holds about half of every parameter, and none of it twice."""
    sizes = {name: parameter.numel() for name, parameter in whole.named_parameters()}
    for name, parameter in model.named_parameters():
        assert isinstance(parameter, DTensor), f"{name} is not sharded"
        assert parameter.placements == (Shard(0),), f"{name}: {parameter.placements}"
        held = torch.tensor(parameter.to_local().numel())
        row = sizes[name] // len(parameter)
        assert abs(held.item() - sizes[name] / RANKS) <= row, f"{name}: {held} of {sizes[name]}"
        torch.distributed.all_reduce(held)
        assert held == sizes.pop(name), name
    assert not sizes, f"not among the sharded parameters: {sorted(sizes)}"


def train(model, optimizer, batch: dict, num_targets: Tensor, *, steps: int) -> None:
    """Take steps on this process's share of the rows; FSDP averages gradients."""
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        (model(**batch, num_items_in_batch=num_targets).loss * RANKS).backward()
        optimizer.step()


def check_case(case: Case, folder: Path) -> None:
    """Train, compare, save, resume."""
    rank = torch.distributed.get_rank()
    whole = case.model(**case.grid.no_dropout)
    start = folder / "start"
    if is_first():
        whole.save_pretrained(start)
    torch.distributed.barrier()
    rows = case.grid.make_rows(whole.config, 8)
    batch, share = (
        pad_rows(case, whole.config, rows=part).batch for part in (rows, rows[SHARES[rank]])
    )
    num_targets = (batch["labels"][:, case.grid.label_shift :] != -100).sum()
    config = DistributedConfig(fsdp_size=RANKS)
    load = partial(
        case.grid.model_class.from_pretrained, dtype=torch.float64, distributed_config=config
    )

    model = load(start)
    check_shards(model, whole)
    model.train()
    loss = model(**share, num_items_in_batch=num_targets).loss
    (loss * RANKS).backward()
    found = whole_tensors({name: p.grad for name, p in model.named_parameters()})
    whole.train()
    expected = loss_gradients(whole, batch)
    assert_same_tensors(found, expected, **EXACT)
    total = loss.detach().clone()
    torch.distributed.all_reduce(total)
    torch.testing.assert_close(total, whole(**batch).loss.detach(), **EXACT)

    optimizer = optimizer_of(model)
    train(model, optimizer, share, num_targets, steps=2)
    saved = folder / "saved"
    model.save_pretrained(saved, is_main_process=is_first())
    save_optimizer_distributed(model, optimizer, str(folder / "optimizer"))
    train(model, optimizer, share, num_targets, steps=2)
    plain_optimizer = optimizer_of(whole)
    for _ in range(4):
        plain_optimizer.zero_grad()
        whole(**batch).loss.backward()
        plain_optimizer.step()
    trained = gather_full_state_dict(model)
    if is_first():
        assert_same_tensors(trained, dict(whole.state_dict()), **EXACT)

    resumed = load(saved)
    optimizer = optimizer_of(resumed)
    load_optimizer_distributed(resumed, optimizer, str(folder / "optimizer"))
    train(resumed, optimizer, share, num_targets, steps=2)
    again = gather_full_state_dict(resumed)
    if is_first():
        assert_same_tensors(again, trained, rtol=0, atol=0)

    resumed.save_pretrained(folder / "end", is_main_process=is_first())
    torch.distributed.barrier()
    reloaded = case.grid.model_class.from_pretrained(folder / "end", dtype=torch.float64)
    with torch.no_grad():
        ours, theirs = (each.eval()(**batch).logits for each in (resumed, reloaded))
    torch.testing.assert_close(ours, theirs, **EXACT)


JOBS = {
    f"{grid.model_type}-{case.id}": partial(check_case, case)
    for grid in GRIDS
    for case in representatives_of(grid)
    if case.id in CASES[grid.model_type]
}

if __name__ == "__main__":
    gloo_group.main(JOBS)
