# pyright: basic
"""What all families share beside their layers: initialisation, tying, and the checks of what a user
passes."""

import copy
import json
import re
import shutil
import sys
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.dynamic_module_utils import get_relative_imports
from transformers.utils import CONFIG_NAME, logging
from transformers.utils.hub import cached_file

from .outputs import IGNORED_LABEL

# transformers 5.17 cuts its beams by config.vocab_size, later versions by the width of the logits
BEAMS_READ_CONFIG = transformers.__version__.startswith("5.17.")
TRAINER_CHECKPOINT = re.compile(r"checkpoint-\d+")
COMMIT = re.compile(r"[0-9a-f]{40}")
WAY_OUT = "Use the tokenizer that the model was trained with, or resize the embeddings."
NUM_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}

logger = logging.get_logger(__name__)


class SeqModelsPreTrainedModel(PreTrainedModel):
    """Base of every model of the package.

    Initialisation, each only where no weight was loaded: embeddings N(0, initializer_range); linear
    layers Xavier uniform (Glorot and Bengio 2010) with zero bias; recurrent layers Xavier uniform
    from the input and orthogonal (Saxe et al. 2014) between states, gate by gate, zero bias but 1
    for the LSTM's forget gate (Jozefowicz et al. 2015). A module with `initialize_parameters` sets
    what differs in parameters of its own (transformers does not visit a module without any).

    What is saved carries its code: the files of this folder that the classes are made of, named in
    config.json for every Auto class, so that it loads where the package is not installed. The
    checkpoint-<step> folders of a Trainer stay without.
    """

    accepts_loss_kwargs = True  # Trainer passes num_items_in_batch
    # what config.json says of the code; set by the package, empty in code that a checkpoint brought
    code_entries: ClassVar[dict[str, Any]] = {}
    # what LoRA adapts where the user of peft names no target_modules
    lora_targets: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: PreTrainedConfig, *args: Any, **kwargs: Any):
        super().__init__(config, *args, **kwargs)
        constants = sys.modules.get("peft.utils.constants")  # never loaded from here
        table = getattr(constants, "TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING", None)
        if table is not None:
            table.setdefault(config.model_type, list(self.lora_targets))

    def post_init(self):
        """Finish a model as transformers does, naming no block that this one does not have."""
        super().post_init()
        present = {type(module).__name__ for module in self.modules()}
        self._no_split_modules = present.intersection(self._no_split_modules or ())

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | PathLike | None, *model_args: Any, **kwargs: Any
    ):
        """Load a model as transformers does, and name the file where a weight file is broken.

        Args:
            pretrained_model_name_or_path: folder or name on the Hub.
            *model_args: as in transformers.
            **kwargs: as in transformers.

        Returns:
            The model, in evaluation mode; with `output_loading_info` also what was loaded.

        Raises:
            OSError: if a weight file cannot be read.
        """
        try:
            loaded = super().from_pretrained(pretrained_model_name_or_path, *model_args, **kwargs)
        except Exception as error:
            folder = Path(str(pretrained_model_name_or_path), kwargs.get("subfolder") or "")
            broken = describe_broken_weights(folder)
            if not broken and not type(error).__module__.startswith("safetensors"):
                raise
            raise OSError(
                f"Every weight file must be whole, but {broken or folder} cannot be read "
                f"({error}). Copy or save the checkpoint again; from the Hub, pass "
                f"force_download=True."
            ) from error
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        for module in model.modules():
            if isinstance(module, nn.RNNBase):
                module.flatten_parameters()  # cuDNN wants the weights of a layer in one block
        return loaded

    @classmethod
    def maybe_distribute_model(
        cls, model: Any, distributed_config: Any, mesh_manager: Any, *args: Any, **kwargs: Any
    ):
        """Shard a model that from_pretrained(distributed_config=...) loads, its ties included.

        transformers shards tied weights one by one and ties them afterwards. Where a table does not
        divide evenly among the processes, FSDP then fills up each module's shard in a copy of its
        own, which no optimizer reaches. Here they are tied before, and stay in one group, that of
        the whole model.

        Args:
            model: without weights as yet.
            distributed_config: how to shard it.
            mesh_manager: the processes, None to leave the model whole.
            *args: as in transformers.
            **kwargs: as in transformers.

        Returns:
            The model.

        Raises:
            ValueError: if attention has heads that tensor parallelism cannot deal out evenly.
        """
        num_shares = getattr(distributed_config, "tp_size", None) or 1
        for name in ("num_attention_heads", "num_key_value_heads"):
            num_heads = getattr(model.config, name, None) or num_shares
            if num_heads % num_shares and any("k_proj" in rule for rule in model._tp_plan or ()):
                raise ValueError(
                    f"tp_size must divide {name}={num_heads}, got {num_shares}. Share layers among "
                    "fewer processes, or use fsdp_size."
                )
        if mesh_manager is not None and getattr(distributed_config, "fsdp_size", 1) > 1:
            ties = model.all_tied_weights_keys
            names = {name.rpartition(".")[0] for tie in ties.items() for name in tie}
            if ties:
                model.tie_weights()
                head = model.get_output_embeddings()
                names |= {name for name, module in model.named_modules() if module is head}
            plan = model._fsdp_plan.items()
            model._fsdp_plan = {name: how for name, how in plan if name not in names}
        return super().maybe_distribute_model(
            model, distributed_config, mesh_manager, *args, **kwargs
        )

    def save_pretrained(
        self, save_directory: str | PathLike, is_main_process: bool = True, **kwargs: Any
    ):
        """Save as transformers does, and the code beside it.

        Args:
            save_directory: the folder; one called checkpoint-<step> gets no code, unless it is
                pushed.
            is_main_process: as in transformers; other processes write no code.
            **kwargs: as in transformers.
        """
        _spell_out_pipelines(self.config)
        super().save_pretrained(save_directory, is_main_process, **kwargs)
        writes = self.should_save_on_this_rank(is_main_process) and Path(save_directory).is_dir()
        if writes and not kwargs.get("push_to_hub"):
            self._write_code(Path(save_directory))

    def _upload_modified_files(self, working_dir: str | PathLike, *args: Any, **kwargs: Any):
        self._write_code(Path(working_dir), is_pushed=True)
        return super()._upload_modified_files(working_dir, *args, **kwargs)

    def _write_code(self, folder: Path, *, is_pushed: bool = False):
        """Copy the code into a folder and name it in its config.json."""
        keys, config_file = ("auto_map", "custom_pipelines"), folder / CONFIG_NAME
        if not config_file.is_file():
            return  # adapters of peft are saved without the model
        entries = self.code_entries or {key: getattr(self.config, key, {}) for key in keys}
        classes = {reference.rpartition(".")[2] for reference in entries["auto_map"].values()}
        if type(self).__name__.removeprefix("FSDP") not in classes:  # FSDP's class is put on ours
            return  # a class of the user, which transformers saves as the user has registered it
        if self.code_entries and not is_pushed and TRAINER_CHECKPOINT.fullmatch(folder.name):
            entries = {}
        else:
            entries = copy_code(entries, folder, str(self.name_or_path))
        config = json.loads(config_file.read_text(encoding="utf-8"))
        config = {key: value for key, value in config.items() if key not in keys} | entries
        text = json.dumps(config, indent=2, sort_keys=True) + "\n"
        config_file.write_text(text, encoding="utf-8")

    def _init_weights(self, module: nn.Module):
        if isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, mean=0.0, std=self.config.initializer_range)
        elif isinstance(module, nn.RNNBase):
            initialize_recurrent(module)
        initialize = getattr(module, "initialize_parameters", None)
        if initialize is not None:
            initialize()

    def resize_position_embeddings(self, new_num_position_embeddings: int):
        """Let texts of another length be read, as scripts of transformers ask for.

        Learned positions keep their vectors; those behind them are drawn as in a new model and want
        training. Other positions, and recurrent models, have no table: only the config changes.

        Args:
            new_num_position_embeddings: longest length from now on, in tokens.

        Raises:
            ValueError: if it is below 1.
        """
        if new_num_position_embeddings < 1:
            raise ValueError(
                f"new_num_position_embeddings must be at least 1, got "
                f"{new_num_position_embeddings}."
            )
        for module in list(self.modules()):
            old = getattr(module, "positions", None)
            if isinstance(old, nn.Embedding):
                new = type(old)(new_num_position_embeddings, old.embedding_dim).to(old.weight)
                self._init_weights(new)
                kept = min(old.num_embeddings, new_num_position_embeddings)
                with torch.no_grad():
                    new.weight[:kept] = old.weight[:kept]
                module.positions = new
        self.config.max_position_embeddings = new_num_position_embeddings

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict:
        """Return {tied parameter: the parameter it follows} for every tie that the config asks for.

        transformers drops all ties when `tie_word_embeddings` is False; a family here may tie more
        than that.

        Args:
            all_submodels: also the ties of inner models.

        Returns:
            Names of parameters, from this model.
        """
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels=True)
        return dict(self._tied_weights_keys or {})


def copy_code(entries: dict[str, Any], folder: Path, origin: str) -> dict[str, Any]:
    """Copy the files that config.json names into a folder, and the files that those import.

    Args:
        entries: `auto_map` and `custom_pipelines`.
        folder: where to copy.
        origin: where the model came from, for files that transformers has not fetched with it: it
            fetches only what it runs.

    Returns:
        The entries, without pipelines whose file cannot be had.

    Raises:
        OSError: if a file of the model is missing.
    """
    copied: set[str] = set()

    def copy(module: str):
        if "--" in module or module in copied:  # "--": the code of another repository
            return
        copied.add(module)
        source, copy_of_it = _find_code(f"{module}.py", origin), folder / f"{module}.py"
        if source.resolve() != copy_of_it.resolve():
            shutil.copyfile(source, copy_of_it)
        for needed in get_relative_imports(source):
            copy(needed)

    for reference in entries["auto_map"].values():
        copy(reference.rpartition(".")[0])
    pipelines = {}
    for task, pipeline in entries.get("custom_pipelines", {}).items():
        try:
            copy(pipeline["impl"].rpartition(".")[0])
            pipelines[task] = pipeline
        except OSError as error:
            logger.warning(f"The pipeline {task!r} is left out of {folder}: {error}")
    kept = {"custom_pipelines": pipelines} if pipelines else {}
    return {"auto_map": entries["auto_map"], **kept}


def _find_code(name: str, origin: str) -> Path:
    """Return a code file: beside this one, or where the model came from."""
    here = Path(__file__).parent
    if (here / name).is_file():
        return here / name
    commit = here.name if COMMIT.fullmatch(here.name) else None  # folders of code from the Hub
    found = cached_file(origin, name, revision=commit) if origin else None
    if found is None:
        raise OSError(f"{name} is not among the files of the model ({origin or 'no origin'}).")
    return Path(found)


def _spell_out_pipelines(config: PreTrainedConfig):
    """Undo that `pipeline()` puts classes into the config where their names stood."""
    for pipeline in getattr(config, "custom_pipelines", {}).values():
        classes = pipeline.get("pt", ())
        pipeline["pt"] = [getattr(loaded, "__name__", loaded) for loaded in classes]


if TYPE_CHECKING:

    class EncoderDecoder(PreTrainedModel):
        """What TwoVocabulariesMixin is mixed into."""

        def get_encoder(self, *args: Any, **kwargs: Any) -> Any: ...
        def get_decoder(self) -> Any: ...
        def get_output_embeddings(self) -> Any: ...
        def _beam_search(self, *args: Any, **kwargs: Any) -> Any: ...
else:
    EncoderDecoder = object


class TwoVocabulariesMixin(EncoderDecoder):
    """Embeddings and scores of encoder-decoders whose source and target vocabularies may differ.

    Both sides keep their table in `embed_tokens`. `config.decoder_vocab_size` None or a shared
    table means one vocabulary, whose tables are resized together; else `resize_token_embeddings` is
    for the source alone.
    """

    def get_input_embeddings(self) -> nn.Module:
        """Return the source embedding table."""
        return self.get_encoder().embed_tokens

    def set_input_embeddings(self, value: nn.Module):
        """Replace the source embedding table, and the target's where both are one."""
        self.get_encoder().embed_tokens = value
        if self.config.share_embeddings:
            self.get_decoder().embed_tokens = value

    def _has_one_vocabulary(self) -> bool:
        return self.config.decoder_vocab_size is None or self.config.share_embeddings

    def _resize_token_embeddings(self, new_num_tokens, pad_to_multiple_of=None, mean_resizing=True):
        encoder = self.get_encoder()
        encoder.embed_tokens = self._get_resized_embeddings(
            encoder.embed_tokens, new_num_tokens, pad_to_multiple_of, mean_resizing
        )
        if self._has_one_vocabulary():
            self._resize_target(encoder.embed_tokens.num_embeddings, mean_resizing)
            self.config.decoder_vocab_size = None  # where it repeated the old vocab_size
        return encoder.embed_tokens

    def resize_decoder_token_embeddings(
        self, new_num_tokens: int, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Resize the target table and the output layer of a model with two vocabularies.

        Args:
            new_num_tokens: new size of the target vocabulary; tokens are added or dropped at the
                end.
            pad_to_multiple_of: round the size up to a multiple of this.
            mean_resizing: draw new rows around the mean of the old ones.

        Returns:
            The target embedding table.

        Raises:
            ValueError: if the model has one vocabulary.
        """
        if self._has_one_vocabulary():
            raise ValueError(
                f"resize_decoder_token_embeddings needs a target vocabulary of its own, got "
                f"decoder_vocab_size={self.config.decoder_vocab_size} and "
                f"share_embeddings={self.config.share_embeddings}. Call resize_token_embeddings, "
                f"which resizes both sides."
            )
        if pad_to_multiple_of is not None:
            new_num_tokens = -(-new_num_tokens // pad_to_multiple_of) * pad_to_multiple_of
        self._resize_target(new_num_tokens, mean_resizing)
        self.config.decoder_vocab_size = new_num_tokens
        self.tie_weights()
        return self.get_decoder().embed_tokens

    def _resize_target(self, new_num_tokens: int, mean_resizing: bool):
        decoder = self.get_decoder()
        decoder.embed_tokens = self._get_resized_embeddings(
            decoder.embed_tokens, new_num_tokens, mean_resizing=mean_resizing
        )
        if self.get_output_embeddings() is not None:
            self.set_output_embeddings(
                self._get_resized_lm_head(
                    self.get_output_embeddings(), new_num_tokens, mean_resizing=mean_resizing
                )
            )

    def _beam_search(self, *args, **kwargs):
        if not BEAMS_READ_CONFIG:
            return super()._beam_search(*args, **kwargs)
        counted = copy.copy(self.config)
        counted.vocab_size = self.config.target_vocab_size
        if getattr(self.config, "pointer_generator", False):
            counted.vocab_size += self.config.max_copied_words
        # beams ask the config how many scores there are, while the model goes on reading its own
        vars(self.config)["get_text_config"] = lambda *args, **kwargs: counted
        try:
            return super()._beam_search(*args, **kwargs)
        finally:
            del vars(self.config)["get_text_config"]

    def compute_transition_scores(
        self,
        sequences: Tensor,
        scores: tuple[Tensor, ...],
        beam_indices: Tensor | None = None,
        normalize_logits: bool = False,
    ) -> Tensor:
        """Return the score of every generated token, as GenerationMixin does, for any target
        vocabulary.

        transformers' own version counts with `config.vocab_size`, the source's.

        Args:
            sequences: what generate() returned, (rows, length).
            scores: what generate() returned, one (rows or beams, V) per step.
            beam_indices: what beam search returned, (rows, steps), -1 behind the end.
            normalize_logits: take log-softmax of the scores first.

        Returns:
            Scores of the generated tokens, (rows, steps), zero behind the end of a beam.
        """
        stacked = torch.stack(scores, dim=1)  # (beams, steps, V)
        if normalize_logits:
            stacked = stacked.log_softmax(dim=-1)
        if beam_indices is None:
            beam_indices = torch.arange(stacked.shape[0], device=stacked.device)[:, None].expand(
                -1, stacked.shape[1]
            )
        num_steps = int((beam_indices >= 0).sum(dim=1).max())
        beam_indices = beam_indices[:, :num_steps]
        tokens = sequences[:, sequences.shape[1] - num_steps :]
        steps = torch.arange(num_steps, device=stacked.device)
        return stacked[beam_indices.clamp(min=0), steps, tokens].masked_fill(beam_indices < 0, 0.0)


class Seq2SeqHeadMixin(TwoVocabulariesMixin):
    """What encoder-decoders with an output layer, `lm_head`, on a body, `model`, share."""

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict:
        """Return {tied parameter: the parameter it follows}, the inner model's included.

        Args:
            all_submodels: the same here.

        Returns:
            Names of parameters, from this model.
        """
        inner = self.model.get_expanded_tied_weights_keys()
        return {f"model.{tied}": f"model.{source}" for tied, source in inner.items()} | (
            self._tied_weights_keys or {}
        )

    def get_output_embeddings(self) -> nn.Module:
        """Return the output layer."""
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module):
        """Replace the output layer."""
        self.lm_head = new_embeddings

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Return what the decoder reads to predict `labels`: (B, T) shifted right behind the start
        token.

        Args:
            labels: target ids, -100 where skipped, (B, T).

        Returns:
            Decoder input ids, (B, T).
        """
        start, filler = self.config.decoder_start_token_id, self.config.pad_token_id
        assert start is not None  # the config sees to it
        shifted = F.pad(labels[:, :-1], (1, 0), value=start)
        filler = start if filler is None else filler
        return shifted.masked_fill(shifted == IGNORED_LABEL, filler)


def describe_broken_weights(folder: Path) -> str:
    """Say which weight files of a folder do not hold what their headers announce.

    Args:
        folder: of a checkpoint; one that does not exist holds no files.

    Returns:
        Paths and sizes, empty if nothing is wrong.
    """
    complaints = []
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        with path.open("rb") as file:
            header_end = 8 + int.from_bytes(file.read(8), "little")
            text = file.read(header_end - 8) if header_end <= size else b""
        try:
            header = json.loads(text)
            ends = [entry["data_offsets"][1] for key, entry in header.items() if key[:2] != "__"]
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            complaints.append(f"{path} (no header in its {size} bytes)")
            continue
        if size != header_end + max(ends, default=0):
            complaints.append(f"{path} ({size} bytes instead of {header_end + max(ends)})")
    return ", ".join(complaints)


def initialize_recurrent(module: nn.RNNBase):
    """Initialise the weights of a torch recurrent layer that were not loaded, gate by gate.

    Args:
        module: nn.RNN, nn.GRU or nn.LSTM.
    """
    num_gates = NUM_GATES[module.mode]
    for name, parameter in module.named_parameters():
        if getattr(parameter, "_is_hf_initialized", False):
            continue
        gates = parameter.data.chunk(num_gates)
        for index, gate in enumerate(gates):
            if name.startswith("weight_ih"):
                nn.init.xavier_uniform_(gate)
            elif name.startswith("weight_hh"):
                _orthogonal_(gate)
            else:
                is_forget_gate = module.mode == "LSTM" and index == 1 and name.startswith("bias_ih")
                nn.init.constant_(gate, 1.0 if is_forget_gate else 0.0)


def _orthogonal_(weight: Tensor):
    if weight.dtype in (torch.float16, torch.bfloat16):  # no QR in half precision
        weight.copy_(nn.init.orthogonal_(torch.empty_like(weight, dtype=torch.float32)))
    else:
        nn.init.orthogonal_(weight)


def check_token_ids(
    name: str,
    token_ids: Tensor,
    vocab_size: int,
    *,
    ignored: int | None = None,
    way_out: str = WAY_OUT,
):
    """Check on the CPU that every id has a row in the embedding table.

    On an accelerator the look would wait for the device at every step; its own assertion speaks
    there.

    Args:
        name: argument to name in the message.
        token_ids: ids, (B, T).
        vocab_size: number of rows V.
        ignored: an id outside the range that is allowed, such as -100 in labels.
        way_out: what the message advises where an id is out of range.

    Raises:
        ValueError: if the shape is not (B, T), the type not int64 or int32, or an id lies outside
            [0, V).
    """
    if token_ids.dim() != 2 or 0 in token_ids.shape:
        raise ValueError(
            f"{name} must have the shape (batch, length) with at least one row and one position, "
            f"got {tuple(token_ids.shape)}. Pad empty rows."
        )
    if token_ids.dtype not in (torch.int64, torch.int32):
        raise ValueError(
            f"{name} must hold ids of type torch.int64 or torch.int32, got {token_ids.dtype}. Pass "
            f"the ids the tokenizer returned."
        )
    if token_ids.device.type == "cpu" and not torch.compiler.is_compiling():
        _check_range(name, token_ids, vocab_size, ignored, way_out)


def _check_range(name: str, token_ids: Tensor, vocab_size: int, ignored: int | None, way_out: str):
    wrong = (token_ids < 0) | (token_ids >= vocab_size)
    if ignored is not None:
        wrong &= token_ids != ignored
    if wrong.any():
        row, column = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"{name} must lie in [0, {vocab_size}), got {token_ids[row, column].item()} at row "
            f"{row}, position {column}. {way_out}"
        )


def check_vectors(name: str, vectors: Tensor, width: int, width_name: str):
    """Check that a sequence of vectors has the axes and the width that a layer reads.

    Args:
        name: argument to name in the message.
        vectors: (B, T, width).
        width: expected last axis.
        width_name: option of the config that sets it.

    Raises:
        ValueError: if the shape differs, or there is no row or no position.
    """
    if vectors.dim() != 3 or 0 in vectors.shape or vectors.shape[-1] != width:
        raise ValueError(
            f"{name} must have the shape (batch, length, {width}) with at least one row and one "
            f"position, got {tuple(vectors.shape)}. The width is {width_name} of the config."
        )


def check_same_rows(name: str, num_rows: int, of: str, expected: int):
    """Check that what belongs together has one row for each row.

    Args:
        name: argument to name in the message.
        num_rows: its rows.
        of: the argument that it goes with.
        expected: rows of that.

    Raises:
        ValueError: if the numbers differ.
    """
    if num_rows != expected:
        raise ValueError(
            f"{name} must have as many rows as {of}, {expected}, got {num_rows}. Pass one row of "
            f"each for every example."
        )


def count_unread(input_ids: Tensor, num_read: int | Tensor) -> int:
    """Return how many target tokens are new where generate() continues from a cache.

    Args:
        input_ids: the whole target so far, (B, K).
        num_read: tokens that the cache has read.

    Returns:
        Tokens behind them.

    Raises:
        ValueError: if there are none.
    """
    num_new = input_ids.shape[1] - int(num_read)
    if num_new < 1:
        raise ValueError(
            f"decoder_input_ids must hold the tokens that past_key_values has read "
            f"({int(num_read)}) and at least one more, got {input_ids.shape[1]}. Pass the whole "
            f"target so far."
        )
    return num_new


def check_mask(name: str, mask: Tensor, shape: Sequence[int], of: str):
    """Check that a padding mask fits what it masks.

    Args:
        name: argument to name in the message.
        mask: 1 at real tokens, (B, T).
        shape: (B, T) of what it masks.
        of: the argument that has this shape.

    Raises:
        ValueError: if the shapes differ.
    """
    if tuple(mask.shape) != tuple(shape):
        raise ValueError(
            f"{name} must have the shape of {of}, {tuple(shape)}, got {tuple(mask.shape)}. "
            "Pass the mask the tokenizer returned."
        )
