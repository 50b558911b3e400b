"""What the example scripts of transformers report, computed again row by row, without padding.

Nothing here imports the package, so that it also serves where the package is missing.
"""

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor

from example_scripts import BLOCK_SIZE, MOST_TOKENS, PARTS, PLACES, rows_of

AUTO_CLASSES = {
    "run_clm": "AutoModelForCausalLM",
    "run_mlm": "AutoModelForMaskedLM",
    "run_glue": "AutoModelForSequenceClassification",
    "run_classification": "AutoModelForSequenceClassification",
    "run_ner": "AutoModelForTokenClassification",
    "run_qa": "AutoModelForQuestionAnswering",
    "run_swag": "AutoModelForMultipleChoice",
    "run_translation": "AutoModelForSeq2SeqLM",
    "run_summarization": "AutoModelForSeq2SeqLM",
}


def load(script: str, folder: Any, **options: Any) -> tuple[Any, Any]:
    """Return the model and the tokenizer that a script saved."""
    auto_class = getattr(transformers, AUTO_CLASSES[script])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
    return auto_class.from_pretrained(folder, **options), tokenizer


@torch.no_grad()
def computed_again(script: str, model: Any, tokenizer: Any) -> dict[str, Any]:
    """Return the loss of the validation rows, and what is predicted for the test rows, of the
    scripts for which that is a plain computation."""
    rows = rows_of(script)
    found: dict[str, Any] = {}
    if script in LOSSES:
        losses = [LOSSES[script](model, tokenizer, row) for row in rows[PARTS["validation"]]]
        found["loss"] = torch.cat(losses).mean().item()
    if script == "run_clm":
        found["loss"] = loss_of_blocks(model, tokenizer, rows[PARTS["validation"]])
    if script == "run_qa":
        answers = {row["id"]: answer(model, tokenizer, row) for row in rows[PARTS["test"]]}
        found["answers"] = answers
    if script in ("run_translation", "run_summarization"):
        found["texts"] = [written(model, tokenizer, row) for row in rows[PARTS["test"]]]
    return found


def surprise(logits: Tensor, targets: list[int]) -> Tensor:
    """Return -log p of each target: (T, V) -> (T)."""
    scores = logits.double().log_softmax(dim=-1)
    return -torch.stack([row[target] for row, target in zip(scores, targets, strict=True)])


def loss_of_blocks(model: Any, tokenizer: Any, lines: list[str]) -> float:
    """Return the mean over all lines in one row, cut into blocks; what is left over is dropped."""
    ids = [token for line in lines for token in tokenizer(f"{line}\n").input_ids]
    starts = range(0, len(ids) - BLOCK_SIZE + 1, BLOCK_SIZE)
    blocks = [ids[start : start + BLOCK_SIZE] for start in starts]
    losses = [surprise(model(torch.tensor([row])).logits[0, :-1], row[1:]) for row in blocks]
    return torch.cat(losses).mean().item()


def loss_of_class(model: Any, tokenizer: Any, row: dict[str, Any]) -> Tensor:
    """Return it for a sentence, (1); the labels are 0 and 1."""
    return surprise(model(**tokenizer(row["sentence"], return_tensors="pt")).logits, [row["label"]])


def loss_of_tags(model: Any, tokenizer: Any, row: dict[str, Any]) -> Tensor:
    """Return it for the first token of each word, (number of words)."""
    encoded = tokenizer(row["tokens"], is_split_into_words=True, return_tensors="pt")
    words = encoded.word_ids()
    firsts = [words.index(word) for word in range(len(row["tokens"]))]
    targets = [model.config.label2id[tag] for tag in row["ner_tags"]]
    return surprise(model(**encoded).logits[0, firsts], targets)


def loss_of_choice(model: Any, tokenizer: Any, row: dict[str, Any]) -> Tensor:
    """Return it for four endings, (1)."""
    endings = [f"{row['sent2']} {row[f'ending{index}']}" for index in range(len(PLACES))]
    encoded = tokenizer([row["sent1"]] * len(endings), endings, padding=True, return_tensors="pt")
    return surprise(
        model(**{key: value[None] for key, value in encoded.items()}).logits, [row["label"]]
    )


def loss_of_target(model: Any, tokenizer: Any, row: dict[str, Any]) -> Tensor:
    """Return it for the target of a source, (T)."""
    source, target = texts_of(row)
    labels = tokenizer(text_target=target).input_ids
    inputs = torch.tensor([[model.config.decoder_start_token_id, *labels[:-1]]])
    encoded = tokenizer(source, return_tensors="pt")
    return surprise(model(**encoded, decoder_input_ids=inputs).logits[0], labels)


def texts_of(row: dict[str, Any]) -> list[str]:
    """Return source and target."""
    return list(row.get("translation", row).values())


def written(model: Any, tokenizer: Any, row: dict[str, Any]) -> str:
    """Return what two beams write for a source."""
    encoded = tokenizer(texts_of(row)[0], return_tensors="pt")
    beams = model.generate(**encoded, num_beams=2, max_length=MOST_TOKENS)
    return tokenizer.decode(beams[0], skip_special_tokens=True).strip()


def answer(model: Any, tokenizer: Any, row: dict[str, Any]) -> str:
    """Return the words of the text between the best start and the best end."""
    encoded = tokenizer(row["question"], row["context"], return_tensors="pt")
    spans = tokenizer(row["question"], row["context"], return_offsets_mapping=True).offset_mapping
    output = model(**encoded)
    parts = [place for place, part in enumerate(encoded.sequence_ids()) if part == 1]
    pairs = [(start, end) for start in parts for end in parts if start <= end]
    starts, ends = output.start_logits[0], output.end_logits[0]
    start, end = max(pairs, key=lambda pair: (starts[pair[0]] + ends[pair[1]]).item())
    return row["context"][spans[start][0] : spans[end][1]]


LOSSES: dict[str, Callable[[Any, Any, dict[str, Any]], Tensor]] = {
    "run_glue": loss_of_class,
    "run_classification": loss_of_class,
    "run_ner": loss_of_tags,
    "run_swag": loss_of_choice,
    "run_translation": loss_of_target,
    "run_summarization": loss_of_target,
}
