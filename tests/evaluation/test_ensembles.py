"""Ensembles against loops that average probabilities: one prefix, one row, one member at a time."""

import itertools

import numpy as np
import pytest
import torch

from hf_seqmodels.data import Seq2SeqTokenizer, train_tokenizer
from hf_seqmodels.evaluation import (
    EnsembleForSeq2SeqLM,
    alignments,
    decode_corpus,
    n_best,
    score_targets,
)

TARGETS = ["b", "", "c d e", "a a a a", "f", "g h"]


def starting_at_pad(model):
    """All members must start alike; T5 starts at the pad token."""
    model.config.decoder_start_token_id = 0
    model.generation_config.decoder_start_token_id = 0
    return model.eval()


@pytest.fixture
def family_members(make_model):
    """One member of each kind, with one target vocabulary."""
    names = ("bart", "t5", "rnn_lstm_previous_general", "rnn_without_attention")
    return [starting_at_pad(make_model(name, seed)) for seed, name in enumerate(names, start=3)]


@pytest.fixture
def left_padded_members(make_model):
    """Members without absolute positions, so that padding on the left means the same."""
    names = ("t5", "rnn_gru_additive", "rnn_elman_multi_head")
    return [starting_at_pad(make_model(name, seed)) for seed, name in enumerate(names, start=5)]


def encode(tokenizer, sources, **options):
    return tokenizer(sources, return_tensors="pt", return_token_type_ids=False, **options)


def next_probabilities(models, weights, tokenizer, source, prefix):
    """p(. | prefix, source): the weighted mean over the models, in float64."""
    inputs = encode(tokenizer, source)
    prefix, total = torch.tensor([prefix]), sum(weights)
    mean = 0.0
    with torch.no_grad():
        for model, weight in zip(models, weights, strict=True):
            logits = model(**inputs, decoder_input_ids=prefix, use_cache=False).logits[0, -1]
            mean = mean + weight / total * logits.double().softmax(dim=-1)
    return mean


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_beams": 4},
        {"num_beams": 3, "num_return_sequences": 2, "use_cache": False},
        {"do_sample": True, "top_p": 0.9},
    ],
    ids=["greedy", "beam", "uncached", "sample"],
)
def test_an_ensemble_of_one_writes_what_the_model_writes(model, tokenizer, sources, settings):
    model.eval()
    inputs = encode(tokenizer, sources, padding=True)
    written = []
    for writer in (model, EnsembleForSeq2SeqLM([model])):
        torch.manual_seed(0)
        written.append(writer.generate(**inputs, max_new_tokens=9, **settings))
    torch.testing.assert_close(written[1], written[0])


def test_an_ensemble_of_one_has_the_scores_of_the_model(model, tokenizer, sources):
    ensemble = EnsembleForSeq2SeqLM([model])
    assert ensemble.training
    for ours, theirs in zip(
        *(
            score_targets(scorer, tokenizer, sources, TARGETS, progress=False)
            for scorer in (ensemble, model)
        ),
        strict=True,
    ):
        assert ours.token_log_probabilities == pytest.approx(
            theirs.token_log_probabilities, abs=1e-5
        )
    for ours, theirs in zip(
        *(
            n_best(searcher, tokenizer, sources, num_beams=4, max_new_tokens=6, progress=False)
            for searcher in (ensemble, model)
        ),
        strict=True,
    ):
        assert [one.token_ids for one in ours] == [one.token_ids for one in theirs]
        assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-5)
    assert ensemble.training and model.training
    model.eval()
    batch = encode(tokenizer, ["a b c", "d e f"])
    batch["labels"] = torch.tensor([[5, 6, 7, 2], [8, 2, -100, -100]])
    with torch.no_grad():
        single, joint = model(**batch), ensemble(**batch)
    torch.testing.assert_close(joint.logits, single.logits.log_softmax(-1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(joint.loss, single.loss, atol=1e-5, rtol=1e-5)
    loss, logits = ensemble(**batch, return_dict=False)[:2]
    torch.testing.assert_close((loss, logits), (joint.loss, joint.logits))


def test_probabilities_are_averaged_over_families(family_members, tokenizer, sources):
    weights = [1.0, 2.0, 0.5, 1.5]
    ensemble = EnsembleForSeq2SeqLM(family_members, weights)
    scores = score_targets(ensemble, tokenizer, sources, TARGETS, batch_size=4, progress=False)
    for source, score in zip(sources, scores, strict=True):
        expected = [
            next_probabilities(
                family_members, weights, tokenizer, source, [0, *score.token_ids[:step]]
            )[token]
            .log()
            .item()
            for step, token in enumerate(score.token_ids)
        ]
        assert score.token_log_probabilities == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("padding_side", ["left", "right"])
def test_greedy_search_takes_the_argmax_of_the_mean(
    left_padded_members, tokenizer, sources, padding_side
):
    ensemble = EnsembleForSeq2SeqLM(left_padded_members)
    inputs = encode(tokenizer, sources, padding=True, padding_side=padding_side)
    rows = ensemble.generate(**inputs, max_new_tokens=6)
    single_rows = left_padded_members[0].generate(**inputs, max_new_tokens=6)
    assert rows.tolist() != single_rows.tolist()
    for source, row in zip(sources, rows.tolist(), strict=True):
        written = [0]
        while len(written) < 7 and written[-1] != 2:
            mean = next_probabilities(left_padded_members, [1, 1, 1], tokenizer, source, written)
            written.append(int(mean.argmax()))
        assert row[: len(written)] == written


def test_a_wide_beam_finds_the_best_of_all_sequences(family_members, tokenizer):
    """Two tokens at most, so a beam as wide as the vocabulary sees every sequence."""
    members = family_members[1:3]
    ensemble = EnsembleForSeq2SeqLM(members)
    first = next_probabilities(members, [1, 1], tokenizer, "a b c", [0])
    log_probabilities = {(2,): first[2].log().item()}
    for token in range(17):
        if token != 2:
            second = next_probabilities(members, [1, 1], tokenizer, "a b c", [0, token])
            for end, probability in enumerate((first[token] * second).log().tolist()):
                log_probabilities[token, end] = probability
    (found,) = n_best(
        ensemble,
        tokenizer,
        ["a b c"],
        num_beams=17,
        max_new_tokens=2,
        length_penalty=0.0,
        early_stopping="never",
        progress=False,
    )
    best = sorted(log_probabilities, key=log_probabilities.get, reverse=True)[:17]
    assert [tuple(one.token_ids) for one in found] == best
    assert [one.log_probability for one in found] == pytest.approx(
        [log_probabilities[tokens] for tokens in best], abs=1e-5
    )


@pytest.mark.parametrize("num_beams", [1, 4])
def test_the_caches_change_nothing(family_members, tokenizer, sources, num_beams):
    ensemble = EnsembleForSeq2SeqLM(family_members)
    inputs = encode(tokenizer, sources, padding=True)
    outputs = [
        ensemble.generate(
            **inputs,
            max_new_tokens=7,
            num_beams=num_beams,
            num_return_sequences=num_beams,
            use_cache=use_cache,
            return_dict_in_generate=True,
            output_scores=True,
        )
        for use_cache in (True, False)
    ]
    torch.testing.assert_close(outputs[0].sequences, outputs[1].sequences)
    if num_beams > 1:
        assert (outputs[0].beam_indices % num_beams > 0).any()  # beams were reordered
        torch.testing.assert_close(
            outputs[0].sequences_scores, outputs[1].sequences_scores, atol=1e-5, rtol=1e-5
        )
    for cached, uncached in zip(outputs[0].scores, outputs[1].scores, strict=True):
        torch.testing.assert_close(cached, uncached, atol=1e-4, rtol=1e-4)


def test_a_target_can_be_read_in_pieces(family_members, tokenizer):
    ensemble = EnsembleForSeq2SeqLM(family_members)
    inputs = encode(tokenizer, ["a b c", "d e f"])
    target = torch.tensor([[0, 5, 6, 7], [0, 8, 9, 5]])
    with torch.no_grad():
        whole = ensemble(**inputs, decoder_input_ids=target).logits
        encoded = ensemble.get_encoder()(**inputs)
        mask = inputs["attention_mask"]
        start = ensemble(
            encoder_outputs=encoded,
            attention_mask=mask,
            decoder_input_ids=target[:, :2],
            use_cache=True,
        )
        cache = start.past_key_values
        cache.reorder_cache(torch.tensor([1, 0]))
        assert cache.get_seq_length() == 2
        swapped = ensemble(
            input_ids=inputs["input_ids"].flip(0),
            attention_mask=mask,
            decoder_input_ids=target[:, 2:].flip(0),
            past_key_values=cache,
            use_cache=True,
        ).logits.flip(0)
    torch.testing.assert_close(start.logits, whole[:, :2], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(swapped, whole[:, 2:], atol=1e-5, rtol=1e-5)


def test_order_and_scale_of_the_weights_do_not_matter(family_members, tokenizer):
    inputs = encode(tokenizer, ["a b c"])
    inputs["decoder_input_ids"] = torch.tensor([[0, 5, 6]])

    def logits(order, weights=None):
        members = [family_members[index] for index in order]
        with torch.no_grad():
            return EnsembleForSeq2SeqLM(members, weights)(**inputs).logits

    expected = logits([0, 1, 2])
    for order in itertools.permutations(range(3)):
        torch.testing.assert_close(logits(order), expected)
    twice = logits([1, 0, 1, 2])
    torch.testing.assert_close(logits([0, 1, 2], [1, 2, 1]), twice)
    torch.testing.assert_close(logits([2, 1, 0], [0.1, 0.2, 0.1]), twice)
    assert not torch.allclose(twice, expected, atol=1e-3)


def test_the_config_says_what_all_members_take(family_members, make_model):
    config = EnsembleForSeq2SeqLM(family_members).config
    assert (config.vocab_size, config.decoder_start_token_id, config.pad_token_id) == (17, 0, 0)
    limits = [getattr(one.config, "max_position_embeddings", None) for one in family_members]
    assert None in limits  # T5 has no limit
    assert config.max_position_embeddings == min(filter(None, limits)) == 32
    assert EnsembleForSeq2SeqLM([make_model("t5", 1)]).config.max_position_embeddings is None


def test_half_precision_members_are_averaged_in_float32(make_model, tokenizer):
    members = [make_model("t5", seed).eval().to(torch.bfloat16) for seed in (1, 2)]
    inputs = encode(tokenizer, ["a b c"])
    with torch.no_grad():
        logits = EnsembleForSeq2SeqLM(members)(
            **inputs, decoder_input_ids=torch.tensor([[0, 5]])
        ).logits
    assert logits.dtype == torch.float32
    expected = next_probabilities(members, [1, 1], tokenizer, "a b c", [0, 5]).float()
    torch.testing.assert_close(logits[0, -1].exp(), expected)


def test_alignments_are_the_mean_of_the_members(make_model, tokenizer, sources):
    members = [make_model("rnn_elman_multi_head", seed).eval() for seed in (1, 2)]
    ensemble = EnsembleForSeq2SeqLM(members, [3, 1])
    joint, first, second = (
        alignments(model, tokenizer, sources, TARGETS, head=1, progress=False)
        for model in (ensemble, *members)
    )
    for mean, one, other in zip(joint, first, second, strict=True):
        np.testing.assert_allclose(
            mean.weights, 0.75 * one.weights + 0.25 * other.weights, atol=1e-5
        )


def test_alignments_of_unlike_members_are_refused(family_members, make_model, tokenizer):
    ensemble = EnsembleForSeq2SeqLM(family_members)
    with pytest.raises(ValueError, match=r"same shapes .* Ask a single member"):
        alignments(ensemble, tokenizer, ["a b"], ["c"], progress=False)
    ensemble = EnsembleForSeq2SeqLM([make_model("rnn_without_attention", 1)])
    with pytest.raises(ValueError, match="returned none"):
        alignments(ensemble, tokenizer, ["a b"], ["c"], progress=False)
    with pytest.raises(ValueError, match="those of different models have no mean"):
        ensemble.generate(
            **encode(tokenizer, ["a"]),
            max_new_tokens=2,
            output_hidden_states=True,
            return_dict_in_generate=True,
        )


def test_members_that_do_not_fit_are_refused(make_model, bart):
    t5, marian = make_model("t5", 1), make_model("marian", 1)
    with pytest.raises(ValueError, match="at least one model, got none"):
        EnsembleForSeq2SeqLM([])
    with pytest.raises(ValueError, match=r"must be an encoder-decoder .* got BartEncoder"):
        EnsembleForSeq2SeqLM([bart.get_encoder()])
    with pytest.raises(ValueError, match=r"decoder start token, got 0 in model 0 \(T5.* and 2 in"):
        EnsembleForSeq2SeqLM([t5, bart])
    marian.generation_config.pad_token_id = 5
    with pytest.raises(ValueError, match=r"same pad token, got 0 .* and 5 in model 1 \(Marian"):
        EnsembleForSeq2SeqLM([t5, marian])
    marian.generation_config.eos_token_id = [2, 3]
    with pytest.raises(ValueError, match=r"end tokens, got \[2\] in model 0 .* and \[2, 3\]"):
        EnsembleForSeq2SeqLM([t5, marian])
    wide = starting_at_pad(make_model("rnn_gru_additive", 1, decoder_vocab_size=23))
    with pytest.raises(ValueError, match=r"vocabulary size, got 17 .* and 23 in model 1 \(Rnn"):
        EnsembleForSeq2SeqLM([t5, wide])


@pytest.mark.parametrize("weights", [[1.0], [1, 0], [1, -2], [1, float("nan")], [1, float("inf")]])
def test_weights_that_do_not_fit_are_refused(make_model, weights):
    members = [make_model("t5", seed) for seed in (1, 2)]
    reason = "one number per model, got 1 for 2" if len(weights) == 1 else "positive numbers, got"
    with pytest.raises(ValueError, match=reason):
        EnsembleForSeq2SeqLM(members, weights)


def test_what_an_ensemble_cannot_do_is_refused(make_model, tokenizer, bart, tmp_path):
    ensemble = EnsembleForSeq2SeqLM([make_model("t5", seed).eval() for seed in (1, 2)])
    with pytest.raises(ValueError, match=r"no checkpoint of its own.*from_pretrained\(\[folder"):
        ensemble.save_pretrained(tmp_path)
    inputs = encode(tokenizer, ["a"])
    outputs = ensemble.members[0].get_encoder()(**inputs)
    with pytest.raises(ValueError, match="encoder_outputs must hold one part for each of the 2"):
        ensemble(encoder_outputs=outputs, decoder_input_ids=torch.tensor([[0]]))
    with pytest.raises(ValueError, match="assisted generation is not supported with stateful"):
        ensemble.generate(**inputs, assistant_model=ensemble.members[0])


@pytest.fixture
def saved_members(make_model, tmp_path):
    """Folders of two models with a source and a target vocabulary, saved with their tokenizers."""
    source_side = train_tokenizer(["a b c d e f g h i j k l m"], model="symbol")
    target_side = train_tokenizer(["T U V W X Y Z"], model="symbol")
    pair = Seq2SeqTokenizer.from_pair(source_side, target_side)
    folders = []
    for seed in (1, 2):
        folders.append(tmp_path / str(seed))
        make_model("rnn_gru_additive", seed, decoder_vocab_size=11).save_pretrained(folders[-1])
        pair.save_pretrained(folders[-1])
    return folders, pair


def test_members_come_back_from_their_folders(saved_members, make_model, sources):
    folders, pair = saved_members
    ensemble = EnsembleForSeq2SeqLM.from_pretrained(folders, [1, 3], dtype=torch.float32)
    assert not any(module.training for module in ensemble.modules())
    members = [make_model("rnn_gru_additive", seed, decoder_vocab_size=11) for seed in (1, 2)]
    expected = EnsembleForSeq2SeqLM(members, [1, 3])
    texts = [
        decode_corpus(model, pair, sources, num_beams=3, max_new_tokens=5, progress=False)
        for model in (ensemble, expected)
    ]
    assert texts[0] == texts[1] and len(set(texts[0])) > 1


def test_folders_whose_tokenizers_differ_are_refused(saved_members, tmp_path):
    folders, pair = saved_members
    load = EnsembleForSeq2SeqLM.from_pretrained
    with pytest.raises(ValueError, match="loaded from a list of folders or names, got"):
        load(str(folders[0]))
    source_side = train_tokenizer(["a b c d e f g h i j k l m"], model="symbol")
    for name, other in (
        ("target", train_tokenizer(["S U V W X Y Z"], model="symbol")),
        ("source", train_tokenizer(["T U V W X Y Z"], model="symbol", lowercase=True)),
    ):
        sides = (source_side, other) if name == "target" else (other, pair.target_tokenizer)
        Seq2SeqTokenizer.from_pair(*sides).save_pretrained(folders[1])
        with pytest.raises(ValueError, match=f"share the {name} tokenizer, but token"):
            load(folders)
    lowered = train_tokenizer(["a b c d e f g h i j k l m"], model="symbol", lowercase=True)
    Seq2SeqTokenizer.from_pair(lowered, pair.target_tokenizer).save_pretrained(folders[1])
    with pytest.raises(ValueError, match="the normalizer of one differs"):
        load(folders)
    with pytest.raises(ValueError, match="must come with its tokenizer"):
        load([folders[0], tmp_path / "nowhere"])
