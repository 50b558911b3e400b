"""What a card says: metadata that the Hub reads, sections that are there when they are needed."""

import math
import re

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import model_index_to_eval_results
from transformers import GPT2Config, GPT2DoubleHeadsModel, GPT2LMHeadModel

from carded_models import HEADS, make_carded
from hf_seqmodels.model_cards import CardFacts, render_card

FACTS = {
    "license": "cc-by-4.0",
    "language": ["bg", "nl"],
    "dataset": "someone/pairs",
    "base_model": "someone/parent",
    "tags": ["g2p"],
    "metrics": {
        "test": {"per": 3.31347, "loss": 0.2},
        "validation": {"per": np.float32(2.5), "loss": math.nan},
    },
    "signatures": {"bleu": "nrefs:1|case:mixed"},
    "decoding": {"num_beams": 5, "max_length": 9},
    "examples": [["ab", "ba"], ["cd", "dc"]],
    "data": {
        "train": {"name": "train.tsv", "rows": 8000, "sha256": "0123456789abcdef0123"},
        "test": {"name": "test.tsv", "rows": 1000},
    },
    "training": {"epochs": 30.0, "best_step": 7500},
    "command": "python train.py --seed 1",
    "options": {"seed": 1, "metrics": ["per"]},
    "environment": {"torch": "2.13.0", "processor": "x86_64"},
    "alignment_picture": "alignments.png",
    "files": {"metrics.json": "all figures"},
}
# what could end a piece of the card early: YAML, HTML, tables, code, templates, links, comments
NASTY = "a\n---\nb: 'c' \"d\" | ``` ` $x ${name} <script> [l](u) # --> \\ _e_ *f* é\u2028\t{{g}} %s"


@pytest.fixture(scope="module")
def model():
    return make_carded("seqmodels_rnn_seq2seq", "AutoModelForSeq2SeqLM")[0]


@pytest.fixture(scope="module")
def tokenizer():
    return make_carded("seqmodels_rnn_seq2seq", "AutoModelForSeq2SeqLM")[1]


@pytest.fixture(scope="module")
def card(model, tokenizer):
    """A card with every fact there is."""
    assert set(FACTS) == {*CardFacts.__dataclass_fields__} - {"pipeline_tag"}
    return render_card(model, tokenizer, name="reverser", repo_id="someone/reverser", **FACTS)


def without_blocks(card):
    """Leave the metadata and the blocks of code out of a card."""
    text = card.split("\n---\n", 1)[1]
    return re.sub(r"^(`{3,})[^`\n]*\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)


def without_code(card):
    """Leave the code inside lines out, too."""
    return re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", without_blocks(card))


def headings(card):
    """Return the headings of a card."""
    return re.findall(r"^#+ (.*)", without_code(card), re.MULTILINE)


def test_metadata_is_what_the_hub_reads(card):
    data = ModelCard(card).data.to_dict()
    results = data.pop("model-index")
    assert data == {
        "library_name": "transformers",
        "license": "cc-by-4.0",
        "language": ["bg", "nl"],
        "tags": ["hf_seqmodels", "seq2seq", "seqmodels_rnn_seq2seq", "g2p"],
        "datasets": ["someone/pairs"],
        "base_model": "someone/parent",
        "metrics": ["per"],
        "widget": [
            {"text": "ab", "output": {"text": "ba"}},
            {"text": "cd", "output": {"text": "dc"}},
        ],
    }
    assert results[0]["name"] == "reverser"


def test_results_come_back_from_the_model_index(card, tmp_path):
    (tmp_path / "README.md").write_text(card, encoding="utf-8")
    index = ModelCard.load(tmp_path / "README.md").data.to_dict()["model-index"]
    name, results = model_index_to_eval_results(index)
    assert name == "reverser"
    found = [
        (each.dataset_split, each.dataset_name, each.metric_type, each.metric_value)
        for each in results
    ]
    assert found == [
        ("test", "test.tsv", "per", 3.3135),
        ("test", "test.tsv", "loss", 0.2),
        ("validation", "validation", "per", 2.5),  # what is not a number is left out
    ]
    assert {each.task_type for each in results} == {"seq2seq-generation"}
    assert {each.dataset_type for each in results} == {"someone/pairs"}


def test_metadata_survives_the_hub_client(card):
    assert str(ModelCard(card)) == card


def test_a_full_card_has_every_section(card):
    assert headings(card) == [
        *("reverser", "Use", "Model", "Intended use", "Limits", "Scores", "Alignments", "Data"),
        *("Training", "Configuration"),
    ]
    for piece in (
        "| `per` | 3.31 | 2.50 | wrong phones per 100 of the reference (lower is better) |",
        "Decoded with `num_beams=5`, `max_length=9`.",
        "- `bleu`: `nrefs:1|case:mixed`",
        "`metrics.json` holds all figures.",
        "![Attention of the model on a few sources](alignments.png)",
        "[someone/pairs](https://huggingface.co/datasets/someone/pairs)",
        "| train | 8,000 | train.tsv | `0123456789abcdef` |",
        "| epochs | best step |\n| --- | --- |\n| 30 | 7,500 |",
        "```bash\npython train.py --seed 1\n```",
        "- torch: 2.13.0",
        "fine-tuned from [someone/parent](https://huggingface.co/someone/parent)",
        "Language: bg, nl.",
    ):
        assert piece in card, piece
    assert '"cell_type"' in card


@pytest.mark.parametrize(("model_type", "auto_class"), HEADS)
def test_every_head_of_every_family_has_a_card_without_facts(model_type, auto_class):
    model, tokenizer = make_carded(model_type, auto_class)
    card = render_card(model, tokenizer, name="untrained")
    assert headings(card) == [
        *("untrained", "Use", "Model", "Intended use", "Limits", "Configuration")
    ]
    data = ModelCard(card).data.to_dict()
    tag = {
        "AutoModel": "feature-extraction",
        "AutoModelForCausalLM": "text-generation",
        "AutoModelForSequenceClassification": "text-classification",
        "AutoModelForTokenClassification": "token-classification",
        "AutoModelForMaskedLM": "fill-mask",
        "AutoModelForMultipleChoice": "multiple-choice",
        "AutoModelForQuestionAnswering": "question-answering",
    }
    assert data.pop("pipeline_tag", None) == tag.get(auto_class)
    assert set(data) == {"library_name", "tags"}
    assert f"{model.num_parameters():,} parameters" in card


def test_no_licence_is_ever_guessed(model):
    assert "license" not in ModelCard(render_card(model, name="a")).data.to_dict()


def test_a_task_of_the_user_wins(model):
    card = render_card(
        model, name="a", pipeline_tag="translation", metrics={"test": {"bleu": 30.0}}
    )
    data = ModelCard(card).data
    assert (data.pipeline_tag, data.eval_results[0].task_type) == ("translation",) * 2


def test_code_loads_by_the_name_on_the_hub_or_from_the_folder(model):
    assert 'from_pretrained("someone/a")' in render_card(model, name="b", repo_id="someone/a")
    card = render_card(model, name="b", place="runs/mine")
    assert 'from_pretrained("runs/mine")' in card
    assert "`runs/mine` stands for the folder that holds this card" in card
    assert 'from_pretrained("b")' in render_card(model, name="b")
    assert 'from_pretrained("c")' in render_card(model, name="b", place="/data/me/c")


def test_a_folder_without_code_says_how_to_get_one(model):
    card = render_card(model, name="a", with_code=False)
    assert "trust_remote_code" not in card
    assert "python -m hf_seqmodels.hub export" in card


def test_no_text_breaks_out_of_its_place(model, tokenizer, tmp_path):
    plain = render_card(model, tokenizer, name="a", **FACTS)
    card = render_card(
        model,
        tokenizer,
        name=NASTY,
        place=NASTY,
        tags=[NASTY],
        metrics={NASTY: {NASTY: 1.0}},
        signatures={NASTY: NASTY},
        decoding={NASTY: NASTY},
        examples=[[NASTY, NASTY]],
        data={NASTY: {"name": NASTY, "sha256": NASTY, "rows": NASTY}},
        training={NASTY: NASTY},
        command=NASTY,
        options={NASTY: NASTY},
        environment={NASTY: NASTY},
        alignment_picture="a b.png",
        files={NASTY: NASTY},
    )
    (tmp_path / "README.md").write_text(card, encoding="utf-8")
    data = ModelCard.load(tmp_path / "README.md").data
    assert data.tags[-1] == NASTY
    assert data.widget == [{"text": NASTY, "output": {"text": NASTY}}]
    assert [each.metric_type for each in data.eval_results] == [NASTY]
    assert headings(card)[1:] == headings(plain)[1:]
    assert len(headings(card)) == len(headings(plain))
    fence = re.search(r"^(`{3,})yaml\n(.*?)^\1$", card, re.DOTALL | re.MULTILINE)
    assert yaml.safe_load(fence[2]) == {NASTY: NASTY}
    text, _, comment = without_code(card).partition("<!--")
    assert "<script>" not in text
    assert (text + comment).count("-->") == 1
    # a bar ends a cell, be it inside code
    tables = [line for line in without_blocks(card).splitlines() if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in tables] == [4] * 3 + [5] * 3 + [2] * 3


def test_a_fact_that_cards_do_not_know_is_refused(model):
    with pytest.raises(TypeError, match="licence"):
        render_card(model, name="a", licence="mit")


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"license": "Apache License 2.0"}, "license must be an identifier .* 'apache-2.0'"),
        ({"language": "English"}, "language takes ISO 639 codes .* got 'English'"),
        ({"dataset": "/data/me/pairs.tsv"}, "dataset must be a name on the Hub"),
        ({"base_model": "runs/mine/checkpoint-5"}, "base_model must be a name on the Hub"),
        ({"metrics": {"cer": 4.2}}, "metrics maps parts of the data to their scores"),
        ({"metrics": {"test": {"cer": "4.2"}}}, "metrics are plain numbers, got cer='4.2'"),
        ({"examples": ["ab"]}, "examples are pairs of an input and an output, got 'ab'"),
    ],
)
def test_facts_in_a_form_that_the_hub_refuses_are_refused_here(facts, message, model):
    with pytest.raises(ValueError, match=message):
        render_card(model, name="a", **facts)


def test_a_model_that_no_auto_class_loads_is_refused():
    config = GPT2Config(vocab_size=9, n_embd=4, n_layer=1, n_head=1)
    with pytest.raises(ValueError, match="none of these loads GPT2DoubleHeadsModel"):
        render_card(GPT2DoubleHeadsModel(config), name="a")
    assert "AutoModelForCausalLM" in render_card(GPT2LMHeadModel(config), name="a")
