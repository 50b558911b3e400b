"""Scorers, weights and contexts against loops over the equations and torch's own attention."""

import math

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hf_seqmodels.models.layers_attention import (
    SCORERS,
    MultiHeadAttention,
    ScoredAttention,
    attention_weights,
    make_attention,
)
from plain_attention import plain_attention, plain_score
from probed_gradients import assert_same_values_and_gradients

B, T, S, Q, K, H = 3, 4, 5, 12, 7, 2
KEY_SIZES = {"dot": Q, "scaled_dot": Q, "general": K, "additive": K, "multi_head": K}
KEEP = torch.tensor([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)


@pytest.fixture(autouse=True)
def in_float64():
    """Compute in float64, so that two ways agree to the last digits."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def attention_of(scorer: str, **options):
    """Return an attention with random weights."""
    options = {
        "query_size": Q,
        "key_size": KEY_SIZES[scorer],
        "num_heads": H if scorer == "multi_head" else 1,
        "dropout": 0.0,
    } | options
    return make_attention(scorer=scorer, **options)


def queries_and_states(scorer: str):
    """Return queries (B, T, Q) and encoder states (B, S, K or Q) that require gradients."""
    return (
        torch.randn(B, T, Q, requires_grad=True),
        torch.randn(B, S, KEY_SIZES[scorer], requires_grad=True),
    )


class LargestTensor(TorchDispatchMode):
    """Remembers the number of elements of the largest result."""

    num_elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.num_elements = max(self.num_elements, result.numel())
        return result


@pytest.mark.parametrize("queries_at_a_time", [2, 3, 10])
def test_additive_scores_in_chunks_are_the_scores_at_once(monkeypatch, queries_at_a_time):
    """Values, gradients, and never more elements at a time than asked for."""
    module = SCORERS["additive"](query_size=Q, key_size=K)
    queries = torch.randn(B, 10, Q, requires_grad=True)
    states = torch.randn(B, S, K, requires_grad=True)
    leaves = [queries, states, *module.parameters()]
    expected = module(queries, module.project_keys(states))
    size = queries_at_a_time * B * S * Q
    monkeypatch.setattr("hf_seqmodels.models.layers_attention.CHUNK_ELEMENTS", size + 5)
    with LargestTensor() as largest:
        actual = module(queries, module.project_keys(states))
        gradients = torch.autograd.grad(actual.pow(2).sum(), leaves)
    torch.testing.assert_close(actual, expected)
    for one, other in zip(
        gradients, torch.autograd.grad(expected.pow(2).sum(), leaves), strict=True
    ):
        torch.testing.assert_close(one, other)
    assert largest.num_elements == size
    with torch.no_grad(), LargestTensor() as largest:
        torch.testing.assert_close(module(queries, module.project_keys(states)), expected)
    assert largest.num_elements == size


def test_additive_scores_in_chunks_keep_less_for_the_backward_pass(monkeypatch):
    module = SCORERS["additive"](query_size=Q, key_size=K)
    queries, keys = torch.randn(B, 10, Q, requires_grad=True), torch.randn(B, S, Q)

    def count_kept() -> int:
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()), id):
            module(queries, keys)
        return sum(sizes)

    at_once = count_kept()
    monkeypatch.setattr("hf_seqmodels.models.layers_attention.CHUNK_ELEMENTS", 5 * B * S * Q)
    assert count_kept() < B * 10 * S * Q < at_once


@pytest.mark.parametrize("scorer", SCORERS)
def test_score_is_its_formula(scorer):
    queries, states = queries_and_states(scorer)
    module = SCORERS[scorer](query_size=Q, key_size=KEY_SIZES[scorer])
    actual = module(queries, module.project_keys(states))
    expected = torch.stack(
        [
            plain_score(scorer, module, queries[b, t], states[b, s])
            for b in range(B)
            for t in range(T)
            for s in range(S)
        ]
    ).view(B, T, S)
    leaves = [queries, states, *module.parameters()]
    assert_same_values_and_gradients([actual], [expected], leaves)


@pytest.mark.parametrize("scorer", ["dot", "scaled_dot"])
def test_dot_product_needs_one_width(scorer):
    with pytest.raises(AssertionError, match=r"\(12, 7\)"):
        SCORERS[scorer](query_size=Q, key_size=K)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scorer", KEY_SIZES)
def test_context_is_the_weighted_sum_over_real_tokens(scorer, masked):
    attention = attention_of(scorer)
    queries, states = queries_and_states(scorer)
    keep = KEEP if masked else torch.ones_like(KEEP)
    context, weights = attention(
        queries, *attention.project_memory(states), keep if masked else None
    )
    contexts, all_weights = [], torch.zeros_like(weights)
    for b in range(B):
        real = [s for s in range(S) if keep[b, s]]
        for t in range(T):
            one, by_head = plain_attention(
                scorer, attention, queries[b, t], [states[b, s] for s in real]
            )
            contexts.append(one)
            for head, row in enumerate(by_head):
                for s, weight in zip(real, row, strict=True):
                    all_weights[b, head, t, s] = weight
    expected = torch.stack(contexts).view(B, T, attention.context_size)
    leaves = [queries, states, *attention.parameters()]
    assert_same_values_and_gradients([context, weights], [expected, all_weights], leaves)


@pytest.mark.parametrize("scorer", KEY_SIZES)
def test_weights_sum_to_one_over_real_tokens_and_are_zero_elsewhere(scorer):
    attention = attention_of(scorer)
    queries, states = queries_and_states(scorer)
    _, weights = attention(queries, *attention.project_memory(states), KEEP)
    heads = H if scorer == "multi_head" else 1
    assert weights.shape == (B, heads, T, S)
    torch.testing.assert_close(weights[:2].sum(-1), torch.ones(2, heads, T))
    assert (weights.masked_select(~KEEP[:, None, None, :]) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scorer", KEY_SIZES)
def test_row_without_real_tokens_gives_zero_and_passes_no_nan(scorer, dtype):
    attention = attention_of(scorer).to(dtype)
    queries, states = (
        part.detach().to(dtype).requires_grad_() for part in queries_and_states(scorer)
    )
    context, weights = attention(queries, *attention.project_memory(states), KEEP)
    assert context.dtype == weights.dtype == dtype
    assert (context[2] == 0).all()
    assert (weights[2] == 0).all()
    gradients = torch.autograd.grad(
        context.square().sum(), [queries, states, *attention.parameters()]
    )
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[1][~KEEP] == 0).all()


def test_weights_are_the_softmax_of_the_scores():
    scores = torch.tensor([[0.3, -1.2, 2.5, 0.0]])
    exponentials = [math.exp(score) for score in (0.3, -1.2, 2.5, 0.0)]
    expected = [one / sum(exponentials) for one in exponentials]
    assert attention_weights(scores, None)[0].tolist() == pytest.approx(expected)
    keep = torch.tensor([[True, False, True, False]])
    total = exponentials[0] + exponentials[2]
    assert attention_weights(scores, keep)[0].tolist() == pytest.approx(
        [exponentials[0] / total, 0.0, exponentials[2] / total, 0.0]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_of_large_scores_stay_finite(dtype):
    scores = torch.tensor([[3e4, -3e4, 2.9e4]], dtype=dtype)
    weights = attention_weights(scores, torch.tensor([[True, True, False]]))
    assert weights.tolist() == [[1.0, 0.0, 0.0]]


def test_weights_leave_the_scores_as_they_are():
    scores, keep = torch.randn(B, T, S), KEEP[:, None, :]
    before = scores.clone()
    attention_weights(scores, keep)
    assert torch.equal(scores, before)


@pytest.mark.parametrize("masked", [False, True])
def test_multi_head_is_the_attention_of_torch(masked):
    attention = attention_of("multi_head")
    module = nn.MultiheadAttention(Q, H, bias=False, kdim=K, vdim=K, batch_first=True)
    with torch.no_grad():
        module.q_proj_weight.copy_(attention.query_projection.weight)
        module.k_proj_weight.copy_(attention.key_projection.weight)
        module.v_proj_weight.copy_(attention.value_projection.weight)
        module.out_proj.weight.copy_(attention.output_projection.weight)
    queries, states = (part[:2] for part in queries_and_states("multi_head"))
    keep = KEEP[:2] if masked else None
    actual = attention(queries, *attention.project_memory(states), keep)
    expected = module(
        queries,
        states,
        states,
        key_padding_mask=None if keep is None else ~keep,
        average_attn_weights=False,
    )
    assert_same_values_and_gradients(actual, expected, [queries, states])


@pytest.mark.parametrize("scorer", KEY_SIZES)
def test_dropout_acts_on_the_context_and_not_on_the_returned_weights(scorer):
    attention = attention_of(scorer, dropout=0.5)
    queries, states = queries_and_states(scorer)
    memory = attention.project_memory(states)
    context, weights = attention.train()(queries, *memory)
    quiet_context, quiet_weights = attention.eval()(queries, *memory)
    torch.testing.assert_close(weights, quiet_weights)
    assert (context - quiet_context).abs().max() > 1e-3


@pytest.mark.parametrize("scorer", ["additive", "multi_head"])
def test_dropout_keeps_the_expected_context(scorer):
    attention = attention_of(scorer, dropout=0.3)
    queries, states = queries_and_states(scorer)
    memory = attention.project_memory(states)
    quiet, _ = attention.eval()(queries, *memory)
    with torch.no_grad():
        noisy = torch.stack([attention.train()(queries, *memory)[0] for _ in range(800)])
    spread = noisy.std(dim=0) / 800**0.5
    assert ((noisy.mean(dim=0) - quiet).abs() < 5 * spread).all()


@pytest.mark.parametrize("scorer", KEY_SIZES)
def test_one_query_over_one_state_copies_its_value(scorer):
    attention = attention_of(scorer)
    queries, states = torch.randn(1, 1, Q), torch.randn(1, 1, KEY_SIZES[scorer])
    keys, values = attention.project_memory(states)
    context, weights = attention(queries, keys, values)
    assert weights.tolist() == [[[[1.0]]] * weights.shape[1]]
    if scorer == "multi_head":
        expected = attention.output_projection(attention.value_projection(states))
    else:
        expected = states
    torch.testing.assert_close(context, expected)


def test_make_attention_finds_the_class_of_every_scorer():
    assert set(KEY_SIZES) == {*SCORERS, "multi_head"}
    assert isinstance(attention_of("multi_head"), MultiHeadAttention)
    for scorer, scorer_class in SCORERS.items():
        attention = attention_of(scorer)
        assert isinstance(attention, ScoredAttention)
        assert type(attention.scorer) is scorer_class
    with pytest.raises(KeyError):
        make_attention(scorer="dott", query_size=Q, key_size=Q, num_heads=1, dropout=0.0)
