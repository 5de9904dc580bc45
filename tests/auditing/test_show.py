"""An audit as people and as machines read it: columns are defined once, and all that they hold is printed."""

import io
import json
import re
from dataclasses import fields, replace
from functools import partial
from itertools import product, takewhile

import pytest
from builders import QUICK, make_facts, make_family, make_record, make_snapshot
from judging import CHECKS
from rich.cells import cell_len
from rich.console import Console
from scipy import stats

from creditscope.auditing import Audit, MethodAudit, Thresholds, audit
from creditscope.auditing.checks import Finding
from creditscope.auditing.columns import BRIEF_TAPS, FINDINGS, METHODS, OF_OUTCOME, RUNGS, TAPS, Column
from creditscope.auditing.per_tap import TapAudit
from creditscope.auditing.printing import render_plain
from creditscope.auditing.show import list_reasons
from creditscope.auditing.strip import make_strip, write_strips
from creditscope.auditing.verdict import explain
from creditscope.commands._options import print_json
from creditscope.errors import CreditscopeError
from creditscope.record import RuleFacts

COS = (0.14, 0.25, 0.03, -0.05, 0.06)
DESCENT = (0.3, 0.5, 0.02, 0.0, 0.02)
"""Above its null where the cosine is."""
OVERWRITTEN = {"h_rms": (1, 1, 326, 326, 326)}


@pytest.fixture(scope="module")
def found() -> Audit:
    """DFA over three seeds, two taps of it blind, one block overwriting the stream; BP beside it."""
    taps = {**OVERWRITTEN, "cos": COS, "cos_F": COS, "stage_cos": COS, "descent": DESCENT}
    return audit(make_family(accuracy=0.5, taps={**taps, "g_norm": (1, 1, 1, 1, 0.011)}))


def row(text: str, first: str, number: int = 0) -> str:
    """The nth line that begins with this word."""
    return [line.strip() for line in text.splitlines() if line.strip().startswith(f"{first} ")][number]


def cells(columns: dict[str, Column], *rows: object) -> dict[str, list[str]]:
    return {name: [column.cell(one) for one in rows] for name, column in columns.items()}


def flat(text: object) -> str:
    return " ".join(str(text).split())


def in_full(found: Audit) -> str:
    return render_plain(partial(found.draw, verbose=True))


def screen(found: Audit, width: int, **how: bool) -> list[str]:
    """The lines on a terminal of this width."""
    console = Console(width=width, file=io.StringIO(), force_terminal=False, highlight=False)
    found.show(console, **how)
    return console.file.getvalue().splitlines()  # pyright: ignore[reportAttributeAccessIssue]


class TestColumns:
    def test_of_a_method(self, found):
        """Every family differs by the same 0.2 pp a seed, so differences within a seed have no spread."""
        shown = {name: of_dfa for name, (_, of_dfa) in cells(METHODS, *found.methods).items()}
        del shown["setting"], shown["because"]
        assert shown == {
            "method": "DFA",
            "seeds": "3",
            "accuracy": "0.504 ± 0.005",
            "frozen_own": "0.404 ± 0.005",
            "frozen_bp": "0.404 ± 0.005",
            "versus_bp": "−20.0 ± 0.0",
            "gain": "+10.0 ± 0.0",
            "gain_share": "33%",
            "trained_depth": "4 of 4",
            "gamma": "+0.500",
            "gamma_inexact": "+0.500",
            "growth": "326",
            "g_top": "1.1e-2",
            "verdict": "walk back (CS001, CS005, CS006)",
            "codes": "CS001 CS005 CS006",
        }

    def test_of_a_tap(self, found):
        """Above δ, below it, and above it but not above the null of the mean; fresh feedback has a cosine of 0.1."""
        bp, dfa = (cells(BRIEF_TAPS, *m.per_tap) for m in found.methods)
        signs = zip("✓✓✗✗?", ("+0.14", "+0.25", "+0.03", "−0.05", "+0.06"), strict=True)
        assert dfa["cos"] == [f"{sign} {cos} ± 0.00 ({cos})" for sign, cos in signs]
        assert dfa["acquired"] == ["+0.04 ± 0.00", "+0.15 ± 0.00", "−0.07 ± 0.00", "−0.15 ± 0.00", "−0.04 ± 0.00"]
        assert dfa["descent"] == [f"{d:+.2f} ± 0.00 (0.02)" for d in DESCENT]
        assert dfa["rewind_loss"] == ["– (−14.6)", *["+5.0 ± 0.0 (−14.6)"] * 4]  # skipped: what it has above .65
        assert (bp["cos"], bp["acquired"]) == (["= 1"] * 5, ["="] * 5)

    def test_what_was_not_measured_is_a_dash(self):
        empty = make_snapshot(gamma=None, gamma_inexact=None, taps={"cos": (None, 0.5, 0.5, 0.5, 0.5), "z": None})
        (m,) = audit([make_record(snapshots=[empty])]).methods
        shown = cells(METHODS, m)
        assert [shown[n] for n in ("frozen_own", "versus_bp", "gain_share", "gamma", "trained_depth")] == [["–"]] * 5
        assert cells(BRIEF_TAPS, m.per_tap[0])["cos"] == ["–"]
        assert shown["accuracy"] == ["0.700 (n = 1)"]  # one seed has no interval

    def test_their_names_are_those_of_the_data(self):
        for columns, kind in ((METHODS, MethodAudit), (TAPS, TapAudit), (BRIEF_TAPS, TapAudit), (FINDINGS, Finding)):
            extra = set(columns) - {f.name for f in fields(kind)}
            assert extra <= {"codes", "because", "fired"}  # properties, and what follows from the verdict
        assert {c.name for c in RUNGS.values()} == {"trained", "accuracy", "below_full"}

    def test_seeds_that_lack_a_baseline_are_counted(self):
        runs = [r for r in make_family() if r.spec and not (r.spec.frozen and r.spec.seed == 3)]
        (dfa,) = [m for m in audit(runs).methods if m.method == "DFA"]
        assert METHODS["frozen_own"].cell(dfa).endswith("(n = 2)")


class TestOneScreen:
    """Strips, a line a reason, what to do, and strips again."""

    def test_strips_come_first_and_last(self, found):
        for width in (60, 80, 100, 150):
            lines, strips = screen(found, width), write_strips(found.methods, width)
            assert lines[1 : len(strips) + 1] == strips == lines[-len(strips) :]

    def test_every_reason_has_its_line(self, found):
        lines = screen(found, 200)
        bp, dfa = ([" ".join(said[:2]) for said in list_reasons(m)] for m in found.methods)
        assert [said[2:7] for said in dfa] == ["CS001", "CS005", "CS006"]
        beside = [line.removeprefix("DFA").removeprefix("BP").strip() for line in lines]
        assert [said for said in (*bp, *dfa) if beside.count(said) != 1] == []

    def test_what_was_not_measured_is_no_pass_and_says_what_measures_it(self):
        (m,) = audit([make_record(taps=QUICK)]).methods
        skipped = {f.code: f.message for f in m.findings if f.outcome == "skipped"}
        said = {words[1][:5]: words[-1] for words in list_reasons(m) if words[0] == "○"}
        assert set(said) == set(skipped) > {"CS004"}
        assert "--baselines" in said["CS004"]

    def test_what_was_muted_is_named(self):
        muted = audit(make_family(taps=OVERWRITTEN), mute=["CS001"])
        assert any(line.endswith("◌ muted: CS001") for line in screen(muted, 80))

    def test_two_methods_with_much_to_say_fit_on_a_screen(self):
        """Of results/paper, no pair of methods takes more either; a deep net, long names, a long setting."""
        sick = {**OVERWRITTEN, "cos": (0.06, 0.06, 0.03, -0.05, 0.06), "descent": (0.0,) * 5, "g_norm": (1e-9,) * 5}
        two = [r for rule in ("dfa", "fa") for r in make_family(rule, accuracy=0.12, taps=sick)]
        judged = audit(two)
        named = [replace(m, method=f"{m.method}, norm sample") for m in judged.methods if m.method != "BP"]
        crowd = replace(judged, methods=tuple(named))
        assert len([said for m in crowd.methods for said in list_reasons(m)]) >= 8
        lines = screen(replace(crowd, problems=("a record could not be read " * 6,)), 80)
        assert (len(lines) <= 40, max(map(len, lines)) <= 80) == (True, True)

    @pytest.mark.parametrize("width", [40, 60, 80, 100, 150])
    def test_no_line_is_wider_than_the_screen_and_no_number_is_cut(self, found, width):
        lines = screen(found, width)
        assert max(map(len, lines)) <= width
        assert not [line for line in lines if re.search(r"\d…", line)]

    def test_one_line_each_for_what_to_do(self, found):
        lines = screen(found, 80)
        start = lines.index("What to do")
        assert [line.split()[0] for line in lines[start + 1 : start + 4]] == ["CS001", "CS005", "CS006"]
        assert "What to do" not in screen(audit(make_family()), 80)

    @pytest.mark.parametrize("width", [60, 100])
    @pytest.mark.parametrize("verbose", [False, True])
    def test_lines_of_what_to_do_end_with_their_last_word(self, found, width, verbose):
        lines = screen(found, width, verbose=verbose)
        own = list(takewhile(lambda line: line.startswith("  "), lines[lines.index("What to do") + 1 :]))
        assert len(own) >= 3
        assert [line for line in own if line != line.rstrip()] == []

    @pytest.mark.parametrize("width", [60, 100, 150])
    def test_reasons_stand_under_each_other_beside_names_of_wide_letters(self, found, width):
        bp, dfa = found.methods
        lines = screen(replace(found, methods=(replace(bp, method="BP"), replace(dfa, method="規則"))), width)
        reasons = lines[lines.index("", 1) + 1 : lines.index("What to do")]
        assert any(line.startswith("規則") for line in reasons)
        assert len({cell_len(re.split("[✓✗?○]", line)[0]) for line in reasons}) == 1
        assert max(map(cell_len, lines)) <= width


class TestInFull:
    """With -v."""

    def test_all_cells_of_the_numbers_taps_and_checks(self, found):
        text = flat(in_full(found))
        names = ("accuracy", "frozen_own", "frozen_bp", "gamma", "growth", "g_top", "gain", "gain_share", "verdict")
        wanted = {METHODS[name].cell(m) for name in names for m in found.methods}
        wanted |= {BRIEF_TAPS[n].cell(t) for n in ("cos", "acquired", "descent") for t in found.methods[1].per_tap}
        wanted |= {METHODS[name].heading for name in names[:-1]}
        wanted |= {f"tap {i} {name}" for i, name in enumerate(found.methods[0].taps)}
        assert {cell for cell in wanted if cell not in text} == set()
        assert "4 of 4 blocks (BP 4)" in text

    def test_verdicts_then_questions_then_numbers_then_checks(self, found):
        text = in_full(found)
        order = ("credit", "Is the reference", "frozen, own stem", "use of depth", "cos(a_l", "CS001 a block")
        place = 0
        for word in order:
            place = text.index(word, place)
        assert explain(found.methods[0]) in row(text, "BP", 1)

    def test_outcomes_and_limits_of_checks(self, found):
        text = in_full(found)
        assert "growth 50" in row(text, "CS001")
        # BP, then DFA; the published limit fires
        assert row(text, "CS001").split()[-5:] == ["✓", "passed", "✗", "issue", "†"]
        assert row(text, "CS007").split()[-4:] == ["✓", "passed"] * 2
        assert "growth 400" in row(in_full(audit([make_record()], limits=Thresholds(growth=400))), "CS001")
        assert all(f"{sign} {outcome}" in flat(text) for outcome, sign in OF_OUTCOME.items())  # the legend

    def test_the_depth_ladder(self):
        rungs = [make_record(seed=s, accuracy=0.4 + 0.1 * k, train_last=k) for k in (1, 2) for s in (1, 2, 3)]
        text = in_full(audit([*make_family(accuracy=0.694), *rungs]))
        head = row(text, "use of")
        assert [c for c in ("none trained", "last 1 trained", "last 2 trained", "all trained") if c not in head] == []
        assert "0.500 (+19.8 ± 0.5)" in row(text[text.index("use of ") :], "DFA")
        assert "last 1" not in row(in_full(audit(make_family())), "use of")

    def test_what_was_not_measured_has_no_table(self):
        text = in_full(audit([make_record(taps={**QUICK, "rewind": (), "skip_one": ()})]))
        titles = [line.split("  ")[0].strip() for line in text.splitlines()]
        assert not {"use of depth", "block put back", "acquired", "descent"} & set(titles)

    def test_what_so_many_seeds_can_see(self, found):
        seen = (stats.norm.isf(0.01) + stats.norm.isf(0.2)) * 0.05 / 3**0.5  # the null of the mean over three seeds
        assert f"power: {seen:.3f}" in flat(in_full(found))

    @pytest.mark.parametrize(("kind", "sign"), [("t", "± 95 %"), ("bootstrap", "[95 %")])
    def test_the_caption_says_which_interval(self, kind, sign):
        seeds = [make_record(seed=s, taps={"cos": 0.1 * s}) for s in (1, 2, 3)]
        assert f"mean {sign}" in flat(in_full(audit(seeds, interval=kind)))
        with pytest.raises(CreditscopeError, match="guess"):
            audit(seeds, interval="guess")

    def test_a_deep_net_keeps_all_its_taps(self):
        """A mean over layers is never shown without the layers."""
        cos = [round(0.11 + 0.01 * i, 2) for i in range(13)]
        text = in_full(audit([make_record(facts={"depth": 12}, taps={"cos": cos})]))
        assert [i for i in range(13) if f"{cos[i]:+.2f} (+0.50)" not in text] == []
        assert [i for i in range(13) if f"tap {i} " not in text] == []

    def test_where_all_credit_is_exact_sizes_are_shown(self):
        """A cosine of 1 says nothing; a gradient that shrinks on its way down does."""
        taps = {"g_norm": (1e-6, 1e-4, 0.01, 0.1, 1), "h_norm": (1, 2, 3, 4, 5), "h_rms": (1, 2, 4, 8, 16)}
        text = in_full(audit([make_record(rule="bp", taps=taps)]))
        assert flat(row(text, "tap")) == "tap 0 stem 1 – 1e-6"
        assert flat(row(text, "tap", 4)) == "tap 4 blocks.3 5 2 1"
        assert "cos(a_l" not in text
        plain = make_record(rule="bp", taps=taps, facts={"residual": (False,) * 5})
        assert flat(row(in_full(audit([plain])), "tap", 1)) == "tap 1 blocks.0 2 0.0001"

    def test_the_answers_with_codes_and_epochs(self, found):
        text, verdict = flat(in_full(found)), found.methods[1].verdict
        assert all(f"{line.question} {line.answer}. {line.reason}" in text for line in verdict.lines)
        assert text.count(verdict.meaning) == 1
        assert [text.count(f"{code} at {epoch}") for code, epoch in verdict.fired.items()] == [1] * len(verdict.fired)

    def test_each_seed_alone_once_a_verdict(self, found):
        assert "CS011): all trustworthy" in flat(in_full(found))
        mixed = [make_record(seed=s, taps=OVERWRITTEN if s == 2 else None) for s in (1, 2, 3)]
        assert "trustworthy: 1, 3; walk back (CS001): 2" in flat(in_full(audit(mixed)))

    def test_what_to_do_once_a_code(self, found):
        text = flat(in_full(found))
        for check in (CHECKS[code] for code in ("CS001", "CS005", "CS006")):
            assert text.count(f"{check.code} {check.title}: {check.remedy}") == 1
        assert CHECKS["CS007"].remedy not in text
        assert not [c for c in CHECKS.values() if c.remedy in flat(in_full(audit(make_family())))]

    def test_seeds_that_differ_by_method_are_said_by_row(self):
        text = in_full(audit([*make_family(), make_record(rule="fa", seed=1)]))
        assert text.splitlines()[0].endswith("· 1 to 3 seeds")
        numbers = text[text.index("method ") :]
        assert [row(numbers, name).split()[1] for name in ("BP", "DFA", "FA")] == ["3", "3", "1"]
        assert "seeds " not in row(in_full(audit(make_family())), "method")

    def test_show_prints_the_same(self, found, capsys):
        found.show()
        printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert "\n".join(printed).strip("\n") == str(found)


class TestManySettings:
    """Of more settings than can be read there is a line per method, and a way to see the rest."""

    @pytest.fixture
    def many(self) -> Audit:
        specs = [(record, record.spec) for record in make_family(taps=OVERWRITTEN)]
        return audit([replace(r, spec=replace(s, lr=lr)) for lr in (0.1, 0.2, 0.3, 0.4) for r, s in specs if s])

    def test_a_line_per_method(self, many):
        text = str(many)
        assert text.splitlines()[0] == "8 methods in 4 settings: 4 trustworthy, 4 walk back"
        dfa = [line for line in text.splitlines() if line.strip().startswith("DFA ")]
        assert len(dfa) == 4
        assert all(line.endswith("│ WALK BACK CS001") for line in dfa)
        assert text.splitlines()[-1] == text.splitlines()[0]
        assert "What to do" in text
        assert "--only" in text

    def test_only_shows_what_is_asked_for(self, many):
        few = many.only("LR 0.2, walk back")
        assert [(m.method, m.setting.rpartition(" ")[2]) for m in few.methods] == [("BP", "0.2"), ("DFA", "0.2")]
        assert [m.method for m in few.methods if f"{make_strip(m).name} " not in str(few)] == []
        assert [group.label for group in few.groups] == ["BP", "DFA"]
        with pytest.raises(CreditscopeError, match="lr 7"):
            many.only("lr 7")

    def test_a_whole_title_keeps_that_setting_alone(self):
        """Titles begin with one another, and hold commas."""
        specs = [(record, record.spec) for record in make_family(net_options={"depth": 4, "width": 8})]
        specs += [(record, record.spec) for record in make_family(net_options={"depth": 4})]
        every = audit([replace(r, spec=replace(s, lr=lr)) for lr in (0.2, 0.25) for r, s in specs if s])
        titles = {m.setting for m in every.methods}
        assert any("," in title for title in titles)
        assert any(one != other and other.startswith(one) for one in titles for other in titles)
        assert [title for title in titles if {m.setting for m in every.only(title).methods} != {title}] == []


class TestDivergence:
    def test_when_every_seed_diverged_that_is_all_there_is(self):
        found = audit([make_record(seed=s, diverged=s) for s in (1, 2)])
        (method,) = found.methods
        assert (str(method.verdict), method.verdict.codes) == ("not measured (diverged)", ())
        assert [said for _, *said in list_reasons(method)] == [[f"diverged: {method.verdict.diverged}"]]
        assert "CS0" not in str(found)
        alike = [make_record(seed=s, diverged=1) for s in (1, 2)]
        assert audit(alike).methods[0].verdict.diverged == "all seeds, at epoch 1"

    def test_a_watched_model_that_is_not_finite_is_said_to_diverge_before_all_checks(self):
        lost = make_snapshot(epoch=3, loss=None, taps={"h_norm": (1, 1, None, None, None)})
        twice = (lost, replace(lost, epoch=4))
        for later, where in ((twice, "tap 2"), ((replace(make_snapshot(), loss=None),), "loss")):
            snapshots = (make_snapshot(epoch=0), *later)
            record = replace(make_record(facts={"trainer": False}, snapshots=snapshots), spec=None)
            found = audit([record])
            said = found.methods[0].verdict.diverged
            assert where in said
            assert said.endswith(f"epoch {later[0].epoch}")
            text = flat(in_full(found))
            assert text.index(f"diverged: {said}") < text.index("CS0")
        recovered = make_record(snapshots=(lost, make_snapshot(epoch=4)))
        assert audit([recovered]).methods[0].verdict.diverged == ""

    def test_divergence_and_problems_are_said(self):
        found = audit([make_record(diverged=3), make_record(seed=5), make_record(seed=7, snapshots=[])])
        assert "diverged: seed 42 at epoch 3" in flat(found)
        assert re.search(r"note: Record mnist1d-resmlp-dfa-s7-\w+", flat(found))


class TestData:
    def read(self, found: Audit, capsys) -> dict:
        def refuse(constant: str):
            raise AssertionError(f"{constant} is not JSON")

        print_json(found.to_dict())
        return json.loads(capsys.readouterr().out, parse_constant=refuse)

    def test_json_has_everything_and_no_nan(self, found, capsys):
        read = self.read(found, capsys)
        assert [m["method"] for m in read["methods"]] == ["BP", "DFA"]
        dfa = read["methods"][1]
        assert dfa["accuracy"]["mean"] == pytest.approx(0.504)
        assert (dfa["cos"], dfa["taps"][0]) == (pytest.approx(COS), "stem")
        assert (dfa["verdict"]["word"], dfa["verdict"]["codes"]) == ("walk back", ["CS001", "CS005", "CS006"])
        assert (dfa["findings"][0]["outcome"], dfa["findings"][0]["limit"]) == ("issue", "growth 50")
        assert dfa["per_tap"][1]["cos"] == {
            "mean": pytest.approx(0.25), "low": pytest.approx(0.25), "high": pytest.approx(0.25), "n": 3, "kind": "t",
            "over": "seeds; test set fixed", "scale": "linear",
        }  # fmt: skip
        assert dfa["per_tap"][1]["acquired"]["mean"] == pytest.approx(0.15)
        assert dfa["verdict"]["fired"]["CS001"] == "epoch 1"
        assert {d["criterion"] for d in read["decisions"]} >= {"accuracy", "accuracy + Γ", "CS001", "whole protocol"}
        assert ("groups" in read, read["limits"]["growth"]) == (False, 50)

    def test_json_of_a_poor_record_has_no_nan(self, capsys):
        poor = make_snapshot(accuracy=None, gamma=None, weights=None, taps={"cos": None, "z": None, "h_rms": None})
        (method,) = self.read(audit([make_record(snapshots=[poor])]), capsys)["methods"]
        assert (method["accuracy"], method["growth"], method["cos"]) == (None, None, [None] * 5)

    def test_frame_is_one_row_per_method(self, found):
        frame = found.frame().set_index("method")
        assert list(frame.index) == ["BP", "DFA"]
        dfa = frame.loc["DFA"]
        assert dfa[["codes", "verdict", "seeds"]].tolist() == ["CS001 CS005 CS006", "walk back", 3]
        assert dfa[["answer_1", "answer_2", "trained_depth_low"]].tolist() == ["carries", "below", 4]
        numbers = {"cos_1": 0.25, "cos_low_1": 0.25, "rewind_loss_1": 0.05, "stage_cos_1": 0.25, "gain": 0.1}
        numbers |= {"gain_share": 1 / 3, "versus_bp": -0.2, "accuracy": 0.504, "frozen_own_high": 0.404 + 0.004969}
        assert dfa[list(numbers)].tolist() == pytest.approx(list(numbers.values()), abs=1e-6)


ODD = ("DFA [sparse]", "DFA [/sparse]", ":smile: [bold]x[/]", "DFA \x1b[31m\x07", "DFA\n\ntrustworthy")
"""Labels that somebody may give a rule, or hide in a record."""


@pytest.mark.parametrize(
    ("show", "label"), [*product((lambda a: a, Audit.decisions), ODD), (Audit.sensitivity, ODD[-1])]
)
def test_a_label_is_printed_as_it_is_and_obeyed_by_nobody(label, show):
    """On a console of the caller's, too, whose markup is on."""
    rule = RuleFacts(name="mine", label=label)
    judged = audit([make_record(seed=s, facts={"rule": rule}, accuracy=0.5) for s in (1, 2)])
    shown, console = show(judged), Console(width=200, record=True, force_terminal=False, file=io.StringIO())
    shown.show(console)
    written = label.replace("\x1b", r"\x1b").replace("\x07", r"\x07").replace("\n", r"\n")
    for text in (str(shown), console.export_text()):
        assert show is Audit.sensitivity or written in text
        assert set(text) - set("\n") == {c for c in text if c.isprintable()}
    assert not any(line.strip().startswith("trustworthy") for line in str(shown).splitlines()[:5])


def test_so_are_names_of_nets_tasks_and_taps_and_what_is_noted():
    facts = make_facts(taps=("[/stem]", *(f"blocks.{i}" for i in range(4))))
    records = [make_record(seed=s, net="[net]", task="[/task]", snapshots=[make_snapshot(facts)]) for s in (1, 2)]
    records = [replace(r, provenance=replace(r.provenance, facts=facts)) for r in records]
    text = in_full(replace(audit(records), notes=("a [/note]",)))
    assert all(word in text for word in ("[net]", "[/task]", "tap 0 [/stem]", "note: a [/note]"))


def test_only_needs_a_word(found):
    with pytest.raises(CreditscopeError):
        found.only(" , ")
