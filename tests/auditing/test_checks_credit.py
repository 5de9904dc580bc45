"""Does credit carry information? Each check in a pair: flags the bad case, passes the good one; its limits move it."""

from typing import Any

import numpy as np
import pytest
from builders import QUICK, make_facts, make_family, make_record, make_snapshot
from judging import (
    AIM,
    BLIND,
    ISSUE,
    NOT_APPLICABLE,
    PASSED,
    SKIPPED,
    TIP,
    UNDECIDED,
    blind_taps,
    judge,
    judge_seeds,
    make_moments,
)
from scipy import stats

from creditscope.auditing import Finding, Thresholds, audit
from creditscope.auditing.tap_credit import descent_estimate
from creditscope.record import RuleFacts, WeightFact


class TestOverwrittenStream:
    """CS001."""

    @pytest.mark.parametrize(
        ("rms", "outcome", "value"),
        [
            ((2, 2, 120, 120, 120), ISSUE, 60),
            ((1, 50, 50, 50, 50), PASSED, 50),  # at the limit is not above it
            ((1, 10, 100, 1000, 10_000), PASSED, 10),  # slow growth over many blocks
            ((100, 100, 1, 1, 1), TIP, 1),
            ((100, 100, 2, 2, 2), PASSED, 1),  # a fiftieth is not under the limit
            ((1, 1, 1, 1, 0.0), TIP, 1),  # to exactly zero
            ((None,) * 5, SKIPPED, None),
            ((1, 1, 1, 1, None), SKIPPED, None),
            ((1, 100, 1, 1, None), ISSUE, 100),
        ],
    )
    def test_the_largest_growth_decides(self, rms, outcome, value):
        found = judge("CS001", snapshot=make_snapshot(taps={"h_rms": rms}))
        assert (found.outcome, found.value) == (outcome, None if value is None else pytest.approx(value))
        assert found.published == (None if value is None else value > 50)
        assert outcome != ISSUE or f"tap {rms.index(max(filter(None, rms)))} (blocks." in found.message

    def test_without_residual_blocks_or_equal_shapes_it_is_not_applicable(self):
        grown = make_snapshot(taps={"h_rms": (1, 100, 100, 100, 100)})
        assert judge("CS001", make_facts(residual=(False,) * 5), grown).outcome == NOT_APPLICABLE
        facts = make_facts(depth=1, tap_shapes=((8,), (16,)))
        assert judge("CS001", facts, make_snapshot(facts, taps={"h_rms": (1, 100)})).outcome == NOT_APPLICABLE
        changed = make_facts(tap_shapes=((8,), (16,), (16,), (16,), (16,)))  # a change of shape is not growth
        assert judge("CS001", changed, grown).outcome == PASSED


class TestRandomOrientation:
    """CS005, δ = 0.05 over the four block taps of a rule without exact credit; more in test_tap_credit."""

    def judge(self, taps: Any = None, facts: Any = None, **limits: float) -> Finding:
        return judge_seeds("CS005", make_moments(facts, taps=taps), **limits)

    @pytest.mark.parametrize(
        ("taps", "outcome", "value"),
        [
            (blind_taps(2), ISSUE, 0.0),
            (None, PASSED, 0.5),
            ([{"cos": c, "cos_F": c} for c in (0.0, 0.1, 0.2)], UNDECIDED, 0.1),
            ({**BLIND, "cos": (0.5, -0.4, -0.4, -0.4, -0.4), "cos_F": -0.4}, ISSUE, -0.4),
            # 2 % of rows reversed and 10⁴ times as large: the plain cosine does not see them
            ({**BLIND, "cos": 0.96, "cos_F": -0.9}, ISSUE, 0.96),
            ({"cos": 0.96, "cos_F": 0.08, "null_sd_F": 0.01}, UNDECIDED, 0.96),
            ({**BLIND, "stage_cos": 0.4}, UNDECIDED, 0.0),  # its weights say otherwise
            ([{}, {"cos": (0.5, 0.5, None, 0.5, 0.5)}, {}], SKIPPED, None),
        ],
    )
    def test_three_answers(self, taps, outcome, value):
        found = self.judge(taps)
        assert (found.outcome, found.value) == (outcome, None if value is None else pytest.approx(value))
        assert (found.seeds_hit, found.seeds) == (3 * (outcome == ISSUE), 3)
        assert ("anti-aligned" in found.message) == (value == -0.4)
        assert "tap 2" in found.message or (outcome, value) not in ((ISSUE, 0.0), (SKIPPED, None))

    def test_the_stem_is_told_of_and_does_not_decide(self):
        blind, told = self.judge(blind_taps(0)), self.judge()
        assert (blind.outcome, told.outcome) == (PASSED, PASSED)
        assert blind.message != told.message

    def test_one_run_passes_or_is_undecided(self):
        assert judge("CS005").outcome == PASSED
        assert judge("CS005", snapshot=make_snapshot(taps=BLIND)).outcome == UNDECIDED

    @pytest.mark.parametrize(("cos", "outcome"), [(0.998, ISSUE), (0.9995, PASSED)])
    def test_taps_that_are_declared_exact_are_checked(self, cos, outcome):
        facts = make_facts(exact_taps=(3,))
        assert self.judge({"cos": (0.5, 0.5, 0.5, cos, 0.5)}, facts).outcome == outcome
        bp = make_facts(rule="bp")
        assert self.judge({"cos": (1, 1, 1, cos, 1)}, bp).outcome == outcome
        assert self.judge({"cos": (1, 1, 1, cos, 1)}, bp, exact_cos=0.9).outcome == PASSED

    def test_declared_exact_and_measured_otherwise_is_an_issue_of_one_run_too(self):
        facts = make_facts(rule="bp")
        found = judge("CS005", facts, make_snapshot(facts, taps={"cos": (1, 1, 0.33, 1, 1)}))
        assert found.outcome == ISSUE
        assert "+0.330" in found.message

    def test_an_exact_tap_that_no_gradient_arrives_at_leaves_it_open(self):
        """A stream detached halfway: nothing is handed to the taps below, whatever the rule promises."""
        facts = make_facts(rule="bp")
        cut = make_snapshot(facts, taps={"rows_used": (0, 0, 1000, 1000, 1000), "cos": (None, None, 1, 1, 1)})
        found = judge("CS005", facts, cut)
        assert found.outcome == SKIPPED
        assert ["taps 0, 1" in judge(code, facts, cut).message for code in ("CS005", "CS006", "CS008")] == [True] * 3

    def test_another_aim_is_not_applicable(self):
        found = self.judge(BLIND, make_facts(rule=AIM))
        assert (found.outcome, "equilibrium" in found.message) == (NOT_APPLICABLE, True)


class TestHiddenLayers:
    """CS006. Γ = 0.5 with a null sd of 0.025 unless said otherwise; the stem's tap is not in Γ."""

    def judge(self, *blind: int, facts: Any = None, limits: Any = None, **others: Any) -> Finding:
        return judge_seeds("CS006", make_moments(facts, taps=blind_taps(*blind), **others), **(limits or {}))

    @pytest.mark.parametrize(
        ("blind", "outcome", "share"),
        [((2, 3, 4), ISSUE, 0.25), ((3, 4), ISSUE, 0.5), ((0, 4), PASSED, 0.75)],  # half is still hiding
    )
    def test_at_most_half_of_the_taps_make_the_mean(self, blind, outcome, share):
        found = self.judge(*blind)
        assert (found.outcome, found.value) == (outcome, share)
        assert outcome == PASSED or f"taps {', '.join(map(str, blind))} of 4" in found.message

    @pytest.mark.parametrize("fewest", [3, 0])
    def test_a_net_whose_only_inexact_tap_is_the_stem_hides_nothing(self, fewest):
        facts = make_facts(rule="fa", depth=1, exact_taps=(1,))
        assert judge("CS006", facts, make_snapshot(facts), hidden_taps=fewest).outcome == NOT_APPLICABLE

    def test_taps_that_may_carry_leave_it_undecided(self):
        """One tap carries, one does not, two are open: between a quarter and three quarters."""
        own = [{**blind_taps(4), n: (0.5, 0.5, c, c, 0.0)} for c in (0.0, 0.1, 0.2) for n in ("cos",)]
        found = judge_seeds("CS006", make_moments(taps=own))
        assert (found.outcome, found.value) == (UNDECIDED, 0.25)
        one_run = judge("CS006", snapshot=make_snapshot(taps=blind_taps(2, 3, 4)))
        assert one_run.outcome == UNDECIDED  # nothing is below of a single run

    @pytest.mark.parametrize("seeds", [1, 4])
    def test_a_mean_at_chance_hides_nothing(self, seeds):
        limit = max(stats.norm.isf(0.01) * 0.025 / np.sqrt(seeds), 0.05)  # nor does one under δ
        below = self.judge(2, 3, 4, gamma=0.99 * limit, seeds=seeds)
        assert (below.outcome, below.value) == (PASSED, 0.25)
        assert self.judge(2, 3, 4, gamma=1.01 * limit, seeds=seeds).outcome == (ISSUE if seeds > 1 else UNDECIDED)

    def test_below_three_taps_is_not_applicable(self):
        facts = make_facts(exact_taps=(3, 4))
        assert self.judge(2, facts=facts).outcome == NOT_APPLICABLE
        assert self.judge(2, facts=facts, limits={"hidden_taps": 2}).outcome == ISSUE
        assert self.judge(2, 3, facts=make_facts(exact_taps=(4,))).outcome == ISSUE  # three are enough

    def test_exact_credit_is_not_applicable_and_no_mean_is_skipped(self):
        assert judge("CS006", make_facts(rule="bp")).outcome == NOT_APPLICABLE
        assert self.judge(gamma=[0.5, None, 0.5]).outcome == SKIPPED
        assert self.judge(gamma_null_sd=None).outcome == SKIPPED

    def test_a_tap_without_rows_is_neither_blind_nor_informed(self):
        found = judge_seeds("CS006", make_moments(taps={"cos": (0.5, 0.5, None, 0.0, 0.0)}))
        assert (found.outcome, found.message[-5:]) == (SKIPPED, "tap 2")


class TestDescentDisagrees:
    """CS008, level 0.01; null of the descent 0.02 ± 0.01 over 64 rotations."""

    def judge(self, taps: Any = None, facts: Any = None, **limits: float) -> Finding:
        return judge_seeds("CS008", make_moments(facts, taps=taps), **limits)

    def test_agreement_above_both_passes_and_without_alignment_nothing_is_contradicted(self):
        """CS005 walks such taps back."""
        found, blind = self.judge(), self.judge(BLIND)
        assert (found.outcome, found.value, "4 of 4" in found.message) == (PASSED, 0, True)
        assert (blind.outcome, blind.value) == (NOT_APPLICABLE, None)

    @pytest.mark.parametrize(
        ("taps", "said"),
        [
            ([{"descent": (0.4, 0.4, d, 0.4, 0.4)} for d in (0.010, 0.0102, 0.0104)], "tap 2"),
            ({**BLIND, **dict.fromkeys(("cos", "cos_F"), (0.5, 0.5, 0.5, -0.3, 0.5)), "descent": 0.4}, "tap 3"),
        ],
    )
    def test_aligned_without_descent_and_descent_against_the_cosine(self, taps, said):
        found = self.judge(taps)
        assert (found.outcome, found.value, said in found.message) == (ISSUE, 1, True)

    @pytest.mark.parametrize(("used", "counted"), [(1000, False), (60, True)])
    def test_rows_without_credit_are_counted_where_they_may_be_the_cause(self, used, counted):
        """They are left out of cos, and not of cos_F and of descent."""
        rows = {"rows_used": used, "rows_no_gradient": 0, "rows_no_credit": 1000 - used}
        found = self.judge([{"descent": (0.4, 0.4, d, 0.4, 0.4), **rows} for d in (0.010, 0.0102, 0.0104)])
        assert (found.outcome, found.value) == (ISSUE, 1)
        assert ("940 of 1,000 rows with a gradient at tap 2" in found.message) == counted
        held_down = judge_seeds("CS005", make_moments(taps={"cos": 0.8, "cos_F": 0.3, **rows}))
        assert held_down.outcome == UNDECIDED
        assert ("940 of 1,000" in held_down.message, "a few rows" in held_down.message) == (counted, not counted)

    def test_descent_with_a_weak_cosine_is_no_contradiction(self):
        weak = {"cos": (0.5, 0.5, 0.5, 0.01, 0.5), "cos_F": (0.5, 0.5, 0.5, 0.01, 0.5), "stage_cos": 0.0}
        assert self.judge(weak).outcome == PASSED
        assert judge_seeds("CS005", make_moments(taps=weak)).outcome == ISSUE

    @pytest.mark.parametrize(
        "descents", [(0.03, 0.04, 0.05), (0.03, 0.035, 0.04), (0.019, 0.018, 0.017), (0.0, 0.1, 0.4)]
    )
    @pytest.mark.parametrize("level", [0.01, 0.05])
    def test_bounds_are_those_of_a_t_test_over_seeds(self, descents, level):
        beyond = np.array(descents) - 0.02
        above = stats.ttest_1samp(beyond, 0, alternative="greater").pvalue < level
        below = stats.ttest_1samp(beyond, 0, alternative="less").pvalue <= level
        found = self.judge([{"descent": (0.4, 0.4, d, 0.4, 0.4)} for d in descents], orientation=level)
        assert found.outcome == (PASSED if above else ISSUE if below else UNDECIDED)

    @pytest.mark.parametrize("power", [1, 2])
    def test_random_credit_is_seldom_called_a_contradiction(self, power):
        """Taps of random orientation over three seeds; descent ∝ max(0, cos)^power, its null from 64 rotations."""
        stream, issues, runs = np.random.default_rng(0), 0, 200
        for _ in range(runs):
            own = []
            for _ in range(3):
                z, null = stream.normal(size=5), np.maximum(stream.normal(size=(5, 64)), 0) ** power
                taps = {"cos": 0.05 * z, "cos_F": 0.05 * z, "descent": np.maximum(z, 0) ** power}
                taps |= {"descent_null": null.mean(1), "descent_null_sd": null.std(1, ddof=1)}
                own.append({name: values.tolist() for name, values in taps.items()})
            issues += self.judge(own).outcome == ISSUE
        assert issues / runs <= 0.02

    @pytest.mark.parametrize(("share", "above"), [(0.999, False), (1.001, True)])
    def test_of_one_run_a_t_test_of_one_more_rotation_decides(self, share, above):
        limit = stats.t.isf(0.01, df=64 - 1) * np.sqrt(1 + 1 / 64)
        (moment,) = make_moments(seeds=1, taps={"descent": 0.02 + 0.01 * share * limit})
        found = descent_estimate([moment], 4, "descent", over_null=True, confidence=1 - Thresholds().orientation)
        assert found is not None
        assert (found.low > 0) == above
        assert judge("CS008", snapshot=moment.snapshot).outcome == (PASSED if above else UNDECIDED)

    def test_one_run_is_never_an_issue(self):
        assert judge("CS008", snapshot=make_snapshot(taps={"descent": -1.0})).outcome == UNDECIDED

    def test_exact_taps_are_left_out(self):
        facts = make_facts(exact_taps=(2,))
        taps = {"descent": (0.4, 0.4, 0.0, 0.4, 0.4), "cos": (0.5, 0.5, 1, 0.5, 0.5)}
        assert self.judge(taps, facts).outcome == PASSED
        assert judge("CS008", make_facts(rule="bp")).outcome == NOT_APPLICABLE
        assert self.judge(facts=make_facts(rule=AIM)).outcome == NOT_APPLICABLE  # judged by its updates

    @pytest.mark.parametrize(("spec", "remedy"), [({"tier": "quick"}, "--tier standard)"), (None, 'tier="full"))')])
    def test_not_measured_is_skipped_with_the_remedy(self, spec, remedy):
        found = judge("CS008", snapshot=make_snapshot(taps=QUICK), spec=spec)
        assert (found.outcome, found.message[-len(remedy) :]) == (SKIPPED, remedy)

    @pytest.mark.parametrize("name", ["cos", "descent", "descent_null", "descent_null_sd"])
    def test_a_tap_without_an_input_in_one_seed_is_skipped(self, name):
        value = {"cos": 0.5, "descent": 0.4, "descent_null": 0.02, "descent_null_sd": 0.01}[name]
        found = self.judge([{}, {name: (value, value, None, value, value)}, {}])
        assert found.outcome == SKIPPED
        assert "tap 2" in found.message

    def test_the_middle_of_training_is_not_judged_where_it_was_not_measured(self):
        """At tier standard only the last snapshot has a descent; a gap is no first epoch."""
        facts = make_facts()
        middle = make_snapshot(facts, epoch=5, taps=QUICK)
        for last, first_epoch in (({"descent": 0.01}, 10), ({}, None)):
            snapshots = [make_snapshot(facts, epoch=0), middle, make_snapshot(facts, epoch=10, taps=last)]
            (method,) = audit([make_record(seed=s, epochs=10, snapshots=snapshots) for s in (1, 2)]).methods
            found = {f.code: f for f in method.findings}["CS008"]
            assert (found.outcome, found.first_epoch) == (ISSUE if first_epoch else PASSED, first_epoch)


class TestDeclaredExact:
    """Taps that a rule declares exact are looked at whatever it aims at, and by whichever cosine there is."""

    @pytest.mark.parametrize("aim", ["gradient", "equilibrium"])
    @pytest.mark.parametrize(
        "taps", [{"cos": 0.2, "cos_F": 0.2}, {"cos": 0.2, "cos_F": None}, {"cos": None, "cos_F": 0.2}]
    )
    def test_what_is_not_is_said(self, aim, taps):
        facts = make_facts(rule=RuleFacts(name="mine", label="mine", approximates=aim), exact_taps=(4,))
        at_top = {name: (0.5,) * 4 + (value,) for name, value in taps.items()}
        found = judge_seeds("CS005", make_moments(facts, taps=at_top))
        assert found.outcome == ISSUE
        assert "4 (+0.200)" in found.message

    def test_what_is_passes(self):
        facts = make_facts(rule=RuleFacts(name="mine", label="mine", approximates="equilibrium"), exact_taps=(4,))
        assert judge_seeds("CS005", make_moments(facts)).outcome == NOT_APPLICABLE


ROLES = ("exact", "rule", "rule", "rule", "rule", "exact")  # of the stem, four blocks and the head
WEIGHTS = tuple(WeightFact(name=f"w{stage}", stage=stage, role=role) for stage, role in enumerate(ROLES))
FACTS = make_facts(rule=AIM, weights=WEIGHTS)


def judge_stages(*seeds: Any, facts: Any = FACTS, **limits: float) -> Finding:
    """What is given is the share of the gradient's decrease, one number or one per tap, for each seed."""
    return judge_seeds("CS012", make_moments(facts, taps=[{"descent_stage": one} for one in seeds]), **limits)


class TestUpdatesDoNotDescend:
    """CS012: of a rule with another aim, every trained stage's own update must lower the loss."""

    def test_all_stages_none_or_only_some_descend(self):
        every, none = judge_stages(0.4, 0.41, 0.42), judge_stages(0.01, 0.012, 0.014)
        assert (every.outcome, every.value) == (PASSED, pytest.approx(0.41))
        assert (none.outcome, none.value, none.seeds_hit) == (ISSUE, pytest.approx(0.012), 3)
        some = judge_stages(*[(0.4, 0.4, 0.01, 0.4, 0.01)] * 3)
        assert (some.outcome, some.value) == (UNDECIDED, pytest.approx(0.01))
        assert "stages 2, 4 of 5" in some.message

    @pytest.mark.parametrize(
        "shares", [(0.06, 0.062, 0.064), (0.0, 0.06, 0.12), (0.02, 0.03, 0.04), (0.03, 0.05, 0.08)]
    )
    def test_bounds_are_those_of_a_t_test_over_seeds(self, shares):
        """Against a null of next to nothing."""
        above = stats.ttest_1samp(shares, 0.05, alternative="greater").pvalue <= 0.05
        below = stats.ttest_1samp(shares, 0.05, alternative="less").pvalue < 0.05
        assert judge_stages(*shares).outcome == (PASSED if above else ISSUE if below else UNDECIDED)

    def test_it_must_be_more_than_its_null(self):
        """A random update that would do as well is no evidence."""
        taps = [{"descent_stage": 0.4, "descent_stage_null": null} for null in (0.3, 0.4, 0.5)]
        assert judge_seeds("CS012", make_moments(FACTS, taps=taps)).outcome == UNDECIDED

    def test_the_level_of_the_null_moves_the_outcome(self):
        shares = (0.1, 0.12, 0.16)  # beyond a null of 0.02 with p = 0.013
        p = stats.ttest_1samp(np.array(shares) - 0.02, 0, alternative="greater").pvalue
        assert 0.01 < p < 0.02
        assert judge_stages(*shares, descent_share=0).outcome == UNDECIDED
        assert judge_stages(*shares, descent_share=0, orientation=0.02).outcome == PASSED

    def test_one_run_by_its_rotations_and_never_an_issue(self):
        limit = stats.t.isf(0.05, df=64 - 1) * np.sqrt(1 + 1 / 64) * 0.01
        for share, outcome in ((0.05 + 1.01 * limit, PASSED), (0.05 + 0.99 * limit, UNDECIDED), (0.0, UNDECIDED)):
            assert judge("CS012", FACTS, make_snapshot(FACTS, taps={"descent_stage": share})).outcome == outcome

    def test_every_stage_that_is_trained_is_asked_whatever_it_says_of_its_gradient(self):
        assert judge_stages(*[(0.0, 0.4, 0.4, 0.4, 0.4)] * 3).outcome == UNDECIDED
        exact, unused = (
            make_facts(rule=AIM, weights=tuple(WeightFact(name=w.name, stage=w.stage, role=role) for w in WEIGHTS))
            for role in ("exact", "unused")
        )
        assert judge_stages(0.0, 0.0, facts=exact).outcome == ISSUE
        assert judge_stages(0.0, 0.0, facts=unused).outcome == NOT_APPLICABLE

    def test_a_rule_that_aims_at_the_gradient_is_judged_by_alignment(self):
        assert judge_seeds("CS012", make_moments(taps=BLIND)).outcome == NOT_APPLICABLE

    @pytest.mark.parametrize("name", ["descent_stage", "descent_stage_null", "descent_stage_null_sd"])
    def test_what_was_not_measured_is_skipped(self, name):
        for taps in (QUICK, {name: ()}, {name: (0.4, 0.4, None, 0.4, 0.4)}):
            found = judge_seeds("CS012", make_moments(FACTS, taps=[{}, taps, {}]))
            assert found.outcome == SKIPPED
            assert "2" in found.message

    def test_label_blind_noise_is_not_trustworthy_because_nothing_was_asked(self):
        """Through the whole audit: the credit line answers by CS012 alone."""
        words = {}
        for share in (0.4, 0.012):
            own = {"facts": {"rule": AIM, "weights": WEIGHTS}, "taps": {**BLIND, "descent_stage": share}}
            (found,) = [m for m in audit(make_family("dfa", **own)).methods if m.method == "PC"]
            words[share] = (found.verdict.word, found.verdict.codes, found.verdict.lines[1].answer)
        assert words == {0.4: ("trustworthy", (), "yes"), 0.012: ("walk back", ("CS012",), "no")}
