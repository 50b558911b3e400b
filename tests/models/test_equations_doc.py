"""docs/equations.md: every name in its tables exists, and no part with an equation is missing."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

from hf_seqmodels.models.layers_attention import SCORERS, MultiHeadAttention
from hf_seqmodels.models.layers_decoder import RecurrentDecoder
from hf_seqmodels.models.layers_positions import ADDED_POSITIONS
from hf_seqmodels.models.layers_recurrent import CONNECTIONS, PlainConnection
from hf_seqmodels.models.layers_transformer import BLOCKS, FeedForward
from hf_seqmodels.models.modeling_rnn_seq2seq import BRIDGES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")
HEADER = ["Equation", "Code", "Test"]


def table_rows() -> list[list[str]]:
    """Return the cells of every row below a header of equations."""
    rows, in_table = [], False
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            in_table = False
        elif cells == HEADER:
            in_table = True
        elif in_table and set(line) - set("|- "):
            rows.append(cells)
    return rows


ROWS = table_rows()


def references(cell: str) -> list[str]:
    """Return what stands between backticks."""
    return re.findall(r"`([^`]+)`", cell)


@cache
def names_in(path: str) -> frozenset[str]:
    """Return classes, functions and `Class.method` that a file defines."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (one.name for one in node.body if isinstance(one, ast.FunctionDef))
            names.update(f"{node.name}.{method}" for method in methods)
    return frozenset(names)


def complaint_about(reference: str) -> str | None:
    """Say what is wrong with `path::name` or with a dotted name of a library; None if nothing."""
    path, separator, name = reference.partition("::")
    if separator:
        if not (ROOT / path).is_file():
            return f"{path} does not exist"
        return None if name in names_in(path) else f"{path} has no {name}"
    module, _, name = reference.rpartition(".")
    try:
        found = hasattr(importlib.import_module(module), name)
    except ImportError:
        found = False
    return None if found else f"{reference} cannot be imported"


def is_name(reference: str) -> bool:
    """Tell a name to look up from an argument's name."""
    return "::" in reference or "." in reference


def test_tables_are_found():
    assert len(ROWS) > 40
    assert all(len(row) == len(HEADER) for row in ROWS), "a cell holds a bar"
    equations = [row[0] for row in ROWS]
    assert len(set(equations)) == len(equations)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_every_equation_names_code_and_tests_that_exist(row):
    _, code, tests = row
    code_names = [reference for reference in references(code) if is_name(reference)]
    test_names = references(tests)
    assert code_names
    assert test_names
    complaints = [complaint_about(reference) for reference in (*code_names, *test_names)]
    assert not any(complaints), complaints
    for reference in test_names:
        path, _, name = reference.partition("::")
        assert path.startswith("tests/")
        assert name.startswith("test_")


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        ("hf_seqmodels/models/no_such_file.py::lstm_step", "no_such_file.py does not exist"),
        ("hf_seqmodels/models/layers_recurrent.py::lstm_stepp", "has no lstm_stepp"),
        ("hf_seqmodels/models/layers_recurrent.py::RecurrentStack.stepp", "has no RecurrentStack."),
        ("transformers.GenerationMixxin", "cannot be imported"),
        ("hf_seqmodels/models/layers_recurrent.py::RecurrentStack.step", None),
        ("torch.nn.utils.clip_grad_norm_", None),
    ],
)
def test_a_wrong_name_is_found(reference, complaint):
    actual = complaint_about(reference)
    assert (actual is None) if complaint is None else (complaint in actual)


def test_every_part_with_an_equation_of_its_own_is_listed():
    recurrent = names_in("hf_seqmodels/models/layers_recurrent.py")
    steps = {n for n in recurrent if n.endswith("_step") and n != "elman_step"}
    choices = {*SCORERS.values(), *CONNECTIONS.values(), *BRIDGES.values(), MultiHeadAttention}
    classes = choices - {PlainConnection} | set(RecurrentDecoder.__subclasses__())
    listed = {reference.partition("::")[2] for row in ROWS for reference in references(row[1])}
    classes |= {*BLOCKS.values(), *ADDED_POSITIONS.values(), *FeedForward.__subclasses__()}
    missing = (steps | {one.__name__ for one in classes}) - listed
    assert not missing
