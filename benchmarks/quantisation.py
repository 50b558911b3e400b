"""Weights of 8 bits on a CPU against float32: time, size on disk, and what becomes of the scores.

    python benchmarks/quantisation.py --measure cpu
    python benchmarks/quantisation.py --language_model runs/mine --text mine.valid.txt

Each row of the table is a family and a way to quantise it: how many times faster a forward pass
(8 rows of 32 tokens) and greedy search (one row of 20 tokens, 20 new ones) are than with float32,
the size of the weights as a share of float32, and the largest difference of a score from float32 as
a share of the spread of the scores. The two take turns, so that a busy machine slows both alike;
the ratio is the median over the turns. `--measure cpu` counts the thread's own time, which other
programs disturb less; it takes one thread. With `--language_model` the table is the perplexity of a
trained model on the first tokens of a text. It needs the extra `clients`.

The ways, each for all linear layers, the output layer included: torchao's int8 weights, torchao's
int8 weights and activations, and torch's own dynamic quantisation of both (`torch.ao`, deprecated),
which alone quantises LSTM and GRU layers, too.
"""

import argparse
import copy
import importlib.util
import io
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
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
from hf_seqmodels.evaluation import corpus_perplexity

VOCABULARY, PAD = 8000, 3
CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}
Batch = dict[str, torch.Tensor]


def make_models(width: int) -> dict[str, Any]:
    """Return {name: model} of a common size, with random weights that never end a row."""
    wide: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": width}
    heads: dict[str, Any] = {**wide, "num_attention_heads": max(1, width // 64)}
    recurrent: dict[str, Any] = {**wide, "embedding_size": width, "cell_type": "lstm"}
    torch.manual_seed(0)
    models = {
        "RnnSeq2Seq, LSTM": RnnSeq2SeqForConditionalGeneration(RnnSeq2SeqConfig(**recurrent)),
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


def with_torchao(model: Any, config_name: str) -> Any:
    """Return a copy whose linear layers torchao has quantised."""
    from torchao import quantization

    quantised = copy.deepcopy(model)
    quantization.quantize_(quantised, getattr(quantization, config_name)())
    return quantised


def with_torch(model: Any) -> Any:
    """Return a copy whose linear and recurrent layers torch has quantised dynamically."""
    from torch.ao.quantization import quantize_dynamic

    return quantize_dynamic(copy.deepcopy(model), {nn.Linear, nn.LSTM, nn.GRU})


WAYS: dict[str, Callable[[Any], Any]] = {
    "torchao, weights": lambda model: with_torchao(model, "Int8WeightOnlyConfig"),
    "torchao, both": lambda model: with_torchao(model, "Int8DynamicActivationInt8WeightConfig"),
    "torch.ao, both": with_torch,
}


def random_rows(rows: int, length: int) -> Batch:
    """Return rows of ids without padding."""
    generator = torch.Generator().manual_seed(1)
    return {"input_ids": torch.randint(5, VOCABULARY, (rows, length), generator=generator)}


def scores(model: Any, batch: Batch) -> torch.Tensor:
    """Return the logits of one forward pass."""
    targets = {"decoder_input_ids": batch["input_ids"]} if model.config.is_encoder_decoder else {}
    with torch.inference_mode():
        return model(**batch, **targets).logits


def write(model: Any, batch: Batch) -> torch.Tensor:
    """Return what greedy search writes, 20 tokens."""
    with torch.inference_mode():
        return model.generate(**batch, max_new_tokens=20, do_sample=False)


def size_of(model: Any) -> int:
    """Return the bytes of the saved weights, tied ones once."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.getbuffer().nbytes


def times_faster(
    clock: Callable[[], float], run: Callable[[Any], Any], plain: Any, quantised: Any, turns: int
) -> float:
    """Return the median ratio of the times that two models take, in turns."""
    ratios = []
    for _ in range(turns + 1):  # the first warms up
        start = clock()
        run(plain)
        between = clock()
        run(quantised)
        ratios.append((between - start) / (clock() - between))
    return statistics.median(ratios[1:])


def print_speed(options: argparse.Namespace) -> None:
    """Print the table of times, sizes and differences of random models."""
    clock, many, one = CLOCKS[options.measure], random_rows(8, 32), random_rows(1, 20)
    print("model               way               forward  greedy  size   difference")
    for name, plain in make_models(options.width).items():
        expected = scores(plain, many)
        for way, quantise in WAYS.items():
            quantised = quantise(plain)
            difference = (scores(quantised, many) - expected).abs().max() / expected.std()
            pair = (plain, quantised, options.turns)
            forward = times_faster(clock, lambda model: scores(model, many), *pair)
            greedy = "      "
            if plain.can_generate():
                ratio = times_faster(clock, lambda model: write(model, one), *pair)
                greedy = f"{ratio:6.2f}"
            size = size_of(quantised) / size_of(plain)
            print(
                f"{name:19} {way:17} {forward:7.2f}  {greedy}  {size:4.0%}   {difference:.3f}",
                flush=True,
            )


def print_perplexities(options: argparse.Namespace) -> None:
    """Print the perplexity of a trained language model, and what each way makes of it."""
    plain = AutoModelForCausalLM.from_pretrained(options.language_model).eval()
    tokenizer = AutoTokenizer.from_pretrained(options.language_model)
    text = Path(options.text).read_text(encoding="utf-8")
    if options.lines:
        rows = [tokenizer(line).input_ids for line in text.splitlines()]
        ids = [token for row in rows for token in (*row, tokenizer.eos_token_id)]
    else:
        ids = tokenizer(text).input_ids
    ids = ids[: options.tokens]
    ways: dict[str, Callable[[Any], Any]] = {"float32": lambda model: model, **WAYS}
    for way, quantise in ways.items():
        print(f"{way:17} {corpus_perplexity(quantise(plain), ids).perplexity:.3f}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--measure", choices=sorted(CLOCKS), default="wall")
    parser.add_argument("--language_model", help="folder of a trained model")
    parser.add_argument("--text", help="file that it is to read")
    parser.add_argument("--lines", action="store_true", help="an end token behind each line")
    parser.add_argument("--tokens", type=int, default=20000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore")  # torch.ao says at every call that it will go
    if importlib.util.find_spec("torchao") is None:
        print("torchao is not installed: pip install -e '.[clients]'")
    elif options.language_model:
        print_perplexities(options)
    else:
        print_speed(options)


if __name__ == "__main__":
    main()
