"""Models of transformers as models of this package, and back, with the same numbers.

from transformers import AutoModelForCausalLM
from hf_seqmodels.conversion import decoder_lm_from_gpt2, gpt2_from_decoder_lm

model = decoder_lm_from_gpt2(AutoModelForCausalLM.from_pretrained("my-gpt2"))
gpt2_from_decoder_lm(model).save_pretrained("my-gpt2-again")

For each pair of families there is a function for models, one for configs and one for state dicts,
both ways.
"""

from typing import TYPE_CHECKING

from hf_seqmodels.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from hf_seqmodels.conversion.gpt2 import (
        decoder_lm_config_from_gpt2,
        decoder_lm_from_gpt2,
        decoder_lm_state_from_gpt2,
        gpt2_config_from_decoder_lm,
        gpt2_from_decoder_lm,
        gpt2_state_from_decoder_lm,
    )

__all__ = [
    "decoder_lm_config_from_gpt2",
    "decoder_lm_from_gpt2",
    "decoder_lm_state_from_gpt2",
    "gpt2_config_from_decoder_lm",
    "gpt2_from_decoder_lm",
    "gpt2_state_from_decoder_lm",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "decoder_lm_config_from_gpt2": "gpt2",
        "decoder_lm_from_gpt2": "gpt2",
        "decoder_lm_state_from_gpt2": "gpt2",
        "gpt2_config_from_decoder_lm": "gpt2",
        "gpt2_from_decoder_lm": "gpt2",
        "gpt2_state_from_decoder_lm": "gpt2",
    },
)
