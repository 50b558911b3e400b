"""TextEncoder against other implementations of the same mathematics, with mapped weights, and
without its padding against itself with it."""

import itertools

import pytest
import torch
from torch import nn
from transformers import ModernBertConfig, ModernBertModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from family_cases import randomize
from hf_seqmodels import (
    TextEncoderConfig,
    TextEncoderForMaskedLM,
    TextEncoderForSequenceClassification,
    TextEncoderModel,
)
from hf_seqmodels.models.layers_positions import alibi_slopes
from probed_gradients import assert_same_values_and_gradients

SIZES = {"vocab_size": 19, "hidden_size": 12, "num_hidden_layers": 3, "num_attention_heads": 2}
IDS = torch.tensor([[3, 4, 5, 6, 7, 8, 9], [9, 1, 1, 4, 18, 0, 2]])  # (B, T)
KEEP = torch.tensor([[0, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1]])
NO_DROPOUT = {"embedding_dropout": 0.0, "hidden_dropout": 0.0, "attention_dropout": 0.0}


def make_model(model_class=TextEncoderModel, **options):
    """Return a model in float64 with random parameters, in evaluation mode."""
    model = model_class(TextEncoderConfig(**SIZES | options)).double().eval()
    randomize(model, seed=1)
    return model


@pytest.mark.parametrize("norm_position", ["post", "pre"])
@pytest.mark.parametrize("hidden_act", ["relu", "gelu"])
def test_the_stack_is_the_transformer_of_torch(norm_position, hidden_act):
    is_pre = norm_position == "pre"
    model = make_model(
        norm_position=norm_position,
        hidden_act=hidden_act,
        norm_embedding=False,
        norm_eps=1e-5,
        type_vocab_size=0,
    )
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
    keep = KEEP.bool()
    positions = (KEEP.cumsum(dim=1) - 1).clamp(min=0)
    summed = embeddings + model.positions.weight[positions]
    expected = stack.train()(summed, src_key_padding_mask=~keep)
    if is_pre:
        expected = model.norm(expected)
    actual = model(inputs_embeds=embeddings, attention_mask=KEEP).last_hidden_state
    leaves += [embeddings, model.positions.weight]
    assert_same_values_and_gradients([actual[keep]], [expected[keep]], leaves)


def test_local_and_global_rotary_layers_are_modern_bert():
    model = make_model(
        position_embedding="rotary",
        rope_theta=500.0,
        norm_position="pre",
        norm_embedding=True,
        gated_mlp=True,
        use_bias=False,
        type_vocab_size=0,
        sliding_window=2,
        global_attention_every=3,
        num_hidden_layers=4,
        intermediate_size=20,
    )
    # its first layer has no norm beside the attention; a norm of what is normalised does nothing
    nn.init.ones_(model.embedding_norm.weight)
    nn.init.ones_(model.layers[0].attention_norm.weight)
    rope = {"rope_type": "default", "rope_theta": 500.0}
    theirs = ModernBertModel(
        ModernBertConfig(
            vocab_size=19,
            hidden_size=12,
            num_hidden_layers=4,
            num_attention_heads=2,
            intermediate_size=20,
            norm_eps=1e-12,
            local_attention=4,
            pad_token_id=0,
            rope_parameters={"full_attention": rope, "sliding_attention": dict(rope)},
        )
    )
    theirs = theirs.double().eval()
    state = {
        "embeddings.tok_embeddings.weight": model.embed_tokens.weight,
        "embeddings.norm.weight": model.embedding_norm.weight,
        "final_norm.weight": model.norm.weight,
    }
    for index, layer in enumerate(model.layers):
        attention, mlp = layer.self_attn, layer.mlp
        parts = (attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight)
        state[f"layers.{index}.attn.Wqkv.weight"] = torch.cat(parts)
        state[f"layers.{index}.attn.Wo.weight"] = attention.o_proj.weight
        state[f"layers.{index}.mlp.Wi.weight"] = torch.cat(
            [mlp.gate_proj.weight, mlp.up_proj.weight]
        )
        state[f"layers.{index}.mlp.Wo.weight"] = mlp.down_proj.weight
        state[f"layers.{index}.mlp_norm.weight"] = layer.mlp_norm.weight
        if index:
            state[f"layers.{index}.attn_norm.weight"] = layer.attention_norm.weight
    theirs.load_state_dict(state)
    mask = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]])
    expected = theirs(IDS, attention_mask=mask).last_hidden_state[mask.bool()]
    actual = model(IDS, attention_mask=mask).last_hidden_state[mask.bool()]
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)  # its waves are in float32


def plain_heads(attention, states, *, slopes=None, window=None):
    """Return what every head of one layer sees, as loops over queries and keys: (T, H, P)."""
    length, heads, width = len(states), 2, 6
    project = (attention.q_proj, attention.k_proj, attention.v_proj)
    query, key, value = (layer(states).view(length, heads, width) for layer in project)
    seen = []
    for t in range(length):
        for head in range(heads):
            keys = [k for k in range(length) if window is None or abs(t - k) <= window]
            scores = [query[t, head] @ key[k, head] / width**0.5 for k in keys]
            if slopes is not None:
                pairs = zip(scores, keys, strict=True)
                scores = [score - slopes[head] * abs(t - k) for score, k in pairs]
            weights = torch.stack(scores).softmax(dim=0)
            seen.append(sum(w * value[k, head] for w, k in zip(weights, keys, strict=True)))
    return torch.stack(seen).view(length, heads, width)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("padding_free", ["off", "on"])
@pytest.mark.parametrize("options", [{}, {"alibi": True}, {"window": 2}, {"alibi": 1, "window": 1}])
def test_biases_and_windows_look_the_same_way_back_and_forth(options, padding_free, implementation):
    is_alibi, window = "alibi" in options, options.get("window")
    model = make_model(
        position_embedding="alibi" if is_alibi else "rotary",
        num_hidden_layers=1,
        sliding_window=window,
        padding_free=padding_free,
        attn_implementation=implementation,
    )
    layer = model.layers[0]
    slopes = alibi_slopes(2) if is_alibi else None
    if not is_alibi:  # rotations have tests of their own
        model._make_waves = lambda position_ids, hidden_states: None
    states = model.embedding_norm(model.embed_tokens.weight[IDS] + model.token_types.weight[0])
    hidden = model(IDS, attention_mask=KEEP).last_hidden_state
    leaves = [model.embed_tokens.weight, layer.self_attn.q_proj.weight]
    for row, keep in enumerate(KEEP.bool()):
        real = states[row, keep]
        contexts = plain_heads(layer.self_attn, real, slopes=slopes, window=window)
        attended = layer.self_attn.o_proj(contexts.flatten(1))
        middle = layer.attention_norm(real + attended)
        expected = layer.mlp_norm(middle + layer.mlp(middle))
        assert_same_values_and_gradients([hidden[row, keep]], [expected], leaves)


@pytest.mark.parametrize("padding_free", ["off", "auto"])
@pytest.mark.parametrize("position_embedding", ["learned", "alibi"])
def test_documents_in_one_row_are_documents_in_rows_of_their_own(position_embedding, padding_free):
    model = make_model(
        position_embedding=position_embedding,
        sliding_window=2,
        global_attention_every=2,
        padding_free=padding_free,
    )
    packed = model(IDS, position_ids=torch.tensor([[0, 1, 2, 0, 0, 1, 2]])).last_hidden_state
    parts = torch.cat(
        [model(part).last_hidden_state for part in (IDS[:, :3], IDS[:, 3:4], IDS[:, 4:])], dim=1
    )
    torch.testing.assert_close(packed, parts)


def test_what_a_token_is_adds_to_it():
    model = make_model(type_vocab_size=3)
    types = torch.tensor([[0, 0, 2, 1, 1, 1, 1]]).expand(2, -1)
    expected = model(
        inputs_embeds=model.embed_tokens(IDS)
        + model.token_types(types)
        - model.token_types.weight[0]
    ).last_hidden_state
    actual = model(IDS, token_type_ids=types).last_hidden_state
    torch.testing.assert_close(actual, expected)
    alone = model(IDS).last_hidden_state
    torch.testing.assert_close(model(IDS, token_type_ids=types * 0).last_hidden_state, alone)
    assert (alone - actual).abs().max() > 1e-3


def test_a_model_without_kinds_of_tokens_takes_zeros_for_none():
    model = make_model(type_vocab_size=0)
    zeros = torch.zeros_like(IDS)
    expected = model(IDS).last_hidden_state
    assert torch.equal(model(IDS, token_type_ids=zeros).last_hidden_state, expected)
    with pytest.raises(ValueError, match=r"token_type_ids.*type_vocab_size=0\. Pass no"):
        model(IDS, token_type_ids=zeros + 1)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_row_is_what_its_tokens_say_wherever_its_padding_stands(pooling):
    model = make_model(pooling=pooling)
    outputs = model(IDS, attention_mask=KEEP)
    for row, keep in enumerate(KEEP.bool()):
        real = outputs.last_hidden_state[row, keep]
        if pooling == "cls":
            dense = model.pooler.dense
            expected = torch.tanh(dense.weight @ real[0] + dense.bias)
        else:
            expected = sum(real) / len(real)
        torch.testing.assert_close(outputs.pooler_output[row], expected)
    without = TextEncoderModel(model.config, add_pooling_layer=False)
    assert without(IDS).pooler_output is None


PADDING_FREE = {
    "learned": {},
    "local_alibi": {
        "position_embedding": "alibi",
        "sliding_window": 2,
        "global_attention_every": 2,
        "num_key_value_heads": 1,
    },
    "rotary_eager": {"position_embedding": "rotary", "attn_implementation": "eager"},
}


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable")
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("options", PADDING_FREE.values(), ids=PADDING_FREE)
def test_without_padding_values_and_gradients_are_those_with_padding(options, checkpointing):
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(19, (6, 9), generator=generator)
    types = torch.randint(2, (6, 9), generator=generator)
    keep = (torch.arange(9) < torch.tensor([9, 2, 7, 0, 1, 3])[:, None]).long()
    keep[2] = keep[2].flip(-1)
    labels = ids.masked_fill(torch.rand(6, 9, generator=generator) < 0.5, -100)
    labels = labels.masked_fill(keep == 0, -100)
    found = []
    for padding_free in ("off", "on", "auto"):
        model = make_model(
            TextEncoderForMaskedLM, padding_free=padding_free, **NO_DROPOUT, **options
        ).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        batch = {"input_ids": ids, "attention_mask": keep, "token_type_ids": types}
        loss = model(**batch, labels=labels).loss
        loss.backward()
        logits = model.eval()(**batch).logits[keep.bool()]
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        found.append({"loss": loss, "logits": logits, **gradients})
    for other in found[1:]:
        for name, expected in found[0].items():
            torch.testing.assert_close(other[name], expected, rtol=1e-9, atol=1e-11, msg=name)


def count_places(model, **batch) -> list[int]:
    """Return how many places the first block has computed on, padding included."""
    seen = []
    block = model.base_model.layers[0]
    hook = block.register_forward_hook(lambda _, args, output: seen.append(output[..., 0].numel()))
    model(**batch)
    hook.remove()
    return seen


def test_padding_is_left_out_where_it_pays():
    keep = torch.ones(4, 30, dtype=torch.long)
    ids = keep * 3
    keep[0, 29:] = 0
    long, short = make_model(), make_model(padding_free="on")
    assert count_places(long, input_ids=ids, attention_mask=keep) == [120]
    assert count_places(short, input_ids=ids, attention_mask=keep) == [119]
    keep[1, 5:] = 0
    batch = {"input_ids": ids, "attention_mask": keep}
    assert count_places(long, **batch) == [94]
    assert count_places(make_model(padding_free="off"), **batch) == [120]
    assert count_places(short, **batch, output_hidden_states=True) == [120]
    assert count_places(short, input_ids=ids) == [120]
    outputs = short(**batch)
    assert (outputs.last_hidden_state[keep == 0] == 0).all()


def attend_by_bounds(module, query, key, value, mask, scaling, cu_seq_lens_q, **options):
    """Attend within sequences, as a kernel that takes their bounds."""
    assert mask is None
    window, bounds = options["sliding_window"], cu_seq_lens_q.tolist()
    assert options["max_length_q"] == max(b - a for a, b in itertools.pairwise(bounds))
    contexts = []
    for start, end in itertools.pairwise(bounds):
        part = slice(start, end)
        scores = query[0, :, part] @ key[0, :, part].transpose(1, 2) * scaling
        places = torch.arange(end - start)
        if window is not None:
            is_far = (places[:, None] - places).abs() > window - 1
            scores = scores.masked_fill(is_far, -torch.inf)
        contexts.append(scores.softmax(dim=-1) @ value[0, :, part])
    return torch.cat(contexts, dim=1).transpose(0, 1)[None], None


@pytest.mark.parametrize("packed", [False, True])
def test_a_flash_kernel_gets_the_bounds_of_sequences(monkeypatch, packed):
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "flash_of_the_test", attend_by_bounds)
    model = make_model(
        sliding_window=2, global_attention_every=2, padding_free="off" if packed else "auto"
    )
    batch = {"position_ids": torch.tensor([[0, 1, 2, 0, 0, 1, 2]])}
    if not packed:
        batch = {"attention_mask": KEEP}
    expected = model(IDS, **batch).last_hidden_state
    model.config._attn_implementation_internal = "flash_of_the_test"
    actual = model(IDS, **batch).last_hidden_state
    is_real = KEEP.bool() | packed
    torch.testing.assert_close(actual[is_real], expected[is_real])


def test_dropout_without_padding_keeps_what_it_should():
    options = {"padding_free": "on", "hidden_dropout": 0.5, "attention_dropout": 0.5}
    model = make_model(TextEncoderForSequenceClassification, **options).train()
    logits = [model(IDS, attention_mask=KEEP).logits for _ in range(2)]
    assert not torch.equal(*logits)
    assert torch.stack(logits).isfinite().all()


def test_compiled_models_keep_their_padding(monkeypatch):
    model = make_model(padding_free="on")
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    found = model._find_tokens(model.embed_tokens(IDS), KEEP, None, {})
    assert found is None


def test_alibi_refuses_kernels_without_biases():
    model = make_model(position_embedding="alibi")
    model.config._attn_implementation_internal = "flash_attention_2"
    with pytest.raises(ValueError, match=r"alibi.*flash_attention_2"):
        model(IDS)
    model = make_model(position_embedding="alibi", padding_free="on")
    model.config._attn_implementation_internal = "flash_attention_2"
    with pytest.raises(ValueError, match=r"alibi.*flash_attention_2"):
        model(IDS, attention_mask=KEEP)
