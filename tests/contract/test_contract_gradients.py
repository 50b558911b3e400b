"""Contract, line "gradients": every parameter gets a finite gradient from one forward pass, with
checkpointing too; bfloat16 runs; embeddings and tuples pass in place of ids and outputs."""

import copy
import io
import pickle

import pytest
import torch

from family_cases import Case, embedding_tables
from family_grids import representative_cases
from generation_inputs import generate, prompts
from gradient_checks import assert_same_tensors, loss_gradients
from padded_rows import alone, cut, pad_rows
from stepping import without_labels

# renamed in transformers 5.23; the old name works in every version that we support
QUIET_CHECKPOINTING = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable")


def make_batch(case: Case, config) -> dict[str, torch.Tensor]:
    """Return a batch with labels."""
    return pad_rows(case, config, "mixed").batch


@pytest.mark.parametrize("case", representative_cases("gradients"))
@pytest.mark.parametrize("training", [False, True])
def test_every_parameter_gets_a_gradient_that_is_finite_and_not_zero(case, training):
    model = case.model().train(training)
    gradients = loss_gradients(model, make_batch(case, model.config))
    zero = [name for name, gradient in gradients.items() if not gradient.abs().max() > 0]
    assert not zero


@pytest.mark.parametrize("case", representative_cases("gradients"))
def test_every_parameter_gets_a_gradient_from_the_smallest_batch(case):
    model = case.model().train()
    row = cut(case, case.rows(model.config)[0], 1 + case.grid.label_shift)
    loss_gradients(model, alone(case, row))


@pytest.mark.parametrize("case", representative_cases("gradients"))
def test_the_gradient_is_the_slope_of_the_loss(case):
    model = case.model()
    batch = make_batch(case, model.config)
    gradients = loss_gradients(model, batch)
    generator = torch.Generator().manual_seed(2)
    directions = {
        name: torch.randn(gradient.shape, generator=generator, dtype=gradient.dtype)
        for name, gradient in gradients.items()
    }
    losses = []
    for step in (1e-6, -1e-6):
        moved = case.model()
        with torch.no_grad():
            for name, parameter in moved.named_parameters():
                parameter += step * directions[name]
            losses.append(moved(**batch).loss.item())
    slope = (losses[0] - losses[1]) / 2e-6
    expected = sum((gradients[name] * direction).sum() for name, direction in directions.items())
    assert slope == pytest.approx(expected.item(), rel=1e-5, abs=1e-7)


@QUIET_CHECKPOINTING
@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("case", representative_cases("gradients"))
def test_gradient_checkpointing_changes_neither_loss_nor_gradients(case, use_reentrant):
    model = case.model(**case.grid.dropout).train()
    batch = make_batch(case, model.config)
    results = []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
        torch.manual_seed(1)
        loss = model(**batch).loss.detach()
        torch.manual_seed(1)
        results.append({"loss": loss, **loss_gradients(model, batch)})
    assert_same_tensors(*results, rtol=1e-12, atol=1e-14)


def count_kept_numbers(model, batch) -> int:
    """Return how many numbers a forward pass keeps for the backward pass."""
    sizes = []

    def count(tensor):
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        model(**batch)
    return sum(sizes)


@QUIET_CHECKPOINTING
@pytest.mark.parametrize("case", representative_cases("gradients"))
def test_gradient_checkpointing_keeps_less_for_the_backward_pass(case):
    model = case.model().train()
    batch = make_batch(case, model.config)
    without = count_kept_numbers(model, batch)
    model.gradient_checkpointing_enable()
    assert count_kept_numbers(model, batch) < without


@pytest.mark.parametrize("case", representative_cases("gradients"))
def test_bfloat16_autocast_trains_and_generates(case):
    model = case.model(dtype=torch.float32)
    batch = make_batch(case, model.config)
    exact = model(**batch).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(**batch).loss
        loss_gradients(model, batch)
        if case.grid.generates:
            generate(case, model, prompts(case), num_beams=2, max_new_tokens=4)
    torch.testing.assert_close(loss.float(), exact, rtol=0.1, atol=0)


@pytest.mark.parametrize("case", representative_cases("gradients"))
def test_bfloat16_weights_train_and_generate(case):
    exact_model = case.model(dtype=torch.float32)
    model = case.model(dtype=torch.bfloat16)
    batch = make_batch(case, model.config)
    loss_gradients(model, batch)
    outputs = model(**batch)
    assert outputs.logits.dtype == torch.bfloat16
    torch.testing.assert_close(outputs.loss.float(), exact_model(**batch).loss, rtol=0.1, atol=0)
    if case.grid.generates:
        for num_beams in (1, 2):
            generate(case, model, prompts(case), num_beams=num_beams, max_new_tokens=4)


@pytest.mark.parametrize("case", representative_cases("gradients"))
def test_tuples_hold_what_outputs_hold(case):
    model = case.model()
    batch = make_batch(case, model.config)
    asked = {"output_attentions": True, "output_hidden_states": True}
    if case.grid.generates:
        asked["use_cache"] = False
    expected = model(**batch, **asked).to_tuple()
    actual = model(**batch, **asked, return_dict=False)
    assert isinstance(actual, tuple)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("case", representative_cases("gradients"))
def test_embeddings_may_take_the_place_of_ids(case):
    model = case.model()
    batch = make_batch(case, model.config)
    expected = model(**batch)
    tables = embedding_tables(case, model)
    embedded = dict(batch)
    for side in case.grid.sides:
        tokens = embedded.pop(side.tokens)
        if case.grid.keeps_ids(model.config):
            is_copied = tokens >= model.config.vocab_size
            embedded |= {side.tokens: tokens} if side is case.grid.sides[0] else {}
            tokens = tokens.masked_fill(is_copied, model.config.unk_token_id)
        embedded[side.embeds] = tables[side.tokens](tokens)
    actual = model(**embedded)
    assert torch.equal(actual.logits, expected.logits)
    assert torch.equal(actual.loss, expected.loss)


@pytest.mark.parametrize("case", representative_cases("gradients", only=("luong", "all_tied")))
def test_copies_and_pickles_are_the_model(case):
    model = case.model()
    batch = without_labels(make_batch(case, model.config))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    copies = (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(file, weights_only=False),
    )
    for other in copies:
        assert torch.equal(other(**batch).logits, model(**batch).logits)
        assert len(list(other.parameters())) == len(list(model.parameters()))
        next(other.parameters()).data.zero_()
        assert next(model.parameters()).abs().max() > 0
