"""The table of skips in docs/conformance.md; running this file writes it."""

from pathlib import Path

from permanent_skips import EVERY_FAMILY, SKIPS, WHEN, Skip

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
HEAD = "| tests | families | when | reason |\n|---|---|---|---|\n"


def row(skip: Skip) -> str:
    """Return an entry as a line of the table."""
    every = set(skip.families) == set(EVERY_FAMILY)
    families = (
        "all" if every else ", ".join(family.removeprefix("seqmodels_") for family in skip.families)
    )
    tests = ", ".join(f"`{name}`" for name in skip.tests)
    return f"| {tests} | {families} | {WHEN[skip.when]} | {skip.reason} |\n"


def table() -> str:
    """Return the whole table."""
    return HEAD + "".join(row(skip) for skip in SKIPS)


if __name__ == "__main__":
    text, _, _ = PAGE.read_text(encoding="utf-8").partition(HEAD)
    PAGE.write_text(text + table(), encoding="utf-8")
