"""Tiny tokenizers of the two kinds that encoders have, over texts in several scripts."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import BertTokenizerFast, PreTrainedTokenizerFast

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
    trained = BertTokenizerFast(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = trained.backend_tokenizer.normalizer
    backend.pre_tokenizer = trained.backend_tokenizer.pre_tokenizer
    trainer = trainers.WordPieceTrainer(
        vocab_size=190, special_tokens=tokens, show_progress=False, continuing_subword_prefix="##"
    )
    backend.train_from_iterator(TEXTS, trainer)
    return BertTokenizerFast(vocab=backend.get_vocab(), **options)


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
