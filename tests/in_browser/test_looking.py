"""Pages with one thing wrong, which the helpers of these tests must notice, and the same pages put right."""

from contextlib import ExitStack

import pytest
from looking import PHONE, clipped, opened, outside, printed, violations

pytestmark = pytest.mark.slow

HEAD = "<!doctype html><html lang=en><meta charset=utf-8><title>t</title><style>%s</style><main><h1>t</h1>"


@pytest.fixture
def show(browser, tmp_path):
    """Open a page with this body and style; gives the page and its problems."""
    with ExitStack() as visits:

        def go(body: str, style: str = "", **options):
            file = tmp_path / "page.html"
            file.write_text(HEAD % style + body)
            return visits.enter_context(opened(browser, file, **options))

        yield go


PROBLEMS = {
    "<script>nowhere()</script>": "error: nowhere is not defined",
    "<script>console.error('bad')</script>": "console: bad",
    "<script>alert(1)</script>": "dialog: 1",
    "<img alt='' src='http://127.0.0.1:9/a.png'>": "request for http://127.0.0.1:9/a.png",
    "<link rel=stylesheet href='other.css'>": "other.css",
    "<script>fetch('http://127.0.0.1:9/x').catch(() => 0)</script>": "request for http://127.0.0.1:9/x",
    "<script>new WebSocket('ws://127.0.0.1:9/s')</script>": "request for ws://127.0.0.1:9/s",
}


def test_problems_are_noticed_and_a_quiet_page_has_none(show):
    found = show("".join(PROBLEMS))
    found.page.wait_for_timeout(100)
    assert [p for p in PROBLEMS.values() if not any(p in one for one in found.problems)] == [], found.problems
    found = show("<img alt='' src='data:image/gif;base64,R0lGODlhAQABAAAAACw='><script>1 + 1</script>")
    found.page.wait_for_timeout(50)
    assert found.problems == []


WIDE = "<p style='width:600px'>wide</p>"


def test_wide_elements_are_noticed_unless_they_scroll(show):
    hidden = WIDE.replace("wide", "hidden")
    page = show(f"{WIDE}<div style='overflow-x:hidden'>{hidden}</div>", viewport=PHONE).page
    assert [one for one in outside(page) if one.startswith("p ")] == ['p "wide"', 'p "hidden"']
    assert outside(show(f"<div style='overflow-x:auto'>{WIDE}</div>", viewport=PHONE).page) == []


def test_cut_texts_are_noticed(show):
    text = "<p style='width:50px;white-space:nowrap;overflow:{0}'>{0} text in a narrow box</p>"
    assert clipped(show(text.format("hidden") + text.format("visible")).page) == ["p hidden text in a narrow box"]


def test_axe_notices_pale_text_and_silent_buttons(show, axe):
    found = violations(show("<p style='color:#aaa'>pale</p><button></button>").page)
    assert sorted(one.split()[1] for one in found) == ["button-name", "color-contrast"]
    assert violations(show("<p>dark</p><button>go</button>").page) == []


def test_sheets_are_read_and_ink_in_a_margin_is_noticed(show):
    rows = "".join(f"<p>row {i}.</p>" for i in range(60))
    sheets = printed(show(rows).page)
    assert len(sheets) > 1
    assert [sum(f"row {i}." in sheet.text for sheet in sheets) for i in range(60)] == [1] * 60
    assert [sheet.margin_ink for sheet in sheets] == [0] * len(sheets)
    sheets = printed(show("<p>x</p>", "@page{margin:0} body{margin:0;background:#000}").page)
    assert sheets[0].margin_ink > 1000
