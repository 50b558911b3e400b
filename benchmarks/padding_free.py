"""TextEncoder without its padding against itself with it: the same weights on the same batches.

    python benchmarks/padding_free.py --threads 2

Each row of the table is a kind of batch: how much of it is padding, milliseconds of a step with
padding, and how many times faster the step is without. Steps with and without padding take turns,
so that a busy machine slows both alike; the ratio is the median over the turns. `--measure cpu`
counts the thread's own time, which other programs disturb less; it takes `--threads 1`. Measured in
this way on one core of a server, five turns, 4 layers of width 256: sentences, 53 % padding, 1.93
times faster in training and 1.88 in reading; texts of any length, 47 % padding, 1.91 in training.
The places of these batches are 2.1 and 1.9 times as many as their tokens.
"""

import argparse
import statistics
import time

import torch

from hf_seqmodels import TextEncoderConfig, TextEncoderForSequenceClassification

VOCABULARY, NUM_LABELS = 8000, 2
CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}


def sentence_lengths(rows: int, longest: int, generator: torch.Generator) -> torch.Tensor:
    """Return lengths of short sentences: mean 19, standard deviation 9."""
    return (torch.randn(rows, generator=generator) * 9 + 19).round().clamp(3, longest)


def even_lengths(rows: int, longest: int, generator: torch.Generator) -> torch.Tensor:
    """Return lengths that are all as probable, from 4 on."""
    return torch.randint(4, longest + 1, (rows,), generator=generator)


def similar_lengths(rows: int, longest: int, generator: torch.Generator) -> torch.Tensor:
    """Return lengths as batches grouped by length have them."""
    return torch.randint(int(0.85 * longest), longest + 1, (rows,), generator=generator)


BATCHES = {
    "sentences": (sentence_lengths, 32, 64),
    "texts of any length": (even_lengths, 16, 256),
    "grouped by length": (similar_lengths, 32, 64),
}


def make_batch(kind: str) -> dict[str, torch.Tensor]:
    """Return a batch with labels, padded to its longest row."""
    draw, rows, longest = BATCHES[kind]
    generator = torch.Generator().manual_seed(1)
    lengths = draw(rows, longest, generator).long()
    shape = (rows, int(lengths.max()))
    return {
        "input_ids": torch.randint(5, VOCABULARY, shape, generator=generator),
        "attention_mask": (torch.arange(shape[1]) < lengths[:, None]).long(),
        "labels": torch.randint(NUM_LABELS, (rows,), generator=generator),
    }


def make_models(width: int, layers: int) -> dict[str, TextEncoderForSequenceClassification]:
    """Return a model that computes on padding, and one with the same weights that does not."""
    models = {}
    for padding_free in ("off", "on"):
        config = TextEncoderConfig(
            vocab_size=VOCABULARY,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=max(1, width // 64),
            padding_free=padding_free,
        )
        torch.manual_seed(0)
        models[padding_free] = TextEncoderForSequenceClassification(config)
    return models


def time_step(model, batch: dict[str, torch.Tensor], *, training: bool, clock) -> float:
    """Return the seconds of one step, with the gradients of a training step."""
    model.train(training)
    start = clock()
    if training:
        model(**batch).loss.backward()
        model.zero_grad()
    else:
        with torch.inference_mode():
            model(**batch)
    return clock() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--measure", choices=sorted(CLOCKS), default="wall")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    models, clock = make_models(options.width, options.layers), CLOCKS[options.measure]
    print("batch                 padding  step        with     times faster without")
    for kind in BATCHES:
        batch = make_batch(kind)
        padding = 1 - batch["attention_mask"].float().mean().item()
        for step in ("training", "reading"):
            turns = []
            for _ in range(options.turns + 1):  # the first warms up
                turns.append(
                    [
                        time_step(model, batch, training=step == "training", clock=clock)
                        for model in models.values()
                    ]
                )
            ratio = statistics.median(padded / free for padded, free in turns[1:])
            padded = statistics.median(pair[0] for pair in turns[1:]) * 1000
            print(
                f"{kind:20}  {padding:6.0%}   {step:9}  {padded:5.0f} ms   {ratio:.2f}", flush=True
            )


if __name__ == "__main__":
    main()
