"""Names that load on first use."""

import importlib
import sys

import pytest


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with one lazy name, one lazy submodule and nothing loaded yet."""
    folder = tmp_path / "lazy_example"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from hf_seqmodels.lazy_exports import lazy_exports\n"
        "__getattr__, __dir__ = lazy_exports(\n"
        "    __name__, {'best': 'n_best_lists', 'plots': 'plots', 'absent': 'n_best_lists'}\n"
        ")\n"
    )
    (folder / "n_best_lists.py").write_text("best = ['first']\n")
    (folder / "plots.py").write_text("colour = 'grey'\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("lazy_example")
    for name in [name for name in sys.modules if name.partition(".")[0] == "lazy_example"]:
        del sys.modules[name]


def test_nothing_is_loaded_before_the_first_use(package):
    assert set(dir(package)) >= {"best", "plots", "absent"}
    assert not {"lazy_example.n_best_lists", "lazy_example.plots"} & set(sys.modules)


def test_name_loads_its_home_alone_and_is_kept(package):
    assert package.best == ["first"]
    assert package.best is vars(package)["best"]
    assert "lazy_example.plots" not in sys.modules


def test_submodule_stands_for_itself(package):
    assert package.plots is sys.modules["lazy_example.plots"]


def test_unknown_name_names_the_package(package):
    with pytest.raises(AttributeError, match="module 'lazy_example' has no attribute 'worst'"):
        _ = package.worst


def test_name_that_its_home_lacks_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match="n_best_lists"):
        _ = package.absent
