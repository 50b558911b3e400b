"""The texts in hub_cards: one for every family, found in a checkout and in an installed package."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from hf_seqmodels.auto_classes import FAMILIES
from hf_seqmodels.model_cards.rendering import cards_folder, family_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("model_type", [family.model_type for family in FAMILIES])
def test_every_family_has_a_text(model_type):
    path = ROOT / "hub_cards" / f"{model_type}.md"
    assert path.is_file(), f"write hub_cards/{model_type}.md: what it is, intended use, limits"
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"^#+ .*", text, re.MULTILINE) == ["### Intended use", "### Limits"]
    assert min(len(part) for part in re.split(r"^###.*", text, flags=re.MULTILINE)) > 100
    assert family_text(model_type) == text.strip()


def test_families_of_transformers_have_a_general_text():
    assert family_text("bart") == family_text("t5")
    assert "### Limits" in family_text("bart")


def test_every_text_belongs_to_a_family_of_the_package():
    names = {path.stem for path in (ROOT / "hub_cards").iterdir()}
    models = ROOT / "hf_seqmodels" / "models"
    written = {
        f"seqmodels_{path.stem.removeprefix('configuration_')}"
        for path in models.glob("configuration_*.py")
    }
    assert names - {"card", "other"} <= written


def test_a_wheel_carries_the_texts_to_where_the_package_looks(tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["hf_seqmodels"]
    assert wheel["force-include"] == {"hub_cards": "hf_seqmodels/hub_cards"}
    assert "/hub_cards" in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    for source, place in wheel["force-include"].items():
        shutil.copytree(ROOT / source, tmp_path / place)
    assert cards_folder(tmp_path / "hf_seqmodels") == tmp_path / "hf_seqmodels" / "hub_cards"


def test_a_checkout_has_the_texts_beside_the_package():
    assert cards_folder() == ROOT / "hub_cards"


def test_missing_texts_are_reported_with_the_places(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"installed package.*Install hf_seqmodels again"):
        cards_folder(tmp_path / "hf_seqmodels")
