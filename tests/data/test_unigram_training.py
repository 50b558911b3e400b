"""The unigram model against sums over all segmentations, written out."""

import math
from collections import Counter

import numpy as np
import pytest
from tokenizers import Tokenizer, models, trainers

from hf_seqmodels.data.unigram_training import Lattice, learn_unigram_pieces

PIECES = ["a", "b", "c", "ab", "bc", "abc", "ca"]
PROBABILITIES = np.array([0.2, 0.15, 0.1, 0.2, 0.1, 0.05, 0.2])
WORDS = ["abcab", "c", "bca", "aabbcc"]
FREQUENCIES = np.array([3.0, 1.0, 5.0, 2.0])


def segmentations(word):
    if not word:
        yield []
    for end in range(1, len(word) + 1):
        if word[:end] in PIECES:
            for rest in segmentations(word[end:]):
                yield [word[:end], *rest]


def probability(pieces):
    return math.prod(PROBABILITIES[PIECES.index(piece)] for piece in pieces)


def test_expected_counts_are_those_of_all_segmentations():
    expected, log_likelihood = np.zeros(len(PIECES)), 0.0
    for word, frequency in zip(WORDS, FREQUENCIES, strict=True):
        ways = [(pieces, probability(pieces)) for pieces in segmentations(word)]
        total = sum(weight for _, weight in ways)
        log_likelihood += frequency * math.log(total)
        for pieces, weight in ways:
            for piece in pieces:
                expected[PIECES.index(piece)] += frequency * weight / total
    counts, found = Lattice(WORDS, PIECES).expected_counts(np.log(PROBABILITIES), FREQUENCIES)
    np.testing.assert_allclose(counts, expected, rtol=1e-12)
    assert found == pytest.approx(log_likelihood, rel=1e-12)


def test_best_scores_are_those_of_the_best_segmentation():
    best = [max(map(probability, segmentations(word))) for word in WORDS]
    found = Lattice(WORDS, PIECES).best_scores(np.log(PROBABILITIES))
    np.testing.assert_allclose(found, np.log(best), rtol=1e-12)


def test_without_whole_words_a_word_is_cut_or_impossible():
    words = ["abc", "ab", "a", "ca"]
    best = [max(0.2 * 0.1, 0.2 * 0.1), 0.2 * 0.15, 0, 0.1 * 0.2]  # a+bc or ab+c, a+b, none, c+a
    found = Lattice(words, PIECES, whole_words=False).best_scores(np.log(PROBABILITIES))
    np.testing.assert_allclose(np.exp(found), best, rtol=1e-12)


def test_dropped_pieces_are_in_no_segmentation():
    lattice = Lattice(WORDS, PIECES)
    lattice.drop_edges(np.array([len(piece) > 1 for piece in PIECES]))
    counts, _ = lattice.expected_counts(np.log(PROBABILITIES), FREQUENCIES)
    letters = Counter()
    for word, frequency in zip(WORDS, FREQUENCIES, strict=True):
        letters.update({letter: frequency * word.count(letter) for letter in set(word)})
    np.testing.assert_allclose(counts, [*(letters[piece] for piece in "abc"), 0, 0, 0, 0])


def test_each_step_of_expectation_maximisation_raises_the_likelihood():
    lattice, counts, likelihoods = Lattice(WORDS, PIECES), np.ones(len(PIECES)), []
    for _ in range(8):
        counts, log_likelihood = lattice.expected_counts(np.log(counts / counts.sum()), FREQUENCIES)
        likelihoods.append(log_likelihood)
    assert likelihoods == sorted(likelihoods) and likelihoods[-1] > likelihoods[0]


def syllables():
    """Words of a toy language that is made of syllables."""
    generator = np.random.default_rng(0)
    stock = [c + v for c in "bdfgklmnprst" for v in "aeiou"]
    weights = 1 / np.arange(1, len(stock) + 1)
    drawn = generator.choice(stock, size=(600, 3), p=weights / weights.sum())
    return Counter("".join(word[: 1 + index % 3]) for index, word in enumerate(drawn))


def test_the_pieces_are_at_least_as_likely_as_those_of_the_tokenizers_library():
    words, num_pieces = syllables(), 60
    pieces = learn_unigram_pieces(words, num_pieces)
    assert len(pieces) == num_pieces
    assert sum(math.exp(score) for _, score in pieces) == pytest.approx(1)
    assert set("".join(words)) <= {piece for piece, _ in pieces}

    other = Tokenizer(models.Unigram())
    trainer = trainers.UnigramTrainer(vocab_size=num_pieces, show_progress=False)
    other.train_from_iterator(words.elements(), trainer)
    theirs = list(other.get_vocab())
    spelled, frequencies = list(words), np.array(list(words.values()), dtype=float)

    def likelihood(pieces):
        lattice, counts = Lattice(spelled, pieces), np.ones(len(pieces))
        for _ in range(30):
            counts, log_likelihood = lattice.expected_counts(
                np.log(np.maximum(counts, 1e-9) / counts.sum()), frequencies
            )
        return log_likelihood / frequencies.sum()

    assert likelihood([piece for piece, _ in pieces]) >= likelihood(theirs) - 0.05


def test_few_strings_give_few_pieces():
    assert {piece for piece, _ in learn_unigram_pieces({"ab": 1, "c": 2}, 100)} == set("abc")
