"""What `import hf_seqmodels` costs over the part of transformers that any model needs.

Each measurement is a fresh process; the best of several is the one least disturbed by other work.
Promise: at most 0.3 seconds more. Run: python benchmarks/import_time.py
"""

import subprocess
import sys

REPEATS = 5
MEASUREMENT = """
import time
start = time.perf_counter()
from transformers import GenerationMixin, PreTrainedModel
middle = time.perf_counter()
import hf_seqmodels
print(middle - start, time.perf_counter() - middle)
"""


def measure_once() -> tuple[float, float]:
    """Return the seconds for transformers' part and for ours on top, in a fresh process."""
    finished = subprocess.run(
        [sys.executable, "-c", MEASUREMENT], check=True, capture_output=True, text=True
    )
    transformers_seconds, package_seconds = map(float, finished.stdout.split())
    return transformers_seconds, package_seconds


def main() -> None:
    """Print the best of the measurements."""
    transformers_seconds, package_seconds = zip(
        *(measure_once() for _ in range(REPEATS)), strict=True
    )
    print(f"PreTrainedModel, GenerationMixin  {min(transformers_seconds):6.3f} s")
    print(f"hf_seqmodels on top               {min(package_seconds):6.3f} s")


if __name__ == "__main__":
    main()
