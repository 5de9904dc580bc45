"""Figure `penalty_rescue`: which runs and moments it reads, and which numbers it draws and states."""

from typing import Any

import numpy as np
import pytest
from builders import make_facts, make_record, make_snapshot
from drawn import head, lines, reach, stated
from matplotlib.figure import Figure
from pages import assert_clear, texts
from penalty_runs import ACCURACY, DEEP, EPOCHS, FLAT, FRESH, GROWN, KINDS, SEEDS, make_run, make_study

from creditscope.auditing.thresholds import PUBLISHED_FLOOR
from creditscope.errors import CreditscopeError
from creditscope.paper.figures.penalty_rescue import describe, plot_penalty_rescue
from creditscope.paper.studies.penalty_rescue import penalty_rescue
from creditscope.plots import save_figure
from creditscope.record import Record

pytestmark = pytest.mark.slow

NAMES = {"early": "early DFA", "dfa": "DFA", "weak": "DFA, λ 0.0001", "strong": "DFA, λ 0.01", "bp": "BP"}
NAMES |= {"bp strong": "BP, λ 0.01", "frozen dfa": "DFA, frozen", "frozen bp": "BP, frozen"}


def points(fig: Figure, panel: str, gid: str) -> np.ndarray:
    """Heights of a line; caps of its bars have the same id, and come later."""
    (ax,) = [ax for ax in fig.axes if ax.get_label() == panel]
    return lines(ax, gid)[0][1]


def bands(fig: Figure, key: str) -> np.ndarray:
    """Lower and upper ends of a condition's nulls, (measures, 2)."""
    (ax,) = [ax for ax in fig.axes if ax.get_label() == "B"]
    bars = [patch for patch in ax.patches if patch.get_gid() == f"{NAMES[key]} null"]
    return np.array([[bar.get_y(), bar.get_y() + bar.get_height()] for bar in bars])


def state(records: list[Record], **how: Any) -> dict[tuple[str, str], Any]:
    return stated(describe(records, **how))


def interval(values: Any) -> tuple[float, float]:
    return np.mean(values) - reach(values), np.mean(values) + reach(values)


class TestCourse:
    def test_means_of_log10_on_epochs_that_all_seeds_have(self):
        runs = [make_run("dfa", 1, epochs=(0, 10, 15, 20, EPOCHS)), make_run("dfa", 2), make_run("dfa", 3)]
        low = [make_run("strong", seed, taps={"g_norm": 10.0**-seed}) for seed in SEEDS]
        records = [*runs, *low, *make_study(without=("dfa", "strong"))]
        fig, found = plot_penalty_rescue(records), state(records)
        assert points(fig, "A", "DFA mean") == pytest.approx([10, 100, 1000, 1e4])
        assert points(fig, "A1", "DFA, λ 0.01 mean") == pytest.approx([1e-2] * 4)
        assert points(fig, "A1", "published floor").tolist() == [PUBLISHED_FLOOR] * 2
        assert found["median ‖h₄‖, change in orders of magnitude", "DFA"].value.mean == pytest.approx(3)
        assert found["median ‖g₄‖, change in orders of magnitude", "DFA"].value.mean == pytest.approx(-6)

    def test_when_the_gradient_goes_under_the_floor(self):
        name = "first epoch with median ‖g₄‖ under the floor"
        found = state(make_study(strong={"at": {20: {"g_norm": 0.0}, EPOCHS: {"g_norm": 0.0}}}))
        assert [found[name, NAMES[key]].value for key in ("dfa", "strong")] == ["20 (3 of 3 seeds)"] * 2
        assert state(make_study())[name, NAMES["strong"]].value == "never"


class TestCredit:
    def test_deep_means_at_the_end_or_at_the_last_calm_snapshot(self):
        records = make_study(early={"at": {3: FLAT, 2: {"rho": (0.9, 0.9, 0.1, 0.2, 0.6)}}})
        fig, found = plot_penalty_rescue(records), state(records)
        for key in ("early", "weak", "strong"):
            values = DEEP[key] + np.array([-0.01, 0, 0.01])
            own = found["deep cosine", NAMES[key]].value
            assert (own.mean, own.low, own.high) == pytest.approx((DEEP[key], *interval(values)))
            rho = 0.3 if key == "early" else DEEP[key] / 2
            assert points(fig, "B", NAMES[key])[:2] == pytest.approx([DEEP[key], rho])
        assert found["epoch at which it is read", "early DFA"].value == "2 (3 seeds)"
        assert found["seeds with alarm until epoch 5", "early DFA"].value == 3

    def test_every_seed_is_read_at_its_own_epoch(self):
        early = [make_run("early", 1), make_run("early", 2, at={3: FLAT}), make_run("early", 3, at={1: GROWN})]
        found = state([*make_study(without=("early",)), *early])
        assert found["epoch at which it is read", "early DFA"].value == "0 (1 seed), 2 (1 seed), 5 (1 seed)"
        assert found["seeds with alarm until epoch 5", "early DFA"].value == 2

    def test_the_null_is_over_draws_and_seeds(self):
        """Simulated draws: the sd of the deep mean over seeds and draws, with feedback independent between taps."""
        rng = np.random.default_rng(0)
        draws = rng.normal([[[0.1]], [[0.2]], [[0.3]]], [0, 0, 0.1, 0.2, 0.3], size=(3, 20_000, 5))
        runs = []
        for seed, own in zip(SEEDS, draws, strict=True):
            taps = {"fresh_cos": tuple(own.mean(0)), "fresh_sd": tuple(own.std(0, ddof=1))}
            runs.append(make_run("early", seed, at={5: taps}))
        records, deep = [*runs, *make_study(without=("early",))], draws[:, :, 2:].mean(2)
        half = 1.96 * np.sqrt(deep.var(axis=1).mean() + deep.mean(1).var(ddof=1))
        null = state(records)["deep cosine of fresh feedback", "early DFA"].value
        assert (null.mean, null.high - null.mean) == (pytest.approx(deep.mean()), pytest.approx(half, rel=0.02))
        assert bands(plot_penalty_rescue(records), "early")[0] == pytest.approx([null.low, null.high])

    def test_it_is_told_from_fresh_feedback_by_the_paired_interval(self):
        found = state(make_study(strong={"taps": {"fresh_cos": 0.5}}))
        said = [found["deep cosine over fresh feedback", NAMES[key]] for key in ("early", "weak", "strong")]
        assert [s.verdict for s in said] == ["open", "above 0", "below 0"]
        assert (said[2].value.low, said[2].value.high) == pytest.approx(interval([-0.36, -0.35, -0.34]))

    def test_the_gradient_is_measured_where_it_is_not_a_definition(self):
        records = make_study(early={"at": {5: {"rho_exact": (0, 0, 0.9, 0.8, 0.7)}}})
        assert points(plot_penalty_rescue(records), "B", "BP gradient") == pytest.approx([1.0, 0.8, 1.0])
        assert state(records)["deep ρ", "BP gradient"].value.mean == pytest.approx(0.8)


class TestCost:
    def test_accuracies_seeds_and_frozen_blocks(self):
        fig, found = plot_penalty_rescue(make_study()), state(make_study())
        for first, second in (("bp", "bp strong"), ("dfa", "strong")):
            assert points(fig, "C", NAMES[first]) == pytest.approx([ACCURACY[first], ACCURACY[second]])
            seeds = [ACCURACY[key] + off for key in (first, second) for off in (-0.002, 0, 0.002)]
            assert points(fig, "C", f"{NAMES[first]} seeds") == pytest.approx(seeds)
        for key in ("frozen dfa", "frozen bp"):
            assert points(fig, "C", NAMES[key]) == pytest.approx([ACCURACY[key]] * 2)
        assert all(found["accuracy", NAMES[k]].value.mean == pytest.approx(ACCURACY[k]) for k in KINDS if k != "early")
        assert "17.0 pp" in texts(fig)

    def test_differences_are_paired(self):
        values = (0.50, 0.58, 0.55)
        records = [make_run("bp strong", s, accuracy=a) for s, a in zip(SEEDS, values, strict=True)]
        found = state([*records, *make_study(without=("bp strong",))])
        change = found["difference of accuracy, pp", "BP, λ 0.01 less BP"]
        gains = [100 * (a - b) for a, b in zip(values, (0.578, 0.58, 0.582), strict=True)]
        assert (change.value.low, change.value.high) == pytest.approx(interval(gains))
        frozen = [found["difference of accuracy, pp", f"DFA, λ 0.01 less {rule}, frozen"] for rule in ("DFA", "BP")]
        assert [s.value.mean for s in frozen] == pytest.approx([3, -2])
        assert [s.verdict for s in (change, *frozen)] == ["open", "above 0", "below 0"]


def test_titles_are_findings_where_the_data_show_them():
    def titles(records):
        return [head(ax)[1] for ax in plot_penalty_rescue(records).axes if head(ax)[0]]

    course, metrics, cost = titles(make_study())
    assert "not 3.0" in course  # vanilla DFA grows by three orders
    assert f"{DEEP['strong']:.2f}" in metrics
    pp = 100 * (ACCURACY["bp"] - ACCURACY["bp strong"]), 100 * (ACCURACY["bp strong"] - ACCURACY["strong"])
    assert [f"{value:.1f} pp" in cost for value in pp] == [True, True]
    other = make_study(strong={"taps": {"fresh_cos": 0.5}}, without=("dfa", "bp strong"))
    assert not [title for title in titles(other) if set("0123456789") & set(title)]


class TestGaps:
    @pytest.mark.parametrize("key", [*KINDS, "one seed", "old"])
    def test_what_is_missing_is_marked(self, key, tmp_path):
        """A condition (DFA with its early run, which could stand in), all seeds but one, or later measures."""
        gone = {"taps": dict.fromkeys(FRESH, ())}
        case = {"one seed": {"seeds": (1,)}, "old": dict.fromkeys(("early", "weak", "strong"), gone)}
        records = make_study(**case.get(key, {"without": ("dfa", "early") if key == "dfa" else (key,)}))
        fig, caption = plot_penalty_rescue(records), describe(records)
        assert_clear(fig)
        save_figure(fig, tmp_path, "gap", caption=caption)
        missing = {"dfa": ("early", "dfa")}.get(key, (key,) if key in KINDS else ())
        assert caption.gaps == tuple(f"{NAMES[one]}: not on record" for one in missing)
        crosses = {str(line.get_gid()) for ax in fig.axes for line in ax.lines if len(line.get_xdata())}
        crosses = {gid.removesuffix(" gap") for gid in crosses if gid.endswith(" gap")}
        expected = {"early": {"early DFA", "BP gradient"}, "dfa": {"early DFA", "BP gradient", "DFA"}}
        expected |= {"weak": {NAMES["weak"]}, "strong": {"DFA", NAMES["strong"]}, "bp": {"BP"}, "bp strong": {"BP"}}
        assert crosses == expected.get(key, {"BP gradient"} if key == "old" else set())
        verdicts = {s.verdict for s in caption.statements}
        assert (verdicts == {""}) == (key == "one seed")

    def test_diverged_runs_and_a_tap_without_value(self):
        taps = {"cos": (0.9, 0.8, 0.1, None, 0.1)}
        weak = [make_run("weak", 1, taps=taps), make_run("weak", 2), make_run("weak", 3, diverged=7)]
        caption = describe([*make_study(without=("weak",)), *weak])
        assert "DFA, λ 0.0001, seed 3: diverged in epoch 7" in caption.gaps
        (own,) = [s for s in caption.statements if (s.quantity, s.group) == ("deep cosine", NAMES["weak"])]
        assert (own.value.mean, own.value.n) == (pytest.approx(DEEP["weak"]), 1)
        assert describe(make_study(weak={"diverged": 7})).gaps == ("DFA, λ 0.0001: diverged in epoch 7",)


class TestSelection:
    def test_the_study_gives_every_condition(self):
        runs = penalty_rescue("paper").runs
        found = {(r["rule"], r.get("penalty", 0.0), r.get("frozen", False)) for r in runs}
        assert found == set(KINDS.values())

    def test_the_course_is_not_that_of_the_early_record_unless_there_is_no_other(self):
        records = make_study(dfa={"epochs": (0, 5, 10, 15, 20, 25, EPOCHS)})  # seven snapshots, as the early one has
        assert len(points(plot_penalty_rescue(records), "A", "DFA mean")) == 7
        alone = state(make_study(without=("dfa",)))
        assert alone["accuracy", "DFA"].value.mean == pytest.approx(ACCURACY["dfa"])

    def test_one_credit_norm_and_the_penalties_of_the_study_are_drawn(self):
        batch = [make_run(k, s, credit_norm="batch", accuracy=0.5) for k in ("dfa", "early", "strong") for s in SEEDS]
        extra = [make_run("dfa", s, penalty=0.1) for s in SEEDS]
        records = [*make_study(), *batch, *extra]
        assert describe(records).statements == describe(make_study()).statements
        other = state(records, credit_norm="batch")
        assert [other["accuracy", n].value.mean for n in (NAMES["strong"], "BP")] == pytest.approx([0.5, 0.58])
        with pytest.raises(CreditscopeError, match="credit norm none"):
            plot_penalty_rescue(batch)

    @pytest.mark.parametrize(
        ("records", "named"),
        [
            ([make_record(rule="bp")], "dfa.* none among 1"),
            ([make_run("dfa", 1, diverged=3)], "diverged or unfinished"),
            (make_study(bp={"lr": 0.1}), "lr"),
            ([*make_study(without=("bp",)), make_run("bp", 9)], "BP has seed 9"),
            ([make_record(facts={"depth": 1}, snapshots=[make_snapshot(make_facts(depth=1))])], "two blocks"),
        ],
    )
    def test_what_cannot_be_drawn_is_refused(self, records, named):
        with pytest.raises(CreditscopeError, match=named):
            plot_penalty_rescue(records)
