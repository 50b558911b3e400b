"""Somebody who does not have the package: loads a model by its name, and what its code computes.

    python tests/support/stranger.py NAME RESULT_FILE [REVISION]

The file holds what `outputs_of` returns and, where the model brings a pipeline, `texts_of`.
"""

import sys
from typing import Any

import torch

SOURCES = ["abc de", "ce", "baa d"]
TASK = "seq2seq-generation"


def outputs_of(model: Any, tokenizer: Any) -> dict[str, torch.Tensor]:
    """Return the logits of fixed targets and the beams of fixed sources, with their scores."""
    batch = tokenizer(SOURCES, padding=True, return_tensors="pt")
    generator = torch.Generator().manual_seed(5)
    vocab_size = len(getattr(tokenizer, "target_tokenizer", tokenizer))
    decoder_input_ids = torch.randint(4, vocab_size, (len(SOURCES), 5), generator=generator)
    with torch.no_grad():
        logits = model.eval()(**batch, decoder_input_ids=decoder_input_ids).logits  # (B, T, V)
        beams = model.generate(
            **batch, num_beams=3, return_dict_in_generate=True, output_scores=True
        )
    return {"logits": logits, "beams": beams.sequences, "scores": beams.sequences_scores}


def texts_of(name: str, **options: Any) -> list[Any]:
    """Return what the pipeline writes for the sources, with its scores."""
    from transformers import pipeline

    generate = pipeline(TASK, model=name, num_beams=3, **options)
    return generate(SOURCES, batch_size=2, return_scores=True)


def main(name: str, result_file: str, revision: str | None = None) -> None:
    """Load a model as its card says, with every Auto class, and store what it computes."""
    from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

    options = {"revision": revision, "trust_remote_code": True}
    model = AutoModelForSeq2SeqLM.from_pretrained(name, **options)
    body = AutoModel.from_pretrained(name, **options)
    config = AutoConfig.from_pretrained(name, **options)
    tokenizer = AutoTokenizer.from_pretrained(name, **options)
    for loaded in (model, body, config, tokenizer):
        module = type(loaded).__module__
        assert module.startswith(("transformers_modules.", "transformers.")), module
    body_weights = body.state_dict()
    for key, weight in model.state_dict().items():
        inner = key.removeprefix(f"{model.base_model_prefix}.")
        assert inner == key or torch.equal(body_weights[inner], weight), key
    found: dict[str, Any] = outputs_of(model, tokenizer)
    if getattr(config, "custom_pipelines", None):
        found["texts"] = texts_of(name, **options)
    torch.save(found, result_file)


if __name__ == "__main__":
    sys.modules["hf_seqmodels"] = None  # any import of the package fails from here on
    main(*sys.argv[1:])
