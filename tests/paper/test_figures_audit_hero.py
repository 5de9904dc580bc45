"""The audit figure: what it draws and states is what the records hold and what the checks say."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import LABELS, make_facts, make_record, make_snapshot
from drawn import artist, head, line, reach, stated, words
from matplotlib.colors import to_hex
from pages import assert_clear, texts
from scipy import stats

from creditscope.auditing import audit
from creditscope.errors import CreditscopeError
from creditscope.paper.commands.demo import plot_demo
from creditscope.paper.figures._architecture import shown_taps
from creditscope.paper.figures.audit_hero import describe, plot_audit_hero
from creditscope.paper.studies.demo import RULES as DEMO_RULES
from creditscope.plots import save_figure
from creditscope.record import Record, RuleFacts
from creditscope.rule_styles import LOOKS

pytestmark = pytest.mark.slow

TAPS, SEEDS = 5, (1, 2, 3)
COS = {"bp": (1.0,) * 5, "block_fa": (0.1, 0.1, 0.3, 0.2, 1.0), "dfa": (0.01, 0.4, 0.02, 0.01, 0.03)}
G_NORM = {"bp": 1e-1, "block_fa": 1e-2, "dfa": 1e-5}
FAR = {"null_sd": 1e-3, "null_sd_F": 1e-3, "null_q99": 3e-3, "stage_cos": (), "stage_null_sd": ()}
"""So that cosines are far from their null, and weights do not spare taps."""


def make_run(rule: str, seed: int, *, taps: Any = None, last: Any = None, **others: Any) -> Record:
    """One run of one snapshot; `taps` and `last` override it, seeds differ a little in all that is drawn."""
    facts = {"rule": RuleFacts(name=rule, label=LABELS.get(rule, "My rule"), formula="a_l = h_l")}
    exact, off = make_facts(**facts).exact_taps, 0.002 * (seed - 2)
    cos = [c if tap in exact else c + off for tap, c in enumerate(COS.get(rule, (0.2,) * TAPS))]
    norms = {"g_norm": G_NORM.get(rule, 0.1) * 2.0 ** (seed - 2)}
    own = {**FAR, "cos": cos, "cos_F": cos, **norms, "g_noise": (1e-7, 2e-6, 1e-7, 1e-7, 1e-7), **(taps or {})}
    shot = {"gamma": float(np.mean(cos[1:])), "accuracy": 0.5 + off, **(last or {})}
    snapshot = make_snapshot(make_facts(**facts), taps=own, **shot)
    return make_record(rule=rule, seed=seed, facts=facts, snapshots=[snapshot], **others)


def make_runs(rules=("bp", "block_fa", "dfa"), *, seeds=SEEDS, **changed: Any) -> list[Record]:
    """Runs of every rule; `changed` gives the changes of a rule."""
    return [make_run(rule, seed, **changed.get(rule, {})) for rule in rules for seed in seeds]


def state(records: list[Record], **how: Any) -> dict[tuple[str, str], Any]:
    return stated(describe(records, **how))


class TestPicture:
    def test_panels_draw_the_records_of_their_last_snapshots(self):
        _, a, b, c = plot_audit_hero(make_runs()).axes
        assert line(a, "DFA mean") == pytest.approx(np.array([[np.mean(COS["dfa"][1:])], [0.5]]))
        assert line(a, "DFA seeds")[1] == pytest.approx([0.498, 0.5, 0.502])
        assert line(b, "DFA line")[1] == pytest.approx(COS["dfa"][1:])  # the stem is not joined
        assert line(b, "block FA hollow")[1].tolist() == [1.0]
        assert line(c, "block FA line")[1] == pytest.approx([1e-2] * TAPS)  # the mean of log10
        assert [head(ax)[0] for ax in (a, b, c)] == ["A", "B", "C"]

    @pytest.mark.parametrize("best", [0.14, 0.2, 0.4, 0.95])
    def test_the_regions_fill_the_panel_and_meet_at_chance(self, best):
        records = make_runs(("bp",), bp={"last": {"accuracy": best}})
        ax = plot_audit_hero(records, rules=("bp",)).axes[1]
        tints = [patch.get_bbox() for patch in ax.patches]
        assert len(tints) == 4
        assert ax.get_ylim() == pytest.approx((min(t.y0 for t in tints), max(t.y1 for t in tints)))
        assert ax.get_xlim() == pytest.approx((min(t.x0 for t in tints), max(t.x1 for t in tints)))
        level = state(records, rules=("bp",))["least accuracy above chance", "CS010"].value
        assert {t.y0 for t in tints} & {t.y1 for t in tints} == {level}
        assert len(ax.get_yticks()) >= 2
        assert all(max(ax.get_ylim()[0], 0) <= tick <= min(ax.get_ylim()[1], 1) for tick in ax.get_yticks())

    def test_the_drawing_shows_where_credit_is_exact(self):
        said = words(plot_audit_hero(make_runs()).axes[0])
        assert {"stem", "block 1", "block 4", "head", "h₀", "h₄", "BP", "block FA", "DFA"} <= set(said)
        assert (said.count("g₄"), said.count("B₄")) == (2, 1)  # only DFA's last tap is not told the gradient
        assert shown_taps(21) == [0, 1, 2, 18, 19, 20]

    def test_rules_have_their_colours_and_one_of_a_user_its_formula(self):
        fig = plot_demo(make_runs(DEMO_RULES))
        for rule in DEMO_RULES:
            assert to_hex(artist(fig.axes[2], f"{LABELS[rule]} line").get_color()) == LOOKS[rule].colour
        assert_clear(fig)
        said = words(plot_audit_hero(make_runs(("mine", "bp")), rules=("mine", "bp")).axes[0])
        assert "a$_l$ = h$_l$" in said
        assert said.index("BP") < said.index("My rule")

    @pytest.mark.parametrize("case", ["missing", "diverged", "one seed", "unmeasured"])
    def test_what_is_missing_is_a_marked_gap(self, case, tmp_path):
        nothing = {"taps": {"cos": None, "g_noise": None, "g_norm": 0.0}, "last": {"gamma": None, "accuracy": None}}
        own = {
            "missing": {"rules": ("bp", "block_fa")},
            "diverged": {"dfa": {"diverged": 7}},
            "one seed": {"seeds": (1,)},
        }
        records = make_runs(**own.get(case, {"dfa": nothing}))
        fig, caption = plot_audit_hero(records), describe(records)
        assert_clear(fig)
        save_figure(fig, tmp_path, "gap", caption=caption)
        gap = {"missing": "not on record", "diverged": "diverged in epoch 7"}.get(case)
        assert caption.gaps == ((f"dfa: {gap}",) if gap else ())
        assert (gap or "straight to each tap") in texts(fig)
        values = [s.value for s in caption.statements if (s.quantity, s.group) == ("cosine at h₂", "DFA")]
        assert values == [None] if case == "unmeasured" else len(values) == (not gap)

    def test_titles_are_findings_where_the_data_show_them(self):
        """DFA's taps but one are below δ; with cosines above it, equal gradients and Γ below 0 titles claim nothing."""
        _, a, b, c = plot_audit_hero(make_runs()).axes
        assert "all 3 rules" in head(a)[1]
        assert head(b)[1] == "DFA: h₀, h₂, h₃, h₄ get less than 0.05"
        assert head(c)[1] == "DFA: ‖g₄‖ 4.0 orders below BP"
        plain = {"taps": {"cos": 0.4, "cos_F": 0.4, "g_norm": 0.1}, "last": {"gamma": -0.1}}
        _, a, b, c = plot_audit_hero(make_runs(dfa=plain, block_fa=plain)).axes
        for ax in (a, b, c):
            assert not set("0123456789") & set(head(ax)[1]), head(ax)

    def test_nothing_measured_at_all(self):
        empty = make_runs(("bp",), bp={"last": {"gamma": None, "accuracy": None}})
        assert "not measured" in texts(plot_audit_hero(empty, rules=("bp",)))


class TestStatements:
    def test_means_have_t_intervals_and_the_outcomes_of_checks(self):
        records = make_runs()
        found, values = state(records), [0.498, 0.5, 0.502]
        accuracy = found["accuracy", "DFA"]
        assert (accuracy.value.mean, accuracy.value.high) == pytest.approx((0.5, 0.5 + reach(values)))
        outcomes = {f.code: f.outcome.value for f in audit(records).methods[-1].findings}
        assert (accuracy.verdict, outcomes["CS010"]) == ("CS010 passed", "passed")
        assert (found["Γ", "DFA"].verdict, outcomes["CS006"]) == ("CS006 issue", "issue")

    def test_every_tap_has_the_answer_of_cs005(self):
        """Below by its upper bound over seeds; open where the bounds are on both sides of δ."""
        unclear = [{"taps": dict.fromkeys(("cos", "cos_F"), (0.4, 0.4, c, 0.4, 0.4))} for c in (-0.06, 0.02, 0.1)]
        wide = [make_run("dfa", seed, **own) for seed, own in zip(SEEDS, unclear, strict=True)]
        found, other = state(make_runs()), state([*make_runs(("bp",)), *wide])["cosine at h₂", "DFA"]
        assert (other.value.mean, other.verdict) == (pytest.approx(0.02), "open")
        answers = [found[f"cosine at {tap}", "DFA"].verdict for tap in ("h₀", "h₁", "h₂", "h₃", "h₄")]
        assert answers == ["below", "carries", "below", "below", "below"]
        cos = COS["dfa"][4] + np.array([-0.002, 0, 0.002])
        bound = found["upper bound of taps below δ", "DFA"].value
        assert bound == pytest.approx(cos.mean() + reach(cos, 0.95))
        assert bound < found["least alignment of interest, δ", "CS005"].value == 0.05
        assert found["cosine at h₄", "block FA"].verdict == "exact"

    @pytest.mark.parametrize(("accuracy", "above"), [(0.12, False), (0.13, True)])
    def test_chance_is_what_cs010_says_of_one_run(self, accuracy, above):
        """The exact lower bound over 1000 test rows must clear the best constant guess, 0.106."""
        records = make_runs(("bp", "dfa"), seeds=(1,), dfa={"last": {"accuracy": accuracy}})
        found, chance = state(records), ("least accuracy above chance", "CS010")
        hits = next(k for k in range(1, 1000) if stats.beta.ppf(0.05, k, 1001 - k) > 0.106)
        assert found[chance].value == pytest.approx(hits / 1000, abs=6e-4)
        assert (accuracy >= found[chance].value) == (found["accuracy", "DFA"].verdict == "CS010 passed") == above
        provenance = replace(records[0].provenance, facts=replace(records[0].facts, best_constant=None))
        unknown = [replace(records[0], provenance=provenance)]
        assert state(unknown)[chance].value is None
        assert not plot_audit_hero(unknown).axes[1].patches

    def test_gradients_against_bp_in_orders_of_magnitude_and_noise(self):
        orders, noise = "‖g₄‖ against BP, orders of magnitude", "largest share of g that float64 changes"
        found = state(make_runs(bp={"taps": {"g_noise": (0.0, 0.0, 0.3, 0.0, 0.0)}}))
        assert [found[orders, rule].value.mean for rule in ("block FA", "DFA")] == pytest.approx([-1, -4])
        assert (found[noise, "DFA"].value, found[noise, "DFA"].verdict) == (2e-6, "CS002 tip")  # the published floor
        assert (found[noise, "BP"].value, found[noise, "BP"].verdict) == (0.3, "CS002 issue")
        wide = state([*make_runs(("bp", "dfa"))[:-1], make_run("dfa", 3, taps={"g_norm": 1e-9})])
        paired = np.log10([1e-5 / 2 / 0.05, 1e-5 / 0.1, 1e-9 / 0.2])
        assert wide[orders, "DFA"].value.low == pytest.approx(paired.mean() - reach(paired))
        assert (orders, "DFA") not in state(make_runs(("dfa",)))


class TestSelection:
    def test_only_shared_seeds_of_plain_runs_are_drawn(self):
        extra = [make_run("bp", 9), make_run("dfa", 1, frozen=True), make_run("fa", 1, task="other")]
        extra += [make_run("dfa", 1, penalty=0.01, last={"accuracy": 0.9})]
        caption = describe([*make_runs(), *extra])
        assert caption.statements == describe(make_runs()).statements
        assert caption.gaps[0].startswith("bp, seed 9")

    def test_a_rule_may_have_its_own_credit_norm_but_one(self):
        assert state(make_runs(dfa={"credit_norm": "batch"}))["Γ", "DFA, norm batch"].value.n == 3
        with pytest.raises(CreditscopeError, match=r"dfa.*credit_norm \(none, batch\)"):
            describe([*make_runs(), make_run("dfa", 4, credit_norm="batch")])

    @pytest.mark.parametrize(
        ("records", "named"),
        [
            ([], r"bp or block_fa or dfa.* none among 0"),
            (make_runs(("bp",), bp={"diverged": 1}), "diverged or unfinished"),
            ([make_run("bp", 1), make_run("dfa", 2)], "bp has seed 1.*dfa has seed 2"),
            ([*make_runs(), make_run("dfa", 4, epochs=9)], r"epochs \(1, 9\)"),
        ],
    )
    def test_what_cannot_be_drawn_is_refused(self, records, named):
        with pytest.raises(CreditscopeError, match=named):
            plot_audit_hero(records)
