"""Contract, line "batch": a row gives the same numbers alone and in a batch, nothing leaks between
rows, and no later token leaks into an earlier output."""

import pytest
import torch

from family_cases import Case, embedding_tables
from family_grids import representative_cases
from padded_rows import alone, pad_rows
from stepping import without_labels


@pytest.mark.parametrize("case", representative_cases("batch"))
def test_a_row_alone_equals_the_row_in_a_batch_in_float32(case):
    model = case.model(dtype=torch.float32)
    padded = pad_rows(case, model.config)
    with torch.no_grad():
        outputs = model(**without_labels(padded.batch))
        for index, row in enumerate(case.rows(model.config)):
            expected = model(**without_labels(alone(case, row)))
            for side in case.grid.sides:
                positions = padded.positions[side.tokens][index]
                for name in side.outputs:
                    actual = outputs[name][index, positions]
                    torch.testing.assert_close(actual, expected[name][0], rtol=1e-5, atol=1e-5)


def embed(case: Case, model) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return a batch with embeddings in place of ids, and the embeddings by side, all wanting
    gradients. The last row is padding alone on the first side."""
    rows = case.rows(model.config)
    batch = without_labels(pad_rows(case, model.config, "mixed", rows=[*rows, rows[0]]).batch)
    batch[case.grid.sides[0].keep][-1] = 0
    embeddings = {}
    for side in case.grid.sides:
        tokens = batch.pop(side.tokens)
        if side is case.grid.sides[0] and case.grid.keeps_ids(model.config):
            batch[side.tokens] = tokens
        width = embedding_tables(case, model)[side.tokens].weight.shape[1]
        embeddings[side.tokens] = torch.randn(*tokens.shape, width, dtype=torch.float64)
        batch[side.embeds] = embeddings[side.tokens].requires_grad_()
    return batch, embeddings


@pytest.mark.parametrize("case", representative_cases("batch"))
def test_no_row_depends_on_another(case):
    model = case.model()
    batch, embeddings = embed(case, model)
    logits = model(**batch).logits
    for row in range(len(logits)):
        gradients = torch.autograd.grad(
            logits[row].sum(), list(embeddings.values()), retain_graph=True
        )
        for side, gradient in zip(case.grid.sides, gradients, strict=True):
            others = [other for other in range(len(logits)) if other != row]
            assert (gradient[row] != 0).any() or not batch[side.keep][row].any()
            assert (gradient[others] == 0).all()


@pytest.mark.parametrize("case", representative_cases("batch"))
def test_every_real_source_token_and_no_padding_reaches_every_output(case):
    model = case.model()
    batch, embeddings = embed(case, model)
    keep = batch[case.written_side.keep].bool()
    logits = model(**batch).logits
    for side in case.grid.sides:
        if side.is_causal:
            continue
        for step in range(logits.shape[1]):
            (gradient,) = torch.autograd.grad(
                logits[keep[:, step], step].sum(), embeddings[side.tokens], retain_graph=True
            )
            is_reached = gradient.abs().amax(dim=-1) > 0
            assert torch.equal(is_reached, batch[side.keep].bool() & keep[:, step, None])


@pytest.mark.parametrize("case", representative_cases("batch"))
def test_an_output_depends_on_the_tokens_up_to_it_and_no_later_one(case):
    side = case.written_side
    if not side.is_causal:
        pytest.skip("reads in both directions")
    model = case.model()
    batch, embeddings = embed(case, model)
    keep = batch[side.keep].bool()
    logits = model(**batch).logits
    for step in range(logits.shape[1]):
        (gradient,) = torch.autograd.grad(
            logits[keep[:, step], step].sum(), embeddings[side.tokens], retain_graph=True
        )
        is_reached = gradient.abs().amax(dim=-1) > 0
        expected = keep & keep[:, step, None]
        expected[:, step + 1 :] = False
        assert torch.equal(is_reached, expected)


@pytest.mark.parametrize("case", representative_cases("batch"))
def test_another_later_token_changes_no_earlier_logit(case):
    side = case.written_side
    if not side.is_causal:
        pytest.skip("reads in both directions")
    model = case.model()
    row = case.rows(model.config)[1]
    length = row[side.tokens].shape[0]
    with torch.no_grad():
        expected = model(**without_labels(alone(case, row))).logits
        for changed in range(1, length):
            batch = without_labels(alone(case, row))
            tokens = batch[side.tokens].clone()
            tokens[0, changed] = (tokens[0, changed] + 1) % getattr(model.config, side.vocab_size)
            logits = model(**batch | {side.tokens: tokens}).logits
            assert torch.equal(logits[:, :changed], expected[:, :changed])
            assert not torch.equal(logits[:, changed], expected[:, changed])
