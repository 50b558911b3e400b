"""sentence-transformers trains a TextEncoder from scratch: loss, retrieval, saving."""

import pytest
import torch
from datasets import Dataset
from torch import Tensor
from transformers import AutoTokenizer

from hf_seqmodels import TextEncoderModel
from tiny_text_encoders import make_text_encoder, paraphrases

sentence_transformers = pytest.importorskip(
    "sentence_transformers", reason="needs sentence-transformers of the extra dev"
)

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path):
    return make_text_encoder(tmp_path / "encoder")


def mean_pooled(folder, texts: list[str]) -> Tensor:
    """Return the mean of the vectors of each text's tokens, row by row without padding."""
    model, tokenizer = (
        TextEncoderModel.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    rows = []
    for text in texts:
        with torch.inference_mode():
            outputs = model(**tokenizer(text, return_tensors="pt"))
        rows.append(outputs.last_hidden_state[0].mean(dim=0))
    return torch.stack(rows)


def retrieval_accuracy(encoder, pairs: list[tuple[str, str]]) -> float:
    """Return the share of questions whose own answer is the nearest of all."""
    questions, answers = (
        torch.nn.functional.normalize(encoder.encode(list(side), convert_to_tensor=True), dim=-1)
        for side in zip(*pairs, strict=True)
    )
    nearest = (questions @ answers.T).argmax(dim=-1)
    return (nearest == torch.arange(len(pairs))).float().mean().item()


def build(folder):
    """Return Transformer + Pooling, as the documentation of sentence-transformers builds it."""
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    transformer = Transformer(str(folder), max_seq_length=32)
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")
    return sentence_transformers.SentenceTransformer(modules=[transformer, pooling], device="cpu")


def test_the_contrastive_loss_is_that_of_our_own_vectors(folder):
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    encoder = build(folder)
    pairs = paraphrases(seed=1, repeats=1)[:5]
    sides = [list(side) for side in zip(*pairs, strict=True)]
    found = encoder.encode(sides[0], convert_to_tensor=True)
    torch.testing.assert_close(found, mean_pooled(folder, sides[0]), rtol=1e-4, atol=1e-5)
    left, right = (
        torch.nn.functional.normalize(mean_pooled(folder, side), dim=-1) for side in sides
    )
    scores = 20 * (left @ right.T).double()  # the loss's own scale, (B, B)
    expected = -scores.log_softmax(dim=-1).diagonal().mean().item()
    loss = MultipleNegativesRankingLoss(encoder.eval())
    features = [encoder.preprocess(side) for side in sides]
    assert loss(features, None).item() == pytest.approx(expected, abs=1e-4)


def test_an_epoch_teaches_to_find_paraphrases_and_the_model_comes_back(folder, tmp_path):
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    encoder = build(folder)
    held_out = paraphrases(seed=2, repeats=1)
    before = retrieval_accuracy(encoder, held_out)
    rows = [dict(zip(("anchor", "positive"), pair, strict=True)) for pair in paraphrases(seed=1)]
    arguments = sentence_transformers.SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "run"), num_train_epochs=1, per_device_train_batch_size=8,
        learning_rate=5e-3, logging_steps=4, report_to=[], use_cpu=True, disable_tqdm=True,
        save_strategy="no",
    )  # fmt: skip
    trainer = sentence_transformers.SentenceTransformerTrainer(
        model=encoder,
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        loss=MultipleNegativesRankingLoss(encoder),
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < 0.5 * losses[0]
    assert before < 0.5
    assert retrieval_accuracy(encoder, held_out) > 0.9

    encoder.save_pretrained(str(tmp_path / "saved"))
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert type(again[0].auto_model) is TextEncoderModel
    assert [type(part).__name__ for part in again] == ["Transformer", "Pooling"]
    texts = [text for pair in held_out for text in pair]
    trained = encoder.encode(texts, convert_to_tensor=True)
    assert torch.equal(again.encode(texts, convert_to_tensor=True), trained)
    by_hand = mean_pooled(tmp_path / "saved", texts)
    torch.testing.assert_close(trained, by_hand, rtol=1e-4, atol=1e-5)
