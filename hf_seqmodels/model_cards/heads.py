"""What a model is for, by the Auto class that loads it, and the code that shows it."""

from dataclasses import dataclass

import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.pipelines import PIPELINE_REGISTRY

from hf_seqmodels.auto_classes import FAMILIES
from hf_seqmodels.models.pipeline_seq2seq_generation import copies_words

PACKAGE = "hf_seqmodels"
IMPORT_LINE = f"import {PACKAGE}  # registers the model and tokenizer classes"
SAMPLE_TEXT = "An example."
CHOICES = ("one answer", "another answer")
QUESTION = "What is it?"
NEXT_TEXT = "Another one."
PAIRED = ("AutoModelForNextSentencePrediction", "AutoModelForPreTraining")
NEW_TOKENS = 20


@dataclass(frozen=True)
class Head:
    """One kind of model.

    Args:
        auto_class: name of the Auto class that loads it.
        mapping: name of the table in transformers from configs to such models.
        task: name for `pipeline()`, where there is one.
        purpose: what the model does, a sentence.
        pipeline_tag: under which the Hub lists such models; None where it has no task for them.
        writes: whether the model writes text with generate().
    """

    auto_class: str
    mapping: str
    task: str
    purpose: str
    pipeline_tag: str | None = None
    writes: bool = False

    def loads(self, model: PreTrainedModel) -> bool:
        """Tell whether the Auto class makes models of this class.

        Args:
            model: the model.

        Returns:
            True if it does.
        """
        table = getattr(transformers, self.mapping)
        if type(model.config) not in table:
            return False
        loaded = table[type(model.config)]
        return type(model) in (loaded if isinstance(loaded, tuple) else (loaded,))


HEADS = (
    Head(
        "AutoModelForSeq2SeqLM",
        "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
        "seq2seq-generation",
        "It reads a source text and writes a target text.",
        writes=True,  # the Hub has dropped its task for any text to any text
    ),
    Head(
        "AutoModelForCausalLM",
        "MODEL_FOR_CAUSAL_LM_MAPPING",
        "text-generation",
        "It continues a text and says how probable a text is.",
        pipeline_tag="text-generation",
        writes=True,
    ),
    Head(
        "AutoModelForMaskedLM",
        "MODEL_FOR_MASKED_LM_MAPPING",
        "fill-mask",
        "It fills in masked tokens of a text.",
        pipeline_tag="fill-mask",
    ),
    Head(
        "AutoModelForSequenceClassification",
        "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
        "text-classification",
        "It sorts texts into classes.",
        pipeline_tag="text-classification",
    ),
    Head(
        "AutoModelForTokenClassification",
        "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
        "token-classification",
        "It labels the tokens of a text.",
        pipeline_tag="token-classification",
    ),
    Head(
        "AutoModelForMultipleChoice",
        "MODEL_FOR_MULTIPLE_CHOICE_MAPPING",
        "multiple-choice",
        "It chooses one of several answers.",
        pipeline_tag="multiple-choice",
    ),
    Head(
        "AutoModelForQuestionAnswering",
        "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
        "question-answering",
        "It finds the answer to a question in a text.",
        pipeline_tag="question-answering",
    ),
    Head(
        "AutoModelForNextSentencePrediction",
        "MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING",
        "next-sentence-prediction",
        "It says whether one text follows another.",
    ),
    Head(
        "AutoModelForPreTraining",
        "MODEL_FOR_PRETRAINING_MAPPING",
        "pretraining",
        "It fills in masked tokens of a text and says whether one text follows another.",
    ),
    Head(
        "AutoModel",
        "MODEL_MAPPING",
        "feature-extraction",
        "It turns tokens into vectors and has no head on top.",
        pipeline_tag="feature-extraction",
    ),
)


def head_of(model: PreTrainedModel) -> Head:
    """Find what a model is for.

    Args:
        model: any model that an Auto class loads.

    Returns:
        The row of HEADS.

    Raises:
        ValueError: if no Auto class that the cards know loads models of this class.
    """
    for head in HEADS:
        if head.loads(model):
            return head
    raise ValueError(
        f"A card shows how to load a model with {', '.join(head.auto_class for head in HEADS)}, "
        f"but none of these loads {type(model).__name__} for {type(model.config).__name__}. "
        "Register the class with one of them, or write the card by hand."
    )


def is_ours(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> bool:
    """Tell whether loading takes `import hf_seqmodels` or code from beside the weights.

    Args:
        model: the model; its class may be that of the package or a copy beside the weights.
        tokenizer: the tokenizer, or None.

    Returns:
        True if the family or the tokenizer is of this package.
    """
    package = type(tokenizer).__module__.partition(".")[0]
    return is_of_our_family(model) or package == PACKAGE


def is_of_our_family(model: PreTrainedModel) -> bool:
    """Tell whether the package holds the code of a model.

    Args:
        model: the model.

    Returns:
        True for a row of FAMILIES.
    """
    return model.config.model_type in {family.model_type for family in FAMILIES}


@dataclass(frozen=True)
class Snippets:
    """The code of one card.

    Args:
        model: the model.
        tokenizer: of the model; None shows token ids instead of texts.
        head: what the model is for.
        place: name on the Hub or folder that the code loads.
        source: an input; None takes any text.
        result: what the model makes of the input; None says nothing of it.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    head: Head
    place: str
    source: str | None = None
    result: str | None = None

    @property
    def has_pipeline(self) -> bool:
        """Whether `pipeline()` knows the task and can run the model."""
        known = self.head.task in PIPELINE_REGISTRY.get_supported_tasks()
        if self.head.task == "fill-mask" and getattr(self.tokenizer, "mask_token", None) is None:
            return False
        return known and self.tokenizer is not None and not self._reads_start_token

    @property
    def needs_our_pipeline(self) -> bool:
        """Whether the task of `pipeline()` is one that this package brings."""
        return self.head.auto_class == "AutoModelForSeq2SeqLM"

    def auto_classes(self, *, first_line: str = "", remote_code: bool = False) -> str:
        """Write the code that loads with Auto classes and runs the model.

        Args:
            first_line: before all other lines.
            remote_code: whether it runs the code beside the weights.

        Returns:
            Lines of Python.
        """
        place = quoted(self.place) + (", trust_remote_code=True" if remote_code else "")
        names = [self.head.auto_class] + ["AutoTokenizer"] * (self.tokenizer is not None)
        lines = [first_line] if first_line else []
        if self.tokenizer is None or self._reads_start_token:
            lines.append("import torch")
        lines += [
            f"from transformers import {', '.join(names)}",
            "",
            f"model = {self.head.auto_class}.from_pretrained({place})",
        ]
        if self.tokenizer is not None:
            lines.append(f"tokenizer = AutoTokenizer.from_pretrained({place})")
            lines += self._encode()
        else:
            ids = self._some_ids()
            rows = [[ids, ids]] if self._chooses else [ids]
            lines.append(f'batch = {{"input_ids": torch.tensor({rows})}}  # token ids')
        return "\n".join([*lines, *self._use()])

    def pipeline(self, *, first_line: str = "", remote_code: bool = False) -> str:
        """Write the code that makes a pipeline and runs it.

        Args:
            first_line: before all other lines.
            remote_code: whether it runs the code beside the weights.

        Returns:
            Lines of Python.
        """
        more = ", trust_remote_code=True" if remote_code else ""
        settings = ""
        if self.head.task == "text-generation":  # left alone, it samples and writes 256 tokens
            settings = f", max_new_tokens={self._new_tokens()}, do_sample=False"
        lines = [first_line] if first_line else []
        lines += [
            "from transformers import pipeline",
            "",
            f'run = pipeline("{self.head.task}", model={quoted(self.place)}{more})',
            f"print(run({quoted(self.text)}{settings}))",
        ]
        if self.needs_our_pipeline and self.output is not None:
            lines.append(f"# {[{'generated_text': self.output}]}")
        return "\n".join(lines)

    @property
    def text(self) -> str:
        """The input of the code."""
        if self.source is not None:
            return self.source
        mask = getattr(self.tokenizer, "mask_token", None)
        return f"An {mask}." if self.head.task == "fill-mask" and mask else SAMPLE_TEXT

    @property
    def output(self) -> str | None:
        """What the code prints for sure; None if that is not known."""
        is_random = self.head.writes and self.model.generation_config.do_sample
        return None if is_random else self.result

    @property
    def _reads_start_token(self) -> bool:
        return self.head.auto_class == "AutoModel" and self.model.config.is_encoder_decoder

    @property
    def _chooses(self) -> bool:
        return self.head.auto_class == "AutoModelForMultipleChoice"

    def _encode(self) -> list[str]:
        """Write the lines that turn the input into a batch."""
        text = quoted(self.text)
        if self._chooses:
            return [
                f"pairs = [({text}, choice) for choice in ({CHOICES[0]!r}, {CHOICES[1]!r})]",
                'batch = tokenizer(pairs, padding=True, return_tensors="pt")',
                "batch = {name: values[None] for name, values in batch.items()}"
                "  # (1, choices, length)",
            ]
        if self.head.auto_class == "AutoModelForQuestionAnswering":
            return [f'batch = tokenizer([{QUESTION!r}], [{text}], return_tensors="pt")']
        if self.head.auto_class in PAIRED:
            return [f'batch = tokenizer([{text}], [{NEXT_TEXT!r}], return_tensors="pt")']
        return [f'batch = tokenizer([{text}], return_tensors="pt")']

    def _use(self) -> list[str]:
        if not self.head.writes:
            call = "model(**batch)"
            if self._reads_start_token:
                start = self.model.config.decoder_start_token_id
                call = f"model(**batch, decoder_input_ids=torch.tensor([[{start or 0}]]))"
            return [f"print({call}[0].shape)"]
        if self.tokenizer is None:
            return ["print(model.generate(**batch))"]
        line = "print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))"
        if copies_words(self.tokenizer):
            source = f"source=[{quoted(self.text)}]"
            line = line.replace("skip_special", f"{source}, skip_special")
        return [line] if self.output is None else [line, f"# {[self.output]}"]

    def _new_tokens(self) -> int:
        """Return how many tokens to write: a few, within the length that the model is made for."""
        assert self.tokenizer is not None  # there is no pipeline without
        longest = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        room = longest - len(self.tokenizer(self.text)["input_ids"]) if longest else NEW_TOKENS
        return max(1, min(NEW_TOKENS, room))

    def _some_ids(self) -> list[int]:
        """Return three ids from the end of the vocabulary, where no special tokens are."""
        size = self.model.config.get_text_config().vocab_size
        return [size - 1 - min(step, size - 1) for step in range(3)]


def quoted(text: str) -> str:
    """Write a text as a Python literal, in double quotes where it does not take more escapes.

    Args:
        text: any text.

    Returns:
        One line of code.
    """
    literal = repr(text)
    if literal.startswith("'") and '"' not in text:
        return f'"{literal[1:-1]}"'
    return literal
