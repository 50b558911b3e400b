"""Holds transformers' suites to the table of skips, and counts what they did."""

from collections import Counter

import pytest

from permanent_skips import skip_of

OUTCOMES = ("passed", "skipped", "failed")
# marks that the suites put on tests, which pytest must know
MARKS = (
    "accelerate_tests",
    *("flash_attn_test", "flash_attn_3_test", "flash_attn_4_test"),
    *("is_fsdp_test", "is_tensor_parallel_test", "is_training_test"),
    *("is_expert_parallel_test", "is_pipeline_test", "order", "torch_compile_test"),
)
counts: dict[str, Counter[str]] = {}
seen_skipped: set[str] = set()


def pytest_configure(config):
    for mark in MARKS:
        config.addinivalue_line("markers", f"{mark}: of transformers' suites")


def unlisted_outcome(test: str, model_type: str, outcome: str, *, has_skipped: bool) -> str | None:
    """Return what is wrong with an outcome by the table of skips, None if nothing.

    Args:
        test: name of the test.
        model_type: of the family.
        outcome: "passed", "skipped" or "failed".
        has_skipped: whether a part of the test was skipped.
    """
    skip = skip_of(test, model_type)
    if outcome == "skipped" and skip is None:
        return "was skipped, but permanent_skips.py has no entry for it"
    is_over = outcome == "passed" and not has_skipped
    if is_over and skip is not None and skip.when == "never":
        return f"ran, but permanent_skips.py says never: {skip.reason}"
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    model_type = getattr(getattr(item, "cls", None), "model_type", None)
    if model_type is None or report.when == "teardown":
        return report
    is_main = call.start != 0  # parts of a test have no time of their own
    if report.skipped:
        seen_skipped.add(item.nodeid)
    if report.skipped or (is_main and report.when == "call"):
        wrong = unlisted_outcome(
            item.originalname,
            model_type,
            report.outcome,
            has_skipped=item.nodeid in seen_skipped,
        )
        if wrong is not None:
            reason = report.longrepr[2] if report.skipped else ""
            report.outcome = "failed"
            report.longrepr = f"{item.name} {wrong}\n{reason}"
    return report


def pytest_runtest_logreport(report):
    is_test = "suites.py::" in report.nodeid and "Test::" in report.nodeid
    if is_test and not hasattr(report, "context") and (report.when == "call" or report.skipped):
        name = report.nodeid.split("::")[-2].removesuffix("Test")
        counts.setdefault(name, Counter())[report.outcome] += 1


def pytest_terminal_summary(terminalreporter):
    if counts:
        terminalreporter.section("transformers' suites")
    for name, outcomes in counts.items():
        numbers = ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in OUTCOMES)
        terminalreporter.write_line(f"{name}: {numbers}")
