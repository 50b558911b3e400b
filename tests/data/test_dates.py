"""Dates: what CLDR writes, and that each source has one date only."""

import datetime
import random
import re
import sys
from collections import Counter

import pytest
from babel import Locale
from babel.dates import get_month_names

from hf_seqmodels.data import DATE_FORMATS, DATE_LOCALES, date_splits, generate_dates
from hf_seqmodels.data.dates import FIRST_DATE, LAST_DATE, write_date

YEAR_FIRST = {"hu_HU", "ja_JP", "ko_KR", "zh_CN"}
MONTH_FIRST = {"en_US"}
KNOWN = {  # as people write the fourth of March 2021
    ("de_DE", "short"): "04.03.21",
    ("en_GB", "long"): "4 March 2021",
    ("en_US", "full"): "Thursday, March 4, 2021",
    ("en_US", "short"): "3/4/21",
    ("es_ES", "short"): "4/3/21",
    ("fr_FR", "long"): "4 mars 2021",
    ("ja_JP", "long"): "2021年3月4日",
    ("ko_KR", "short"): "21. 3. 4.",
    ("zh_CN", "full"): "2021年3月4日星期四",
}


def a_date(number):
    return FIRST_DATE + datetime.timedelta(days=number)


def parse(text, locale):
    """Read a date by the order of its numbers, and of names of months where there are any."""
    numbers = [int(digits) for digits in re.findall(r"\d+", text)]
    if len(numbers) == 3:
        order = "ymd" if locale in YEAR_FIRST else "mdy" if locale in MONTH_FIRST else "dmy"
    else:
        order = "yd" if locale in YEAR_FIRST else "dy"
    fields = dict(zip(order, numbers, strict=True))
    if "m" not in fields:
        names = {
            name.strip(".").lower(): month
            for width in ("wide", "abbreviated")
            for context in ("format", "stand-alone")
            for month, name in get_month_names(width, context, locale).items()
        }
        # a whole word, or the Hebrew for "in" and a word
        patterns = {name: rf"(?<!\w)\u05d1?{re.escape(name)}(?!\w)" for name in names}
        found = [name for name in names if re.search(patterns[name], text.lower())]
        fields["m"] = names[max(found, key=len)]
    if fields["y"] < 100:
        fields["y"] += 1900 if fields["y"] >= 70 else 2000
    return datetime.date(fields["y"], fields["m"], fields["d"])


def test_the_calendar_is_a_hundred_years_long():
    assert [FIRST_DATE.isoformat(), LAST_DATE.isoformat()] == ["1970-01-01", "2069-12-31"]
    assert len(DATE_LOCALES) == len(set(DATE_LOCALES)) == 20
    assert DATE_FORMATS == ("short", "medium", "long", "full")


@pytest.mark.parametrize("case", KNOWN, ids=str)
def test_dates_look_as_people_write_them(case):
    locale, date_format = case
    date = datetime.date(2021, 3, 4)
    assert write_date(date, locale=locale, date_format=date_format) == KNOWN[case]


@pytest.mark.parametrize("locale", DATE_LOCALES)
def test_every_source_has_exactly_one_date(locale):
    """Each day of a leap year, each year of the calendar, and dates whose parts look alike."""
    assert Locale.parse(locale).default_numbering_system == "latn"
    dates = {a_date(number) for number in random.Random(1).sample(range(36525), 100)}
    dates |= {datetime.date(2024, 1, 1) + datetime.timedelta(days=day) for day in range(366)}
    dates |= {datetime.date(year, 11, 12) for year in range(1970, 2070)}
    dates |= {datetime.date(2000 + y, m, d) for y in (1, 2, 11) for m in (1, 2, 11) for d in (1, 2)}
    for date_format in DATE_FORMATS:
        written = {}
        for date in dates:
            text = write_date(date, locale=locale, date_format=date_format)
            assert written.setdefault(text, date) == date
            assert parse(text, locale) == date
            assert all(char in "0123456789" for char in text if char.isdecimal())


def test_rows_hold_source_target_locale_and_format():
    rows = generate_dates(400, seed=3)
    assert len(rows) == 400
    for row in rows:
        assert list(row) == ["locale", "format", "source", "target"]
        date = datetime.date.fromisoformat(row["target"])
        assert FIRST_DATE <= date <= LAST_DATE
        text = write_date(date, locale=row["locale"], date_format=row["format"])
        assert row["source"] == f"<{row['locale']}> {text}"
        assert parse(text, row["locale"]) == date


def test_the_seed_decides_the_rows():
    assert generate_dates(50, seed=1) == generate_dates(50, seed=1)
    assert generate_dates(50, seed=1) != generate_dates(50, seed=2)
    # pinned: benchmarks and published figures rely on these very rows
    pinned = ["1993-12-01", "1999-08-02", "2034-11-24"]
    assert [row["target"] for row in generate_dates(3, seed=0)] == pinned
    assert date_splits(2, 1, 1, seed=0)["test"][0]["target"] == "2016-10-12"


def test_locales_and_formats_are_equally_likely():
    rows = generate_dates(8000, seed=0)
    for name, choices in (("locale", DATE_LOCALES), ("format", DATE_FORMATS)):
        counts = Counter(row[name] for row in rows)
        expected = len(rows) / len(choices)
        assert set(counts) == set(choices)
        # five standard deviations of a binomial count
        assert all(abs(count - expected) < 5 * expected**0.5 for count in counts.values())
    decades = Counter(row["target"][:3] for row in rows)
    assert len(decades) == 10 and min(decades.values()) > 650


def test_no_combination_is_drawn_twice():
    rows = generate_dates(36525, seed=0, locales=["de_DE"], formats=["short"])
    assert len({row["source"] for row in rows}) == len({row["target"] for row in rows}) == 36525


def test_splits_share_no_calendar_date():
    parts = date_splits(3000, 400, 500, seed=0)
    assert list(parts) == ["train", "validation", "test"]
    assert [len(rows) for rows in parts.values()] == [3000, 400, 500]
    days = [{row["target"] for row in rows} for rows in parts.values()]
    assert not days[0] & days[1] and not days[0] & days[2] and not days[1] & days[2]
    assert {row["locale"] for row in parts["test"]} == set(DATE_LOCALES)
    assert len({target[:4] for target in days[0]}) == 100


def test_the_size_of_one_part_does_not_change_the_others():
    parts, larger = date_splits(10, 20, 30, seed=4), date_splits(99, 20, 40, seed=4)
    assert parts["validation"] == larger["validation"]
    assert parts == date_splits(10, 20, 30, seed=4)
    assert parts["test"] != date_splits(10, 20, 30, seed=5)["test"]
    days = {row["target"] for row in larger["train"]}
    assert not days & {row["target"] for row in parts["test"]}


def test_without_babel_the_way_to_get_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "babel.dates", None)
    with pytest.raises(ImportError, match=r"Babel, which is not installed. Install it with: pip"):
        generate_dates(1, seed=0)


def test_impossible_requests_are_refused():
    one = {"locales": ["en_US"], "formats": ["short"]}
    with pytest.raises(ValueError, match=r"give 36525 different examples, got a request for 36526"):
        generate_dates(36526, seed=0, **one)
    with pytest.raises(ValueError, match=r"1826 dates .* got a request for 2000. Ask for fewer"):
        date_splits(1, 1, 2000, seed=0, **one)
    for locales in ("en_US", [], ["en_US", "en_US"]):
        with pytest.raises(ValueError, match="locales must be a sequence of one or more different"):
            generate_dates(1, seed=0, locales=locales)
    with pytest.raises(ValueError, match="among short, medium, long, full, got 'tiny'"):
        generate_dates(1, seed=0, formats=["tiny"])
    for locale in ("xx_XX", "not a locale"):
        with pytest.raises(ValueError, match=f"locales must be names of CLDR.* got '{locale}'"):
            generate_dates(1, seed=0, locales=["en_US", locale])
