"""pipeline("seq2seq-generation") against generate() with decoding, n-best lists and alignments."""

import itertools
import math

import datasets
import pytest
import torch
from transformers import (
    BertConfig,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    pipeline,
)
from transformers.pipelines.pt_utils import KeyDataset

from hf_seqmodels.data import Seq2SeqTokenizer, train_tokenizer
from hf_seqmodels.decoding import beam_search
from hf_seqmodels.evaluation import EnsembleForSeq2SeqLM, alignments, n_best
from hf_seqmodels.models.pipeline_seq2seq_generation import Seq2SeqGenerationPipeline
from tiny_encoder_decoders import MODELS, make_bart, make_rnn, make_t5, make_tokenizer

SOURCES = ["a b c", "d", "", "e f g h i j a", "k l", "a b c m"]
ATTENDING = [name for name in MODELS if name != "rnn_without_attention"]


def make_pipe(model="rnn_gru_additive", tokenizer=None, *, seed=3, **options):
    """A pipeline of a tiny model, which is in training mode, as a Trainer leaves it."""
    torch.manual_seed(seed)
    model = MODELS[model]().train() if isinstance(model, str) else model
    tokenizer = make_tokenizer() if tokenizer is None else tokenizer
    return pipeline("seq2seq-generation", model=model, tokenizer=tokenizer, device="cpu", **options)


def generated(model, tokenizer, source, **settings):
    """What generate() and decoding make of one source; the start token is not generated."""
    batch = tokenizer(source, return_tensors="pt", return_token_type_ids=False)
    sequences = model.eval().generate(**batch, **settings)
    return tokenizer.batch_decode(sequences[:, 1:], skip_special_tokens=True)


def texts(outputs):
    return [output["generated_text"] for output in outputs]


def assert_close(found, expected):
    """Compare nested results, numbers to 1e-5."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for name in expected:
            assert_close(found[name], expected[name])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    else:
        assert found == (pytest.approx(expected, abs=1e-5) if type(expected) is float else expected)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("settings", [{}, {"num_beams": 4, "num_return_sequences": 3}], ids=str)
def test_equals_generate_and_decode(name, settings):
    settings = {"max_new_tokens": 8, **settings}
    pipe = make_pipe(name, seed=1, **settings)
    expected = [generated(pipe.model, pipe.tokenizer, source, **settings) for source in SOURCES]
    assert [texts(outputs) for outputs in pipe(SOURCES)] == expected
    assert texts(pipe(SOURCES[3])) == expected[3]
    assert len({text for found in expected for text in found}) > 1, "outputs that differ"


@pytest.mark.parametrize("name", ATTENDING)
def test_batches_change_nothing(name):
    settings = {
        "num_beams": 3,
        "num_return_sequences": 2,
        "max_new_tokens": 7,
        "return_scores": True,
        "return_alignments": True,
        "return_tensors": True,
        "return_text": True,
    }
    pipe = make_pipe(name, make_tokenizer(padding_side="left"))
    alone = [pipe(source, **settings) for source in SOURCES]
    in_batches = pipe(SOURCES, batch_size=4, **settings)
    for outputs in (*alone, *in_batches):
        for output in outputs:
            output["generated_token_ids"] = output["generated_token_ids"].tolist()
    assert_close(in_batches, alone)


def test_every_kind_of_input_gives_the_same():
    pipe = make_pipe(max_new_tokens=6, batch_size=2)
    expected = pipe(SOURCES)
    data = datasets.Dataset.from_dict({"source": SOURCES})
    assert pipe(tuple(SOURCES)) == expected
    assert pipe(data["source"]) == expected
    for many in (
        KeyDataset(data, "source"),
        (source for source in SOURCES),
        map(str, SOURCES),
        dict.fromkeys(SOURCES).keys(),
    ):
        results = pipe(many)
        assert not isinstance(results, list)
        assert list(results) == expected
    assert [pipe(source) for source in SOURCES] == expected
    assert pipe([]) == []
    for nothing in (KeyDataset(data.select([]), "source"), iter([])):
        assert list(pipe(nothing)) == []


def test_generators_are_read_while_results_are_taken():
    read = []

    def endless():
        for number in itertools.count():
            read.append(number)
            yield "a b"

    results = iter(make_pipe(max_new_tokens=3)(endless(), batch_size=2))
    for _ in range(3):
        next(results)
    assert len(read) < 8


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_the_n_best_list_and_of_generate(name):
    settings = {"num_beams": 4, "length_penalty": 0.4, "max_new_tokens": 7}
    pipe = make_pipe(name)
    results = pipe(
        SOURCES,
        batch_size=4,
        num_return_sequences=4,
        return_scores=True,
        return_tensors=True,
        return_text=True,
        **settings,
    )
    lists = n_best(pipe.model, pipe.tokenizer, SOURCES, progress=False, **settings)
    for source, outputs, hypotheses in zip(SOURCES, results, lists, strict=True):
        assert_close(
            [{**output, "generated_token_ids": None} for output in outputs],
            [
                {
                    "generated_text": hypothesis.text,
                    "generated_token_ids": None,
                    "score": hypothesis.score,
                    "log_probability": hypothesis.log_probability,
                    "token_log_probabilities": hypothesis.token_log_probabilities,
                }
                for hypothesis in hypotheses
            ],
        )
        ids = [output["generated_token_ids"].tolist() for output in outputs]
        assert ids == [hypothesis.token_ids for hypothesis in hypotheses]
        found = pipe.model.generate(
            **pipe.tokenizer(source, return_tensors="pt", return_token_type_ids=False),
            num_return_sequences=4,
            return_dict_in_generate=True,
            output_scores=True,
            **settings,
        )
        scores = [output["score"] for output in outputs]
        assert scores == pytest.approx(found.sequences_scores.tolist(), abs=1e-5)


def test_length_penalty_of_the_model_and_of_a_configuration_counts():
    pipe = make_pipe(num_beams=3, max_new_tokens=6, return_scores=True)
    pipe.model.generation_config.length_penalty = -0.5

    def penalties():
        config = GenerationConfig(num_beams=3, max_new_tokens=6, length_penalty=0.3)
        yield -0.5, pipe("a b c")[0]
        yield 0.3, pipe("a b c", generation_config=config)[0]
        yield 2.0, pipe("a b c", length_penalty=2.0)[0]

    for penalty, output in penalties():
        length = len(output["token_log_probabilities"])
        assert output["score"] == pytest.approx(output["log_probability"] / length**penalty)
        assert length > 1


def score_by_hand(output, *, alpha, beta=0.0, gnmt=False):
    """Equation 14 of Wu et al. 2016, or the score of generate(), in plain loops."""
    log_probability = math.fsum(output["token_log_probabilities"])
    length = len(output["token_log_probabilities"])
    divisor = (5 + length) ** alpha / (5 + 1) ** alpha if gnmt else length**alpha
    coverage = 0.0
    for column in zip(*output["alignment"]["weights"], strict=True):
        coverage += math.log(min(sum(column), 1.0))
    return log_probability / divisor + beta * coverage


@pytest.mark.parametrize(
    ("options", "by_hand"),
    [
        ({"length_normalization": "gnmt", "length_penalty": 0.6}, {"alpha": 0.6, "gnmt": True}),
        ({"coverage_penalty": 0.3}, {"alpha": 1.0, "beta": 0.3}),
        (
            {
                "length_normalization": "gnmt",
                "length_penalty": 1.4,
                "coverage_penalty": 0.5,
                "coverage_layer": 0,
            },
            {"alpha": 1.4, "beta": 0.5, "gnmt": True},
        ),
    ],
    ids=["gnmt", "coverage", "both"],
)
@pytest.mark.parametrize("name", ["transformer", "rnn_gru_additive"])
def test_scores_are_what_the_beam_search_of_the_package_ranks_by(name, options, by_hand):
    settings = {"custom_generate": beam_search, "num_beams": 4, "max_new_tokens": 6, **options}
    pipe = make_pipe(name, seed=1)
    results = pipe(
        SOURCES,
        batch_size=4,
        num_return_sequences=3,
        return_scores=True,
        return_alignments=True,
        alignment_layer=options.get("coverage_layer", -1),
        **settings,
    )
    for source, outputs in zip(SOURCES[:3], results, strict=False):
        scores = [output["score"] for output in outputs]
        for output in outputs:
            total = sum(output["token_log_probabilities"])
            assert output["log_probability"] == pytest.approx(total)
            assert output["score"] == pytest.approx(score_by_hand(output, **by_hand), abs=2e-5)
        found = pipe.model.generate(
            **pipe.tokenizer(source, return_tensors="pt", return_token_type_ids=False),
            num_return_sequences=3,
            return_dict_in_generate=True,
            output_scores=True,
            **settings,
        )
        assert scores == pytest.approx(found.sequences_scores.tolist(), abs=2e-5)
    (alone,) = pipe(SOURCES[0], return_scores=True, **settings)
    assert alone["score"] == pytest.approx(results[0][0]["score"], abs=2e-5)


@pytest.mark.parametrize("name", ATTENDING)
def test_alignments_are_those_of_evaluation(name):
    pipe = make_pipe(name, num_beams=3, max_new_tokens=7, return_alignments=True)
    expected = alignments(
        pipe.model, pipe.tokenizer, SOURCES, num_beams=3, max_new_tokens=7, progress=False
    )
    for outputs, alignment in zip(pipe(SOURCES, batch_size=4), expected, strict=True):
        found = outputs[0]["alignment"]
        assert_close(found["weights"], alignment.weights.tolist())
        for part in ("source_tokens", "target_tokens", "source_is_special", "target_is_special"):
            assert found[part] == getattr(alignment, part)


@pytest.mark.parametrize("name", ["bart", "rnn_gru_additive"])
def test_each_output_has_the_attention_of_its_own_beam(name):
    """The second source is what generate() recorded, step by step, at the beams it says."""
    settings = {"num_beams": 4, "num_return_sequences": 3, "max_new_tokens": 7}
    pipe = make_pipe(name)
    outputs = pipe("e f g h i", return_alignments=True, **settings)
    pipe.model.set_attn_implementation("eager")
    recorded = pipe.model.generate(
        **pipe.tokenizer("e f g h i", return_tensors="pt", return_token_type_ids=False),
        output_attentions=True,
        return_dict_in_generate=True,
        **settings,
    )
    crossings = 0
    for output, beams in zip(outputs, recorded.beam_indices.tolist(), strict=True):
        beams = [beam for beam in beams if beam >= 0]
        crossings += len(set(beams)) > 1
        rows = [
            layers[-1][beam, :, -1].mean(dim=0).tolist()  # (H, 1, S) -> (S,)
            for beam, layers in zip(beams, recorded.cross_attentions, strict=False)
        ]
        assert_close(output["alignment"]["weights"], rows)
    assert crossings, "beams that change places, or nothing is tested"


def test_layer_and_head_of_alignments_are_chosen():
    pipe = make_pipe("bart", max_new_tokens=5, return_alignments=True)
    for layer, head in ((0, 1), (-1, "mean"), ("mean", 2)):
        found = pipe("a b c", alignment_layer=layer, alignment_head=head)[0]["alignment"]["weights"]
        (expected,) = alignments(
            pipe.model,
            pipe.tokenizer,
            ["a b c"],
            layer=layer,
            head=head,
            max_new_tokens=5,
            progress=False,
        )
        assert_close(found, expected.weights.tolist())
    with pytest.raises(ValueError, match="layer must be an index from -2 to 1 or 'mean', got 2"):
        pipe("a b c", alignment_layer=2)


class Prefer(LogitsProcessor):
    """Adds to the score of one token."""

    def __call__(self, input_ids, scores):
        scores[:, 9] += 2.0
        return scores


ARGUMENTS = [
    {"do_sample": True, "temperature": 0.8, "top_k": 6, "top_p": 0.9, "num_return_sequences": 3},
    {"num_beams": 3, "do_sample": True},
    {"num_beams": 3, "early_stopping": True, "length_penalty": -1.0},
    {"max_length": 4},
    {"min_new_tokens": 8},
    {"forced_bos_token_id": 7, "forced_eos_token_id": 2},
    {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2},
    {"suppress_tokens": [10], "bad_words_ids": [[3, 3]]},
    {"eos_token_id": [2, 9], "pad_token_id": 1},
    {"use_cache": False},
    {"decoder_start_token_id": 5},
    {"prefix_allowed_tokens_fn": lambda batch_id, ids: [4, 6, 8]},
    {"logits_processor": LogitsProcessorList([Prefer()])},
    {"generation_config": GenerationConfig(num_beams=2, max_new_tokens=3, num_return_sequences=2)},
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids="_".join)
@pytest.mark.parametrize("where", ["call", "constructor"])
def test_arguments_of_generate_reach_it(arguments, where):
    if not {"max_length", "generation_config"} & set(arguments):
        arguments = {"max_new_tokens": 8, **arguments}
    pipe = make_pipe(**(arguments if where == "constructor" else {}))
    plain = generated(pipe.model, pipe.tokenizer, "k l m", max_new_tokens=8)
    torch.manual_seed(3)
    expected = generated(pipe.model, pipe.tokenizer, "k l m", **arguments)
    torch.manual_seed(3)
    found = pipe("k l m", **(arguments if where == "call" else {}))
    assert texts(found) == expected
    assert expected != plain or "use_cache" in arguments


def test_stop_strings_and_assistants_find_what_they_need():
    tokenizer = train_tokenizer(["abcdefghijklm"], model="char")
    pipe = make_pipe("bart", tokenizer, max_new_tokens=6)
    (whole,) = texts(pipe("efghija"))
    (cut,) = texts(pipe("efghija", stop_strings=[whole[1:3]]))
    assert cut == whole[:3] != whole
    helper = make_bart().eval()
    assert texts(pipe("efghija", assistant_model=helper)) == [whole]


def test_a_call_comes_before_the_constructor():
    pipe = make_pipe(num_beams=3, num_return_sequences=2, max_new_tokens=4, return_scores=True)
    assert len(pipe("a b")) == 2
    assert [
        list(output) for output in pipe("a b", num_return_sequences=1, return_scores=False)
    ] == [["generated_text"]]
    config = GenerationConfig(max_new_tokens=5)
    assert texts(pipe("a b c", generation_config=config)) == generated(
        pipe.model, pipe.tokenizer, "a b c", generation_config=config
    )
    for limit in ({"max_length": 3}, {"max_new_tokens": 2}):
        expected = generated(pipe.model, pipe.tokenizer, "k l m", num_beams=3, **limit)
        assert texts(pipe("k l m", **limit, num_return_sequences=1)) == expected
        assert expected != texts(pipe("k l m", num_return_sequences=1))
    assert len(pipe("a b")) == 2, "a call leaves no trace"
    assert config.return_dict_in_generate is None


def test_parts_of_an_output_are_chosen():
    pipe = make_pipe(max_new_tokens=6, min_new_tokens=4)
    (whole,) = pipe("a b c", return_tensors=True, return_text=True)
    ids = whole["generated_token_ids"]
    assert pipe.tokenizer.decode(ids, skip_special_tokens=True) == whole["generated_text"]
    (tensors,) = pipe("a b c", return_tensors=True)
    assert list(tensors) == ["generated_token_ids"]
    assert torch.equal(tensors["generated_token_ids"], ids)
    (scores,) = pipe("a b c", return_text=False, return_scores=True)
    assert list(scores) == ["score", "log_probability", "token_log_probabilities"]
    assert len(scores["token_log_probabilities"]) == len(ids)
    with pytest.raises(ValueError, match="return_text=False leaves nothing to return"):
        pipe("a b c", return_text=False)


def test_special_tokens_and_blanks_are_as_for_a_tokenizer():
    tokenizer = make_tokenizer(["a", "!", *"cdefghijklm"])
    pipe = make_pipe(
        make_bart(), tokenizer, max_new_tokens=3, prefix_allowed_tokens_fn=lambda *_: [4, 5]
    )
    found = {
        (skip, clean): pipe(
            "a",
            forced_eos_token_id=2,
            skip_special_tokens=skip,
            clean_up_tokenization_spaces=clean,
            suppress_tokens=[4],
        )[0]["generated_text"]
        for skip in (True, False)
        for clean in (True, False)
    }
    assert found[True, False] == "! !"
    assert found[True, True] == "!!"
    assert found[False, False] == "! ! </s>"


def make_bert_pair():
    """Two models of transformers joined as encoder and decoder; each keeps its own config."""
    configs = [
        BertConfig(
            vocab_size=17,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=4,
            max_position_embeddings=6 if side == "encoder" else 20,
            initializer_range=1.0,
        )
        for side in ("encoder", "decoder")
    ]
    config = EncoderDecoderConfig.from_encoder_decoder_configs(*configs)
    model = EncoderDecoderModel(config=config)
    model.generation_config.update(decoder_start_token_id=1, eos_token_id=2, pad_token_id=0)
    return model


def test_an_encoder_and_a_decoder_of_others_work():
    torch.manual_seed(1)
    settings = {"num_beams": 3, "max_new_tokens": 6}
    pipe = make_pipe(make_bert_pair(), return_alignments=True, return_scores=True, **settings)
    results = pipe([*SOURCES, "a b c d e f g h"], batch_size=2, truncation=True)
    for source, outputs in zip(SOURCES, results, strict=False):
        cut = pipe.tokenizer(source, truncation=True, max_length=6)["input_ids"]
        text = pipe.tokenizer.decode(cut, skip_special_tokens=True)
        assert texts(outputs) == generated(pipe.model, pipe.tokenizer, text, **settings)
    assert results[-1][0]["alignment"]["source_tokens"] == ["a", "b", "c", "d", "e", "</s>"]
    assert len({output["score"] for outputs in results for output in outputs}) == len(results)


def test_sources_are_cut_where_asked():
    pipe = make_pipe("bart", max_new_tokens=3, return_alignments=True)

    def seen(source, **options):
        return pipe(source, **options)[0]["alignment"]["source_tokens"]

    assert seen("a b c d e", max_source_length=3) == ["a", "b", "</s>"]
    assert seen("a b c d", max_source_length=3, truncation=False) == ["a", "b", "c", "d", "</s>"]
    assert seen("a " * 50, truncation=True) == ["a"] * 31 + ["</s>"], "positions of the model"
    pipe.tokenizer.model_max_length = 4
    assert seen("a b c d e", truncation=True) == ["a", "b", "c", "</s>"]
    assert seen("a b c d e") == ["a", "b", "c", "d", "e", "</s>"]
    with pytest.raises(ValueError, match="max_source_length must be at least 1, got 0"):
        pipe("a b", max_source_length=0)
    with pytest.raises(ValueError, match=r"truncation=True needs a limit.*max_source_length"):
        make_pipe(make_t5(), truncation=True)("a b c")


def test_a_source_without_any_token_is_an_end_token():
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    assert tokenizer("")["input_ids"] == []
    pipe = make_pipe(make_bart(), tokenizer, max_new_tokens=4)
    assert pipe(["", "a"], batch_size=2)[0] == pipe("")
    expected = pipe.model.generate(torch.tensor([[2]]), max_new_tokens=4)
    assert texts(pipe("")) == tokenizer.batch_decode(expected, skip_special_tokens=True)


def test_two_tokenizers_read_and_write():
    torch.manual_seed(1)
    pair = Seq2SeqTokenizer.from_pair(make_tokenizer(), make_tokenizer("ABCDEFG"))
    model = make_rnn(decoder_vocab_size=11)
    pipe = make_pipe(model, pair, max_new_tokens=6, num_beams=2, return_alignments=True)
    (output,) = pipe("a b c")
    batch = pair(["a b c"], return_tensors="pt", return_token_type_ids=False)
    ids = model.generate(**batch, max_new_tokens=6, num_beams=2)[0]
    assert output["generated_text"] == pair.target_tokenizer.decode(ids, skip_special_tokens=True)
    assert output["generated_text"].strip("ABCDEFG ") == "" != output["generated_text"]
    assert output["alignment"]["source_tokens"] == ["a", "b", "c", "</s>"]
    assert set(output["alignment"]["target_tokens"]) <= {*"ABCDEFG", "<s>", "<unk>", "</s>"}
    with pytest.raises(ValueError, match=r"vocab_size=17, decoder_vocab_size=11.*no target side"):
        make_pipe(model, make_tokenizer())


def test_outputs_that_do_not_exist_are_left_out_of_scored_lists():
    """Two tokens allowed for one step: stock beam search fills up with what it ruled out."""
    pipe = make_pipe(num_beams=5, num_return_sequences=5, max_new_tokens=1, return_tensors=True)
    outputs = pipe("a b", prefix_allowed_tokens_fn=lambda *_: [5, 6], return_scores=True)
    assert sorted(output["generated_token_ids"].tolist() for output in outputs) == [[5], [6]]


def test_an_ensemble_generates_with_its_scores():
    torch.manual_seed(1)
    ensemble = EnsembleForSeq2SeqLM([make_rnn(), make_rnn()])
    settings = {"num_beams": 3, "max_new_tokens": 6}
    pipe = make_pipe(ensemble, return_scores=True, num_return_sequences=3, **settings)
    lists = n_best(ensemble, pipe.tokenizer, SOURCES, progress=False, **settings)
    for outputs, hypotheses in zip(pipe(SOURCES, batch_size=3), lists, strict=True):
        assert texts(outputs) == [hypothesis.text for hypothesis in hypotheses]
        scores = [output["score"] for output in outputs]
        assert scores == pytest.approx([hypothesis.score for hypothesis in hypotheses], abs=1e-5)
    assert pipe("a b", return_alignments=True)[0]["alignment"]["source_tokens"] == [
        "a",
        "b",
        "</s>",
    ]


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", torch.float64])
def test_saved_folder_loads_by_its_task(tmp_path, dtype):
    pipe = make_pipe("rnn_gru_additive", num_beams=2, max_new_tokens=6)
    pipe.save_pretrained(tmp_path)
    loaded = pipeline("seq2seq-generation", model=str(tmp_path), dtype=dtype, device="cpu")
    assert type(loaded) is Seq2SeqGenerationPipeline
    assert loaded.device.type == "cpu"
    expected = {"auto": torch.float32, "bfloat16": torch.bfloat16}.get(dtype, dtype)
    assert loaded.dtype == loaded.model.dtype == expected
    found = loaded(SOURCES, num_beams=2, max_new_tokens=6, return_scores=True, batch_size=2)
    assert all(output["score"] < 0 for outputs in found for output in outputs)
    if dtype == "auto":
        assert [texts(outputs) for outputs in found] == [
            texts(outputs) for outputs in pipe(SOURCES)
        ]
    saved_again = tmp_path / "again"
    loaded.save_pretrained(saved_again)
    assert {path.name for path in saved_again.iterdir()} == {
        path.name for path in tmp_path.iterdir() if path.is_file()
    }


@pytest.mark.parametrize("source", [None, 3, b"a", {"source": "a"}, ["a", None], [["a"]]], ids=str)
def test_what_is_no_text_is_refused(source):
    with pytest.raises(ValueError, match=r"takes texts, got .*\((NoneType|int|bytes|dict|list)\)"):
        make_pipe(max_new_tokens=3)(source)


def test_arguments_that_cannot_be_honoured_are_refused():
    pipe = make_pipe(max_new_tokens=3)
    with pytest.raises(ValueError, match=r"cannot take output_scores: .* use return_scores=True"):
        pipe("a", output_scores=True)
    with pytest.raises(ValueError, match="cannot take decoder_input_ids: use decoder_start_token"):
        make_pipe(decoder_input_ids=torch.ones(1, 1))
    with pytest.raises(ValueError, match="num_beam"):
        pipe("a", num_beam=3)
    with pytest.raises(ValueError, match=r"returned none.*attention_scorer=None"):
        make_pipe("rnn_without_attention")("a", return_alignments=True, max_new_tokens=2)


def test_models_and_tokenizers_that_do_not_serve_are_refused():
    with pytest.raises(ValueError, match="needs the tokenizer of the model, got None"):
        Seq2SeqGenerationPipeline(make_bart(), device="cpu")
    with pytest.raises(ValueError, match=r"needs an encoder-decoder.*got BartEncoder"):
        Seq2SeqGenerationPipeline(make_bart().get_encoder(), make_tokenizer(), device="cpu")
    tokenizer = make_tokenizer()
    tokenizer.pad_token = None
    with pytest.raises(ValueError, match="needs a pad token to make batches"):
        make_pipe(make_bart(), tokenizer)(["a", "b"])
