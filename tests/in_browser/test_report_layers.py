"""A cell of a heatmap shows the numbers of the records behind it, by mouse and by keyboard; so does the slider."""

import math
import re
from statistics import fmean, geometric_mean

import numpy as np
import pytest
from looking import DESKTOP, PHONE
from reports import EPOCHS, varied

from creditscope.record import load_records

pytestmark = pytest.mark.slow

OVER_SEEDS = {"cos": fmean, "rho": fmean, "g_norm": geometric_mean, "h_norm": geometric_mean}
TAPS = 5
CELLS = [(0, 0), (0, TAPS - 1), (len(EPOCHS) - 1, 0), (len(EPOCHS) - 1, TAPS - 1), (3, 2)]
"""Columns and taps: the corners and one in the middle."""


@pytest.fixture(scope="session")
def recorded(folder):
    """The values of a quantity at one epoch and tap, by seed, as the records have them."""
    records = [r for r in load_records(folder("small")) if r.spec and not r.spec.frozen]

    def read(method: str, quantity: str, epoch: int, tap: int) -> dict[int, float | None]:
        runs = {r.spec.seed: r for r in records if r.spec and r.facts.rule.label == method}
        moments = {seed: next(s for s in run.snapshots if s.epoch == epoch) for seed, run in sorted(runs.items())}
        return {seed: getattr(moment.taps, quantity)[tap] for seed, moment in moments.items()}

    return read


def number(text: str) -> float | None:
    """The first number in a text; None for a dash."""
    found = re.search(r"-?\d[\d.]*(?:e[-+]?\d+)?", text.replace("−", "-"))
    return float(found.group()) if found else None


def rounded(value: float | None) -> float | None:
    """To the four digits that the page prints."""
    return None if value is None else float(f"{value:.4g}")


MIDDLES = """e => ['.x text', '.y text'].map(which => {
  const whole = e.getBoundingClientRect();
  return [...e.querySelectorAll(which)].map(text => {
    const box = text.getBoundingClientRect();
    return [Number(text.textContent), box.x + box.width / 2 - whole.x, box.y + box.height / 2 - whole.y];
  });
})"""


def about(mean: float):
    """To the three digits of a mean on the page, which is one of values with four: a tie may fall to either side."""
    return pytest.approx(mean, rel=0, abs=0.56 * 10.0 ** (math.floor(math.log10(abs(mean))) - 2))


def place(heat, column: int, tap: int) -> dict[str, float]:
    """Where a reader would look for a cell, in the pixels of its element: between the labels of both axes."""
    below, beside = heat.evaluate(MIDDLES)
    across = sorted((EPOCHS.index(int(epoch)), x) for epoch, x, _ in below)
    up = sorted((int(label), y) for label, _, y in beside)
    return {
        "x": float(np.interp(column, *zip(*across, strict=True))),
        "y": float(np.interp(tap, *zip(*up, strict=True))),
    }


def check_detail(page, recorded, method: str, quantity: str, column: int, tap: int) -> None:
    """The panel names the cell and shows its mean and, to four digits, every seed's value."""
    epoch = EPOCHS[column]
    values = recorded(method, quantity, epoch, tap)
    detail = page.locator("#detail")
    title = detail.locator("h4").inner_text()
    assert title.startswith(f"{method} · ")
    assert f"tap {tap} (" in title
    assert title.endswith(f"epoch {epoch}")
    mean = OVER_SEEDS[quantity]([v for v in values.values() if v is not None])
    assert number(detail.locator(".big").inner_text()) == about(mean)
    shown = dict(zip(detail.locator("dt").all_inner_texts(), detail.locator("dd").all_inner_texts(), strict=True))
    assert {seed: number(shown[f"seed {seed}"]) for seed in values} == {s: rounded(v) for s, v in values.items()}


@pytest.mark.parametrize(("method", "quantity", "screen"), [("DFA", "cos", PHONE), ("BP", "g_norm", DESKTOP)])
def test_a_click_shows_the_cell(visit, report, recorded, method, quantity, screen):
    page = visit(report("small"), viewport=screen)
    heat = page.locator(f"[data-heatmap][data-method={method}][data-quantity={quantity}]")
    for column, tap in CELLS:
        heat.click(position=place(heat, column, tap))
        check_detail(page, recorded, method, quantity, column, tap)
        if page.locator("#detail button").is_visible():
            page.locator("#detail button").click()
            assert not page.locator("#detail").is_visible()


def test_arrows_and_enter_show_the_cell(visit, report, recorded):
    page = visit(report("small"))
    heat = page.locator("[data-heatmap][data-method=DFA][data-quantity=g_norm]")
    # a region that is not displayed while it is filled would not be read out
    assert page.locator("#detail").evaluate("e => [getComputedStyle(e).display, e.childElementCount]") == ["block", 0]
    heat.press("Enter")
    check_detail(page, recorded, "DFA", "g_norm", len(EPOCHS) - 1, TAPS - 1)
    for key, column, tap in [("ArrowLeft", 4, 4), ("ArrowDown", 4, 3), ("ArrowUp", 4, 4), ("ArrowRight", 5, 4)]:
        heat.press(key)
        check_detail(page, recorded, "DFA", "g_norm", column, tap)
    for _ in range(9):
        heat.press("ArrowLeft")
        heat.press("ArrowDown")
    check_detail(page, recorded, "DFA", "g_norm", 0, 0)
    heat.press("Escape")
    assert not page.locator("#detail").is_visible()
    assert heat.evaluate("e => e === document.activeElement")
    page.locator("[data-heatmap][data-method=DFA][data-quantity=rho]").press("Enter")
    check_detail(page, recorded, "DFA", "rho", len(EPOCHS) - 1, TAPS - 1)


def test_tab_reaches_a_heatmap(visit, report):
    page = visit(report("small"))
    page.locator("#layers summary").first.focus()
    for _ in range(4):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.matches('[data-heatmap]')"):
            break
    assert page.evaluate("() => document.activeElement.matches('[data-heatmap]')")
    assert page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") not in ("none", "")


def test_a_cell_without_a_value_looks_and_says_so(visit, report, recorded):
    page = visit(report("small"))
    assert set(recorded("DFA", "cos", EPOCHS[2], 2).values()) == {None}
    heat = page.locator("[data-heatmap][data-method=DFA][data-quantity=cos]")
    heat.scroll_into_view_if_needed()
    box = heat.bounding_box()

    def ground(column: int, tap: int) -> str:
        at = [box[side] + shift for side, shift in place(heat, column, tap).items()]
        return page.evaluate("([x, y]) => document.elementFromPoint(x, y).getAttribute('class')", at)

    assert ground(2, 2) == "gap"
    assert all(re.fullmatch(r"d\d+", ground(column, tap)) for column, tap in [(1, 2), (3, 2), (2, 1), (2, 3)])
    heat.click(position=place(heat, 2, 2))
    assert page.locator("#detail .big").inner_text() == "not measured"


def test_the_slider_marks_a_column_and_shows_its_values(visit, report, recorded):
    page = visit(report("small"))
    layers = page.locator("#layers details.setting").first
    slider, table = layers.locator("input[type=range]"), layers.locator(".at-epoch table")
    heats = layers.locator("[data-heatmap]").all()
    for key, column in [("Home", 0), ("ArrowRight", 1), ("ArrowRight", 2), ("End", len(EPOCHS) - 1)]:
        slider.press(key)
        epoch = EPOCHS[column]
        assert layers.locator("output").inner_text() == str(epoch)
        for heat in heats:
            marked, whole = heat.locator("rect.column").bounding_box(), heat.bounding_box()
            middle = marked["x"] - whole["x"] + marked["width"] / 2
            assert middle == pytest.approx(place(heat, column, 0)["x"], abs=marked["width"] / 4)
        check_table(table, recorded, "cos", epoch)
    layers.locator("select").select_option("g_norm")
    check_table(table, recorded, "g_norm", EPOCHS[-1])


def check_table(table, recorded, quantity: str, epoch: int) -> None:
    """Every method's mean over seeds at every tap, the last tap on top."""
    head, *rows = (row.split("\t") for row in table.locator("tr").all_inner_texts())
    assert head[1:] == ["BP", "DFA"]
    for tap, row in zip(reversed(range(TAPS)), rows, strict=True):
        assert row[0].startswith(f"{tap} ")
        for method, text in zip(head[1:], row[1:], strict=True):
            known = [v for v in recorded(method, quantity, epoch, tap).values() if v is not None]
            assert number(text) == (about(OVER_SEEDS[quantity](known)) if known else None)


COVERED = """e => {
  const cell = e.querySelector('.chosen').getBoundingClientRect();
  const there = document.elementFromPoint(cell.x + cell.width / 2, cell.y + cell.height / 2);
  return there ? !e.contains(there) : true;
}"""


@pytest.mark.parametrize("screen", [PHONE, DESKTOP, {"width": 800, "height": 600}])
def test_the_panel_leaves_its_cell_in_sight(visit, report, screen):
    page = visit(report("small"), viewport=screen)
    heats = page.locator("[data-heatmap]").all()
    assert heats
    for heat in heats:
        for edge in ("end", "start"):
            heat.focus()
            heat.evaluate("(e, edge) => e.scrollIntoView({block: edge})", edge)
            for key in ("Enter", "ArrowDown", "ArrowLeft"):
                heat.press(key)
                assert not heat.evaluate(COVERED)


def test_the_slider_stays_in_sight_beside_its_table(visit, report):
    page = visit(report("small"), viewport={"width": 1280, "height": 420})
    layers = page.locator("#layers details.setting").first
    layers.locator(".at-epoch").evaluate("e => e.scrollIntoView({block: 'end'})")
    box = layers.locator("input[type=range]").bounding_box()
    assert 0 <= box["y"] < 420 - box["height"]


def test_keys_of_the_browser_are_left_to_it(visit, report):
    page = visit(report("small"))
    heat = page.locator("[data-heatmap]").first
    heat.press("Enter")
    title = page.locator("#detail h4").inner_text()
    page.evaluate("() => { window.kept = []; addEventListener('keydown', e => kept.push(e.defaultPrevented)); }")
    heat.press("Control+ArrowLeft")
    heat.press("ArrowDown")
    assert page.evaluate("() => kept.slice(1)")[0] is False
    assert page.evaluate("() => kept").count(True) == 1
    assert page.locator("#detail h4").inner_text() != title


def test_a_method_with_fewer_taps_leaves_cells_empty(visit_records):
    page = visit_records([varied("bp", depth=2), varied("dfa", depth=4)])
    page.locator("#layers select").select_option("g_norm")
    rows = [row.split("\t") for row in page.locator(".at-epoch tbody tr").all_inner_texts()]
    assert [row[0].split()[0] for row in rows] == ["4", "3", "2", "1", "0"]
    assert [bool(row[1].strip()) for row in rows] == [False, False, True, True, True]
    assert all(number(row[2]) for row in rows)


@pytest.mark.parametrize(("rules", "quantity"), [(("bp",), "g_norm"), (("bp", "dfa"), "cos")])
def test_the_table_begins_with_what_is_not_told(visit_records, rules, quantity):
    assert visit_records([varied(rule) for rule in rules]).locator("#layers select").input_value() == quantity
