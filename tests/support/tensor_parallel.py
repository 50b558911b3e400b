"""Tensor parallelism of the transformer families, as their plans ("auto") say; see gloo_group.

Each layer is shared by two processes, which read the same rows; logits, loss, gradients and what
is generated are compared with a whole model.
"""

import inspect
from functools import partial
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

import gloo_group
from family_cases import Case, representatives_of
from family_grids import GRIDS
from gloo_group import RANKS, is_first
from gradient_checks import assert_same_tensors, loss_gradients
from padded_rows import pad_rows
from stepping import without_labels

EXACT = {"rtol": 1e-8, "atol": 1e-10}
CASES = {
    "seqmodels_decoder_lm": ("gpt2", "llama", "press"),
    "seqmodels_text_encoder": ("bert", "modernbert"),
    "seqmodels_transformer_seq2seq": ("vaswani", "marian", "modern", "learned"),
}
ONE_KEY_HEAD = "rotary_post_wide_heads"
RECURRENT = ("seqmodels_rnn_lm", "seqmodels_rnn_seq2seq")


def load_shared(case: Case, folder: Path):
    """Load a model whose layers the processes share."""
    load = partial(case.grid.model_class.from_pretrained, folder, dtype=torch.float64)
    try:
        from transformers.distributed import DistributedConfig
    except ImportError:
        return load(tp_plan="auto")
    if "tp_plan" not in inspect.signature(DistributedConfig).parameters:
        return load(tp_plan="auto")
    return load(distributed_config=DistributedConfig(tp_plan="auto"))


def check_case(case: Case, folder: Path) -> None:
    """Compare a shared model with a whole one."""
    whole = case.model(**case.grid.no_dropout)
    if is_first():
        whole.save_pretrained(folder)
    torch.distributed.barrier()
    shared = load_shared(case, folder)
    split = [n for n, p in shared.named_parameters() if isinstance(p, DTensor)]
    for part in ("mlp.up_proj.weight", "mlp.down_proj.weight"):
        assert any(name.endswith(part) for name in split), f"{part} is not split: {split}"
    for name, parameter in shared.named_parameters():
        if name.endswith("up_proj.weight"):
            assert parameter.to_local().numel() == whole.get_parameter(name).numel() // RANKS

    batch = pad_rows(case, whole.config, rows=case.grid.make_rows(whole.config, 4)).batch
    with torch.no_grad():
        expected = whole(**without_labels(batch)).logits
        torch.testing.assert_close(shared(**without_labels(batch)).logits, expected, **EXACT)
    whole.train()
    shared.train()
    gradients = loss_gradients(whole, batch)
    found = loss_gradients(shared, batch)
    found = {n: g.full_tensor() if isinstance(g, DTensor) else g for n, g in found.items()}
    assert_same_tensors(found, gradients, **EXACT)
    loss, expected_loss = shared(**batch).loss, whole(**batch).loss
    torch.testing.assert_close(loss.detach(), expected_loss.detach(), **EXACT)

    if case.grid.generates:
        prompt = {k: v for k, v in without_labels(batch).items() if not k.startswith("decoder")}
        for search in ({}, {"num_beams": 3}):
            options = {"max_new_tokens": 6, "do_sample": False, **search}
            ours = shared.eval().generate(**prompt, **options)
            assert torch.equal(ours, whole.eval().generate(**prompt, **options))


def check_refusal(case: Case, message: str, folder: Path) -> None:
    """What cannot be shared is refused."""
    if is_first():
        case.model().save_pretrained(folder)
    torch.distributed.barrier()
    try:
        load_shared(case, folder)
    except ValueError as error:
        assert message in str(error), error
    else:
        raise AssertionError("loaded")


JOBS: dict[str, gloo_group.Job] = {}
for grid in GRIDS:
    for case in representatives_of(grid):
        name = f"{grid.model_type}-{case.id}"
        if case.id in CASES.get(grid.model_type, ()):
            JOBS[name] = partial(check_case, case)
        elif case.id == ONE_KEY_HEAD:
            JOBS[name] = partial(check_refusal, case, "must divide num_key_value_heads=1")
    if grid.model_type in RECURRENT:
        case = representatives_of(grid)[0]
        JOBS[grid.model_type] = partial(check_refusal, case, "has no `tp_plan`")

if __name__ == "__main__":
    gloo_group.main(JOBS)
