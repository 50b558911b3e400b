"""Heat maps of alignments."""

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hf_seqmodels.evaluation import Alignment


def plot_alignment(
    alignment: "Alignment", path: str | PathLike, *, title: str | None = None
) -> None:
    """Draw one alignment as a heat map and save it at `path`."""
    raise NotImplementedError


def plot_alignments(
    alignments: Sequence["Alignment"],
    path: str | PathLike,
    *,
    titles: Sequence[str] | None = None,
    num_columns: int | None = None,
) -> None:
    """Draw several alignments in one picture and save it at `path`."""
    raise NotImplementedError
