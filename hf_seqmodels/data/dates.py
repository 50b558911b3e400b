"""Dates as twenty locales write them, for learning to write them as ISO 8601.

The strings come from CLDR through Babel. A source begins with a token that names the locale,
because short forms are ambiguous without it: `<en_US> 3/4/21` is the fourth of March, `<es_ES>
3/4/21` the third of April. Years run from 1970 to 2069, so that two digits name one year. With the
locale, every source therefore has exactly one date, which the tests check for each locale and
format.
"""

import datetime
import random
from collections.abc import Sequence
from typing import Any

# Chosen for variety of script, of order and of spelling; all of them write the Gregorian calendar
# with ASCII digits by default in CLDR (which excludes th_TH, fa_IR, ar_EG, bn_BD and others).
DATE_LOCALES = (
    "ar_MA",  # Arabic script, right to left marks, day first
    "de_DE",  # day first, dots
    "el_GR",  # Greek script, genitive month names
    "en_GB",  # day first, slashes
    "en_US",  # month first
    "es_ES",  # "de" between the parts
    "fi_FI",  # partitive month names, no leading zeros
    "fr_FR",
    "he_IL",  # Hebrew script, prefixed month names
    "hi_IN",  # Devanagari
    "hu_HU",  # year first, dots
    "ja_JP",  # year first, Han characters for the units
    "ka_GE",  # Georgian script
    "ko_KR",  # year first, Hangul for the units
    "pl_PL",  # genitive month names
    "pt_BR",
    "ru_RU",  # Cyrillic script, a word after the year
    "tr_TR",  # weekday last
    "vi_VN",  # months have numbers, not names
    "zh_CN",  # year first, slashes in the short form, no names of months
)
DATE_FORMATS = ("short", "medium", "long", "full")
FIRST_DATE = datetime.date(1970, 1, 1)
LAST_DATE = datetime.date(2069, 12, 31)
_NUM_DATES = (LAST_DATE - FIRST_DATE).days + 1
_HELD_OUT_SHARE = 0.05  # of the calendar, for validation and for test each


def generate_dates(
    num_examples: int,
    *,
    seed: int,
    locales: Sequence[str] = DATE_LOCALES,
    formats: Sequence[str] = DATE_FORMATS,
) -> list[dict[str, str]]:
    """Draw dates at random and write them as their locales do.

    No combination of date, locale and format is drawn twice. Where two formats of a locale look
    alike, a source can still occur twice, with the same target.

    Args:
        num_examples: how many to draw.
        seed: the same seed gives the same dates.
        locales: CLDR names such as "en_US"; each is as likely as any other.
        formats: some of "short", "medium", "long" and "full"; each is as likely as any other.

    Returns:
        Rows with `locale`, `format`, `source` (`<en_US> 3/4/21`) and `target` (`2021-03-04`).

    Raises:
        ValueError: if more examples are asked for than exist, or a locale or format is unknown.
        ImportError: if Babel is not installed.
    """
    return _draw(num_examples, range(_NUM_DATES), random.Random(seed), locales, formats)


def date_splits(
    num_train: int,
    num_validation: int,
    num_test: int,
    *,
    seed: int,
    locales: Sequence[str] = DATE_LOCALES,
    formats: Sequence[str] = DATE_FORMATS,
) -> dict[str, list[dict[str, str]]]:
    """Draw training, validation and test examples that share no calendar date.

    A twentieth of the calendar, chosen at random, is kept for validation and another for test.

    Args:
        num_train: training examples.
        num_validation: validation examples.
        num_test: test examples.
        seed: the same seed gives the same examples.
        locales: see `generate_dates`.
        formats: see `generate_dates`.

    Returns:
        {"train": rows, "validation": rows, "test": rows}, rows as in `generate_dates`.

    Raises:
        ValueError: see `generate_dates`.
        ImportError: if Babel is not installed.
    """
    days = list(range(_NUM_DATES))
    random.Random(seed).shuffle(days)
    num_held_out = round(_HELD_OUT_SHARE * _NUM_DATES)
    parts = {
        "train": (num_train, days[2 * num_held_out :]),
        "validation": (num_validation, days[:num_held_out]),
        "test": (num_test, days[num_held_out : 2 * num_held_out]),
    }
    return {
        # a generator for each part, so that the size of one does not change the others
        name: _draw(number, sorted(part), random.Random(f"{seed} {name}"), locales, formats)
        for name, (number, part) in parts.items()
    }


def write_date(date: datetime.date, *, locale: str, date_format: str) -> str:
    """Write a date as a locale does, without the token in front.

    Args:
        date: of the Gregorian calendar.
        locale: CLDR name, such as "en_US".
        date_format: "short", "medium", "long" or "full".

    Returns:
        The text of CLDR, invisible characters included.

    Raises:
        ImportError: if Babel is not installed.
    """
    return _import_babel().dates.format_date(date, format=date_format, locale=locale)


def _import_babel() -> Any:
    try:
        import babel.dates
    except ImportError as error:
        raise ImportError(
            "dates are written with Babel, which is not installed. "
            "Install it with: pip install 'hf-seqmodels[train]'"
        ) from error
    return babel


def _draw(
    num_examples: int,
    days: Sequence[int],
    generator: random.Random,
    locales: Sequence[str],
    formats: Sequence[str],
) -> list[dict[str, str]]:
    """Draw without replacement from all combinations of day, locale and format."""
    _check_choices(locales, formats)
    num_choices = len(days) * len(locales) * len(formats)
    if not 0 <= num_examples <= num_choices:
        raise ValueError(
            f"{len(days)} dates in {len(locales)} locales and {len(formats)} formats give "
            f"{num_choices} different examples, got a request for {num_examples}. Ask for fewer, "
            "or pass more locales or formats."
        )
    rows = []
    for choice in generator.sample(range(num_choices), num_examples):
        choice, day = divmod(choice, len(days))
        locale_index, format_index = divmod(choice, len(formats))
        locale, date_format = locales[locale_index], formats[format_index]
        date = FIRST_DATE + datetime.timedelta(days=days[day])
        text = write_date(date, locale=locale, date_format=date_format)
        rows.append(
            {
                "locale": locale,
                "format": date_format,
                "source": f"<{locale}> {text}",
                "target": date.isoformat(),
            }
        )
    return rows


def _check_choices(locales: Sequence[str], formats: Sequence[str]) -> None:
    for name, choices in (("locales", locales), ("formats", formats)):
        if isinstance(choices, str) or not choices or len(set(choices)) != len(choices):
            example = DATE_LOCALES[:2] if name == "locales" else DATE_FORMATS[:2]
            raise ValueError(
                f"{name} must be a sequence of one or more different names, got {choices!r}. "
                "Pass for example "
                f"{name}={example}."
            )
    babel = _import_babel()
    for locale in locales:
        try:
            babel.Locale.parse(locale)
        except (ValueError, babel.UnknownLocaleError):
            raise ValueError(
                f"locales must be names of CLDR locales that Babel knows, got {locale!r}. "
                "Write it like en_US, or leave it out."
            ) from None
    unknown = [date_format for date_format in formats if date_format not in DATE_FORMATS]
    if unknown:
        raise ValueError(
            f"formats must be among {', '.join(DATE_FORMATS)}, got {unknown[0]!r}. "
            "Choose some of these."
        )
