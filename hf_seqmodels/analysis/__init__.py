"""Alignments and learning curves to look at; the only part of the package that imports matplotlib.

Every name below is loaded on first use, so that importing the package stays light. Pages need
nothing but numpy, pictures matplotlib.

| name | what it does |
|---|---|
| `plot_alignment`, `plot_alignments` | heat maps of alignments as PNG, SVG or PDF |
| `write_alignment_page`, `render_alignment_page` | alignments as one interactive HTML page |
| `plot_learning_curve` | losses and a metric over the steps of training |
"""

from typing import TYPE_CHECKING

from hf_seqmodels.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from hf_seqmodels.analysis.alignment_pages import render_alignment_page, write_alignment_page
    from hf_seqmodels.analysis.alignment_plots import plot_alignment, plot_alignments
    from hf_seqmodels.analysis.learning_curves import plot_learning_curve

__all__ = [
    "plot_alignment",
    "plot_alignments",
    "plot_learning_curve",
    "render_alignment_page",
    "write_alignment_page",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "plot_alignment": "alignment_plots",
        "plot_alignments": "alignment_plots",
        "plot_learning_curve": "learning_curves",
        "render_alignment_page": "alignment_pages",
        "write_alignment_page": "alignment_pages",
    },
)
