"""Commands on the page: they can be read on a phone, and that of a row that is not packed shows its setting."""

import json
import shlex
from dataclasses import replace

import pytest
from builders import make_family, write_records
from looking import PHONE
from test_report_method import open_method

from creditscope.cli import main
from creditscope.report import build

pytestmark = pytest.mark.slow

OVERWRITTEN = {"h_rms": (1, 1, 326, 326, 326)}
RATES = (0.1, 0.2, 0.25, 0.3)
"""The second is what the third begins with."""
LONGEST = 30
"""Letters that a line of a phone has room for."""
BROKEN = """longest => {
  const lines = (node, from, to) => {
    const range = document.createRange();
    range.setStart(node, from);
    range.setEnd(node, to);
    return new Set([...range.getClientRects()].filter(box => box.width > 1).map(box => Math.round(box.top))).size;
  };
  const found = [];
  for (const code of document.querySelectorAll('code')) {
    if (!code.checkVisibility()) continue;
    const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    while (walker.nextNode())
      for (const word of walker.currentNode.data.matchAll(/\\S+/g))
        if (word[0].length <= longest && lines(walker.currentNode, word.index, word.index + word[0].length) > 1)
          found.push(word[0]);
  }
  return found;
}"""


@pytest.fixture
def crowded(tmp_path, monkeypatch):
    """Records of more settings than reasons are printed of, and a page that has room to open one of them."""
    specs = [(record, record.spec) for record in make_family(taps=OVERWRITTEN)]
    records = [replace(r, spec=replace(s, lr=lr)) for lr in RATES for r, s in specs if s]
    folder, page = write_records(tmp_path / "it's here" / "records", records), tmp_path / "report.html"
    monkeypatch.setattr(build, "MOST_BYTES", 1)
    main(["report", "--records", str(folder), "--out", str(page)])
    return page


def test_the_command_of_a_row_that_is_not_packed_prints_its_setting_with_reasons(visit, crowded, call):
    page = visit(crowded)
    rows = page.locator("tr[data-method=DFA]:not([data-chunk])")
    assert rows.count() == len(RATES) - 1
    page.locator("tr[data-method=DFA][data-chunk] th a").click()
    for row in rows.all():
        row.locator("th a").click()
        command = page.locator(f"tr[data-of={row.get_attribute('id')}] code").inner_text()
        words = shlex.split(command)[1:]
        (_, said, _), (_, judged, _) = call(*words), call(*words, "--json")
        methods = json.loads(judged)["methods"]
        assert {m["setting"] for m in methods} == {row.get_attribute("data-setting")}
        reasons = [f["message"] for m in methods for f in m["findings"] if f["code"] in m["verdict"]["codes"]]
        assert [reason for reason in reasons if reason not in " ".join(said.split())] == []
        assert reasons


@pytest.mark.parametrize("width", [320, 360, PHONE["width"], 430])
def test_lines_of_a_command_break_at_spaces_alone(visit, report, width):
    page = visit(report("every"), viewport={**PHONE, "width": width})
    for method in ("FA", "block FA"):
        open_method(page, method)
    assert page.locator(".command").count() == 3
    assert page.evaluate(BROKEN, LONGEST) == []


def test_what_is_copied_of_a_command_is_the_command(visit, report):
    page = visit(report("every"))
    command = page.locator("header .command code")
    assert shlex.split(command.inner_text())[:2] == ["creditscope", "run"]
    assert command.inner_text() == command.evaluate("e => e.textContent")
