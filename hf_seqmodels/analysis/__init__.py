"""Plots of alignments and learning curves; the only part of the package that imports matplotlib.

Every name below is loaded on first use, so that importing the package stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_seqmodels.analysis.alignment_plots import plot_alignment, plot_alignments
    from hf_seqmodels.analysis.learning_curves import plot_learning_curve

_HOME = {
    "plot_alignment": "alignment_plots",
    "plot_alignments": "alignment_plots",
    "plot_learning_curve": "learning_curves",
}

__all__ = ["plot_alignment", "plot_alignments", "plot_learning_curve"]


def __getattr__(name: str) -> Any:
    """Import the module that holds `name` on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
