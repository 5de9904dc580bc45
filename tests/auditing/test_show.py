"""An audit as people and as machines read it."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from builders import QUICK, make_family, make_record, make_snapshot
from judging import CHECKS
from scipy import stats

from creditscope.auditing import Audit, Thresholds, audit
from creditscope.commands._printing import show_audit
from creditscope.errors import CreditscopeError
from creditscope.text import number

COS = (0.14, 0.25, 0.03, -0.05, 0.06)
Z = (6.8, 9.3, 1.0, -1.8, 2.1)
MARKS = ("✓", "✓", "✗", "✗", "?")
"""Above δ, below it, and above it but not above the null of the mean."""
DESCENT = (0.3, 0.5, 0.02, 0.0, 0.02)
"""Above its null where the cosine is."""


@pytest.fixture(scope="module")
def found() -> Audit:
    """DFA over three seeds, two taps of it blind, one block overwriting the stream; BP beside it."""
    taps = {"cos": COS, "cos_F": COS, "z": Z, "h_rms": (1, 1, 326, 326, 326), "g_norm": (1, 1, 1, 1, 0.011)}
    return audit(make_family(accuracy=0.5, taps={**taps, "stage_cos": COS, "descent": DESCENT}))


def row(text: str, first: str, number: int = 0) -> str:
    """The nth line that begins with this word."""
    return [line.strip() for line in text.splitlines() if line.strip().startswith(f"{first} ")][number]


VERDICT, NUMBERS, DEPTH, BLOCKS, COSINE, ACQUIRED, DESCENT_TABLE = range(7)
"""The tables in which a method has a row, in their order."""


def test_numbers_have_every_column(found):
    head = row(str(found), "method", 1)
    columns = ["accuracy", "frozen, own stem", "frozen, BP stem", "Γ", "Γ inexact", "growth", "‖g_L‖"]
    assert [head.index(column) for column in columns] == sorted(head.index(column) for column in columns)


def test_numbers_are_all_there(found):
    line = row(str(found), "DFA", NUMBERS)
    for base in (0.5, 0.4):
        values = base + 0.002 * np.array([1, 2, 3])
        low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
        assert f"{values.mean():.3f} ± {(high - low) / 2:.3f}" in line
    for expected in ("+0.500", "326", "1.1e-2"):
        assert expected in line
    assert line.count("0.404 ± 0.005") == 2  # both frozen baselines


def test_use_of_depth_is_paired_by_seed(found):
    """Every family differs by the same 0.2 pp a seed, so differences within a seed have no spread."""
    head, line = row(str(found), "use of"), row(str(found), "DFA", DEPTH)
    columns = ["none trained", "all trained", "− BP", "Δ", "Δ/Δ_BP"]
    assert [head.index(column) for column in columns] == sorted(head.index(column) for column in columns)
    assert " ".join(line.split()) == "DFA 0.404 (+10.0 ± 0.0) 0.504 −20.0 ± 0.0 +10.0 ± 0.0 33%"


def test_the_depth_ladder_is_a_table():
    rungs = [make_record(seed=s, accuracy=0.4 + 0.1 * k, train_last=k) for k in (1, 2) for s in (1, 2, 3)]
    text = str(audit([*make_family(accuracy=0.694), *rungs]))
    head = row(text, "use of")
    assert [c for c in ("none trained", "last 1 trained", "last 2 trained", "all trained") if c not in head] == []
    assert "0.500 (+19.8 ± 0.5)" in row(text, "DFA", DEPTH)
    assert "last 1" not in row(str(audit(make_family())), "use of")
    assert not [line for line in str(audit([make_record()])).splitlines() if line.strip().startswith("use of depth")]


def test_every_tap_has_its_cosine_its_answer_and_that_of_its_weights(found):
    text = str(found)
    head = row(text, "cos(a_l,")
    assert all(f"tap {i} {name}" in head for i, name in enumerate(found.methods[0].taps))
    assert row(text, "DFA", COSINE).split()[1:] == [
        s
        for c, mark in zip(COS, MARKS, strict=True)
        for s in (mark, number(c, "+.2f"), "±", "0.00", f"({number(c, '+.2f')})")
    ]
    assert row(text, "BP", COSINE).split()[1:] == ["=", "1"] * 5
    assert "mean ± 95 % t interval over seeds (ddof 1), test set fixed" in " ".join(text.split())
    seen = (stats.norm.isf(0.01) + stats.norm.isf(0.2)) * 0.05 / 3**0.5  # the null of the mean over three seeds
    assert f"with 80 % power: {seen:.3f}" in " ".join(text.split())


def test_every_block_has_what_is_lost_without_it(found):
    """Put back it costs 5 pp in every seed; skipped, what the net has above .65."""
    head, line = row(str(found), "block put"), " ".join(row(str(found), "DFA", BLOCKS).split())
    assert all(f"tap {i} " in head for i in (1, 2, 3, 4))
    assert line == f"DFA – (−14.6) {'+5.0 ± 0.0 (−14.6) ' * 4}4 of 4 blocks (BP 4)"
    none = {"rewind": (), "skip_one": ()}
    assert "block put" not in str(audit([make_record(taps=none)]))


def test_what_was_measured_beside_the_cosine_has_a_table(found):
    text = str(found)
    assert row(text, "DFA", ACQUIRED).split()[1:] == [
        s for c in COS for s in (number(c - 0.1, "+.2f"), "±", "0.00")
    ]  # fresh feedback has 0.1
    assert row(text, "DFA", DESCENT_TABLE).split()[1:] == [
        s for d in DESCENT for s in (f"{d:+.2f}", "±", "0.00", "(0.02)")
    ]
    quick = str(audit([make_record(taps=QUICK)]))
    assert "acquired" not in quick
    assert "best decrease" not in quick


def test_the_caption_says_which_interval(found):
    seeds = [make_record(seed=s, taps={"cos": 0.1 * s}) for s in (1, 2, 3)]
    for kind, said in (("t", "± 95 % t interval over seeds"), ("bootstrap", "[95 % percentile bootstrap over seeds")):
        assert said in " ".join(str(audit(seeds, interval=kind)).split())
    assert "mean of one seed" in str(audit(seeds[:1]))
    with pytest.raises(CreditscopeError, match="Expected the name of a kind of interval, but got 'guess'"):
        audit(seeds, interval="guess")


def test_a_deep_net_keeps_all_its_taps():
    """A mean over layers is never shown without the layers."""
    cos = [round(0.11 + 0.01 * i, 2) for i in range(13)]
    text = str(audit([make_record(facts={"depth": 12}, taps={"cos": cos})]))
    assert [i for i in range(13) if f"{cos[i]:+.2f} (+0.50)" not in text] == []
    assert [i for i in range(13) if f"tap {i} " not in text] == []


def test_checks_with_limits_and_outcomes(found):
    text = str(found)
    assert "growth 50" in row(text, "CS001")
    assert row(text, "CS001").split()[-5:] == ["✓", "passed", "✗", "issue", "†"]  # BP, then DFA; the published limit fires
    assert row(text, "CS007").split()[-4:] == ["✓", "passed"] * 2
    assert "growth 400" in row(str(audit([make_record()], limits=Thresholds(growth=400))), "CS001")


def test_the_first_table_gives_the_verdict_and_its_reason(found):
    text = str(found)
    head = row(text, "method")
    assert [c for c in ("accuracy", "verdict", "because") if c not in head] == []
    line = row(text, "DFA", VERDICT)
    assert "walk back (CS001, CS005, CS006)" in line
    assert CHECKS["CS001"].title.capitalize() in line
    assert "No check fired" in row(text, "BP", VERDICT)
    order = ("because", "Is the reference", "frozen, own stem", "cos(a_l", "CS001 a block")
    places = [text.index(word) for word in order]
    assert places == sorted(places)  # verdicts, questions, then the numbers


def test_verdicts_are_explained(found):
    text = " ".join(str(found).split())
    assert text.count("do not claim that this method assigns credit") == 1
    assert "Does credit carry information? no. CS001" in text
    assert "Is depth used? yes. CS004 +10.0 pp over the" in text
    assert "First an issue in training: CS001 at epoch 1; CS005 at epoch 1" in text


def test_each_seed_alone_is_said_once_a_verdict(found):
    text = " ".join(str(found).split())
    assert "Each seed alone (without CS004 and CS011): all trustworthy" in text
    mixed = [make_record(seed=s, taps={"h_rms": (1, 1, 326, 326, 326) if s == 2 else 1.0}) for s in (1, 2, 3)]
    said = " ".join(str(audit(mixed)).split())
    assert "Each seed alone (without CS004 and CS011): trustworthy: 1, 3; walk back (CS001): 2" in said


def test_what_to_do_is_printed_once_a_code(found):
    text = " ".join(str(found).split())
    for check in (CHECKS[code] for code in ("CS001", "CS005", "CS006")):
        assert text.count(f"{check.code} {check.title}: {check.remedy} ({check.page})") == 1
    assert "CS007 weight gradients vanish: " not in text
    assert "What to do" not in str(audit(make_family()))


class TestManySettings:
    """Of more settings than can be read there is a line per method, and a way to see the rest."""

    @pytest.fixture
    def many(self) -> Audit:
        family = make_family(taps={"h_rms": (1, 1, 326, 326, 326)})
        specs = [(record, record.spec) for record in family]
        return audit([replace(r, spec=replace(s, lr=lr)) for lr in (0.1, 0.2, 0.3, 0.4) for r, s in specs if s])

    def test_a_line_per_method(self, many):
        text = str(many)
        assert text.splitlines()[0] == "8 methods in 4 settings: 4 trustworthy, 4 walk back"
        dfa = [line for line in text.splitlines() if line.strip().startswith("DFA ")]
        assert len(dfa) == 4
        assert all("walk back (CS001)" in line and "A block overwrites the stream." in line for line in dfa)
        assert "Is the reference" not in text
        assert "--only" in text.splitlines()[-2] + text.splitlines()[-1]

    def test_only_shows_what_is_asked_for(self, many):
        few = many.only("LR 0.2, walk back")
        assert [(m.method, m.setting.rpartition(" ")[2]) for m in few.methods] == [("BP", "0.2"), ("DFA", "0.2")]
        assert "Is the reference gradient resolved?" in str(few)
        assert [group.label for group in few.groups] == ["BP", "DFA"]
        with pytest.raises(CreditscopeError, match="none of 4 settings has all of 'lr 7'"):
            many.only("lr 7")


def test_seeds_that_differ_by_method_are_said_by_row():
    text = str(audit([*make_family(), make_record(rule="fa", seed=1)]))
    assert text.splitlines()[0].endswith("· 1 to 3 seeds")
    assert [row(text, name).split()[1] for name in ("BP", "DFA", "FA")] == ["3", "3", "1"]
    assert "seeds " not in row(str(audit(make_family())), "method")


def test_where_all_credit_is_exact_sizes_are_shown():
    """A cosine of 1 says nothing; a gradient that shrinks on its way down does."""
    taps = {"g_norm": (1e-6, 1e-4, 0.01, 0.1, 1), "h_norm": (1, 2, 3, 4, 5), "h_rms": (1, 2, 4, 8, 16)}
    text = str(audit([make_record(rule="bp", taps=taps)]))
    rows = [" ".join(row(text, "tap", i).split()) for i in range(5)]
    assert rows[0] == "tap 0 stem 1 – 1e-6"
    assert rows[4] == "tap 4 blocks.3 5 2 1"
    assert "cos(a_l" not in text
    plain = make_record(rule="bp", taps=taps, facts={"residual": (False,) * 5})
    assert " ".join(row(str(audit([plain])), "tap", 1).split()) == "tap 1 blocks.0 2 0.0001"


def test_when_every_seed_diverged_that_is_all_there_is():
    found = audit([make_record(seed=s, diverged=s) for s in (1, 2)])
    (method,) = found.methods
    assert (str(method.verdict), method.verdict.codes) == ("not measured (diverged)", ())
    text = str(found)
    assert text.count("all seeds, at epochs 1–2") == 2  # in the table, and once below
    assert "CS0" not in text
    alike = [make_record(seed=s, diverged=1) for s in (1, 2)]
    assert audit(alike).methods[0].verdict.diverged == "all seeds, at epoch 1"


def test_a_watched_model_that_is_not_finite_is_said_to_diverge_before_all_checks():
    lost = make_snapshot(epoch=3, loss=None, taps={"h_norm": (1, 1, None, None, None)})
    later = replace(lost, epoch=4)
    for snapshots, said in (
        ((make_snapshot(epoch=0), lost, later), "Diverged: the state of tap 2 (blocks.1) is not finite at epoch 3"),
        ((make_snapshot(epoch=0), make_snapshot(epoch=2, loss=None)), "Diverged: the loss is not finite at epoch 2"),
    ):
        record = replace(make_record(rule="bp", facts={"trainer": False}, snapshots=snapshots), spec=None)
        text = " ".join(str(audit([record])).split())
        assert text.index(said) < text.index("CS001")
    recovered = make_record(snapshots=(lost, make_snapshot(epoch=4)))
    assert audit([recovered]).methods[0].verdict.diverged == ""


def test_tips_divergence_and_problems_are_said():
    records = [make_record(diverged=3), make_record(seed=5, taps={"g_norm": 1e-6})]
    found = audit([*records, make_record(seed=7, snapshots=[])])
    text = " ".join(str(found).split())
    assert "Diverged: seed 42 at epoch 3" in text
    alone = " ".join(str(audit([make_record(taps={"g_norm": 1e-6})])).split())
    assert "CS002 rounding noise 10⁻⁷ of the gradient at worst (tap 0), so it is resolved" in alone
    assert re.search(r"note: Record mnist1d-resmlp-dfa-s7-\w+ holds no snapshot; left out\.", text)


def test_one_seed_has_no_interval():
    assert "0.700 (n = 1)" in row(str(audit([make_record()])), "DFA")


def test_what_was_not_measured_is_a_dash():
    empty = make_snapshot(gamma=None, gamma_inexact=None, taps={"cos": (None, 0.5, 0.5, 0.5, 0.5), "z": None})
    text = str(audit([make_record(snapshots=[empty])]))
    assert row(text, "DFA", NUMBERS).split()[5:9] == ["–", "–", "–", "–"]
    assert row(text, "DFA", 3).split()[1] == "–"
    assert "note:" not in text


def test_settings_that_differ_are_told_apart():
    """Two learning rates must not be two rows of one name in one table."""
    found = audit([make_record(lr=0.001), make_record(lr=0.01)])
    assert len({(m.setting, m.method) for m in found.methods}) == 2


def refuse(constant: str):
    raise AssertionError(f"{constant} is not JSON")


def test_json_has_everything_and_no_nan(found, capsys):
    show_audit(found, as_json=True)
    read = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert [m["method"] for m in read["methods"]] == ["BP", "DFA"]
    dfa = read["methods"][1]
    assert dfa["accuracy"]["mean"] == pytest.approx(0.504)
    assert (dfa["cos"], dfa["taps"][0]) == (pytest.approx(COS), "stem")
    assert (dfa["verdict"]["word"], dfa["verdict"]["codes"]) == ("walk back", ["CS001", "CS005", "CS006"])
    assert dfa["findings"][0]["outcome"] == "issue"
    assert dfa["per_tap"][1]["cos"] == {
        "mean": pytest.approx(0.25), "low": pytest.approx(0.25), "high": pytest.approx(0.25), "n": 3, "kind": "t",
        "over": "seeds; test set fixed", "scale": "linear",
    }  # fmt: skip
    assert dfa["per_tap"][1]["acquired"]["mean"] == pytest.approx(0.15)
    assert dfa["verdict"]["fired"]["CS001"] == "epoch 1"
    assert {row["criterion"] for row in read["decisions"]} >= {"accuracy", "accuracy + Γ", "CS001", "whole protocol"}
    assert "groups" not in read
    assert read["limits"]["growth"] == 50


def test_json_of_a_poor_record_has_no_nan(capsys):
    poor = make_snapshot(accuracy=None, gamma=None, weights=None, taps={"cos": None, "z": None, "h_rms": None})
    show_audit(audit([make_record(snapshots=[poor])]), as_json=True)
    (method,) = json.loads(capsys.readouterr().out, parse_constant=refuse)["methods"]
    assert (method["accuracy"], method["growth"], method["cos"]) == (None, None, [None] * 5)


def test_show_prints_the_same(found, capsys):
    found.show()
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert "\n".join(printed).strip("\n") == str(found)


def test_frame_is_one_row_per_method(found):
    frame = found.frame().set_index("method")
    assert list(frame.index) == ["BP", "DFA"]
    assert frame.loc["DFA", "cos_1"] == pytest.approx(0.25)
    assert frame.loc["DFA", "codes"] == "CS001 CS005 CS006"
    assert frame.loc["DFA", "seeds"] == 3
    assert frame.loc["DFA", "cos_low_1"] == pytest.approx(0.25)
    assert frame.loc["DFA", ["answer_1", "answer_2", "trained_depth_low"]].tolist() == ["carries", "below", 4]
    assert frame.loc["DFA", ["rewind_loss_1", "stage_cos_1"]].tolist() == pytest.approx([0.05, 0.25])
    assert frame.loc["DFA", ["gain", "gain_share", "versus_bp"]].tolist() == pytest.approx([0.1, 1 / 3, -0.2])
