"""What a row opens: the numbers of the records behind it, by mouse and by keyboard; checks, charts and the card."""

import math
import re
from statistics import fmean, geometric_mean

import pytest
from looking import PHONE
from reports import EPOCHS

from creditscope.record import load_records

pytestmark = pytest.mark.slow

OVER_SEEDS = {"cos": fmean, "rho": fmean, "g_norm": geometric_mean, "h_norm": geometric_mean}
TAPS = 5
LAST = len(EPOCHS) - 1


@pytest.fixture(scope="session")
def recorded(folder):
    """The values of a quantity at one epoch and tap, by seed, as the records have them."""
    records = [r for r in load_records(folder("small")) if r.spec and not r.spec.frozen]

    def read(method: str, quantity: str, column: int, tap: int) -> dict[int, float | None]:
        runs = {r.spec.seed: r for r in records if r.spec and r.facts.rule.label == method}
        return {seed: getattr(run.snapshots[column].taps, quantity)[tap] for seed, run in sorted(runs.items())}

    return read


def open_method(page, name: str):
    """Open the row of a method; gives what it opened."""
    row = page.locator(f"tr[data-verdict][data-method='{name}']:not([hidden])").first
    row.locator("th a").click()
    opened = page.locator(f"tr[data-of={row.get_attribute('id')}] .method")
    opened.wait_for()
    return opened


def test_opening_a_row_leaves_the_focus_and_what_was_scrolled(visit, report):
    page = visit(report("small"))
    opened = open_method(page, "BP")
    card = opened.locator("details.card")
    card.locator("summary").click()
    card.locator("pre").evaluate("e => e.scrollTop = 40")
    link = page.locator("tr[data-method=DFA] th a")
    for many in (2, 1):
        link.press("Enter")
        assert page.locator(".opened").count() == many
        assert link.evaluate("e => e === document.activeElement")
        assert card.locator("pre").evaluate("e => e.scrollTop") == 40


def test_what_is_open_follows_its_row_in_every_order(visit, report):
    page = visit(report("small"))
    methods = [method for method in ("DFA", "BP") if open_method(page, method)]
    for _ in range(3):  # both ways, and as it was
        page.locator("#table thead button", has_text="Method").click()
        names = page.locator("#table > tbody > tr").evaluate_all("rows => rows.map(e => e.id || e.dataset.of)")
        assert names[::2] == names[1::2]
        assert len(names) == 2 * len(methods)


def number(text: str) -> float | None:
    found = re.search(r"-?\d[\d.]*(?:e[-+]?\d+)?", text.replace("−", "-"))
    return float(found.group()) if found else None


def about(mean: float):
    """To the three digits of a mean on the page, which is one of values with four: a tie may fall to either side."""
    return pytest.approx(mean, rel=0, abs=0.56 * 10.0 ** (math.floor(math.log10(abs(mean))) - 2))


def check_tip(page, recorded, method: str, quantity: str, column: int, tap: int) -> None:
    """It names the cell and tells its mean and every seed's value, to four digits."""
    values, tip = recorded(method, quantity, column, tap), page.locator("#tip")
    assert f"tap {tap} (" in tip.locator("b").inner_text()
    assert tip.locator("b").inner_text().endswith(f"epoch {EPOCHS[column]}")
    known = [v for v in values.values() if v is not None]
    if not known:
        assert tip.locator(".big").inner_text() == "not measured"
        return
    assert number(tip.locator(".big").inner_text()) == about(OVER_SEEDS[quantity](known))
    shown = {int(seed): number(v) for seed, v in re.findall(r"seed (\d+) (\S+)", tip.locator(".seeds").inner_text())}
    assert shown == {seed: float(f"{value:.4g}") for seed, value in values.items()}


def middle(heat, column: int, tap: int) -> dict[str, float]:
    """Where a cell is, in the pixels of its element, by the places of its labels."""
    box, wide = heat.bounding_box(), heat.evaluate("e => e.viewBox.baseVal.width")
    cell = [float(size) for size in heat.get_attribute("data-cell").split(",")]
    scale = box["width"] / wide
    return {"x": scale * (22 + (column + 0.5) * cell[0]), "y": scale * (3 + (TAPS - tap - 0.5) * cell[1])}


@pytest.mark.parametrize(("method", "quantity", "options"), [("DFA", "cos", {"viewport": PHONE}), ("BP", "g_norm", {})])
def test_pointing_at_a_cell_tells_its_numbers(visit, report, recorded, method, quantity, options):
    page = visit(report("small"), **options)
    heat = open_method(page, method).locator(f"[data-quantity={quantity}]")
    for column, tap in [(0, 0), (LAST, TAPS - 1), (3, 2), (2, 2)]:  # the last has no cosine under DFA
        heat.hover(position=middle(heat, column, tap))
        check_tip(page, recorded, method, quantity, column, tap)
    labels = heat.locator(".x text").all_text_contents()
    assert (labels[0], labels[-1]) == (str(EPOCHS[0]), str(EPOCHS[-1]))
    box, column = heat.bounding_box(), heat.evaluate("e => e.parentElement.clientWidth")
    assert box["width"] == pytest.approx(column, abs=1)


def test_keys_tell_the_cells_and_leave_the_browsers_to_it(visit, report, recorded):
    page = visit(report("small"))
    opened = open_method(page, "DFA")
    heat = opened.locator("[data-quantity=g_norm]")
    heat.press("Enter")
    check_tip(page, recorded, "DFA", "g_norm", LAST, TAPS - 1)
    for key, column, tap in [("ArrowLeft", 4, 4), ("ArrowDown", 4, 3), ("ArrowUp", 4, 4), ("ArrowRight", 5, 4)]:
        heat.press(key)
        check_tip(page, recorded, "DFA", "g_norm", column, tap)
    heat.press("Control+ArrowLeft")
    check_tip(page, recorded, "DFA", "g_norm", LAST, TAPS - 1)
    heat.press("Escape")
    assert page.locator("#tip").inner_text() == ""
    assert heat.evaluate("e => getComputedStyle(e).outlineStyle") not in ("none", "")
    chart = opened.locator("svg.chart").first
    chart.press("ArrowLeft")
    assert page.locator("#tip b").inner_text() == f"epoch {EPOCHS[-1]}"
    chart.press("ArrowLeft")
    told = dict(zip(*(page.locator(f"#tip {tag}").all_inner_texts() for tag in ("dt", "dd")), strict=True))
    assert told == dict.fromkeys(("BP", "DFA"), "0.65")  # accuracy at epoch 5
    page.locator("tr[data-method=DFA] th a").focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    assert "tap 1 (" in page.locator("#tip").inner_text()


def test_a_sparkline_and_reasons_are_told_beside_the_pointer(visit, report, judged):
    page = visit(report("small"))
    row = page.locator("tr[data-method=DFA]")
    row.locator(".spark").hover(position={"x": 2, "y": 8})
    assert "tap 1 (" in page.locator("#tip").inner_text()
    row.locator(".why").hover(position={"x": 150, "y": 6})
    (dfa,) = (m for m in judged("small")["methods"] if m["method"] == "DFA")
    messages = {f["code"]: f["message"].rstrip(".") for f in dfa["findings"]}
    assert [c for c in dfa["verdict"]["codes"] if messages[c] not in page.locator("#tip").inner_text()] == []


def test_checks_answers_and_card_are_those_of_the_audit(visit, report, judged):
    page = visit(report("small"), permissions=["clipboard-read", "clipboard-write"])
    assert page.locator("svg.heat").count() == 0  # drawn when opened
    opened = open_method(page, "DFA")
    (dfa,) = (m for m in judged("small")["methods"] if m["method"] == "DFA")
    rows = [row.split("\t") for row in opened.locator(".checks tbody tr").all_inner_texts()]
    shown = {code: (outcome.split(" ", 1)[1], said) for codes, outcome, said, *_ in rows for code in codes.split()}
    assert shown == {f["code"]: (f["outcome"], f["message"]) for f in dfa["findings"]}
    questions = [line["question"] for line in dfa["verdict"]["lines"]]
    assert [h.split(" ", 1)[1] for h in opened.locator(".answers h4").all_inner_texts()[:3]] == questions
    assert opened.locator("table.taps tbody tr").count() == TAPS
    assert opened.locator(".line.own").count() == opened.locator("svg.chart").count() > 2
    card = opened.locator("details.card")
    card.locator("summary").click()
    card.locator("button").click()
    card.get_by_text("Copied").wait_for()
    assert page.evaluate("() => navigator.clipboard.readText()") == card.locator("pre").inner_text()
    opened.locator(".close").click()
    assert page.locator(".opened").count() == 0
    assert page.evaluate("() => document.activeElement.closest('tr').dataset.method") == "DFA"
