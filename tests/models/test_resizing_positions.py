"""`resize_position_embeddings`: longer and shorter texts for every family."""

import pytest
import torch

from carded_models import make_carded

LEARNED = ("seqmodels_transformer_seq2seq", "seqmodels_decoder_lm", "seqmodels_text_encoder")
BODIES = [*LEARNED, "seqmodels_rnn_seq2seq", "seqmodels_rnn_lm"]


def tables_of(model):
    weights = model.state_dict()
    return {name: table.clone() for name, table in weights.items() if "positions" in name}


def states_of(model, length):
    """Return the last hidden states of two rows of a length, (2, T, D)."""
    ids = 3 + torch.arange(2 * length).view(2, length) % 4
    more = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model(input_ids=ids, **more).last_hidden_state


@pytest.mark.parametrize("model_type", LEARNED)
def test_learned_positions_keep_their_vectors_and_new_ones_are_drawn(model_type, tmp_path):
    changes = {"position_embedding": "learned", "max_position_embeddings": 6}
    model, _ = make_carded(model_type, "AutoModel", **changes, initializer_range=0.5)
    before, states = tables_of(model), states_of(model, 6)
    assert before
    with pytest.raises(ValueError, match="Learned positions end at"):
        states_of(model, 7)
    model.resize_position_embeddings(60)
    torch.testing.assert_close(states_of(model, 6), states)
    assert states_of(model, 60).isfinite().all()
    for name, table in tables_of(model).items():
        assert torch.equal(table[:6], before[name])
        assert 0.4 < table[6:].std() < 0.6
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert again.config.max_position_embeddings == 60
    assert torch.equal(states_of(again, 60), states_of(model, 60))
    model.resize_position_embeddings(4)
    torch.testing.assert_close(states_of(model, 4), states_of(again, 4))


@pytest.mark.parametrize("model_type", BODIES)
def test_models_without_a_table_only_say_the_length(model_type):
    changes = {} if "rnn" in model_type else {"position_embedding": "sinusoidal"}
    model, _ = make_carded(model_type, "AutoModel", **changes)
    states, names = states_of(model, 9), set(model.state_dict())
    model.resize_position_embeddings(2000)
    assert model.config.max_position_embeddings == 2000
    assert set(model.state_dict()) == names
    assert torch.equal(states_of(model, 9), states)


def test_no_length_is_refused():
    model, _ = make_carded("seqmodels_decoder_lm", "AutoModel")
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        model.resize_position_embeddings(0)
