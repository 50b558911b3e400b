"""Tiny models of every family and head, with tokenizers, to write cards for."""

from typing import Any

import torch
from transformers import AutoModelForTextEncoding

from family_grids import GRIDS
from hf_seqmodels.auto_classes import FAMILIES
from hf_seqmodels.data import Seq2SeqTokenizer, train_tokenizer

TEXTS = ["abc de", "An example.", "edc ba"]
# every family, with every Auto class that loads it, but a second one for the same model
HEADS = [
    (family.model_type, auto_class.__name__)
    for family in FAMILIES
    for auto_class in family.model_classes
    if auto_class is not AutoModelForTextEncoding
]


def make_carded(model_type: str, auto_class: str, **changes: Any) -> tuple[Any, Any]:
    """Return a tiny model, with changes to its config, and a tokenizer that fits it."""
    family = next(family for family in FAMILIES if family.model_type == model_type)
    grid = next(grid for grid in GRIDS if grid.model_type == model_type)
    has_two_sides = "decoder_vocab_size" in family.config_class.__dataclass_fields__
    tokenizer: Any = train_tokenizer(TEXTS, model="char", append_eos=has_two_sides)
    if auto_class == "AutoModelForMaskedLM":
        tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    options = {**grid.base, "vocab_size": len(tokenizer), "max_position_embeddings": 64}
    if has_two_sides:
        target = train_tokenizer([*TEXTS, "XYZ"], model="char")
        tokenizer = Seq2SeqTokenizer.from_pair(tokenizer, target)
        options["decoder_vocab_size"] = len(target)
    torch.manual_seed(2)
    (model_class,) = (
        loaded for known, loaded in family.model_classes.items() if known.__name__ == auto_class
    )
    model = model_class(family.config_class(**{**options, **changes})).eval()
    if model.can_generate():
        model.generation_config.max_new_tokens = 5
    return model, tokenizer


def written_by(model: Any, tokenizer: Any, source: str) -> str:
    """Return what a model writes, the way a user would get it."""
    batch = tokenizer([source], return_tensors="pt")
    return tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True)[0]
