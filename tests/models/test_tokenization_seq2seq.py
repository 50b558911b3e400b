"""A pair of tokenizers: both sides encode, decode, are saved and come back, here and elsewhere."""

import copy
import json
import pickle
import subprocess
import sys

import pytest
import torch
from datasets import Dataset
from transformers import (
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from hf_seqmodels import RnnSeq2SeqConfig, RnnSeq2SeqForConditionalGeneration
from hf_seqmodels.data import TOKENIZER_MODELS, Seq2SeqCollator, Seq2SeqTokenizer, train_tokenizer

SOURCES = ["<en> abc", "déf", ""]
TARGETS = ["x y", "z", ""]


@pytest.fixture
def sides():
    source = train_tokenizer(SOURCES, model="char", extra_tokens=["<en>"], model_max_length=6)
    target = train_tokenizer(TARGETS, model="symbol")
    return source, target


@pytest.fixture
def pair(sides):
    return Seq2SeqTokenizer.from_pair(*sides)


def same(left, right):
    """Both sides encode and decode alike."""
    left_encoding, right_encoding = (tok(SOURCES, text_target=TARGETS) for tok in (left, right))
    return (
        dict(left_encoding) == dict(right_encoding)
        and left.batch_decode(left_encoding["labels"]) == ["x y </s>", "z </s>", "</s>"]
        and right.batch_decode(right_encoding["labels"]) == ["x y </s>", "z </s>", "</s>"]
    )


def test_each_side_encodes_what_is_its_own(pair, sides):
    source, target = sides
    encoding = pair(SOURCES, text_target=TARGETS)
    assert encoding["input_ids"] == source(SOURCES)["input_ids"]
    assert encoding["attention_mask"] == source(SOURCES)["attention_mask"]
    assert encoding["labels"] == target(TARGETS)["input_ids"]
    assert dict(pair(text_target=TARGETS)) == dict(target(TARGETS))
    assert dict(pair(SOURCES)) == dict(source(SOURCES))
    assert pair("abc", text_target="z")["labels"] == target("z")["input_ids"]
    assert (len(pair), len(pair.target_tokenizer)) == (len(source), len(target))
    with pytest.raises(ValueError, match="either `text` or `text_target`"):
        pair()


def test_decoding_belongs_to_the_target_side(pair):
    encoding = pair(SOURCES, text_target=TARGETS)
    assert pair.batch_decode(encoding["labels"], skip_special_tokens=True) == TARGETS
    assert pair.decode(encoding["labels"], skip_special_tokens=True) == TARGETS
    assert pair.decode(torch.tensor(encoding["labels"][0])) == "x y </s>"
    assert pair.decode_source(encoding["input_ids"], skip_special_tokens=True) == SOURCES


def test_limits_of_length_and_padding(pair):
    options = {"padding": True, "truncation": True, "return_tensors": "pt"}
    batch = pair(SOURCES, text_target=TARGETS, max_length=4, max_target_length=2, **options)
    assert batch["input_ids"].shape == (3, 4) and batch["labels"].shape == (3, 2)
    assert (batch["input_ids"][:, -1] == torch.tensor([2, 2, 0])).all()
    both = pair(SOURCES, text_target=TARGETS, max_length=2, **options)
    assert both["input_ids"].shape == both["labels"].shape == (3, 2)
    assert len(pair("abc" * 9, truncation=True)["input_ids"]) == 6  # model_max_length


def test_left_padding(sides):
    source, target = sides
    source.padding_side = "left"
    pair = Seq2SeqTokenizer.from_pair(source, target)
    batch = pair(["a", "abc"], padding=True)
    assert batch["input_ids"][0][:2] == [0, 0] and batch["attention_mask"][0] == [0, 0, 1, 1]
    assert pair.pad({"input_ids": [[5, 2], [5, 6, 2]]})["input_ids"][0] == [0, 5, 2]
    rows = [pair("a", text_target="x"), pair("abc", text_target="x y")]
    batch = Seq2SeqCollator(pair, padding_side="left")(rows)
    assert batch["input_ids"][0].tolist()[:2] == [0, 0]
    assert batch["labels"].tolist()[0][-1] == -100


def test_the_two_tokenizers_stay_as_they_are(sides):
    source, target = sides
    before = source.backend_tokenizer.to_str(), target.backend_tokenizer.to_str()
    pair = Seq2SeqTokenizer.from_pair(source, target)
    pair.add_tokens(["new"])
    pair.target_tokenizer.add_tokens(["newer"])
    pair(SOURCES, text_target=TARGETS, padding="max_length", max_length=3, truncation=True)
    assert (source.backend_tokenizer.to_str(), target.backend_tokenizer.to_str()) == before


@pytest.mark.parametrize("copies", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies_are_whole_and_their_own(pair, copies):
    other = copies(pair)
    assert same(pair, other)
    other.target_tokenizer.add_tokens(["q"])
    assert len(other.target_tokenizer) == len(pair.target_tokenizer) + 1


@pytest.mark.parametrize("loader", [AutoTokenizer, Seq2SeqTokenizer])
def test_saved_and_loaded_it_is_the_same(pair, tmp_path, loader):
    pair.padding_side = "left"
    files = pair.save_pretrained(tmp_path / "run")
    assert sorted(str(path) for path in (tmp_path / "run").rglob("*.json")) == sorted(files)
    assert len(files) == 4
    loaded = loader.from_pretrained(tmp_path / "run")
    assert type(loaded) is Seq2SeqTokenizer and type(loaded.target_tokenizer) is not type(loaded)
    assert same(pair, loaded)
    assert (loaded.model_max_length, loaded.padding_side) == (6, "left")
    again = loader.from_pretrained(tmp_path, subfolder="run", padding_side="right")
    assert same(pair, again) and again.padding_side == "right"
    loaded.save_pretrained(tmp_path / "second")
    for path in (tmp_path / "run").rglob("tokenizer.json"):
        copied = tmp_path / "second" / path.relative_to(tmp_path / "run")
        assert path.read_text() == copied.read_text()


def test_pushing_uploads_the_target_side_and_the_code_too(pair, tmp_path, monkeypatch):
    pair.save_pretrained(tmp_path)
    uploaded = []

    class Hub:
        @staticmethod
        def create_repo(repo_id, **kwargs):
            return type("Url", (), {"repo_id": repo_id})

        @staticmethod
        def create_commit(operations, **kwargs):
            uploaded.extend(operation.path_in_repo for operation in operations)

    for module in ("transformers.tokenization_utils_base", "transformers.utils.hub"):
        for name in ("create_repo", "create_commit"):  # older releases of transformers
            monkeypatch.setattr(f"{module}.{name}", getattr(Hub, name), raising=False)
        monkeypatch.setattr(f"{module}.hf_api", Hub, raising=False)
    pair.save_pretrained(tmp_path, push_to_hub=True, repo_id="someone/run")
    files = ["target_tokenizer/tokenizer.json", "target_tokenizer/tokenizer_config.json"]
    own_code = "tokenization_seq2seq.py"
    assert sorted(uploaded) == [*files, own_code, "tokenizer.json", "tokenizer_config.json"]


def test_a_folder_of_one_tokenizer_serves_both_sides(sides, tmp_path):
    sides[1].save_pretrained(tmp_path)
    loaded = Seq2SeqTokenizer.from_pretrained(tmp_path)
    assert loaded.target_tokenizer is None
    assert dict(loaded("x", text_target="y")) == {
        "input_ids": [4, 2],
        "attention_mask": [1, 1],
        "labels": [5, 2],
    }
    assert loaded.decode([4, 2]) == loaded.decode_source([4, 2]) == "x </s>"
    loaded.save_pretrained(tmp_path / "again")
    assert not (tmp_path / "again" / "target_tokenizer").exists()


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_damaged_target_side_is_an_error(pair, tmp_path, damage):
    pair.save_pretrained(tmp_path)
    file = tmp_path / "target_tokenizer" / "tokenizer.json"
    if damage == "missing":
        file.unlink()
        (tmp_path / "target_tokenizer" / "tokenizer_config.json").unlink()
    else:
        file.write_text(file.read_text()[:-99])
    with pytest.raises(OSError, match=r"target side cannot be read from its folder target_tokeni"):
        AutoTokenizer.from_pretrained(tmp_path)


def test_only_two_fast_tokenizers_with_the_same_special_ids_make_a_pair(sides, pair):
    source, target = sides
    for wrong in (pair, "a tokenizer", None):
        with pytest.raises(ValueError, match="target_tokenizer must be one fast tokenizer, got"):
            Seq2SeqTokenizer.from_pair(source, wrong)
    odd = PreTrainedTokenizerFast(
        tokenizer_object=target.backend_tokenizer,
        pad_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    )
    with pytest.raises(ValueError, match=r"must agree on pad_token_id, .* got 0 and 3"):
        Seq2SeqTokenizer.from_pair(source, odd)


PROGRAM = """
import json, sys
sys.modules["hf_seqmodels"] = None  # as if it were not installed
from transformers import AutoTokenizer
answers = {}
for folder in sys.argv[1:]:
    source = AutoTokenizer.from_pretrained(folder)
    target = AutoTokenizer.from_pretrained(folder, subfolder="target_tokenizer")
    ids = target("x z y")["input_ids"]
    answers[folder] = [source("<en> abc")["input_ids"], ids, target.decode(ids, True)]
    answers[folder] += [type(source).__module__, type(target).__module__]
print(json.dumps(answers))
"""


@pytest.mark.slow
def test_without_this_package_each_side_loads_alone(sides, tmp_path):
    expected = {}
    for model in TOKENIZER_MODELS:
        folder = tmp_path / model
        texts = ["<en> abc cab", *SOURCES]
        source = train_tokenizer(texts, model=model, extra_tokens=["<en>"])
        Seq2SeqTokenizer.from_pair(source, sides[1]).save_pretrained(folder)
        (folder / "config.json").write_text('{"model_type": "seqmodels_rnn_seq2seq"}')
        expected[str(folder)] = [source("<en> abc")["input_ids"], [4, 6, 5, 2], "x z y"]
    arguments = [sys.executable, "-c", PROGRAM, *expected]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for folder, (*answer, source_home, target_home) in json.loads(done.stdout).items():
        assert answer == expected[folder]
        assert source_home.split(".")[0] == target_home.split(".")[0] == "transformers"


def test_a_trainer_trains_evaluates_and_saves_with_it(pair, tmp_path):
    encoding = pair(SOURCES * 2, text_target=TARGETS * 2)
    dataset = Dataset.from_dict(dict(encoding))
    config = RnnSeq2SeqConfig(
        vocab_size=len(pair),
        decoder_vocab_size=len(pair.target_tokenizer),
        embedding_size=6,
        hidden_size=8,
    )
    decoded = []

    def metrics(prediction):
        predictions = torch.tensor(prediction.predictions).clamp(min=0)
        decoded.extend(pair.batch_decode(predictions, skip_special_tokens=True))
        return {}

    arguments = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path / "run"),
        max_steps=2,
        per_device_train_batch_size=3,
        predict_with_generate=True,
        generation_max_length=5,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    for collator in (Seq2SeqCollator(pair), DataCollatorForSeq2Seq(pair)):
        decoded.clear()
        trainer = Seq2SeqTrainer(
            RnnSeq2SeqForConditionalGeneration(config),
            arguments,
            data_collator=collator,
            train_dataset=dataset,
            eval_dataset=dataset,
            processing_class=pair,
            compute_metrics=metrics,
        )
        trainer.train()
        trainer.evaluate()
        assert len(decoded) == 6 and all(set(text) <= set("xyz ") for text in decoded)
        trainer.save_model(tmp_path / "saved")
        assert same(pair, AutoTokenizer.from_pretrained(tmp_path / "saved"))


KNOWN = ["call the man now .", "tell her (again)"]
SENTENCE, ANSWER = "Zorgon call the Zorgon (qux) <T>bla now .", "tell (qux) Zorgon uff ."


def copying(model: str, *, max_copied_words: int = 3) -> Seq2SeqTokenizer:
    """Return a tokenizer whose unknown words can be copied."""
    size = 60 if model in ("bpe", "wordpiece") else None
    tokenizer = train_tokenizer(KNOWN, model=model, vocab_size=size, extra_tokens=["<T>"])
    return Seq2SeqTokenizer.for_copying(tokenizer, max_copied_words=max_copied_words)


@pytest.mark.parametrize("model", ["word", "symbol", "wordpiece", "char", "bpe"])
def test_unknown_words_of_a_source_are_numbered_and_come_back(model):
    tokenizer = copying(model, max_copied_words=8)
    size = len(tokenizer)
    encoding = tokenizer(SENTENCE, text_target=ANSWER)
    extra = [token for token in encoding["input_ids"] if token >= size]
    assert list(dict.fromkeys(extra)) == list(range(size, size + len(set(extra))))  # by first place
    assert tokenizer.unk_token_id not in encoding["input_ids"]
    assert tokenizer.unk_token_id in encoding["labels"]  # uff is in no source
    assert set(encoding["labels"]) & set(extra)
    source = tokenizer.decode(encoding["input_ids"], True, source=SENTENCE)
    assert source.replace(" ", "") == SENTENCE.replace(" ", "")
    if model not in ("symbol", "wordpiece"):
        assert source == SENTENCE.replace("<T>bla", "<T> bla" if model == "word" else "<T>bla")
    target = tokenizer.decode(encoding["labels"], True, source=SENTENCE)
    letters = "u" if model in ("char", "bpe") else ""  # u is a character of qux
    assert target.split() == ["tell", "(qux)", "Zorgon", *letters, "."]
    assert tokenizer.unk_token in tokenizer.decode(encoding["labels"])  # without the source


def test_as_many_unknown_words_as_there_is_room_for_have_ids():
    tokenizer = copying("symbol", max_copied_words=2)
    size, unk = len(tokenizer), tokenizer.unk_token_id
    encoding = tokenizer("a b c b now", text_target="c b a")
    assert encoding["input_ids"][:4] == [size, size + 1, unk, size + 1]
    assert encoding["labels"][:3] == [unk, size + 1, size]
    cut = tokenizer(
        "now a b", text_target="b a", truncation=True, max_length=3, max_target_length=9
    )
    assert cut["labels"][:2] == [unk, size]  # b is behind the cut
    assert tokenizer(text_target="a b")["input_ids"][:2] == [unk, unk]  # no source, no copies


def test_batches_tensors_and_rows_of_several_sources():
    tokenizer = copying("word")
    sources, targets = [SENTENCE, "uff call Zorgon"], [ANSWER, "Zorgon uff"]
    batch = tokenizer(sources, text_target=targets, padding=True, return_tensors="pt")
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        alone = tokenizer(source, text_target=target)
        for name in ("input_ids", "labels"):
            assert batch[name][row, : len(alone[name])].tolist() == alone[name]
    texts = tokenizer.batch_decode(batch["labels"], skip_special_tokens=True, source=sources)
    assert texts == ["tell (qux) Zorgon .", "Zorgon uff"]
    assert tokenizer.target_tokens(batch["labels"][1].tolist()[:2], sources[1]) == [
        "\u2581Zorgon",
        "\u2581uff",
    ]
    with pytest.raises(ValueError, match="one text for each row of token ids, 2, got 1"):
        tokenizer.batch_decode(batch["labels"], source=sources[:1])
    with pytest.raises(ValueError, match="a pair of texts"):
        tokenizer(SENTENCE, ANSWER)


def test_a_copying_tokenizer_is_saved_and_comes_back(tmp_path):
    tokenizer = copying("word")
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(loaded, Seq2SeqTokenizer) and loaded.max_copied_words == 3
    encoding = tokenizer(SENTENCE, text_target=ANSWER)
    for other in (loaded, copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        assert dict(other(SENTENCE, text_target=ANSWER)) == dict(encoding)
        assert other.decode(encoding["labels"], source=SENTENCE).startswith("tell (qux) Zorgon")


def test_tokenizers_that_cannot_copy_are_refused(pair, sides):
    with pytest.raises(ValueError, match="one fast tokenizer for sources and targets"):
        Seq2SeqTokenizer.for_copying(pair)
    with pytest.raises(ValueError, match="max_copied_words must be at least 1, got 0"):
        Seq2SeqTokenizer.for_copying(sides[0], max_copied_words=0)
    everything = copy.deepcopy(sides[0])
    everything.unk_token = None
    with pytest.raises(ValueError, match="has no unknown token"):
        Seq2SeqTokenizer.for_copying(everything)
