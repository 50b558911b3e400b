"""From texts to batches for a model, shared by decoding, scoring and alignments.

Shapes: B batch, S source length, T target length, R rows of a forced pass.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from hf_seqmodels.decoding.phrases import encode_phrases
from hf_seqmodels.models.pipeline_seq2seq_generation import (
    copies_words,
    pad_id_of,
    pad_rows,
    target_side,
)

# What the functions of this folder make themselves, or cannot hand on.
RESERVED_ARGUMENTS = {
    **dict.fromkeys(
        ("input_ids", "inputs", "inputs_embeds", "attention_mask", "encoder_outputs"),
        "it is made from the sources",
    ),
    **dict.fromkeys(
        ("decoder_input_ids", "decoder_inputs_embeds", "decoder_attention_mask"),
        "the rows are reordered by length; use decoder_start_token_id or forced_bos_token_id",
    ),
    **dict.fromkeys(
        ("return_dict_in_generate", "output_scores", "output_logits", "output_hidden_states"),
        "the result is texts; call model.generate for tensors",
    ),
    "output_attentions": "the result is texts; use alignments() for attention weights",
    "generation_config": "pass its settings one by one, as in **generation_config.to_diff_dict()",
    "streamer": "a corpus is decoded in batches",
}


@dataclass
class SourceBatch:
    """One batch of encoded sources.

    Args:
        positions: where its rows stand among all sources.
        sources: their texts.
        input_ids: token ids, (B, S).
        attention_mask: 1 = real token, (B, S).
    """

    positions: list[int]
    sources: list[str]
    input_ids: Tensor
    attention_mask: Tensor

    def select(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """Return the model's inputs with the given rows, in that order, repeats allowed."""
        index = torch.tensor(rows, device=self.input_ids.device)
        return {
            "input_ids": self.input_ids.index_select(0, index),
            "attention_mask": self.attention_mask.index_select(0, index),
        }


def check_texts_to_encode(name: str, texts: Any) -> list[str]:
    """Return the texts as a list.

    Args:
        name: what the caller calls them, for the error.
        texts: a sequence of texts.

    Returns:
        The texts.

    Raises:
        ValueError: if it is a bare text, or an entry is not a text.
    """
    if isinstance(texts, str):
        raise ValueError(f"{name} must be a list of texts, got one text. Pass [{texts!r}].")
    texts = list(texts)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(
                f"{name} must be texts, got {text!r} ({type(text).__name__}) at position {index}. "
                "Leave missing entries out or write the empty text ''."
            )
    return texts


def check_model(model: Any) -> None:
    """Refuse a model that is not an encoder-decoder with generate()."""
    if not getattr(model.config, "is_encoder_decoder", False) or not hasattr(model, "generate"):
        raise ValueError(
            "model must be an encoder-decoder with generate(), as AutoModelForSeq2SeqLM loads, "
            f"got {type(model).__name__}."
        )


def check_generate_arguments(arguments: dict[str, Any], *, refused: dict[str, str]) -> None:
    """Refuse arguments of generate() that cannot be honoured.

    Args:
        arguments: what the user wants to pass on.
        refused: reasons by name, beside `RESERVED_ARGUMENTS`.

    Raises:
        ValueError: naming the first such argument and the way out.
    """
    reasons = {**RESERVED_ARGUMENTS, **refused}
    for name in arguments:
        if name in reasons:
            raise ValueError(f"{name} cannot be passed on to generate(): {reasons[name]}.")


def encode_sources(
    tokenizer: Any, sources: Sequence[str], max_length: int | None
) -> list[list[int]]:
    """Return the token ids of every source, unpadded; one without any becomes an end token.

    Args:
        tokenizer: the tokenizer, source side.
        sources: the texts.
        max_length: longest source in tokens; the rest is cut off. None keeps everything.

    Returns:
        At least one token id per source.
    """
    if not sources:
        return []
    cut = {} if max_length is None else {"truncation": True, "max_length": max_length}
    rows = tokenizer(list(sources), padding=False, return_attention_mask=False, **cut)["input_ids"]
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else pad_id_of(tokenizer)
    return [list(row) or [end] for row in rows]


def encode_targets(
    tokenizer: Any,
    targets: Sequence[str | Sequence[int]],
    sources: Sequence[str] | None = None,
) -> list[list[int]]:
    """Return the token ids of every target, as the model would have to generate them.

    Args:
        tokenizer: the tokenizer, or the pair of tokenizers.
        targets: texts, or sequences of token ids, which are taken as they are.
        sources: one text for each target, where words can be copied; None copies none.

    Returns:
        Token ids per target: texts as the target tokenizer encodes labels, usually with an end
        token.

    Raises:
        ValueError: if targets is a bare text.
    """
    if isinstance(targets, str):
        raise ValueError(f"targets must be a list of texts, got one text. Pass [{targets!r}].")
    texts = [target for target in targets if isinstance(target, str)]
    side = target_side(tokenizer)
    encoded: Iterator[list[int]] = iter([])
    if texts and sources is not None and copies_words(tokenizer):
        pairs = zip(sources, targets, strict=True)
        chosen = [source for source, target in pairs if isinstance(target, str)]
        encoded = iter(tokenizer(chosen, text_target=texts, padding=False)["labels"])
    elif texts:
        call = {"text": texts} if side is not tokenizer else {"text_target": texts}
        encoded = iter(side(**call, padding=False)["input_ids"])
    return [
        list(next(encoded)) if isinstance(target, str) else [int(token) for token in target]
        for target in targets
    ]


def phrases_by_source(
    tokenizer: Any, must_include: Sequence[Sequence[Any]] | None, num_sources: int
) -> list[list[list[int]]] | None:
    """Return the token ids of the phrases that the output of each source must contain.

    Args:
        tokenizer: the tokenizer, or the pair of tokenizers.
        must_include: one list per source, of texts or of token ids; None means none.
        num_sources: number of sources.

    Returns:
        Token ids of the phrases of every source, or None.

    Raises:
        ValueError: if there is not one list per source, or a phrase cannot be encoded.
    """
    if must_include is None:
        return None
    if isinstance(must_include, str) or any(isinstance(entry, str) for entry in must_include):
        raise ValueError(
            f"must_include takes one list of phrases per source, got {must_include!r}. The same "
            "phrases for every source are [phrases] * len(sources)."
        )
    if len(must_include) != num_sources:
        raise ValueError(
            "must_include must have one list of phrases per source, "
            f"{num_sources}, got {len(must_include)}. A source without phrases has an empty list."
        )
    return [
        [
            encode_phrases(tokenizer, [phrase])[0] if isinstance(phrase, str) else list(phrase)
            for phrase in phrases
        ]
        for phrases in must_include
    ]


def batch_phrases(phrases: list[list[list[int]]] | None, batch: SourceBatch) -> dict[str, Any]:
    """Return the argument of `beam_search` for the sources of a batch, if there are phrases."""
    if phrases is None:
        return {}
    return {"must_include": [phrases[position] for position in batch.positions]}


def source_batches(
    tokenizer: Any,
    sources: Sequence[str],
    *,
    batch_size: int,
    max_source_length: int | None,
    device: torch.device,
    progress: bool,
    task: str,
    extra_lengths: Sequence[int] | None = None,
) -> Iterator[SourceBatch]:
    """Yield the sources in batches, the longest first, so that memory runs out at once or never.

    Args:
        tokenizer: the tokenizer, source side.
        sources: the texts.
        batch_size: rows per batch.
        max_source_length: longest source in tokens, or None.
        device: where the tensors go.
        progress: whether to show a bar that counts sources.
        task: name on the bar.
        extra_lengths: lengths of the targets where they are known; they break ties of the order.

    Yields:
        Batches that cover every source once.

    Raises:
        ValueError: if batch_size is not positive or the tokenizer cannot pad.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
    pad_id = pad_id_of(tokenizer)
    rows = encode_sources(tokenizer, sources, max_source_length)
    extra_lengths = extra_lengths if extra_lengths is not None else [0] * len(rows)
    order = sorted(range(len(rows)), key=lambda i: (len(rows[i]), extra_lengths[i]), reverse=True)
    with tqdm(total=len(rows), desc=task, unit="text", disable=not progress) as bar:
        for start in range(0, len(rows), batch_size):
            positions = order[start : start + batch_size]
            ids, attention_mask = pad_rows([rows[i] for i in positions], pad_id, device=device)
            texts = [sources[position] for position in positions]
            yield SourceBatch(positions, texts, ids, attention_mask)
            bar.update(len(positions))


@contextmanager
def evaluation_mode(model: Any, device: Any = None) -> Iterator[torch.device]:
    """Put the model into evaluation on a device, without gradients; leave it as it was found.

    Args:
        model: any module with a `device`.
        device: where to compute; the model comes back afterwards. None computes where it is.

    Yields:
        The device of the model.
    """
    home = model.device
    moves = device is not None and torch.device(device) != home
    training_modules = [module for module in model.modules() if module.training]
    try:
        model.eval()
        if moves:
            model.to(device)
        with torch.inference_mode():
            yield model.device
    finally:
        for module in training_modules:
            module.training = True
        if moves:
            model.to(home)


def longest_input(model: Any, tokenizer: Any) -> int | None:
    """Return how many tokens a model can take.

    Args:
        model: any model.
        tokenizer: of the model; its own limit counts, too.

    Returns:
        Tokens; None where there is no limit.
    """
    limits = [getattr(model.config.get_text_config(), "max_position_embeddings", None)]
    for module in model.modules():
        table = getattr(module, "position_embeddings", None)
        if isinstance(table, torch.nn.Embedding) and table.padding_idx is not None:
            # RoBERTa counts positions from the one behind the pad token's
            limits.append(table.num_embeddings - table.padding_idx - 1)
    if tokenizer.model_max_length < 1e9:  # transformers writes 1e30 for no limit
        limits.append(tokenizer.model_max_length)
    return min((limit for limit in limits if limit), default=None)
