"""Search through every possible output: the yardstick of beam search where the vocabulary is tiny.

Shapes: B batch, N open sequences, P what the decoder starts from, t tokens so far, V target
vocabulary.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PrefixConstrainedLogitsProcessor
from transformers.generation.utils import GenerateBeamEncoderDecoderOutput

from hf_seqmodels.decoding.ranking import LengthNormalization, Ranking


def enumerate_sequences(
    next_log_probabilities: Callable[[Tensor], Tensor],
    end_ids: Collection[int],
    max_new_tokens: int,
    *,
    max_sequences: int = 1_000_000,
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield every sequence that ends in an end token or has `max_new_tokens`, with its log p.

    log p(y) = sum_t log p(y_t | y_<t). The probabilities of all of them sum to one. There are up
    to V ** max_new_tokens; those of probability zero are left out.

    Args:
        next_log_probabilities: log p of every next token in nats, of prefixes as a batch:
            (N, t) -> (N, V).
        end_ids: tokens that end a sequence.
        max_new_tokens: longest sequence in tokens, the end token included.
        max_sequences: where to give up.

    Yields:
        Token ids and their log-probability in nats, shorter sequences first.

    Raises:
        ValueError: if there are more than `max_sequences`.
    """
    prefixes = torch.zeros(1, 0, dtype=torch.long)
    totals = torch.zeros(1, dtype=torch.float64)
    for length in range(1, max_new_tokens + 1):
        steps = next_log_probabilities(prefixes).double().cpu()  # (N, V)
        if steps.numel() > max_sequences:
            raise ValueError(
                f"Exhaustive search gives up at {max_sequences} sequences, got {len(steps)} open "
                f"ones of {length - 1} tokens and {steps.shape[1]} tokens to go on with. Lower "
                "max_new_tokens, rule tokens out (suppress_tokens), or raise max_sequences."
            )
        rows, tokens = steps.gt(float("-inf")).nonzero(as_tuple=True)
        totals = (totals.unsqueeze(1) + steps)[rows, tokens]
        prefixes = torch.cat([prefixes[rows], tokens.unsqueeze(1)], dim=1)  # (N, t + 1)
        is_over = torch.isin(tokens, torch.tensor(sorted(end_ids), dtype=torch.long))
        is_over |= torch.tensor(length == max_new_tokens)
        for row, total in zip(prefixes[is_over].tolist(), totals[is_over].tolist(), strict=True):
            yield tuple(row), total
        prefixes, totals = prefixes[~is_over], totals[~is_over]
        if not len(prefixes):
            return


def exhaustive_search(
    model: Any,
    input_ids: Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    *,
    inputs_tensor: Tensor,
    length_normalization: LengthNormalization = "power",
    max_sequences: int = 1_000_000,
    **model_kwargs: Any,
) -> Any:
    """Return the best outputs of all that an encoder-decoder can write.

    ```python
    from hf_seqmodels.decoding import exhaustive_search

    model.generate(
        **batch,
        custom_generate=exhaustive_search,
        max_new_tokens=4,
        num_beams=3,
        num_return_sequences=3,
        length_penalty=0.0,
    )
    ```

    What a beam of any width could find at the best, with the same score, log p / length **
    length_penalty, computed without a cache, one prefix at a time. For vocabularies of a few tokens
    and a few steps. Of `num_beams` only num_return_sequences are returned.

    Args:
        model: an encoder-decoder with generate(), handed over by it.
        input_ids: what the decoder starts from, (B * num_beams, P).
        logits_processor: made by generate().
        stopping_criteria: made by generate(); lengths and end tokens are read from the
            configuration instead.
        generation_config: made by generate().
        inputs_tensor: what the encoder reads, (B, S), handed over by generate().
        length_normalization: what log-probabilities are divided by; see `Ranking`.
        max_sequences: where to give up.
        **model_kwargs: what generate() has prepared for the model.

    Returns:
        As generate() returns from its own beam search; `beam_indices` are the rows of the output.

    Raises:
        ValueError: if there are too many sequences, the model is no encoder-decoder, or an argument
            cannot be honoured.
    """
    check_arguments(model, logits_processor, generation_config)
    copies = max(generation_config.num_beams, generation_config.num_return_sequences)
    ends = generation_config._eos_token_tensor
    ranking = Ranking(generation_config.length_penalty, length_normalization)
    attention_mask = model_kwargs.get("attention_mask")
    found: list[tuple[float, tuple[int, ...]]] = []
    for source, prompt in enumerate(input_ids[::copies]):
        inputs = {model.main_input_name: inputs_tensor[source : source + 1]}
        if attention_mask is not None:
            inputs["attention_mask"] = attention_mask[source * copies : source * copies + 1]

        def score(prefixes: Tensor, inputs=inputs, prompt=prompt) -> Tensor:
            count = len(prefixes)
            rows = torch.cat([prompt.expand(count, -1), prefixes.to(prompt.device)], dim=1)
            expanded = {name: value.expand(count, -1) for name, value in inputs.items()}
            logits = model(**expanded, decoder_input_ids=rows, use_cache=False).logits[:, -1]
            return logits_processor(rows, F.log_softmax(logits.float(), dim=-1))

        outputs = enumerate_sequences(
            score,
            set() if ends is None else set(ends.tolist()),
            generation_config.max_length - len(prompt),
            max_sequences=max_sequences,
        )
        scored = ((total / ranking.divisor(len(tokens)), tokens) for tokens, total in outputs)
        best = sorted(scored, key=lambda one: -one[0])[: generation_config.num_return_sequences]
        missing = generation_config.num_return_sequences - len(best)
        found += best + [(float("-inf"), ())] * missing
    return as_output(found, input_ids, generation_config)


def check_arguments(model: Any, logits_processor: Any, generation_config: Any) -> None:
    """Refuse what exhaustive search cannot honour.

    Args:
        model: to search with.
        logits_processor: made by generate().
        generation_config: made by generate().

    Raises:
        ValueError: if it samples, the model is a decoder alone, or a function says what may follow.
    """
    if not model.config.is_encoder_decoder:
        raise ValueError(
            f"exhaustive_search is for encoder-decoders, got {type(model).__name__}. "
            "Use enumerate_sequences with a function that scores prefixes."
        )
    if generation_config.do_sample:
        raise ValueError(
            "exhaustive_search does not sample, got do_sample=True. Pass do_sample=False."
        )
    if any(isinstance(one, PrefixConstrainedLogitsProcessor) for one in logits_processor):
        raise ValueError(
            "exhaustive_search cannot honour prefix_allowed_tokens_fn, which counts on beams. "
            "Use beam_search with it, or rule tokens out with suppress_tokens."
        )


def as_output(
    found: Sequence[tuple[float, tuple[int, ...]]], input_ids: Tensor, generation_config: Any
) -> Any:
    """Return hypotheses in the form of generate().

    Args:
        found: score and token ids of every row.
        input_ids: what the decoder started from, with a row for every beam.
        generation_config: of the call.

    Returns:
        Token ids, (rows, P + T), or a `GenerateBeamEncoderDecoderOutput` if asked for.
    """
    pad = generation_config._pad_token_tensor
    rows = [torch.tensor(tokens, dtype=torch.long) for _, tokens in found]
    places = [torch.full_like(row, index) for index, row in enumerate(rows)]
    pad_rows = torch.nn.utils.rnn.pad_sequence
    written = pad_rows(rows, batch_first=True, padding_value=0 if pad is None else int(pad))
    beams = len(input_ids) // (len(found) // generation_config.num_return_sequences)
    prompts = input_ids[::beams].repeat_interleave(generation_config.num_return_sequences, dim=0)
    sequences = torch.cat([prompts, written.to(prompts.device)], dim=1)
    if not generation_config.return_dict_in_generate:
        return sequences
    scores = torch.tensor([score for score, _ in found], device=sequences.device)
    output: dict[str, Any] = {
        "sequences": sequences,
        "sequences_scores": scores if generation_config.output_scores else None,
        "beam_indices": pad_rows(places, batch_first=True, padding_value=-1).to(sequences.device),
    }
    return GenerateBeamEncoderDecoderOutput(**output)
