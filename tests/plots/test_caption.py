"""Statements are data; one writer each makes them text, a table and TeX."""

import numpy as np
import pytest
from markdown_it import MarkdownIt
from scipy import stats

from creditscope.plots import Caption, Statement
from creditscope.text import visible

VALUES = [0.31, 0.35, 0.36]


def make_caption(**others):
    statements = (
        Statement.over("accuracy", "DFA", VALUES, panel="A", verdict="above chance"),
        Statement("Γ", "DFA", 0.1, panel="A"),
        Statement("accuracy", "BP", "diverged", panel="A"),
    )
    return Caption("Two numbers.", "Dots are seeds.", "digits · 1 epoch", statements, **others)


def test_an_interval_is_that_of_students_t():
    found = Statement.over("accuracy", "DFA", [*VALUES, np.nan]).value
    low, high = stats.t.interval(0.95, 2, loc=np.mean(VALUES), scale=stats.sem(VALUES))
    assert (found.mean, found.low, found.high, found.n) == pytest.approx((np.mean(VALUES), low, high, 3))


def test_values_that_are_all_equal_have_no_spread():
    assert Statement.over("accuracy", "DFA", [0.13, 0.13, 0.13]).text == "0.13 ± 0"


def test_of_logarithms_the_mean_is_geometric():
    assert Statement.over("‖g‖", "DFA", [1e-4, 1e-2, 0.0], log=True).value.mean == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), ("never", "never"), (0.25, "0.25"), (-1e-7, "−1e-7")],
    ids=["none", "word", "n", "−"],
)
def test_what_is_no_interval_is_written_as_it_is(value, text):
    assert Statement("q", "g", value).text == text
    assert Statement.over("q", "g", []).text == "–"


def test_a_table_has_a_row_for_each_and_no_empty_column():
    rows = make_caption().rows()
    assert rows[0] == ["panel", "quantity", "group", "value ± 95 %", "n", "says"]
    assert [row[2:4] for row in rows[2:]] == [["DFA", "0.1"], ["BP", "diverged"]]
    assert rows[1][4:] == ["3", "above chance"]
    assert Caption("", "", statements=(Statement("q", "g", 1.0),)).rows()[0] == ["quantity", "group", "value ± 95 %"]


def test_text_groups_by_quantity_and_tells_what_is_missing():
    lines = make_caption(gaps=("fa: not on record",)).text().splitlines()
    assert lines[-2].startswith("A, accuracy: DFA 0.34 ±")
    assert lines[-2].endswith("(n = 3, above chance); BP diverged.")
    assert any("fa: not on record" in line for line in lines)


def test_markdown_shows_the_picture_and_escapes_bars():
    text = Caption("T.", "R.", statements=(Statement("|x|", "g", 1.0),)).markdown("name")
    assert "](name.png)" in text
    assert r"\|x\|" in text


def test_tex_escapes_what_tex_would_read():
    text = Caption("50 % of a_b & c", "", statements=(Statement("q_1", "g", 1.0),)).tex("name")
    assert r"50 \% of a\_b \& c" in text
    assert r"\includegraphics{name.pdf}" in text
    assert r"q\_1: g 1." in text


def test_tex_is_plain_letters():
    said = Caption("Γ and ‖h₄‖", "± 95 %", statements=(Statement("ρ", "λ = 10⁻²", -1e-7),)).tex("name")
    assert said.isascii()


def test_of_many_statements_a_tex_caption_holds_none_and_comments_hold_all():
    many = tuple(Statement(f"q{i}", "g", float(i)) for i in range(30))
    text = Caption("T.", "R.", statements=many).tex("name")
    caption = next(line for line in text.splitlines() if "caption" in line)
    assert "q7" not in caption
    assert sum(line.startswith("% q") for line in text.splitlines()) == 30


def test_files_lie_beside_the_picture(tmp_path):
    assert [path.name for path in make_caption().save(tmp_path, "mine")] == ["mine.md", "mine.tex"]


@pytest.mark.parametrize("many", [1, 30])
def test_a_name_leaves_neither_its_line_nor_its_cell(many):
    odd = "DFA\n\\end{figure}\n**all is well** | <b>"
    caption = Caption("T.", "R.", statements=tuple(Statement("q", odd, float(i)) for i in range(many)))
    assert not any(line.startswith((r"\end{figure}", "**all")) for line in caption.text().splitlines())
    tex = caption.tex("name").splitlines()
    assert [line for line in tex if line.startswith(r"\end")] == [r"\end{figure}"]
    assert all(line.startswith("% ") for line in tex[tex.index(r"\end{figure}") + 1 :])
    tokens = MarkdownIt("commonmark").enable("table").parse(caption.markdown("a name"))
    cells = [token for token, before in zip(tokens[1:], tokens, strict=False) if before.type == "td_open"]
    assert len(cells) == 3 * many
    assert [child.type for child in cells[1].children] == ["text"]
    assert cells[1].children[0].content == visible(odd)
