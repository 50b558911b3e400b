"""The table of skips is sound, without the suites that `make conformance` runs."""

import pytest

from conformance_page import PAGE, table
from descriptions import DESCRIPTIONS
from hf_seqmodels.auto_classes import FAMILIES
from permanent_skips import EVERY_FAMILY, SKIPS, WHEN, skip_of


def test_every_family_is_described_and_known_to_the_table():
    families = {family.model_type for family in FAMILIES}
    assert {description.model_type for description in DESCRIPTIONS} == families
    assert set(EVERY_FAMILY) == families
    assert len({description.name for description in DESCRIPTIONS}) == len(DESCRIPTIONS)


@pytest.mark.parametrize("description", DESCRIPTIONS, ids=lambda description: description.name)
def test_a_description_covers_every_class_of_its_row(description):
    rows = {family.model_type: family for family in FAMILIES}
    expected = set(rows[description.model_type].model_classes.values())
    assert set(description.model_classes) == expected
    assert description.trained_class in expected
    assert description.config().model_type == description.model_type


@pytest.mark.parametrize("skip", SKIPS, ids=lambda skip: skip.tests[0])
def test_an_entry_names_tests_families_and_a_reason(skip):
    assert skip.tests
    assert all(name.startswith("test_") and name.strip("*_") != "test" for name in skip.tests)
    assert skip.families
    assert set(skip.families) <= set(EVERY_FAMILY)
    assert skip.when in WHEN
    assert skip.reason.endswith(".")
    assert not skip.is_ours or skip.when == "never"


def test_no_test_of_a_family_has_two_entries():
    for family in EVERY_FAMILY:
        names = [name for skip in SKIPS if family in skip.families for name in skip.tests]
        assert len(names) == len(set(names))
        for name in names:
            assert sum(skip.covers(name, family) for skip in SKIPS) == 1, (name, family)


def test_a_test_without_an_entry_has_to_run():
    assert skip_of("test_save_load", EVERY_FAMILY[0]) is None


def test_the_page_shows_the_table():
    assert PAGE.read_text(encoding="utf-8").endswith("\n\n" + table())
