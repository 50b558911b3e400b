"""Clipping of gradients to a greatest norm, g * threshold / ||g||, as Trainer does it."""

import pytest
import torch
from transformers import Trainer, TrainingArguments

from hf_seqmodels import RnnSeq2SeqConfig, RnnSeq2SeqForConditionalGeneration

SOURCE = torch.arange(4, 4 + 3 * 7).view(3, 7)
LABELS = torch.arange(8, 8 + 3 * 5).view(3, 5)


def make_model() -> RnnSeq2SeqForConditionalGeneration:
    """Return a tiny model without dropout."""
    config = RnnSeq2SeqConfig(
        vocab_size=29,
        embedding_size=6,
        hidden_size=12,
        embedding_dropout=0.0,
        hidden_dropout=0.0,
    )
    return RnnSeq2SeqForConditionalGeneration(config)


def gradients_of(model) -> list[torch.Tensor]:
    """Return the gradient of every parameter for a fixed batch."""
    loss = model(input_ids=SOURCE, labels=LABELS).loss
    return list(torch.autograd.grad(loss, list(model.parameters())))


def clipped(gradients: list[torch.Tensor], threshold: float) -> list[torch.Tensor]:
    """Return g * threshold / ||g|| where ||g|| >= threshold, the norm over all parameters."""
    norm = sum(float(number) ** 2 for g in gradients for number in g.flatten()) ** 0.5
    return [g * threshold / norm if norm >= threshold else g for g in gradients]


@pytest.mark.parametrize("threshold", [0.05, 0.5, 1e3])
def test_clipping_scales_all_gradients_by_one_number(threshold):
    model = make_model()
    gradients = gradients_of(model)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_(model.parameters(), threshold)
    for parameter, expected in zip(model.parameters(), clipped(gradients, threshold), strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("threshold", [0.05, 1e3])
def test_trainer_steps_along_the_clipped_gradient(threshold, tmp_path):
    model = make_model()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    expected = clipped(gradients_of(model), threshold)
    rows = [
        {"input_ids": ids, "labels": labels} for ids, labels in zip(SOURCE, LABELS, strict=True)
    ]
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=3,
            max_grad_norm=threshold,
            lr_scheduler_type="constant",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=rows,
        data_collator=lambda batch: {
            key: torch.stack([row[key] for row in batch]) for key in batch[0]
        },
        optimizers=(torch.optim.SGD(model.parameters(), lr=1.0), None),
    )
    trainer.train()
    for parameter, old, gradient in zip(model.parameters(), before, expected, strict=True):
        torch.testing.assert_close(old - parameter.detach(), gradient, rtol=1e-3, atol=1e-6)
