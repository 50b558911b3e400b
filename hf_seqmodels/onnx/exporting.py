# pyright: basic
"""Write models as programs of torch.export and as ONNX graphs."""

import contextlib
import inspect
import json
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim, ExportedProgram
from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedModel

import hf_seqmodels
from hf_seqmodels.auto_classes import FAMILIES
from hf_seqmodels.onnx import runtime
from hf_seqmodels.onnx.graphs import (
    ForwardPass,
    Graph,
    Graphs,
    RnnDecoderStep,
    RnnEncoder,
    RnnLanguageModel,
    TransformerDecoderStep,
    TransformerEncoder,
    TransformerLanguageModel,
    Value,
    as_state,
    tokens,
    traceable,
)
from hf_seqmodels.onnx.recurrent_ops import translations
from hf_seqmodels.onnx.runtime import SETTINGS_FILE

DECODER_PACKAGE = "seqmodels_onnx"  # {file in it: its source here}
DECODER_FILES = {"__init__.py": "runtime.py", "searching.py": "searching.py"}
PACKAGES = ("onnx", "onnxruntime", "onnxscript")
OLDEST_TORCH = (2, 11)  # 2.6 takes lengths of its examples for constants


def language_model_graphs(module: Any) -> Graphs:
    """Return the graph of a language model, for prompts and for steps."""
    states = tuple(module.states())
    inputs = (tokens("input_ids"), tokens("attention_mask"), *states)
    outputs = ("logits", *(as_state(state).name for state in states))
    return Graphs("language_model", {"model": Graph(module, inputs, outputs)}, states=states)


def rnn_seq2seq_graphs(model: PreTrainedModel) -> Graphs:
    """Return encoder and step of a recurrent encoder-decoder."""
    encoder = RnnEncoder(model)
    memory, states = tuple(encoder.memory()), tuple(encoder.states())
    source = (tokens("input_ids", "batch", "source"), tokens("attention_mask", "batch", "source"))
    step = (Value("input_ids", ("batch", 1), torch.int64), source[1], *memory, *states)
    weights = ["cross_attentions"] if any(m.name == "memory_keys" for m in memory) else []
    named = [value.name for value in (*memory, *states)]
    renewed = [as_state(state).name for state in states]
    return Graphs(
        "encoder_decoder",
        {
            "encoder": Graph(encoder, source, tuple(named)),
            "decoder": Graph(
                RnnDecoderStep(model, list(memory)), step, ("logits", *weights, *renewed)
            ),
        },
        memory=memory,
        states=states,
    )


def transformer_seq2seq_graphs(model: PreTrainedModel) -> Graphs:
    """Return encoder and step of a transformer encoder-decoder."""
    encoder, decoder = TransformerEncoder(model), TransformerDecoderStep(model)
    memory, states = tuple(encoder.memory()), tuple(decoder.states())
    source = (tokens("input_ids", "batch", "source"), tokens("attention_mask", "batch", "source"))
    step = (Value("input_ids", ("batch", 1), torch.int64), source[1], *memory, *states)
    renewed = [as_state(state).name for state in states]
    return Graphs(
        "encoder_decoder",
        {
            "encoder": Graph(encoder, source, tuple(value.name for value in memory)),
            "decoder": Graph(decoder, step, ("logits", *renewed)),
        },
        memory=memory,
        states=states,
    )


def forward_graphs(model: PreTrainedModel) -> Graphs:
    """Return the one graph of a model that reads whole texts."""
    module = ForwardPass(model)
    inputs = tuple(module.inputs())
    with torch.no_grad():
        outputs = module.named(*(value.example() for value in inputs))
    return Graphs("forward", {"model": Graph(module, inputs, tuple(outputs))})


GENERATING: dict[str, Callable[[Any], Graphs]] = {
    "RnnSeq2SeqForConditionalGeneration": rnn_seq2seq_graphs,
    "TransformerSeq2SeqForConditionalGeneration": transformer_seq2seq_graphs,
    "RnnLMForCausalLM": lambda model: language_model_graphs(RnnLanguageModel(model)),
    "DecoderLMForCausalLM": lambda model: language_model_graphs(TransformerLanguageModel(model)),
}
READING = (
    "DecoderLMForSequenceClassification",
    "DecoderLMForTokenClassification",
    "TextEncoderForMaskedLM",
    "TextEncoderForMultipleChoice",
    "TextEncoderForNextSentencePrediction",
    "TextEncoderForPreTraining",
    "TextEncoderForQuestionAnswering",
    "TextEncoderForSequenceClassification",
    "TextEncoderForTokenClassification",
    "TextEncoderModel",
)


def make_graphs(model: PreTrainedModel) -> Graphs:
    """Return the graphs of a model.

    Args:
        model: of a class of `GENERATING` or `READING`.

    Returns:
        Modules with their inputs and outputs.

    Raises:
        ValueError: if the model is of another class, or not in float32 on the CPU.
    """
    name = type(model).__name__
    if name not in GENERATING and name not in READING:
        raise ValueError(
            f"Graphs can be made of {', '.join([*GENERATING, *READING])}, got {name}. Load the "
            f"checkpoint with one of these classes."
        )
    if model.dtype != torch.float32 or model.device.type != "cpu":
        raise ValueError(
            f"A model is exported in float32 from the CPU, got {model.dtype} on {model.device}. "
            f"Load it with dtype=torch.float32 and without a device_map."
        )
    return GENERATING[name](model) if name in GENERATING else forward_graphs(model)


def trace(graph: Graph) -> ExportedProgram:
    """Return a graph as a program of torch.export, for rows and lengths of any number."""
    shapes = [dict.fromkeys(value.axes, Dim.DYNAMIC) or None for value in graph.inputs]
    parameters = inspect.signature(graph.module.forward).parameters.values()
    num_named = sum(parameter.kind is not parameter.VAR_POSITIONAL for parameter in parameters)
    others = tuple(shapes[num_named:])  # *args are one argument, if there are any
    with torch.no_grad():
        return torch.export.export(
            graph.module,
            tuple(value.example() for value in graph.inputs),
            dynamic_shapes=(*shapes[:num_named], *([others] if others else [])),
            strict=False,
        )


def export_programs(model: PreTrainedModel) -> dict[str, ExportedProgram]:
    """Return a model as programs of `torch.export`, which compute without its classes.

    An encoder-decoder gives "encoder" and "decoder", the latter one decoding step; every other
    model gives "model". States are inputs and outputs, as in the ONNX graphs; see
    `docs/export.md`. Save them with `torch.export.save`. Those of recurrent models hold operators
    of this package, so that whoever loads them imports `hf_seqmodels.onnx.recurrent_ops` first.

    Args:
        model: in float32, on the CPU; dropout does not enter the programs.

    Returns:
        {name: program}.

    Raises:
        ValueError: if there is no such export of the model's class.
        ImportError: if torch is too old.
    """
    check_torch(torch.__version__)
    return _trace_all(model, make_graphs(model))


def check_torch(version: str) -> None:
    """Make sure that torch exports lengths of any number.

    Args:
        version: of torch.

    Raises:
        ImportError: if it is older than `OLDEST_TORCH`.
    """
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_TORCH:
        raise ImportError(
            f"Export needs torch {'.'.join(map(str, OLDEST_TORCH))} or newer, got {version}. "
            f"Install a newer one; what is exported runs without torch."
        )


def _trace_all(model: PreTrainedModel, graphs: Graphs) -> dict[str, ExportedProgram]:
    was_training = model.training
    model.eval()
    try:
        with traceable(model):
            return {name: trace(graph) for name, graph in graphs.graphs.items()}
    finally:
        model.train(was_training)


def export_onnx(model: PreTrainedModel, folder: str | PathLike, tokenizer: Any = None) -> Path:
    """Write a model as ONNX graphs, with the loop that decodes with them.

    The folder holds encoder.onnx and decoder.onnx (one decoding step), or model.onnx; config.json,
    generation_config.json, what the loop has to know (seqmodels_onnx.json), the loop itself (the
    package seqmodels_onnx, which needs numpy and onnxruntime alone), and the tokenizer.

    Args:
        model: in float32, on the CPU.
        folder: where to; new or empty.
        tokenizer: saved beside the graphs.

    Returns:
        The folder.

    Raises:
        ValueError: if there is no such export of the model's class, or the folder is not empty.
        ImportError: if a package is missing, or torch is too old.
    """
    check_torch(torch.__version__)
    _check_packages()
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(
            f"Graphs go into a new or empty folder, and {str(target)!r} is not empty. Name another."
        )
    graphs = make_graphs(model)
    programs = _trace_all(model, graphs)
    target.mkdir(parents=True, exist_ok=True)
    for name, program in programs.items():
        _write_graph(program, graphs.graphs[name], target / f"{name}.onnx")
    model.config.save_pretrained(target)
    if model.can_generate() and model.generation_config is not None:
        model.generation_config.save_pretrained(target)
    settings = json.dumps(describe(model, graphs), indent=2)
    (target / SETTINGS_FILE).write_text(settings + "\n", encoding="utf-8")
    (target / DECODER_PACKAGE).mkdir()
    for name, source in DECODER_FILES.items():
        shutil.copyfile(Path(__file__).with_name(source), target / DECODER_PACKAGE / name)
    if tokenizer is not None:
        tokenizer.save_pretrained(target)
    return target


def _check_packages() -> None:
    for name in PACKAGES:
        try:
            __import__(name)
        except ImportError as error:
            raise ImportError(
                f"Export to ONNX needs the package {name}, which is not installed. Run "
                f"pip install 'hf-seqmodels[onnx]'."
            ) from error


def _write_graph(program: ExportedProgram, graph: Graph, path: Path) -> None:
    with _quiet():
        exported = torch.onnx.export(
            program,
            input_names=[value.name for value in graph.inputs],
            output_names=list(graph.outputs),
            custom_translation_table=translations(),
            dynamo=True,
            verbose=False,
        )
    assert exported is not None
    _name_axes(exported.model.graph, graph)
    exported.save(str(path))


def _name_axes(onnx_graph: Any, graph: Graph) -> None:
    """Name the axes of inputs as the graph does; torch numbers them."""
    named: dict[str, str] = {}
    for onnx_input, value in zip(onnx_graph.inputs, graph.inputs, strict=True):
        for place, axis in value.axes.items():
            named[str(onnx_input.shape[place])] = axis
    for value in (*onnx_graph.inputs, *onnx_graph.outputs):
        for place, size in enumerate(value.shape):
            if str(size) in named:
                value.shape[place] = named[str(size)]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what torch.onnx says of packages that are not needed here."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


# What the decoding loop has to know

# settings of generate() that the loop honours
HONOURED = (
    "max_length",
    "max_new_tokens",
    "num_beams",
    "num_return_sequences",
    "length_penalty",
    "early_stopping",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "decoder_start_token_id",
)
# settings that change what is generated, with the values that change nothing
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "do_sample": (None, False),
    "min_length": (None, 0),
    "min_new_tokens": (None, 0),
    "repetition_penalty": (None, 1.0),
    "encoder_repetition_penalty": (None, 1.0),
    "no_repeat_ngram_size": (None, 0),
    "encoder_no_repeat_ngram_size": (None, 0),
    "bad_words_ids": (None,),
    "sequence_bias": (None,),
    "forced_bos_token_id": (None,),
    "forced_eos_token_id": (None,),
    "exponential_decay_length_penalty": (None,),
    "suppress_tokens": (None,),
    "begin_suppress_tokens": (None,),
    "guidance_scale": (None, 1, 1.0),
    "remove_invalid_values": (None, False),
    "num_beam_groups": (None, 1),
    "diversity_penalty": (None, 0.0),
    "dola_layers": (None,),
    "max_time": (None,),
    "watermarking_config": (None,),
    "penalty_alpha": (None,),
    "constraints": (None,),
    "force_words_ids": (None,),
    "stop_strings": (None,),
}


def describe(model: PreTrainedModel, graphs: Graphs) -> dict[str, Any]:
    """Return what seqmodels_onnx.json says.

    Args:
        model: that was exported.
        graphs: of it.

    Returns:
        Names and shapes of memory and states, and settings of the search; a setting that the loop
        does not know is listed under "refused".
    """
    settings: dict[str, Any] = {
        "format": runtime.FORMAT,
        "kind": graphs.kind,
        "architecture": type(model).__name__,
        "exported_by": f"hf_seqmodels {hf_seqmodels.__version__}",
    }
    if graphs.kind == "forward":
        return settings
    generation: Any = model.generation_config or GenerationConfig()
    values = generation.to_dict()
    settings["memory"] = [value.name for value in graphs.memory]
    settings["states"] = [
        {"name": state.name, "shape": list(state.shape), "type": str(state.dtype).split(".")[1]}
        for state in graphs.states
    ]
    limit = getattr(model.config, "max_position_embeddings", None)
    settings["max_position_embeddings"] = limit
    settings["generation"] = {
        name: values[name] for name in HONOURED if values.get(name) is not None
    }
    settings["refused"] = {
        name: values[name] for name, neutral in NEUTRAL.items() if values.get(name) not in neutral
    }
    return settings


# Folders


def load_model(folder: str | PathLike) -> PreTrainedModel:
    """Return the model of a folder, of the class that saved it, in float32.

    Args:
        folder: with config.json and weights.

    Returns:
        The model, in evaluation mode.

    Raises:
        ValueError: if the class that saved it is none of this package.
    """
    config = AutoConfig.from_pretrained(folder)
    names = config.architectures or [""]
    classes = {c.__name__: c for family in FAMILIES for c in family.model_classes.values()}
    if len(names) != 1 or names[0] not in classes:
        raise ValueError(
            f"architectures in config.json of {str(folder)!r} must name one model class of this "
            f"package, got {config.architectures}. Save the model with save_pretrained."
        )
    return classes[names[0]].from_pretrained(folder, dtype=torch.float32)


def export_folder(folder: str | PathLike, target: str | PathLike) -> Path:
    """Write the checkpoint of a folder as ONNX graphs.

    Args:
        folder: what save_pretrained or a Trainer wrote.
        target: where to; new or empty.

    Returns:
        The new folder.

    Raises:
        ValueError: if the folder holds no model of this package.
        ImportError: if a package is missing.
    """
    model = load_model(folder)
    has_tokenizer = (Path(folder) / "tokenizer_config.json").is_file()
    tokenizer = AutoTokenizer.from_pretrained(folder) if has_tokenizer else None
    return export_onnx(model, target, tokenizer)
