"""Matrix products by the faster of two libraries."""

import functools
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor


@functools.cache
def prefers_onednn() -> bool:
    """Say whether float32 products on this machine's CPU are faster by oneDNN than by MKL.

    torch takes MKL, which takes a slow path on processors of AMD. The answer rests on the maker
    alone and on no measurement, so that the same machine always rounds in the same way.
    """
    try:
        is_amd = "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not Linux
        return False
    has_product = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return is_amd and torch.backends.mkldnn.is_available() and has_product


def product(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `F.linear(inputs, weight, bias)`, without a gradient: for backward passes by hand.

    Args:
        inputs: (N, I), with any strides.
        weight: (O, I), with any strides.
        bias: (O); None is zero.

    Returns:
        (N, O).
    """
    if inputs.device.type == "cpu" and inputs.dtype == torch.float32 and prefers_onednn():
        return torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")
    return F.linear(inputs, weight, bias)
