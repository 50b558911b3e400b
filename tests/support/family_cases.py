"""What a model family brings to the contract tests: tiny configs, and rows to feed them.

A family adds one `Grid` to `GRIDS` in family_grids.py; every contract test then runs for it. A row
is one example without padding; `padded_rows.pad_rows` makes batches of rows, in any layout of
padding.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights

from hf_seqmodels.auto_classes import FAMILIES, Family

Row = dict[str, Tensor]


@dataclass(frozen=True)
class Side:
    """One token sequence that a model reads, and the names that go with it.

    Args:
        tokens: argument that takes the ids, (B, S).
        keep: argument that takes 1 at real tokens, (B, S).
        embeds: argument that takes embeddings instead of ids, (B, S, E).
        vocab_size: attribute of the config with the number of ids.
        outputs: outputs with one vector per token of this side, (B, S, ...).
        aligned: inputs with one value per token, -100 at padding (labels).
        kinds: inputs with one value per token, any at padding (kinds of tokens).
        is_causal: whether a token is hidden from the outputs before it.
    """

    tokens: str
    keep: str
    embeds: str
    vocab_size: str = "vocab_size"
    outputs: tuple[str, ...] = ()
    aligned: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    is_causal: bool = False


@dataclass(frozen=True)
class Grid:
    """The cases of one family.

    Args:
        model_type: of a row of the table in hf_seqmodels/auto_classes.py.
        auto_class: Auto class of the head that the cases build.
        sides: what the model reads; the side that is written, if any, comes last.
        make_rows: rows without padding, of different lengths, from a config and a number of rows, 3
            by default.
        base: config options of every case.
        representatives: {case: options}, a few dozen that cover every value of every option.
        full: {group: {case: options}}, the product of the options; one test item runs one group.
        fixed_fields: config fields that have one legal value.
        tiny_vocabulary: options that leave five tokens to write, so that a test can enumerate all
            sequences.
        refused_caches: values of `cache_implementation` that do not apply.
        no_dropout: options that turn off every dropout and whatever else training alone adds but
            label smoothing.
        dropout: options that turn dropout on, in every case.
        keeps_ids: whether the ids of the first side stay where embeddings take their place, for a
            config, since words of theirs are copied.
        has_holes: whether padding may stand between the tokens of a row, for a config.
        ties: names of the parameters of the head that a config makes one, in sets.
        label_shift: positions that the loss moves labels by against logits, 1 where the model reads
            its labels as they are.
        generates: whether the head has generate(), with a cache.
        has_reference: whether the config has `implementation`, "fast" or "reference".
    """

    model_type: str
    auto_class: type[Any]
    sides: tuple[Side, ...]
    make_rows: Callable[..., list[Row]]
    base: Mapping[str, Any]
    representatives: Mapping[str, Mapping[str, Any]]
    full: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    fixed_fields: frozenset[str] = frozenset()
    tiny_vocabulary: Mapping[str, Any] = field(default_factory=dict)
    refused_caches: tuple[str, ...] = ()
    no_dropout: Mapping[str, Any] = field(default_factory=dict)
    dropout: Mapping[str, Any] = field(default_factory=dict)
    keeps_ids: Callable[[PreTrainedConfig], bool] = lambda config: False
    has_holes: Callable[[PreTrainedConfig], bool] = lambda config: True
    ties: Callable[[PreTrainedConfig], list[set[str]]] = lambda config: []
    label_shift: int = 0
    generates: bool = True
    has_reference: bool = True

    @property
    def family(self) -> Family:
        """The row of the table that these cases belong to."""
        return next(family for family in FAMILIES if family.model_type == self.model_type)

    @property
    def model_class(self) -> type[PreTrainedModel]:
        """The class of the head."""
        return self.family.model_classes[self.auto_class]


@dataclass(frozen=True)
class Case:
    """One tiny config of a family.

    Args:
        id: name in the test's id.
        grid: the family's grid.
        options: what the case adds to the grid's base.
    """

    id: str
    grid: Grid
    options: Mapping[str, Any]

    @property
    def written_side(self) -> Side:
        """The side whose tokens the model predicts."""
        return self.grid.sides[-1]

    def config(self, **changes) -> PreTrainedConfig:
        """Return a new config, with other options where the test needs them."""
        options = {**self.grid.base, **self.options, **changes}
        return self.grid.family.config_class(**options)

    def model(self, *, dtype: torch.dtype = torch.float64, seed: int = 0, **changes):
        """Return a new model in evaluation mode, every parameter drawn at random.

        The initialisation of the family leaves biases at zero, which would hide a bias that is
        added twice or not at all.

        Args:
            dtype: of the parameters.
            seed: of the parameters.
            changes: to the config.
        """
        with no_init_weights():
            model = self.grid.model_class(self.config(**changes)).to(dtype).eval()
        model.tie_weights()
        randomize(model, seed=seed)
        return model

    def rows(self, config: PreTrainedConfig | None = None) -> list[Row]:
        """Return rows without padding, of different lengths.

        Args:
            config: of the model at hand, to save making one.
        """
        return self.grid.make_rows(self.config() if config is None else config)

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Say in a failure which case of a group it was."""
        try:
            yield
        except Exception as error:
            raise AssertionError(f"{self.id} {dict(self.options)}: {error}") from error


@dataclass(frozen=True)
class Group:
    """Cases that one test item runs one after the other; building a test item costs more than a
    tiny model."""

    id: str
    cases: tuple[Case, ...]


def embedding_tables(case: Case, model) -> dict[str, nn.Module]:
    """Return {argument of the ids: embedding table} of every side."""
    tables = {case.grid.sides[0].tokens: model.get_input_embeddings()}
    if len(case.grid.sides) == 2:
        tables[case.written_side.tokens] = model.get_decoder().get_input_embeddings()
    return tables


def randomize(model: PreTrainedModel, *, seed: int):
    """Draw every parameter from U(-0.5, 0.5), on the model's own type."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            values = torch.rand(parameter.shape, generator=generator, dtype=torch.float64) - 0.5
            parameter.copy_(values)


def representatives_of(grid: Grid) -> list[Case]:
    """Return the few cases that cover every option."""
    return [Case(name, grid, options) for name, options in grid.representatives.items()]


def full_groups_of(grid: Grid) -> list[Group]:
    """Return the product of the options, in groups."""
    return [
        Group(name, tuple(Case(case, grid, options) for case, options in cases.items()))
        for name, cases in grid.full.items()
    ]
