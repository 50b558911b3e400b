"""What CTranslate2 computes with a converted TransformerSeq2Seq is what the model computes."""

import sys

import pytest
import torch

from hf_seqmodels import TransformerSeq2SeqConfig, TransformerSeq2SeqForConditionalGeneration
from hf_seqmodels.conversion import ctranslate2_from_transformer_seq2seq
from hf_seqmodels.data import train_tokenizer
from hf_seqmodels.models.tokenization_seq2seq import Seq2SeqTokenizer

WORDS = [f"w{index}" for index in range(14)]
GATED = {"gated_mlp": True, "hidden_act": "silu", "use_bias": False}
OPTIONS = {
    "post": {"norm_position": "post"},
    "learned_gelu": {
        "position_embedding": "learned",
        "hidden_act": "gelu",
        "scale_embedding": False,
    },
    "gated_rms": {**GATED, "norm_type": "rms", "use_output_bias": True},
    "without_biases": {"use_bias": False, "num_encoder_layers": 1, "num_decoder_layers": 3},
}


def pair():
    def tokenizer(words):
        return train_tokenizer([" ".join(words)], model="word", vocab_size=40)

    return Seq2SeqTokenizer.from_pair(tokenizer(WORDS), tokenizer(WORDS[:9]))


def make(tokenizer, **options):
    torch.manual_seed(0)
    shape = {"hidden_size": 24, "num_attention_heads": 4, "intermediate_size": 22}
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 2, "max_position_embeddings": 32}
    config = TransformerSeq2SeqConfig(
        vocab_size=len(tokenizer),
        decoder_vocab_size=len(tokenizer.target_tokenizer) + 2,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.bos_token_id,
        **{**shape, **layers, **options},
    )
    model = TransformerSeq2SeqForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.5, 0.5)
    return model


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_converted_model_scores_and_writes_the_same(options, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    tokenizer = pair()
    model = make(tokenizer, **options)
    ctranslate2_from_transformer_seq2seq(model, tokenizer, tmp_path / "converted")
    translator = ctranslate2.Translator(str(tmp_path / "converted"), intra_threads=1)
    sources = tokenizer(["w1 w5 w9 w2", "w7 w3"], padding=True, return_tensors="pt")
    rows = [tokenizer.convert_ids_to_tokens(ids[keep.bool()]) for ids, keep in zip(
        sources["input_ids"], sources["attention_mask"], strict=True)]  # fmt: skip
    target = tokenizer.target_tokenizer
    written = model.generate(**sources, max_new_tokens=7, num_beams=1)
    results = translator.translate_batch(rows, beam_size=1, max_decoding_length=7)
    for ids, result in zip(written.tolist(), results, strict=True):
        tokens = [target.convert_ids_to_tokens(index) or f"<filler {index}>" for index in ids[1:]]
        end = tokens.index(target.eos_token) if target.eos_token in tokens else len(tokens)
        assert result.hypotheses[0] == tokens[:end]
    wanted = [["w3", "w1", "w8"], ["w2", "w2", "w4"]]
    labels = torch.tensor(
        [[*target.convert_tokens_to_ids(row), target.eos_token_id] for row in wanted]
    )
    with torch.no_grad():
        logits = model(**sources, labels=labels).logits
    expected = logits.log_softmax(dim=-1).gather(-1, labels[..., None])[..., 0]
    scores = translator.score_batch(rows, wanted)
    computed = torch.tensor([score.log_probs for score in scores])
    torch.testing.assert_close(computed, expected, rtol=1e-4, atol=1e-4)


def test_what_ctranslate2_lacks_is_refused(tmp_path):
    pytest.importorskip("ctranslate2")
    tokenizer = pair()
    with pytest.raises(ValueError, match="position_embedding"):
        ctranslate2_from_transformer_seq2seq(
            make(tokenizer, position_embedding="rotary"), tokenizer, tmp_path / "converted"
        )
    with pytest.raises(ValueError, match="heads of queries, keys and values alike"):
        ctranslate2_from_transformer_seq2seq(
            make(tokenizer, num_key_value_heads=2), tokenizer, tmp_path / "converted"
        )
    model = make(tokenizer)
    model.config.eos_token_id = [2, 3]
    with pytest.raises(ValueError, match="ends outputs with one token"):
        ctranslate2_from_transformer_seq2seq(model, tokenizer, tmp_path / "converted")


def test_missing_ctranslate2_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    tokenizer = pair()
    with pytest.raises(ImportError, match="pip install ctranslate2"):
        ctranslate2_from_transformer_seq2seq(make(tokenizer), tokenizer, tmp_path / "converted")
