"""What finished hypotheses are ranked by: log-probability, length and coverage.

Shapes: B batch, K beams, S source length.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from hf_seqmodels.models.pipeline_seq2seq_generation import length_divisor, log_coverage

LengthNormalization = Literal["power", "gnmt"]
LENGTH_NORMALIZATIONS = ("power", "gnmt")


@dataclass(frozen=True)
class Ranking:
    """The score of a finished hypothesis Y of a source X.

    s(Y, X) = log p(Y | X) / lp(Y) + cp(X, Y), with

    "power": lp(Y) = |Y| ^ a, as in generate()
    "gnmt":  lp(Y) = ((5 + |Y|) / (5 + 1)) ^ a
    cp(X, Y) = b sum_i log min(sum_j p_ij, 1)

    p_ij is the attention with which target token j was written, over source token i; the end token
    counts on both sides. Source: Wu et al. 2016, arXiv:1609.08144, section 7, equation 14. There
    a = 0.2 and b = 0.2 did best, with "gnmt".

    Args:
        length_penalty: exponent a; above 0 favours long outputs, 0 leaves their length alone.
        length_normalization: form of lp.
        coverage_penalty: weight b, at least 0; 0 leaves coverage alone.

    Raises:
        ValueError: if the form is unknown or the weight is negative.
    """

    length_penalty: float = 1.0
    length_normalization: LengthNormalization = "power"
    coverage_penalty: float = 0.0

    def __post_init__(self):
        if self.length_normalization not in LENGTH_NORMALIZATIONS:
            raise ValueError(
                f"length_normalization must be one of {', '.join(LENGTH_NORMALIZATIONS)}, got "
                f"{self.length_normalization!r}. generate() itself divides by a power of the "
                "length: 'power'."
            )
        if not self.coverage_penalty >= 0:
            raise ValueError(
                f"coverage_penalty must be at least 0, got {self.coverage_penalty}. "
                "Pass 0 to leave coverage alone."
            )

    def divisor(self, length: int) -> float:
        """Return lp(Y) of an output.

        Args:
            length: its tokens, the end token included.

        Returns:
            What its log-probability is divided by.
        """
        return length_divisor(length, self.length_penalty, self.length_normalization)

    def coverage(self, attention_sums: Tensor, source_mask: Tensor) -> Tensor:
        """Return cp(X, Y).

        Args:
            attention_sums: attention that each source token has received, summed over the target
                tokens, (..., S).
            source_mask: 1 = real source token, broadcastable to (..., S).

        Returns:
            The penalty, at most 0, (...).
        """
        return self.coverage_penalty * log_coverage(attention_sums, source_mask)
