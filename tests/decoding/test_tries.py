"""Outputs of a closed list."""

import pytest
import torch

from hf_seqmodels.decoding import TokenTrie, allowed_tokens_fn, beam_search
from hf_seqmodels.evaluation import decode_corpus

ROWS = [[5, 6], [5, 6, 7], [8], [9, 9, 2]]


def test_next_tokens_are_those_of_a_scan_through_the_list():
    trie = TokenTrie(ROWS, end_id=2)
    complete = [[*row, 2] if row[-1] != 2 else row for row in ROWS]
    prefixes = {tuple(row[:end]) for row in complete for end in range(len(row) + 1)} | {
        (4,),
        (5, 7),
    }
    for prefix in prefixes:
        expected = {
            row[len(prefix)]
            for row in complete
            if tuple(row[: len(prefix)]) == prefix and len(row) > len(prefix)
        }
        assert trie.next_tokens(prefix) == sorted(expected)
    assert all(row in trie for row in complete)
    assert [5, 6, 7] not in trie
    assert [] not in trie


@pytest.mark.parametrize(
    "options",
    [{}, {"num_beams": 4}, {"num_beams": 4, "custom_generate": beam_search}, {"do_sample": True}],
)
def test_outputs_are_of_the_list(model, sources, pad, options):
    torch.manual_seed(0)
    trie = TokenTrie(ROWS, end_id=2)
    outputs = model.generate(
        **pad(sources),
        prefix_allowed_tokens_fn=trie.allowed_tokens_fn(),
        max_new_tokens=6,
        **options,
    )
    for row in outputs[:, 1:].tolist():
        assert row[: row.index(2) + 1] in trie


def test_the_best_of_the_list_is_found(rnn, sources, pad):
    """Against the score of every entry."""
    entries = [[5, 6, 2], [5, 6, 7, 2], [8, 2], [9, 9, 2]]
    trie = TokenTrie(entries, end_id=2)
    outputs = rnn.generate(
        **pad(sources),
        custom_generate=beam_search,
        prefix_allowed_tokens_fn=trie.allowed_tokens_fn(),
        num_beams=8,
        length_penalty=0.0,
        early_stopping="never",
        max_new_tokens=6,
    )
    for source, found in zip(sources, outputs[:, 1:].tolist(), strict=True):
        scores = []
        for entry in entries:
            logits = rnn(
                input_ids=source[None],
                decoder_input_ids=torch.tensor([[rnn.config.decoder_start_token_id, *entry[:-1]]]),
            ).logits[0]
            steps = logits.log_softmax(dim=-1)
            scores.append(sum(steps[at, token].item() for at, token in enumerate(entry)))
        best = entries[scores.index(max(scores))]
        assert found[: len(best)] == best


def test_every_source_may_have_a_list_of_its_own(rnn, sources, pad):
    tries = [TokenTrie([[token]], end_id=2) for token in (5, 6, 7)]
    outputs = rnn.generate(
        **pad(sources),
        num_beams=2,
        max_new_tokens=4,
        prefix_allowed_tokens_fn=allowed_tokens_fn(tries),
    )
    assert outputs[:, 1:3].tolist() == [[5, 2], [6, 2], [7, 2]]
    with pytest.raises(ValueError, match="a trie for every source of the batch, got 2 and a"):
        rnn.generate(
            **pad(sources), max_new_tokens=4, prefix_allowed_tokens_fn=allowed_tokens_fn(tries[:2])
        )


def test_texts_make_a_trie(bart, tokenizer):
    trie = TokenTrie.from_texts(tokenizer, ["a b", "c"])
    texts = decode_corpus(
        bart,
        tokenizer,
        ["d e", "f", ""],
        num_beams=3,
        max_new_tokens=4,
        prefix_allowed_tokens_fn=trie.allowed_tokens_fn(),
        progress=False,
    )
    assert set(texts) <= {"a b", "c"}


def test_errors(tokenizer):
    with pytest.raises(ValueError, match=r"end token 2 may stand only behind .* \[5, 2, 6\]"):
        TokenTrie([[5, 2, 6]], end_id=2)
    with pytest.raises(ValueError, match="at least one output, got an empty one at position 1"):
        allowed_tokens_fn([TokenTrie([[5]], end_id=2), TokenTrie([], end_id=2)])
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match="needs an end token, got eos_token=None"):
        TokenTrie.from_texts(tokenizer, ["a"])
