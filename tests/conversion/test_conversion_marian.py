"""Conversion keeps the numbers: Marian and TransformerSeq2Seq against each other, both ways."""

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from family_cases import randomize
from gradient_checks import assert_same_tensors
from hf_seqmodels import TransformerSeq2SeqConfig, TransformerSeq2SeqForConditionalGeneration
from hf_seqmodels.conversion import (
    marian_config_from_transformer_seq2seq,
    marian_from_transformer_seq2seq,
    transformer_seq2seq_config_from_marian,
    transformer_seq2seq_from_marian,
)
from hf_seqmodels.models.pretrained_base import BEAMS_READ_CONFIG

SOURCE = torch.tensor([[3, 4, 5, 6, 7, 8, 0], [9, 1, 1, 4, 0, 18, 18]])  # (B, S)
MASK = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]])
TARGET = torch.tensor([[18, 4, 5, 6, 7], [18, 9, 2, 12, 3]])  # (B, T)
BATCH = {"input_ids": SOURCE, "attention_mask": MASK, "decoder_input_ids": TARGET}
KINDS = {
    "shared": {"decoder_vocab_size": 19},
    "tied_output": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 23},
    "separate": {
        "share_encoder_decoder_embeddings": False,
        "decoder_vocab_size": 23,
        "tie_word_embeddings": False,
        "scale_embedding": False,
        "d_model": 15,  # as many sines as cosines, and one more
        "encoder_attention_heads": 3,
        "decoder_attention_heads": 3,
    },
}
every_kind = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)


def make_marian(**options) -> MarianMTModel:
    """Return a small Marian in float64 with random parameters, biases of the output included."""
    settings = {
        "vocab_size": 19,
        "d_model": 12,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 10,
        "decoder_ffn_dim": 10,
        "max_position_embeddings": 17,
        "activation_function": "swish",
        "scale_embedding": True,
        "pad_token_id": 18,
        "decoder_start_token_id": 18,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
    }
    model = MarianMTModel(MarianConfig(**settings | options)).eval()
    positions = model.model.encoder.embed_positions.weight.clone()
    randomize(model, seed=2)
    for side in (model.model.encoder, model.model.decoder):
        side.embed_positions.weight.data = positions.clone()
    model.final_logits_bias = torch.linspace(-1, 1, model.final_logits_bias.shape[1])[None]
    model.generation_config.bad_words_ids = [[18]]
    return model.double()


@every_kind
def test_a_converted_marian_gives_the_same_logits(options):
    marian = make_marian(**options)
    ours = transformer_seq2seq_from_marian(marian)
    with torch.no_grad():
        expected = marian(**BATCH).logits
        torch.testing.assert_close(ours(**BATCH).logits, expected, rtol=1e-6, atol=1e-6)
        again = marian_from_transformer_seq2seq(ours)
        torch.testing.assert_close(again(**BATCH).logits, expected, rtol=1e-6, atol=1e-6)


@every_kind
@pytest.mark.parametrize("num_beams", [1, 4])
def test_a_converted_marian_writes_the_same(options, num_beams):
    marian = make_marian(**options)
    sizes = {marian.config.vocab_size, marian.config.decoder_vocab_size}
    if BEAMS_READ_CONFIG and num_beams > 1 and len(sizes) > 1:
        pytest.skip("transformers 5.17 cuts Marian's beams by the size of the source vocabulary")
    inputs = {"input_ids": SOURCE, "attention_mask": MASK, "max_new_tokens": 9}
    inputs |= {"num_beams": num_beams, "num_return_sequences": num_beams}
    inputs |= {"return_dict_in_generate": True, "output_scores": True}
    expected = marian.generate(**inputs)
    actual = transformer_seq2seq_from_marian(marian).generate(**inputs)
    assert torch.equal(actual.sequences, expected.sequences)
    if num_beams > 1:
        torch.testing.assert_close(actual.sequences_scores, expected.sequences_scores)


@every_kind
def test_there_and_back_gives_the_same_weights_and_config(options, tmp_path):
    marian = make_marian(**options).float()
    ours = transformer_seq2seq_from_marian(marian)
    ours.save_pretrained(tmp_path / "ours")
    ours = TransformerSeq2SeqForConditionalGeneration.from_pretrained(tmp_path / "ours")
    again = marian_from_transformer_seq2seq(ours)
    again.save_pretrained(tmp_path / "theirs")
    again, info = MarianMTModel.from_pretrained(tmp_path / "theirs", output_loading_info=True)
    assert not info["missing_keys"]
    assert_same_tensors(again.state_dict(), marian.state_dict(), rtol=0, atol=1e-6)
    left_out = dict.fromkeys(("_name_or_path", "architectures", "dtype", "forced_eos_token_id"))
    assert again.config.to_dict() | left_out == marian.config.to_dict() | left_out
    assert again.generation_config.forced_eos_token_id == 0


def test_a_model_without_biases_gets_biases_of_zero():
    config = TransformerSeq2SeqConfig(
        vocab_size=19, hidden_size=12, norm_position="post", use_bias=False, num_encoder_layers=1
    )
    ours = TransformerSeq2SeqForConditionalGeneration(config).double().eval()
    randomize(ours, seed=3)
    marian = marian_from_transformer_seq2seq(ours)
    with torch.no_grad():
        torch.testing.assert_close(marian(**BATCH).logits, ours(**BATCH).logits, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "options, named",
    [
        ({"decoder_ffn_dim": 12}, "decoder_ffn_dim=10"),
        ({"activation_dropout": 0.1}, "activation_dropout=0"),
        ({"activation_function": "tanh"}, "activation_function"),
    ],
)
def test_what_ours_cannot_compute_is_refused(options, named):
    config = make_marian().config
    for name, value in options.items():
        setattr(config, name, value)
    with pytest.raises(ValueError, match=named):
        transformer_seq2seq_config_from_marian(config)


@pytest.mark.parametrize(
    "options, named",
    [
        ({"norm_position": "pre"}, "norm_position='post'"),
        ({"position_embedding": "rotary"}, "position_embedding='sinusoidal'"),
        ({"embedding_dropout": 0.3}, "embedding_dropout=0.1"),
        ({"num_key_value_heads": 1}, "heads of queries, keys and values alike"),
    ],
)
def test_what_marian_cannot_compute_is_refused(options, named):
    config = TransformerSeq2SeqConfig(**{"norm_position": "post"} | options)
    with pytest.raises(ValueError, match=named):
        marian_config_from_transformer_seq2seq(config)
