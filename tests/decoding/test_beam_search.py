"""Our beam search against that of generate(), against plain loops, and against all outputs."""

import pytest
import torch

from hf_seqmodels import RnnLMConfig, RnnLMForCausalLM
from hf_seqmodels.decoding import beam_search, exhaustive_search
from hf_seqmodels.evaluation import EnsembleForSeq2SeqLM
from plain_beam_search import gnmt_score, plain_beam_search, power_score, step_of
from tiny_encoder_decoders import make_rnn

STEPS = 6
KEPT = {"return_dict_in_generate": True, "output_scores": True}
LIKE_GENERATE = (
    {},
    {"length_penalty": 0.0, "num_return_sequences": 4},
    {"length_penalty": 2.0, "early_stopping": "never"},
    {"early_stopping": True, "bad_words_ids": [[5], [6, 7]], "min_new_tokens": 3},
    {"prefix_allowed_tokens_fn": lambda source, ids: [2, 4 + source, 6, 8], "use_cache": False},
)
OURS = (
    {"coverage_penalty": 0.3, "length_normalization": "gnmt"},
    {"num_beam_groups": 2, "diversity_penalty": 0.7},
    {"must_include": [[5, 6], [9]]},
    {"must_include": [[7], [8, 7]], "num_beam_groups": 4, "diversity_penalty": 0.5},
)


def search(model, inputs, *, num_beams=4, **options):
    return model.generate(
        **inputs,
        custom_generate=beam_search,
        num_beams=num_beams,
        max_new_tokens=STEPS,
        **KEPT,
        **options,
    )


def rows_of(outputs):
    """Return the tokens of every hypothesis up to its end, and its score."""
    prompt = outputs.sequences.shape[1] - outputs.beam_indices.shape[1]
    lengths = (outputs.beam_indices >= 0).sum(dim=1).tolist()
    tokens = [
        row[:length]
        for row, length in zip(outputs.sequences[:, prompt:].tolist(), lengths, strict=True)
    ]
    return tokens, outputs.sequences_scores.tolist()


def assert_same(found, expected):
    assert found[0] == expected[0]
    assert found[1] == pytest.approx(expected[1], abs=2e-5)


@pytest.mark.parametrize("options", LIKE_GENERATE)
def test_finds_what_generate_finds(model, sources, pad, options):
    inputs = pad(sources)
    theirs = model.generate(
        **inputs, num_beams=4, max_new_tokens=STEPS, output_logits=True, **KEPT, **options
    )
    ours = search(model, inputs, output_logits=True, **options)
    assert torch.equal(ours.beam_indices, theirs.beam_indices)
    assert_same(rows_of(ours), rows_of(theirs))
    assert len(ours.scores) == len(theirs.scores)
    torch.testing.assert_close(ours.logits[-1], theirs.logits[-1])


def test_rows_end_in_pad_tokens(bart, sources, pad):
    outputs = search(bart, pad(sources), num_return_sequences=4)
    behind = torch.cat([torch.ones(12, 1), outputs.beam_indices], dim=1) < 0
    assert behind.any()
    assert (outputs.sequences[behind] == 0).all()


def test_attentions_and_states_are_kept_as_by_generate(bart, sources, pad):
    bart.set_attn_implementation("eager")
    options = {"num_beams": 2, "max_new_tokens": 3, "return_dict_in_generate": True}
    options |= {"output_attentions": True, "output_hidden_states": True}
    ours = bart.generate(**pad(sources), custom_generate=beam_search, **options)
    theirs = bart.generate(**pad(sources), **options)
    for name in ("cross_attentions", "decoder_attentions", "decoder_hidden_states"):
        for our_step, their_step in zip(getattr(ours, name), getattr(theirs, name), strict=True):
            torch.testing.assert_close(our_step, their_step)
    torch.testing.assert_close(ours.encoder_attentions, theirs.encoder_attentions)


def test_a_beam_of_one_is_greedy_search(model, sources, pad):
    greedy = model.generate(**pad(sources), max_new_tokens=STEPS)
    ours = model.generate(**pad(sources), max_new_tokens=STEPS, custom_generate=beam_search)
    assert ours.tolist() == greedy.tolist()


def test_a_language_model_is_searched_as_by_generate():
    torch.manual_seed(0)
    config = RnnLMConfig(vocab_size=11, embedding_size=6, hidden_size=6, num_hidden_layers=1)
    model = RnnLMForCausalLM(config).eval()
    prompts = {"input_ids": torch.tensor([[3, 4, 5], [0, 6, 7]])}
    prompts["attention_mask"] = prompts["input_ids"].ne(0).long()
    options = {"num_beams": 3, "max_new_tokens": 5, "num_return_sequences": 2, **KEPT}
    theirs = model.generate(**prompts, **options)
    ours = model.generate(**prompts, custom_generate=beam_search, **options)
    assert_same(rows_of(ours), rows_of(theirs))
    phrases = model.generate(
        **prompts, custom_generate=beam_search, must_include=[[3, 8]], **options
    )
    assert all(contains(row, [3, 8]) for row in rows_of(phrases)[0])
    with pytest.raises(ValueError, match=r"coverage_penalty=0\.1 needs a source"):
        model.generate(**prompts, custom_generate=beam_search, coverage_penalty=0.1, **options)


def contains(row, phrase):
    return any(row[at : at + len(phrase)] == phrase for at in range(len(row)))


def test_an_ensemble_is_searched_as_by_generate(sources, pad, bart, rnn):
    for member in (bart, rnn):
        member.generation_config.decoder_start_token_id = 2
        member.config.decoder_start_token_id = 2
    ensemble = EnsembleForSeq2SeqLM([bart, rnn])
    theirs = ensemble.generate(**pad(sources), num_beams=4, max_new_tokens=STEPS, **KEPT)
    assert_same(rows_of(search(ensemble, pad(sources))), rows_of(theirs))
    outputs = search(EnsembleForSeq2SeqLM([bart]), pad(sources), **OURS[0])
    assert_same(rows_of(outputs), rows_of(search(bart, pad(sources), **OURS[0])))


@pytest.mark.parametrize("options", OURS)
def test_batches_and_padding_change_nothing(attention_model, sources, pad, options):
    alone = [
        rows_of(search(attention_model, pad([source]), num_return_sequences=2, **options))
        for source in sources
    ]
    expected = [row for rows, _ in alone for row in rows], [one for _, two in alone for one in two]
    moves = attention_model.config.model_type == "marian"  # its positions count the padding
    for side in ("right",) if moves else ("left", "right"):
        batch = search(attention_model, pad(sources, side), num_return_sequences=2, **options)
        assert_same(rows_of(batch), expected)


@pytest.mark.parametrize(
    ("options", "plain"),
    [
        ({"coverage_penalty": 0.4}, {"beta": 0.4}),
        (
            {"length_normalization": "gnmt", "length_penalty": 0.6},
            {"final": gnmt_score, "alpha": 0.6},
        ),
        (
            {"length_normalization": "gnmt", "length_penalty": 1.5, "coverage_penalty": 0.2},
            {"final": gnmt_score, "alpha": 1.5, "beta": 0.2},
        ),
    ],
)
def test_penalties_are_those_of_a_plain_loop(attention_model, sources, pad, options, plain):
    attention_model.generation_config.bad_words_ids = None
    found = rows_of(search(attention_model, pad(sources), num_return_sequences=3, **options))
    expected = [], []
    for source in sources:
        (group,) = plain_beam_search(
            step_of(attention_model, source),
            num_beams=4,
            max_new_tokens=STEPS,
            end_ids={2},
            num_source_tokens=len(source),
            **plain,
        )
        expected[0].extend(beam.tokens for _, beam in group.finished[:3])
        expected[1].extend(score for score, _ in group.finished[:3])
    assert_same(found, expected)


def test_coverage_changes_what_is_found(attention_model, sources, pad):
    without = rows_of(search(attention_model, pad(sources)))
    assert rows_of(search(attention_model, pad(sources), coverage_penalty=5.0))[0] != without[0]


def test_groups_are_those_of_a_plain_loop(model, sources, pad):
    model.generation_config.bad_words_ids = None
    found = rows_of(
        search(
            model,
            pad(sources),
            num_beams=6,
            num_return_sequences=6,
            num_beam_groups=3,
            diversity_penalty=0.8,
        )
    )
    expected = [], []
    for source in sources:
        groups = plain_beam_search(
            step_of(model, source),
            num_beams=6,
            max_new_tokens=STEPS,
            end_ids={2},
            num_groups=3,
            diversity=0.8,
            num_source_tokens=len(source),
        )
        beams = [beam for group in groups for _, beam in group.finished]
        scored = [(power_score(beam, alpha=1.0, beta=0.0), beam.tokens) for beam in beams]
        scored.sort(key=lambda pair: -pair[0])
        expected[0].extend(tokens for _, tokens in scored)
        expected[1].extend(score for score, _ in scored)
    assert found[1] == pytest.approx(expected[1], abs=2e-5)
    for start in range(0, 18, 6):  # groups may write the same, so that equal scores change places
        assert sorted(found[0][start : start + 6]) == sorted(expected[0][start : start + 6])


def test_groups_without_penalty_are_alike_and_with_it_differ(rnn, sources, pad):
    options = {"num_beams": 4, "num_beam_groups": 4, "num_return_sequences": 4}
    rows, _ = rows_of(search(rnn, pad(sources), diversity_penalty=0.0, **options))
    greedy = rows_of(search(rnn, pad(sources), num_beams=1))[0]
    assert rows == [row for row in greedy for _ in range(4)]
    rows, _ = rows_of(search(rnn, pad(sources), diversity_penalty=3.0, **options))
    for start, row in zip(range(0, 12, 4), greedy, strict=True):
        assert row in rows[start : start + 4]  # the first group searches as if alone
        assert len({tuple(row) for row in rows[start : start + 4]}) == 4


def test_groups_come_from_a_generation_config_too(rnn, sources, pad):
    expected = search(rnn, pad(sources), num_beam_groups=2, diversity_penalty=0.5)
    rnn.generation_config.num_beam_groups = 2
    rnn.generation_config.diversity_penalty = 0.5
    assert torch.equal(search(rnn, pad(sources)).sequences, expected.sequences)


@pytest.mark.parametrize("name", ["power", "gnmt"])
def test_a_wide_enough_beam_finds_the_best_of_all_outputs(model, sources, pad, name):
    options = {
        "suppress_tokens": [0, *range(6, 17)],
        "num_return_sequences": 8,
        "length_normalization": name,
        "length_penalty": 0.7,
        "max_new_tokens": 3,
        **KEPT,
    }
    best = model.generate(**pad(sources), custom_generate=exhaustive_search, num_beams=8, **options)
    wide = model.generate(
        **pad(sources),
        custom_generate=beam_search,
        num_beams=100,
        early_stopping="never",
        **options,
    )
    assert_same(rows_of(wide), rows_of(best))


def test_fewer_outputs_than_asked_for_leave_empty_rows(rnn, sources, pad):
    outputs = rnn.generate(
        **pad(sources[:1]),
        custom_generate=beam_search,
        prefix_allowed_tokens_fn=lambda source, ids: [5, 6],
        num_beams=3,
        num_return_sequences=3,
        max_new_tokens=1,
        **KEPT,
    )
    assert sorted(outputs.sequences[:, 1].tolist()) == [0, 5, 6]
    assert outputs.sequences_scores[2] == float("-inf")
    assert outputs.beam_indices[2].tolist() == [-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"do_sample": True}, "does not sample, got do_sample=True. Pass do_sample=False"),
        ({"num_beam_groups": 3}, "must divide num_beams=4 evenly, got 3"),
        ({"diversity_penalty": 0.5}, "acts between groups, but num_beam_groups is 1. Pass num"),
        ({"num_beam_groups": 2, "diversity_penalty": -1.0}, "at least 0, got -1.0"),
        ({"coverage_penalty": -0.1}, "coverage_penalty must be at least 0, got -0.1"),
        ({"coverage_penalty": 0.1, "coverage_layer": 7}, "layer must be an index from -1 to 0"),
        ({"length_normalization": "mean"}, "must be one of power, gnmt, got 'mean'"),
        ({"must_include": [[5, 2]]}, r"token ids from 0 to 16 that do not end an output"),
        ({"must_include": [[17]]}, r"token ids from 0 to 16 .*got \[17\]"),
        ({"must_include": [[5, 6, 7, 8], [9, 10, 11, 12]]}, "fit into the output, 6 tokens, but"),
        ({"must_include": [[[5]], [[6]]]}, "one list of phrases per source, 3, got 2"),
        ({"must_include": [["a"]]}, "takes token ids of phrases"),
        ({"must_include": [[5, 6]], "bad_words_ids": [[6]]}, "No output for source 0 .* Drop one"),
    ],
)
def test_what_cannot_be_honoured_is_refused(rnn, sources, pad, options, message):
    with pytest.raises(ValueError, match=message):
        search(rnn, pad(sources), **options)


def test_coverage_without_attention_is_refused(sources, pad):
    with pytest.raises(ValueError, match="Alignments need cross-attention weights"):
        search(make_rnn(attention_scorer=None), pad(sources), coverage_penalty=0.2)
