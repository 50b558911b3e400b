"""Search through all outputs, against a product of all tokens and forced scores."""

import itertools
import math

import pytest
import torch

from hf_seqmodels import RnnLMConfig, RnnLMForCausalLM
from hf_seqmodels.decoding import enumerate_sequences, exhaustive_search
from hf_seqmodels.evaluation import n_best
from plain_beam_search import step_of

KEPT = {"return_dict_in_generate": True, "output_scores": True}
ALLOWED = [2, 3, 4]
OTHERS = [0, 1, *range(5, 17)]


def every_sequence(steps):
    """All rows of allowed tokens that end in 2 or have all steps."""
    for length in range(1, steps + 1):
        for tokens in itertools.product(ALLOWED, repeat=length):
            if 2 not in tokens[:-1] and (tokens[-1] == 2 or length == steps):
                yield list(tokens)


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_returns_the_best_of_all_sequences(model, sources, pad, length_penalty):
    outputs = model.generate(
        **pad(sources),
        custom_generate=exhaustive_search,
        suppress_tokens=OTHERS,
        max_new_tokens=3,
        num_beams=5,
        num_return_sequences=5,
        length_penalty=length_penalty,
        **KEPT,
    )
    for source, rows, scores in zip(
        sources,
        outputs.sequences[:, 1:].view(3, 5, -1).tolist(),
        outputs.sequences_scores.view(3, 5).tolist(),
        strict=True,
    ):
        score = step_of(model, source)
        ranked = []
        for tokens in every_sequence(3):
            total = sum(score(tuple(tokens[:at]))[0][token] for at, token in enumerate(tokens))
            ranked.append((total / len(tokens) ** length_penalty, tokens))
        ranked.sort(reverse=True)
        assert [row[: len(tokens)] for row, (_, tokens) in zip(rows, ranked, strict=False)] == [
            tokens for _, tokens in ranked[:5]
        ]
        assert scores == pytest.approx([one for one, _ in ranked[:5]], rel=1e-5)


def test_the_probabilities_of_all_sequences_sum_to_one():
    torch.manual_seed(0)
    config = RnnLMConfig(vocab_size=4, embedding_size=5, hidden_size=5, num_hidden_layers=1)
    model = RnnLMForCausalLM(config).eval().double()

    def score(prefixes):
        rows = torch.cat([torch.ones(len(prefixes), 1, dtype=torch.long), prefixes], dim=1)
        with torch.no_grad():
            return model(input_ids=rows).logits[:, -1].log_softmax(dim=-1)

    found = dict(enumerate_sequences(score, {2}, 4))
    assert len(found) == 3**0 + 3**1 + 3**2 + 3**3 * 4  # ends after 1, 2, 3 tokens; and 4 tokens
    assert math.fsum(math.exp(value) for value in found.values()) == pytest.approx(1.0)


def test_n_best_lists_are_made_of_it(bart, tokenizer):
    (found,) = n_best(
        bart,
        tokenizer,
        ["a b"],
        custom_generate=exhaustive_search,
        num_beams=30,
        suppress_tokens=OTHERS,
        max_new_tokens=3,
        progress=False,
    )
    assert sorted(one.token_ids for one in found) == sorted(every_sequence(3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 5}, "gives up at 1000 sequences, got 196 open ones of 2 tokens and 17"),
        ({"do_sample": True}, "does not sample, got do_sample=True"),
        ({"prefix_allowed_tokens_fn": lambda source, ids: [2]}, "cannot honour prefix_allowed"),
    ],
)
def test_what_cannot_be_honoured_is_refused(rnn, sources, pad, options, message):
    options = {"suppress_tokens": [0, 1], "max_new_tokens": 2} | options
    with pytest.raises(ValueError, match=message):
        rnn.generate(
            **pad(sources), custom_generate=exhaustive_search, max_sequences=1000, **options
        )


def test_a_decoder_alone_is_refused():
    config = RnnLMConfig(vocab_size=4, embedding_size=5, hidden_size=5, num_hidden_layers=1)
    with pytest.raises(ValueError, match="for encoder-decoders, got RnnLMForCausalLM"):
        RnnLMForCausalLM(config).generate(
            input_ids=torch.ones(1, 1, dtype=torch.long),
            custom_generate=exhaustive_search,
            max_new_tokens=2,
        )
