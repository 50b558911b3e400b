"""Conversion keeps the numbers: GPT-2 and DecoderLM against each other, both ways."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from family_cases import randomize
from gradient_checks import assert_same_tensors
from hf_seqmodels import DecoderLMConfig, DecoderLMForCausalLM
from hf_seqmodels.conversion import (
    decoder_lm_config_from_gpt2,
    decoder_lm_from_gpt2,
    decoder_lm_state_from_gpt2,
    gpt2_config_from_decoder_lm,
    gpt2_from_decoder_lm,
)

IDS = torch.tensor([[3, 4, 5, 6, 7, 8, 9], [9, 1, 1, 4, 28, 0, 2]])  # (B, T)
MASK = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]])


def make_gpt2(**options) -> GPT2LMHeadModel:
    """Return a small GPT-2 in float64 with random parameters, biases included."""
    config = GPT2Config(
        vocab_size=29,
        n_positions=17,
        n_embd=24,
        n_layer=3,
        n_head=4,
        layer_norm_epsilon=1e-3,
        bos_token_id=28,
        eos_token_id=28,
        **options,
    )
    model = GPT2LMHeadModel(config).double().eval()
    randomize(model, seed=2)
    return model


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("activation", ["gelu_new", "gelu_pytorch_tanh", "gelu", "relu", "silu"])
def test_a_converted_gpt2_gives_the_same_logits_loss_and_gradients(activation, tied):
    gpt2 = make_gpt2(activation_function=activation, n_inner=20, tie_word_embeddings=tied)
    model = decoder_lm_from_gpt2(gpt2)
    expected, actual = (one(IDS, labels=IDS) for one in (gpt2, model))
    torch.testing.assert_close(actual.logits, expected.logits, rtol=1e-9, atol=1e-11)
    # transformers computes the loss in float32
    torch.testing.assert_close(actual.loss, expected.loss.double(), rtol=1e-6, atol=0)
    for one, outputs in ((gpt2, expected), (model, actual)):
        one.zero_grad()
        outputs.logits.square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in gpt2.named_parameters()}
    gradients.setdefault("lm_head.weight", gradients["transformer.wte.weight"])
    converted = decoder_lm_state_from_gpt2(gradients)
    own = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert own.keys() == converted.keys() - ({"lm_head.weight"} if tied else set())
    for name, gradient in own.items():
        torch.testing.assert_close(gradient, converted[name], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("tied", [False, True])
def test_there_and_back_gives_the_same_weights_and_config(tied, tmp_path):
    gpt2 = make_gpt2(tie_word_embeddings=tied).float()
    model = decoder_lm_from_gpt2(gpt2)
    model.save_pretrained(tmp_path / "ours")
    model = DecoderLMForCausalLM.from_pretrained(tmp_path / "ours")
    again = gpt2_from_decoder_lm(model)
    again.save_pretrained(tmp_path / "theirs")
    again, info = GPT2LMHeadModel.from_pretrained(tmp_path / "theirs", output_loading_info=True)
    assert not info["missing_keys"]
    assert_same_tensors(again.state_dict(), gpt2.state_dict(), rtol=0, atol=0)
    left_out = dict.fromkeys(("_name_or_path", "architectures", "dtype", "n_inner"))
    assert again.config.to_dict() | left_out == gpt2.config.to_dict() | left_out
    with torch.no_grad():
        torch.testing.assert_close(model(IDS).logits, gpt2(IDS).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_a_converted_gpt2_writes_the_same_from_padded_prompts(num_beams):
    gpt2 = make_gpt2()
    gpt2.generation_config.pad_token_id = 0
    options = {"attention_mask": MASK, "max_new_tokens": 8, "num_beams": num_beams}
    expected = gpt2.generate(IDS, **options)
    assert torch.equal(decoder_lm_from_gpt2(gpt2).generate(IDS, **options), expected)


def test_type_mode_and_generation_settings_are_kept():
    gpt2 = make_gpt2().to(torch.bfloat16).train()
    gpt2.generation_config.top_k = 7
    model = decoder_lm_from_gpt2(gpt2)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert model.training
    assert model.generation_config.top_k == 7
    before = gpt2.transformer.wte.weight.clone()
    with torch.no_grad():
        model.model.embed_tokens.weight.zero_()
    assert torch.equal(gpt2.transformer.wte.weight, before)


def test_a_model_without_biases_becomes_a_gpt2_with_biases_of_zero():
    config = DecoderLMConfig(
        vocab_size=29, hidden_size=24, num_hidden_layers=2, use_bias=False, hidden_act="silu"
    )
    model = DecoderLMForCausalLM(config).double().eval()
    randomize(model, seed=3)
    gpt2 = gpt2_from_decoder_lm(model)
    assert gpt2.config.activation_function == "silu"
    assert (gpt2.transformer.ln_f.bias == 0).all()
    torch.testing.assert_close(gpt2(IDS).logits, model(IDS).logits, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"activation_function": "tanh"}, "activation_function in .*, got 'tanh'"),
        ({"scale_attn_weights": False}, "scale_attn_weights=True, got False"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=False"),
        ({"add_cross_attention": True}, "add_cross_attention=False, got True"),
    ],
)
def test_a_gpt2_without_an_equal_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        decoder_lm_config_from_gpt2(GPT2Config(**options))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"position_embedding": "rotary"}, "position_embedding='learned', got 'rotary'"),
        ({"norm_position": "post"}, "norm_position='pre', got 'post'"),
        ({"norm_type": "rms"}, "norm_type='layer', got 'rms'"),
        ({"gated_mlp": True}, "gated_mlp=False, got True"),
        ({"scale_embedding": True}, "scale_embedding=False, got True"),
        ({"sliding_window": 8}, "sliding_window=None, got 8"),
        ({"label_smoothing": 0.1}, "label_smoothing=0, got 0.1"),
        ({"num_key_value_heads": 2}, "num_key_value_heads=2.*cannot be converted"),
        ({"head_dim": 10}, "head_dim=10.*cannot be converted"),
    ],
)
def test_a_decoder_lm_without_an_equal_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        gpt2_config_from_decoder_lm(DecoderLMConfig(**options))
