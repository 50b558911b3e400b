"""What every test stands on: no network, one thread, fresh caches, fixed seeds."""

import atexit
import os
import random
import shutil
import tempfile

# Before the first import of torch or of a Hugging Face library: each reads these once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="hf-seqmodels-tests-")
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)

import numpy  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fixed_seeds():
    """Start every test from the same random state, whatever ran before it."""
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
