"""Metrics, corpus decoding, n-best lists, alignments and answers for any model of transformers.

Every name below is loaded on first use, so that importing the package stays light: the metrics need
`evaluate`, `sacrebleu` and `jiwer`; the rest needs only torch, transformers and tqdm.

| name | what it does |
|---|---|
| `load_metric`, `metric_path`, `METRIC_NAMES` | corpus metrics as `evaluate` modules, offline |
| `decode_corpus` | source texts in, target texts out, in the order given |
| `n_best`, `Hypothesis` | the best outputs of each source with the model's own log-probabilities |
| `score_targets`, `TargetScore` | log-probabilities of given targets (forced decoding) |
| `alignments`, `Alignment` | cross-attention of each output token over the source tokens |
| `symmetrize` | links of words from models of both directions |
| `answer_questions`, `Answers`, `Answer` | answers to questions: pieces of their contexts |
| `best_answers` | the same from logits that are computed already |
| `entities` | the named entities of a tagged sentence |
| `corpus_perplexity`, `CorpusPerplexity` | perplexity of a text, every token once |
| `masked_token_figures`, `fill_masks` | how well masked tokens are told, and what is filled in |
| `EnsembleForSeq2SeqLM` | several models as one: the mean of their probabilities at every step |
"""

from typing import TYPE_CHECKING

from hf_seqmodels.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from hf_seqmodels.evaluation.alignment import Alignment
    from hf_seqmodels.evaluation.answer_spans import Answer, Answers, best_answers
    from hf_seqmodels.evaluation.attention_alignments import alignments
    from hf_seqmodels.evaluation.decoding import decode_corpus
    from hf_seqmodels.evaluation.ensembles import EnsembleForSeq2SeqLM
    from hf_seqmodels.evaluation.masked_tokens import (
        FilledMask,
        MaskedTokenFigures,
        fill_masks,
        masked_token_figures,
    )
    from hf_seqmodels.evaluation.metric_loading import METRIC_NAMES, load_metric, metric_path
    from hf_seqmodels.evaluation.n_best_lists import Hypothesis, n_best
    from hf_seqmodels.evaluation.named_entities import entities
    from hf_seqmodels.evaluation.perplexity import CorpusPerplexity, corpus_perplexity
    from hf_seqmodels.evaluation.question_answering import answer_questions
    from hf_seqmodels.evaluation.symmetrization import symmetrize
    from hf_seqmodels.evaluation.target_scoring import TargetScore, score_targets

__all__ = [
    "METRIC_NAMES",
    "Alignment",
    "Answer",
    "Answers",
    "CorpusPerplexity",
    "EnsembleForSeq2SeqLM",
    "FilledMask",
    "Hypothesis",
    "MaskedTokenFigures",
    "TargetScore",
    "alignments",
    "answer_questions",
    "best_answers",
    "corpus_perplexity",
    "decode_corpus",
    "entities",
    "fill_masks",
    "load_metric",
    "masked_token_figures",
    "metric_path",
    "n_best",
    "score_targets",
    "symmetrize",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "METRIC_NAMES": "metric_loading",
        "Alignment": "alignment",
        "Answer": "answer_spans",
        "Answers": "answer_spans",
        "CorpusPerplexity": "perplexity",
        "EnsembleForSeq2SeqLM": "ensembles",
        "FilledMask": "masked_tokens",
        "Hypothesis": "n_best_lists",
        "TargetScore": "target_scoring",
        "alignments": "attention_alignments",
        "answer_questions": "question_answering",
        "best_answers": "answer_spans",
        "corpus_perplexity": "perplexity",
        "decode_corpus": "decoding",
        "entities": "named_entities",
        "MaskedTokenFigures": "masked_tokens",
        "fill_masks": "masked_tokens",
        "masked_token_figures": "masked_tokens",
        "load_metric": "metric_loading",
        "metric_path": "metric_loading",
        "n_best": "n_best_lists",
        "score_targets": "target_scoring",
        "symmetrize": "symmetrization",
    },
)
