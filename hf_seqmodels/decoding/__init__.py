"""Decoding beyond generate(), for any encoder-decoder of transformers, mostly through generate().

Every name below is loaded on first use. What has `custom_generate` beside it is a function that
`model.generate(..., custom_generate=...)` takes, as do `n_best`, `decode_corpus` and the pipeline.

| name | what it does |
|---|---|
| `beam_search` | `custom_generate`: length and coverage penalties, groups, phrases to include |
| `exhaustive_search` | `custom_generate`: the best of all outputs, where the vocabulary is tiny |
| `enumerate_sequences` | all sequences with their log-probabilities |
| `encode_phrases`, `encode_bad_words` | token ids for `must_include` and for `bad_words_ids` |
| `TokenTrie`, `allowed_tokens_fn` | outputs of a closed list, for `prefix_allowed_tokens_fn` |
| `decode_minimum_risk`, `minimum_bayes_risk`, `RiskChoice` | the candidate most like all others |
| `replace_unknown_words` | source words in place of unknown tokens, along the attention |
| `PhraseAutomaton`, `Ranking` | what `beam_search` is made of: phrases, scores |
"""

from typing import TYPE_CHECKING

from hf_seqmodels.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from hf_seqmodels.decoding.exhaustive import enumerate_sequences, exhaustive_search
    from hf_seqmodels.decoding.minimum_risk import (
        RiskChoice,
        decode_minimum_risk,
        minimum_bayes_risk,
    )
    from hf_seqmodels.decoding.phrases import PhraseAutomaton, encode_bad_words, encode_phrases
    from hf_seqmodels.decoding.ranking import Ranking
    from hf_seqmodels.decoding.searching import beam_search
    from hf_seqmodels.decoding.tries import TokenTrie, allowed_tokens_fn
    from hf_seqmodels.decoding.unknown_words import replace_unknown_words

__all__ = [
    "PhraseAutomaton",
    "Ranking",
    "RiskChoice",
    "TokenTrie",
    "allowed_tokens_fn",
    "beam_search",
    "decode_minimum_risk",
    "encode_bad_words",
    "encode_phrases",
    "enumerate_sequences",
    "exhaustive_search",
    "minimum_bayes_risk",
    "replace_unknown_words",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "PhraseAutomaton": "phrases",
        "Ranking": "ranking",
        "RiskChoice": "minimum_risk",
        "TokenTrie": "tries",
        "allowed_tokens_fn": "tries",
        "beam_search": "searching",
        "decode_minimum_risk": "minimum_risk",
        "encode_bad_words": "phrases",
        "encode_phrases": "phrases",
        "enumerate_sequences": "exhaustive",
        "exhaustive_search": "exhaustive",
        "minimum_bayes_risk": "minimum_risk",
        "replace_unknown_words": "unknown_words",
    },
)
