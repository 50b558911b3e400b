"""A folder converted with one call or command: model, tokenizer and what stands beside them."""

import json

import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForNextSentencePrediction,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BertConfig,
    BertForPreTraining,
    BertModel,
    BertTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
)

from hf_seqmodels import (
    DecoderLMForCausalLM,
    TextEncoderForPreTraining,
    TextEncoderModel,
    TransformerSeq2SeqForConditionalGeneration,
)
from hf_seqmodels.conversion import convert_checkpoint
from hf_seqmodels.conversion.__main__ import main

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fine", "rain", "##y", "weather"]
SMALL = {"num_hidden_layers": 1, "hidden_size": 12, "num_attention_heads": 2}
BERT = {"vocab_size": len(WORDS), "intermediate_size": 20, "max_position_embeddings": 11, **SMALL}


@pytest.fixture
def bert_folder(tmp_path):
    """Both pretraining heads and a tokenizer, under the name of one head, as bert-base-uncased."""
    folder = tmp_path / "bert"
    BertForPreTraining(BertConfig(**BERT)).save_pretrained(folder)
    settings = json.loads((folder / "config.json").read_text())
    settings["architectures"] = ["BertForMaskedLM"]
    (folder / "config.json").write_text(json.dumps(settings))
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizer.from_pretrained(tmp_path / "vocab.txt").save_pretrained(folder)
    return folder


def assert_same_outputs(auto_class, one, other):
    """Assert that two folders give the same model and tokenizer, and return the class of one."""
    tokenizers = [AutoTokenizer.from_pretrained(folder) for folder in (one, other)]
    batches = [tokens(["fine rainy weather", "rain"], padding=True) for tokens in tokenizers]
    assert batches[0] == batches[1]
    batch = batches[0].convert_to_tensors("pt")
    models = [auto_class.from_pretrained(folder) for folder in (one, other)]
    with torch.no_grad():
        first, second = (model(**batch)[0] for model in models)
    is_real = batch["attention_mask"].bool() if first.dim() == 3 else ...
    torch.testing.assert_close(first[is_real], second[is_real], rtol=1e-5, atol=1e-6)
    return type(models[0])


def test_a_bert_folder_becomes_a_text_encoder_folder_and_back(bert_folder, tmp_path, capsys):
    main([str(bert_folder), str(tmp_path / "ours")])
    assert capsys.readouterr().out == f"Wrote TextEncoderForPreTraining to {tmp_path / 'ours'}.\n"
    for auto_class in (AutoModelForMaskedLM, AutoModelForNextSentencePrediction, AutoModel):
        found = assert_same_outputs(auto_class, tmp_path / "ours", bert_folder)
        assert found.__name__.startswith("TextEncoder")
    assert (tmp_path / "ours" / "modeling_text_encoder.py").is_file()
    again = convert_checkpoint(tmp_path / "ours", tmp_path / "again")
    assert isinstance(again, BertForPreTraining)
    assert_same_outputs(AutoModelForMaskedLM, tmp_path / "again", bert_folder)


def test_a_body_saved_without_a_pooler_stays_without_and_keeps_its_type(tmp_path):
    bert = BertModel(BertConfig(**BERT), add_pooling_layer=False).to(torch.bfloat16)
    bert.save_pretrained(tmp_path / "bert")
    converted = convert_checkpoint(tmp_path / "bert", tmp_path / "ours")
    assert isinstance(converted, TextEncoderModel) and converted.pooler is None
    assert converted.dtype == torch.bfloat16
    assert not (tmp_path / "ours" / "tokenizer_config.json").exists()
    assert convert_checkpoint(tmp_path / "ours", tmp_path / "again").pooler is None


def test_a_gpt2_folder_becomes_a_decoder_lm_folder_and_back(tmp_path):
    sizes = {"vocab_size": 29, "n_layer": 1, "n_embd": 12, "n_head": 2, "n_positions": 11}
    config = GPT2Config(**sizes, bos_token_id=28, eos_token_id=28)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    convert_checkpoint(tmp_path / "gpt2", tmp_path / "ours")
    convert_checkpoint(tmp_path / "ours", tmp_path / "again")
    names = ("gpt2", "ours", "again")
    models = [AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in names]
    assert isinstance(models[1], DecoderLMForCausalLM) and isinstance(models[2], GPT2LMHeadModel)
    ids = torch.tensor([[3, 7, 1, 28]])
    expected, *others = (model(ids).logits for model in models)
    for logits in others:
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-6)


def test_a_marian_folder_becomes_a_transformer_seq2seq_folder_and_back(tmp_path):
    sizes = {"vocab_size": 19, "d_model": 12, "max_position_embeddings": 11, "encoder_layers": 1}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "decoder_layers": 1}
    ids = {"pad_token_id": 18, "decoder_start_token_id": 18, "eos_token_id": 0}
    forced = {"forced_eos_token_id": 0, "activation_function": "swish"}
    config = MarianConfig(**sizes, **heads, **ids, **forced, encoder_ffn_dim=8, decoder_ffn_dim=8)
    MarianMTModel(config).save_pretrained(tmp_path / "marian")
    convert_checkpoint(tmp_path / "marian", tmp_path / "ours")
    convert_checkpoint(tmp_path / "ours", tmp_path / "again")
    names = ("marian", "ours", "again")
    models = [AutoModelForSeq2SeqLM.from_pretrained(tmp_path / name) for name in names]
    kinds = [TransformerSeq2SeqForConditionalGeneration, MarianMTModel]
    assert [type(model) for model in models[1:]] == kinds
    batch = {
        "input_ids": torch.tensor([[3, 7, 1, 0]]),
        "decoder_input_ids": torch.tensor([[18, 5]]),
    }
    expected, *others = (model(**batch).logits for model in models)
    for logits in others:
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-6)


def test_what_cannot_be_converted_is_refused_in_one_line(bert_folder, tmp_path, capsys):
    def message(folder, target=tmp_path / "new"):
        with pytest.raises(SystemExit) as ended:
            main([str(folder), str(target)])
        assert not (tmp_path / "new").exists()
        return str(ended.value)

    assert "goes into a new or empty folder" in message(bert_folder, bert_folder)
    assert "must hold a config.json" in message(tmp_path)
    config_file = bert_folder / "config.json"
    settings = json.loads(config_file.read_text())

    def with_settings(**changes):
        config_file.write_text(json.dumps(settings | changes))
        return message(bert_folder)

    assert "must be one of bert, gpt2, " in with_settings(model_type="bart")
    assert "must name one class of transformers" in with_settings(architectures=None)
    assert "must name one class of transformers" in with_settings(architectures=["BertForAll"])
    assert "hidden_act in 'gelu_new'" in with_settings(hidden_act="tanh")
    assert "got 50. Pass the ids of your tokenizer" in with_settings(eos_token_id=50)
    missing = with_settings(architectures=["BertForQuestionAnswering"])
    assert "missing qa_outputs.bias, qa_outputs.weight, left over bert.pooler.dense" in missing


def test_only_what_is_named_and_fits_is_taken_for_whole(bert_folder, tmp_path):
    model = convert_checkpoint(bert_folder, tmp_path / "ours")
    assert isinstance(model, TextEncoderForPreTraining)
    pooler = AutoModel.from_pretrained(bert_folder).pooler.dense.weight
    torch.testing.assert_close(model.model.pooler.dense.weight, pooler, rtol=0, atol=0)
