"""SetFit: a classifier from few examples, on a TextEncoder."""

import numpy as np
import pytest
from datasets import Dataset

from hf_seqmodels import TextEncoderModel
from tiny_text_encoders import make_text_encoder, paraphrases

setfit = pytest.importorskip("setfit", reason="needs setfit of the extra clients")

pytestmark = pytest.mark.slow
TOPICS = 3


def examples(*, seed: int, repeats: int) -> tuple[list[str], list[int]]:
    """Return texts of the first topics, and their topics."""
    rows = [
        (text, index % 12)
        for index, pair in enumerate(paraphrases(seed=seed, repeats=repeats))
        for text in pair
        if index % 12 < TOPICS
    ]
    return [text for text, _ in rows], [label for _, label in rows]


def test_few_examples_teach_a_classifier_that_comes_back(tmp_path):
    folder = make_text_encoder(tmp_path / "encoder")
    model = setfit.SetFitModel.from_pretrained(str(folder), device="cpu")
    assert type(model.model_body[0].auto_model) is TextEncoderModel
    texts, labels = examples(seed=1, repeats=4)
    arguments = setfit.TrainingArguments(
        output_dir=str(tmp_path / "run"), batch_size=8, num_epochs=1, num_iterations=4,
        body_learning_rate=2e-3, report_to="none", save_strategy="no",
    )  # fmt: skip
    rows = Dataset.from_dict({"text": texts, "label": labels})
    trainer = setfit.Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.train()
    texts, labels = examples(seed=2, repeats=4)
    predicted = np.asarray(model.predict(texts))
    assert (predicted == np.asarray(labels)).mean() > 0.9
    model.save_pretrained(str(tmp_path / "saved"))
    again = setfit.SetFitModel.from_pretrained(str(tmp_path / "saved"), device="cpu")
    assert type(again.model_body[0].auto_model) is TextEncoderModel
    np.testing.assert_allclose(again.predict_proba(texts), model.predict_proba(texts), atol=1e-6)
