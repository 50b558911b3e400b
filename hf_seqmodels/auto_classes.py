"""THE table: which class answers to which Auto class, for every model family of the package.

One row per family. The row drives what `import hf_seqmodels` registers, the `auto_map` of a
checkpoint on the Hub, and the contract tests, which run once for every row.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForNextSentencePrediction,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTextEncoding,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_seqmodels.models.configuration_decoder_lm import DecoderLMConfig
from hf_seqmodels.models.configuration_rnn_lm import RnnLMConfig
from hf_seqmodels.models.configuration_rnn_seq2seq import RnnSeq2SeqConfig
from hf_seqmodels.models.configuration_text_encoder import TextEncoderConfig
from hf_seqmodels.models.configuration_transformer_seq2seq import TransformerSeq2SeqConfig
from hf_seqmodels.models.modeling_decoder_lm import (
    DecoderLMForCausalLM,
    DecoderLMForSequenceClassification,
    DecoderLMForTokenClassification,
    DecoderLMModel,
)
from hf_seqmodels.models.modeling_rnn_lm import RnnLMForCausalLM, RnnLMModel
from hf_seqmodels.models.modeling_rnn_seq2seq import (
    RnnSeq2SeqForConditionalGeneration,
    RnnSeq2SeqModel,
)
from hf_seqmodels.models.modeling_text_encoder import (
    TextEncoderForMaskedLM,
    TextEncoderForMultipleChoice,
    TextEncoderForNextSentencePrediction,
    TextEncoderForPreTraining,
    TextEncoderForQuestionAnswering,
    TextEncoderForSequenceClassification,
    TextEncoderForTokenClassification,
    TextEncoderModel,
)
from hf_seqmodels.models.modeling_transformer_seq2seq import (
    TransformerSeq2SeqForConditionalGeneration,
    TransformerSeq2SeqModel,
)
from hf_seqmodels.models.tokenization_seq2seq import Seq2SeqTokenizer
from hf_seqmodels.pipeline_tasks import register_pipelines

CONTRACT = {
    "round_trip": "config and weights come back from disk as they were, tied weights tied",
    "padding": "padding never changes a real position, on the left or on the right",
    "batch": "a row gives the same numbers alone and in a batch; no later token leaks in",
    "cache": "cached and uncached logits agree, step by step and after a beam reorder",
    "loss": "the loss is a plain loop over the targets, -100 skipped, num_items_in_batch honoured",
    "gradients": "every parameter gets a finite gradient, also checkpointed; bfloat16 runs",
    "training": "a seeded run repeats its stored losses; resuming equals never stopping",
    "fast_form": "the fast form equals the reference form, values and gradients",
    "conformance": "the test suites of transformers find no applicable failure",
}


@dataclass(frozen=True)
class Family:
    """One row of the table: a model family and what loads it.

    Args:
        config_class: settings of the family; its `model_type` names the family in checkpoints.
        model_classes: {Auto class: model class that it loads for this config}.
        tokenizer_class: tokenizer of this package that AutoTokenizer is to know by its name; None
            where those of transformers serve.
        pipelines: {task of `pipeline()`: ("module.Class" in models/, Auto class of the models that
            it takes)}.
        unkept_promises: {line of CONTRACT that the family cannot keep: the reason}.

    Raises:
        ValueError: if `unkept_promises` names a line that CONTRACT does not have, or no reason.
    """

    config_class: type[PreTrainedConfig]
    model_classes: Mapping[type[Any], type[PreTrainedModel]]
    tokenizer_class: type[PreTrainedTokenizerBase] | None = None
    pipelines: Mapping[str, tuple[str, type[Any]]] = field(default_factory=dict)
    unkept_promises: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self):
        for line, reason in self.unkept_promises.items():
            if line not in CONTRACT or not reason.strip():
                raise ValueError(
                    f"unkept_promises maps a line of CONTRACT ({', '.join(CONTRACT)}) to a "
                    f"reason, got {line!r}: {reason!r}. Name one of these lines and say why."
                )

    @property
    def model_type(self) -> str:
        """Name of the family in config.json."""
        return self.config_class.model_type

    @property
    def auto_map(self) -> dict[str, str]:
        """{Auto class name: "module.Class"}, complete, as config.json holds it on the Hub."""
        classes = {AutoConfig: self.config_class, **self.model_classes}
        return {
            auto_class.__name__: f"{loaded.__module__.rpartition('.')[2]}.{loaded.__name__}"
            for auto_class, loaded in classes.items()
        }

    @property
    def code_entries(self) -> dict[str, Any]:
        """What config.json says of the code beside it: `auto_map`, `custom_pipelines` if any."""
        pipelines = {
            task: {"impl": reference, "pt": [auto_class.__name__]}
            for task, (reference, auto_class) in self.pipelines.items()
        }
        return {"auto_map": self.auto_map} | ({"custom_pipelines": pipelines} if pipelines else {})


class InstalledPipelines:
    """`custom_pipelines` of a config whose tasks the package itself brings.

    `pipeline()` reads this attribute first and then runs code of the checkpoint only, if it may; a
    config of installed classes therefore forgets the tasks that are installed with them.

    Args:
        tasks: names of the installed tasks.
    """

    def __init__(self, tasks: Iterable[str]):
        self.tasks = frozenset(tasks)

    def __get__(self, config: PreTrainedConfig | None, owner: type | None = None) -> dict[str, Any]:
        return {} if config is None else vars(config).get("custom_pipelines", {})

    def __set__(self, config: PreTrainedConfig, pipelines: Mapping[str, Any] | None):
        found = dict(pipelines or {})
        others = {task: found[task] for task in found if task not in self.tasks}
        vars(config).pop("custom_pipelines", None)
        if others:
            vars(config)["custom_pipelines"] = others


SEQ2SEQ_PIPELINES = {
    "seq2seq-generation": (
        "pipeline_seq2seq_generation.Seq2SeqGenerationPipeline",
        AutoModelForSeq2SeqLM,
    )
}
FAMILIES = (
    Family(
        config_class=RnnSeq2SeqConfig,
        model_classes={
            AutoModel: RnnSeq2SeqModel,
            AutoModelForSeq2SeqLM: RnnSeq2SeqForConditionalGeneration,
        },
        tokenizer_class=Seq2SeqTokenizer,
        pipelines=SEQ2SEQ_PIPELINES,
    ),
    Family(
        config_class=TransformerSeq2SeqConfig,
        model_classes={
            AutoModel: TransformerSeq2SeqModel,
            AutoModelForSeq2SeqLM: TransformerSeq2SeqForConditionalGeneration,
        },
        tokenizer_class=Seq2SeqTokenizer,
        pipelines=SEQ2SEQ_PIPELINES,
    ),
    Family(
        config_class=DecoderLMConfig,
        model_classes={
            AutoModel: DecoderLMModel,
            AutoModelForCausalLM: DecoderLMForCausalLM,
            AutoModelForSequenceClassification: DecoderLMForSequenceClassification,
            AutoModelForTokenClassification: DecoderLMForTokenClassification,
        },
    ),
    Family(
        config_class=RnnLMConfig,
        model_classes={AutoModel: RnnLMModel, AutoModelForCausalLM: RnnLMForCausalLM},
    ),
    Family(
        config_class=TextEncoderConfig,
        model_classes={
            AutoModel: TextEncoderModel,
            AutoModelForTextEncoding: TextEncoderModel,
            AutoModelForPreTraining: TextEncoderForPreTraining,
            AutoModelForMaskedLM: TextEncoderForMaskedLM,
            AutoModelForNextSentencePrediction: TextEncoderForNextSentencePrediction,
            AutoModelForSequenceClassification: TextEncoderForSequenceClassification,
            AutoModelForMultipleChoice: TextEncoderForMultipleChoice,
            AutoModelForTokenClassification: TextEncoderForTokenClassification,
            AutoModelForQuestionAnswering: TextEncoderForQuestionAnswering,
        },
        unkept_promises={"cache": "an encoder reads each row at once and keeps nothing"},
    ),
)


def register() -> None:
    """Make Auto classes and `pipeline()` know every family; calling it again changes nothing.

    Raises:
        ValueError: if transformers itself has come to use one of our model types.
    """
    for family in FAMILIES:
        AutoConfig.register(family.model_type, family.config_class)
        for auto_class, model_class in family.model_classes.items():
            auto_class.register(family.config_class, model_class)
            model_class.code_entries = family.code_entries  # pyright: ignore[reportAttributeAccessIssue]
        pipelines = InstalledPipelines(family.pipelines)
        family.config_class.custom_pipelines = pipelines  # pyright: ignore[reportAttributeAccessIssue]
        if family.tokenizer_class is not None:
            AutoTokenizer.register(
                family.config_class, tokenizer_class=family.tokenizer_class, exist_ok=True
            )
    register_pipelines(family.pipelines for family in FAMILIES)


def auto_map_for(config: PreTrainedConfig | type[PreTrainedConfig]) -> dict[str, str]:
    """Return the full `auto_map` of a family, for a checkpoint that carries its own code.

    `register_for_auto_class` of transformers writes only the class that was saved, so that
    `AutoModel` cannot load what a model with a head has saved. This map names every class.

    Args:
        config: a config class of the table, or an instance of one.

    Returns:
        {Auto class name: "module.Class"}, AutoConfig first; a new dictionary each time.

    Raises:
        ValueError: if the config belongs to no family of this package.
    """
    config_class = config if isinstance(config, type) else type(config)
    for family in FAMILIES:
        if config_class is family.config_class:
            return family.auto_map
    known = ", ".join(family.config_class.__name__ for family in FAMILIES)
    raise ValueError(
        f"auto_map_for needs a config of this package ({known}), got {config_class.__name__}. "
        "Pass the config of one of these families, or add a row to hf_seqmodels/auto_classes.py."
    )
