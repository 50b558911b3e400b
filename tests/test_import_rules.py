"""The import rule of hf_seqmodels/models: what makes its files loadable from the Hub.

The Hub loader of transformers copies a modeling file and, found by a regular expression, the files
that it names as `from .name import ...`. The rule is checked by reading the files, so that a breach
is seen here and not by the first user without the package.
"""

import ast
import re
import sys
from pathlib import Path

import pytest
from transformers.dynamic_module_utils import get_relative_import_files

import hf_seqmodels.models
from hf_seqmodels.auto_classes import FAMILIES

MODELS = Path(hf_seqmodels.models.__file__).parent
FILES = sorted(MODELS.glob("*.py"))
FILE_NAME = re.compile(
    r"(?:configuration|modeling|tokenization|pipeline|layers|cache)_\w+|outputs|pretrained_base"
)
PART_NAME = re.compile(r"layers_\w+|cache_\w+|outputs|pretrained_base")
OUTSIDE = {*sys.stdlib_module_names, "torch", "transformers", "huggingface_hub"}
# what the Hub loader takes for a relative import, wherever it stands
LOADER_SEES = re.compile(r"^\s*(?:from\s+\.\S*\s+import|import\s+\.\S+)", re.MULTILINE)


def may_import(importer: str, imported: str) -> bool:
    """Say whether one file of the folder may import another; both are module names."""
    if importer.startswith("modeling_"):
        own_configuration = importer.replace("modeling_", "configuration_", 1)
        return imported == own_configuration or bool(PART_NAME.fullmatch(imported))
    takes_parts = PART_NAME.fullmatch(importer) or importer.startswith("pipeline_")
    return bool(takes_parts and PART_NAME.fullmatch(imported))


def breaches(name: str, source: str) -> list[str]:
    """List what a file of the folder, the module `name`, does against the import rule."""
    found, relative_statements = [], 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            roots = [alias.name.partition(".")[0] for alias in node.names]
            found += [f"imports {root}" for root in roots if root not in OUTSIDE]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            root = (node.module or "").partition(".")[0]
            if root not in OUTSIDE:
                found.append(f"imports {root}")
            if root == "__future__" and name.startswith("configuration_"):
                found.append("turns type checks of the config off with __future__ annotations")
        elif isinstance(node, ast.ImportFrom):
            relative_statements += 1
            if node.level > 1 or node.module is None or "." in node.module:
                found.append(
                    f"line {node.lineno}: only `from .name import ...` is copied to the Hub"
                )
            elif not may_import(name, node.module):
                found.append(f"may not import .{node.module}")
    if len(LOADER_SEES.findall(source)) != relative_statements:
        found.append(
            "has a relative import inside a string, which the Hub loader takes for a real one"
        )
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_keeps_the_import_rule(path):
    assert breaches(path.stem, path.read_text(encoding="utf-8")) == []


def test_folder_is_flat_and_its_names_say_what_a_file_is():
    assert [
        path.name for path in MODELS.iterdir() if path.is_dir() and path.name != "__pycache__"
    ] == []
    assert {path.stem for path in FILES if not FILE_NAME.fullmatch(path.stem)} == {"__init__"}


def import_closure(path: Path) -> set[Path]:
    """Return the files of the folder that one of them imports, directly or through others."""
    needed, unread = set(), [path]
    while unread:
        tree = ast.parse(unread.pop().read_text(encoding="utf-8"))
        modules = {
            node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.level
        }
        siblings = {(MODELS / f"{module}.py").resolve() for module in modules}
        unread += siblings - needed
        needed |= siblings
    return needed


@pytest.mark.parametrize("path", sorted(MODELS.glob("modeling_*.py")), ids=lambda path: path.stem)
def test_hub_loader_finds_every_file_that_a_model_needs(path):
    seen_by_loader = {Path(found).resolve() for found in get_relative_import_files(path)}
    needed = import_closure(path)
    assert all(file.is_file() for file in needed)
    assert seen_by_loader == needed


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.model_type)
def test_a_checkpoint_brings_at_most_ten_code_files(family):
    classes = [*family.model_classes.values(), family.tokenizer_class]
    modules = {loaded.__module__.rpartition(".")[2] for loaded in classes if loaded}
    modules |= {reference.rpartition(".")[0] for reference, _ in family.pipelines.values()}
    own = {
        (MODELS / f"{module}.py").resolve()
        for module in modules
        if (MODELS / f"{module}.py").is_file()
    }
    names = sorted(path.stem for path in own.union(*map(import_closure, own)))
    assert len(names) <= 10, names


@pytest.mark.parametrize(
    ("name", "source", "complaint"),
    [
        ("configuration_a", "from .outputs import X", "may not import .outputs"),
        ("configuration_a", "from __future__ import annotations", "turns type checks"),
        ("layers_a", "from .modeling_a import X", "may not import .modeling_a"),
        ("cache_a", "from .configuration_a import X", "may not import .configuration_a"),
        ("tokenization_a", "from .outputs import X", "may not import .outputs"),
        ("pipeline_a", "from .modeling_a import X", "may not import .modeling_a"),
        ("modeling_a", "from .modeling_b import X", "may not import .modeling_b"),
        ("modeling_a", "from .configuration_b import X", "may not import .configuration_b"),
        ("modeling_a", "from . import layers_a", "only `from .name import ...`"),
        ("modeling_a", "from .layers.a import X", "only `from .name import ...`"),
        ("modeling_a", "from ..data import X", "only `from .name import ...`"),
        ("modeling_a", "from hf_seqmodels.models.outputs import X", "imports hf_seqmodels"),
        ("modeling_a", "def f():\n    import numpy as np", "imports numpy"),
        ("modeling_a", '"""Use it so:\n\n    from .layers_a import X\n"""', "inside a string"),
    ],
)
def test_breach_is_found(name, source, complaint):
    assert complaint in "; ".join(breaches(name, source))


def test_allowed_imports_are_no_breach():
    source = (
        "import math\nimport torch.nn.functional as F\nfrom transformers import PreTrainedModel\n"
    )
    assert breaches("layers_a", source + "from .outputs import X\n") == []
    assert breaches("modeling_a", source + "from .configuration_a import X\n") == []
    assert breaches("pipeline_a", source + "from .outputs import X\n") == []
