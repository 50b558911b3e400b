"""Real weights: all-MiniLM-L6-v2 as a TextEncoder, in sentence-transformers and in training."""

import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertModel,
)

from equal_training import loss_curve
from hf_seqmodels import (
    TextEncoderConfig,
    TextEncoderForSequenceClassification,
    TextEncoderModel,
)
from hf_seqmodels.conversion import convert_checkpoint
from minilm import minilm_folder

pytestmark = pytest.mark.slow
SENTENCES = [
    "A man is playing a guitar on the stage of a small club, and people dance.",
    "Somebody makes music.",
    "The stock market fell sharply on Monday.",
    "Übermorgen gibt es schöne Grüße aus Köln!",
    "Rain.",
    "",
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """{"bert": what the package brings, "ours": the same, converted}."""
    bert, ours = minilm_folder(), tmp_path_factory.mktemp("minilm") / "ours"
    convert_checkpoint(bert, ours)
    return {"bert": bert, "ours": ours}


@pytest.fixture(scope="module")
def sentence_transformers():
    return pytest.importorskip(
        "sentence_transformers", reason="needs sentence-transformers of the extra dev"
    )


def embed(model, tokenizer) -> torch.Tensor:
    """Return the mean of each sentence's tokens, of length 1, worked out row by row."""
    rows = []
    for sentence in SENTENCES:
        with torch.inference_mode():
            outputs = model(**tokenizer(sentence, return_tensors="pt"))
        mean = outputs.last_hidden_state[0].mean(dim=0)
        rows.append(mean / mean.norm())
    return torch.stack(rows)


def test_sentence_embeddings_are_those_of_bert(folders, sentence_transformers, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(folders["bert"])
    expected = embed(BertModel.from_pretrained(folders["bert"]), tokenizer)
    assert expected[0] @ expected[1] > expected[0] @ expected[2] + 0.1  # the weights mean something
    ours = AutoModel.from_pretrained(folders["ours"])
    assert type(ours) is TextEncoderModel
    found = {"alone": embed(ours, AutoTokenizer.from_pretrained(folders["ours"]))}

    for name, folder in folders.items():
        encoder = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
        found[name] = encoder.encode(SENTENCES, convert_to_tensor=True)
    transformer, pooling, normalize = encoder
    kinds = [type(part).__name__ for part in (transformer, pooling, normalize)]
    assert kinds == ["Transformer", "Pooling", "Normalize"]
    assert type(transformer.auto_model) is TextEncoderModel
    assert encoder.max_seq_length == 256

    encoder.save(str(tmp_path / "saved"))
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert type(again[0].auto_model) is TextEncoderModel
    found["again"] = again.encode(SENTENCES, convert_to_tensor=True)
    for name, embeddings in found.items():
        assert (embeddings - expected).abs().max() < 1e-5, name


def test_a_text_encoder_of_its_own_becomes_a_sentence_transformer_that_trains(
    folders, sentence_transformers, tmp_path
):
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

    tokenizer = AutoTokenizer.from_pretrained(folders["ours"])
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "position_embedding": "rotary"}
    model = TextEncoderModel(TextEncoderConfig(vocab_size=len(tokenizer), **sizes))
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    encoder = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    kinds = [type(part).__name__ for part in encoder]
    assert kinds == ["Transformer", "Pooling"]
    with torch.inference_mode():
        outputs = model.eval()(**tokenizer(SENTENCES[0], return_tensors="pt"))
    expected = outputs.last_hidden_state[0].mean(dim=0)
    found = encoder.encode(SENTENCES, convert_to_tensor=True)
    torch.testing.assert_close(found[0], expected, rtol=1e-4, atol=1e-5)
    batches = [encoder.tokenize(SENTENCES[:2]), encoder.tokenize(SENTENCES[2:4])]
    CosineSimilarityLoss(encoder)(batches, torch.tensor([1.0, 0.0])).backward()
    gradient = encoder[0].auto_model.layers[0].self_attn.q_proj.weight.grad
    assert gradient.isfinite().all() and gradient.abs().max() > 0


def test_fine_tuning_real_weights_gives_the_same_loss_curve(folders, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(folders["bert"])
    words = [("a fine and moving film", 1), ("dull, long and pointless", 0), ("what a joy", 1)]
    words += [("the plot makes no sense at all", 0), ("i loved every minute of it", 1), ("bad", 0)]
    rows = [{"text": text, "label": label} for text, label in words * 4]

    def collate(batch):
        inputs = tokenizer([row["text"] for row in batch], padding=True, return_tensors="pt")
        return dict(inputs) | {"labels": torch.tensor([row["label"] for row in batch])}

    curves, kinds = [], []
    for folder in folders.values():
        torch.manual_seed(3)
        model = AutoModelForSequenceClassification.from_pretrained(folder, dtype="float32")
        torch.manual_seed(4)  # the classifier is new: the same one for both
        with torch.no_grad():
            head = model.classifier if folder == folders["bert"] else model.score
            head.weight.copy_(torch.randn(head.weight.shape) * 0.02)
            head.bias.zero_()
        if folder == folders["ours"]:
            model.config.padding_free = "off"  # dropout draws numbers for padding, too
        kinds.append(type(model))
        settings = {"max_steps": 4, "learning_rate": 1e-4, "remove_unused_columns": False}
        curves.append(loss_curve(model, rows, collate, tmp_path, **settings))
    assert kinds[1] is TextEncoderForSequenceClassification
    assert min(curves[0]) < curves[0][0] - 0.02
    assert curves[1] == pytest.approx(curves[0], rel=1e-5)
