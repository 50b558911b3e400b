"""Embedding levels and runs, worked out by hand from UAX #9."""

import pytest

from hf_seqmodels.analysis.directions import Line, character_levels, direction


@pytest.mark.parametrize(
    ("text", "base", "levels"),
    [
        ("a אב c", "ltr", "001100"),
        ("אב 12", "rtl", "11122"),
        ("אב 12", "ltr", "11122"),
        ("12 אב", "rtl", "22111"),
        ("12 ab", "ltr", "00000"),
        ("אa bג", "rtl", "12221"),
        ("א 1/2.3", "rtl", "1122222"),
        ("א 1-2", "rtl", "11222"),
        ("ع 1-2", "rtl", "11212"),
        ("ع 1/2", "rtl", "11222"),
        ("ع ٤-٢", "rtl", "11212"),
        ("א $5%", "rtl", "11222"),
        ("ע\u05b8a", "rtl", "112"),
        ("a(א)", "ltr", "0010"),
        ("", "rtl", ""),
    ],
)
def test_levels_are_those_of_the_standard(text, base, levels):
    assert "".join(map(str, character_levels(text, base))) == levels


def runs(tokens, special=None):
    """Tokens with brackets around runs: ( ) from left to right, [ ] from right to left."""
    line = Line(tokens, special or [False] * len(tokens))
    signs = {"open": {"ltr": "(", "rtl": "["}, "close": {"ltr": ")", "rtl": "]"}}
    text = "".join(
        tokens[value] if kind == "token" else signs[kind][value] for kind, value in line.runs()
    )
    return line.direction, text


def test_digits_of_one_number_stay_together():
    assert runs([*"אב 29 ג"]) == ("rtl", "אב (29) ג")
    assert runs([*"אב 2/9"]) == ("rtl", "אב (2/9)")
    assert runs(["אב", "▁2", "9", "▁3"]) == ("rtl", "אב(▁29)(▁3)"), "a blank is between numbers"
    assert runs([*"ab אב 29 c"]) == ("ltr", "ab [אב (29)] c")
    assert runs(["the", "▁אב", "▁גד", "▁end"]) == ("ltr", "the[▁אב▁גד]▁end")


def test_special_tokens_have_no_direction():
    tokens = ["<de>", "א", "1", "</s>", "2", "</s>"]
    special = [True, False, False, True, False, True]
    assert runs(tokens, special) == ("rtl", "<de>א(1)</s>(2)</s>")
    assert runs(["<s>", "a"], [True, False]) == ("ltr", "<s>a")
    assert runs([]) == ("ltr", "")
    assert runs(["", "א"]) == ("rtl", "א")


def test_the_direction_is_that_of_most_letters():
    assert direction(["אב", "c 123"]) == "rtl"
    assert direction(["א", "bc"]) == direction(["12", "-"]) == "ltr"
