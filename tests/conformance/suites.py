"""transformers' own test suites on every family: `make conformance`.

pytest collects this file only where it is named, since it takes minutes.
"""

import os

import pytest

from descriptions import DESCRIPTIONS
from family_suites import build_suite, test_names
from permanent_skips import SKIPS
from staged_suites import SuitesUnavailableError, import_suites

try:
    SUITES = import_suites(on_many_processes=os.environ.get("HF_CONF_DIST") == "1")
except SuitesUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

for description in DESCRIPTIONS:
    suite = build_suite(description, SUITES)
    suite.__module__ = __name__
    globals()[suite.__name__] = suite
    del suite


def test_every_entry_of_the_table_of_skips_names_a_test():
    tests = {
        (name, description.model_type)
        for description in DESCRIPTIONS
        for name in test_names(globals()[f"{description.name}Test"])
    }
    for skip in SKIPS:
        for pattern in skip.tests:
            for family in skip.families:
                assert any(
                    family == model_type and skip.covers(name, family) for name, model_type in tests
                ), (pattern, family)
