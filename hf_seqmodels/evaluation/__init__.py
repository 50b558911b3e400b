"""Metrics, corpus decoding, n-best lists and alignments for any encoder-decoder of transformers.

Every name below is loaded on first use, so that importing the package stays light: the metrics need
`evaluate`, `sacrebleu` and `jiwer`; the rest needs only torch, transformers and tqdm.

| name | what it does |
|---|---|
| `load_metric`, `metric_path`, `METRIC_NAMES` | corpus metrics as `evaluate` modules, without a network |
| `decode_corpus` | source texts in, target texts out, in the order given |
| `n_best`, `Hypothesis` | the best outputs of each source with the model's own log-probabilities |
| `score_targets`, `TargetScore` | log-probabilities of given targets (forced decoding) |
| `alignments`, `Alignment` | cross-attention of each output token over the source tokens |
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_seqmodels.evaluation.attention_alignments import Alignment, alignments
    from hf_seqmodels.evaluation.decoding import decode_corpus
    from hf_seqmodels.evaluation.metric_loading import METRIC_NAMES, load_metric, metric_path
    from hf_seqmodels.evaluation.n_best_lists import Hypothesis, n_best
    from hf_seqmodels.evaluation.target_scoring import TargetScore, score_targets

# A module never has the name of something public: importing it would put the module in its place.
_HOME = {
    "Alignment": "attention_alignments",
    "alignments": "attention_alignments",
    "decode_corpus": "decoding",
    "METRIC_NAMES": "metric_loading",
    "load_metric": "metric_loading",
    "metric_path": "metric_loading",
    "Hypothesis": "n_best_lists",
    "n_best": "n_best_lists",
    "TargetScore": "target_scoring",
    "score_targets": "target_scoring",
}

__all__ = [
    "METRIC_NAMES",
    "Alignment",
    "Hypothesis",
    "TargetScore",
    "alignments",
    "decode_corpus",
    "load_metric",
    "metric_path",
    "n_best",
    "score_targets",
]


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
