# pyright: basic
"""Read and write with exported graphs, on numpy and onnxruntime alone.

from seqmodels_onnx import load_graphs  # beside the graphs; or hf_seqmodels.onnx, where installed

translator = load_graphs("exported")
rows = translator.generate(input_ids, attention_mask, num_beams=4, max_new_tokens=60)

This file is copied beside the graphs, with searching.py, as the package `seqmodels_onnx`: the two
import nothing of the package that wrote them.

Shapes: B batch, R rows that are decoded, S source length, T tokens read now, V vocabulary.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .searching import Array, Beams, log_softmax, write_greedily

FORMAT = 1
SETTINGS_FILE = "seqmodels_onnx.json"
DEFAULT_NEW_TOKENS = 20
OPTIONS = {
    "num_beams": 1,
    "num_return_sequences": 1,
    "length_penalty": 1.0,
    "early_stopping": False,
    "eos_token_id": None,
    "pad_token_id": None,
}


def load_graphs(
    folder: Any, *, num_threads: int | None = None, providers: Sequence[Any] | None = None
) -> "Graphs":
    """Return the exported model of a folder, ready to run.

    Args:
        folder: what `export_onnx` wrote.
        num_threads: of one operator; None lets onnxruntime choose.
        providers: of onnxruntime, the best first; None takes the CPU.

    Returns:
        `ForwardGraphs`, which is called; or `LanguageModelGraphs` or `EncoderDecoderGraphs`, which
        also generate.

    Raises:
        ValueError: if the folder holds no such export, or one of a later version.
    """
    path = Path(folder) / SETTINGS_FILE
    if not path.is_file():
        raise ValueError(
            f"{str(folder)!r} must hold {SETTINGS_FILE} beside its graphs. Name a folder that "
            f"python -m hf_seqmodels.onnx wrote."
        )
    settings = json.loads(path.read_text(encoding="utf-8"))
    if settings.get("format") != FORMAT:
        raise ValueError(
            f"{path} must be of format {FORMAT}, got {settings.get('format')}. Use the "
            f"package seqmodels_onnx beside it."
        )
    import onnxruntime  # searching alone does without

    options = onnxruntime.SessionOptions()
    if num_threads is not None:
        options.intra_op_num_threads = num_threads
    sessions = {
        graph.stem: onnxruntime.InferenceSession(
            str(graph), options, providers=list(providers or ["CPUExecutionProvider"])
        )
        for graph in sorted(Path(folder).glob("*.onnx"))
    }
    return KINDS[settings["kind"]](sessions, settings)


def as_ids(name: str, values: Any, num_axes: int | None = 2) -> Array:
    """Return whole numbers as the graphs want them.

    Args:
        name: for messages.
        values: array, or rows of the same length.
        num_axes: how many axes there must be; None is any number.

    Returns:
        int64, in one piece.

    Raises:
        ValueError: if there is another number of axes, no element, or a number below 0.
    """
    ids = np.ascontiguousarray(values, dtype=np.int64)
    if num_axes not in (None, ids.ndim) or 0 in ids.shape or ids.min() < 0:
        raise ValueError(
            f"{name} must be rows of whole numbers from 0 on, all of one length, got the shape "
            f"{ids.shape} and a smallest of {ids.min(initial=0)}. Pad them, and mask the padding."
        )
    return ids


def as_ids_and_mask(input_ids: Any, attention_mask: Any) -> tuple[Array, Array]:
    """Return tokens and which of them are real, None meaning all, as the graphs want them."""
    ids = as_ids("input_ids", input_ids)
    if attention_mask is None:
        return ids, np.ones_like(ids)
    return ids, as_ids("attention_mask", attention_mask)


class Graphs:
    """A model as graphs.

    Args:
        sessions: {name of a graph: session of onnxruntime}.
        settings: what seqmodels_onnx.json says.
    """

    def __init__(self, sessions: Mapping[str, Any], settings: Mapping[str, Any]):
        self.sessions = sessions
        self.settings = settings

    def run(
        self, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None
    ) -> dict[str, Array]:
        """Run one graph.

        Args:
            graph: its name.
            inputs: by name; those that the graph does not read are left out.
            outputs: that are wanted; None is all.

        Returns:
            {output: array}.
        """
        session = self.sessions[graph]
        names = list(outputs or (output.name for output in session.get_outputs()))
        read = {one.name: inputs[one.name] for one in session.get_inputs() if one.name in inputs}
        return dict(zip(names, session.run(names, read), strict=True))


class ForwardGraphs(Graphs):
    """A model that reads whole texts."""

    def __call__(
        self, input_ids: Any, attention_mask: Any = None, **others: Any
    ) -> dict[str, Array]:
        """Run the model.

        Args:
            input_ids: ids, (B, T), or (B, choices, T).
            attention_mask: 1 at real tokens, like the ids; None means no padding.
            **others: `token_type_ids`, like the ids; left out they are 0.

        Returns:
            Outputs under the names that the model has for them.
        """
        ids = as_ids("input_ids", input_ids, None)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        inputs["token_type_ids"] = np.zeros_like(ids)
        if attention_mask is not None:
            others["attention_mask"] = attention_mask
        for name, values in others.items():
            if name not in inputs:
                raise TypeError(f"There is no input {name!r}, but {', '.join(inputs)}.")
            inputs[name] = as_ids(name, values, None)
        return self.run("model", inputs)


@dataclass
class Progress:
    """Where the decoding of some rows stands.

    Args:
        fixed: inputs that stay, by name, (R, ...) each.
        states: inputs that every step renews, by name, (R, ...) each.
    """

    fixed: dict[str, Array]
    states: dict[str, Array]

    def repeated(self, times: int) -> "Progress":
        """Return this with every row so many times in place."""
        parts = ({name: np.repeat(part, times, axis=0) for name, part in inputs.items()}
                 for inputs in (self.fixed, self.states))  # fmt: skip
        return Progress(*parts)

    def select(self, rows: Array) -> None:
        """Let row i go on from the states of row `rows[i]`, which is of the same source."""
        if not np.array_equal(rows, np.arange(len(rows))):
            self.states = {name: part[rows] for name, part in self.states.items()}


class GeneratingGraphs(Graphs):
    """A model that writes, and the search for what it writes."""

    decoder: str  # graph that reads tokens

    def start(self, input_ids: Array, attention_mask: Array) -> Progress:
        """Return where decoding starts from, before the first token is read."""
        raise NotImplementedError

    def first_states(self, num_rows: int) -> dict[str, Array]:
        """Return states of zeros, before any token; axes that grow have length 0."""
        return {
            state["name"]: np.zeros(
                [
                    num_rows if n == "batch" else 0 if isinstance(n, str) else n
                    for n in state["shape"]
                ],
                dtype=state["type"],
            )
            for state in self.settings["states"]
        }

    def advance(
        self, progress: Progress, new_ids: Array, outputs: Sequence[str] = (), **inputs: Array
    ) -> dict[str, Array]:
        """Read new tokens of every row, and move on.

        Args:
            progress: changed in place.
            new_ids: (R, T).
            outputs: wanted beside the logits, such as `cross_attentions` where there are any.
            **inputs: of the graph.

        Returns:
            Logits (R, T, V), and what was asked for.
        """
        names = [state["name"] for state in self.settings["states"]]
        wanted = ["logits", *outputs, *(f"new_{name}" for name in names)]
        read = {**progress.fixed, **progress.states, **inputs, "input_ids": new_ids}
        results = self.run(self.decoder, read, wanted)
        progress.states = {name: results.pop(f"new_{name}") for name in names}
        return results

    def read(self, progress: Progress, new_ids: Array) -> Array:
        """Read one more token of every row: (R, 1) -> logits of the next, (R, V)."""
        return self.advance(progress, new_ids)["logits"][:, -1]

    def search_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a search is told: the exported settings, and those of the call.

        Args:
            options: of the call.

        Returns:
            Every option of `OPTIONS`, and `max_length` and `max_new_tokens` if there is one.

        Raises:
            ValueError: if an option is unknown, does not fit, or cannot be honoured.
        """
        known = (*OPTIONS, "max_length", "max_new_tokens")
        unknown = [name for name in options if name not in known]
        refused = self.settings["refused"]
        if unknown or refused:
            raise ValueError(
                f"This search knows the options {', '.join(known)}, got "
                f"{', '.join(unknown) or f'{refused} in the generation_config'}. Leave others out, "
                f"of the call and of the generation_config of the model before its export."
            )
        given = {name: value for name, value in options.items() if value is not None}
        stored = dict(self.settings["generation"])
        if "max_length" in given:
            stored.pop("max_new_tokens", None)
        settings = {**OPTIONS, **stored, **given}
        if not 1 <= settings["num_return_sequences"] <= settings["num_beams"]:
            raise ValueError(
                f"num_return_sequences must lie between 1 and num_beams, got "
                f"{settings['num_return_sequences']} with num_beams={settings['num_beams']}."
            )
        if settings["early_stopping"] not in (True, False, "never"):
            raise ValueError(
                f"early_stopping must be True, False or 'never', got "
                f"{settings['early_stopping']!r}."
            )
        return settings

    def longest(self, settings: Mapping[str, Any], prompt_length: int) -> int:
        """Return the length at which rows end, prompt included."""
        limit = self.settings["max_position_embeddings"]
        if settings.get("max_new_tokens") is not None:
            length = prompt_length + settings["max_new_tokens"]
        elif settings.get("max_length") is not None:
            length = settings["max_length"]
        else:
            length = prompt_length + DEFAULT_NEW_TOKENS
            length = length if limit is None else min(length, limit)
        if length <= prompt_length:
            raise ValueError(
                f"max_length must leave room behind the {prompt_length} tokens of the prompt, got "
                f"{length}. Set max_new_tokens."
            )
        return length

    def write(
        self, progress: Progress, logits: Array, prompts: Array, options: Mapping[str, Any]
    ) -> tuple[Array, Array]:
        """Search from a prompt that has been read.

        Args:
            progress: behind the prompt, (B, ...).
            logits: of the first new token, (B, V).
            prompts: what rows begin with, (B, P).
            options: of `generate`.

        Returns:
            Rows with their prompts, filled up behind their ends, and their scores.
        """
        settings = self.search_options(options)
        ends = settings["eos_token_id"]
        ends = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
        pad = settings["pad_token_id"]
        if pad is None and ends:
            pad = ends[0]
        max_length = self.longest(settings, prompts.shape[1])
        if settings["num_beams"] == 1:
            read = partial(self.read, progress)
            return write_greedily(read, logits, prompts, max_length, ends, pad)
        beams = Beams(
            prompts,
            num_beams=settings["num_beams"],
            max_length=max_length,
            ends=ends,
            pad=-1 if pad is None else pad,
            length_penalty=settings["length_penalty"],
            early_stopping=settings["early_stopping"],
        )
        progress = progress.repeated(beams.num_beams)
        logits = np.repeat(logits, beams.num_beams, axis=0)
        while True:
            rows = beams.advance(log_softmax(logits))
            if beams.is_done:
                return beams.best(settings["num_return_sequences"])
            progress.select(rows)
            logits = self.read(progress, beams.last_tokens())


class LanguageModelGraphs(GeneratingGraphs):
    """A language model: it goes on with prompts."""

    decoder = "model"

    def start(self, input_ids: Array, attention_mask: Array) -> Progress:
        """Return where decoding starts from, before the first token is read."""
        return Progress({}, self.first_states(len(input_ids)))

    def read(self, progress: Progress, new_ids: Array) -> Array:
        """Read one more token of every row: (R, 1) -> logits of the next, (R, V)."""
        results = self.advance(progress, new_ids, attention_mask=np.ones_like(new_ids))
        return results["logits"][:, -1]

    def __call__(self, input_ids: Any, attention_mask: Any = None) -> dict[str, Array]:
        """Score every next token of given texts.

        Args:
            input_ids: ids, (B, T).
            attention_mask: 1 at real tokens, (B, T); None means no padding.

        Returns:
            {"logits": (B, T, V)}.
        """
        ids, mask = as_ids_and_mask(input_ids, attention_mask)
        return self.advance(self.start(ids, mask), ids, attention_mask=mask)

    def generate(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        *,
        return_scores: bool = False,
        **options: Any,
    ) -> Any:
        """Go on with prompts, greedily or by beam search.

        Args:
            input_ids: prompts, padded on the left, (B, T).
            attention_mask: 1 at real tokens, (B, T); None means no padding.
            return_scores: return the scores of rows, too.
            **options: of `OPTIONS`, `max_length` or `max_new_tokens`; others are those that were
                exported.

        Returns:
            Prompts with what was written, (B * num_return_sequences, T), as generate() of
            transformers returns them, but filled up with `pad_token_id` always; and with
            `return_scores` log-probabilities in nats, with beams over length^length_penalty.

        Raises:
            ValueError: if an option is unknown or does not fit.
        """
        ids, mask = as_ids_and_mask(input_ids, attention_mask)
        progress = self.start(ids, mask)
        logits = self.advance(progress, ids, attention_mask=mask)["logits"][:, -1]
        rows, scores = self.write(progress, logits, ids, options)
        return (rows, scores) if return_scores else rows


class EncoderDecoderGraphs(GeneratingGraphs):
    """An encoder-decoder: it reads sources and writes targets."""

    decoder = "decoder"

    def start(self, input_ids: Array, attention_mask: Array) -> Progress:
        """Read sources, and return where decoding starts from."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        encoded = self.run("encoder", inputs)
        memory = {name: encoded.pop(name) for name in self.settings["memory"]}
        states = self.first_states(len(input_ids)) | encoded
        return Progress({"attention_mask": attention_mask, **memory}, states)

    def generate(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        *,
        decoder_input_ids: Any = None,
        return_scores: bool = False,
        **options: Any,
    ) -> Any:
        """Write targets, greedily or by beam search.

        Args:
            input_ids: sources, (B, S).
            attention_mask: 1 at real tokens, (B, S); None means no padding.
            decoder_input_ids: what targets begin with, (B, P); None is the start token alone.
            return_scores: return the scores of rows, too.
            **options: of `OPTIONS`, `max_length` or `max_new_tokens`; others are those that were
                exported.

        Returns:
            Targets from the start token on, (B * num_return_sequences, T), as generate() of
            transformers returns them, but filled up with `pad_token_id` always; and with
            `return_scores` log-probabilities in nats, with beams over length^length_penalty.

        Raises:
            ValueError: if an option is unknown or does not fit.
        """
        ids, mask = as_ids_and_mask(input_ids, attention_mask)
        prompts = self._prompts(len(ids), decoder_input_ids)
        progress = self.start(ids, mask)
        for place in range(prompts.shape[1]):
            logits = self.read(progress, np.ascontiguousarray(prompts[:, place : place + 1]))
        rows, scores = self.write(progress, logits, prompts, options)
        return (rows, scores) if return_scores else rows

    def _prompts(self, num_rows: int, decoder_input_ids: Any) -> Array:
        stored = self.settings["generation"]
        start = stored.get("decoder_start_token_id", stored.get("bos_token_id"))
        begun = [] if start is None else [np.full((num_rows, 1), start, dtype=np.int64)]
        if decoder_input_ids is not None:
            given = as_ids("decoder_input_ids", decoder_input_ids)
            return (
                given if not begun or (given[:, 0] == start).all() else np.hstack([*begun, given])
            )
        if not begun:
            raise ValueError(
                "The exported model has no decoder_start_token_id: pass decoder_input_ids."
            )
        return begun[0]


KINDS = {
    "forward": ForwardGraphs,
    "language_model": LanguageModelGraphs,
    "encoder_decoder": EncoderDecoderGraphs,
}
