"""Weights of 8 bits: torchao behind `from_pretrained`, and torch's own dynamic quantisation."""

import copy

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    TorchAoConfig,
)

from family_cases import randomize
from hf_seqmodels import (
    DecoderLMConfig,
    RnnLMConfig,
    RnnSeq2SeqConfig,
    TextEncoderConfig,
    TransformerSeq2SeqConfig,
)

HEADS = {"vocab_size": 41, "hidden_size": 32, "num_attention_heads": 2}
RECURRENT = {"vocab_size": 41, "hidden_size": 32, "embedding_size": 24, "cell_type": "lstm"}
MODELS = {
    "rnn_seq2seq": (AutoModelForSeq2SeqLM, RnnSeq2SeqConfig, RECURRENT),
    "transformer_seq2seq": (AutoModelForSeq2SeqLM, TransformerSeq2SeqConfig, HEADS),
    "decoder_lm": (AutoModelForCausalLM, DecoderLMConfig, HEADS),
    "rnn_lm": (AutoModelForCausalLM, RnnLMConfig, RECURRENT),
    "text_encoder": (AutoModelForMaskedLM, TextEncoderConfig, HEADS),
}


def make_model(family: str):
    auto_class, config_class, options = MODELS[family]
    model = auto_class.from_config(config_class(**options)).eval()
    randomize(model, seed=1)
    return model


@torch.no_grad()
def logits_of(model) -> torch.Tensor:
    """Return the logits of rows of which one is padded."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(4, 41, (2, 7), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    targets = {"decoder_input_ids": ids[:, :4]} if model.config.is_encoder_decoder else {}
    return model(input_ids=ids, attention_mask=mask, **targets).logits


def with_read_weights(quantised, plain):
    """Return a copy of the plain model whose linear layers, but the output layer, hold what the
    quantised ones stand for, after checking that each weight is at most half a step away."""
    read = copy.deepcopy(plain)
    for name, module in read.named_modules():
        if isinstance(module, nn.Linear) and module is not read.get_output_embeddings():
            weight = quantised.get_submodule(name).weight.dequantize()
            step = module.weight.detach().abs().amax(dim=1, keepdim=True) / 127.5
            assert ((weight - module.weight).abs() <= 0.501 * step).all(), name
            module.weight.data = weight
    return read


@pytest.mark.parametrize("family", [name for name in MODELS if name != "rnn_lm"])
def test_torchao_rounds_the_weights_of_linear_layers_and_keeps_them_so(family, tmp_path):
    reason = "needs torchao of the extra clients"
    torchao = pytest.importorskip("torchao.quantization", reason=reason)
    plain, auto_class = make_model(family), MODELS[family][0]
    plain.save_pretrained(tmp_path / "plain")
    quantised = auto_class.from_pretrained(
        tmp_path / "plain",
        quantization_config=TorchAoConfig(torchao.Int8WeightOnlyConfig()),
        device_map="cpu",
    )
    found = logits_of(quantised)
    expected = logits_of(with_read_weights(quantised, plain))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert (found - logits_of(plain)).abs().max() > 1e-3
    quantised.save_pretrained(tmp_path / "quantised")
    again = auto_class.from_pretrained(tmp_path / "quantised", device_map="cpu")
    torch.testing.assert_close(logits_of(again), found, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("rnn_lm", {"cell_type": "lstm"}),
        ("rnn_lm", {"cell_type": "gru"}),
        ("rnn_seq2seq", {"cell_type": "lstm"}),
        ("rnn_seq2seq", {"cell_type": "gru"}),
        ("transformer_seq2seq", {}),
        ("decoder_lm", {}),
        ("text_encoder", {}),
    ],
)
def test_torch_quantises_every_family_dynamically(family, options):
    quantisation = pytest.importorskip("torch.ao.quantization", reason="gone from later torch")
    auto_class, config_class, common = MODELS[family]
    torch.manual_seed(0)
    plain = auto_class.from_config(config_class(**{**common, **options})).eval()
    quantised = quantisation.quantize_dynamic(plain, {nn.Linear, nn.LSTM, nn.GRU})
    is_left = [type(module) in (nn.Linear, nn.LSTM, nn.GRU) for module in quantised.modules()]
    assert not any(is_left)
    expected, found = logits_of(plain), logits_of(quantised)
    assert 0 < (found - expected).abs().max() < 0.2 * expected.std()
    if plain.can_generate():
        prompt = {"input_ids": torch.tensor([[5, 9, 7]]), "eos_token_id": None}
        written = quantised.generate(**prompt, max_new_tokens=4, do_sample=False)
        assert written.shape[1] == (1 if plain.config.is_encoder_decoder else 3) + 4


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize_per_tensor")
def test_recurrent_decoders_that_read_their_weights_stay_as_they_are():
    quantisation = pytest.importorskip("torch.ao.quantization", reason="gone from later torch")
    config = RnnSeq2SeqConfig(**{**RECURRENT, "attention_query": "previous"})
    plain = AutoModelForSeq2SeqLM.from_config(config).eval()
    whole = quantisation.quantize_dynamic(plain, {nn.Linear, nn.LSTM})
    with pytest.raises(ValueError, match=r"recurrent layers of model.get_encoder\(\) alone"):
        logits_of(whole)
    quantised = quantisation.quantize_dynamic(plain, {nn.Linear})
    quantisation.quantize_dynamic(quantised.get_encoder(), {nn.LSTM}, inplace=True)
    assert any(
        type(part).__name__ == "LSTM" and type(part) is not nn.LSTM for part in quantised.modules()
    )
    expected = logits_of(plain)
    assert 0 < (logits_of(quantised) - expected).abs().max() < 0.2 * expected.std()
