"""One TestCase of transformers' suites for one description of a model family."""

import copy
import unittest
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from unittest import mock

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from hf_seqmodels.auto_classes import FAMILIES, Family
from permanent_skips import skip_of
from staged_suites import Suites

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Description:
    """What the suites must know of a family; they run for every class of its row in the table.

    Args:
        name: of the TestCase, without "Test" behind it.
        model_type: of a row in hf_seqmodels/auto_classes.py.
        options: of a tiny config.
        sizes: attributes of the config that ConfigTester reads and sets.
        trained_by: Auto class of the head that runs in several processes.
        reading_class: class of the head that takes ids and nothing else, where the head itself does
            not.
        attributes: of the TestCase; what they mean stands in the suites.
        trained_options: options that differ where FSDP's training is compared step by step.
        holes: whether padding may stand between the tokens of a row.
        extra_labels: labels of a head that the suites do not know: {class name: function of the
            numbers of rows and tokens}.
    """

    name: str
    model_type: str
    options: Mapping[str, Any]
    sizes: tuple[str, ...] = ("hidden_size", "num_hidden_layers")
    trained_by: str = "AutoModelForCausalLM"
    reading_class: type[PreTrainedModel] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    trained_options: Mapping[str, Any] = field(default_factory=dict)
    holes: bool = True
    extra_labels: Mapping[str, Callable[[int, int], Inputs]] = field(default_factory=dict)

    @cached_property
    def family(self) -> Family:
        """Row of the table."""
        return next(family for family in FAMILIES if family.model_type == self.model_type)

    @cached_property
    def model_classes(self) -> tuple[type[PreTrainedModel], ...]:
        """Every class of the row, each once."""
        return tuple(dict.fromkeys(self.family.model_classes.values()))

    @property
    def trained_class(self) -> type[PreTrainedModel] | None:
        """Class that `trained_by` loads, if the family has it."""
        return self.family.model_classes.get(getattr(transformers, self.trained_by))

    def config(self) -> PreTrainedConfig:
        """Return a fresh config."""
        return self.family.config_class(**copy.deepcopy(dict(self.options)))


class ModelTester:
    """What the suites call to get a config and inputs.

    Args:
        description: of the family.
        suites: the modules of transformers' tests.
    """

    # seven rows: the comparison of attention implementations fills smaller batches with noise
    batch_size, seq_length, num_labels, num_choices, type_sequence_label_size = 7, 7, 3, 4, 2
    encoder_seq_length = decoder_seq_length = key_length = seq_length
    is_training = True

    def __init__(self, description: Description, suites: Suites):
        self.description, self.suites = description, suites
        config = description.config()
        for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"):
            setattr(self, name, getattr(config, name, None))
        self.pad_token_id = config.pad_token_id
        self.base_model_class = description.model_classes[0]
        head = description.trained_class
        is_decoder = description.trained_by == "AutoModelForCausalLM"
        self.causal_lm_class = head if is_decoder else None
        self.conditional_generation_class = None if is_decoder else head

    def get_config(self) -> PreTrainedConfig:
        """Return a fresh config."""
        return self.description.config()

    def prepare_config_and_inputs_for_common(self) -> tuple[PreTrainedConfig, Inputs]:
        """Return a config, and ids and masks for every class."""
        config = self.get_config()
        return config, self.inputs(config)

    def prepare_config_and_inputs_for_model_class(
        self, model_class: type[PreTrainedModel]
    ) -> tuple[PreTrainedConfig, Inputs]:
        """Return a config and inputs for one class: those for every class."""
        return self.prepare_config_and_inputs_for_common()

    def inputs(self, config: PreTrainedConfig) -> Inputs:
        """Draw ids without special tokens among them, and masks."""
        size = (self.batch_size, self.seq_length)
        special = (config.pad_token_id, config.bos_token_id, config.eos_token_id)
        first = 1 + max(token for token in special if token is not None)

        def draw_ids() -> torch.Tensor:
            return first + self.suites.modeling.ids_tensor(size, config.vocab_size - first)

        if config.is_encoder_decoder:
            # a target without padding: generate() continues from it
            target = {"decoder_input_ids": draw_ids(), "decoder_attention_mask": torch.ones(size)}
            return {"input_ids": draw_ids(), "attention_mask": right_padding(*size), **target}
        if self.description.holes:
            return {
                "input_ids": draw_ids(),
                "attention_mask": self.suites.modeling.random_attention_mask(size),
            }
        return {"input_ids": draw_ids(), "attention_mask": right_padding(*size)}


def right_padding(num_rows: int, num_tokens: int) -> torch.Tensor:
    """Return 1 at tokens and 0 at padding, two positions of it behind every other row: (B, S)."""
    lengths = num_tokens - 2 * (torch.arange(num_rows) % 2)
    return (torch.arange(num_tokens) < lengths[:, None]).long()


def register_names(family: Family, suites: Suites) -> None:
    """Tell the suites the names of our classes, which they look up in tables that
    `AutoModel.register` does not touch; only what the suites see of the tables changes."""
    for auto_class, model_class in family.model_classes.items():
        mapping = auto_class._model_mapping
        (table,) = (name for name, found in vars(modeling_auto).items() if found is mapping)
        for module in suites.all:
            names = getattr(module, f"{table}_NAMES", None)
            if names is not None:
                extended = type(names)(names)
                extended[family.model_type] = model_class.__name__
                setattr(module, f"{table}_NAMES", extended)


def build_suite(description: Description, suites: Suites) -> type[unittest.TestCase]:
    """Return the TestCase of a description: every suite, and the skips of the table."""
    register_names(description.family, suites)

    def set_up(test):
        test.model_tester = ModelTester(description, suites)
        test.config_tester = suites.configuration.ConfigTester(
            test,
            config_class=description.family.config_class,
            common_properties=list(description.sizes),
            **description.options,
        )
        auto_class = getattr(transformers, description.trained_by)
        for patch in (
            mock.patch.object(suites.fsdp, "AutoModelForCausalLM", auto_class),
            mock.patch.object(suites.ranks, "auto_class", description.trained_by),
        ):
            patch.start()
            test.addCleanup(patch.stop)

    def prepare_for_class(test, inputs, model_class, return_labels=False):
        prepared = suites.modeling.ModelTesterMixin._prepare_for_class(
            test, inputs, model_class, return_labels=return_labels
        )
        labels = description.extra_labels.get(model_class.__name__)
        if return_labels and labels is not None:
            prepared |= labels(test.model_tester.batch_size, test.model_tester.seq_length)
        return prepared

    def parallel_class(test):
        reads_alone = "forward" in test._testMethodName and description.reading_class is not None
        return description.reading_class if reads_alone else description.trained_class

    def tiny_config(test):
        config_class, options = suites.fsdp.FSDPTesterMixin._get_tiny_config(test)
        return config_class, {**options, **description.trained_options}

    body = {
        "setUp": set_up,
        "_get_tiny_config": tiny_config,
        "_get_tp_model_class": parallel_class,
        "test_config": lambda test: test.config_tester.run_common_tests(),
        "_prepare_for_class": prepare_for_class,
        "model_tester": None,
        "model_type": description.model_type,
        "all_model_classes": description.model_classes,
        "is_encoder_decoder": description.config().is_encoder_decoder,
        "test_can_init_all_missing_weights_before_2023": True,
        **description.attributes,
    }
    bases: list[type] = [suites.modeling.ModelTesterMixin]
    if any(model_class.can_generate() for model_class in description.model_classes):
        bases.append(suites.generation.GenerationTesterMixin)
    bases += [
        suites.training.TrainingTesterMixin,
        suites.tensor_parallel.TensorParallelTesterMixin,
        suites.fsdp.FSDPTesterMixin,
        unittest.TestCase,
    ]
    suite = type(f"{description.name}Test", tuple(bases), body)
    for name in test_names(suite):
        skip = skip_of(name, description.model_type)
        if skip is not None and skip.is_ours:
            setattr(suite, name, unittest.skip(skip.reason)(getattr(suite, name)))
    return suite


def test_names(suite: type[unittest.TestCase]) -> list[str]:
    """Return the names of the tests of a TestCase."""
    return unittest.defaultTestLoader.getTestCaseNames(suite)


test_names.__test__ = False  # no test of pytest
