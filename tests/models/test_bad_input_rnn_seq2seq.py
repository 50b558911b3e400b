"""What a user can get wrong when calling the model: each error names the rule, the value and the
way out. Broken checkpoints are in test_broken_checkpoints.py."""

import re

import pytest
import torch
from transformers import DynamicCache

from hf_seqmodels import RnnSeq2SeqConfig, RnnSeq2SeqForConditionalGeneration, RnnSeq2SeqModel
from hf_seqmodels.models.cache_recurrent import RecurrentCache
from hf_seqmodels.models.outputs import RecurrentEncoderOutput
from hf_seqmodels.models.pretrained_base import check_token_ids

B, S, T, E, C, D, V = 2, 7, 5, 6, 8, 12, 31
SOURCE = torch.arange(4, 4 + B * S).view(B, S)
TARGET = torch.arange(20, 20 + B * T).view(B, T)


def make_model(model_class=RnnSeq2SeqForConditionalGeneration, **options):
    """Return a tiny model whose axis sizes all differ."""
    sizes = {
        "vocab_size": 29,
        "decoder_vocab_size": V,
        "embedding_size": E,
        "hidden_size": D,
        "encoder_hidden_size": C,
    }
    return model_class(RnnSeq2SeqConfig(**sizes | options)).eval()


def refuse(message: str, model=None, **arguments):
    """Assert that a call raises ValueError with this text in its message."""
    model = make_model() if model is None else model
    with pytest.raises(ValueError, match=re.escape(message)):
        model(**arguments)


IDS = {
    "input_ids": ({"labels": TARGET}, SOURCE, 29),
    "decoder_input_ids": ({"input_ids": SOURCE}, TARGET, V),
    "labels": ({"input_ids": SOURCE}, TARGET, V),
}


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("too_far", [0, 5])
def test_ids_beyond_the_vocabulary(name, too_far):
    others, ids, size = IDS[name]
    ids = ids.clone()
    ids[1, 3] = size + too_far
    message = (
        f"{name} must lie in [0, {size}), got {size + too_far} at row 1, position 3. "
        "Use the tokenizer that the model was trained with, or resize the embeddings."
    )
    refuse(message, **others, **{name: ids})


@pytest.mark.parametrize("name", IDS)
def test_negative_ids(name):
    others, ids, size = IDS[name]
    ids = ids.clone()
    ids[0, 2] = -3
    refuse(f"{name} must lie in [0, {size}), got -3 at row 0, position 2.", **others, **{name: ids})


@pytest.mark.parametrize("name", ["input_ids", "decoder_input_ids"])
def test_skipped_labels_are_no_input_ids(name):
    others, ids, size = IDS[name]
    ids = ids.masked_fill(ids == ids[0, 0], -100)
    refuse(f"{name} must lie in [0, {size}), got -100", **others, **{name: ids})


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.uint8, torch.int16])
def test_ids_of_a_wrong_type(name, dtype):
    others, ids, _ = IDS[name]
    message = f"{name} must hold ids of type torch.int64 or torch.int32, got {dtype}. Pass the ids"
    refuse(message, **others, **{name: ids.to(dtype)})


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("shape", [(5,), (2, 5, 1), (2, 0), (0, 5), ()])
def test_ids_of_a_wrong_shape(name, shape):
    others, _, _ = IDS[name]
    message = (
        f"{name} must have the shape (batch, length) with at least one row and one position, got "
        f"{shape}. Pad empty rows."
    )
    refuse(message, **others, **{name: torch.ones(shape, dtype=torch.long)})


def test_ids_of_32_bits_are_ids():
    model = make_model()
    expected = model(input_ids=SOURCE, labels=TARGET)
    actual = model(input_ids=SOURCE.int(), labels=TARGET.int())
    assert torch.equal(actual.logits, expected.logits)
    assert torch.equal(actual.loss, expected.loss)


def test_ids_are_not_looked_at_on_an_accelerator():
    """Reading them back would wait for the device; "meta" stands for one."""
    check_token_ids("input_ids", torch.ones(2, 3, dtype=torch.long, device="meta"), 1)


@pytest.mark.parametrize("name", ["inputs_embeds", "decoder_inputs_embeds"])
@pytest.mark.parametrize("shape", [(B, 5, E + 1), (B, E), (B, 0, E), (0, 5, E)])
def test_embeddings_of_a_wrong_shape(name, shape):
    others = {"labels": TARGET} if name == "inputs_embeds" else {"input_ids": SOURCE}
    message = (
        f"{name} must have the shape (batch, length, {E}) with at least one row and one position, "
        f"got {shape}. The width is embedding_size of the config."
    )
    refuse(message, **others, **{name: torch.zeros(shape)})


@pytest.mark.parametrize("shape", [(B, S - 1), (B + 1, S), (S,), (B, 1, S, S)])
def test_source_mask_of_another_shape(shape):
    message = (
        f"attention_mask must have the shape of the encoder input, ({B}, {S}), got {shape}. "
        "Pass the mask the tokenizer returned."
    )
    refuse(message, input_ids=SOURCE, attention_mask=torch.ones(shape), labels=TARGET)


@pytest.mark.parametrize("shape", [(B, T - 1), (B, T + 4), (B + 1, T), (T,), (B, 1, T, T)])
def test_target_mask_of_another_shape(shape):
    message = (
        f"decoder_attention_mask must have the shape of the decoder input, ({B}, {T}), got {shape}"
    )
    refuse(message, input_ids=SOURCE, labels=TARGET, decoder_attention_mask=torch.ones(shape))


def test_source_mask_that_does_not_fit_the_encoder_output():
    model = make_model()
    message = f"attention_mask must have the shape of the encoder output, ({B}, {S}), got ({B}, 4)"
    encoder_outputs = model.get_encoder()(SOURCE)
    refuse(
        message,
        model,
        encoder_outputs=encoder_outputs,
        attention_mask=torch.ones(B, 4),
        labels=TARGET,
    )


def test_target_mask_behind_a_cache_may_cover_what_was_read_or_not():
    model = make_model()
    whole = model(input_ids=SOURCE, decoder_input_ids=TARGET).logits[:, 2:]
    for length in (T - 2, T):
        first = model(input_ids=SOURCE, decoder_input_ids=TARGET[:, :2], use_cache=True)
        rest = model(
            input_ids=SOURCE,
            decoder_input_ids=TARGET[:, 2:],
            decoder_attention_mask=torch.ones(B, length),
            past_key_values=first.past_key_values,
        )
        torch.testing.assert_close(rest.logits, whole)
    first = model(input_ids=SOURCE, decoder_input_ids=TARGET[:, :2], use_cache=True)
    refuse(
        f"decoder_attention_mask must have the shape of the decoder input, ({B}, 3), got ({B}, 4)",
        model,
        input_ids=SOURCE,
        decoder_input_ids=TARGET[:, 2:],
        decoder_attention_mask=torch.ones(B, 4),
        past_key_values=first.past_key_values,
    )


@pytest.mark.parametrize("num_rows", [1, 3])
def test_another_number_of_targets_than_of_sources(num_rows):
    target = TARGET[:1].expand(num_rows, -1)
    message = f"The decoder input must have as many rows as the source, {B}, got {num_rows}."
    refuse(message, input_ids=SOURCE, labels=target)
    refuse(message, input_ids=SOURCE, decoder_input_ids=target)
    refuse(message, input_ids=SOURCE, decoder_inputs_embeds=torch.zeros(num_rows, T, E))


def test_labels_of_another_length_than_the_decoder_input():
    message = (
        f"labels must have the shape of the decoder input, ({B}, {T}), got ({B}, 3). Leave "
        "decoder_input_ids out, and the model makes them from the labels."
    )
    refuse(message, input_ids=SOURCE, decoder_input_ids=TARGET, labels=TARGET[:, :3])


def test_none_or_both_of_ids_and_embeddings():
    source = "Pass exactly one of input_ids and inputs_embeds to the encoder."
    refuse(source, labels=TARGET)
    refuse(source, input_ids=SOURCE, inputs_embeds=torch.zeros(B, S, E), labels=TARGET)
    target = "Pass exactly one of decoder_input_ids and decoder_inputs_embeds to the decoder."
    embeds = torch.zeros(B, T, E)
    refuse(target, input_ids=SOURCE, decoder_input_ids=TARGET, decoder_inputs_embeds=embeds)
    refuse(target, make_model(RnnSeq2SeqModel), input_ids=SOURCE)
    nothing = "Pass labels, decoder_input_ids or decoder_inputs_embeds: the decoder has nothing"
    refuse(nothing, input_ids=SOURCE)


def test_labels_of_skipped_positions_alone():
    labels = torch.full((B, T), -100)
    refuse(
        "labels must hold at least one target, got only -100 in 10 positions. Drop such a batch, "
        "or pass num_items_in_batch if it is one part of a larger batch.",
        input_ids=SOURCE,
        labels=labels,
    )
    model = make_model()
    loss = model(input_ids=SOURCE, labels=labels, num_items_in_batch=9).loss
    assert loss.item() == 0.0
    loss.backward()
    assert all((p.grad == 0).all() for p in model.parameters() if p.grad is not None)


def test_an_unknown_argument():
    with pytest.raises(TypeError, match="token_type_ids"):
        make_model()(input_ids=SOURCE, labels=TARGET, token_type_ids=SOURCE)


# Encoder outputs


def test_decoder_without_a_source():
    decoder = make_model().get_decoder()
    with pytest.raises(ValueError, match="The decoder needs encoder_outputs, got None"):
        decoder(input_ids=TARGET)


@pytest.mark.parametrize("options", [{"bridge": "zeros"}, {}, {"cell_type": "lstm"}])
@pytest.mark.parametrize("make", [dict, lambda e: RecurrentEncoderOutput(**e), lambda e: e])
def test_encoder_output_in_any_mapping_stands_for_the_source(make, options):
    model = make_model(**options)
    expected = model(input_ids=SOURCE, labels=TARGET).logits
    encoder_outputs = make(model.get_encoder()(SOURCE))
    assert torch.equal(model(encoder_outputs=encoder_outputs, labels=TARGET).logits, expected)


@pytest.mark.parametrize("make", [tuple, list, lambda outputs: outputs[0]])
def test_states_alone_are_enough_where_the_decoder_starts_from_zeros(make):
    model = make_model(bridge="zeros")
    expected = model(input_ids=SOURCE, labels=TARGET).logits
    states = model.get_encoder()(SOURCE).last_hidden_state
    assert torch.equal(
        model(encoder_outputs=make((states,)), labels=TARGET).logits,
        expected,
    )


@pytest.mark.parametrize("options", [{}, {"bridge": "zeros", "attention_scorer": None}])
@pytest.mark.parametrize("make", [tuple, list, lambda outputs: outputs[0]])
def test_states_alone_are_not_enough_elsewhere(make, options):
    model = make_model(**options)
    states = model.get_encoder()(SOURCE).last_hidden_state
    refuse(
        "but encoder_outputs has no final_hidden_state. Pass what "
        "model.get_encoder()(..., return_dict=True) returned.",
        model,
        encoder_outputs=make((states,)),
        labels=TARGET,
    )


@pytest.mark.parametrize("bridge", ["copy", "projection"])
def test_an_lstm_needs_the_cell_state_too(bridge):
    model = make_model(cell_type="lstm", bridge=bridge, encoder_hidden_size=D)
    outputs = dict(model.get_encoder()(SOURCE))
    del outputs["final_cell_state"]
    refuse("encoder_outputs has no final_cell_state", model, encoder_outputs=outputs, labels=TARGET)


@pytest.mark.parametrize("empty", [(), {}, [], {"hidden_states": None}])
def test_encoder_output_without_states(empty):
    refuse(
        "encoder_outputs must hold last_hidden_state. Pass what model.get_encoder() returned.",
        encoder_outputs=empty,
        labels=TARGET,
    )


@pytest.mark.parametrize("shape", [(B, S, C + 1), (B, C)])
def test_encoder_states_of_a_wrong_shape(shape):
    refuse(
        f"encoder_outputs.last_hidden_state must have the shape (batch, length, {C}) with at least "
        f"one row and one position, got {shape}. The width is encoder_hidden_size",
        make_model(bridge="zeros"),
        encoder_outputs=(torch.zeros(shape),),
        labels=TARGET,
    )


# Caches


@pytest.mark.parametrize("cache", [DynamicCache(), ((torch.zeros(1),),)])
def test_a_cache_of_another_kind(cache):
    refuse(
        f"past_key_values must be the RecurrentCache of an earlier call, got "
        f"{type(cache).__name__}. Pass what this model returned.",
        input_ids=SOURCE,
        decoder_input_ids=TARGET,
        past_key_values=cache,
    )


def test_a_cache_of_a_model_with_other_layers():
    refuse(
        "past_key_values must carry 1 states, got 3. Pass what this model returned, or "
        "decoder.new_cache().",
        input_ids=SOURCE,
        decoder_input_ids=TARGET,
        past_key_values=RecurrentCache(3),
    )


def test_a_cache_of_another_number_of_rows():
    model = make_model()
    cache = model(input_ids=SOURCE, decoder_input_ids=TARGET, use_cache=True).past_key_values
    cache.batch_repeat_interleave(2)
    refuse(
        f"past_key_values must have as many rows as the source, {B}, got {2 * B}.",
        model,
        input_ids=SOURCE,
        decoder_input_ids=TARGET,
        past_key_values=cache,
    )


# Before any time is spent


@pytest.mark.parametrize("num_beams", [1, 3])
def test_generate_refuses_ids_beyond_the_vocabulary(num_beams):
    with pytest.raises(ValueError, match=r"input_ids must lie in \[0, 29\), got 29 at row 0"):
        make_model().generate(torch.full((B, S), 29), num_beams=num_beams, max_new_tokens=3)


def test_generate_refuses_a_prompt_beyond_the_vocabulary():
    with pytest.raises(ValueError, match=r"decoder_input_ids must lie in \[0, 31\), got 31"):
        make_model().generate(
            SOURCE, decoder_input_ids=torch.full((B, 2), V), max_new_tokens=3, eos_token_id=None
        )


def test_an_error_leaves_the_cache_as_it_was():
    model = make_model()
    cache = model(input_ids=SOURCE, decoder_input_ids=TARGET, use_cache=True).past_key_values
    before = [tuple(part.clone() for part in state) for state in cache.get_states()]
    wrong = torch.full((B, 1), V)
    refuse(
        "decoder_input_ids", model, input_ids=SOURCE, decoder_input_ids=wrong, past_key_values=cache
    )
    assert cache.get_seq_length() == T
    torch.testing.assert_close(cache.get_states(), before)
