"""Exported graphs on onnxruntime against the same models in torch: size, and time of decoding.

    python benchmarks/onnx_decoding.py --measure cpu

Each row of the table is a family and a way to decode: megabytes of the checkpoint's weights and of
the graphs, milliseconds of one call in torch, and how many times faster onnxruntime is. The two
take turns, so that a busy machine slows both alike; the ratio is the median over the turns.
`--measure cpu` counts the thread's own time, which other programs disturb less; it takes one
thread. Both write the same tokens, which is checked. It needs the extra `onnx`.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig
from transformers.utils import logging

from hf_seqmodels import (
    DecoderLMConfig,
    DecoderLMForCausalLM,
    RnnLMConfig,
    RnnLMForCausalLM,
    RnnSeq2SeqConfig,
    RnnSeq2SeqForConditionalGeneration,
    TextEncoderConfig,
    TextEncoderForSequenceClassification,
    TransformerSeq2SeqConfig,
    TransformerSeq2SeqForConditionalGeneration,
)
from hf_seqmodels.onnx import export_onnx, load_graphs

VOCABULARY, PAD = 8000, 3
CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}


def make_models(width: int) -> dict[str, Any]:
    """Return {name: model} of a common small size, with random weights that never end a row."""
    wide: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": width}
    heads: dict[str, Any] = {**wide, "num_attention_heads": max(1, width // 64)}
    recurrent: dict[str, Any] = {**wide, "embedding_size": width}
    torch.manual_seed(0)
    models = {
        "RnnSeq2Seq, GRU": RnnSeq2SeqForConditionalGeneration(RnnSeq2SeqConfig(**recurrent)),
        "RnnSeq2Seq, LSTM": RnnSeq2SeqForConditionalGeneration(
            RnnSeq2SeqConfig(**recurrent, cell_type="lstm", attention_query="previous")
        ),
        "TransformerSeq2Seq": TransformerSeq2SeqForConditionalGeneration(
            TransformerSeq2SeqConfig(**heads, num_encoder_layers=3, num_decoder_layers=3)
        ),
        "RnnLM, LSTM": RnnLMForCausalLM(RnnLMConfig(**recurrent, num_hidden_layers=2)),
        "DecoderLM": DecoderLMForCausalLM(DecoderLMConfig(**heads, num_hidden_layers=4)),
        "TextEncoder": TextEncoderForSequenceClassification(
            TextEncoderConfig(**heads, num_hidden_layers=4)
        ),
    }
    for model in models.values():
        model.eval()
        if model.can_generate():
            model.generation_config = GenerationConfig(
                pad_token_id=PAD,
                decoder_start_token_id=getattr(model.config, "decoder_start_token_id", None),
            )
    return models


def make_batch(rows: int, length: int) -> dict[str, torch.Tensor]:
    """Return rows of ids without padding."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, VOCABULARY, (rows, length), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def ways_of(model: Any, new_tokens: int) -> dict[str, dict[str, int]]:
    """Return {way to decode: options of generate()}; one without options is a forward pass."""
    if not model.can_generate():
        return {"forward": {}}
    return {
        "greedy": {"max_new_tokens": new_tokens},
        "4 beams": {"max_new_tokens": new_tokens, "num_beams": 4},
    }


def run_torch(model: Any, batch: dict[str, torch.Tensor], options: dict[str, int]) -> np.ndarray:
    """Return what torch writes, or the logits."""
    with torch.inference_mode():
        return (model.generate(**batch, **options) if options else model(**batch).logits).numpy()


def run_onnx(graphs: Any, batch: dict[str, np.ndarray], options: dict[str, int]) -> np.ndarray:
    """Return what onnxruntime writes, or the logits."""
    return graphs.generate(**batch, **options) if options else graphs(**batch)["logits"]


def megabytes(folder: Path, pattern: str) -> float:
    """Return the size of files."""
    return sum(path.stat().st_size for path in folder.glob(pattern)) / 1e6


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=20, help="of sources, prompts and texts")
    parser.add_argument("--new_tokens", type=int, default=20)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--measure", choices=sorted(CLOCKS), default="wall")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    clock, batch = CLOCKS[options.measure], make_batch(options.rows, options.length)
    arrays = {name: tensor.numpy() for name, tensor in batch.items()}
    print("model               weights    graphs  way          torch  times faster on onnxruntime")
    for name, model in make_models(options.width).items():
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(Path(folder, "checkpoint"))
            exported = export_onnx(model, Path(folder, "exported"))
            sizes = [
                megabytes(Path(folder, "checkpoint"), "*.safetensors"),
                megabytes(exported, "*.onnx*"),
            ]
            graphs = load_graphs(exported, num_threads=1)
        for way, search in ways_of(model, options.new_tokens).items():
            turns = []
            for _ in range(options.turns + 1):  # the first warms up
                start = clock()
                expected = run_torch(model, batch, search)
                between = clock()
                written = run_onnx(graphs, arrays, search)
                turns.append((between - start, clock() - between))
            np.testing.assert_allclose(written, expected, atol=1e-4)
            ratio = statistics.median(in_torch / in_onnx for in_torch, in_onnx in turns[1:])
            milliseconds = statistics.median(turn[0] for turn in turns[1:]) * 1000
            print(
                f"{name:19}{sizes[0]:5.1f} MB  {sizes[1]:5.1f} MB  {way:8}  {milliseconds:5.0f} ms"
                f"   {ratio:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
