"""A tiny TextEncoder of words and made-up paraphrases, for the programs of others that train it."""

import random
from pathlib import Path

import torch

from hf_seqmodels import TextEncoderConfig, TextEncoderModel
from hf_seqmodels.data import train_tokenizer

NUM_TOPICS = 12
WORDS_OF_A_TOPIC = 3


def words_of(topic: int, side: str) -> list[str]:
    """Return words that stand for a topic on one side of a pair alone."""
    return [f"{side}{topic}{letter}" for letter in "xyz"[:WORDS_OF_A_TOPIC]]


def text_of(topic: int, side: str, generator: random.Random) -> str:
    """Return a text of two to five words: some of the topic, and fillers that say nothing."""
    words = generator.sample(words_of(topic, side), k=2)
    words += generator.choices(["the", "of", "and"], k=generator.randint(0, 3))
    generator.shuffle(words)
    return " ".join(words)


def paraphrases(*, seed: int, repeats: int = 24) -> list[tuple[str, str]]:
    """Return pairs of one topic that share no word of it, every topic once in each dozen.

    Args:
        seed: of the choice of words.
        repeats: pairs of each topic.
    """
    generator = random.Random(seed)
    return [
        (text_of(topic, "ask", generator), text_of(topic, "say", generator))
        for _ in range(repeats)
        for topic in range(NUM_TOPICS)
    ]


def make_text_encoder(folder: Path) -> Path:
    """Save a new encoder and its tokenizer, and return the folder."""
    texts = [text for pair in paraphrases(seed=0) for text in pair]
    tokenizer = train_tokenizer(texts, model="word", style="bert")
    torch.manual_seed(0)
    config = TextEncoderConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=32,
        pad_token_id=tokenizer.pad_token_id,
    )
    TextEncoderModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
