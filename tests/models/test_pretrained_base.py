"""What all families share: loading, scores of generated tokens, beams of two vocabularies."""

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import GenerationMixin, trainer

from family_grids import representative_cases
from hf_seqmodels import RnnSeq2SeqConfig, RnnSeq2SeqForConditionalGeneration
from hf_seqmodels.models import pretrained_base
from hf_seqmodels.models.pretrained_base import check_mask

SOURCE = torch.arange(4, 4 + 3 * 7).view(3, 7)


def make_model(**options) -> RnnSeq2SeqForConditionalGeneration:
    """Return a tiny model that ends its sentences at different times."""
    torch.manual_seed(1)
    sizes = {"vocab_size": 29, "embedding_size": 6, "hidden_size": 12, "initializer_range": 1.0}
    model = RnnSeq2SeqForConditionalGeneration(RnnSeq2SeqConfig(**sizes | options)).eval()
    with torch.no_grad():
        model.lm_head.bias[2] = 2.0
    return model


def search(model, **options):
    """Return generate()'s output with scores."""
    options = {
        "max_new_tokens": 8,
        "output_scores": True,
        "return_dict_in_generate": True,
    } | options
    return model.generate(SOURCE, **options)


@pytest.mark.parametrize("normalize_logits", [False, True])
@pytest.mark.parametrize("num_beams", [1, 4])
def test_transition_scores_of_one_vocabulary_are_those_of_transformers(num_beams, normalize_logits):
    model = make_model()
    outputs = search(model, num_beams=num_beams, num_return_sequences=num_beams)
    arguments = (
        outputs.sequences,
        outputs.scores,
        outputs.beam_indices if num_beams > 1 else None,
        normalize_logits,
    )
    actual = model.compute_transition_scores(*arguments)
    expected = GenerationMixin.compute_transition_scores(model, *arguments)
    torch.testing.assert_close(actual, expected)
    assert actual.shape == (3 * num_beams, outputs.sequences.shape[1] - 1)


def test_transition_scores_of_two_vocabularies_are_looked_up_one_by_one():
    model = make_model(decoder_vocab_size=13)
    outputs = search(model, num_beams=4, num_return_sequences=2)
    actual = model.compute_transition_scores(
        outputs.sequences, outputs.scores, outputs.beam_indices
    )
    for row, (tokens, beams) in enumerate(
        zip(outputs.sequences, outputs.beam_indices, strict=True)
    ):
        for step, (token, beam) in enumerate(zip(tokens[1:], beams, strict=False)):
            expected = outputs.scores[step][beam, token] if beam >= 0 else torch.tensor(0.0)
            torch.testing.assert_close(actual[row, step], expected)


@pytest.mark.skipif(
    pretrained_base.BEAMS_READ_CONFIG, reason="this version of transformers leaves no choice"
)
@pytest.mark.parametrize("decoder_vocab_size", [13, 43])
def test_beams_are_cut_by_the_target_vocabulary_whatever_the_version(
    decoder_vocab_size, monkeypatch
):
    model = make_model(decoder_vocab_size=decoder_vocab_size)
    results = []
    for reads_config in (True, False):
        monkeypatch.setattr(pretrained_base, "BEAMS_READ_CONFIG", reads_config)
        results.append(search(model, num_beams=4, num_return_sequences=2).sequences)
        assert model.config.vocab_size == 29
    assert torch.equal(*results)


def test_config_is_restored_when_a_search_fails(monkeypatch):
    model = make_model(decoder_vocab_size=13)
    monkeypatch.setattr(pretrained_base, "BEAMS_READ_CONFIG", True)

    def fail(*args):
        raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        search(model, num_beams=2, prefix_allowed_tokens_fn=fail)
    assert model.config.vocab_size == 29


@pytest.mark.parametrize("with_info", [False, True])
def test_loaded_recurrent_weights_are_brought_into_one_block(with_info, tmp_path, monkeypatch):
    make_model(num_encoder_layers=2).save_pretrained(tmp_path)
    flattened = []
    monkeypatch.setattr(
        nn.RNNBase, "flatten_parameters", lambda self: flattened.append(self.weight_hh_l0)
    )
    loaded = RnnSeq2SeqForConditionalGeneration.from_pretrained(
        tmp_path, output_loading_info=with_info
    )
    model, *info = loaded if with_info else (loaded,)
    assert len(info) == with_info
    weights = [m.weight_hh_l0 for m in model.modules() if isinstance(m, nn.RNNBase)]
    assert len(weights) == 3
    assert all(any(weight is one for one in flattened) for weight in weights)
    assert not any(weight.is_meta for weight in weights)


@pytest.mark.parametrize("method", ["gru", "lstm", "elman"])
def test_kernels_read_the_weights_that_were_loaded(method, tmp_path):
    """torch keeps a second list of a layer's weights, which must follow."""
    model = make_model(cell_type=method)
    model.save_pretrained(tmp_path)
    loaded = RnnSeq2SeqForConditionalGeneration.from_pretrained(tmp_path)
    for module in loaded.modules():
        if isinstance(module, nn.RNNBase):
            for weight, name in zip(module._flat_weights, module._flat_weights_names, strict=True):
                assert weight is getattr(module, name)


@pytest.mark.parametrize("case", representative_cases("round_trip"))
def test_blocks_that_stay_whole_are_blocks_of_the_model(case):
    with torch.device("meta"):
        model = case.grid.model_class(case.config())
    present = {type(module).__name__ for module in model.modules()}
    assert model._no_split_modules  # what FSDP of accelerate wraps; it looks up every name
    assert model._no_split_modules <= present


def test_a_mask_of_another_shape_is_refused_by_name():
    check_mask("keep_mask", torch.ones(2, 3), (2, 3), "input_ids")
    with pytest.raises(
        ValueError,
        match=r"keep_mask must have the shape of input_ids, \(2, 3\), got \(2, 4\)\. Pass the mask",
    ):
        check_mask("keep_mask", torch.ones(2, 4), (2, 3), "input_ids")


@pytest.mark.parametrize("tie", [False, True])
@pytest.mark.parametrize("share", [False, True])
def test_trainer_reloads_tied_tables_without_complaint(tmp_path, monkeypatch, share, tie):
    """It compares the keys that are missing with those that the model says it does not save."""
    model = make_model(share_embeddings=share, tie_word_embeddings=tie)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    again = make_model(share_embeddings=share, tie_word_embeddings=tie)
    with torch.no_grad():
        again.get_input_embeddings().weight.zero_()
    result = again.load_state_dict(weights, strict=False)
    assert set(result.missing_keys) == again.get_expanded_tied_weights_keys().keys()
    warnings = []
    monkeypatch.setattr(trainer.logger, "warning", warnings.append)
    loader = SimpleNamespace(model=again)
    trainer.Trainer._issue_warnings_after_load(loader, result)
    assert warnings == []
    for name, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name
