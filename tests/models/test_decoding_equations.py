"""The distributions that generate() draws from, and what its searches maximise, as plain loops."""

import itertools
import math

import pytest
import torch

from hf_seqmodels import RnnSeq2SeqConfig, RnnSeq2SeqForConditionalGeneration

SOURCE = torch.arange(4, 4 + 3 * 7).view(3, 7)
START, END, V, STEPS = 1, 2, 13, 4


@pytest.fixture(scope="module")
def model():
    """Return a tiny model with scores far enough apart to choose among."""
    torch.manual_seed(5)
    config = RnnSeq2SeqConfig(
        vocab_size=29, decoder_vocab_size=V, embedding_size=6, hidden_size=12, initializer_range=1.0
    )
    model = RnnSeq2SeqForConditionalGeneration(config).eval()
    with torch.no_grad():
        model.lm_head.weight *= 3
    return model


def sample(model, **options):
    """Return (raw scores u, distribution drawn from) of every step of every row, as lists."""
    outputs = model.generate(
        SOURCE,
        do_sample=True,
        max_new_tokens=STEPS,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
        **{"top_k": 0, "top_p": 1.0, "temperature": 1.0} | options,
    )
    pairs = zip(outputs.logits, outputs.scores, strict=True)
    return [
        (raw.tolist(), scores.softmax(-1).tolist())
        for step_raw, step_scores in pairs
        for raw, scores in zip(step_raw, step_scores, strict=True)
    ]


def softmax(scores: list[float]) -> list[float]:
    """Return exp(u_i) / sum_j exp(u_j)."""
    exponentials = [math.exp(score - max(scores)) for score in scores]
    return [one / sum(exponentials) for one in exponentials]


def renormalised(probabilities: list[float], kept: set[int]) -> list[float]:
    """Return the distribution over the kept tokens alone."""
    mass = sum(probabilities[index] for index in kept)
    return [p / mass if index in kept else 0.0 for index, p in enumerate(probabilities)]


def ranked(probabilities: list[float]) -> list[int]:
    """Return tokens, likeliest first."""
    return sorted(range(len(probabilities)), key=lambda index: -probabilities[index])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_sampling_is_from_the_softmax_of_scores_over_temperature(model, temperature):
    for scores, distribution in sample(model, temperature=temperature):
        expected = softmax([score / temperature for score in scores])
        assert distribution == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("k", [1, 3, 12])
def test_top_k_keeps_the_k_likeliest(model, k):
    for scores, distribution in sample(model, top_k=k):
        probabilities = softmax(scores)
        expected = renormalised(probabilities, set(ranked(probabilities)[:k]))
        assert distribution == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("p", [0.3, 0.7, 0.95])
def test_top_p_keeps_the_smallest_set_with_that_mass(model, p):
    sizes = set()
    for scores, distribution in sample(model, top_p=p):
        probabilities = softmax(scores)
        kept: set[int] = set()
        for token in ranked(probabilities):
            kept.add(token)
            if sum(probabilities[index] for index in kept) >= p:
                break
        sizes.add(len(kept))
        assert distribution == pytest.approx(renormalised(probabilities, kept), abs=1e-5)
    assert len(sizes) > 1


def test_temperature_comes_before_the_cuts(model):
    for scores, distribution in sample(model, temperature=2.0, top_k=6, top_p=0.8):
        probabilities = softmax([score / 2.0 for score in scores])
        six = renormalised(probabilities, set(ranked(probabilities)[:6]))
        kept: set[int] = set()
        for token in ranked(six):
            kept.add(token)
            if sum(six[index] for index in kept) >= 0.8:
                break
        assert distribution == pytest.approx(renormalised(six, kept), abs=1e-5)


def next_log_probabilities(model, row: int, written: tuple[int, ...]) -> list[float]:
    """Return log p(y_t | y_<t, x) of every token, from a run over the whole prefix."""
    prefix = torch.tensor([[START, *written]])
    with torch.no_grad():
        logits = model(input_ids=SOURCE[row : row + 1], decoder_input_ids=prefix).logits[0, -1]
    return [math.log(p) for p in softmax(logits.tolist())]


def test_greedy_search_takes_the_argmax_at_every_step(model):
    rows = model.generate(SOURCE, max_new_tokens=STEPS)
    for index, row in enumerate(rows.tolist()):
        written: tuple[int, ...] = ()
        while len(written) < STEPS and (not written or written[-1] != END):
            scores = next_log_probabilities(model, index, written)
            written += (scores.index(max(scores)),)
        assert tuple(row[1 : 1 + len(written)]) == written


def test_a_beam_keeps_the_hypotheses_of_greatest_sum(model):
    """Against a loop that extends every hypothesis by every token and keeps the k best sums."""
    beams, length = 3, 3
    outputs = model.generate(
        SOURCE,
        num_beams=beams,
        num_return_sequences=beams,
        max_new_tokens=length,
        length_penalty=0.0,
        suppress_tokens=[END],  # every hypothesis has the same length
        return_dict_in_generate=True,
        output_scores=True,
    )
    found = outputs.sequences[:, 1:].unflatten(0, (-1, beams)).tolist()
    sums = outputs.sequences_scores.unflatten(0, (-1, beams)).tolist()
    for row in range(len(SOURCE)):
        hypotheses: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
        for _ in range(length):
            longer = [
                (total + log_probability, (*written, token))
                for total, written in hypotheses
                for token, log_probability in enumerate(next_log_probabilities(model, row, written))
                if token != END
            ]
            hypotheses = sorted(longer, reverse=True)[:beams]
        assert [list(written) for _, written in hypotheses] == found[row]
        assert sums[row] == pytest.approx([total for total, _ in hypotheses], abs=1e-4)


def test_a_beam_as_wide_as_the_choice_finds_the_best_of_all(model):
    """The yardstick: every sequence of two tokens, scored by the chain rule."""
    outputs = model.generate(
        SOURCE,
        num_beams=V,
        max_new_tokens=2,
        length_penalty=0.0,
        suppress_tokens=[END],
        return_dict_in_generate=True,
        output_scores=True,
    )
    allowed = [token for token in range(V) if token != END]
    for row in range(len(SOURCE)):
        first = next_log_probabilities(model, row, ())
        second = {token: next_log_probabilities(model, row, (token,)) for token in allowed}
        best = max(
            itertools.product(allowed, allowed),
            key=lambda pair: first[pair[0]] + second[pair[0]][pair[1]],
        )
        assert tuple(outputs.sequences[row, 1:].tolist()) == best
