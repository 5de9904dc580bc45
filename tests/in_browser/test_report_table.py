"""The table in a browser: order, filters, addresses, the grid, and what is saved of it."""

import csv
import io
import re
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from networks import bad_moment, network_record
from reports import small

from creditscope.auditing import Thresholds
from creditscope.report import judge_records, write_report

pytestmark = pytest.mark.slow

IN_SIGHT = "e => { const b = e.getBoundingClientRect(); return b.top >= 0 && b.bottom <= innerHeight; }"
SHOWN = "() => [...document.querySelectorAll('#table tbody tr[data-verdict]:not([hidden])')].map(e => e.dataset.method)"
WORDS = SHOWN.replace("dataset.method", "dataset.verdict")


def state(page) -> dict[str, list[str]]:
    """What stands in the address."""
    return parse_qs(page.url.partition("#")[2])


@pytest.fixture
def page(visit, report):
    return visit(report("every"))


def test_rows_are_those_of_the_audit(page, judged):
    rows = page.locator("#table tbody tr").evaluate_all(
        "rows => rows.map(e => [e.dataset.method, e.dataset.verdict, e.innerText])"
    )
    methods = judged("every")["methods"]
    assert [(m, word) for m, word, _ in rows] == [(m["method"], m["verdict"]["word"]) for m in methods]
    assert {word for _, word, _ in rows} == {"trustworthy", "walk back", "undecided", "not measured"}
    for (_, word, text), method in zip(rows, methods, strict=True):
        cells = [cell.strip() for cell in text.split("\t")]
        assert cells[0] == method["method"]
        assert cells[4].startswith(f"{method['accuracy']['mean']:.3f}"[1:])
        assert word in cells[-1]
        assert re.findall(r"CS\d{3}", cells[-1].partition("nothing to ask")[0]) == list(method["verdict"]["codes"])


def test_counts_are_filters_and_sum_up(page, judged):
    words = [m["verdict"]["word"] for m in judged("every")["methods"]]
    for tile in page.locator(".tile").all():
        word = tile.get_attribute("data-word")
        assert int(tile.locator("b").inner_text()) == words.count(word) > 0
        tile.click()
        assert set(page.evaluate(WORDS)) == {word}
        assert tile.get_attribute("aria-pressed") == "true"
        assert page.locator("#shown").inner_text().startswith(f"{words.count(word)} of {len(words)} ")
        tile.click()
    page.locator(".tile").nth(0).click()
    page.locator(".tile").nth(1).click()
    assert len(set(page.evaluate(WORDS))) == 2


def test_a_head_sorts_both_ways_and_then_not_at_all(page):
    before = page.evaluate(SHOWN)
    head = page.locator("#table thead th", has_text="Accuracy")
    read = "cells => cells.map(e => parseFloat('0' + e.textContent))"
    for way, reverse in (("ascending", False), ("descending", True)):
        head.locator("button").click()
        values = page.locator("#table tbody td.acc").evaluate_all(read)
        assert values == sorted(values, reverse=reverse)
        assert head.get_attribute("aria-sort") == way
    head.locator("button").press("Enter")
    assert page.evaluate(SHOWN) == before
    page.locator("#table thead th", has_text="Method").locator("button").click()
    assert page.evaluate(SHOWN) == sorted(before, key=str.lower)


def test_words_and_codes_filter(page, judged):
    search = page.locator("#filters input")

    def left(text: str) -> list[str]:
        search.fill(text)
        return page.evaluate(SHOWN)

    methods = judged("every")["methods"]
    fired = {
        code: [
            m["method"] for m in methods if any(f["code"] == code and f["outcome"] == "issue" for f in m["findings"])
        ]
        for code in ("CS001", "CS005")
    }
    assert left("CS001") == left("cs001") == fired["CS001"] == ["DFA"]
    assert left("CS005") == fired["CS005"] == []  # it is open of block FA, and did not fire
    assert left("mnist1d, fa") == ["block FA", "DFA", "FA"]
    assert left("digits") == left(" Digits , dfa,") == ["DFA"]
    assert left("nothing of the kind") == []
    left("")
    for name, value, wanted in (
        ("task", "digits", ["DFA"]),
        ("depth", "20", ["DFA"]),
        ("rule", "block FA", ["block FA"]),
        ("code", "open CS005", ["block FA"]),
        ("code", "CS001", ["DFA"]),
        ("answer", "✗ credit", ["DFA"]),
    ):
        page.locator(f"#filters select[name={name}]").select_option(value)
        assert page.evaluate(SHOWN) == wanted, (name, value)
        assert state(page)[name] == [value]
        page.locator("#filters select[name=" + name + "]").select_option("")


def test_words_may_be_separated_by_spaces_as_well(page, judged):
    """What a row has as it stands is one part, as for --only; another is taken word by word."""
    said = {
        "mnist1d resmlp": [m["method"] for m in judged("every")["methods"] if "mnist1d" in m["setting"]],
        "dfa mnist1d": ["DFA"],
        "CS001 dfa": ["DFA"],
        "CS001  resmlp, depth 4": ["DFA"],
        "depth 20": ["DFA"],
        "digits, depth 2": [],
        "depth 4, dfa": ["DFA"],
        "block fa": ["block FA"],
        "undecided fa": ["block FA"],
        "dfa digits, depth 4": [],
    }
    for text, wanted in said.items():
        page.locator("#filters input").fill(text)
        assert page.evaluate(SHOWN) == wanted, text
    assert len(said["mnist1d resmlp"]) == 4


def test_the_search_finds_the_words_of_a_setting_that_only_finds(page, judged):
    methods = judged("every")["methods"]
    for title in {m["setting"] for m in methods}:
        page.locator("#filters input").fill(title)
        assert page.evaluate(SHOWN) == [m["method"] for m in methods if m["setting"] == title]


def test_a_search_without_rows_says_what_was_searched(page):
    search, said = page.locator("#filters input"), page.locator("#shown")
    search.fill("cora DFA, nowhere")
    assert page.evaluate(SHOWN) == []
    told = ("“cora”", "“dfa”", "“nowhere”", "commas", "spaces")
    assert [word for word in told if word not in said.inner_text()] == []
    search.fill("dfa")
    assert "“" not in said.inner_text()


def test_the_line_above_the_table_names_order_and_filters_as_the_table_does(page):
    said, head = page.locator("#shown"), page.locator("#table thead th").nth(6)
    head.locator("button").click()
    assert said.inner_text().endswith(f"; by {head.inner_text()}, smallest first")
    address = page.url.partition("#")[0]
    page.goto(f"{address}#task=a,b+c&verdict=undecided,walk+back")
    assert said.inner_text().endswith(": verdict undecided or walk back, task a,b c")


def test_a_view_is_its_address(page):
    page.locator(".tile[data-word='walk back']").click()
    page.locator("#filters select[name=task]").select_option("mnist1d")
    page.locator("#table thead button", has_text="Accuracy").click()
    page.locator("#table tbody tr:not([hidden]) th a").first.click()
    page.locator(".opened .method").wait_for()
    address, shown = page.url, page.evaluate(SHOWN)
    assert shown == ["DFA"]
    page.reload()
    page.locator(".opened .method").wait_for()
    assert (page.url, page.evaluate(SHOWN)) == (address, shown)
    assert page.locator("#filters select[name=task]").input_value() == "mnist1d"
    assert page.locator("th[aria-sort=ascending]").inner_text() == "Accuracy"
    for _ in range(2):  # back over the row that was opened, and over the order
        page.go_back()
    assert page.locator(".opened").count() == page.locator("th[aria-sort]").count() == 0
    assert page.evaluate(SHOWN) == ["DFA"]
    page.go_forward()
    assert page.locator("th[aria-sort]").count() == 1
    page.locator("#filters button", has_text="Clear").click()
    assert (page.evaluate(SHOWN) != shown, state(page)) == (True, {})


def test_a_browser_without_the_size_of_an_address_keeps_the_view_in_it(page):
    page.evaluate("delete URLSearchParams.prototype.size")
    page.locator(".tile[data-word='walk back']").click()
    assert state(page) == {"verdict": ["walk back"]}


def test_a_plain_link_to_a_row_or_a_check_works(page):
    row = page.locator("tr[data-method=FA]").get_attribute("id")
    address = page.url.partition("#")[0]
    page.goto(f"{address}#{row}")
    page.locator(f"tr[data-of={row}] .method").wait_for()
    page.goto(f"{address}#%zz")  # nobody here has written it
    page.goto(f"{address}#CS004")
    assert page.locator("#CS004").evaluate(IN_SIGHT)


@pytest.mark.parametrize("code", ["place+CS005", "toString+x", "__proto__+x", "answers+CS005"])
def test_an_address_with_a_kind_of_code_that_there_is_not_shows_nothing(page, code):
    page.goto(f"{page.url.partition('#')[0]}#code={code}")
    assert page.evaluate(SHOWN) == []
    assert page.locator("#shown").inner_text().startswith("0 of ")


@pytest.mark.parametrize("sort", ["constructor", "-toString", "no such"])
def test_an_address_with_an_order_that_there_is_not_leaves_it(page, sort):
    before, said = page.evaluate(SHOWN), page.locator("#shown").inner_text()
    page.goto(f"{page.url.partition('#')[0]}#sort={sort}")
    page.evaluate("draw()")
    assert (page.evaluate(SHOWN), page.locator("#shown").inner_text()) == (before, said)
    assert page.locator("th[aria-sort]").count() == 0


def test_the_grid_counts_verdicts_and_leads_to_its_methods(page, judged):
    page.locator("#filters button", has_text="Grid").click()
    cells = page.locator("#grid button").all()
    counted = [int(n) for cell in cells for n in re.findall(r"\d+", cell.inner_text())]
    assert sum(counted) == len(judged("every")["methods"])
    assert page.locator("#table").is_hidden()
    cell = page.locator("#grid button[data-rule=DFA][data-depth='20']")
    assert "depth 20" in cell.get_attribute("aria-label")
    cell.press("Enter")
    assert page.evaluate(SHOWN) == ["DFA"]
    assert (state(page)["rule"], state(page)["depth"]) == (["DFA"], ["20"])


def test_csv_holds_what_is_shown(page):
    page.locator("#filters input").fill("mnist1d")
    page.locator("#table thead button", has_text="Accuracy").click()
    with page.expect_download() as found:
        page.locator("#filters button", has_text="CSV").click()
    rows = list(csv.DictReader(io.StringIO(Path(found.value.path()).read_text(encoding="utf-8-sig"))))
    assert [row["method"] for row in rows] == page.evaluate(SHOWN)
    dfa = next(row for row in rows if row["method"] == "DFA")
    assert (dfa["task"], dfa["depth"], dfa["codes fired"].split()[0]) == ("mnist1d", "4", "CS001")
    assert dfa["id"] == page.locator("tr[data-method=DFA]:not([hidden])").get_attribute("id")
    cells = {"=1+1": "'=1+1", "−.25": "-.25", "a;=1+1": "a;=1+1", 'b","c': 'b"",""c', "d\te": "d e", "": ""}
    assert {text: page.evaluate("csvCell", text) for text in cells} == {text: f'"{c}"' for text, c in cells.items()}


def test_networks_and_methods_in_one_table_have_heads_that_fit_and_are_those_of_the_csv(visit, tmp_path):
    records = [*small(), network_record(bad_moment("CS106"))]
    write_report(judge_records(records, "mixed", Thresholds(), []), tmp_path / "mixed.html")
    page = visit(tmp_path / "mixed.html")
    heads = page.locator("#table thead th")
    assert [head for head in heads.all() if head.evaluate("e => e.scrollWidth > e.clientWidth + 1")] == []
    saved = list(csv.DictReader(io.StringIO(page.evaluate("rowsAsCsv()"))))
    shown = [text if text == "Γ" else text.lower() for text in heads.all_inner_texts()]
    assert "Γ" in shown
    assert list(saved[0])[1 : 1 + len(shown)] == shown
    for row in saved:
        answers = [row[head].split()[1] for head in shown[6:9]]
        assert answers in (["task", "signal", "training"], ["resolved", "credit", "depth"])


def test_navigation_and_head_stay_in_sight(page):
    page.set_viewport_size({"width": 1280, "height": 420})
    page.locator("#table tbody tr").last.scroll_into_view_if_needed()
    bar, head = page.locator("#bar").bounding_box(), page.locator("#table thead th").first.bounding_box()
    assert bar["y"] == 0
    assert head["y"] == pytest.approx(bar["height"], abs=2)
