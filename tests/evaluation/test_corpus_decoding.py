"""Corpus decoding against generate() on one source at a time."""

import pytest
import torch
from torch import nn

from hf_seqmodels.evaluation import alignments, decode_corpus, n_best, score_targets


def generate_one(model, tokenizer, source, **settings):
    """generate() on one source, without padding."""
    encoded = tokenizer(source, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        ids = model.generate(**encoded, **settings)[0]
    return tokenizer.decode(ids[1:], skip_special_tokens=True)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_beams": 1},
        {"num_beams": 3, "length_penalty": 0.5},
        {"num_beams": 3, "early_stopping": True, "no_repeat_ngram_size": 2},
        {"num_beams": 1, "repetition_penalty": 1.5},
    ],
    ids=["greedy", "beam", "beam_no_repeat", "repetition_penalty"],
)
@pytest.mark.parametrize("batch_size", [1, 4])
def test_equals_generate_on_each_source_in_order(model, tokenizer, sources, settings, batch_size):
    texts = decode_corpus(
        model,
        tokenizer,
        sources,
        batch_size=batch_size,
        max_new_tokens=8,
        progress=False,
        **settings,
    )
    model.eval()
    assert texts == [
        generate_one(model, tokenizer, source, max_new_tokens=8, **settings) for source in sources
    ]
    assert len(set(texts)) > 1


def test_no_sources_give_no_texts(bart, tokenizer):
    assert decode_corpus(bart, tokenizer, [], progress=False) == []


def test_a_corpus_of_empty_sources_is_decoded(model, tokenizer):
    texts = decode_corpus(model, tokenizer, ["", ""], max_new_tokens=4, progress=False)
    assert texts[0] == texts[1]


def test_a_source_without_any_token_becomes_the_end_token(bart, tokenizer):
    expected = decode_corpus(bart, tokenizer, [""], max_new_tokens=4, progress=False)
    tokenizer.backend_tokenizer.post_processor = None
    assert tokenizer("")["input_ids"] == []
    assert decode_corpus(bart, tokenizer, [""], max_new_tokens=4, progress=False) == expected


def test_output_length_follows_max_new_tokens_then_the_model(bart, tokenizer, caplog):
    bart.generation_config.max_length = 5
    bart.generation_config.eos_token_id = None
    (text,) = decode_corpus(bart, tokenizer, ["a b"], progress=False, bad_words_ids=[[0], [1], [2]])
    assert len(text.split()) == 4, "max_length counts the start token"
    for number in (3, 9):
        (text,) = decode_corpus(
            bart,
            tokenizer,
            ["a b"],
            max_new_tokens=number,
            progress=False,
            bad_words_ids=[[0], [1], [2]],
        )
        assert len(text.split()) == number
    assert not caplog.records, "generate() has nothing to complain about"


def test_long_sources_are_cut_where_asked(bart, tokenizer):
    cut = decode_corpus(
        bart, tokenizer, ["a b c d e"], max_source_length=3, max_new_tokens=6, progress=False
    )
    assert cut == decode_corpus(bart, tokenizer, ["a b"], max_new_tokens=6, progress=False)


def test_padding_side_of_the_tokenizer_changes_nothing(model, tokenizer, sources):
    expected = decode_corpus(model, tokenizer, sources, max_new_tokens=6, progress=False)
    tokenizer.padding_side = "left"
    assert decode_corpus(model, tokenizer, sources, max_new_tokens=6, progress=False) == expected


@pytest.mark.parametrize("function", [decode_corpus, n_best, alignments])
def test_the_model_is_left_as_found(bart, tokenizer, function):
    """Modes module by module, no inference tensors, gradients as before."""
    bart.train()
    bart.model.encoder.eval()  # frozen by the user
    modes = {name: module.training for name, module in bart.named_modules()}
    function(bart, tokenizer, ["a b", "c"], max_new_tokens=3, progress=False)
    assert {name: module.training for name, module in bart.named_modules()} == modes
    batch = tokenizer(["a b"], return_tensors="pt", return_token_type_ids=False)
    bart(**batch, labels=batch["input_ids"]).loss.backward()
    assert all(parameter.grad is not None for parameter in bart.parameters())


def test_the_mode_is_restored_after_an_error(bart, tokenizer):
    bart.train()
    with pytest.raises(ValueError, match="not used by the model"):
        decode_corpus(bart, tokenizer, ["a"], progress=False, no_such_argument=1)
    assert all(module.training for module in bart.modules())


def test_the_model_comes_back_from_the_device_it_was_lent_to(bart, tokenizer, monkeypatch):
    places = []
    move = nn.Module.to
    monkeypatch.setattr(
        nn.Module, "to", lambda self, to: places.append(str(to)) or move(self, "cpu")
    )
    decode_corpus(bart, tokenizer, ["a"], max_new_tokens=2, progress=False, device="meta")
    assert places == ["meta", "cpu"]
    decode_corpus(bart, tokenizer, ["a"], max_new_tokens=2, progress=False, device="cpu")
    assert places == ["meta", "cpu"], "already there"


def test_progress_bar_counts_sources(bart, tokenizer, capsys):
    decode_corpus(bart, tokenizer, ["a"] * 5, batch_size=2, max_new_tokens=2)
    shown = capsys.readouterr().err
    assert "Decoding" in shown and "5/5" in shown and "text/s" in shown
    decode_corpus(bart, tokenizer, ["a"] * 5, max_new_tokens=2, progress=False)
    assert capsys.readouterr().err == ""


def test_bad_input_is_refused_with_the_way_out(bart, tokenizer):
    with pytest.raises(ValueError, match=r"sources must be a list of texts.*Pass \['a b'\]"):
        decode_corpus(bart, tokenizer, "a b")
    with pytest.raises(
        ValueError, match=r"sources must be texts, got None \(NoneType\) at position 1"
    ):
        decode_corpus(bart, tokenizer, ["a", None])
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        decode_corpus(bart, tokenizer, ["a"], batch_size=0)
    with pytest.raises(ValueError, match=r"one text per source; use n_best\(\) for more"):
        decode_corpus(bart, tokenizer, ["a"], num_beams=2, num_return_sequences=2)
    with pytest.raises(ValueError, match=r"use alignments\(\) for attention weights"):
        decode_corpus(bart, tokenizer, ["a"], output_attentions=True)


@pytest.mark.parametrize("function", [decode_corpus, n_best, alignments])
def test_a_tokenizer_without_pad_token_is_refused(bart, tokenizer, function):
    tokenizer.pad_token = None
    with pytest.raises(ValueError, match="needs a pad token to make batches, got pad_token=None"):
        function(bart, tokenizer, ["a"], progress=False)


def test_a_model_without_encoder_is_refused(tokenizer):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=8, n_positions=8, n_embd=4, n_layer=1, n_head=1))
    for call in (decode_corpus, n_best, alignments):
        with pytest.raises(ValueError, match=r"must be an encoder-decoder.*got GPT2LMHeadModel"):
            call(model, tokenizer, ["a"], progress=False)
    with pytest.raises(ValueError, match="must be an encoder-decoder"):
        score_targets(model, tokenizer, ["a"], ["b"], progress=False)
