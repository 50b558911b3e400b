"""Text in, batches out: reading pairs and documents, training tokenizers, padding and batching; and
a generator of dates.

Every name below is loaded on first use, so that importing the package stays light: reading needs
`datasets`, the dates need `babel`; the rest needs only torch, transformers and tokenizers.

| name | what it does |
|---|---|
| `read_pairs` | a JSON Lines, JSON, CSV or TSV file as a dataset of sources and targets |
| `read_documents`, `token_blocks` | documents for language models, rows of tokens from them |
| `read_texts` | one column of such a file, or the lines of a text file |
| `read_pharaoh`, `write_pharaoh` | word alignments, `0-0 1-2`, a line per pair of texts |
| `parse_pharaoh`, `format_pharaoh` | one such line |
| `link_tokens` | word alignments as links between tokens, to guide attention |
| `question_windows`, `QuestionCollator` | questions and windows of contexts, answers as spans |
| `word_label_windows`, `labels_of_words` | labels of words on rows of sub-words, and back |
| `train_tokenizer`, `TOKENIZER_MODELS` | char, symbol, word, bpe, wordpiece, unigram tokenizers |
| `Seq2SeqTokenizer` | a source and a target tokenizer as one |
| `Seq2SeqCollator`, `LanguageModelingCollator` | pad rows of token ids to a batch |
| `MultipleChoiceCollator` | pad questions to one number of choices as well |
| `MaskingCollator`, `MaskEpochs` | mask rows for masked language models, the same way anywhere |
| `WordStarts` | where words begin among the tokens of any tokenizer |
| `next_sentence_pairs`, `RowTemplate` | pairs of texts that follow one another or do not, as rows |
| `LengthGroupedBatchSampler` | batches of a fixed number of rows of similar length |
| `TokenBudgetBatchSampler` | batches of a fixed number of tokens, padding included |
| `with_bpe_dropout`, `ResampledPairs` | sub-words drawn anew at every reading of a pair |
| `ContiguousWindows` | a corpus as rows that go on from batch to batch |
| `generate_dates`, `date_splits` | dates as twenty locales write them |
| `DATE_LOCALES`, `DATE_FORMATS` | which locales, in which formats |
"""

from typing import TYPE_CHECKING

from hf_seqmodels.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from hf_seqmodels.data.batching import LengthGroupedBatchSampler, TokenBudgetBatchSampler
    from hf_seqmodels.data.choices import MultipleChoiceCollator
    from hf_seqmodels.data.collators import LanguageModelingCollator, Seq2SeqCollator
    from hf_seqmodels.data.context_windows import QuestionCollator, question_windows
    from hf_seqmodels.data.contiguous_batches import ContiguousWindows
    from hf_seqmodels.data.dates import DATE_FORMATS, DATE_LOCALES, date_splits, generate_dates
    from hf_seqmodels.data.documents import read_documents
    from hf_seqmodels.data.masking import MaskEpochs, MaskingCollator
    from hf_seqmodels.data.packing import token_blocks
    from hf_seqmodels.data.pharaoh import (
        format_pharaoh,
        parse_pharaoh,
        read_pharaoh,
        write_pharaoh,
    )
    from hf_seqmodels.data.readers import read_pairs, read_texts
    from hf_seqmodels.data.sentence_pairs import RowTemplate, next_sentence_pairs
    from hf_seqmodels.data.subword_dropout import ResampledPairs, with_bpe_dropout
    from hf_seqmodels.data.token_links import link_tokens
    from hf_seqmodels.data.tokenizer_training import TOKENIZER_MODELS, train_tokenizer
    from hf_seqmodels.data.word_labels import labels_of_words, word_label_windows
    from hf_seqmodels.data.word_starts import WordStarts
    from hf_seqmodels.models.tokenization_seq2seq import Seq2SeqTokenizer

__all__ = [
    "DATE_FORMATS",
    "DATE_LOCALES",
    "TOKENIZER_MODELS",
    "ContiguousWindows",
    "LanguageModelingCollator",
    "LengthGroupedBatchSampler",
    "MaskEpochs",
    "MaskingCollator",
    "MultipleChoiceCollator",
    "QuestionCollator",
    "ResampledPairs",
    "RowTemplate",
    "Seq2SeqCollator",
    "Seq2SeqTokenizer",
    "TokenBudgetBatchSampler",
    "WordStarts",
    "date_splits",
    "format_pharaoh",
    "generate_dates",
    "labels_of_words",
    "link_tokens",
    "next_sentence_pairs",
    "parse_pharaoh",
    "question_windows",
    "read_documents",
    "read_pairs",
    "read_pharaoh",
    "read_texts",
    "token_blocks",
    "train_tokenizer",
    "with_bpe_dropout",
    "word_label_windows",
    "write_pharaoh",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ContiguousWindows": "contiguous_batches",
        "DATE_FORMATS": "dates",
        "DATE_LOCALES": "dates",
        "LanguageModelingCollator": "collators",
        "LengthGroupedBatchSampler": "batching",
        "MaskEpochs": "masking",
        "MaskingCollator": "masking",
        "MultipleChoiceCollator": "choices",
        "ResampledPairs": "subword_dropout",
        "RowTemplate": "sentence_pairs",
        "QuestionCollator": "context_windows",
        "Seq2SeqCollator": "collators",
        "Seq2SeqTokenizer": ".models.tokenization_seq2seq",
        "TOKENIZER_MODELS": "tokenizer_training",
        "TokenBudgetBatchSampler": "batching",
        "WordStarts": "word_starts",
        "date_splits": "dates",
        "format_pharaoh": "pharaoh",
        "generate_dates": "dates",
        "next_sentence_pairs": "sentence_pairs",
        "labels_of_words": "word_labels",
        "link_tokens": "token_links",
        "parse_pharaoh": "pharaoh",
        "question_windows": "context_windows",
        "read_documents": "documents",
        "read_pairs": "readers",
        "read_pharaoh": "pharaoh",
        "read_texts": "readers",
        "token_blocks": "packing",
        "train_tokenizer": "tokenizer_training",
        "word_label_windows": "word_labels",
        "write_pharaoh": "pharaoh",
        "with_bpe_dropout": "subword_dropout",
    },
)
