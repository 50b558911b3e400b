"""Pieces of Markdown hold any text."""

import pytest

from hf_seqmodels.model_cards.markdown import code_span, fenced, one_line, table


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("g2p_dutch 3.5 % (5 beams)", r"g2p_dutch 3.5 % \(5 beams\)"),
        ("_a_ *b* `c` [d](e) <f> #g |h", r"\_a\_ \*b\* \`c\` \[d\]\(e\) \<f\> \#g \|h"),
        (" a\n b\t c\u2028d ", "a b c d"),
        (3, "3"),
    ],
)
def test_text_is_one_line_and_shows_as_it_is(text, expected):
    assert one_line(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a", "`a`"), ("a`b", "``a`b``"), ("`", "`` ` ``"), ("a\n```", "```` a ``` ````")],
)
def test_code_in_a_line_ends_where_it_should(text, expected):
    assert code_span(text) == expected


def test_a_fence_is_longer_than_any_in_its_code():
    assert fenced("yaml", "a: 1\n") == "```yaml\na: 1\n```"
    assert fenced("", "````\n```") == "`````\n````\n```\n`````"


def test_bars_end_no_cell():
    assert table(["a", "b"], [["`x|y`", r"1\|2"]]) == (
        "| a | b |\n| --- | --- |\n| `x\\|y` | 1\\|2 |"
    )
