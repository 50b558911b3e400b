"""What every training script shares about models: which one is meant, loading it, making it."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list
from huggingface_hub.errors import StrictDataclassError
from script_arguments import check_names, read_overrides, typed_overrides
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    TrainingArguments,
)


@dataclass
class ModelArguments:
    """Which model is trained: a checkpoint, or a fresh model of a registered type."""

    model_name_or_path: str | None = field(
        default=None, metadata={"help": "Checkpoint (folder or Hub name) to continue from."}
    )
    model_type: str | None = field(
        default=None,
        metadata={
            "help": "Train a fresh model of this type, one of this package (its names begin with "
            "seqmodels_) or of transformers."
        },
    )
    config_overrides: list[str] | None = field(
        default=None,
        metadata={
            "action": "extend",
            "help": "Fields of the fresh model's configuration: name=value,name=value (in a "
            "recipe: a mapping). Pairs on the command line are added to those of the recipe and "
            "win over them. Fine-tuning scripts also change those of a checkpoint.",
        },
    )
    tokenizer_name: str | None = field(
        default=None,
        metadata={
            "help": "Ready tokenizer (folder or Hub name); default: the checkpoint's, or trained "
            "in the run."
        },
    )
    cache_dir: str | None = field(
        default=None, metadata={"help": "Where files from the Hub are kept."}
    )
    model_revision: str = field(
        default="main", metadata={"help": "Branch, tag or commit of the checkpoint on the Hub."}
    )
    token: str | None = field(default=None, metadata={"help": "Access token for the Hub."})
    trust_remote_code: bool = field(
        default=False,
        metadata={"help": "Allow a checkpoint to bring its own code; runs code you have not read."},
    )


def check_model_choice(
    options: ModelArguments,
    head_classes: Mapping[type, Any],
    kind: str,
    *,
    may_change_checkpoint: bool = False,
) -> None:
    """Check before any file is read that one model is named and that it is of the right kind.

    Args:
        options: the model options.
        head_classes: {config class: model class} of the Auto class that the script trains.
        kind: how an error calls these models, such as "a registered encoder-decoder".
        may_change_checkpoint: whether config_overrides may go with a checkpoint, too.

    Raises:
        ValueError: if not exactly one of model_name_or_path and model_type is given, if the type is
            unknown or not of that kind, or if config_overrides do not fit it.
    """
    if bool(options.model_name_or_path) == bool(options.model_type):
        raise ValueError(
            "give exactly one of model_name_or_path (continue from a checkpoint) and model_type "
            f"(a fresh model), got {options.model_name_or_path!r} and {options.model_type!r}."
        )
    overrides = read_overrides(options.config_overrides)
    if options.model_name_or_path:
        if overrides and not may_change_checkpoint:
            raise ValueError(
                "config_overrides describe a fresh model, but "
                f"model_name_or_path={options.model_name_or_path!r} brings its own configuration: "
                f"got {', '.join(overrides)}. Leave them out or use model_type."
            )
        return
    types = sorted(
        key for key, config_class in CONFIG_MAPPING.items() if config_class in head_classes
    )
    check_names([options.model_type], types, f"model_type must be {kind}")
    typed_overrides(CONFIG_MAPPING[options.model_type], overrides)


def make_config(model_options: ModelArguments, defaults: Mapping[str, Any]) -> PreTrainedConfig:
    """Make the configuration of a fresh model.

    Args:
        model_options: model_type and config_overrides, which win over everything else.
        defaults: values by field name; those of fields that the configuration lacks are left out.

    Returns:
        The configuration.

    Raises:
        ValueError: if the configuration refuses a value or a combination.
    """
    config_class = CONFIG_MAPPING[model_options.model_type]
    fields = {field.name for field in dataclasses.fields(config_class)}
    values = {name: value for name, value in defaults.items() if name in fields}
    values |= typed_overrides(config_class, read_overrides(model_options.config_overrides))
    try:
        return AutoConfig.for_model(model_options.model_type, **values)
    except (StrictDataclassError, ValueError, TypeError) as error:
        reason = error.__cause__ or error
        raise ValueError(
            f"config_overrides: {config_class.__name__} refuses them: {reason}"
        ) from error


def check_same_model(checkpoint: Path, config: PreTrainedConfig) -> None:
    """Refuse to resume a model with another configuration.

    Args:
        checkpoint: where the run resumes.
        config: that the options describe.

    Raises:
        ValueError: if a field differs.
    """
    stored = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    wanted = json.loads(config.to_json_string(use_diff=False))
    passing = (
        "architectures",
        "dtype",
        "use_cache",
        "transformers_version",
        "_name_or_path",
        "auto_map",
    )
    different = [
        f"{name} is {stored[name]!r} there and {wanted[name]!r} here"
        for name in stored.keys() & wanted.keys() - set(passing)
        if stored[name] != wanted[name]
    ]
    if stored.get("model_type") != config.model_type or different:
        raise ValueError(
            f"cannot resume from {str(checkpoint)!r}, its model is another one: "
            f"{'; '.join(sorted(different)) or stored.get('model_type')}. Give the options the run "
            "began with, another output_dir, or --overwrite_output_dir."
        )


def load_pretrained(auto_class: Any, name: str, options: ModelArguments, **more: Any) -> Any:
    """Load with the Hub options; whatever a damaged or missing checkpoint causes is one error.

    Args:
        auto_class: of transformers.
        name: folder or name on the Hub.
        options: say from which revision and with which token.
        **more: further arguments of `from_pretrained`.

    Returns:
        What the Auto class loads.

    Raises:
        ValueError: if it cannot be loaded.
    """
    try:
        return auto_class.from_pretrained(
            name,
            cache_dir=options.cache_dir,
            revision=options.model_revision,
            token=options.token,
            trust_remote_code=options.trust_remote_code,
            **more,
        )
    except (
        Exception
    ) as error:  # json, safetensors, tokenizers and the Hub each raise their own kind
        raise ValueError(
            f"{auto_class.__name__} cannot load {name!r}: {error} Check the path or name; if the "
            "files are damaged, fetch or save them again."
        ) from error


def check_vocabulary(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a model whose table does not hold every token of the tokenizer.

    Args:
        config: of the model.
        tokenizer: of the text.

    Raises:
        ValueError: if it does not.
    """
    size = config.get_text_config().vocab_size
    if size < len(tokenizer):
        raise ValueError(
            f"vocab_size of the model must hold all {len(tokenizer)} tokens of the tokenizer, got "
            f"{size}. Leave it out of config_overrides, or use the tokenizer that belongs to the "
            "checkpoint."
        )


def shared_by_processes(make: Callable[[], Any], args: TrainingArguments) -> Any:
    """Make something in the first process and give a copy to the others.

    Args:
        make: makes it.
        args: know the processes.

    Returns:
        The same thing in every process.

    Raises:
        ValueError: in every process, if the first one cannot make it.
    """
    if args.world_size == 1:
        return make()
    box: list[Any] = [None, None]
    if args.process_index == 0:
        try:
            box[0] = make()
        except ValueError as error:
            box[1] = error
    broadcast_object_list(box)
    if box[1] is not None:
        raise box[1]
    return box[0]


def refuse_tokenizer_training(name: str, options: Any, training_options: Sequence[str]) -> None:
    """Refuse options of tokenizer training for a tokenizer that is ready.

    Args:
        name: where the tokenizer comes from.
        options: the data options.
        training_options: names of those that describe a tokenizer to train.

    Raises:
        ValueError: if one of those options is not at its default.
    """
    defaults = type(options)()
    described = [
        option
        for option in training_options
        if getattr(options, option) != getattr(defaults, option)
    ]
    if described:
        raise ValueError(
            f"the tokenizer comes from {name!r} as it is, so {', '.join(described)} cannot be "
            "honoured. Leave out one of the two."
        )
