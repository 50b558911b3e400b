"""Metrics, corpus decoding, n-best lists and alignments for any encoder-decoder of transformers.

Every name below is loaded on first use, so that importing the package stays light: the metrics need
`evaluate`, `sacrebleu` and `jiwer`; the rest needs only torch, transformers and tqdm.

| name | what it does |
|---|---|
| `load_metric`, `metric_path`, `METRIC_NAMES` | corpus metrics as `evaluate` modules, offline |
| `decode_corpus` | source texts in, target texts out, in the order given |
| `n_best`, `Hypothesis` | the best outputs of each source with the model's own log-probabilities |
| `score_targets`, `TargetScore` | log-probabilities of given targets (forced decoding) |
| `alignments`, `Alignment` | cross-attention of each output token over the source tokens |
| `corpus_perplexity`, `CorpusPerplexity` | perplexity of a text, every token once |
| `EnsembleForSeq2SeqLM` | several models as one: the mean of their probabilities at every step |
"""

from typing import TYPE_CHECKING

from hf_seqmodels.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from hf_seqmodels.evaluation.alignment import Alignment
    from hf_seqmodels.evaluation.attention_alignments import alignments
    from hf_seqmodels.evaluation.decoding import decode_corpus
    from hf_seqmodels.evaluation.ensembles import EnsembleForSeq2SeqLM
    from hf_seqmodels.evaluation.metric_loading import METRIC_NAMES, load_metric, metric_path
    from hf_seqmodels.evaluation.n_best_lists import Hypothesis, n_best
    from hf_seqmodels.evaluation.perplexity import CorpusPerplexity, corpus_perplexity
    from hf_seqmodels.evaluation.target_scoring import TargetScore, score_targets

__all__ = [
    "METRIC_NAMES",
    "Alignment",
    "CorpusPerplexity",
    "EnsembleForSeq2SeqLM",
    "Hypothesis",
    "TargetScore",
    "alignments",
    "corpus_perplexity",
    "decode_corpus",
    "load_metric",
    "metric_path",
    "n_best",
    "score_targets",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "METRIC_NAMES": "metric_loading",
        "Alignment": "alignment",
        "CorpusPerplexity": "perplexity",
        "EnsembleForSeq2SeqLM": "ensembles",
        "Hypothesis": "n_best_lists",
        "TargetScore": "target_scoring",
        "alignments": "attention_alignments",
        "corpus_perplexity": "perplexity",
        "decode_corpus": "decoding",
        "load_metric": "metric_loading",
        "metric_path": "metric_loading",
        "n_best": "n_best_lists",
        "score_targets": "target_scoring",
    },
)
