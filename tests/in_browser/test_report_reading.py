"""Without scripts, and on paper: what was found can still be read."""

import re

import pytest
from looking import WHITE, outside, printed

pytestmark = pytest.mark.slow

ROWS = """() => [...document.querySelectorAll('tr')].filter(e => e.checkVisibility())
  .map(e => e.innerText.replace(/\\s+/g, ' ').trim()).filter(t => t)"""
WHOLE = """() => [...document.querySelectorAll('tr, [data-heatmap], figure, svg')]
  .filter(e => e.checkVisibility() && e.getBoundingClientRect().height > 1).map(e => {
    let kept = false;
    for (let up = e; up; up = up.parentElement) kept ||= /avoid/.test(getComputedStyle(up).breakInside);
    return [e.tagName + ' ' + e.textContent.trim().slice(0, 40), kept, e.getBoundingClientRect().height];
  })"""
"""What must not be cut: its name, whether it or something around it asks for that, and its height."""
A4 = {"width": 703, "height": 1017}
"""A sheet of A4 less margins of 12 and 14 mm, in CSS pixels."""


def squeezed(text: str) -> str:
    """Without spaces and soft hyphens, which paper sets as it likes."""
    return re.sub(r"[\s\u00ad\u200b]+", "", text)


def test_without_scripts_verdicts_can_be_read_and_taps_and_checks_once_unfolded(visit, report, judged):
    page, methods = visit(report("small"), java_script_enabled=False), judged("small")["methods"]
    for method in methods:
        row = page.locator(f"[data-method='{method['method']}'][data-verdict]").first
        assert row.is_visible()
        assert method["verdict"]["word"] in row.inner_text()
    while page.locator("details:not([open]) > summary:visible").count():
        page.locator("details:not([open]) > summary:visible").first.click()
    assert page.locator("details[open]").count() == page.locator("details").count() > 3
    text = page.locator("body").inner_text()
    for method in methods:
        assert [tap for tap in method["taps"] if tap not in text] == []
        assert [f["message"] for f in method["findings"] if f["message"] not in text] == []
    tables = page.locator("table.taps").all()
    assert tables
    for table in tables:
        assert table.is_visible()
        assert table.locator("tbody tr").count() == len(methods[0]["taps"])


class TestOnPaper:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_sheets_are_whole_and_white(self, visit, report, scheme):
        page = visit(report("small"), color_scheme=scheme)
        page.emulate_media(media="print")
        page.set_viewport_size(A4)
        assert [name for name, kept, height in page.evaluate(WHOLE) if not kept or height > A4["height"]] == []
        assert outside(page) == []
        rows = page.evaluate(ROWS)
        sheets = printed(page)
        assert [sheet.margin_ink for sheet in sheets] == [0] * len(sheets)
        texts = [squeezed(sheet.text) for sheet in sheets]
        assert [row for row in rows if not any(squeezed(row) in text for text in texts)] == []
        assert len(rows) > 10
        assert all(len(text) > 50 for text in texts)
        assert all(sheet.ground >= WHITE for sheet in sheets)

    def test_closed_settings_print_their_verdicts_and_nothing_else(self, visit, report):
        page = visit(report("many"))
        closed = page.locator("#verdicts details.setting:not([open]) h3").all_inner_texts()
        assert len(closed) == 2
        texts = [squeezed(sheet.text) for sheet in printed(page)]
        whole = "".join(texts)
        verdicts = whole[: whole.index(squeezed("Layers over time What each layer"))]
        for name in closed:
            assert whole.count(squeezed(name)) == 1
            assert "BP" in verdicts[verdicts.index(squeezed(name)) :]
        assert verdicts.count("DFA") > 5

    def test_folds_close_again(self, visit, report):
        page = visit(report("many"))
        state = "() => [...document.querySelectorAll('details')].map(d => d.open)"
        before = page.evaluate(state)
        page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate(state) != before
        page.evaluate("() => dispatchEvent(new Event('afterprint'))")
        assert page.evaluate(state) == before
        assert page.locator(".for-paper").count() == 0
