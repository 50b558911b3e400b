"""The test suites of the installed transformers, as an importable package.

transformers does not install its tests, but the source distribution of every release holds those
that all models share. `import_suites` has pip download it into a folder outside the repository,
unpacks the tests there as the package `transformers_suites`, and imports them; nothing of that code
is stored here. What the shared tests import beside it, and the source distribution lacks, is stood
in for by the few names below.
"""

import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import transformers

PACKAGE = "transformers_suites"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet")
RANKS = Path(__file__).with_name("gloo_ranks.py")
# Tests of generate() and of torch.export are in no source distribution: empty classes take their
# place, and the tests of this repository cover what they check. A configuration's common settings
# may have any value that is not the default.
STAND_INS = {
    "__init__.py": "",
    "exporters/__init__.py": "",
    "exporters/test_export.py": "class ExportTesterMixin:\n    pass\n",
    "generation/__init__.py": "",
    "generation/test_utils.py": "class GenerationTesterMixin:\n    pass\n",
    "utils/__init__.py": "",
    "utils/test_configuration_utils.py": (
        "config_common_kwargs = {'dtype': 'float16', 'return_dict': False,\n"
        "    'output_attentions': True, 'output_hidden_states': True,\n"
        "    'problem_type': 'regression'}\n"
    ),
    "distributed_testing_utils.py": RANKS.read_text(encoding="utf-8"),
}


class SuitesUnavailableError(RuntimeError):
    """The source distribution of the installed transformers cannot be had."""


@dataclass(frozen=True)
class Suites:
    """The modules of transformers' shared tests.

    Args:
        modeling: tests of one model family, and what they call.
        configuration: tests of a config class.
        training: a tiny model learns one batch by heart.
        tensor_parallel: two processes share each layer.
        fsdp: two processes share the parameters.
        ranks: starts those processes; `gloo_ranks.py` of this folder.
        generation: stands in for the tests of generate().
    """

    modeling: ModuleType
    configuration: ModuleType
    training: ModuleType
    tensor_parallel: ModuleType
    fsdp: ModuleType
    ranks: ModuleType
    generation: ModuleType

    @property
    def all(self) -> tuple[ModuleType, ...]:
        """Every module that looks names of classes up in tables of transformers."""
        return (self.modeling, self.configuration, self.training, self.tensor_parallel, self.fsdp)


def cache_folder() -> Path:
    """Return the folder for downloads: HF_CONF_CACHE, or one in the user's cache."""
    return Path(os.environ.get("HF_CONF_CACHE", "~/.cache/hf_seqmodels_conformance")).expanduser()


def source_distribution() -> Path:
    """Return the archive of the installed transformers, downloaded once.

    Raises:
        SuitesUnavailableError: if pip cannot download it.
    """
    version = transformers.__version__
    folder = cache_folder() / "sdist"
    archive = folder / f"transformers-{version}.tar.gz"
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        requirement = ("--no-deps", "--no-binary", "transformers", f"transformers=={version}")
        finished = subprocess.run(
            [*PIP, "--dest", str(folder), *requirement], capture_output=True, text=True
        )
        if finished.returncode or not archive.exists():
            raise SuitesUnavailableError(
                f"The test suites of transformers {version} come with its source distribution, "
                f"which pip could not download: {finished.stderr.strip()[-500:]}\n"
                f"Put transformers-{version}.tar.gz into {folder}, or set HF_CONF_CACHE to a "
                "folder whose `sdist` holds it."
            )
    return archive


def unpack(archive: Path) -> Path:
    """Return a folder that holds the package of the tests, unpacked once for each archive and
    stand-in."""
    digest = hashlib.sha256(repr(sorted(STAND_INS.items())).encode()).hexdigest()[:12]
    root = cache_folder() / f"{archive.name.removesuffix('.tar.gz')}-{digest}"
    if root.exists():
        return root
    unfinished = root.with_name(f"{root.name}.{os.getpid()}")
    with tarfile.open(archive) as tar:
        for member in tar:
            _, _, path = member.name.partition("/tests/")
            file = tar.extractfile(member) if path.endswith(".py") else None
            if file is not None:
                target = unfinished / PACKAGE / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read())
    for path, text in STAND_INS.items():
        target = unfinished / PACKAGE / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    try:
        unfinished.rename(root)
    except OSError:  # another process was faster
        shutil.rmtree(unfinished)
    return root


def import_suites(*, on_many_processes: bool) -> Suites:
    """Import the shared tests of the installed transformers.

    Args:
        on_many_processes: also run the tests that start several processes, which transformers has
            for a few of its own models only.

    Raises:
        SuitesUnavailableError: if pip cannot download the source distribution.
    """
    sys.path.insert(0, str(unpack(source_distribution())))
    names = {
        "modeling": "test_modeling_common",
        "configuration": "test_configuration_common",
        "training": "test_training_mixin",
        "tensor_parallel": "test_tensor_parallel_mixin",
        "fsdp": "test_fsdp_mixin",
        "ranks": "distributed_testing_utils",
        "generation": "generation.test_utils",
    }
    modules = {name: importlib.import_module(f"{PACKAGE}.{path}") for name, path in names.items()}
    suites = Suites(**modules)
    if on_many_processes:
        suites.tensor_parallel.TP_DISTRIBUTED_TEST_MODEL_TYPES = None
        suites.fsdp.FSDP_DISTRIBUTED_TEST_MODEL_TYPES = None
    return suites
