"""Decoding as loops over whole prefixes, one row at a time: no cache, no batch of rows, no padding.

The second source for generate(): slow, short, and it reads like the definition.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from family_cases import Case, Row
from hf_seqmodels.decoding import enumerate_sequences


def end_ids(config) -> set[int]:
    """Return the ids that end a sequence."""
    ids = config.eos_token_id
    return set(ids) if isinstance(ids, list) else {ids}


def prompt_of(case: Case, row: Row, config) -> Tensor:
    """Return what stands in front of the first written token, (T)."""
    if len(case.grid.sides) == 1:
        return row[case.written_side.tokens]
    return torch.tensor([config.decoder_start_token_id])


def score_tokens(case: Case, model, row: Row, continuations: Tensor) -> Tensor:
    """Return the logits that follow the prompt and every continuation: (N, t) -> (N, t + 1, V)."""
    prompt = prompt_of(case, row, model.config)
    num_rows = continuations.shape[0]
    tokens = torch.cat([prompt.expand(num_rows, -1), continuations], dim=1)
    arguments = {case.written_side.tokens: tokens}
    for side in case.grid.sides[:-1]:
        arguments[side.tokens] = row[side.tokens].expand(num_rows, -1)
    with torch.no_grad():
        logits = model(**arguments, use_cache=False).logits
    return logits[:, len(prompt) - 1 :]


def greedy(case: Case, model, row: Row, max_new_tokens: int) -> list[int]:
    """Take the likeliest token until an end token."""
    written: list[int] = []
    while len(written) < max_new_tokens:
        prefix = torch.tensor([written], dtype=torch.long)
        written.append(int(score_tokens(case, model, row, prefix)[0, -1].argmax()))
        if written[-1] in end_ids(model.config):
            break
    return written


def forced_log_probabilities(case: Case, model, row: Row, tokens: list[int]) -> list[float]:
    """Return log p of every token given those before it, in nats."""
    logits = score_tokens(case, model, row, torch.tensor([tokens]))[0, :-1]
    log_probabilities = logits.double().log_softmax(dim=-1)
    return [float(step[token]) for step, token in zip(log_probabilities, tokens, strict=True)]


def all_sequences(
    case: Case, model, row: Row, max_new_tokens: int
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield every sequence that ends in an end token or has `max_new_tokens`, with its log p."""

    def next_log_probabilities(prefixes: Tensor) -> Tensor:
        return score_tokens(case, model, row, prefixes)[:, -1].double().log_softmax(dim=-1)

    yield from enumerate_sequences(next_log_probabilities, end_ids(model.config), max_new_tokens)


def until_end(tokens: Tensor, config) -> list[int]:
    """Return a generated row up to its first end token, (T) -> list."""
    written: list[int] = []
    for token in tokens.tolist():
        written.append(token)
        if token in end_ids(config):
            break
    return written
