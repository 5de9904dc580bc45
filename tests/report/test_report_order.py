"""What a reader meets first, in which colour, and what has no map."""

import re

import pytest
from builders import make_facts, make_family, make_record, make_snapshot
from reading import Page

from creditscope.auditing import Thresholds
from creditscope.report import build_report, judge_records, render
from creditscope.rule_styles import LOOKS


def text_of(records, *, against=None) -> str:
    before = None if against is None else judge_records(list(against), "before", Thresholds(), [])
    return render(build_report(judge_records(list(records), "here", Thresholds(), []), against=before))


def family(rule: str, *, rho_at: tuple[int, ...], epochs: int):
    """Two seeds over epochs, with ρ at some of them only."""
    snapshots = [
        make_snapshot(make_facts(rule=rule), epoch=e, taps={} if e in rho_at else {"rho": ()}) for e in range(epochs)
    ]
    return [make_record(rule=rule, seed=s, epochs=epochs - 1, snapshots=snapshots) for s in (1, 2)]


@pytest.mark.parametrize(
    ("rho_at", "epochs", "drawn"), [((0, 4), 5, False), ((0, 2, 4), 5, True), ((0, 1), 2, True), ((1,), 2, False)]
)
def test_a_quantity_at_hardly_any_epoch_has_no_map_and_is_said(rho_at, epochs, drawn):
    page = Page(text_of(family("dfa", rho_at=rho_at, epochs=epochs)))
    assert [bool(page.all("svg", data_quantity=name)) for name in ("cos", "rho")] == [True, drawn]
    said = "ρ, correlation of credit with the change of the loss, was measured at epoch"
    assert (said in page.text) == (not drawn)
    if not drawn:
        assert f"{', '.join(map(str, rho_at))} only, too few for a map" in page.text
    assert "rho" in page.data["methods"][0]["values"]  # the slider's table has it


def test_the_protocol_stands_beside_the_name():
    text = text_of(make_family("dfa", taps={"cos": 0.01, "cos_F": 0.01, "stage_cos": 0.0}))
    head = re.search(r"<table class=matrix>.*?<thead><tr>(.*?)<tbody>", text.replace("\n", ""))
    assert head
    assert re.findall(r"<th scope=col>([^<]*)", head[1])[:2] == ["Method", "Protocol"]
    row = re.search(r"<tr><th scope=row>DFA<td class=(j-\w\w)>(.)", text)
    assert row
    assert row.groups() == ("j-wa", "✗")


def test_what_changed_comes_right_after_the_verdicts():
    page = Page(text_of(make_family("dfa"), against=make_family("dfa")))
    assert [found["id"] for found in page.all("section")][:3] == ["verdicts", "against", "layers"]
    links = [found["href"] for found in page.all("a", href="*")]
    assert links.index("#verdicts") < links.index("#against") < links.index("#layers")


def test_a_rule_has_its_colour_in_any_company():
    def colours(rules: tuple[str, ...]) -> dict[str, str]:
        text = text_of([r for rule in rules for r in family(rule, rho_at=(), epochs=4)])
        light = dict(
            re.findall(
                r"--(c\d+):(#\w+);",
                text.split("@media screen and (prefers-color-scheme:dark)")[0].rsplit(":root", 1)[1],
            )
        )
        drawn = re.findall(r'class="lead (c\d+)".*?<text[^>]*>([^<]*)<', text)
        return {label: light[name] for name, label in drawn}

    assert colours(("dfa",)) == {"DFA": LOOKS["dfa"].colour}
    assert colours(("fa", "dfa", "block_fa", "bp")) == {
        look.label: look.colour for name, look in LOOKS.items() if name in ("bp", "fa", "block_fa", "dfa")
    }
