"""Every report, wide and narrow, light and dark, on paper and without scripts: nothing sticks out or is lost."""

import re

import pytest
from looking import DESKTOP, PHONE, WHITE, clipped, outside, printed, violations
from reports import HOSTILE
from test_report_method import open_method

pytestmark = pytest.mark.slow

GROUND = "() => getComputedStyle(document.body).backgroundColor"
TABLET = {"width": 768, "height": 1024}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out_and_axe_finds_nothing_serious(visit, report, axe, scheme):
    page = visit(report("every", against="before"), color_scheme=scheme)
    shades = [int(shade) for shade in re.findall(r"\d+", page.evaluate(GROUND))[:3]]
    assert (sum(shades) > 600) if scheme == "light" else (sum(shades) < 240)
    open_method(page, "DFA").locator("svg.heat").first.press("Enter")
    for screen in (DESKTOP, TABLET, PHONE):
        page.set_viewport_size(screen)
        assert outside(page) == []
        assert clipped(page) == []
        if screen != TABLET:
            assert violations(page) == []
    page.locator("#filters button", has_text="Grid").evaluate("e => e.click()")
    assert outside(page) == []


@pytest.mark.parametrize("name", ["sparse", "empty"])
def test_nothing_sticks_out_however_few_records(visit, report, name):
    page = visit(report(name), viewport=PHONE)
    assert outside(page) == []
    page.set_viewport_size(DESKTOP)
    assert outside(page) == []
    if name == "sparse":
        page.locator(".opened .method").wait_for()  # a row alone is open


def test_hostile_names_are_text_also_where_the_script_writes_them(visit, report):
    """That no dialog opens and nothing is asked for is checked at the end of every visit."""
    page = visit(report("hostile", against="hostile"), viewport=PHONE)
    page.locator(".opened .method").wait_for()
    assert outside(page) == []
    page.set_viewport_size(DESKTOP)
    text = page.locator("body").inner_text()
    assert [name for name in HOSTILE[:2] if name not in text] == []
    page.locator("svg.heat").first.press("Enter")
    assert HOSTILE[2] in page.locator("#tip b").inner_text()
    page.locator("#filters input").fill("<script>")
    page.locator("#filters button", has_text="Grid").click()
    assert HOSTILE[0] in page.locator("#grid").inner_text()
    assert page.evaluate("() => rowsAsCsv()").count("<script>") >= 2
    assert [script.get_attribute("type") for script in page.locator("script").all()] == [
        "application/json",
        "text/plain",
        None,
    ]
    assert page.locator("img").count() == 0


def test_against_an_earlier_folder(visit, report, judged):
    page = visit(report("small", against="before"))
    now, then = ({m["method"]: m["verdict"] for m in judged(name)["methods"]} for name in ("small", "before"))
    rows = {
        row.get_attribute("data-method"): [row.get_attribute("data-change"), *row.inner_text().split("\t")]
        for row in page.locator("#against tr[data-change]").all()
    }
    assert {method: row[0] for method, row in rows.items()} == {"BP": "no", "DFA": "yes"}
    assert then["DFA"]["word"] in rows["DFA"][2]
    assert now["DFA"]["word"] in rows["DFA"][3]
    assert rows["DFA"][4].split() == [code for code in now["DFA"]["codes"] if code not in then["DFA"]["codes"]]
    assert "FA" in page.locator("#against ul").inner_text()


def test_without_scripts_every_row_and_all_its_reasons_can_be_read(visit, report, judged):
    page = visit(report("every"), java_script_enabled=False)
    for screen in (DESKTOP, PHONE):
        page.set_viewport_size(screen)
        rows = page.locator("tr[data-verdict]").all_inner_texts()
        for method, text in zip(judged("every")["methods"], rows, strict=True):
            assert method["verdict"]["word"] in text
            behind = [f["message"] for f in method["findings"] if f["code"] in method["verdict"]["codes"]]
            assert [said for said in behind if said.rstrip(".") not in text.replace("\n", " ")] == []
    assert "creditscope audit" in page.locator("noscript").inner_text()
    assert page.locator("#filters").is_hidden()


def squeezed(text: str) -> str:
    """Without spaces and soft hyphens, which paper sets as it likes."""
    return re.sub(r"[\s\u00ad\u200b]+", "", text)


def test_paper_shows_the_rows_that_are_shown_with_their_reasons_and_what_is_open(visit, report, judged):
    page = visit(report("every"), color_scheme="dark")
    page.locator(".tile[data-word='walk back']").click()
    opened = open_method(page, "DFA")
    heading = squeezed(opened.locator("h3").first.inner_text())
    sheets = printed(page)
    assert [sheet.margin_ink for sheet in sheets] == [0] * len(sheets)
    assert all(sheet.ground >= WHITE for sheet in sheets)
    whole = squeezed("".join(sheet.text for sheet in sheets))
    dfa = next(m for m in judged("every")["methods"] if m["verdict"]["word"] == "walk back")
    for finding in dfa["findings"]:
        assert squeezed(finding["message"]) in whole
    assert heading in whole
    (hidden,) = (m for m in judged("every")["methods"] if m["verdict"]["word"] == "undecided")
    messages = [squeezed(f["message"]) for f in hidden["findings"] if f["outcome"] == "undecided"]
    assert [said in whole for said in messages] == [False] * len(messages)  # it was filtered out
    assert messages
    assert squeezed(page.locator("#shown").inner_text()) in whole
