"""Recurrent encoder-decoders whose weights accelerate keeps elsewhere between calls."""

import copy

import accelerate
import pytest
import torch

from hf_seqmodels import RnnSeq2SeqConfig, RnnSeq2SeqForConditionalGeneration

OPTIONS = {
    "before_the_cell": {"attention_scorer": "additive", "gru_reset": "before"},
    "after_the_cell": {
        "attention_scorer": "multi_head",
        "num_attention_heads": 2,
        "attention_query": "current",
        "layer_connection": "highway",
        "tie_word_embeddings": True,
    },
    "input_feeding": {
        "attention_scorer": "general",
        "attention_query": "current",
        "input_feeding": True,
        "cell_type": "lstm",
    },
    "reference": {"attention_scorer": None, "implementation": "reference"},
}


def tiny_model(**options) -> RnnSeq2SeqForConditionalGeneration:
    """Return a model in evaluation mode."""
    torch.manual_seed(0)
    config = RnnSeq2SeqConfig(
        vocab_size=13,
        decoder_vocab_size=17,
        embedding_size=6,
        hidden_size=8,
        num_encoder_layers=2,
        num_decoder_layers=2,
        bridge="projection",
        **options,
    )
    return RnnSeq2SeqForConditionalGeneration(config).eval()


@pytest.mark.parametrize("name", OPTIONS)
def test_offloaded_weights_give_the_same_numbers(name):
    model = tiny_model(**OPTIONS[name])
    batch = {
        "input_ids": torch.randint(4, 13, (2, 5)),
        "attention_mask": torch.tensor([[1] * 5, [1, 1, 1, 0, 0]]),
    }
    labels = torch.randint(4, 17, (2, 7))
    offloaded = accelerate.cpu_offload(copy.deepcopy(model), torch.device("cpu"))
    assert all(parameter.is_meta for parameter in offloaded.parameters())
    with torch.no_grad():
        expected = model(**batch, labels=labels).logits
        torch.testing.assert_close(offloaded(**batch, labels=labels).logits, expected)
    expected = model.generate(**batch, num_beams=2, max_new_tokens=4)
    assert torch.equal(offloaded.generate(**batch, num_beams=2, max_new_tokens=4), expected)
    assert all(parameter.is_meta for parameter in offloaded.parameters())


@pytest.mark.parametrize("name", ["before_the_cell", "after_the_cell", "input_feeding"])
def test_a_decoder_is_not_spread_over_devices(name):
    """Its loop of steps reads all layers in turn, without calls that would move what they read."""
    model = tiny_model(**OPTIONS[name])
    size = 4 * sum(parameter.numel() for parameter in model.parameters())

    def is_split(no_split: set[str]) -> bool:
        device_maps = [
            accelerate.infer_auto_device_map(
                model,
                max_memory={"cpu": int(share * size), "disk": 10 * size},
                no_split_module_classes=no_split,
            )
            for share in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
        ]
        inside = "model.decoder.recurrence."
        return any(module.startswith(inside) for found in device_maps for module in found)

    assert is_split({"RecurrentLayer"})
    assert not is_split(model._no_split_modules)
