"""DecoderLM against nanoGPT on characters: the same size, data, batches, schedule and seeds.

    git clone https://github.com/karpathy/nanoGPT
    python benchmarks/nanogpt_char.py --nanogpt nanoGPT --text corpus.txt

The setting is the one that nanoGPT's README gives for a CPU: 4 layers, 4 heads, 128 wide, 64
characters of context, batch 12, 2,000 steps, no dropout. The last tenth of the text is held out;
its loss is the mean over all of its windows of 64 characters. DecoderLM runs twice: with nanoGPT's
options, when only the random numbers of the start differ, and with rotary positions, which nanoGPT
lacks. All models are trained in the loop below, step by step in turns, so that a busy machine slows
all alike; the ratio of their times is the median over the steps.
"""

import argparse
import gzip
import importlib.util
import math
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from hf_seqmodels import DecoderLMConfig, DecoderLMForCausalLM

CONTEXT, BATCH, STEPS, WARMUP = 64, 12, 2000, 100
WIDTH, LAYERS, HEADS = 128, 4, 4
MOST_RATE, LEAST_RATE = 1e-3, 1e-4
NUM_CHARACTERS = 1_100_000


def nanogpt_model(folder: Path, vocab_size: int) -> tuple[torch.nn.Module, object]:
    """Make nanoGPT's model from its own file; returns it with its loss function."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    sizes = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": WIDTH, "block_size": CONTEXT}
    config = module.GPTConfig(vocab_size=vocab_size, dropout=0.0, bias=False, **sizes)
    model = module.GPT(config)
    return model, lambda inputs, targets: model(inputs, targets.contiguous())[1]


def our_model(vocab_size: int, position_embedding: str) -> tuple[torch.nn.Module, object]:
    """Make a DecoderLM of the same size; returns it with its loss function."""
    config = DecoderLMConfig(
        vocab_size=vocab_size,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        max_position_embeddings=CONTEXT,
        position_embedding=position_embedding,
        use_bias=False,
        embedding_dropout=0.0,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        tie_word_embeddings=True,
        use_cache=False,
    )
    model = DecoderLMForCausalLM(config)

    def loss(inputs, targets):
        logits = model(input_ids=inputs).logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return model, loss


def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
    """AdamW as in nanoGPT's train.py: matrices decay, vectors do not."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": 0.1},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=MOST_RATE, betas=(0.9, 0.99))


def rate(step: int, num_steps: int) -> float:
    """Learning rate: linear warm-up, then a cosine down to a tenth."""
    if step < WARMUP:
        return MOST_RATE * step / WARMUP
    share = (step - WARMUP) / (num_steps - WARMUP)
    return LEAST_RATE + 0.5 * (1 + math.cos(math.pi * share)) * (MOST_RATE - LEAST_RATE)


def train(contestants: dict, text: torch.Tensor, seed: int, num_steps: int) -> dict[str, float]:
    """Train all contestants on the same batches; returns the median seconds of a step of each."""
    generator = torch.Generator().manual_seed(seed)
    optimizers = {name: optimizer_of(model) for name, (model, _) in contestants.items()}
    seconds = {name: [] for name in contestants}
    for step in range(num_steps):
        starts = torch.randint(len(text) - CONTEXT, (BATCH,), generator=generator)
        windows = text[starts[:, None] + torch.arange(CONTEXT + 1)]  # (B, T + 1)
        turn = step % len(contestants)
        names = [*list(contestants)[turn:], *list(contestants)[:turn]]
        for name in names:
            model, loss = contestants[name]
            begin = time.perf_counter()
            for group in optimizers[name].param_groups:
                group["lr"] = rate(step, num_steps)
            optimizers[name].zero_grad(set_to_none=True)
            loss(windows[:, :-1], windows[:, 1:]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizers[name].step()
            seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values) for name, values in seconds.items()}


@torch.no_grad()
def held_out_loss(model: torch.nn.Module, loss, text: torch.Tensor) -> float:
    """Mean loss over all windows of a text, in nats per character."""
    model.eval()
    count = (len(text) - 1) // CONTEXT
    inputs = text[: count * CONTEXT].view(count, CONTEXT)
    targets = text[1 : count * CONTEXT + 1].view(count, CONTEXT)
    pairs = zip(inputs.split(64), targets.split(64), strict=True)
    total = sum(loss(x, y).item() * len(x) for x, y in pairs)
    model.train()
    return total / count


def main() -> None:
    """Train all models with every seed and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT")
    parser.add_argument("--text", type=Path, help="a text of about 1 MB, .gz or plain")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    if not (options.nanogpt and options.text):
        print("Not run: pass --nanogpt (a checkout) and --text (a corpus).")
        return
    torch.set_num_threads(min(2, torch.get_num_threads()))
    opener = gzip.open if options.text.suffix == ".gz" else open
    with opener(options.text, "rt", encoding="utf-8") as file:
        characters = file.read(NUM_CHARACTERS)
    vocabulary = {character: index for index, character in enumerate(sorted(set(characters)))}
    text = torch.tensor([vocabulary[character] for character in characters])
    training, held_out = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    makers = {
        "nanoGPT": lambda: nanogpt_model(options.nanogpt, len(vocabulary)),
        "DecoderLM": lambda: our_model(len(vocabulary), "learned"),
        "DecoderLM, rotary": lambda: our_model(len(vocabulary), "rotary"),
    }
    losses, ratios = {name: [] for name in makers}, {name: [] for name in makers}
    for seed in options.seeds:
        contestants = {}
        for name, make in makers.items():
            torch.manual_seed(seed)
            contestants[name] = make()
        seconds = train(contestants, training, seed, options.steps)
        for name, (model, loss) in contestants.items():
            losses[name].append(held_out_loss(model, loss, held_out))
            ratios[name].append(seconds[name] / seconds["nanoGPT"])
            size = sum(parameter.numel() for parameter in model.parameters())
            print(f"seed {seed}: {name} {losses[name][-1]:.4f}, {size:,} parameters", flush=True)
    for name, values in losses.items():
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        print(
            f"{name}: {statistics.mean(values):.4f} +- {spread:.4f} nats per character, time of a "
            f"step / nanoGPT's {statistics.median(ratios[name]):.3f}"
        )


if __name__ == "__main__":
    main()
