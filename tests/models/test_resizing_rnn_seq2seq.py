"""Resizing vocabularies: one or two, tied or not; old tokens keep their numbers."""

import pytest
import torch

from hf_seqmodels import RnnSeq2SeqConfig, RnnSeq2SeqForConditionalGeneration, RnnSeq2SeqModel

B, S, T, E, D, V = 2, 7, 5, 6, 12, 31
SOURCE = torch.arange(4, 4 + B * S).view(B, S)
TARGET = torch.arange(8, 8 + B * T).view(B, T)
TIES = {
    "untied": {},
    "output": {"tie_word_embeddings": True},
    "tables": {"share_embeddings": True},
    "all": {"share_embeddings": True, "tie_word_embeddings": True},
}


def make_model(model_class=RnnSeq2SeqForConditionalGeneration, **options):
    """Return a tiny model; the tables are drawn as wide as training leaves them."""
    sizes = {"vocab_size": 29, "embedding_size": E, "hidden_size": D, "initializer_range": 1.0}
    return model_class(RnnSeq2SeqConfig(**sizes | options)).eval()


def tables(model):
    """Return the source table, the target table and the output layer."""
    return model.get_encoder().embed_tokens, model.get_decoder().embed_tokens, model.lm_head


def logits(model):
    """Return the logits of a fixed batch, (B, T, V)."""
    with torch.no_grad():
        return model(input_ids=SOURCE, decoder_input_ids=TARGET).logits


def assert_consistent(model, source_size: int, target_size: int):
    """Assert that tables, output layer, config and ties agree on the sizes."""
    source, target, head = tables(model)
    assert source.weight.shape == (source_size, E)
    assert source.num_embeddings == source_size
    assert target.weight.shape == (target_size, E)
    assert target.num_embeddings == target_size
    assert head.weight.shape[0] == head.out_features == target_size
    assert head.bias.shape == (target_size,)
    config = model.config
    assert (config.vocab_size, config.target_vocab_size) == (source_size, target_size)
    assert (source.weight is target.weight) == config.share_embeddings
    assert (head.weight is target.weight) == config.tie_word_embeddings
    assert logits(model).shape == (B, T, target_size)
    RnnSeq2SeqConfig(**config.to_dict())  # still a legal config


@pytest.mark.parametrize("new_size", [37, 24])
@pytest.mark.parametrize(
    ("tie", "decoder_vocab_size"), [*((tie, None) for tie in TIES), ("tables", 29), ("all", 29)]
)
def test_one_vocabulary_is_resized_on_both_sides(tie, decoder_vocab_size, new_size):
    model = make_model(**TIES[tie], decoder_vocab_size=decoder_vocab_size)
    before = logits(model)
    kept = min(29, new_size)
    embeddings = model.resize_token_embeddings(new_size)
    assert embeddings is model.get_input_embeddings()
    assert_consistent(model, new_size, new_size)
    torch.testing.assert_close(logits(model)[..., :kept], before[..., :kept])


@pytest.mark.parametrize("decoder_vocab_size", [V, 29])
@pytest.mark.parametrize("tie", ["untied", "output"])
def test_the_source_of_two_vocabularies_is_resized_alone(tie, decoder_vocab_size):
    model = make_model(**TIES[tie], decoder_vocab_size=decoder_vocab_size)
    before = logits(model)
    model.resize_token_embeddings(37)
    assert_consistent(model, 37, decoder_vocab_size)
    torch.testing.assert_close(logits(model), before)


@pytest.mark.parametrize("new_size", [37, 24])
@pytest.mark.parametrize("tie", ["untied", "output"])
def test_the_target_of_two_vocabularies_is_resized_alone(tie, new_size):
    model = make_model(**TIES[tie], decoder_vocab_size=V)
    before = logits(model)
    embeddings = model.resize_decoder_token_embeddings(new_size)
    assert embeddings is model.get_decoder().embed_tokens
    assert_consistent(model, 29, new_size)
    kept = min(V, new_size)
    torch.testing.assert_close(logits(model)[..., :kept], before[..., :kept])


@pytest.mark.parametrize("tie", ["tables", "all", "untied"])
def test_one_vocabulary_has_no_target_of_its_own(tie):
    model = make_model(**TIES[tie], decoder_vocab_size=None if tie == "untied" else 29)
    with pytest.raises(
        ValueError,
        match=r"needs a target vocabulary of its own, got decoder_vocab_size=(None|29) and "
        r"share_embeddings=(True|False)\. Call resize_token_embeddings, which resizes both",
    ):
        model.resize_decoder_token_embeddings(37)


def test_sizes_may_be_rounded_up():
    model = make_model(decoder_vocab_size=V)
    model.resize_token_embeddings(33, pad_to_multiple_of=8)
    model.resize_decoder_token_embeddings(33, pad_to_multiple_of=16)
    assert_consistent(model, 40, 48)


def test_resizing_to_the_same_size_changes_nothing():
    model = make_model()
    before = logits(model)
    model.resize_token_embeddings(29)
    model.resize_token_embeddings()
    assert_consistent(model, 29, 29)
    assert torch.equal(logits(model), before)


@pytest.mark.parametrize("side", ["source", "target"])
def test_new_rows_lie_around_the_mean_of_the_old_or_are_drawn_as_documented(side):
    for mean_resizing in (True, False):
        model = make_model(vocab_size=290, decoder_vocab_size=310, initializer_range=0.1)
        source, target, _ = tables(model)
        with torch.no_grad():
            source.weight += 7.0
            target.weight += 7.0
        if side == "source":
            model.resize_token_embeddings(1290, mean_resizing=mean_resizing)
            new = model.get_encoder().embed_tokens.weight[290:]
        else:
            model.resize_decoder_token_embeddings(1310, mean_resizing=mean_resizing)
            new = model.get_decoder().embed_tokens.weight[310:]
        centre, spread = (7.0, 0.01) if mean_resizing else (0.0, 0.1)
        assert new.mean().item() == pytest.approx(centre, abs=0.02)
        assert new.std().item() < 1.1 * spread
        assert len(new.unique(dim=0)) == 1000


@pytest.mark.parametrize("tie", TIES)
def test_new_tokens_can_be_read_written_and_trained(tie):
    model = make_model(**TIES[tie])
    model.resize_token_embeddings(37)
    new = torch.full((B, S), 36)
    model(input_ids=new, labels=new).loss.backward()
    source, target, head = tables(model)
    for parameter in (source.weight, target.weight, head.weight):
        assert parameter.grad[36].abs().max() > 0
    assert head.bias.grad[36].abs() > 0


def test_a_resized_model_comes_back_from_disk(tmp_path):
    for options in ({"decoder_vocab_size": V}, {**TIES["all"], "decoder_vocab_size": 29}, {}):
        model = make_model(**options)
        model.resize_token_embeddings(37)
        if options.get("decoder_vocab_size") == V:
            model.resize_decoder_token_embeddings(43)
        model.save_pretrained(tmp_path)
        again = RnnSeq2SeqForConditionalGeneration.from_pretrained(tmp_path).eval()
        weights = model.state_dict()
        assert again.state_dict().keys() == weights.keys()
        assert all(torch.equal(value, weights[name]) for name, value in again.state_dict().items())
        torch.testing.assert_close(logits(again), logits(model))


def test_a_model_without_a_head_is_resized_too():
    model = make_model(RnnSeq2SeqModel, share_embeddings=True)
    model.resize_token_embeddings(37)
    assert model.decoder.embed_tokens.weight is model.encoder.embed_tokens.weight
    assert model.decoder.embed_tokens.num_embeddings == 37
    model = make_model(RnnSeq2SeqModel, decoder_vocab_size=V)
    model.resize_decoder_token_embeddings(37)
    assert model.encoder.embed_tokens.num_embeddings == 29
    assert model.decoder.embed_tokens.weight.shape == (37, E)


@pytest.mark.parametrize("share", [False, True])
def test_replacing_the_source_table_replaces_a_shared_one(share):
    model = make_model(share_embeddings=share)
    table = torch.nn.Embedding(29, E)
    model.set_input_embeddings(table)
    assert model.get_input_embeddings() is table
    assert (model.get_decoder().embed_tokens is table) == share
