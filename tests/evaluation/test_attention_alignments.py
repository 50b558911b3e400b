"""Alignments against the attention that generate() itself had along the winning beam."""

import numpy as np
import pytest
import torch
from transformers import BertConfig, EncoderDecoderConfig, EncoderDecoderModel

from hf_seqmodels.evaluation import alignments, decode_corpus
from hf_seqmodels.models.pipeline_seq2seq_generation import eager_attention


def use_eager_attention(model):
    """Also where set_attn_implementation() passes over inner models (T5 before 5.23)."""
    for module in model.modules():
        if hasattr(module, "config"):
            module.config._attn_implementation = "eager"


def attention_along_winning_beam(model, tokenizer, source, num_beams, layer, **settings):
    """(T, S): at step t the attention of the beam that the winner's token t came from."""
    encoded = tokenizer(source, return_tensors="pt", return_token_type_ids=False)
    use_eager_attention(model)
    with torch.no_grad():
        output = model.generate(
            **encoded,
            num_beams=num_beams,
            output_attentions=True,
            return_dict_in_generate=True,
            **settings,
        )
    steps = range(len(output.cross_attentions))
    beams = [0 for _ in steps] if num_beams == 1 else output.beam_indices[0].tolist()
    rows = []
    for beam, layers in zip(
        beams, output.cross_attentions, strict=False
    ):  # beams that won end early
        rows.append(layers[layer][beam, :, -1].mean(dim=0))  # (H, 1, S) -> (S,)
    tokens = output.sequences[0, 1 : 1 + len(rows)].tolist()
    return tokenizer.convert_ids_to_tokens(tokens), torch.stack(rows).numpy()


@pytest.mark.parametrize("num_beams", [1, 4])
def test_follow_the_winning_beam(attention_model, tokenizer, sources, num_beams):
    settings = {"max_new_tokens": 9}
    found = alignments(
        attention_model,
        tokenizer,
        sources,
        num_beams=num_beams,
        batch_size=4,
        progress=False,
        **settings,
    )
    for source, alignment in zip(sources, found, strict=True):
        tokens, weights = attention_along_winning_beam(
            attention_model, tokenizer, source, num_beams, layer=-1, **settings
        )
        assert alignment.target_tokens == tokens
        assert alignment.source_tokens == [*source.split(), "</s>"]
        np.testing.assert_allclose(alignment.weights, weights, atol=1e-5)


def test_beam_search_reorders_or_nothing_is_tested(bart, tokenizer, sources):
    """The winner is not always on beam 0: an alignment that took beam 0 would be wrong."""
    crossings, lengths = 0, set()
    for source in sources:
        output = bart.generate(
            **tokenizer(source, return_tensors="pt", return_token_type_ids=False),
            num_beams=4,
            max_new_tokens=9,
            return_dict_in_generate=True,
        )
        crossings += (output.beam_indices > 0).any().item()
        lengths.add(output.beam_indices.shape[1])
    assert crossings > 0
    assert len(lengths) > 2


def test_each_row_is_a_distribution_over_real_tokens(attention_model, tokenizer, sources):
    for alignment in alignments(
        attention_model, tokenizer, sources, max_new_tokens=5, progress=False
    ):
        np.testing.assert_allclose(alignment.weights.sum(axis=1), 1, atol=1e-5)
        assert alignment.weights.min() >= 0


def test_given_targets_are_aligned_by_force(attention_model, tokenizer, sources):
    """The texts that the model writes itself, given back to it, align as before."""
    texts = decode_corpus(attention_model, tokenizer, sources, max_new_tokens=30, progress=False)
    free = alignments(attention_model, tokenizer, sources, max_new_tokens=30, progress=False)
    forced = alignments(attention_model, tokenizer, sources, texts, batch_size=2, progress=False)
    for written, given, text in zip(free, forced, texts, strict=True):
        assert given.target_tokens == [*text.split(), "</s>"]
        if written.target_tokens == given.target_tokens:  # no special token in the middle
            np.testing.assert_allclose(given.weights, written.weights, atol=1e-5)
    as_ids = alignments(attention_model, tokenizer, ["a b"], [[5, 6]], progress=False)[0]
    assert as_ids.target_tokens == tokenizer.convert_ids_to_tokens([5, 6])


def test_layers_and_heads_are_chosen_or_averaged(bart, tokenizer):
    encoded = tokenizer("a b c", return_tensors="pt", return_token_type_ids=False)
    target = tokenizer("d e", return_tensors="pt")["input_ids"]
    bart.set_attn_implementation("eager")
    with torch.no_grad():
        output = bart(**encoded, labels=target, output_attentions=True)
    layers = torch.stack(output.cross_attentions)[:, 0].numpy()  # (L, H, T, S)
    for layer, head, expected in (
        (-1, "mean", layers[1].mean(axis=0)),
        (0, "mean", layers[0].mean(axis=0)),
        (1, 2, layers[1, 2]),
        (-2, -3, layers[0, 0]),
        ("mean", 1, layers[:, 1].mean(axis=0)),
        ("mean", "mean", layers.mean(axis=(0, 1))),
    ):
        (alignment,) = alignments(
            bart, tokenizer, ["a b c"], ["d e"], layer=layer, head=head, progress=False
        )
        np.testing.assert_allclose(alignment.weights, expected, atol=1e-6)
    with pytest.raises(ValueError, match="layer must be an index from -2 to 1 or 'mean', got 2"):
        alignments(bart, tokenizer, ["a"], ["b"], layer=2, progress=False)
    with pytest.raises(ValueError, match="head must be an index from -3 to 2 or 'mean', got 'max'"):
        alignments(bart, tokenizer, ["a"], ["b"], head="max", progress=False)


def test_special_tokens_are_marked(bart, tokenizer):
    (alignment,) = alignments(bart, tokenizer, ["a b"], ["c"], progress=False)
    assert alignment.source_is_special == [False, False, True]
    assert alignment.target_is_special == [False, True]


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("attention_model", ["bart", "t5"], indirect=True)
def test_the_attention_implementation_is_left_as_found(
    attention_model, tokenizer, implementation, caplog
):
    configs = [module.config for module in attention_model.modules() if hasattr(module, "config")]
    for config in configs:
        config._attn_implementation = implementation
    (alignment,) = alignments(attention_model, tokenizer, ["a b"], ["c d"], progress=False)
    with pytest.raises(ValueError, match="must be an index"):
        alignments(attention_model, tokenizer, ["a b"], ["c d"], layer=9, progress=False)
    assert {config._attn_implementation for config in configs} == {implementation}
    use_eager_attention(attention_model)
    (expected,) = alignments(attention_model, tokenizer, ["a b"], ["c d"], progress=False)
    np.testing.assert_allclose(alignment.weights, expected.weights, atol=1e-6)
    assert not caplog.records


def test_inner_models_keep_their_own_attention_implementation():
    """An encoder, a decoder and the config around them, each with its own implementation."""
    config = EncoderDecoderConfig.from_encoder_decoder_configs(
        *(
            BertConfig(
                vocab_size=17,
                hidden_size=8,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=4,
            )
            for _ in range(2)
        )
    )
    model = EncoderDecoderModel(config=config)
    model.config._attn_implementation_internal = "sdpa"
    model.encoder.config._attn_implementation = "eager"
    model.decoder.config._attn_implementation = "sdpa"
    with eager_attention(model):
        assert model.encoder.config._attn_implementation == "eager"
        assert model.decoder.config._attn_implementation == "eager"
    assert model.config._attn_implementation == "sdpa"
    assert model.encoder.config._attn_implementation == "eager"
    assert model.decoder.config._attn_implementation == "sdpa"


def test_a_model_without_attention_is_refused(tokenizer):
    from hf_seqmodels import RnnSeq2SeqConfig, RnnSeq2SeqForConditionalGeneration

    config = RnnSeq2SeqConfig(
        vocab_size=17, embedding_size=4, hidden_size=6, attention_scorer=None, bridge="projection"
    )
    model = RnnSeq2SeqForConditionalGeneration(config)
    with pytest.raises(ValueError, match=r"returned none.*attention_scorer=None"):
        alignments(model, tokenizer, ["a b"], max_new_tokens=3, progress=False)


def test_arguments_without_effect_are_refused(bart, tokenizer):
    with pytest.raises(ValueError, match="nothing is generated, so length_penalty has no effect"):
        alignments(bart, tokenizer, ["a"], ["b"], length_penalty=2.0)
    with pytest.raises(ValueError, match="each source has one alignment"):
        alignments(bart, tokenizer, ["a"], num_beams=2, num_return_sequences=2)
    with pytest.raises(ValueError, match="one target per source, got 1 sources and 2 targets"):
        alignments(bart, tokenizer, ["a"], ["b", "c"])


def test_no_sources_have_no_alignments(bart, tokenizer):
    assert alignments(bart, tokenizer, [], progress=False) == []
