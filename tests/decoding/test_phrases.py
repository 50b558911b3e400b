"""Phrases that an output must hold: the automaton, and the search that keeps to it."""

import random

import pytest
import torch

from hf_seqmodels.data import Seq2SeqTokenizer, train_tokenizer
from hf_seqmodels.decoding import (
    PhraseAutomaton,
    beam_search,
    encode_bad_words,
    encode_phrases,
    exhaustive_search,
)

KEPT = {"return_dict_in_generate": True, "output_scores": True}


def contains(tokens, phrase):
    return any(
        list(tokens[at : at + len(phrase)]) == list(phrase)
        for at in range(len(tokens) - len(phrase) + 1)
    )


def random_phrases(generator, *, tokens, most=3):
    return [
        [generator.choice(tokens) for _ in range(generator.randint(1, 3))]
        for _ in range(generator.randint(1, most))
    ]


def test_automaton_knows_what_a_sequence_contains():
    """Few different tokens, so that phrases overlap, repeat and contain one another."""
    generator = random.Random(0)
    for _ in range(300):
        phrases = random_phrases(generator, tokens=[5, 6, 7])
        automaton = PhraseAutomaton(phrases)
        state, written = automaton.start, []
        for _ in range(12):
            token = generator.choice([5, 6, 7])
            before = automaton.tokens_needed(state)
            wanted = automaton.next_tokens(state)
            assert (
                before == 0
                or min(automaton.tokens_needed(automaton.advance(state, token)) for token in wanted)
                < before
            )
            state = automaton.advance(state, token)
            written.append(token)
            is_met = all(contains(written, phrase) for phrase in phrases)
            assert (automaton.tokens_needed(state) == 0) == is_met
            assert bool(state.missing) != is_met


def test_automaton_counts_the_tokens_that_are_needed():
    automaton = PhraseAutomaton([[5, 5, 6], [7], [5, 6]])  # the last is part of the first
    assert automaton.num_tokens == automaton.tokens_needed(automaton.start) == 4
    state = automaton.start
    for token, needed in ((5, 3), (5, 2), (5, 2), (6, 1), (8, 1), (7, 0)):
        state = automaton.advance(state, token)
        assert automaton.tokens_needed(state) == needed
    with pytest.raises(ValueError, match="at least one token, got an empty one"):
        PhraseAutomaton([[5], []])


@pytest.mark.parametrize("num_beams", [1, 3, 6])
def test_every_output_holds_every_phrase(model, sources, pad, num_beams):
    generator = random.Random(num_beams)
    for groups in {1, num_beams // 3 or 1}:
        must_include = [random_phrases(generator, tokens=range(4, 12)) for _ in sources]
        must_include[1] = []
        width = max(PhraseAutomaton(phrases).num_tokens for phrases in must_include)
        for room in (0, 3):  # with no room left every token is of a phrase
            outputs = model.generate(
                **pad(sources),
                custom_generate=beam_search,
                must_include=must_include,
                num_beams=num_beams,
                num_return_sequences=num_beams,
                num_beam_groups=groups,
                max_new_tokens=width + room,
                **KEPT,
            )
            rows = outputs.sequences[:, 1:].view(len(sources), num_beams, -1).tolist()
            scores = outputs.sequences_scores.view(len(sources), num_beams)
            for phrases, candidates, row_scores in zip(must_include, rows, scores, strict=True):
                assert row_scores[0] > -1e8
                for tokens, score in zip(candidates, row_scores, strict=True):
                    missing = [phrase for phrase in phrases if not contains(tokens, phrase)]
                    assert not missing or score == float("-inf")


def test_a_source_without_phrases_is_searched_as_always(model, sources, pad):
    options = {"num_beams": 4, "max_new_tokens": 6}
    free = model.generate(**pad(sources), custom_generate=beam_search, **options)
    outputs = model.generate(
        **pad(sources), custom_generate=beam_search, must_include=[[], [[7, 8]], []], **options
    )
    for row in (0, 2):
        width = min(free.shape[1], outputs.shape[1])
        assert outputs[row, :width].tolist() == free[row, :width].tolist()
    assert contains(outputs[1].tolist(), [7, 8])


def test_a_wide_beam_finds_the_best_output_with_the_phrases(model, sources, pad):
    phrases = [[4, 5], [3]]
    options = {"suppress_tokens": [0, 1, *range(6, 17)], "max_new_tokens": 4, **KEPT}
    everything = model.generate(
        **pad(sources),
        custom_generate=exhaustive_search,
        num_beams=400,
        num_return_sequences=400,
        **options,
    )
    best = model.generate(
        **pad(sources),
        custom_generate=beam_search,
        must_include=phrases,
        num_beams=64,
        early_stopping="never",
        **options,
    )
    rows = everything.sequences[:, 1:].view(len(sources), 400, -1)
    scores = everything.sequences_scores.view(len(sources), 400)
    for source, (found, score) in enumerate(
        zip(best.sequences[:, 1:].tolist(), best.sequences_scores.tolist(), strict=True)
    ):
        expected = next(
            index
            for index, row in enumerate(rows[source].tolist())
            if all(contains(row, phrase) for phrase in phrases)
        )
        assert found == rows[source, expected].tolist()
        assert score == pytest.approx(scores[source, expected].item(), abs=1e-5)


def test_phrases_go_with_forced_ends_and_avoided_words(bart, sources, pad):
    bart.generation_config.forced_eos_token_id = 2
    bart.generation_config.forced_bos_token_id = 1
    for room in (0, 2):
        rows = bart.generate(
            **pad(sources),
            custom_generate=beam_search,
            must_include=[[5, 6], [7]],
            bad_words_ids=[[8], [6, 9]],
            num_beams=3,
            max_new_tokens=5 + room,
        )[:, 1:].tolist()
        for row in rows:
            assert row[0] == 1
            assert 2 in row
            assert contains(row, [5, 6]) and contains(row, [7])
            assert 8 not in row and not contains(row, [6, 9])


def test_texts_are_encoded_as_they_stand_in_a_target(tokenizer):
    assert encode_phrases(tokenizer, ["a b", "m"]) == [[4, 5], [16]]
    assert encode_bad_words(tokenizer, ["a b", "m"]) == [[4, 5], [16]]
    with pytest.raises(ValueError, match=r"tokens that the model can write, got 'a z'.*<unk>"):
        encode_phrases(tokenizer, ["a z"])
    with pytest.raises(ValueError, match="list of texts, got one text"):
        encode_phrases(tokenizer, "a b")
    with pytest.raises(ValueError, match="list of texts, got one text"):
        encode_bad_words(tokenizer, "a b")


def test_the_target_side_of_a_pair_encodes_phrases():
    sides = [train_tokenizer([text], model="word", vocab_size=20) for text in ("a b c", "x y z w")]
    pair = Seq2SeqTokenizer.from_pair(*sides)
    ids = encode_phrases(pair, ["y z"])
    assert sides[1].convert_ids_to_tokens(ids[0]) == ["▁y", "▁z"]


def test_byte_level_words_are_avoided_in_both_spellings():
    tokenizer = train_tokenizer(["the cat sat, the cat"] * 20, model="bpe", vocab_size=300)
    forms = encode_bad_words(tokenizer, ["cat"])
    assert {tokenizer.decode(ids).strip() for ids in forms} == {"cat"}
    assert all(torch.tensor(ids).ne(tokenizer.unk_token_id or -1).all() for ids in forms)
