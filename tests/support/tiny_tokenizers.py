"""Tiny tokenizers of the two kinds that encoders have, over texts in several scripts."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import BertTokenizerFast, PreTrainedTokenizerFast

from hf_seqmodels.data import train_tokenizer

TEXTS = [
    "Where was Anna Bell born in the year of the great fire? She was born in Old York.",
    "Zoe\u0308 went to a cafe\u0301 in Kraków with naïve José.",  # marks that are characters
    "東京は日本の首都です。首都は東京。",
    "القاهرة هي عاصمة مصر وأكبر مدينة",
    "हिन्दी में नमस्ते",
    "We saw 👩‍👩‍👧 and 🇫🇷 and 😀 there .",
]


def bert_tokenizer(**options):
    """WordPiece as BERT has it: lower case, accents dropped, CJK characters alone, [CLS] [SEP]."""
    trained = train_tokenizer(
        TEXTS, model="wordpiece", style="bert", lowercase=True, vocab_size=190
    )
    return BertTokenizerFast(vocab=trained.get_vocab(), **options)


def roberta_tokenizer(*, trim_offsets=True, add_prefix_space=False, **options):
    """Byte-level BPE as RoBERTa has it, with pairs as <s> a </s></s> b </s>."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=special,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    backend.train_from_iterator(TEXTS, trainer)
    backend.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=trim_offsets, add_prefix_space=add_prefix_space
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        cls_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
        model_input_names=["input_ids", "attention_mask"],
        **options,
    )


TOKENIZERS = {
    "bert": bert_tokenizer,
    "roberta": roberta_tokenizer,
    "roberta_untrimmed": lambda: roberta_tokenizer(trim_offsets=False),
    "bert_left": lambda: bert_tokenizer(padding_side="left"),
}
