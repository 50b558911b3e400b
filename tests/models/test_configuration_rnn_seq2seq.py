"""Every rule of the config: what it refuses, in which words, and what is legal beside it."""

import re

import pytest
from huggingface_hub.errors import StrictDataclassError

from hf_seqmodels import RnnSeq2SeqConfig

COUNTS = (
    "vocab_size",
    "decoder_vocab_size",
    "embedding_size",
    "hidden_size",
    "encoder_hidden_size",
    "num_encoder_layers",
    "num_decoder_layers",
    "max_position_embeddings",
)
RATES = ("embedding_dropout", "hidden_dropout", "attention_dropout", "label_smoothing")
CHOICES = {
    "cell_type": ("elman", "gru", "lstm"),
    "elman_activation": ("tanh", "relu"),
    "gru_reset": ("after", "before"),
    "attention_scorer": ("dot", "scaled_dot", "general", "additive", "multi_head"),
    "attention_query": ("previous", "current"),
    "layer_connection": ("none", "residual", "highway", "dense"),
    "bridge": ("copy", "projection", "zeros"),
    "implementation": ("fast", "reference"),
}


def refuse(message: str, **options):
    """Assert that the config refuses options with this text in its message."""
    with pytest.raises(StrictDataclassError, match=re.escape(message)):
        RnnSeq2SeqConfig(**options)


@pytest.mark.parametrize("value", [0, -4])
@pytest.mark.parametrize("name", COUNTS)
def test_counts_and_widths_are_positive(name, value):
    refuse(f"{name} must be at least 1, got {value}.", **{name: value})


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_whole_numbers(name):
    refuse(name, **{name: 2.5})
    refuse(name, **{name: "3"})


@pytest.mark.parametrize("value", [-0.1, 1, 1.5, float("nan")])
@pytest.mark.parametrize("name", RATES)
def test_rates_lie_below_one(name, value):
    refuse(f"{name} must be in [0, 1), got {value}.", **{name: value})


@pytest.mark.parametrize("value", [0, 0.0, 0.999])
@pytest.mark.parametrize("name", RATES)
def test_rates_may_be_zero_and_whole(name, value):
    assert getattr(RnnSeq2SeqConfig(**{name: value}), name) == value


@pytest.mark.parametrize("value", [0, 0.0, -1.0, float("nan")])
def test_initial_spread_is_positive(value):
    refuse(f"initializer_range must be positive, got {value}.", initializer_range=value)
    assert RnnSeq2SeqConfig(initializer_range=1).initializer_range == 1


@pytest.mark.parametrize("name", CHOICES)
def test_an_unknown_choice_names_the_known(name):
    with pytest.raises(StrictDataclassError) as caught:
        RnnSeq2SeqConfig(**{name: "another"})
    message = str(caught.value)
    assert name in message
    assert "another" in message
    assert all(repr(choice) in message for choice in CHOICES[name])


@pytest.mark.parametrize("name", ["bidirectional_encoder", "input_feeding", "reverse_source"])
def test_switches_are_true_or_false(name):
    refuse(name, **{name: "yes"})
    refuse(name, **{name: 1})


# Sizes


@pytest.mark.parametrize("sizes", [{"hidden_size": 13}, {"encoder_hidden_size": 9}])
def test_a_bidirectional_encoder_needs_an_even_width(sizes):
    (size,) = sizes.values()
    refuse(
        "A bidirectional encoder gives each direction half of encoder_hidden_size, which must be "
        f"even, got {size}. Choose an even encoder_hidden_size or bidirectional_encoder=False.",
        **sizes,
    )
    RnnSeq2SeqConfig(**sizes, bidirectional_encoder=False)


def test_the_decoder_may_be_of_odd_width():
    RnnSeq2SeqConfig(hidden_size=13, encoder_hidden_size=8)


# Cells


@pytest.mark.parametrize("cell_type", ["elman", "lstm"])
def test_reset_is_an_option_of_the_gru(cell_type):
    refuse(
        f"gru_reset='before' needs cell_type='gru', got {cell_type!r}. Leave gru_reset at 'after' "
        "or change the cell.",
        gru_reset="before",
        cell_type=cell_type,
    )
    RnnSeq2SeqConfig(gru_reset="before", cell_type="gru")


@pytest.mark.parametrize("cell_type", ["gru", "lstm"])
def test_activation_is_an_option_of_the_elman_cell(cell_type):
    refuse(
        f"elman_activation='relu' needs cell_type='elman', got {cell_type!r}. Leave "
        "elman_activation at 'tanh' or change the cell.",
        elman_activation="relu",
        cell_type=cell_type,
    )
    RnnSeq2SeqConfig(elman_activation="relu", cell_type="elman")


# Attention


@pytest.mark.parametrize("scorer", ["dot", "scaled_dot"])
def test_dot_products_need_one_width(scorer):
    refuse(
        f"attention_scorer={scorer!r} compares vectors of one width, got encoder_hidden_size=8 and "
        "hidden_size=12. Make them equal or use 'general', 'additive' or 'multi_head'.",
        attention_scorer=scorer,
        encoder_hidden_size=8,
        hidden_size=12,
    )
    RnnSeq2SeqConfig(attention_scorer=scorer, encoder_hidden_size=12, hidden_size=12)


@pytest.mark.parametrize("scorer", ["general", "additive", "multi_head"])
def test_other_scorers_take_two_widths(scorer):
    RnnSeq2SeqConfig(attention_scorer=scorer, encoder_hidden_size=8, hidden_size=12)


def test_heads_divide_the_width():
    options = {"attention_scorer": "multi_head", "hidden_size": 12}
    refuse(
        "num_attention_heads must divide hidden_size=12, got 5.", num_attention_heads=5, **options
    )
    for heads in (0, -3):
        refuse(
            f"num_attention_heads must divide hidden_size=12, got {heads}.",
            num_attention_heads=heads,
            **options,
        )
    for heads in (1, 2, 3, 4, 6, 12):
        RnnSeq2SeqConfig(num_attention_heads=heads, **options)


@pytest.mark.parametrize("scorer", [None, "dot", "general", "additive"])
def test_heads_are_for_multi_head_attention(scorer):
    refuse(
        f"num_attention_heads=2 needs attention_scorer='multi_head', got {scorer!r}. Set "
        "num_attention_heads=1 or change the scorer.",
        num_attention_heads=2,
        attention_scorer=scorer,
    )


def test_input_feeding_needs_the_attentional_vector():
    refuse(
        "input_feeding feeds the attentional vector, which exists with attention_query='current' "
        "only, got 'previous'. With 'previous' the context enters the cell already: set "
        "input_feeding=False.",
        input_feeding=True,
        attention_query="previous",
    )
    RnnSeq2SeqConfig(input_feeding=True, attention_query="current")


@pytest.mark.parametrize(
    ("name", "value", "neutral"),
    [
        ("attention_query", "previous", "current"),
        ("input_feeding", True, False),
        ("attention_dropout", 0.1, 0),
    ],
)
def test_options_of_attention_need_attention(name, value, neutral):
    refuse(
        f"{name}={value!r} needs attention, but attention_scorer is None. Choose a scorer or leave "
        f"{name} at {neutral!r}.",
        attention_scorer=None,
        **{name: value},
    )
    RnnSeq2SeqConfig(attention_scorer=None, **{name: neutral})


# Bridge


@pytest.mark.parametrize(
    "sizes",
    [
        {"num_encoder_layers": 2},
        {"num_decoder_layers": 3},
        {"encoder_hidden_size": 8, "hidden_size": 12},
    ],
)
def test_copying_needs_equal_sides(sizes):
    encoder_layers = sizes.get("num_encoder_layers", 1)
    decoder_layers = sizes.get("num_decoder_layers", 1)
    width = sizes.get("hidden_size", 256)
    refuse(
        "bridge='copy' needs as many layers and the same width on both sides, got "
        f"{encoder_layers} encoder and {decoder_layers} decoder layers, "
        f"encoder_hidden_size={sizes.get('encoder_hidden_size', width)} and hidden_size={width}. "
        "Use bridge='projection' or make them equal.",
        bridge="copy",
        **sizes,
    )
    for bridge in ("projection", "zeros"):
        RnnSeq2SeqConfig(bridge=bridge, **sizes)


# Vocabularies


def test_a_shared_table_needs_one_vocabulary():
    refuse(
        "share_embeddings needs one vocabulary, got vocab_size=29 and decoder_vocab_size=31. Set "
        "share_embeddings=False or decoder_vocab_size=None.",
        share_embeddings=True,
        vocab_size=29,
        decoder_vocab_size=31,
    )
    for size in (None, 29):
        RnnSeq2SeqConfig(share_embeddings=True, vocab_size=29, decoder_vocab_size=size)


def test_the_decoder_needs_a_first_input():
    refuse(
        "decoder_start_token_id must be set: it is the first decoder input.",
        decoder_start_token_id=None,
    )


@pytest.mark.parametrize(
    "ids",
    [
        {"pad_token_id": 31},
        {"bos_token_id": 31},
        {"eos_token_id": 31},
        {"eos_token_id": [2, 31]},
        {"decoder_start_token_id": 31},
    ],
)
def test_special_ids_lie_in_the_target_vocabulary(ids):
    message = "Special token ids must lie in the target vocabulary [0, 31), got 31. Pass the ids of"
    refuse(message, vocab_size=290, decoder_vocab_size=31, **ids)
    RnnSeq2SeqConfig(vocab_size=32, decoder_vocab_size=32, **ids)
    negative = {name: [-1] if isinstance(value, list) else -1 for name, value in ids.items()}
    refuse("got -1. Pass the ids of your tokenizer.", **negative)


def test_the_padding_id_lies_in_the_source_vocabulary_too():
    message = "pad_token_id fills sources as well, so it must lie in the source vocabulary [0, 29),"
    refuse(message, vocab_size=29, decoder_vocab_size=32, pad_token_id=29)
    RnnSeq2SeqConfig(vocab_size=29, decoder_vocab_size=32, pad_token_id=28, eos_token_id=31)


def test_special_ids_but_the_first_input_may_be_missing():
    RnnSeq2SeqConfig(pad_token_id=None, bos_token_id=None, eos_token_id=None)


def test_the_family_is_an_encoder_decoder():
    refuse("is_encoder_decoder is fixed to True", is_encoder_decoder=False)


# What others read


def test_widths_and_sizes_left_out_follow_the_other_side():
    config = RnnSeq2SeqConfig(vocab_size=29, hidden_size=12)
    assert (config.source_state_size, config.target_vocab_size) == (12, 29)
    config = RnnSeq2SeqConfig(
        vocab_size=29, hidden_size=12, encoder_hidden_size=8, decoder_vocab_size=31
    )
    assert (config.source_state_size, config.target_vocab_size) == (8, 31)
    assert config.num_hidden_layers == config.num_encoder_layers


def test_text_config_of_the_decoder_has_the_vocabulary_of_the_target():
    config = RnnSeq2SeqConfig(vocab_size=29, decoder_vocab_size=31)
    assert config.get_text_config() is config
    assert config.get_text_config(encoder=True) is config
    assert config.get_text_config(decoder=True, encoder=True) is config
    decoder_config = config.get_text_config(decoder=True)
    assert decoder_config.vocab_size == 31
    assert decoder_config.target_vocab_size == 31
    assert (config.vocab_size, config.decoder_vocab_size) == (29, 31)
    assert {**decoder_config.to_dict(), "vocab_size": 29} == config.to_dict()


@pytest.mark.parametrize("decoder_vocab_size", [None, 29])
def test_text_config_of_one_vocabulary_is_the_config(decoder_vocab_size):
    config = RnnSeq2SeqConfig(vocab_size=29, decoder_vocab_size=decoder_vocab_size)
    assert config.get_text_config(decoder=True) is config
