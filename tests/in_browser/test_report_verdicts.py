"""The words on the page are those of the audit, whatever the records are called and whether there are any."""

import re

import pytest
from builders import make_record
from looking import PHONE
from reports import HOSTILE

from creditscope.record import RuleFacts

pytestmark = pytest.mark.slow

SHOWN = "rows => rows.map(e => [e.dataset.method, e.dataset.verdict, e.innerText])"


@pytest.mark.parametrize("name", ["small", "many", "sparse", "hostile"])
def test_verdicts_are_those_of_the_audit(visit, report, judged, name):
    page = visit(report(name))
    page.evaluate("() => document.querySelectorAll('details').forEach(d => d.open = true)")
    shown = page.locator("tr[data-verdict]").evaluate_all(SHOWN)
    methods = judged(name)["methods"]
    assert [(m, word) for m, word, _ in shown] == [(m["method"], m["verdict"]["word"]) for m in methods]
    for (_, word, text), method in zip(shown, methods, strict=True):
        cells = [cell.strip() for cell in text.split("\t")]
        assert cells[0] == method["method"]
        assert word in cells[1]
        assert re.findall(r"CS\d{3}", cells[1]) == list(method["verdict"]["codes"])
        assert cells[3].startswith(f"{method['accuracy']['mean']:.3f}")
        assert cells[-1] == str(len(method["seeds"]))


def test_checks_are_those_of_the_audit(visit, report, judged):
    page = visit(report("small"))
    tables = page.locator("#checks table.checks").all()
    for table, method in zip(tables, judged("small")["methods"], strict=True):
        rows = [row.split("\t") for row in table.locator("tbody tr").all_inner_texts()]
        shown = {code: (outcome.split(" ", 1)[1], said) for codes, outcome, said, *_ in rows for code in codes.split()}
        assert table.locator("caption").inner_text() == method["method"]
        assert shown == {f["code"]: (f["outcome"], f["message"]) for f in method["findings"]}


def test_a_code_leads_to_its_check(visit, report):
    page = visit(report("small"))
    page.evaluate("() => document.querySelectorAll('#checks details').forEach(d => d.open = false)")
    page.locator("tr[data-method=DFA][data-verdict] a", has_text="CS001").click()
    row = page.locator("#checks tr:target")
    assert row.is_visible()
    assert "CS001" in row.inner_text()
    assert row.evaluate("e => { const b = e.getBoundingClientRect(); return b.top >= 0 && b.bottom <= innerHeight; }")


def test_a_card_is_copied(visit, report):
    page = visit(report("small"), permissions=["clipboard-read", "clipboard-write"])
    card = page.locator("details.card").last
    card.locator("summary").click()
    card.locator("button").click()
    card.get_by_text("Copied").wait_for()
    assert page.evaluate("() => navigator.clipboard.readText()") == card.locator("pre").inner_text()
    assert "DFA" in card.locator("pre").inner_text()


def test_settings_are_filtered_by_words(visit, report):
    page = visit(report("many"))

    def left(words: str) -> list[str]:
        page.locator("#filter").fill(words)
        blocks = page.locator("#verdicts details.setting").all()
        return [b.locator("summary").first.inner_text().split()[0] for b in blocks if b.is_visible()]

    first, *_ = every = left("")
    assert (len(every), left("cora")) == (5, ["cora"])
    assert left(f"{first}, 1 epoch") == [first]  # parts, each with its spaces
    assert left(f"{first}, 2 epoch") == left("nothing of the kind") == []
    assert left("") == every


def test_against_an_earlier_folder(visit, report, judged):
    page = visit(report("small", against="before"), viewport=PHONE)
    now, then = ({m["method"]: m["verdict"] for m in judged(name)["methods"]} for name in ("small", "before"))
    rows = {
        row.get_attribute("data-method"): [row.get_attribute("data-change"), *row.inner_text().split("\t")]
        for row in page.locator("#against tr[data-change]").all()
    }
    assert now["DFA"]["word"] != then["DFA"]["word"]
    assert {method: row[0] for method, row in rows.items()} == {"BP": "no", "DFA": "yes"}
    assert then["DFA"]["word"] in rows["DFA"][2]
    assert now["DFA"]["word"] in rows["DFA"][3]
    assert rows["DFA"][4].split() == [code for code in now["DFA"]["codes"] if code not in then["DFA"]["codes"]]
    assert "FA" in page.locator("#against ul").inner_text()


def test_hostile_names_are_text_also_where_the_script_writes_them(visit, report):
    """That no dialog opens and nothing is asked for is checked at the end of every visit."""
    page = visit(report("hostile", against="hostile"))
    text = page.locator("body").inner_text()
    assert [name for name in HOSTILE[:2] if name not in text] == []
    assert [script.get_attribute("id") for script in page.locator("script").all()] == ["data", None]
    assert page.evaluate("() => document.body.lastElementChild.tagName") == "SCRIPT"
    page.locator("[data-heatmap]").first.press("Enter")
    assert HOSTILE[0] in page.locator("#detail h4").inner_text()
    page.locator("input[type=range]").first.press("Home")
    assert HOSTILE[0] in page.locator(".at-epoch table").first.inner_text()
    assert page.locator("img").count() == 0


def test_a_phone_shows_a_verdict_without_scrolling_sideways(visit, report):
    page = visit(report("small"), viewport=PHONE)
    rows = page.locator("tr[data-verdict]").all()
    assert rows
    for row in rows:
        for cell in [*row.locator("td").all(), row.locator("th")]:
            box = cell.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= PHONE["width"]
    assert page.locator(".verdicts").first.evaluate("e => e.parentElement.scrollWidth <= e.parentElement.clientWidth")
    assert page.get_by_role("table", name="Accuracy").first.get_by_role("cell").count() >= 6


def test_a_long_name_leaves_the_protocol_in_sight(visit_records):
    label = "direct feedback alignment with a penalty on what every block adds, and normalised per sample"
    rule = RuleFacts(name="dfa", label=label)
    records = [make_record(seed=seed, facts={"rule": rule}) for seed in (1, 2)]
    page = visit_records(records, viewport={"width": 1280, "height": 800})
    cell = page.locator(".matrix tbody td").first
    frame = page.locator(".decisions .scroll").first.bounding_box()
    box = cell.bounding_box()
    assert cell.inner_text()
    assert box["x"] + box["width"] <= frame["x"] + frame["width"]
