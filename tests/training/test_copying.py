"""Words that no training text holds are copied: by the script, and by everything that reads what it
wrote."""

import itertools
import json
import random

import pytest
import torch
from run_seq2seq import main
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

from hf_seqmodels.data import Seq2SeqTokenizer, train_tokenizer
from hf_seqmodels.decoding import replace_unknown_words
from hf_seqmodels.evaluation import (
    EnsembleForSeq2SeqLM,
    alignments,
    decode_corpus,
    n_best,
    score_targets,
)

PATTERNS = (
    ("call {0} about {1} now .", "{1} for {0}"),
    ("did {0} meet {1} ?", "{1} met {0}"),
    ("say {0} .", "{0}"),
)


def write_pairs(path, count: int, *, seed: int) -> list[tuple[str, str]]:
    """Write sentences about names, each name once; return them."""
    generator = random.Random(seed)
    syllables = ["".join(pair) for pair in itertools.product("bdfgklmnprstvz", "aeiou")]
    pairs = []
    for _ in range(count):
        names = ["".join(generator.sample(syllables, 4)) + str(seed) for _ in range(2)]
        source, target = generator.choice(PATTERNS)
        pairs.append((source.format(*names), target.format(*names)))
    rows = [json.dumps({"source": source, "target": target}) for source, target in pairs]
    path.write_text("\n".join(rows), encoding="utf-8")
    return pairs


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run on names that occur once: its folder, its record, and pairs with other names."""
    folder = tmp_path_factory.mktemp("copying")
    write_pairs(folder / "train.jsonl", 600, seed=1)
    pairs = write_pairs(folder / "validation.jsonl", 40, seed=2)
    record = main(
        [
            *("--model_type", "seqmodels_rnn_seq2seq", "--output_dir", str(folder / "run")),
            *("--config_overrides", "pointer_generator=true,embedding_size=24,hidden_size=48"),
            *("--config_overrides", "coverage_attention=true,coverage_loss_weight=0.5"),
            *("--train_file", str(folder / "train.jsonl")),
            *("--validation_file", str(folder / "validation.jsonl")),
            *("--source_tokenizer_model", "word", "--shared_tokenizer", "true"),
            *("--tokenizer_min_frequency", "5", "--num_train_epochs", "4", "--num_beams", "3"),
            *("--learning_rate", "0.01", "--per_device_train_batch_size", "16"),
            *("--use_cpu", "--disable_tqdm", "true", "--logging_steps", "20"),
        ]
    )
    return folder / "run", record, pairs


def test_words_never_seen_come_out_in_order(finished):
    folder, record, pairs = finished
    assert record["validation"]["exact_match"] >= 95
    with (folder / "predictions.jsonl").open(encoding="utf-8") as file:
        predictions = {row["source"]: row["prediction"] for row in map(json.loads, file)}
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    sources, targets = map(list, zip(*pairs, strict=True))
    decoded = decode_corpus(model, tokenizer, sources, num_beams=3, progress=False)
    assert decoded == [predictions[source] for source in sources]
    known = tokenizer.get_vocab()
    assert not any("\u2581" + word in known for word in sources[0].split() if word.endswith("2"))

    lists = n_best(model, tokenizer, sources[:6], num_beams=3, progress=False)
    assert [found[0].text for found in lists] == decoded[:6]
    right = [i for i in range(6) if decoded[i] == targets[i]]
    scores = score_targets(model, tokenizer, sources[:6], targets[:6], batch_size=2, progress=False)
    for i in right:
        assert scores[i].token_ids == lists[i][0].token_ids
        assert scores[i].log_probability == pytest.approx(lists[i][0].log_probability, abs=1e-4)

    aligned = alignments(model, tokenizer, sources[:1], progress=False)[0]
    name = aligned.target_tokens[0]
    assert name in aligned.source_tokens and name.endswith("2")
    assert aligned.source_tokens[aligned.weights[0].argmax()] == name

    run = pipeline("seq2seq-generation", model=str(folder), num_beams=3)
    found = run(sources[:5], batch_size=2, return_scores=True, return_alignments=True)
    assert [outputs[0]["generated_text"] for outputs in found] == decoded[:5]
    tokens = found[0][0]["alignment"]["target_tokens"]
    assert list(tokens) == list(aligned.target_tokens)

    ensemble = EnsembleForSeq2SeqLM([model, model])
    assert (
        decode_corpus(ensemble, tokenizer, sources[:6], num_beams=3, progress=False) == decoded[:6]
    )


def test_tokenizers_that_number_words_otherwise_are_refused(finished):
    folder, _, pairs = finished
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with pytest.raises(ValueError, match="copies unknown words itself"):
        replace_unknown_words(model, tokenizer, [pairs[0][0]], progress=False)
    other = Seq2SeqTokenizer.for_copying(train_tokenizer(["a b"], model="word"))
    with pytest.raises(ValueError, match="gives words to copy the ids from"):
        pipeline("seq2seq-generation", model=model, tokenizer=other)
    model.config.pointer_generator = False
    with pytest.raises(ValueError, match="copies 0"):
        pipeline("seq2seq-generation", model=model, tokenizer=tokenizer)


def test_a_checkpoint_goes_on_copying_wherever_padding_stands(finished):
    folder, _, pairs = finished
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    sources = [source for source, _ in pairs[:4]]
    written = []
    for side in ("left", "right"):
        batch = tokenizer(sources, padding=True, padding_side=side, return_tensors="pt")
        batch.pop("token_type_ids", None)
        rows = model.generate(**batch, num_beams=2)
        written.append(tokenizer.batch_decode(rows, skip_special_tokens=True, source=sources))
        assert (rows >= len(tokenizer)).any()
    assert written[0] == written[1]
    assert torch.equal(
        batch["input_ids"] >= len(tokenizer), batch["input_ids"] >= model.config.vocab_size
    )
