"""Reporting cards: the facts in them, and that nothing unmeasured looks measured."""

import json
from dataclasses import replace

import pytest
from builders import QUICK, make_family, make_record, make_snapshot
from judging import CHECKS, blind_taps

from creditscope.auditing import Thresholds, audit
from creditscope.auditing.card import Card, write_cards
from creditscope.record import RuleFacts

RULE = RuleFacts(name="dfa", label="DFA", formula="a_l = B_l e", needs_feedback=True)
NET = {"depth": 4, "terminal_norm": True}


@pytest.fixture(scope="module")
def card() -> Card:
    """DFA over three seeds, with two rungs of the ladder, one blind tap."""
    blind = {**blind_taps(2), "cos": (0.3, 0.3, 0.01, 0.3, 0.3), "cos_F": 0.3}
    known = {"facts": {"rule": RULE}, "net_options": NET, "rule_options": {"scale": "unit"}}
    runs = [make_record(seed=s, accuracy=0.5 + 0.01 * s, taps=blind, **known) for s in (1, 2, 3)]
    runs += [make_record(seed=s, accuracy=0.45, train_last=2, **known) for s in (1, 2, 3)]
    runs += [make_record(seed=s, accuracy=0.4, frozen=True, **known) for s in (1, 2, 3)]
    for frozen, accuracy in ((False, 0.7), (True, 0.4)):
        runs += [make_record(rule="bp", seed=s, frozen=frozen, accuracy=accuracy, net_options=NET) for s in (1, 2, 3)]
    (found,) = [c for c in audit(runs, limits=Thresholds(noise=0.2)).cards() if c.method == "DFA"]
    return found


def states(card: Card) -> dict[str, str]:
    return {p.title: p.state for p in card.pitfalls}


def test_it_says_what_was_trained(card):
    about = card.about
    assert about["rule"] == "DFA (`dfa`)"
    assert about["credit formula"] == "a_l = B_l e"
    assert about["feedback"].startswith("scale unit; drawn once per seed")
    assert "angle of W and B at the end 0° to 0°" in about["feedback"]  # 0.5° in the builder
    assert (about["net"], about["terminal norm"]) == ("resmlp (depth 4, terminal_norm True)", "yes")
    assert (about["task"], about["seeds"]) == ("mnist1d, true targets", "1, 2, 3")


def test_it_gives_the_rows_that_were_measured_on_not_those_asked_for():
    """A task with fewer test rows than eval_rows is measured on all that it has."""
    few = replace(make_snapshot(), rows=397)
    (card,) = audit([make_record(snapshots=[few], eval_rows=1024, facts={"test_rows": 397})]).cards()
    assert card.about["measured at"] == "tier standard, 397 test rows; accuracy over 397 test rows"


def test_it_has_results_with_intervals(card):
    accuracy, gain = card.results["accuracy"], card.results["Δ over the better frozen"]
    assert accuracy is not None
    assert gain is not None
    assert (accuracy.mean, accuracy.n, accuracy.low is not None) == (pytest.approx(0.52), 3, True)
    assert gain.mean == pytest.approx(0.12)
    assert card.results["Γ"] is not None
    assert "over taps 1, 2, 3, 4 (tap 0 is the stem and not in it)" in card.gamma_over


def test_the_markdown_holds_the_numbers(card):
    text = card.to_markdown()
    assert text.startswith("# DFA · mnist1d · resmlp (depth 4) · 1 epoch\n\n**walk back (CS005)**")
    (tap,) = [line for line in text.splitlines() if line.startswith("| 2 blocks.1")]
    cells = [cell.strip() for cell in tap.strip("|").split("|")]
    head = next(line for line in text.splitlines() if line.startswith("| tap |"))
    shown = dict(zip([name.strip() for name in head.strip("|").split("|")], cells, strict=True))
    assert shown | {
        "cos": "+0.010 ± 0.000",
        "answer": "✗ below",
        "null sd": "0.029",  # 0.05/√3
        "cos_F": "+0.300 ± 0.000",
        "cos of weights": "+0.000 ± 0.000",
        "weights' null sd": "0.029",
        "acquired": "−0.090 ± 0.000",
        "lost, put back": "+0.050 ± 0.000",
        "lost, skipped": "−0.130 ± 0.025",
    } == shown  # fmt: skip
    assert "Trained depth (CS011): 4 of 4 blocks (BP 4)." in text
    assert "0.020 ± 0.010 sd" in cells
    assert "| 2 | 0.450 ± 0.000 | +0.070 ± 0.025 |" in text  # the rung of the ladder
    check = CHECKS["CS005"]
    assert f"| CS005 {check.title} | ✗ issue |" in text
    assert f"\n- CS005 {check.title}: {check.remedy}" in text
    assert "](docs/" not in text  # a card is read where the manual's pages are not
    assert "`noise` 0.2" in text
    assert "| accuracy | 0.520 ± 0.025 |" in text
    assert "| accuracy − BP | −0.180 ± 0.025 |" in text
    assert "Not measured:" not in text


def test_pitfalls_are_ticked_by_what_was_measured(card):
    found = states(card)
    assert found["No null per tap"] == "avoided"
    assert found["Γ from a tap that is handed the answer"] == "avoided"
    assert found["No frozen baseline, or one of another trainer"] == "avoided"
    assert found["A second witness that is not independent"] == "avoided"
    assert found["A mean that hides the layers"] == "avoided"
    evidence = {p.title: p.evidence for p in card.pitfalls}
    assert "of 8 fresh draws" in evidence["Alignment of the drawn feedback taken for learnt alignment"]
    assert "15000 rows used, 0 without gradient" in evidence["Clamped cosines; rows without gradient scored"]
    text = card.to_markdown()
    assert text.count("- [x] ") + text.count("- [ ] ") == len(card.pitfalls)


def test_what_was_not_measured_is_not_ticked():
    poor = make_record(taps={**QUICK, "g_noise": None, "null_sd": None}, facts={"rule": RULE})
    (card,) = audit([poor]).cards()
    found = states(card)
    unmeasured = [title for title, state in found.items() if state == "not measured"]
    assert unmeasured == [
        "A floor that a change of units crosses",
        "No null per tap",
        "Not rejecting taken for nothing there",
        "Alignment of the drawn feedback taken for learnt alignment",
        "A second witness that is not independent",
        "No weight-space alignment",
        "No frozen baseline, or one of another trainer",
        "A task that needs no depth",
        "One trained block taken for depth",
    ]
    assert [title for title, state in found.items() if state == "met"] == [
        "One seed, or seeds chosen afterwards",
        "No interval",
    ]
    text = card.to_markdown()
    assert all(f"- [ ] {title}: *not measured*" in text for title in unmeasured)
    missing = text.partition("Not measured: ")[2].partition(".\n")[0].split(", ")
    assert {"answer", "null sd", "cos of weights", "fresh cos", "descent", "g_noise", "probe"} <= set(missing)
    assert not {"cos", "β", "draw noise"} & set(missing)


def test_a_pitfall_that_was_met_is_said():
    (card,) = [
        c
        for c in audit(make_family(taps=blind_taps(2, 3, 4), facts={"rows_interact": True})).cards()
        if c.method == "DFA"
    ]
    assert (states(card)["A mean that hides the layers"], states(card)["Rows that interact"]) == ("met", "met")
    (bp,) = audit(make_family("bp", accuracy=0.42)).cards()
    assert states(bp)["A task that needs no depth"] == "met"


def test_exact_credit_everywhere_is_no_pitfall_and_no_merit():
    (bp,) = audit(make_family("bp")).cards()
    assert {t for t, s in states(bp).items() if s == "not applicable"} >= {
        "No null per tap",
        "Γ from a tap that is handed the answer",
        "A second witness that is not independent",
    }


def test_a_watched_model_has_a_card():
    record = make_record(facts={"trainer": False})
    (card,) = audit([type(record)(None, record.provenance, record.snapshots)]).cards()
    assert (card.about["net"], "recipe" in card.about) == ("watched model", False)
    assert "**not measured (CS004)**" in card.to_markdown()


def test_files_have_names_of_their_own(tmp_path):
    records = [*make_family(), *(make_record(lr=0.5, seed=s) for s in (1, 2))]
    paths = write_cards(audit(records).cards(), tmp_path / "cards")
    assert len({p.name for p in paths}) == len(paths) == 6
    assert sorted(p.suffix for p in paths) == [".json"] * 3 + [".md"] * 3
    read = [json.loads(p.read_text(), parse_constant=float) for p in paths if p.suffix == ".json"]
    assert {(r["method"], r["verdict"]["word"]) for r in read} == {
        ("BP", "trustworthy"),
        ("DFA", "trustworthy"),
        ("DFA", "not measured"),
    }
    assert read[0]["per_tap"][0]["cos"]["n"] == 3
    assert read[0]["limits"]["growth"] == 50
