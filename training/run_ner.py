"""Fine-tune a model, or train one from scratch, to label words: named entities, parts of speech.

    python training/run_ner.py --model_name_or_path path/to/encoder \\
        --train_file train.jsonl --validation_file dev.jsonl --output_dir runs/mine
    python training/run_ner.py --model_type seqmodels_text_encoder \\
        --train_file train.conll --validation_file dev.conll --output_dir runs/scratch
    accelerate launch training/run_ner.py ...

A row holds a list of words and a list of labels; .conll and .txt files have a word and its label on
each line. Sentences longer than the model can take are split in overlapping windows, so that every
word gets a label. Any model that AutoModelForTokenClassification loads will do. Everything that can
be refused is refused before training begins, and then nothing is written. An interrupted run goes
on where it stopped when the same command is given again. `--help` lists all options.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from finetune_arguments import FinetuneDataArguments
from finetune_data import Corpus, Part, check_columns, listed, rows_with_header
from finetune_run import FinetuneTask, command
from finetune_trainer import Loss, cross_entropy, softmax
from transformers import (
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    AutoModelForTokenClassification,
    DataCollatorForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_seqmodels.data.table_files import Row
from hf_seqmodels.data.tagged_files import is_tagged_file, read_tagged_sentences
from hf_seqmodels.data.word_labels import (
    Columns,
    labels_of_words,
    set_prefix_space,
    word_label_windows,
)
from hf_seqmodels.evaluation.named_entities import SCHEMES, entities, entity_scores

TEXT_COLUMNS = ("tokens", "words")
LABEL_COLUMNS = ("ner_tags", "tags", "labels")
ENTITY_SCORES = ("f1", "precision", "recall", "accuracy")


@dataclass
class DataTrainingArguments(FinetuneDataArguments):
    """Which columns hold words and labels, and how labels are spread over the tokens of a word."""

    text_column_name: str | None = field(
        default=None,
        metadata={
            "help": "Column of the words: a list, or a text that is split at blanks. Default: "
            "tokens or words."
        },
    )
    label_column_name: str | None = field(
        default=None,
        metadata={"help": "Column of the labels, one per word. Default: ner_tags, tags or labels."},
    )
    label_all_tokens: bool = field(
        default=False,
        metadata={
            "help": "Train on all tokens of a word, those after the first of B-X being I-X, and "
            "not only on the first."
        },
    )
    stride: int | None = field(
        default=None,
        metadata={
            "help": "Tokens that the windows of a long sentence share; default: a quarter of "
            "max_seq_length."
        },
    )
    scheme: str | None = field(
        default=None,
        metadata={
            "choices": list(SCHEMES),
            "help": "Count only entities that are well-formed in this scheme; default: as the "
            "script of CoNLL-2003 counts them.",
        },
    )
    return_entity_level_metrics: bool = field(
        default=True, metadata={"help": "Report the figures of each type of entity, too."}
    )


class TokenTask(FinetuneTask):
    """Labels of words."""

    script = "run_ner.py"
    option_class = DataTrainingArguments
    auto_class = AutoModelForTokenClassification
    head_classes = MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING
    model_kind = "a registered token classifier"

    options: DataTrainingArguments
    names: list[str]  # of the labels, by their ids

    @staticmethod
    def read_file(path: Path) -> Iterable[tuple[int, Row]]:
        """Return line number and row of a data file.

        Args:
            path: of the file.

        Returns:
            A row per sentence.
        """
        return read_tagged_sentences(path) if is_tagged_file(path) else rows_with_header(path)

    def read(self, corpus: Corpus, stored: PreTrainedConfig | None) -> None:
        """Find the columns, the words and the labels.

        Args:
            corpus: the parts of the data.
            stored: configuration of the checkpoint that the run goes on from, if any.
        """
        options = self.options
        text = _column(options.text_column_name, TEXT_COLUMNS, corpus, "text_column_name")
        label = _column(options.label_column_name, LABEL_COLUMNS, corpus, "label_column_name")
        check_columns(corpus, [text], "text_column_name")
        self.words = {name: _lists(part, text) for name, part in corpus.items()}
        labelled = {name: part for name, part in corpus.items() if label in part.columns}
        check_columns(
            {name: part for name, part in corpus.items() if name != "test"},
            [label],
            "label_column_name",
        )
        self.tags = {name: _lists(part, label) for name, part in labelled.items()}
        for name, part in labelled.items():
            self._check_counts(name, part)
        self.names = self._label_names(stored)
        self.has_entities = _are_entity_tags(self.names)
        self.columns: dict[str, Columns] = {}

    def _check_counts(self, name: str, part: Part) -> None:
        rows = zip(self.words[name], self.tags[name], part.places, strict=True)
        for words, tags, place in rows:
            if len(words) != len(tags):
                raise ValueError(
                    f"{place}: a sentence must have one label per word, got {len(words)} words and "
                    f"{len(tags)} labels. Complete the row or leave it out."
                )
        if not any(self.words[name]):
            raise ValueError(f"the {name} part must hold at least one word, got none.")

    def _label_names(self, stored: PreTrainedConfig | None) -> list[str]:
        """Return the labels of the checkpoint if they cover those of the data, else of the data."""
        parts = self.tags.get("train"), self.tags.get("validation")
        seen = {tag for tags in parts for row in tags or () for tag in row}
        if stored is not None and stored.id2label:
            names = [str(stored.id2label[index]) for index in sorted(stored.id2label)]
            if seen <= {*names}:
                return names
        if "train" not in self.tags:
            raise ValueError(
                f"the checkpoint does not know the labels {listed(sorted(seen))} of the data. "
                "Pass --train_file to train it on them."
            )
        unknown = sorted(seen - {tag for row in self.tags["train"] for tag in row})
        if unknown:
            raise ValueError(
                f"the validation rows have labels that no training row has: {listed(unknown)}. "
                "A model cannot learn them; correct the rows or add training rows."
            )
        return sorted(seen)

    @property
    def metrics(self) -> Sequence[str]:
        """F1 of entities, or the share of right labels where they are not about entities."""
        return ENTITY_SCORES if self.has_entities else ("accuracy",)

    def training_texts(self, part: Part) -> Iterable[str]:
        """Return the sentences with blanks between words.

        Args:
            part: the training rows.

        Returns:
            Texts.
        """
        return [" ".join(words) for words in self.words[part.name]]

    def config_values(self) -> dict[str, Any]:
        """Return the labels as configurations hold them."""
        return {
            "id2label": dict(enumerate(self.names)),
            "label2id": {name: index for index, name in enumerate(self.names)},
        }

    def encode(
        self, part: Part, tokenizer: PreTrainedTokenizerBase, max_length: int | None
    ) -> datasets.Dataset:
        """Turn sentences into rows of tokens, long ones into several.

        Args:
            part: the rows.
            tokenizer: of the model.
            max_length: tokens of a window.

        Returns:
            Rows with labels, those of words that training never saw being skipped.
        """
        set_prefix_space(tokenizer)
        ids = {name: index for index, name in enumerate(self.names)}
        continuing = {
            ids[name]: ids["I" + name[1:]]
            for name in self.names
            if name[:1] == "B" and "I" + name[1:] in ids
        }
        tags = self.tags.get(part.name)
        columns = word_label_windows(
            tokenizer,
            self.words[part.name],
            tags and [[ids.get(tag, -100) for tag in row] for row in tags],
            max_length=max_length,
            stride=self.options.stride,
            label_all_tokens=self.options.label_all_tokens,
            continuing_labels=continuing if self.has_entities else {},
        )
        ours = ("sentence", "words", "positions")
        self.columns[part.name] = {name: columns[name] for name in ours}
        return datasets.Dataset.from_dict(
            {name: values for name, values in columns.items() if name not in ours}
        )

    def collator(
        self, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel
    ) -> DataCollatorForTokenClassification:
        """Return what pads rows and labels to a batch.

        Args:
            tokenizer: of the model.
            model: to train.

        Returns:
            The collator of transformers.
        """
        if self.options.pad_to_max_length:
            return DataCollatorForTokenClassification(
                tokenizer, padding="max_length", max_length=self.options.max_seq_length
            )
        return DataCollatorForTokenClassification(tokenizer)

    def loss(self) -> Loss:
        """Return the mean over all labelled tokens of a step."""
        return partial(cross_entropy, label_smoothing=self.args.label_smoothing_factor)

    def predicted(self, part: Part, predictions: np.ndarray) -> list[list[str]]:
        """Return the label of every word.

        Args:
            part: the rows.
            predictions: logits, (windows, T, C).

        Returns:
            One list per sentence.
        """
        best = predictions.argmax(axis=-1)
        rows = labels_of_words(best, self.columns[part.name], len(part))
        return [[self.names[index] for index in row] for row in rows]

    def score(self, part: Part, predictions: np.ndarray) -> dict[str, float]:
        """Compare predictions with labels.

        Args:
            part: the rows.
            predictions: logits, (windows, T, C).

        Returns:
            The figures; none for rows without labels.
        """
        if part.name not in self.tags:
            return {}
        right, found = self.tags[part.name], self.predicted(part, predictions)
        if self.has_entities:
            scores = entity_scores(found, right, scheme=self.options.scheme)
            return {name: scores[name] for name in ENTITY_SCORES}
        pairs = [
            one == other
            for tags, right_tags in zip(found, right, strict=True)
            for one, other in zip(tags, right_tags, strict=True)
        ]
        return {"accuracy": 100 * sum(pairs) / len(pairs)}

    def prediction_lines(self, part: Part, predictions: np.ndarray) -> Iterable[dict[str, Any]]:
        """Yield each sentence with its predicted labels, their probabilities and the entities.

        Args:
            part: the rows.
            predictions: logits, (windows, T, C).

        Yields:
            `tokens`, `labels` where the row has them, `prediction`, `probabilities` of the
            predicted labels, `entities` (type, first word, word after the last).
        """
        shares = labels_of_words(
            softmax(predictions).max(axis=-1), self.columns[part.name], len(part)
        )
        right = self.tags.get(part.name)
        for row, found in enumerate(self.predicted(part, predictions)):
            line: dict[str, Any] = {"tokens": self.words[part.name][row]}
            if right is not None:
                line["labels"] = right[row]
            line["prediction"] = found
            line["probabilities"] = [round(float(share), 6) for share in shares[row]]
            if self.has_entities:
                line["entities"] = [
                    {"type": kind, "start": start, "end": end}
                    for kind, start, end in entities(found, scheme=self.options.scheme)
                ]
            yield line

    def more_figures(self, part: Part, predictions: np.ndarray) -> dict[str, Any]:
        """Count entities by type.

        Args:
            part: the rows.
            predictions: logits, (windows, T, C).

        Returns:
            `entity_types`, if the rows have labels that are about entities.
        """
        wanted = self.options.return_entity_level_metrics and self.has_entities
        if not wanted or part.name not in self.tags:
            return {}
        found = self.predicted(part, predictions)
        scores = entity_scores(found, self.tags[part.name], scheme=self.options.scheme)
        return {"entity_types": {"part": part.name, **scores["types"]}}

    def card_examples(self, part: Part, predictions: np.ndarray) -> list[list[str]]:
        """Return sentences with the entities found in them.

        Args:
            part: the rows.
            predictions: logits, (windows, T, C).

        Returns:
            Pairs, three at most.
        """
        examples = []
        found = self.predicted(part, predictions)
        right = self.tags.get(part.name, found)
        for words, tags, right_tags in zip(self.words[part.name], found, right, strict=True):
            spans = entities(tags, scheme=self.options.scheme) if self.has_entities else []
            if spans and tags == right_tags and len(examples) < 3:
                written = [f"{' '.join(words[start:end])} ({kind})" for kind, start, end in spans]
                examples.append([" ".join(words), ", ".join(written)])
        return examples


def _column(chosen: str | None, usual: Sequence[str], corpus: Corpus, option: str) -> str:
    """Return the name of a column: the one chosen, or the first of the usual ones."""
    columns = next(iter(corpus.values())).columns
    fallback = usual[0] if option == "label_column_name" else None  # rows may lack labels
    name = chosen or next((name for name in usual if name in columns), fallback)
    if name is None:
        raise ValueError(
            f"{option}: cannot tell the column among {listed(columns)}. Pass --{option}."
        )
    return name


def _lists(part: Part, column: str) -> list[list[str]]:
    """Return a column of lists of texts; a text is split at blanks, numbers become names."""
    feature = (part.features or {}).get(column)
    names = getattr(getattr(feature, "feature", feature), "names", None)  # of a ClassLabel
    lists = []
    for row, place in zip(part.rows, part.places, strict=True):
        value = row.get(column)
        items = value.split() if isinstance(value, str) else value
        if not isinstance(items, list) or any(
            isinstance(item, bool) or not isinstance(item, str | int) for item in items
        ):
            raise ValueError(
                f"{place}: the column {column!r} must hold a list of texts, got {value!r}. Write "
                '["a", "b"], or a text with blanks between.'
            )
        lists.append(
            [names[item] if names and isinstance(item, int) else str(item) for item in items]
        )
    return lists


def _are_entity_tags(names: Sequence[str]) -> bool:
    """Tell whether labels are about entities: O, and a letter and a type."""
    try:
        return any(kind for kind in entities(names)) and "O" in names
    except ValueError:
        return False


if __name__ == "__main__":
    command(TokenTask)
