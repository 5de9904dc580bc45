"""Numbers as text read back as the numbers they were, and hold no sign that people do not write."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from creditscope.text import amount, markdown, number, visible

NUMBERS = st.floats(1e-30, 1e30) | st.floats(-1e30, -1e-30)
RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def read_back(text: str) -> float:
    """The number that a text says."""
    found = re.fullmatch(r"(−?)(?:([\d.]+)×)?10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", text)
    if found is None:
        return float(text.replace("−", "-").replace(",", ""))
    return (-1 if found[1] else 1) * float(found[2] or 1) * 10.0 ** int(found[3].translate(RAISED))


@given(NUMBERS, st.integers(1, 5))
def test_an_amount_is_the_number_to_its_digits(value, digits):
    text = amount(value, digits)
    assert read_back(text) == pytest.approx(value, rel=0.51 * 10.0 ** (1 - digits))
    assert not re.search(r"[-e]", text)


@given(NUMBERS, st.sampled_from([".3g", ".2e", "+.4g"]))
def test_a_number_of_a_table_is_what_its_format_says(value, form):
    text = number(value, form)
    assert read_back(text) == pytest.approx(float(format(value, form)))
    assert not re.search(r"^-|e\+|e-?0\d", text)


@pytest.mark.parametrize(("form", "said"), [(".2f", "0.00"), ("+.2f", "−0.00"), (".1e", "−1.0e-3"), (".0%", "0%")])
def test_only_a_signed_zero_has_a_sign(form, said):
    assert number(-0.001, form) == said


def test_what_a_terminal_would_obey_is_written_out():
    assert visible("a\x1b[31mb\nc\x85d\u202ee\u2028f\udc80") == r"a\x1b[31mb\nc\x85d\u202ee\u2028f\udc80"
    assert visible("λ‖f‖² · 95\u00a0% 网络") == "λ‖f‖² · 95\u00a0% 网络"


@pytest.mark.parametrize(
    "text",
    ["**bold**", "*it*", "__init__", "_it_", "~~gone~~", "$x$", "<b>x</b>", "<!-- x -->", "&lt;", "![i](u)", "[t](u)",
     "`", "a\\*b", "x ##", "one\n\n# two", "a * b ~ c < d_e & f"],
)  # fmt: skip
def test_markdown_shows_what_was_meant(text):
    """By a reader of Markdown: one paragraph with nothing in it but the text."""
    from markdown_it import MarkdownIt

    inline = MarkdownIt("commonmark").enable("strikethrough").parse(f"# {markdown(text)}")[1]
    assert {child.type for child in inline.children or ()} <= {"text", "text_special"}
    assert "".join(child.content for child in inline.children or ()) == visible(text)


def test_code_stays_code():
    assert markdown("run `--tier full_x` again") == "run `--tier full_x` again"
