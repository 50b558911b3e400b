"""TransformerSeq2Seq against torch.nn.Transformer and loops over its equations; its weights of
attention, losses, caches and messages."""

import math

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from transformers import DynamicCache, EncoderDecoderCache, StaticCache

from family_cases import randomize
from gradient_checks import loss_gradients
from hf_seqmodels import TransformerSeq2SeqConfig, TransformerSeq2SeqForConditionalGeneration
from plain_loss import plain_loss

SOURCE = torch.tensor([[3, 4, 5, 6, 7, 8, 9], [9, 1, 1, 4, 18, 0, 0]])  # (B, S)
KEEP = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]])
TARGET = torch.tensor([[1, 4, 5, 6, 7], [1, 9, 2, 12, 3]])  # (B, T)
BATCH = {"input_ids": SOURCE, "attention_mask": KEEP, "decoder_input_ids": TARGET}
PARTS = {
    "self_attn": "self_attn",
    "multihead_attn": "cross_attn",
    "linear1": "mlp.up_proj",
    "linear2": "mlp.down_proj",
}
ENCODER_NORMS = {"norm1": "attention_norm", "norm2": "mlp_norm"}
DECODER_NORMS = {"norm1": "attention_norm", "norm2": "cross_attention_norm", "norm3": "mlp_norm"}
POSITIONS = ("learned", "sinusoidal", "rotary", "alibi")
every_position = pytest.mark.parametrize("position_embedding", POSITIONS)


def make_model(dtype=torch.float64, **options) -> TransformerSeq2SeqForConditionalGeneration:
    """Return a model with random parameters, in evaluation mode."""
    sizes = {
        "vocab_size": 19,
        "decoder_vocab_size": 13,
        "hidden_size": 12,
        "num_encoder_layers": 2,
        "num_decoder_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 10,
        "max_position_embeddings": 32,
    }
    config = TransformerSeq2SeqConfig(**sizes | options)
    model = TransformerSeq2SeqForConditionalGeneration(config).to(dtype).eval()
    randomize(model, seed=1)
    return model


def joined(tensors, prefix: str) -> dict[str, torch.Tensor]:
    """Return ours under the names of torch, which keeps queries, keys and values in one weight."""
    renamed = {}
    for side, norms in (("encoder", ENCODER_NORMS), ("decoder", DECODER_NORMS)):
        for name in tensors:
            if not name.startswith(f"{prefix}{side}.layers.") or ".q_proj." not in name:
                continue
            layer, _, attention = (
                name.removeprefix(prefix).rpartition(".q_proj.")[0].rpartition(".")
            )
            theirs = {ours: theirs for theirs, ours in PARTS.items()}[attention]
            for kind in ("weight", "bias"):
                parts = [tensors[f"{prefix}{layer}.{attention}.{p}_proj.{kind}"] for p in "qkv"]
                renamed[f"{layer}.{theirs}.in_proj_{kind}"] = torch.cat(parts)
                output = tensors[f"{prefix}{layer}.{attention}.o_proj.{kind}"]
                renamed[f"{layer}.{theirs}.out_proj.{kind}"] = output
                rest = {"linear1": PARTS["linear1"], "linear2": PARTS["linear2"], **norms}
                for their_part, ours in rest.items():
                    renamed[f"{layer}.{their_part}.{kind}"] = tensors[
                        f"{prefix}{layer}.{ours}.{kind}"
                    ]
        for kind in ("weight", "bias"):
            if f"{prefix}{side}.norm.{kind}" in tensors:
                renamed[f"{side}.norm.{kind}"] = tensors[f"{prefix}{side}.norm.{kind}"]
    return renamed


def sinusoids(length: int, width: int) -> torch.Tensor:
    """Return r_{n,i} by a loop over the formula, (length, width)."""
    rows = []
    for position in range(length):
        angles = [position / 10000 ** ((i - i % 2) / width) for i in range(width)]
        rows.append([math.cos(a) if i % 2 else math.sin(a) for i, a in enumerate(angles)])
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_the_model_is_torchs_transformer_between_embeddings_and_output(norm_position):
    model = make_model(norm_position=norm_position, hidden_act="gelu")
    reference = nn.Transformer(
        12,
        2,
        num_encoder_layers=2,
        num_decoder_layers=3,
        dim_feedforward=10,
        dropout=0.0,
        activation="gelu",
        norm_first=norm_position == "pre",
        batch_first=True,
        dtype=torch.float64,
    )
    if norm_position == "post":
        reference.encoder.norm = reference.decoder.norm = None
    reference.load_state_dict(joined(model.state_dict(), "model."))
    embedded = [
        table(ids).detach() * 12**0.5 + sinusoids(ids.shape[1], 12)
        for table, ids in (
            (model.model.encoder.embed_tokens, SOURCE),
            (model.model.decoder.embed_tokens, TARGET),
        )
    ]
    later = torch.ones(5, 5).triu(1).bool()
    states = reference(
        *embedded,
        tgt_mask=later,
        src_key_padding_mask=KEEP == 0,
        memory_key_padding_mask=KEEP == 0,
    )  # (B, T, D)
    expected = states @ model.lm_head.weight.T
    actual = model(**BATCH).logits
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)
    expected.square().sum().backward()
    theirs = {name: parameter.grad for name, parameter in reference.named_parameters()}
    model.zero_grad()
    actual.square().sum().backward()
    ours = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, gradient in joined(ours, "model.").items():
        torch.testing.assert_close(gradient, theirs[name], rtol=1e-9, atol=1e-8)


def test_alibi_looks_at_the_distance_to_either_side_of_the_source():
    model = make_model(position_embedding="alibi", attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.model.encoder.layers[0].self_attn.q_proj.parameters():
            parameter.zero_()
        outputs = model(**BATCH, output_attentions=True)
    weights = outputs.encoder_attentions[0][0]  # (H, S, S), of the row without padding
    for head, slope in enumerate((2**-4, 2**-8)):
        for query in range(7):
            scores = torch.tensor([-slope * abs(query - key) for key in range(7)]).double()
            torch.testing.assert_close(weights[head, query], scores.softmax(dim=0))


@every_position
def test_weights_of_attention_are_returned_by_every_implementation(position_embedding):
    expected = None
    for implementation in ("eager", "sdpa"):
        model = make_model(
            position_embedding=position_embedding, attn_implementation=implementation
        )
        with torch.no_grad():
            outputs = model(**BATCH, output_attentions=True)
            without = model(**BATCH)
        torch.testing.assert_close(outputs.logits, without.logits)
        assert not without.cross_attentions
        found = [*outputs.encoder_attentions, *outputs.decoder_attentions]
        found += outputs.cross_attentions
        shapes = [(2, 2, 7, 7)] * 2 + [(2, 2, 5, 5)] * 3 + [(2, 2, 5, 7)] * 3
        assert [tuple(weights.shape) for weights in found] == shapes
        assert all((weights[1, ..., 5:] == 0).all() for weights in outputs.cross_attentions)
        expected = found if expected is None else expected
        torch.testing.assert_close(found, expected)
        assert model.config._attn_implementation == implementation


def test_keys_and_values_of_the_source_are_projected_once():
    model = make_model()
    calls = []
    for layer in model.model.decoder.layers:
        layer.cross_attn.k_proj.register_forward_hook(lambda *_: calls.append(1))
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "num_beams": 2}
    model.generate(SOURCE, attention_mask=KEEP, **options)
    assert len(calls) == 3
    model.generate(SOURCE, attention_mask=KEEP, **options, use_cache=False)
    assert len(calls) == 3 + 4 * 3


@pytest.mark.parametrize("options", [{}, {"use_output_bias": True, "tie_word_embeddings": True}])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_chunked_loss_is_the_loss(options, smoothing, monkeypatch):
    monkeypatch.setattr("hf_seqmodels.models.layers_vocabulary_loss.CHUNK_ELEMENTS", 30)
    labels = TARGET.masked_fill(TARGET == 12, -100)
    batch = {"input_ids": SOURCE, "attention_mask": KEEP, "labels": labels}
    dropout = {"embedding_dropout": 0.0, "hidden_dropout": 0.0}
    results = []
    for chunked in (False, True):
        model = make_model(label_smoothing=smoothing, chunked_loss=chunked, **dropout, **options)
        model.train()
        outputs = model(**batch)
        assert (outputs.logits is None) == chunked
        results.append((outputs.loss.detach(), loss_gradients(model, batch)))
    torch.testing.assert_close(results[1], results[0], rtol=1e-10, atol=1e-12)
    logits = model.eval()(**batch).logits.detach()
    expected = plain_loss(logits, labels, smoothing=smoothing)
    assert results[1][0].item() == pytest.approx(expected, rel=1e-10)


def test_what_stands_around_the_output_layer_takes_part_in_the_loss():
    batch = {"input_ids": SOURCE, "labels": TARGET}
    losses = []
    for chunked in (True, False):
        dropout = {"embedding_dropout": 0.0, "hidden_dropout": 0.0}
        model = make_model(chunked_loss=chunked, label_smoothing=0.2, **dropout).train()
        model.lm_head = nn.Sequential(model.lm_head, nn.Hardtanh())  # as adapters wrap it
        losses.append(model(**batch).loss)
    torch.testing.assert_close(*losses)


@every_position
def test_a_cache_of_fixed_size_gives_what_a_growing_one_gives(position_embedding):
    model = make_model(position_embedding=position_embedding)
    target_keep = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
    batch = {"input_ids": SOURCE, "attention_mask": KEEP}
    with torch.no_grad():
        whole = model(**BATCH, decoder_attention_mask=target_keep).logits[target_keep.bool()]
        for cache in (
            EncoderDecoderCache(DynamicCache(), DynamicCache()),
            EncoderDecoderCache(StaticCache(model.config, 9), StaticCache(model.config, 11)),
        ):
            logits = []
            for start, end in ((0, 2), (2, 3), (3, 5)):
                outputs = model(
                    **batch,
                    decoder_input_ids=TARGET[:, start:end],
                    decoder_attention_mask=target_keep[:, :end],
                    past_key_values=cache,
                    use_cache=True,
                )
                logits.append(outputs.logits)
            actual = torch.cat(logits, dim=1)[target_keep.bool()]
            torch.testing.assert_close(actual, whole)


@every_position
@pytest.mark.parametrize("mode", [{}, {"num_beams": 3}])
def test_generate_writes_the_same_with_either_cache(position_embedding, mode):
    model = make_model(position_embedding=position_embedding)
    target = torch.tensor([[1, 4, 5], [0, 1, 9]])
    prompt = {"decoder_input_ids": target, "decoder_attention_mask": (target > 0).long()}
    options = {"attention_mask": KEEP, "max_new_tokens": 5, "eos_token_id": None, **mode, **prompt}
    written = [
        model.generate(SOURCE, cache_implementation=name, disable_compile=True, **options)
        for name in ("dynamic", "static")
    ]
    assert torch.equal(written[0], written[1])


@pytest.mark.skipif(
    torch.__version__.startswith("2.6."), reason="cannot trace the decorators of transformers"
)
@pytest.mark.parametrize("position_embedding", ["sinusoidal", "alibi"])
def test_decoding_compiles_once_into_one_graph(position_embedding):
    torch.compiler.reset()
    model = make_model(torch.float32, position_embedding=position_embedding)
    counter = CompileCounter()
    step = torch.compile(model.forward, backend=counter, fullgraph=True, dynamic=False)
    cache = EncoderDecoderCache(StaticCache(model.config, 9), StaticCache(model.config, 7))
    with torch.no_grad():
        encoded = model.get_encoder()(SOURCE)
        expected = model(encoder_outputs=encoded, decoder_input_ids=TARGET).logits
        options = {"encoder_outputs": encoded, "past_key_values": cache, "use_cache": True}
        model(decoder_input_ids=TARGET[:, :2], **options)
        for place in range(2, 5):
            outputs = step(
                decoder_input_ids=TARGET[:, place : place + 1],
                decoder_position_ids=torch.full((2, 1), place),
                **options,
            )
            torch.testing.assert_close(
                outputs.logits[:, 0], expected[:, place], rtol=1e-5, atol=1e-5
            )
    assert counter.frame_count == 1


def test_wrong_inputs_are_refused_with_a_way_out():
    model = make_model()
    for arguments, message in (
        ({"input_ids": SOURCE}, "Pass labels, decoder_input_ids or decoder_inputs_embeds"),
        ({"decoder_input_ids": TARGET}, "Pass input_ids or inputs_embeds, one of the two"),
        ({**BATCH, "input_ids": SOURCE + 5}, r"input_ids must lie in \[0, 19\)"),
        ({**BATCH, "decoder_input_ids": TARGET + 9}, r"decoder_input_ids must lie in \[0, 13\)"),
        ({**BATCH, "attention_mask": KEEP[:, 1:]}, "attention_mask must have the shape"),
        ({**BATCH, "decoder_input_ids": TARGET[:1]}, "as many rows as the source"),
        ({**BATCH, "labels": TARGET[:, 1:]}, "labels must have the shape of the decoder input"),
        ({**BATCH, "decoder_attention_mask": KEEP}, "decoder_attention_mask must have the shape"),
        ({**BATCH, "past_key_values": DynamicCache()}, "must be an EncoderDecoderCache"),
        ({"decoder_input_ids": TARGET, "encoder_outputs": ()}, "must hold last_hidden_state"),
    ):
        with pytest.raises(ValueError, match=message):
            model(**arguments)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"hidden_size": 10, "num_attention_heads": 4}, "num_attention_heads must divide"),
        ({"num_key_value_heads": 3}, "num_key_value_heads must divide"),
        ({"position_embedding": "rotary", "head_dim": 5}, "head_dim must be even"),
        ({"rope_theta": 500.0}, "needs position_embedding='rotary'"),
        ({"share_embeddings": True, "decoder_vocab_size": 7}, "share_embeddings needs one"),
        ({"decoder_vocab_size": 2}, "must lie in the target vocabulary"),
        ({"vocab_size": 5, "decoder_vocab_size": 9, "pad_token_id": 6}, "fills sources as well"),
        ({"decoder_start_token_id": None}, "decoder_start_token_id must be set"),
        ({"hidden_dropout": 1.0}, "hidden_dropout must be in"),
        ({"num_decoder_layers": 0}, "num_decoder_layers must be at least 1"),
        ({"initializer_range": 0.0}, "initializer_range must be positive"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder is fixed"),
        ({"norm_position": "middle"}, "norm_position"),
    ],
)
def test_options_that_cannot_work_are_refused(options, message):
    with pytest.raises(Exception, match=message):
        TransformerSeq2SeqConfig(**options)


def test_plans_name_modules_that_exist():
    for options in ({}, {"position_embedding": "alibi"}, {"gated_mlp": True, "hidden_act": "silu"}):
        model = make_model(**options).model
        names = {
            ".".join("*" if p.isdigit() else p for p in name.split("."))
            for name, _ in model.named_modules()
        }
        config = model.config
        assert set(config.base_model_tp_plan) <= names
        tables = {"encoder.embed_tokens", "decoder.embed_tokens"}  # which transformers may add
        assert set(model.tp_plan) - tables == set(config.base_model_tp_plan)
        assert set(config.base_model_fsdp_plan) <= names
        has_self_attention = "decoder.layers.*.self_attn.q_proj" in config.base_model_tp_plan
        assert has_self_attention == (config.position_embedding != "alibi")
        assert "decoder.layers.*.cross_attn.q_proj" in config.base_model_tp_plan
