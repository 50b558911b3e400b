"""Perplexity over a corpus: every token scored once, against plain loops over the tokens."""

import itertools
import math

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from hf_seqmodels.evaluation.perplexity import CorpusPerplexity, corpus_perplexity
from hf_seqmodels.models.configuration_rnn_lm import RnnLMConfig
from hf_seqmodels.models.modeling_rnn_lm import RnnLMForCausalLM

TOKENS = torch.randint(11, (47,), generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def gpt2():
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=11, n_positions=16, n_embd=8, n_layer=2, n_head=2, initializer_range=0.5
    )
    return GPT2LMHeadModel(config).double().eval()


@pytest.fixture(scope="module")
def rnn():
    torch.manual_seed(0)
    config = RnnLMConfig(vocab_size=11, embedding_size=5, hidden_size=7, initializer_range=1.0)
    return RnnLMForCausalLM(config).double().eval()


def log_probability(model, context, token: int) -> float:
    """Return log p(token | context) of a whole pass."""
    with torch.no_grad():
        return model(input_ids=context[None]).logits[0, -1].log_softmax(-1)[token].item()


def strided_contexts(num_tokens: int, window: int, stride: int) -> dict[int, int]:
    """Return {token: where its context begins}, by walking the windows one by one."""
    begins = {token: 0 for token in range(1, min(window, num_tokens))}
    end = window
    while end < num_tokens:
        new_end = min(end + stride, num_tokens)
        begins |= {token: new_end - window for token in range(end, new_end)}
        end = new_end
    return begins


@pytest.mark.parametrize(
    ("window", "stride", "batch_size"),
    [(16, 8, None), (16, 15, 2), (5, 1, 3), (7, 3, 1), (None, None, None)],
)
def test_windows_of_a_transformer_score_every_token_once(gpt2, window, stride, batch_size):
    expected = 0.0
    begins = strided_contexts(len(TOKENS), window or 16, stride or 8)
    assert sorted(begins) == list(range(1, len(TOKENS)))
    for token, begin in begins.items():
        expected -= log_probability(gpt2, TOKENS[begin:token], TOKENS[token])
    result = corpus_perplexity(
        gpt2, TOKENS, window_size=window, stride=stride, batch_size=batch_size
    )
    assert result.num_tokens == len(TOKENS) - 1
    assert result.total_nats == pytest.approx(expected, rel=1e-9)


def test_a_text_shorter_than_the_window_is_one_pass(gpt2):
    result = corpus_perplexity(gpt2, TOKENS[:9])
    with torch.no_grad():
        loss = gpt2(input_ids=TOKENS[None, :9], labels=TOKENS[None, :9]).loss.item()
    assert result.num_tokens == 8
    assert result.nats_per_token == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("window", [1, 6, 46, 47, 500, None])
def test_the_state_is_carried_over_the_whole_text_whatever_the_window(rnn, window):
    expected = -sum(log_probability(rnn, TOKENS[:n], TOKENS[n]) for n in range(1, len(TOKENS)))
    result = corpus_perplexity(rnn, TOKENS, window_size=window)
    assert result.num_tokens == len(TOKENS) - 1
    assert result.total_nats == pytest.approx(expected, rel=1e-12)


def test_rows_of_a_recurrent_model_start_without_a_past_and_skip_nothing(rnn):
    # 46 predictions in 4 rows: 12, 12, 11 and 11
    starts = [0, 12, 24, 35, 46]
    expected = 0.0
    for start, end in itertools.pairwise(starts):
        for token in range(start + 1, end + 1):
            expected -= log_probability(rnn, TOKENS[start:token], TOKENS[token])
    result = corpus_perplexity(rnn, TOKENS, batch_size=4, window_size=5)
    assert result.num_tokens == len(TOKENS) - 1
    assert result.total_nats == pytest.approx(expected, rel=1e-12)


def test_a_start_token_makes_the_first_token_count(rnn, gpt2):
    for model in (rnn, gpt2):
        without = corpus_perplexity(model, torch.cat([torch.tensor([4]), TOKENS]))
        result = corpus_perplexity(model, TOKENS, start_token_id=4)
        assert result == without
        assert result.num_tokens == len(TOKENS)


def test_documents_are_read_as_one_text(rnn):
    expected = corpus_perplexity(rnn, TOKENS)
    ids = TOKENS.tolist()
    for documents in (ids, [ids[:5], ids[5:6], ids[6:]], [{"input_ids": ids[:9]}, ids[9:]]):
        assert corpus_perplexity(rnn, documents) == expected


def test_the_model_is_left_in_its_mode_and_scored_without_dropout(rnn):
    expected = corpus_perplexity(rnn, TOKENS)
    rnn.train()
    try:
        assert corpus_perplexity(rnn, TOKENS) == expected
        assert rnn.training
    finally:
        rnn.eval()


def test_units():
    # 3 tokens of one bit each, which stand for 6 bytes
    result = CorpusPerplexity(total_nats=3 * math.log(2), num_tokens=3)
    assert result.bits_per_token == pytest.approx(1.0)
    assert result.perplexity == pytest.approx(2.0)
    assert result.bits_per_unit(6) == pytest.approx(0.5)
    assert CorpusPerplexity(1e9, 1).perplexity == math.inf


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_size": 17}, "at most max_position_embeddings=16 of the model, got 17"),
        ({"window_size": 1}, "at least 2 for a token to be predicted from another, got 1"),
        ({"window_size": 0}, "window_size must be at least 1, got 0"),
        ({"stride": 0}, "stride must be at least 1 and less than window_size.*got stride=0"),
        ({"stride": 16}, "got stride=16 and window_size=16"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(gpt2, options, message):
    with pytest.raises(ValueError, match=message):
        corpus_perplexity(gpt2, TOKENS, **options)


def test_other_bad_input_is_refused(rnn):
    with pytest.raises(ValueError, match=r"the state of RnnLMForCausalLM is carried on. Leave"):
        corpus_perplexity(rnn, TOKENS, stride=4)
    with pytest.raises(ValueError, match="at least two token ids in one sequence"):
        corpus_perplexity(rnn, TOKENS[:1])
    with pytest.raises(ValueError, match="num_units must be at least 1, got 0"):
        CorpusPerplexity(1.0, 1).bits_per_unit(0)
