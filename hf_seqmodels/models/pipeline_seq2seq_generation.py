"""pipeline("seq2seq-generation"): source texts in, target texts out, with scores and alignments.

transformers 5 has dropped its text2text-generation, translation and summarization pipelines and
refuses their names; this is the replacement, for every encoder-decoder that generates. The file
needs nothing but torch and transformers, so that it can travel with a checkpoint. The functions
below the class are those that `hf_seqmodels.evaluation` computes with, too.

Shapes: B batch, R rows (B times outputs per source), S source length, P prompt length (what the
decoder starts from), T target length, V target vocabulary, H heads.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from transformers import Pipeline, PreTrainedConfig, PreTrainedModel

TASK = "seq2seq-generation"
WORD_START = "▁"  # sentencepiece and metaspace; byte-level tokens are shown with it too
REFUSED_ARGUMENTS = {
    **dict.fromkeys(
        ("input_ids", "inputs", "inputs_embeds", "attention_mask", "encoder_outputs"),
        "it is made from the source texts",
    ),
    **dict.fromkeys(
        ("decoder_input_ids", "decoder_inputs_embeds", "decoder_attention_mask"),
        "use decoder_start_token_id or forced_bos_token_id",
    ),
    **dict.fromkeys(
        ("return_dict_in_generate", "output_scores", "output_logits", "output_hidden_states"),
        "the result is texts; use return_scores=True, or model.generate for tensors",
    ),
    "output_attentions": "use return_alignments=True",
}


class Seq2SeqGenerationPipeline(Pipeline):
    """Generate target texts from source texts with any encoder-decoder.

    ```python
    from transformers import pipeline

    generate = pipeline("seq2seq-generation", model="path or name", num_beams=5)
    generate("a source")  # [{"generated_text": "its target"}]
    generate(["a", "b"], batch_size=2, num_return_sequences=3, return_scores=True)
    ```

    The result is that of generate() and decoding for one source at a time: batches change nothing.
    Whatever a call takes can also be given here. Arguments of a call come first, and its
    `generation_config` replaces all arguments of generate() that were given here. The model is put
    into evaluation mode.

    Args:
        *args: as in `transformers.Pipeline`.
        **kwargs: as in `transformers.Pipeline` (model, tokenizer, device, batch_size, ...), and all
            that a call takes.

    Raises:
        ValueError: if the model is no encoder-decoder, there is no tokenizer, the model has two
            vocabularies and the tokenizer one, or an argument cannot be honoured.
    """

    _load_tokenizer = True
    _load_feature_extractor = False
    _load_image_processor = False
    _load_processor = False
    _load_video_processor = False

    def __init__(self, *args: Any, **kwargs: Any):
        kwargs.pop("local_files_only", None)  # pipeline() has used it and hands it on all the same
        super().__init__(*args, **kwargs)
        config = self.model.config
        if not getattr(config, "is_encoder_decoder", False) or not hasattr(self.model, "generate"):
            raise ValueError(
                f"{TASK} needs an encoder-decoder with generate(), as AutoModelForSeq2SeqLM loads, "
                f"got {type(self.model).__name__}. For language models there is text-generation."
            )
        if self.tokenizer is None:
            raise ValueError(
                f"{TASK} needs the tokenizer of the model, got None. Pass tokenizer=..., for "
                'instance AutoTokenizer.from_pretrained("path or name").'
            )
        sizes = [getattr(config, name, None) for name in ("vocab_size", "decoder_vocab_size")]
        has_target_side = target_side(self.tokenizer) is not self.tokenizer
        has_target_side |= getattr(self.tokenizer, "separate_vocabs", False)  # as in Marian
        if None not in sizes and sizes[0] != sizes[1] and not has_target_side:
            raise ValueError(
                f"The model writes in a vocabulary of its own (vocab_size={sizes[0]}, "
                f"decoder_vocab_size={sizes[1]}), but {type(self.tokenizer).__name__} has no "
                "target side. Load both with AutoTokenizer.from_pretrained, with hf_seqmodels "
                "imported or with trust_remote_code=True."
            )
        check_copying(self.tokenizer, config)
        self.model.eval()

    def __call__(self, inputs: Any, **kwargs: Any) -> Any:
        """Generate outputs for one source or for many.

        Args:
            inputs: a text; a list or a column of texts; or a generator, another iterable or a
                `KeyDataset` of texts, read while results are taken. The empty text is a text.
            **kwargs: arguments of generate() (num_beams, max_new_tokens, do_sample,
                num_return_sequences, generation_config, ...), and these:
                `batch_size`, sources at a time;
                `max_source_length`, in tokens: the rest is cut off;
                `truncation=True` cuts off what model and tokenizer do not allow, `False` nothing;
                `return_text=False` leaves the text out;
                `return_tensors=True` gives token ids, and the text only with `return_text=True`;
                `return_scores=True`;
                `return_alignments=True`, of the decoder layer `alignment_layer` (an index or
                "mean"; -1) and the attention head `alignment_head` (an index or "mean"; "mean");
                `skip_special_tokens` (True) and `clean_up_tokenization_spaces`, for decoding.

        Returns:
            The outputs of one source as a list of dictionaries, in the order of generate(); for a
            list of sources a list of such lists, for what is read one by one an iterator.
            Each has `generated_text`. `generated_token_ids` (T,) go up to the end token, which is
            included. With scores: `log_probability` of these tokens given the source and
            `token_log_probabilities`, both in nats and the model's own, and `score`, what beam
            search ranks by (its `sequences_scores` where nothing bends the probabilities):
            log_probability / T ** length_penalty; with `length_normalization="gnmt"` of the
            package's beam search log_probability / ((5 + T) / 6) ** length_penalty, and with its
            `coverage_penalty` that times the coverage of the source on top. Outputs that beam
            search had ruled out and returned for lack of others are left out then.
            `alignment` is a dictionary of `source_tokens`, `target_tokens`, `source_is_special`,
            `target_is_special` and `weights` (T, S): in row t the attention, along this output's
            beam, with which token t was predicted.

        Raises:
            ValueError: if a source is not a text, or an argument is unknown or cannot be honoured.
        """
        if isinstance(inputs, Iterable) and not isinstance(inputs, (str, bytes, Mapping, Dataset)):
            inputs = list(inputs) if isinstance(inputs, Sequence) else (text for text in inputs)
        if isinstance(inputs, (list, Dataset)) and hasattr(inputs, "__len__") and not len(inputs):
            return [] if isinstance(inputs, list) else iter(())  # the base class reads the first
        return super().__call__(inputs, **kwargs)

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        """Save model and tokenizer, each as it saves itself.

        Args:
            save_directory: the folder.
            **kwargs: as for any model and tokenizer.
        """
        self.model.save_pretrained(save_directory, **kwargs)
        self.tokenizer.save_pretrained(save_directory, **kwargs)

    def _sanitize_parameters(self, **kwargs: Any) -> tuple[dict, dict, dict]:
        """Sort the arguments of the constructor or of a call by the step that needs them."""

        def taken(*names: str) -> dict[str, Any]:
            given = {name: kwargs.pop(name, None) for name in names}
            return {name: value for name, value in given.items() if value is not None}

        preprocess = taken("truncation", "max_source_length")
        postprocess = taken("return_text", "return_tensors")
        if postprocess:  # of a call, it replaces both of the constructor
            postprocess.setdefault("return_tensors", False)
            postprocess.setdefault("return_text", not postprocess["return_tensors"])
        postprocess |= taken("skip_special_tokens", "clean_up_tokenization_spaces")
        forward = taken("return_scores", "return_alignments")
        forward |= {
            name.removeprefix("alignment_"): value
            for name, value in taken("alignment_layer", "alignment_head").items()
        }
        for name in kwargs:
            if name in REFUSED_ARGUMENTS:
                raise ValueError(f"{TASK} cannot take {name}: {REFUSED_ARGUMENTS[name]}.")
        before = dict(getattr(self, "_forward_params", {}).get("generate_kwargs", {}))
        for limits in (("max_length", "max_new_tokens"), ("min_length", "min_new_tokens")):
            if kwargs.keys() & set(limits):  # of the two, generate() would take the second
                before = {name: value for name, value in before.items() if name not in limits}
        replaces = kwargs.get("generation_config") is not None
        forward["generate_kwargs"] = kwargs if replaces else before | kwargs
        return preprocess, forward, postprocess

    def preprocess(
        self,
        source: Any,
        truncation: bool | str | None = None,
        max_source_length: int | None = None,
    ) -> dict[str, Any]:
        """Encode one source.

        Args:
            source: the text.
            truncation: whether to cut it, without max_source_length at what model and tokenizer
                allow; None cuts where there is a max_source_length.
            max_source_length: longest source in tokens, or None.

        Returns:
            The `source`, and its `input_ids`, at least one: where the tokenizer gives none, an end
            token. A list, not a tensor: batches are padded later, on the right, whatever the
            tokenizer says (BART and Marian would read shifted positions otherwise).

        Raises:
            ValueError: if the source is not a text, or no positive length is known to cut it at.
        """
        if not isinstance(source, str):
            raise ValueError(
                f"{TASK} takes texts, got {source!r} ({type(source).__name__}). Of a dataset pass "
                "a column, dataset['name'], and '' where a text is missing."
            )
        cut: dict[str, Any] = {}
        if truncation or (truncation is None and max_source_length is not None):
            longest = self._longest_source() if max_source_length is None else max_source_length
            cut = {"truncation": truncation or True, "max_length": longest}
            if longest < 1:
                raise ValueError(f"max_source_length must be at least 1, got {longest}.")
        tokenizer: Any = self.tokenizer
        ids = list(tokenizer(source, **cut)["input_ids"])
        end = tokenizer.eos_token_id
        ids = ids or [pad_id_of(tokenizer) if end is None else end]
        return {"input_ids": ids, "source": source}

    def _longest_source(self) -> int:
        """Return the most source tokens that model and tokenizer allow."""
        encoder = getattr(self.model.config, "encoder", self.model.config)  # of an EncoderDecoder
        limits = [
            getattr(encoder, "max_position_embeddings", None),
            self.tokenizer.model_max_length,
        ]
        known = [limit for limit in limits if limit is not None and limit < 1e9]
        if not known:
            raise ValueError(
                "truncation=True needs a limit, but neither config.max_position_embeddings nor "
                "tokenizer.model_max_length is set. Pass max_source_length, in tokens."
            )
        return min(known)

    def _forward(self, model_inputs: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Search for one source or, where `input_ids` holds rows, for a batch of them."""
        rows = model_inputs["input_ids"]
        if isinstance(rows[0], list):
            return {**model_inputs, "outputs": self._search(rows, **options)}
        return {**model_inputs, "outputs": self._search([rows], **options)[0]}

    def _search(
        self,
        source_rows: list[list[int]],
        generate_kwargs: dict[str, Any],
        return_scores: bool = False,
        return_alignments: bool = False,
        **alignment_options: Any,
    ) -> list[list[dict[str, Any]]]:
        """Return the outputs of every source: token ids, and what was asked for."""
        pad_id = pad_id_of(self.tokenizer)
        input_ids, attention_mask = pad_rows(source_rows, pad_id, device=self.device)
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if generate_setting(self.model, generate_kwargs, "stop_strings") is not None:
            generate_kwargs = {"tokenizer": target_side(self.tokenizer), **generate_kwargs}
        found = generate_rows(self.model, inputs, keep_scores=return_scores, **generate_kwargs)
        ranking = ranking_settings(self.model, generate_kwargs) if return_scores else {}
        num_outputs = len(found.token_ids) // len(source_rows)
        kept = [row for row, possible in enumerate(found.is_possible) if possible]
        outputs: list[list[dict[str, Any]]] = [[] for _ in source_rows]
        for start in range(0, len(kept), len(source_rows)):  # as many rows at once as sources
            rows = kept[start : start + len(source_rows)]
            sources = [row // num_outputs for row in rows]
            records: list[dict[str, Any]] = [{"token_ids": found.token_ids[row]} for row in rows]
            if return_scores or return_alignments:
                forced, targets = forced_pass(
                    self.model,
                    {name: tensor[sources] for name, tensor in inputs.items()},
                    found.prompts[rows],
                    [record["token_ids"] for record in records],
                    pad_id_of(target_side(self.tokenizer)),
                    output_attentions=return_alignments or bool(ranking.get("coverage_penalty")),
                )
                if return_scores:
                    add_scores(
                        self.model, records, forced, targets, attention_mask[sources], **ranking
                    )
                if return_alignments:
                    weights = cross_attention(
                        self.model, forced, targets, input_ids.shape[1], **alignment_options
                    )
                    for record, row_weights in zip(records, weights, strict=True):
                        record["weights"] = row_weights.float()  # (T, S), padding included
            for source, record in zip(sources, records, strict=True):
                outputs[source].append(record)
        return outputs

    def postprocess(
        self,
        model_outputs: dict[str, Any],
        return_text: bool = True,
        return_tensors: bool = False,
        skip_special_tokens: bool = True,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> list[dict[str, Any]]:
        """Turn the outputs of one source into what the user reads.

        Args:
            model_outputs: what `_forward` found, with the `source` and its `input_ids`.
            return_text: whether to decode.
            return_tensors: whether to return the token ids.
            skip_special_tokens: whether to leave special tokens out of the text.
            clean_up_tokenization_spaces: whether to take out blanks before punctuation and the
                like; None does what the tokenizer was saved with.

        Returns:
            One dictionary per output; see `__call__`.

        Raises:
            ValueError: if nothing was asked for.
        """
        target, source = target_side(self.tokenizer), model_outputs["source"]
        options: dict[str, Any] = {"skip_special_tokens": skip_special_tokens}
        if clean_up_tokenization_spaces is not None:
            options["clean_up_tokenization_spaces"] = clean_up_tokenization_spaces
        results = []
        for output in model_outputs["outputs"]:
            token_ids, weights = output.pop("token_ids"), output.pop("weights", None)
            result: dict[str, Any] = {}
            if return_text:
                result["generated_text"] = decode_rows(
                    self.tokenizer, [token_ids], [source], **options
                )[0]
            if return_tensors:
                result["generated_token_ids"] = torch.tensor(token_ids, dtype=torch.long)
            result |= output
            if weights is not None:
                sides = {
                    "source": (self.tokenizer, model_outputs["input_ids"]),
                    "target": (target, token_ids),
                }
                weights = weights[: len(token_ids), : len(model_outputs["input_ids"])]
                alignment: dict[str, Any] = {"weights": weights.tolist()}
                for side, (tokenizer, ids) in sides.items():
                    special = set(tokenizer.all_special_ids)
                    alignment[f"{side}_tokens"] = readable_tokens(tokenizer, ids, source)
                    alignment[f"{side}_is_special"] = [token in special for token in ids]
                result["alignment"] = alignment
            if not result:
                raise ValueError(
                    "return_text=False leaves nothing to return. Ask for return_tensors, "
                    "return_scores or return_alignments, or leave it out."
                )
            results.append(result)
        return results


def target_side(tokenizer: Any) -> Any:
    """Return the tokenizer of the target texts: the second one of a pair, or the only one."""
    return getattr(tokenizer, "target_tokenizer", None) or tokenizer


def copies_words(tokenizer: Any) -> bool:
    """Tell whether words of the source have ids of their own, see `Seq2SeqTokenizer`."""
    return bool(getattr(tokenizer, "max_copied_words", 0))


def check_copying(tokenizer: Any, config: Any) -> None:
    """Refuse a tokenizer and a model that disagree on which ids are words to copy.

    Args:
        tokenizer: the tokenizer, or the pair of tokenizers.
        config: of the model.

    Raises:
        ValueError: if they do.
    """
    if not copies_words(tokenizer):
        return
    copied = config.max_copied_words if getattr(config, "pointer_generator", False) else 0
    if config.vocab_size != len(tokenizer) or copied < tokenizer.max_copied_words:
        raise ValueError(
            f"The tokenizer gives words to copy the ids from {len(tokenizer)}, up to "
            f"{tokenizer.max_copied_words} of them, but the model has vocab_size="
            f"{config.vocab_size} and copies {copied}. Use the tokenizer that was saved with the "
            "model, or make one with Seq2SeqTokenizer.for_copying(tokenizer, max_copied_words=...)."
        )


def decode_rows(
    tokenizer: Any, token_rows: Sequence[Sequence[int]], sources: Sequence[str], **options: Any
) -> list[str]:
    """Return the texts of target rows, of which each has its source: words may be copied from it.

    Args:
        tokenizer: the tokenizer, or the pair of tokenizers.
        token_rows: target token ids.
        sources: one source text per row.
        **options: of `batch_decode`.

    Returns:
        One text per row.
    """
    if copies_words(tokenizer):
        options["source"] = list(sources)
    return target_side(tokenizer).batch_decode(token_rows, **options) if len(token_rows) else []


def readable_tokens(
    tokenizer: Any, token_ids: Sequence[int], source: str | None = None
) -> list[str]:
    """Return the tokens as a reader knows them: byte-level ones as characters, "▁" for a blank.

    A piece of a character stays in its byte-level spelling. Words that are copied are those of the
    source.
    """
    if copies_words(tokenizer):
        return tokenizer.target_tokens(list(token_ids), source)
    tokens = list(tokenizer.convert_ids_to_tokens(list(token_ids)))
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if "ByteLevel" not in repr(decoder):
        return tokens
    texts = [decoder.decode([token]).replace(" ", WORD_START) for token in tokens]
    return [token if "\ufffd" in text else text for token, text in zip(tokens, texts, strict=True)]


def pad_id_of(tokenizer: Any) -> int:
    """Return the id that fills batches; a ValueError if the tokenizer has none."""
    if tokenizer.pad_token_id is None:
        raise ValueError(
            "The tokenizer needs a pad token to make batches, got pad_token=None. Set the one that "
            "the model was trained with, for instance tokenizer.pad_token = '<pad>'."
        )
    return tokenizer.pad_token_id


def pad_rows(
    rows: Sequence[Sequence[int]], pad_id: int, *, device: Any = None
) -> tuple[Tensor, Tensor]:
    """Return token ids and their mask (1 = real token), both (rows, longest).

    Filled up with `pad_id` on the right, whatever the tokenizer says: models with absolute
    positions (BART, Marian) would read shifted ones otherwise, and no encoder-decoder gains from
    the left.
    """
    ids = [torch.tensor(row, dtype=torch.long) for row in rows]
    real = [torch.ones_like(row) for row in ids]
    return (
        pad_sequence(ids, batch_first=True, padding_value=pad_id).to(device),
        pad_sequence(real, batch_first=True).to(device),
    )


@dataclass
class GeneratedRows:
    """What generate() wrote.

    Args:
        prompts: what each row of the decoder started from, (R, P).
        token_ids: what was generated after it, up to and including the end token.
        is_possible: False where beam search had fewer hypotheses than asked for and filled up with
            something it had ruled out.
    """

    prompts: Tensor
    token_ids: list[list[int]]
    is_possible: list[bool]


def generate_rows(
    model: Any,
    inputs: dict[str, Tensor],
    *,
    max_new_tokens: int | None = None,
    keep_scores: bool = False,
    **generate_kwargs: Any,
) -> GeneratedRows:
    """Call generate() and cut its rows where they end.

    Args:
        model: any encoder-decoder with generate().
        inputs: source ids and mask.
        max_new_tokens: longest output, or None.
        keep_scores: whether to have beam search keep its scores, which tell the rows that it ruled
            out. They take (B x beams x V) floats per step.
        **generate_kwargs: passed on to generate().

    Returns:
        The rows, B times num_return_sequences.
    """
    if max_new_tokens is not None:
        # One start token. This way generate() does not complain about the model's own max_length.
        generate_kwargs |= {"max_length": max_new_tokens + 1, "max_new_tokens": None}
    kept = {"return_dict_in_generate": True, "output_scores": keep_scores}
    if generate_kwargs.get("generation_config") is not None:
        # generate() does not want both, a configuration and arguments.
        generation_config = copy.deepcopy(generate_kwargs["generation_config"])
        generation_config.update(**kept)
        kept = {"generation_config": generation_config}
    output = model.generate(**inputs, **{**generate_kwargs, **kept})
    sequences = output.sequences  # (R, P + T)
    beam_indices = getattr(output, "beam_indices", None)  # (R, T), -1 after the end
    if beam_indices is None:
        ends = end_token_ids(model, generate_kwargs)
        filler = generate_setting(model, generate_kwargs, "pad_token_id")
        token_ids = [cut_at_end(row, ends, filler) for row in sequences[:, 1:].tolist()]
        return GeneratedRows(sequences[:, :1], token_ids, [True] * len(token_ids))
    prompt_length = sequences.shape[1] - beam_indices.shape[1]
    # Finished rows may be filled with the end token, so their length is taken from the beams.
    lengths = (beam_indices >= 0).sum(dim=1).tolist()
    rows = zip(sequences[:, prompt_length:].tolist(), lengths, strict=True)
    is_possible = [length > 0 for length in lengths]
    if keep_scores:
        penalty = generate_setting(model, generate_kwargs, "length_penalty", 1.0)
        scores = zip(output.sequences_scores.tolist(), lengths, strict=True)
        is_possible = [
            length > 0 and not is_ruled_out(score, length, penalty) for score, length in scores
        ]
    return GeneratedRows(
        sequences[:, :prompt_length], [row[:length] for row, length in rows], is_possible
    )


def generate_setting(
    model: Any, generate_kwargs: Mapping[str, Any], name: str, default: Any = None
) -> Any:
    """Return what a setting of generate() is: that of the call, of its generation_config, of the
    model, or the default where none is set."""
    if name in generate_kwargs:
        return generate_kwargs[name]
    for config in (generate_kwargs.get("generation_config"), model.generation_config):
        value = getattr(config, name, None)
        if value is not None:
            return value
    return default


def end_token_ids(model: Any, generate_kwargs: Mapping[str, Any]) -> set[int]:
    """Return the ids that end an output: those of the call, else those of the model."""
    ids = generate_setting(model, generate_kwargs, "eos_token_id")
    ids = ids.tolist() if isinstance(ids, Tensor) else ids
    return set() if ids is None else {ids} if isinstance(ids, int) else set(ids)


def cut_at_end(row: Sequence[int], end_ids: set[int], filler: int | None) -> list[int]:
    """Return the row up to and including its first end token, or without the filling at its end."""
    for index, token in enumerate(row):
        if token in end_ids:
            return list(row[: index + 1])
    length = len(row)
    while length and row[length - 1] == filler:
        length -= 1
    return list(row[:length])


def is_ruled_out(score: float, length: int, length_penalty: float) -> bool:
    """Tell whether beam search returned a row only because it had nothing else.

    generate() subtracts 1e9 from the log-probability of what must not win, before or after it
    divides by the length; no real log-probability comes near.
    """
    return min(score, score * length**length_penalty) < -1e8


def forced_pass(
    model: Any,
    inputs: dict[str, Tensor],
    prompts: Tensor,
    token_rows: Sequence[Sequence[int]],
    pad_id: int,
    **forward_kwargs: Any,
) -> tuple[Any, Tensor]:
    """Run the model over given targets.

    With `output_attentions=True` a model whose attention implementation does not return weights is
    switched to "eager" for the pass.

    Args:
        model: any encoder-decoder.
        inputs: source ids and mask, (R, S).
        prompts: what the decoder starts from, (R, P).
        token_rows: target token ids, R rows of any lengths.
        pad_id: id that fills rows up; the decoder is causal, so it changes no real position.
        **forward_kwargs: passed on to the model.

    Returns:
        The model's output, whose last T positions predict the targets, and the targets, (R, T).
    """
    targets, _ = pad_rows(token_rows, pad_id, device=prompts.device)  # (R, T)
    decoder_input_ids = torch.cat([prompts, targets[:, :-1]], dim=1)  # (R, P - 1 + T)
    with eager_attention(model) if forward_kwargs.get("output_attentions") else nullcontext():
        outputs = model(
            **inputs,
            decoder_input_ids=decoder_input_ids,
            use_cache=False,
            return_dict=True,
            **forward_kwargs,
        )
    return outputs, targets


def token_log_probabilities(outputs: Any, targets: Tensor) -> Tensor:
    """Return log p(token | tokens before it, source) in nats of a forced pass, (R, T)."""
    logits = outputs.logits[:, outputs.logits.shape[1] - targets.shape[1] :].float()  # (R, T, V)
    chosen = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)  # (R, T)
    return chosen - logits.logsumexp(dim=-1)


def ranking_settings(model: Any, generate_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what beam search ranks by; all but the length penalty only the package's own knows."""
    return {
        "length_penalty": generate_setting(model, generate_kwargs, "length_penalty", 1.0),
        "length_normalization": generate_kwargs.get("length_normalization") or "power",
        "coverage_penalty": generate_kwargs.get("coverage_penalty") or 0.0,
        "coverage_layer": generate_kwargs.get("coverage_layer", -1),
    }


def length_divisor(length: int, length_penalty: float, length_normalization: str) -> float:
    """Return what the log-probability of an output is divided by in its score.

    Args:
        length: its tokens, the end token included.
        length_penalty: the exponent.
        length_normalization: "power", length ** length_penalty, or "gnmt", ((5 + length) / 6) **
            length_penalty (Wu et al. 2016, arXiv:1609.08144, equation 14).

    Returns:
        The divisor.
    """
    return (length if length_normalization == "power" else (5 + length) / 6) ** length_penalty


def log_coverage(attention_sums: Tensor, source_mask: Tensor) -> Tensor:
    """Return how much of the source was attended to: sum_i log min(sum_j p_ij, 1).

    Source: Wu et al. 2016, arXiv:1609.08144, equation 14.

    Args:
        attention_sums: attention that each source token has received, summed over the target
            tokens, (..., S).
        source_mask: 1 = real source token, broadcastable to (..., S).

    Returns:
        At most 0, (...).
    """
    tiny = torch.finfo(attention_sums.dtype).tiny  # attention that has underflowed
    terms = attention_sums.clamp(min=tiny, max=1.0).log()
    return (terms * source_mask.to(terms.dtype)).sum(dim=-1)


def rows_log_coverage(
    weights: Tensor, token_rows: Sequence[Sequence[int]], source_mask: Tensor
) -> Tensor:
    """Return `log_coverage` of the rows of a forced pass.

    Args:
        weights: attention with which each target token was predicted, (R, T, S).
        token_rows: the targets, whose lengths tell padding.
        source_mask: 1 = real source token, (R, S).

    Returns:
        At most 0, (R,).
    """
    lengths = torch.tensor([len(row) for row in token_rows], device=weights.device)
    written = torch.arange(weights.shape[1], device=weights.device) < lengths.unsqueeze(1)  # (R, T)
    return log_coverage((weights.float() * written.unsqueeze(-1)).sum(dim=1), source_mask)


def add_scores(
    model: Any,
    records: Sequence[dict[str, Any]],
    outputs: Any,
    targets: Tensor,
    source_mask: Tensor,
    *,
    length_penalty: float,
    length_normalization: str,
    coverage_penalty: float,
    coverage_layer: int | Literal["mean"],
) -> None:
    """Add the numbers of its `token_ids` to each record.

    Args:
        model: the model.
        records: with their `token_ids`.
        outputs: of a forced pass over them, with attentions where coverage counts.
        targets: of that pass, (R, T).
        source_mask: 1 = real source token, (R, S).
        length_penalty: see `length_divisor`.
        length_normalization: see `length_divisor`.
        coverage_penalty: what `log_coverage` is multiplied with.
        coverage_layer: decoder layer whose attention counts, or "mean".
    """
    token_rows = [record["token_ids"] for record in records]
    coverage = [0.0] * len(records)
    if coverage_penalty:
        weights = cross_attention(model, outputs, targets, source_mask.shape[1], coverage_layer)
        coverage = rows_log_coverage(weights, token_rows, source_mask).tolist()
    log_probabilities = token_log_probabilities(outputs, targets).tolist()  # (R, T)
    for record, row, covered in zip(records, log_probabilities, coverage, strict=True):
        row = row[: len(record["token_ids"])]
        divisor = length_divisor(max(len(row), 1), length_penalty, length_normalization)
        record["score"] = sum(row) / divisor + coverage_penalty * covered
        record |= {"log_probability": sum(row), "token_log_probabilities": row}


def cross_attention(
    model: Any,
    outputs: Any,
    targets: Tensor,
    source_length: int,
    layer: int | Literal["mean"] = -1,
    head: int | Literal["mean"] = "mean",
) -> Tensor:
    """Return the attention of a forced pass with which each target token was predicted.

    Along a beam of generate() it was the same: what a beam attends to depends on its own tokens.

    Args:
        model: the model, for its name.
        outputs: its output, with attentions.
        targets: what it predicted, (R, T).
        source_length: S.
        layer: decoder layer, counted from 0 or from the end, or "mean" over all.
        head: attention head, counted from 0 or from the end, or "mean" over all.

    Returns:
        Weights (R, T, S).

    Raises:
        ValueError: if the model returns no weights, or has no such layer or head.
    """
    layers = [weights for weights in outputs.get("cross_attentions") or () if weights is not None]
    if not layers:
        raise ValueError(
            f"Alignments need cross-attention weights, but {type(model).__name__} returned none. "
            "Models without attention (attention_scorer=None) have no alignment."
        )
    chosen = layers if layer == "mean" else [layers[check_index("layer", layer, len(layers))]]
    if head != "mean":
        head = check_index("head", head, chosen[0].shape[1])
    # (R, H, P - 1 + T, S) -> (R, P - 1 + T, S)
    heads = [weights.mean(dim=1) if head == "mean" else weights[:, head] for weights in chosen]
    weights = torch.stack(heads).mean(dim=0)
    if weights.shape[-1] != source_length:
        raise ValueError(
            f"{type(model).__name__} attends to {weights.shape[-1]} positions for {source_length} "
            "source tokens, so its weights cannot be laid over the tokens."
        )
    return weights[:, weights.shape[1] - targets.shape[1] :]


def check_index(name: str, index: Any, count: int) -> int:
    """Return the index of a layer or head, or refuse it."""
    if not isinstance(index, int) or not -count <= index < count:
        raise ValueError(
            f"{name} must be an index from {-count} to {count - 1} or 'mean', got {index!r}: "
            f"the model has {count}."
        )
    return index


@contextmanager
def eager_attention(model: Any) -> Iterator[None]:
    """Switch the model to the attention implementation that returns weights, for a while."""
    before = [(config, config._attn_implementation) for config in all_configs(model)]
    try:
        # Not by set_attn_implementation(): before transformers 5.23 it passes over an inner model
        # whose config is a copy of the outer one, as in T5, and that config is what is asked.
        for config, implementation in before:
            if implementation is not None:
                config._attn_implementation = "eager"
        yield
    finally:
        # A config also sets the configs within it, which then get their own value back.
        for config, implementation in before:
            config._attn_implementation = implementation


def all_configs(model: Any) -> list[PreTrainedConfig]:
    """Return the configs of a model and of the models within, some twice, inner ones last."""
    found = [module.config for module in model.modules() if isinstance(module, PreTrainedModel)]
    for config in found:  # which grows on the way
        inner = [getattr(config, name, None) for name in config.sub_configs]
        found += [config for config in inner if config is not None]
    return found
