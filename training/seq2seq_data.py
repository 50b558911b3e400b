"""Pairs of text for run_seq2seq.py: read, tag, split, group, and turn into token ids."""

import hashlib
import logging
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
from script_data import data_files, load_named_dataset
from seq2seq_arguments import DataTrainingArguments
from transformers import PreTrainedTokenizerBase

from hf_seqmodels.data import (
    ResampledPairs,
    link_tokens,
    parse_pharaoh,
    read_pairs,
    with_bpe_dropout,
)

logger = logging.getLogger("run_seq2seq")

SPLIT_SEED = 0  # not the seed of the run: runs with different seeds hold out the same rows


@dataclass
class Example:
    """One source with everything it may become, and the other columns of its row."""

    source: str
    references: list[str]
    columns: dict[str, Any] = field(default_factory=dict)


@dataclass
class Corpus:
    """The parts of the data, each possibly empty, and where they came from."""

    train: list[Example] = field(default_factory=list)
    validation: list[Example] = field(default_factory=list)
    test: list[Example] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    origins: dict[str, dict[str, Any]] = field(default_factory=dict)


def load_corpus(options: DataTrainingArguments) -> Corpus:
    """Read all data of a run.

    Args:
        options: the data options.

    Returns:
        Training rows one target each; validation and test rows one source each with all its
        references.

    Raises:
        ValueError: if a file, a column or a row is not as the options say.
    """
    corpus = Corpus()
    for split, examples in _read_splits(options, corpus.origins).items():
        setattr(corpus, split, examples)
    corpus.train = one_target_each(corpus.train[: options.max_train_samples])
    if corpus.train and not corpus.validation and options.validation_split:
        corpus.train, corpus.validation = split_by_source(corpus.train, options.validation_split)
        corpus.origins["validation"] = {"name": "held out from the training data"}
    corpus.validation = group_by_source(corpus.validation)[: options.max_eval_samples]
    corpus.test = group_by_source(corpus.test)[: options.max_predict_samples]
    if options.tag_columns:
        corpus.tags = sorted({tag for row in corpus.train for tag in row_tags(row, options)})
    for split in ("train", "validation", "test"):
        if examples := getattr(corpus, split):
            corpus.origins[split]["rows"] = len(examples)
    _report_overlap(corpus)
    return corpus


def _read_splits(options: DataTrainingArguments, origins: dict) -> dict[str, list[Example]]:
    files = data_files(options)
    splits = {}
    if options.dataset_name:
        for split, rows in _download_splits(options).items():
            splits[split] = [_example(row, options) for row in rows]
            origins[split] = {"name": options.dataset_name}
        return splits
    for split, path in files.items():
        rows = read_pairs(path, **_column_options(options))
        splits[split] = [_example(row, options) for row in rows]
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        origins[split] = {"name": Path(path).name, "sha256": digest}
    return splits


def _download_splits(options: DataTrainingArguments) -> dict[str, Iterable[dict[str, Any]]]:
    """Load a dataset by name and give its rows the columns `source` and `target`."""
    parts = load_named_dataset(options)
    return {
        split: _named_columns(parts[split], options)
        for split in ("train", "validation", "test")
        if split in parts
    }


def _named_columns(rows: datasets.Dataset, options: DataTrainingArguments) -> list[dict[str, Any]]:
    if options.source_lang or options.target_lang:
        column, names = "translation", (options.source_lang, options.target_lang)
        rows = rows.flatten() if column in rows.column_names else rows
        source, target = (f"{column}.{name}" for name in names)
    else:
        source = options.source_column or "source"
        target = options.target_column or "target"
    missing = [name for name in (source, target) if name not in rows.column_names]
    if missing:
        raise ValueError(
            f"dataset {options.dataset_name!r} has no column {' or '.join(missing)}; it has "
            f"{', '.join(rows.column_names)}. Pass --source_column and --target_column, or "
            "--source_lang and --target_lang for a `translation` column."
        )
    return [
        {
            **{k: v for k, v in row.items() if k not in (source, target)},
            "source": row[source],
            "target": row[target],
        }
        for row in rows
    ]


def _column_options(options: DataTrainingArguments) -> dict[str, str | None]:
    names = ("source_column", "target_column", "source_lang", "target_lang")
    return {name: getattr(options, name) for name in names}


def _example(row: dict[str, Any], options: DataTrainingArguments) -> Example:
    """Make an example of a row with `source`, `target` and other columns; tags go in front."""
    targets = row["target"] if isinstance(row["target"], list) else [row["target"]]
    columns = {name: value for name, value in row.items() if name not in ("source", "target")}
    example = Example(row["source"], targets, columns)
    tags = row_tags(example, options)
    example.source = "".join(tags) + row["source"]
    return example


def row_tags(example: Example, options: DataTrainingArguments) -> list[str]:
    """Return the tags of a row: `<V>`, `<PST>` for a tag column that holds `V;PST`.

    Args:
        example: a row with its columns.
        options: gives tag_columns and tag_separator.

    Returns:
        The tags in the order of the columns.

    Raises:
        ValueError: if a tag column is missing or holds no text.
    """
    tags = []
    for name in options.tag_columns or ():
        value = example.columns.get(name)
        if not isinstance(value, str):
            present = ", ".join(example.columns) or "none besides source and target"
            raise ValueError(
                f"tag_columns names columns of text, but {name!r} of the row with source "
                f"{example.source!r} holds {value!r}. Other columns: {present}."
            )
        tags += [f"<{piece}>" for piece in value.split(options.tag_separator) if piece]
    return tags


def one_target_each(examples: Iterable[Example]) -> list[Example]:
    """Write a row with several references as several rows with one.

    Args:
        examples: rows with one or more references.

    Returns:
        Rows with one reference, in order.
    """
    return [
        Example(example.source, [reference], example.columns)
        for example in examples
        for reference in example.references
    ]


def group_by_source(examples: Iterable[Example]) -> list[Example]:
    """Write the rows of one source as one row with all references, in order of first appearance.

    Args:
        examples: rows, sources may repeat.

    Returns:
        One row for each source, with the columns of its first row.
    """
    groups: dict[str, Example] = {}
    for example in examples:
        group = groups.setdefault(example.source, Example(example.source, [], example.columns))
        group.references += [text for text in example.references if text not in group.references]
    return list(groups.values())


def split_by_source(
    examples: Sequence[Example], size: float, *, seed: int = SPLIT_SEED
) -> tuple[list[Example], list[Example]]:
    """Hold out some of the distinct sources with all their rows.

    Args:
        examples: the rows.
        size: share (below 1) or number of distinct sources to hold out.
        seed: of the choice.

    Returns:
        The rows that stay and the rows held out, each in the order given.

    Raises:
        ValueError: if nothing would stay or be held out.
    """
    sources = list(dict.fromkeys(example.source for example in examples))
    num_held_out = round(size * len(sources)) if size < 1 else int(size)
    num_held_out = max(num_held_out, 1)
    if size < 0 or num_held_out >= len(sources):
        raise ValueError(
            f"validation_split must leave sources on both sides, got {size:g} of {len(sources)} "
            "distinct training sources. Choose a smaller one, pass --validation_file, or 0 for no "
            "validation."
        )
    held_out = set(random.Random(seed).sample(sources, num_held_out))
    stay = [example for example in examples if example.source not in held_out]
    return stay, [example for example in examples if example.source in held_out]


def _report_overlap(corpus: Corpus) -> None:
    seen = {example.source for example in corpus.train}
    for split in ("validation", "test"):
        examples = getattr(corpus, split)
        shared = sum(example.source in seen for example in examples)
        if shared:
            logger.warning(
                f"{shared} of {len(examples)} {split} sources also occur in the training data."
            )


def encode_pairs(
    examples: Sequence[Example],
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_source_length: int | None = None,
    max_target_length: int | None = None,
    source_prefix: str = "",
    name: str = "training",
) -> datasets.Dataset:
    """Turn examples into token ids; the first reference becomes the labels.

    Args:
        examples: the rows.
        tokenizer: called with the sources, and with the targets as `text_target`.
        max_source_length: longer sources are cut, with a warning that counts them; None cuts
            nothing.
        max_target_length: the same for targets.
        source_prefix: text put before every source.
        name: how the warning calls the rows.

    Returns:
        A dataset with `input_ids`, `attention_mask` and `labels`.
    """
    sources = [source_prefix + example.source for example in examples]
    targets = [example.references[0] for example in examples]
    both = tokenizer(sources, text_target=targets, truncation=False, verbose=False)
    encoded = {"source": both["input_ids"], "target": both["labels"]}
    limits = {"source": max_source_length, "target": max_target_length}
    for side, limit in limits.items():
        too_long = [row for row, ids in enumerate(encoded[side]) if limit and len(ids) > limit]
        if too_long:
            logger.warning(
                f"{len(too_long)} of {len(examples)} {name} {side}s have more than {limit} tokens "
                "and are cut."
            )
            cut = tokenizer(
                [sources[row] for row in too_long],
                text_target=[targets[row] for row in too_long],
                truncation=True,
                max_length=limit,
            )["input_ids" if side == "source" else "labels"]
            for row, ids in zip(too_long, cut, strict=True):
                encoded[side][row] = ids
    return datasets.Dataset.from_dict(
        {
            "input_ids": encoded["source"],
            "attention_mask": [[1] * len(ids) for ids in encoded["source"]],
            "labels": encoded["target"],
        }
    )


def encode_corpus(
    corpus: Corpus, tokenizer: PreTrainedTokenizerBase, options: DataTrainingArguments
) -> dict[str, datasets.Dataset]:
    """Turn every part of the data into token ids; validation and test in the order of `by_length`.

    Args:
        corpus: the data.
        tokenizer: of both sides.
        options: give the length limits and the prefix of the sources.

    Returns:
        One dataset for each part that has rows.
    """
    parts = {
        "train": corpus.train,
        "validation": by_length(corpus.validation),
        "test": by_length(corpus.test),
    }
    encoded = {
        part: encode_pairs(
            examples,
            tokenizer,
            max_source_length=options.max_source_length,
            max_target_length=options.max_target_length,
            source_prefix=options.source_prefix,
            name=part,
        )
        for part, examples in parts.items()
        if examples
    }
    if options.alignment_column and corpus.train:
        links = encode_alignments(corpus.train, tokenizer, options.alignment_column)
        encoded["train"] = encoded["train"].add_column("alignments", links)
    return encoded


def encode_alignments(
    examples: Sequence[Example], tokenizer: PreTrainedTokenizerBase, column: str
) -> list[list[int]]:
    """Turn the word alignments of examples into links between tokens.

    Args:
        examples: rows with one reference each.
        tokenizer: of both sides.
        column: holds the alignments.

    Returns:
        Source and target token of every link in turn, per example.

    Raises:
        ValueError: if a row has no alignment, or one that does not fit its texts.
    """
    links = []
    for number, example in enumerate(examples):
        line = example.columns.get(column)
        if not isinstance(line, str):
            raise ValueError(
                f"alignment_column={column!r} must hold word alignments such as '0-0 1-2', got "
                f"{line!r} in training row {number}. The other columns are "
                f"{', '.join(example.columns) or 'none'}."
            )
        links.append(parse_pharaoh(line))
    rows = link_tokens(
        tokenizer,
        [example.source for example in examples],
        [example.references[0] for example in examples],
        links,
    )
    return [[token for link in row for token in link] for row in rows]


def resample_corpus(
    examples: Sequence[Example], tokenizer: PreTrainedTokenizerBase, options: DataTrainingArguments
) -> ResampledPairs:
    """Turn training pairs into rows that are cut into sub-words anew at every reading.

    Args:
        examples: rows with one reference each.
        tokenizer: of both sides; stays without dropout itself.
        options: give bpe_dropout, the length limits and the prefix of the sources.

    Returns:
        The rows.
    """
    return ResampledPairs(
        [options.source_prefix + example.source for example in examples],
        [example.references[0] for example in examples],
        with_bpe_dropout(tokenizer, options.bpe_dropout),
        max_source_length=options.max_source_length,
        max_target_length=options.max_target_length,
    )


def by_length(examples: Sequence[Example]) -> list[Example]:
    """Sort by source length, so that the batches of an evaluation hold rows of like length.

    Args:
        examples: rows with distinct sources.

    Returns:
        The same rows, short sources first.
    """
    return sorted(examples, key=lambda example: len(example.source))


def row_lengths(rows: datasets.Dataset) -> list[tuple[int, int]]:
    """Return source and target length of every row, in tokens.

    Args:
        rows: encoded pairs.

    Returns:
        One pair per row.
    """
    return [
        (len(source), len(target))
        for source, target in zip(rows["input_ids"], rows["labels"], strict=True)
    ]
