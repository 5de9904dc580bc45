"""Five questions of a newcomer, each answered within two clicks, on the paths that docs/report.md tells."""

import re

import pytest
from test_report_method import open_method

pytestmark = pytest.mark.slow


class Visitor:
    """Counts clicks."""

    def __init__(self, page):
        self.page, self.clicks = page, 0

    def click(self, selector: str) -> None:
        self.page.locator(selector).first.click()
        self.clicks += 1


@pytest.fixture
def newcomer(visit, report):
    found = Visitor(visit(report("every")))
    yield found
    assert found.clicks <= 2


def test_which_rules_can_be_trusted(newcomer, judged):
    newcomer.click(".tile[data-word=trustworthy]")
    shown = newcomer.page.locator("#table tbody tr:visible th").all_inner_texts()
    trusted = [m["method"] for m in judged("every")["methods"] if m["verdict"]["word"] == "trustworthy"]
    assert shown == trusted != []


def test_why_is_dfa_walked_back_and_which_layer(newcomer, judged):
    newcomer.click("tr[data-method=DFA][data-verdict='walk back'] th a")
    opened = newcomer.page.locator(".opened .method")
    opened.wait_for()
    dfa = next(m for m in judged("every")["methods"] if m["method"] == "DFA" and m["verdict"]["word"] == "walk back")
    reasons = opened.locator(".answers").inner_text()
    assert [f for f in dfa["findings"] if f["code"] in dfa["verdict"]["codes"] and f["message"] not in reasons] == []
    assert opened.get_by_role("heading", name="Which layer").count() == 1
    layers = [row.split("\t") for row in opened.locator("table.taps tbody tr").all_inner_texts()]
    for cells, tap in zip(reversed(layers), dfa["per_tap"], strict=True):
        assert cells[0].split(" ")[1] == tap["name"]
        assert f"{tap['cos']['mean']:+.3f}" in cells[1]


def test_what_would_settle_the_undecided(newcomer):
    newcomer.click(".tile[data-word=undecided]")
    newcomer.click("#table tbody tr:not([hidden]) th a")
    following = newcomer.page.locator(".opened .next")
    following.wait_for()
    command = following.locator("code").first.inner_text()
    reasons = newcomer.page.locator(".opened .answers").inner_text()
    needed = int(re.search(r"about (\d+) seeds would decide", reasons)[1])
    assert command.startswith("creditscope run ")
    assert len(re.search(r"--seeds ([\d ]+)", command)[1].split()) == needed


def test_what_do_i_run_next(newcomer):
    """The head tells one command for all that lack an input; a row its own."""
    head = newcomer.page.locator("header .command").inner_text()
    assert "--baselines" in head
    newcomer.click(".tile[data-word='not measured']")
    newcomer.click("#table tbody tr:not([hidden]) th a")
    newcomer.page.locator(".opened .next code").first.wait_for()
    assert "--baselines" in newcomer.page.locator(".opened .next .command").inner_text()


def test_what_to_do_about_a_method_that_is_walked_back(visit, report):
    opened = open_method(visit(report("small")), "DFA")
    assert opened.locator(".next li").count() == len(set(opened.locator(".next li a").all_inner_texts())) >= 1
