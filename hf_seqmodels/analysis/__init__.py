"""Plots of alignments and learning curves; the only part of the package that imports matplotlib.

Every name below is loaded on first use, so that importing the package stays light.
"""

from typing import TYPE_CHECKING

from hf_seqmodels.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from hf_seqmodels.analysis.alignment_plots import plot_alignment, plot_alignments
    from hf_seqmodels.analysis.learning_curves import plot_learning_curve

__all__ = ["plot_alignment", "plot_alignments", "plot_learning_curve"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "plot_alignment": "alignment_plots",
        "plot_alignments": "alignment_plots",
        "plot_learning_curve": "learning_curves",
    },
)
