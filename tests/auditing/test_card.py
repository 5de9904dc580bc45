"""Reporting cards: the facts in them, and that nothing unmeasured looks measured."""

import json
from dataclasses import replace

import pytest
from builders import QUICK, make_family, make_record, make_snapshot
from judging import CHECKS, blind_taps
from markdown_it import MarkdownIt

from creditscope.auditing import Thresholds, audit
from creditscope.auditing.card import Card, write_cards
from creditscope.auditing.strip import write_markdown
from creditscope.record import RuleFacts
from creditscope.report import judge_records, write_report
from creditscope.text import visible

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


def test_it_says_what_was_trained(card):
    expected = {
        "rule": "DFA (`dfa`)",
        "credit formula": "a_l = B_l e",
        "net": "resmlp (depth 4, terminal_norm True)",
        "terminal norm": "yes",
        "task": "mnist1d, true targets",
        "seeds": "1, 2, 3",
    }
    assert card.about | expected == card.about
    assert ("scale unit" in card.about["feedback"], "0° to 0°" in card.about["feedback"]) == (True, True)  # 0.5°


def test_it_gives_the_rows_that_were_measured_on_not_those_asked_for():
    """A task with fewer test rows than eval_rows is measured on all that it has."""
    few = replace(make_snapshot(), rows=397)
    (card,) = audit([make_record(snapshots=[few], eval_rows=1024, facts={"test_rows": 397})]).cards()
    assert card.about["measured at"].count("397 test rows") == 2


def test_it_has_results_with_intervals(card):
    accuracy, gain = card.results["accuracy"], card.results["Δ over the better frozen"]
    assert (accuracy.mean, accuracy.n, accuracy.low is not None) == (pytest.approx(0.52), 3, True)
    assert gain.mean == pytest.approx(0.12)
    assert card.results["Γ"] is not None
    assert "taps 1, 2, 3, 4" in card.gamma_over


def read_table(text: str, first: str) -> list[dict[str, str]]:
    """The rows of the Markdown table whose first heading this is."""
    lines = text[text.index(f"\n| {first} |") + 1 :].partition("\n\n")[0].splitlines()
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_the_markdown_holds_the_numbers(card):
    text = card.to_markdown()
    assert text.startswith(f"# DFA · {card.setting}\n\n{write_markdown([card.strip])}\n\n**walk back (CS005)**")
    (tap,) = [row for row in read_table(text, "tap") if row["tap"] == "2 blocks.1"]
    assert tap | {
        "cos": "+0.010 ± 0.000",
        "answer": "✗ below",
        "null sd": "0.029",  # 0.05/√3
        "cos_F": "+0.300 ± 0.000",
        "cos of weights": "+0.000 ± 0.000",
        "weights' null sd": "0.029",
        "acquired": "−0.090 ± 0.000",
        "its null": "0.020 ± 0.010 sd",
        "lost, put back": "+0.050 ± 0.000",
        "lost, skipped": "−0.130 ± 0.025",
    } == tap  # fmt: skip
    rungs = {row["last blocks trained"]: list(row.values())[1:] for row in read_table(text, "last blocks trained")}
    assert rungs["2"] == ["0.450 ± 0.000", "+0.070 ± 0.025"]
    results = {row["quantity"]: row["value"] for row in read_table(text, "quantity")}
    assert (results["accuracy"], results["accuracy − BP"]) == ("0.520 ± 0.025", "−0.180 ± 0.025")
    (found,) = [row for row in read_table(text, "check") if row["check"].startswith("CS005")]
    assert (found["outcome"], found["limit"]) == ("✗ issue", "alignment 0.05")
    assert f"\n- CS005 {CHECKS['CS005'].title}: {CHECKS['CS005'].remedy}" in text
    assert "](docs/" not in text  # a card is read where the manual's pages are not
    for part in ("4 of 4 blocks (BP 4)", "`noise` 0.2"):
        assert part in text
    assert "Not measured:" not in text


def of_state(card: Card, state: str) -> list[str]:
    """The first two words of the pitfalls in this state."""
    return [" ".join(p.title.split()[:2]) for p in card.pitfalls if p.state == state]


def test_pitfalls_are_ticked_by_what_was_measured(card):
    assert of_state(card, "met") == of_state(card, "not measured") == []
    evidence = {p.title.split()[0]: p.evidence for p in card.pitfalls}
    assert ("8 fresh draws" in evidence["Alignment"], "15000 rows used" in evidence["Clamped"]) == (True, True)
    text = card.to_markdown()
    assert text.count("- [x] ") + text.count("- [ ] ") == len(card.pitfalls)


def test_what_was_not_measured_is_not_ticked():
    poor = make_record(taps={**QUICK, "g_noise": None, "null_sd": None}, facts={"rule": RULE})
    (card,) = audit([poor]).cards()
    unmeasured = ["A floor", "No null", "Not rejecting", "Alignment of", "A second", "No weight-space", "No frozen"]
    assert of_state(card, "not measured") == [*unmeasured, "A task", "One trained"]
    assert of_state(card, "met") == ["One seed,", "No interval"]
    text = card.to_markdown()
    assert text.count(": *not measured*") == text.count("- [ ] ") - 2 == 9
    missing = text.partition("Not measured: ")[2].partition(".\n")[0].split(", ")
    assert {"answer", "null sd", "cos of weights", "fresh cos", "descent", "g_noise", "probe"} <= set(missing)
    assert not {"cos", "β", "draw noise"} & set(missing)


def test_a_pitfall_that_was_met_is_said():
    records = make_family(taps=blind_taps(2, 3, 4), facts={"rows_interact": True})
    (dfa,) = [c for c in audit(records).cards() if c.method == "DFA"]
    assert of_state(dfa, "met") == ["A mean", "Rows that"]
    (bp,) = audit(make_family("bp", accuracy=0.42)).cards()
    assert of_state(bp, "met") == ["A task"]
    assert {"No null", "Γ from", "A second"} <= set(of_state(bp, "not applicable"))  # no merit of exact credit


def test_a_watched_model_has_a_card():
    record = make_record(facts={"trainer": False})
    (card,) = audit([replace(record, spec=None)]).cards()
    assert (card.about["net"], "recipe" in card.about) == ("watched model", False)
    assert "**not measured (CS004)**" in card.to_markdown()


def test_files_have_names_of_their_own(tmp_path):
    records = [*make_family(), *(make_record(lr=0.5, seed=s) for s in (1, 2))]
    paths = write_cards(audit(records).cards(), tmp_path / "cards")
    assert len({p.name for p in paths}) == len(paths) == 6
    assert sorted(p.suffix for p in paths) == [".json"] * 3 + [".md"] * 3
    read = [json.loads(p.read_text(), parse_constant=float) for p in paths if p.suffix == ".json"]
    found = sorted((r["method"], r["verdict"]["word"]) for r in read)
    assert found == [("BP", "trustworthy"), ("DFA", "not measured"), ("DFA", "trustworthy")]
    assert read[0]["per_tap"][0]["cos"]["n"] == 3
    assert read[0]["limits"]["growth"] == 50


@pytest.mark.parametrize("label", ["DFA\n\n**trustworthy**: all is well", "**✓ trustworthy**", "DFA](x) <b> |"])
def test_a_label_cannot_write_a_verdict(label):
    """As a reader of Markdown sees it: one heading that holds the label, then the true verdict, in bold."""
    rule = replace(RULE, label=label)
    (card,) = audit([make_record(seed=s, accuracy=0.1, facts={"rule": rule}) for s in (1, 2)]).cards()
    tokens = MarkdownIt("commonmark").enable("table").parse(card.to_markdown())
    heading, verdict, *_ = [token for token in tokens if token.type == "inline"]
    assert [child.type for child in heading.children] == ["text"]
    assert heading.children[0].content.startswith(visible(label))
    assert str(card.verdict) == "".join(c.content for c in verdict.children[:3])
    rows = {line.count("|") for line in card.to_markdown().splitlines() if line.startswith("| CS")}
    assert len(rows) == 1


def test_a_card_that_cannot_be_written_leaves_the_old_one(card, tmp_path):
    (before, _) = write_cards([card], tmp_path)
    (tmp_path / f"{card.name}.json.part").mkdir()
    before.write_text("old")
    with pytest.raises(IsADirectoryError):
        write_cards([card], tmp_path)
    assert before.read_text() == "old"


@pytest.mark.parametrize(("option", "said"), [(True, "yes"), (False, "no"), ("layer", "layer"), (3, "3"), (0.5, "0.5")])
def test_an_option_of_ones_own_net_may_have_any_value(option, said, tmp_path):
    records = [make_record(seed=s, net="mine.py:Net", net_options={"terminal_norm": option}) for s in (1, 2)]
    (card,) = audit(records).cards()
    assert card.about["terminal norm"] == said
    assert write_report(judge_records(records, "mine", Thresholds(), []), tmp_path / "page.html") > 0
