"""DecoderLM against other implementations of the same mathematics, with mapped weights."""

import itertools

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from family_cases import randomize
from hf_seqmodels import DecoderLMConfig, DecoderLMForCausalLM, DecoderLMModel
from hf_seqmodels.models.layers_positions import alibi_slopes
from probed_gradients import assert_same_values_and_gradients

SIZES = {"vocab_size": 19, "hidden_size": 12, "num_hidden_layers": 3, "num_attention_heads": 2}
IDS = torch.tensor([[3, 4, 5, 6, 7, 8, 9], [9, 1, 1, 4, 18, 0, 2]])  # (B, T)


def make_model(model_class=DecoderLMForCausalLM, **options):
    """Return a model in float64 with random parameters, in evaluation mode."""
    model = model_class(DecoderLMConfig(**SIZES | options)).double().eval()
    randomize(model, seed=1)
    return model


@pytest.mark.parametrize("norm_position", ["post", "pre"])
@pytest.mark.parametrize("hidden_act", ["relu", "gelu"])
def test_the_stack_is_the_transformer_of_torch_with_a_causal_mask(norm_position, hidden_act):
    model = make_model(DecoderLMModel, norm_position=norm_position, hidden_act=hidden_act)
    is_pre = norm_position == "pre"
    block = nn.TransformerEncoderLayer(
        12, 2, 48, 0.0, hidden_act, batch_first=True, norm_first=is_pre, dtype=torch.float64
    )
    stack = nn.TransformerEncoder(block, 3, enable_nested_tensor=False)
    leaves = []
    for ours, theirs in zip(model.layers, stack.layers, strict=True):
        attention = theirs.self_attn
        pairs = [
            (ours.self_attn.o_proj, attention.out_proj),
            (ours.mlp.up_proj, theirs.linear1),
            (ours.mlp.down_proj, theirs.linear2),
            (ours.attention_norm, theirs.norm1),
            (ours.mlp_norm, theirs.norm2),
        ]
        for mine, other in pairs:
            other.weight, other.bias = mine.weight, mine.bias
        parts = (ours.self_attn.q_proj, ours.self_attn.k_proj, ours.self_attn.v_proj)
        del attention.in_proj_weight, attention.in_proj_bias
        attention.in_proj_weight = torch.cat([part.weight for part in parts])
        attention.in_proj_bias = torch.cat([part.bias for part in parts])
        # a bias of the keys moves every score of a query alike: it has no influence
        leaves += [p for p in ours.parameters() if p is not parts[1].bias]
    embeddings = torch.randn(2, 7, 12, dtype=torch.float64, requires_grad=True)
    causal = nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64)
    expected = stack.train()(embeddings + model.positions.weight[:7], mask=causal)
    if is_pre:
        expected = model.norm(expected)
    actual = model(inputs_embeds=embeddings).last_hidden_state
    leaves += [embeddings, model.positions.weight]
    assert_same_values_and_gradients([actual], [expected], leaves)


@pytest.mark.parametrize("tied", [False, True])
def test_the_rotary_gated_grouped_model_is_llama(tied):
    model = make_model(
        position_embedding="rotary",
        rope_theta=500.0,
        norm_type="rms",
        norm_eps=1e-4,
        hidden_act="silu",
        gated_mlp=True,
        use_bias=False,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        intermediate_size=20,
        tie_word_embeddings=tied,
    )
    llama = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=19,
            hidden_size=12,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=6,
            intermediate_size=20,
            rms_norm_eps=1e-4,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0},
            tie_word_embeddings=tied,
        )
    )
    llama = llama.double().eval()
    names = {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
    state = {}
    for name, value in model.state_dict().items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        state[name] = value
    llama.load_state_dict(state)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]])
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    expected = llama(IDS, attention_mask=mask, position_ids=positions).logits
    actual = model(IDS, attention_mask=mask).logits
    # its RMS norm and its waves are computed in float32
    torch.testing.assert_close(actual[mask.bool()], expected[mask.bool()], rtol=1e-5, atol=1e-5)
    own = llama.generate(IDS, attention_mask=mask, max_new_tokens=5, eos_token_id=None)
    assert torch.equal(
        model.generate(IDS, attention_mask=mask, max_new_tokens=5, eos_token_id=None), own
    )


def with_plain_mask(model, mask: torch.Tensor, **options) -> torch.Tensor:
    """Return the logits of a model without positions that adds `mask`, (H or 1, T, T), to its
    scores; its weights are those of `model`."""
    plain = make_model(attn_implementation="eager", **options)
    plain.load_state_dict(model.state_dict(), strict=False)
    with torch.no_grad():
        if options.get("position_embedding", "learned") == "learned":
            plain.model.positions.weight.zero_()
        return plain(IDS, attention_mask=mask[None].expand(2, -1, -1, -1)).logits


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("sliding_window", [None, 3])
def test_alibi_adds_minus_slope_times_distance_to_the_scores(attn_implementation, sliding_window):
    model = make_model(
        position_embedding="alibi",
        num_attention_heads=3,
        sliding_window=sliding_window,
        attn_implementation=attn_implementation,
    )
    mask = torch.full((3, 7, 7), torch.finfo(torch.float64).min, dtype=torch.float64)
    for head, slope in enumerate(alibi_slopes(3)):
        for query, key in itertools.product(range(7), repeat=2):
            if key <= query and (sliding_window is None or query - key < sliding_window):
                mask[head, query, key] = -slope * (query - key)
    expected = with_plain_mask(model, mask, num_attention_heads=3)
    torch.testing.assert_close(model(IDS).logits, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
def test_a_window_shows_the_token_itself_and_those_before_it(attn_implementation):
    options = {"position_embedding": "rotary"}
    model = make_model(sliding_window=4, attn_implementation=attn_implementation, **options)
    mask = torch.full((1, 7, 7), torch.finfo(torch.float64).min, dtype=torch.float64)
    for query in range(7):
        for key in range(max(0, query - 3), query + 1):
            mask[0, query, key] = 0.0
    expected = with_plain_mask(model, mask, **options)
    torch.testing.assert_close(model(IDS).logits, expected, rtol=1e-9, atol=1e-11)
    unlimited = make_model(**options)
    assert (unlimited(IDS).logits - expected)[:, :4].abs().max() < 1e-9
    assert (unlimited(IDS).logits - expected)[:, 4:].abs().max() > 1e-3


KINDS = {
    **{name: {"position_embedding": name} for name in ("learned", "sinusoidal", "rotary", "alibi")},
    "window": {"position_embedding": "rotary", "sliding_window": 3},
    "grouped_post": {"norm_position": "post", "num_key_value_heads": 1, "norm_type": "rms"},
}
every_kind = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)


@every_kind
@pytest.mark.parametrize("use_cache", [False, True])
def test_packed_documents_are_read_as_if_alone(options, use_cache):
    model = make_model(**options)
    documents = [IDS[:1, :4], IDS[1:, :5], IDS[1:, 5:]]
    packed = torch.cat(documents, dim=1)
    positions = torch.cat([torch.arange(one.shape[1]) for one in documents])[None]
    logits = model(packed, position_ids=positions, use_cache=use_cache).logits
    expected = [model(one).logits for one in documents]
    torch.testing.assert_close(logits, torch.cat(expected, dim=1))

    labels = torch.cat([one.clone().index_fill_(1, torch.tensor(0), -100) for one in documents], 1)
    loss = model(packed, position_ids=positions, labels=labels).loss
    parts = [model(one, labels=one).loss * (one.shape[1] - 1) for one in documents]
    torch.testing.assert_close(loss, sum(parts) / sum(one.shape[1] - 1 for one in documents))


@every_kind
def test_plain_and_fused_attention_agree(options):
    models = [make_model(attn_implementation=name, **options) for name in ("eager", "sdpa")]
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]])
    results = [model(IDS, attention_mask=mask, labels=IDS) for model in models]
    torch.testing.assert_close(results[0].loss, results[1].loss)
    keep = mask.bool()
    torch.testing.assert_close(results[0].logits[keep], results[1].logits[keep])


@pytest.mark.parametrize("position_embedding", ["learned", "sinusoidal", "rotary"])
def test_no_mask_is_made_where_none_is_needed(position_embedding, monkeypatch):
    model = make_model(position_embedding=position_embedding)
    plain, masks = nn.functional.scaled_dot_product_attention, []

    def watch(*args, attn_mask=None, **kwargs):
        masks.append(attn_mask)
        return plain(*args, attn_mask=attn_mask, **kwargs)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", watch)
    model(IDS, labels=IDS)
    model(IDS, attention_mask=torch.ones_like(IDS))
    model.generate(IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=3, eos_token_id=None)
    assert len(masks) == 3 * 5
    assert all(mask is None for mask in masks)
    model(IDS, attention_mask=torch.tensor([[0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]]))
    assert all(mask is not None for mask in masks[15:])


def test_scaled_embeddings_are_multiplied_before_positions_are_added():
    model = make_model(DecoderLMModel, scale_embedding=True, position_embedding="sinusoidal")
    seen = []
    model.layers[0].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    model(IDS)
    expected = model.embed_tokens(IDS) * 12**0.5 + model.positions(torch.arange(7)[None])
    torch.testing.assert_close(seen[0], expected)


@every_kind
def test_states_and_weights_are_captured_as_transformers_does(options):
    model = make_model(attn_implementation="eager", **options)
    outputs = model(IDS, output_hidden_states=True, output_attentions=True)
    assert len(outputs.hidden_states) == 4
    assert len(outputs.attentions) == 3
    torch.testing.assert_close(model.lm_head(outputs.hidden_states[-1]), outputs.logits)
    later = torch.ones(7, 7).triu(1).bool()
    for weights in outputs.attentions:
        assert weights.shape == (2, 2, 7, 7)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 7, dtype=weights.dtype))
        assert (weights[:, :, later] == 0).all()
    again = model.model.layers[1](
        outputs.hidden_states[1],
        attention_mask=with_causal_numbers(options),
        rotary_waves=model.model._make_waves(torch.arange(7)[None], outputs.hidden_states[1]),
    )
    torch.testing.assert_close(again, outputs.hidden_states[2])


def with_causal_numbers(options) -> torch.Tensor:
    """Return what is added to the scores of two heads for the tokens of IDS, (1, H, T, T)."""
    mask = torch.full((1, 2, 7, 7), torch.finfo(torch.float64).min, dtype=torch.float64)
    window = options.get("sliding_window", 7)
    slopes = alibi_slopes(2) if options.get("position_embedding") == "alibi" else [0.0, 0.0]
    for head, query, key in itertools.product(range(2), range(7), range(7)):
        if 0 <= query - key < window:
            mask[0, head, query, key] = -slopes[head] * (query - key)
    return mask
