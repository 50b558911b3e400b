"""Models and the trainer of run_mlm.py."""

import inspect
from typing import Any

import torch.nn.functional as F
from batch_trainer import BatchSamplerMixin
from finetune_model import reads_token_types
from mlm_arguments import DataTrainingArguments
from script_models import ModelArguments, check_vocabulary, load_pretrained, make_config
from torch import Tensor
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
)

from hf_seqmodels.evaluation.model_inputs import longest_input

DEFAULT_MAX_LENGTH = 128
USUAL_POSITIONS = 512  # of a fresh model
OUTPUTS = ("prediction_logits", "logits")  # scores of tokens: with a next-sentence head, without


def load_or_make_model(
    model_options: ModelArguments,
    options: DataTrainingArguments,
    tokenizer: PreTrainedTokenizerBase,
) -> PreTrainedModel:
    """Load the checkpoint that the options name, or make a fresh model for the tokenizer.

    Args:
        model_options: the model options, already checked.
        options: next_sentence asks for that head; max_seq_length is the number of positions of a
            fresh model that needs some.
        tokenizer: gives a fresh model its vocabulary size and special ids; loses the kinds of
            tokens that the model cannot read.

    Returns:
        The model.

    Raises:
        ValueError: if the checkpoint is damaged, vocabulary and model do not fit, or there is no
            mask token or no head for next sentences.
    """
    if tokenizer.mask_token is None:
        raise ValueError(
            f"a masked language model needs a mask token, but {type(tokenizer).__name__} from "
            f"{tokenizer.name_or_path!r} has none. Leave tokenizer_name out to train one."
        )
    auto_class: Any = AutoModelForPreTraining if options.next_sentence else AutoModelForMaskedLM
    if model_options.model_name_or_path:
        model = load_pretrained(auto_class, model_options.model_name_or_path, model_options)
    else:
        config = make_config(model_options, fresh_values(options, tokenizer))
        check_vocabulary(config, tokenizer)
        model = auto_class.from_config(config)
    check_vocabulary(model.config, tokenizer)
    if options.next_sentence and not predicts_next_sentence(model):
        raise ValueError(
            f"next_sentence needs a model with a head for it and token types, but "
            f"{type(model).__name__} has not both. Leave it out, or use a model such as bert or "
            "seqmodels_text_encoder."
        )
    if not reads_token_types(model) and "token_type_ids" in tokenizer.model_input_names:
        names = [name for name in tokenizer.model_input_names if name != "token_type_ids"]
        tokenizer.model_input_names = names
    return model


def fresh_values(
    options: DataTrainingArguments, tokenizer: PreTrainedTokenizerBase
) -> dict[str, Any]:
    """Return what the configuration of a fresh model is to be, as far as the text says.

    Args:
        options: max_seq_length.
        tokenizer: of the text.

    Returns:
        Values by field.
    """
    values = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    if options.max_seq_length is not None and options.max_seq_length > USUAL_POSITIONS:
        values["max_position_embeddings"] = options.max_seq_length
    return values


def predicts_next_sentence(model: PreTrainedModel) -> bool:
    """Tell whether a model can be trained on pairs of texts.

    Args:
        model: any model.

    Returns:
        True for a head such as BertForPreTraining.
    """
    takes_label = "next_sentence_label" in inspect.signature(model.forward).parameters
    return takes_label and reads_token_types(model)


def settle_max_length(
    options: DataTrainingArguments, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> int:
    """Return the number of tokens in a row.

    Args:
        options: max_seq_length.
        model: to train.
        tokenizer: of the model.

    Returns:
        Tokens.

    Raises:
        ValueError: if more are asked for than the model can take.
    """
    limit = longest_input(model, tokenizer)
    wanted = options.max_seq_length
    if wanted is not None and limit is not None and wanted > limit:
        raise ValueError(
            f"max_seq_length must not exceed the {limit} tokens that the model can take, got "
            f"{wanted}. Pass --max_seq_length {limit}, or a larger max_position_embeddings in "
            "--config_overrides for a fresh model."
        )
    return wanted or min(DEFAULT_MAX_LENGTH, limit or DEFAULT_MAX_LENGTH)


class MaskedLMTrainer(BatchSamplerMixin, Trainer):
    """Trains on a loss that is a mean over the masked tokens of a whole step, whatever the model.

    Models of transformers average over their own batch and take any keyword, so that Trainer
    neither tells them how many tokens an accumulated step has nor divides by the number of batches.
    Theirs is computed here; models that take `num_items_in_batch` compute it themselves.

    Args:
        model: to train.
        **kwargs: passed on to the trainer.
    """

    def __init__(self, *, model: PreTrainedModel, **kwargs: Any):
        counts_itself = "num_items_in_batch" in inspect.signature(model.forward).parameters
        self.next_labels: Tensor | None = None
        super().__init__(
            model=model, compute_loss_func=None if counts_itself else self._loss, **kwargs
        )

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Compute the loss of a batch; see `Trainer`."""
        if self.compute_loss_func is not None:
            self.next_labels = inputs.pop("next_sentence_label", None)
        return super().compute_loss(model, inputs, *args, **kwargs)

    def _loss(self, outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        logits = next(outputs[name] for name in OUTPUTS if name in outputs)  # (B, T, V)
        is_label = labels != -100
        total = F.cross_entropy(logits[is_label].float(), labels[is_label], reduction="sum")
        count = is_label.sum() if num_items_in_batch is None else num_items_in_batch
        loss = total / count
        if self.next_labels is not None:  # the mean over pairs, each batch by its share of tokens
            scores = outputs["seq_relationship_logits"].float()
            loss = loss + F.cross_entropy(scores, self.next_labels) * is_label.sum() / count
        return loss
