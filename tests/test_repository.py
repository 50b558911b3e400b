"""What holds for the repository as a whole: its files, its pins, its make targets."""

import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
FOLDERS = ("hf_seqmodels", "training", "hub_cards", "benchmarks", "docs", "tests", ".ci")
TEXT_ENDINGS = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".json", ".cfg", ".sh", ""}
# written in pieces, so that this file does not name such a path itself
MACHINE_PATH = re.compile(
    r"(?<![\w.}\])])/(?:" + "|".join(("work", "root", "home", "tmp", "Users")) + r")/"
)


def text_files():
    """Yield every text file of the repository, caches and environments left out."""
    candidates = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in FOLDERS:
        candidates += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in candidates:
        if path.suffix in TEXT_ENDINGS and "__pycache__" not in path.parts:
            yield path


def test_no_file_names_a_path_of_one_machine():
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert found == []


def test_test_files_have_unique_names_and_no_package_around_them():
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names))
    assert not list((ROOT / "tests").rglob("__init__.py"))


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read_pins(name):
    """Return the lines of a file of constraints, {distribution: [requirement, ...]}."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    found = {}
    for line in lines:
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


@pytest.fixture(scope="module")
def pins():
    return read_pins("constraints.txt")


def test_the_oldest_versions_that_are_tested_are_those_that_are_allowed(project):
    extras = project["optional-dependencies"]
    allowed = {}
    for line in [*project["dependencies"], *extras["train"], *extras["analysis"]]:
        wanted = Requirement(line)
        (lowest,) = (part.version for part in wanted.specifier if part.operator == ">=")
        allowed[canonicalize_name(wanted.name)] = Version(lowest)
    pins = read_pins("constraints-lowest.txt")
    tested = {
        name: [Version(part.version) for pin in lines for part in pin.specifier]
        for name, lines in pins.items()
    }
    assert tested == {name: [version] for name, version in allowed.items()}


def test_every_dependency_is_pinned_within_its_range(project, pins):
    extras = project["optional-dependencies"]
    for line in [
        *project["dependencies"],
        *extras["train"],
        *extras["analysis"],
        *extras["dev"],
        *extras["conformance"],
        *extras["clients"],
    ]:
        wanted = Requirement(line)
        name = canonicalize_name(wanted.name)
        if name != project["name"]:
            versions = [next(iter(pin.specifier)).version for pin in pins[name]]
            assert versions
            assert all(version in wanted.specifier for version in versions), (line, versions)


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_every_pin_is_exact_and_stands_once_for_a_python(pins, python):
    for requirements in pins.values():
        active = [
            pin
            for pin in requirements
            if pin.marker is None or pin.marker.evaluate({"python_version": python})
        ]
        assert len(active) <= 1, active
        for pin in requirements:
            assert [part.operator for part in pin.specifier] == ["=="], pin


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_demo_hands_on_the_files_of_the_user():
    # without what an outer `make test` hands down
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("MAKE")}

    def command_of(*arguments):
        finished = subprocess.run(
            ["make", "--dry-run", "--always-make", "demo", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return finished.stdout.splitlines()[-1].strip()

    assert command_of().endswith("training/demo.py")
    assert command_of("TRAIN=my pairs.tsv", "TEST=my_test.tsv").endswith(
        "training/demo.py --train_file 'my pairs.tsv' --test_file 'my_test.tsv'"
    )


def test_warning_from_a_file_of_the_package_is_an_error():
    warn = "import warnings; warnings.warn('old option', stacklevel=1)"
    with pytest.raises(UserWarning, match="old option"):
        exec(warn, {"__name__": "hf_seqmodels.models.example"})
    with warnings.catch_warnings(record=True) as caught:
        exec(warn, {"__name__": "somebody_else"})
    assert len(caught) == 1


def readme_snippets():
    """Return the Python blocks of README.md."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("snippet", readme_snippets())
def test_python_in_the_readme_runs(snippet):
    code = compile(snippet, "README.md", "exec")
    if not re.search("path/to|your-name/", snippet):  # which need a model of the reader
        exec(code, {})
