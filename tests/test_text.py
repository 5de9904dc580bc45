"""Numbers as text read back as the numbers they were, and hold no sign that people do not write."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from creditscope.auditing.printing import fit_line
from creditscope.commands._options import FEWEST, hang
from creditscope.text import amount, cells, clip, markdown, number, pad, visible, wrap

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


WORDS = st.lists(st.text("aé規e\u0301", min_size=1, max_size=6), min_size=1, max_size=12).map(" ".join)
"""Narrow and wide letters, and such as take no place of their own."""


@given(WORDS, st.integers(1, 40))
def test_what_is_cut_takes_as_many_columns_as_there_are(text, room):
    cut = clip(text, room)
    assert cells(cut) <= room
    assert cut == text or (cut[-1] == "…" and text.startswith(cut[:-1]) and cells(cut) >= room - 1)
    assert cells(pad(cut, room)) == room


@given(WORDS, st.integers(1, 40))
def test_lines_are_broken_between_words_and_only_where_they_must_be(text, width):
    lines = wrap(text, width)
    assert " ".join(lines) == text
    assert [line for line in lines if cells(line) > width and " " in line] == []
    for line, after in pairwise(lines):
        assert cells(line) + 1 + cells(after.split()[0]) > width


@given(WORDS, WORDS, st.integers(8, 60))
def test_a_line_that_is_fitted_is_no_wider_than_its_room(clause, more, room):
    line = fit_line(room, f"{clause}; {more}")
    assert cells(line) <= room
    assert line in (f"{clause}; {more}", f"{clause} …") or line.endswith("…")


@pytest.mark.parametrize("width", [25, 40, 80])
@pytest.mark.parametrize("first", ["DFA ", "規則規則 "])
def test_text_hangs_beside_a_name_of_any_letters(monkeypatch, first, width):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = hang(first, "規則 " * 30)
    assert max(map(cells, lines)) <= width
    assert "".join(lines).count("規則") == 30 + first.count("規則")
    beside = width - cells(first) >= FEWEST
    assert {cells(line) - cells(line.lstrip()) for line in lines[1:]} == {cells(first) if beside else 4}
