"""Each check in a pair: flags the bad case, passes the good one; and its limit, moved, moves the outcome."""

from typing import Any

import pytest
from builders import make_facts, make_record, make_snapshot, make_weights
from scipy import stats

from creditscope.auditing import Finding, Outcome, Thresholds
from creditscope.auditing.checks import MethodCheck, RunCheck, all_checks
from creditscope.auditing.methods import Method
from creditscope.record import Facts, Record, RuleFacts, Snapshot, WeightFact

ISSUE, TIP, PASSED, UNDECIDED = Outcome.ISSUE, Outcome.TIP, Outcome.PASSED, Outcome.UNDECIDED
NOT_APPLICABLE, SKIPPED = Outcome.NOT_APPLICABLE, Outcome.SKIPPED
CHECKS = {check.code: check for check in all_checks()}


def judge(code: str, facts: Facts | None = None, snapshot: Snapshot | None = None, **limits: float) -> Finding:
    """One check on one moment; a healthy one unless said otherwise."""
    check = CHECKS[code]
    assert isinstance(check, RunCheck)
    facts = facts or make_facts()
    return check.judge(facts, snapshot or make_snapshot(facts), Thresholds().changed(**limits))


def test_the_codes_are_these():
    assert list(CHECKS) == ["CS001", "CS002", "CS004", "CS005", "CS006", "CS007", "CS010"]


@pytest.mark.parametrize("code", ["CS001", "CS002", "CS005", "CS006", "CS007", "CS010"])
def test_a_healthy_moment_passes(code):
    assert judge(code).outcome == PASSED


class TestOverwrittenStream:
    """CS001."""

    def rms(self, *values: float | None) -> Snapshot:
        return make_snapshot(taps={"h_rms": values})

    def test_growth_of_one_block(self):
        found = judge("CS001", snapshot=self.rms(2, 2, 120, 120, 120))
        assert (found.outcome, found.value, found.published) == (ISSUE, 60.0, True)
        assert "tap 2 (blocks.1) is 60 times" in found.message
        assert "limit is 50" in found.message

    def test_slow_growth_over_many_blocks_passes(self):
        found = judge("CS001", snapshot=self.rms(1, 10, 100, 1000, 10_000))
        assert (found.outcome, found.published) == (PASSED, False)
        assert found.value == pytest.approx(10)

    def test_limit_moves_the_outcome(self):
        moment = self.rms(1, 30, 30, 30, 30)
        assert judge("CS001", snapshot=moment).outcome == PASSED
        assert judge("CS001", snapshot=moment, growth=29.9).outcome == ISSUE
        assert judge("CS001", snapshot=moment, growth=30).outcome == PASSED  # at the limit is not above it

    def test_shrinking_is_a_tip(self):
        found = judge("CS001", snapshot=self.rms(100, 100, 1, 1, 1))
        assert (found.outcome, found.message) == (TIP, "tap 2 shrinks the stream 100-fold")

    def test_a_state_of_exactly_zero_is_judged_too(self):
        assert judge("CS001", snapshot=self.rms(1, 1, 1, 1, 0.0)).outcome == TIP

    def test_no_residual_block_is_not_applicable(self):
        found = judge("CS001", make_facts(residual=(False,) * 5), self.rms(1, 100, 1, 1, 1))
        assert (found.outcome, found.message) == (
            NOT_APPLICABLE,
            "no tapped module gives the tap before it plus something (is the skip outside of it?)",
        )

    def test_a_change_of_shape_is_not_growth(self):
        facts = make_facts(tap_shapes=((8,), (16,), (16,), (16,), (16,)))
        assert judge("CS001", facts, self.rms(1, 100, 100, 100, 100)).outcome == PASSED

    def test_sizes_unknown_is_skipped(self):
        found = judge("CS001", snapshot=self.rms(None, None, None, None, None))
        assert (found.outcome, found.message) == (SKIPPED, "the states have no finite size at neighbouring taps")

    def test_one_size_unknown_is_not_passed_over(self):
        assert judge("CS001", snapshot=self.rms(1, 1, 1, 1, None)).outcome in (SKIPPED, ISSUE)


class TestUnresolvedReference:
    """CS002."""

    def test_noise(self):
        found = judge("CS002", snapshot=make_snapshot(taps={"g_noise": (1e-7, 1e-7, 0.3, 1e-7, 1e-7)}))
        assert (found.outcome, found.value) == (ISSUE, 0.3)
        assert "3.0e-01 of the gradient at worst (tap 2); the limit is 0.1" in found.message

    def test_noise_limit_moves_the_outcome(self):
        moment = make_snapshot(taps={"g_noise": 0.09})
        assert judge("CS002", snapshot=moment).outcome == PASSED
        assert judge("CS002", snapshot=moment, noise=0.08).outcome == ISSUE

    def test_most_rows_fitted(self):
        found = judge("CS002", snapshot=make_snapshot(rows_covered=800, rows_fitted=401))
        assert (found.outcome, found.message) == (ISSUE, "401 of 800 rows have no resolvable error left")

    def test_fitted_limit_moves_the_outcome(self):
        moment = make_snapshot(rows_covered=800, rows_fitted=400)
        assert judge("CS002", snapshot=moment).outcome == PASSED
        assert judge("CS002", snapshot=moment, fitted_rows=0.49).outcome == ISSUE

    def test_no_gradient_anywhere(self):
        found = judge("CS002", snapshot=make_snapshot(taps={"rows_used": 0, "g_noise": None}))
        assert (found.outcome, found.message) == (ISSUE, "no row has a gradient at any tap")

    def test_published_floor_is_a_tip(self):
        found = judge("CS002", snapshot=make_snapshot(taps={"g_norm": (1, 1, 1, 1, 1.27e-5)}))
        assert (found.outcome, found.published) == (TIP, True)
        assert "‖g_L‖ = 1.3e-05 is under the published floor" in found.message

    def test_floor_moves_the_outcome(self):
        moment = make_snapshot(taps={"g_norm": (1e-9, 1e-9, 1e-9, 1e-9, 2e-5)})  # the top tap alone counts
        assert (judge("CS002", snapshot=moment).outcome, judge("CS002", snapshot=moment).published) == (PASSED, False)
        assert judge("CS002", snapshot=moment, floor=3e-5).outcome == TIP

    def test_float64_is_not_applicable(self):
        found = judge("CS002", make_facts(precision="float64"), make_snapshot(taps={"g_noise": None}))
        assert found.outcome == NOT_APPLICABLE
        assert "float64 already" in found.message

    def test_noise_not_measured_is_skipped_with_the_note(self):
        unknown = {"g_noise": None}
        assert judge("CS002", snapshot=make_snapshot(taps=unknown)).message == "g_noise was not measured"
        found = judge("CS002", snapshot=make_snapshot(taps=unknown, notes=("the net does not run in float64",)))
        assert (found.outcome, found.message) == (SKIPPED, "the net does not run in float64")

    def test_noise_unknown_at_one_tap_is_not_a_pass(self):
        dead = {"g_noise": (None, 1e-7, 1e-7, 1e-7, 1e-7), "rows_used": (0, 1000, 1000, 1000, 1000)}
        assert judge("CS002", snapshot=make_snapshot(taps=dead)).outcome in (SKIPPED, ISSUE)


class TestDepthNotUsed:
    """CS004. Gains of BP over frozen BP are 0.30 unless said otherwise."""

    OWN = (0.70, 0.71, 0.72)

    def method(self, own=OWN, frozen_own=(0.35, 0.36, 0.34), bp=(0.7, 0.7, 0.7), frozen_bp=(0.4, 0.4, 0.4), **facts):
        def by_seed(values, rule: str, frozen: bool) -> dict[int, Record]:
            return {
                seed: make_record(rule=rule, seed=seed, accuracy=value, frozen=frozen, facts=facts)
                for seed, value in enumerate(values)
                if value is not None
            }

        return Method(
            "DFA",
            "here",
            by_seed(own, "dfa", False),
            by_seed(frozen_own, "dfa", True),
            by_seed(bp, "bp", False),
            by_seed(frozen_bp, "bp", True),
        )

    def judge(self, method: Method, **limits: float) -> Finding:
        check = CHECKS["CS004"]
        assert isinstance(check, MethodCheck)
        return check.judge(method, Thresholds().changed(**limits))

    def test_passed(self):
        found = self.judge(self.method())
        bounds = stats.ttest_1samp([0.30, 0.31, 0.32], 0, alternative="greater").confidence_interval(0.95)
        assert (found.outcome, found.published) == (PASSED, False)
        assert found.value == pytest.approx(0.31)
        assert "+31.0 pp over the BP-frozen baseline" in found.message
        assert f"({100 * bounds.low:+.1f} to" in found.message
        assert "n = 3, t over seeds" in found.message
        assert "103% of BP's gain" in found.message

    def test_issue(self):
        found = self.judge(self.method(own=(0.40, 0.41, 0.405)))
        assert (found.outcome, found.published) == (ISSUE, False)  # the published check looks at the own baseline
        assert found.value == pytest.approx(0.005)
        assert found.message.endswith("training the blocks does not pay")

    def test_undecided(self):
        found = self.judge(self.method(own=(0.41, 0.45, 0.52)))
        assert found.outcome == UNDECIDED
        assert found.value == pytest.approx(0.06)
        assert found.message.endswith("more seeds needed")

    @pytest.mark.parametrize("gains", [(0.30, 0.31, 0.32), (0.0, 0.01, 0.005), (0.01, 0.05, 0.12), (0.03, 0.035, 0.04)])
    def test_the_bounds_are_those_of_a_paired_t_test(self, gains):
        found = self.judge(self.method(own=[0.4 + g for g in gains]))
        above = stats.ttest_1samp(gains, 0.02, alternative="greater").pvalue <= 0.05
        below = stats.ttest_1samp(gains, 0.02, alternative="less").pvalue < 0.05
        assert found.outcome == (PASSED if above else ISSUE if below else UNDECIDED)

    def test_pairing_is_by_seed(self):
        """Seeds differ by far more than the gain; only differences within a seed show it."""
        base = (0.2, 0.4, 0.6)
        own = [b + g for b, g in zip(base, (0.050, 0.051, 0.052), strict=True)]
        bp = [b + 0.3 for b in base]
        assert self.judge(self.method(own=own, frozen_own=base, bp=bp, frozen_bp=base)).outcome == PASSED

    def test_the_better_baseline_counts(self):
        found = self.judge(self.method(frozen_own=(0.69, 0.70, 0.71)))
        assert "+1.0 pp over the own-rule frozen baseline" in found.message
        assert (found.outcome, found.published) == (ISSUE, True)

    def test_limits_move_the_outcome(self):
        own = (0.42, 0.45, 0.48)  # gains 2, 5, 8 pp; mean 5, standard error √3 pp
        assert self.judge(self.method(own=own)).outcome == UNDECIDED
        assert self.judge(self.method(own=own), depth_gain=0).outcome == UNDECIDED  # low −0.06 pp
        assert self.judge(self.method(own=own), depth_gain=0, depth_confidence=0.9).outcome == PASSED
        assert self.judge(self.method(own=own), depth_gain=0.2).outcome == ISSUE
        assert self.judge(self.method(), task_gain=0.31).outcome == NOT_APPLICABLE
        assert self.judge(self.method(), seeds=4).outcome == SKIPPED

    def test_a_task_without_depth_is_not_applicable(self):
        found = self.judge(self.method(bp=(0.43, 0.44, 0.45)))
        assert found.outcome == NOT_APPLICABLE
        assert "cannot show use of depth: BP itself gains +4.0 pp over frozen blocks, under 5 pp" in found.message

    def test_a_watched_model_is_not_applicable(self):
        found = self.judge(self.method(trainer=False))
        assert (found.outcome, found.message.split(":")[0]) == (NOT_APPLICABLE, "use of depth not tested")

    def test_too_few_seeds_is_skipped(self):
        assert self.judge(self.method(own=(0.7,))).message == "1 seed, needs 3"
        found = self.judge(self.method(own=(0.7, 0.7)))
        assert (found.outcome, found.message) == (SKIPPED, "2 seeds, needs 3")

    def test_missing_baselines_are_named(self):
        found = self.judge(self.method(frozen_own=(), frozen_bp=(0.4, 0.4)))
        assert found.outcome == SKIPPED
        assert found.message == "no own frozen and no frozen BP runs of the same seeds on record: add --baselines"

    def test_baselines_of_other_seeds_are_skipped(self):
        """Each baseline shares three seeds with the method, but no seed has them all."""
        own = (0.70, 0.71, 0.72, 0.70, 0.71, 0.72)
        early, late = (0.35, 0.36, 0.34, None, None, None), (None, None, None, 0.4, 0.4, 0.4)
        assert self.judge(self.method(own=own, frozen_own=early, bp=own, frozen_bp=late)).outcome == SKIPPED
        assert self.judge(self.method(own=own, frozen_own=own, bp=early, frozen_bp=late)).outcome == SKIPPED

    def test_a_bound_needs_two_seeds_whatever_the_limit(self):
        one = self.method(own=(0.7,), frozen_own=(0.3,), bp=(0.7,), frozen_bp=(0.4,))
        assert self.judge(one, seeds=1).outcome == SKIPPED


class TestRandomOrientation:
    """CS005, level 0.01 over the five taps of a rule without exact credit."""

    def z(self, *values: float | None, **others: Any) -> Snapshot:
        return make_snapshot(taps={"z": values, **others})

    def test_a_blind_tap(self):
        found = judge("CS005", snapshot=self.z(9, 8, 0.5, 7, 9, cos=(0.3, 0.3, 0.012, 0.3, 0.3)))
        assert (found.outcome, found.value) == (ISSUE, 0.5)
        assert found.message == "tap 2 (cos +0.012, z +0.5): no better than chance"

    def test_all_informed(self):
        found = judge("CS005", snapshot=self.z(9, 8, 5, 7, 9))
        assert (found.outcome, found.value) == (PASSED, 5)
        assert found.message == "all 5 taps without exact credit are above chance"

    def test_opposed_credit_is_not_informed(self):
        assert judge("CS005", snapshot=self.z(9, 8, -9, 7, 9)).outcome == ISSUE

    def test_holm_is_stricter_than_single_tests(self):
        """Two taps at z = 2.4: each alone is under 0.01, but the first of the two must be under 0.01/2."""
        p = stats.norm.sf(2.4)
        assert 0.01 / 2 < p < 0.01
        assert judge("CS005", snapshot=self.z(9, 9, 9, 2.4, 2.4)).outcome == ISSUE

    def test_holm_is_milder_than_bonferroni(self):
        """One tap at z = 2.4 after four sure ones is tested at the whole 0.01, not at 0.01/5."""
        assert 0.01 / 5 < stats.norm.sf(2.4) < 0.01
        assert judge("CS005", snapshot=self.z(9, 9, 9, 9, 2.4)).outcome == PASSED

    def test_level_moves_the_outcome(self):
        moment = self.z(9, 9, 9, 9, 2.4)  # p = 0.0082
        assert judge("CS005", snapshot=moment, orientation=0.008).outcome == ISSUE
        assert judge("CS005", snapshot=moment, orientation=0.009).outcome == PASSED

    def test_exact_credit_is_not_applicable(self):
        found = judge("CS005", make_facts(rule="bp"))
        assert (found.outcome, found.message) == (NOT_APPLICABLE, "every tap is handed the exact gradient")

    def test_exact_taps_are_left_out(self):
        assert judge("CS005", make_facts(exact_taps=(2,)), self.z(9, 9, 0.0, 9, 9)).outcome == PASSED

    def test_another_aim_is_not_applicable(self):
        aim = RuleFacts(name="pc", label="PC", approximates="equilibrium")
        found = judge("CS005", make_facts(rule=aim), self.z(0, 0, 0, 0, 0))
        assert found.message == "the rule approximates equilibrium, not the gradient"
        assert found.outcome == NOT_APPLICABLE

    def test_a_tap_without_rows_is_skipped(self):
        found = judge("CS005", snapshot=self.z(None, 9, None, 9, 9))
        assert (found.outcome, found.message) == (SKIPPED, "no usable rows at taps 0, 2")


class TestHiddenLayers:
    """CS006. Γ = 0.5 with a null sd of 0.025 unless said otherwise; the stem's tap is not in Γ."""

    def z(self, *values: float | None, **others: Any) -> Snapshot:
        return make_snapshot(taps={"z": values}, **others)

    def test_one_tap_makes_the_mean(self):
        found = judge("CS006", snapshot=self.z(9, 9, 0, 0, 0))
        assert (found.outcome, found.value) == (ISSUE, 0.25)
        assert "Γ = +0.500 looks informative, but taps 2, 3, 4 of 4 block taps" in found.message

    def test_half_is_still_hiding_and_more_is_not(self):
        assert judge("CS006", snapshot=self.z(9, 9, 9, 0, 0)).outcome == ISSUE
        found = judge("CS006", snapshot=self.z(0, 9, 9, 9, 0))
        assert (found.outcome, found.message) == (PASSED, "3 of 4 block taps are above chance")

    def test_share_moves_the_outcome(self):
        moment = self.z(9, 9, 9, 0, 0)
        assert judge("CS006", snapshot=moment, hidden_share=0.49).outcome == PASSED
        assert judge("CS006", snapshot=self.z(9, 9, 9, 9, 0), hidden_share=0.75).outcome == ISSUE

    def test_a_mean_at_chance_hides_nothing(self):
        limit = stats.norm.isf(0.01) * 0.025
        below = judge("CS006", snapshot=self.z(9, 9, 0, 0, 0, gamma=0.99 * limit))
        assert below.outcome == PASSED
        assert "not above chance itself" in below.message
        assert judge("CS006", snapshot=self.z(9, 9, 0, 0, 0, gamma=1.01 * limit)).outcome == ISSUE

    def test_below_three_taps_is_not_applicable(self):
        facts = make_facts(exact_taps=(3, 4))
        found = judge("CS006", facts, self.z(9, 9, 0, 9, 9))
        assert found.outcome == NOT_APPLICABLE
        assert found.message == "2 block taps without exact credit, the question needs 3"
        assert judge("CS006", facts, self.z(9, 9, 0, 9, 9), hidden_taps=2).outcome == ISSUE
        assert judge("CS006", make_facts(exact_taps=(4,)), self.z(9, 9, 0, 0, 9)).outcome == ISSUE  # three are enough

    def test_exact_credit_is_not_applicable(self):
        assert judge("CS006", make_facts(rule="bp")).message == "every tap is handed the exact gradient"

    def test_no_mean_is_skipped(self):
        found = judge("CS006", snapshot=self.z(9, 9, None, 9, 9, gamma=None))
        assert (found.outcome, found.message) == (SKIPPED, "Γ has no null: no usable rows at some tap")


class TestVanishingWeightGradients:
    """CS007. Weights: stem.weight and head.weight."""

    def moment(self, **others: Any) -> Snapshot:
        return make_snapshot(weights=make_weights(**others))

    def test_all_zero_and_underflow_are_told_apart(self):
        dead = judge("CS007", snapshot=self.moment(step_all_zero=(1, 0)))
        assert (dead.outcome, dead.message) == (ISSUE, "the rule's gradient is exactly zero for stem.weight")
        tiny = judge("CS007", snapshot=self.moment(step_underflow=(0, 1)))
        assert tiny.outcome == ISSUE
        assert tiny.message == "the rule's gradient is not zero but its float32 norm underflows for head.weight"

    def test_says_whose_gradient(self):
        found = judge("CS007", snapshot=self.moment(exact_all_zero=(0, 1)))
        assert (found.outcome, found.message) == (ISSUE, "BP's gradient is exactly zero for head.weight")
        both = judge("CS007", snapshot=self.moment(step_underflow=(1, 0), exact_underflow=(1, 0))).message
        assert both.count("underflows for stem.weight") == 2
        assert both.index("the rule's gradient") < both.index("BP's gradient")

    def test_the_training_batch_counts_where_there_is_one(self):
        elsewhere = {"all_zero": (1, 0), "step_all_zero": (0, 0)}
        assert judge("CS007", snapshot=self.moment(**elsewhere)).outcome == PASSED
        untrained = {"all_zero": (1, 0), "step_all_zero": None, "step_underflow": None}
        assert judge("CS007", snapshot=self.moment(**untrained)).outcome == ISSUE

    def test_a_batch_without_error_proves_nothing(self):
        flat = make_snapshot(step_error=0.0, weights=make_weights(step_all_zero=1))
        assert judge("CS007", snapshot=flat).outcome == PASSED

    def test_unused_weights_are_left_out(self):
        unused = WeightFact(name="stem.weight", stage=-1, role="unused")
        facts = make_facts(weights=(unused, WeightFact(name="head.weight", stage=5, role="exact")))
        found = judge("CS007", facts, self.moment(step_all_zero=(1, 0), exact_all_zero=(1, 0)))
        assert (found.outcome, found.message) == (PASSED, "all 1 weights get a gradient")

    def test_long_lists_are_cut(self):
        weights = tuple(WeightFact(name=f"w{i}", stage=i, role="rule") for i in range(5))
        facts = make_facts(weights=weights)
        found = judge("CS007", facts, make_snapshot(facts, weights=make_weights(5, exact_all_zero=1)))
        assert found.message == "BP's gradient is exactly zero for w0, w1, w2 and 2 more"

    def test_nothing_to_learn_is_not_applicable(self):
        found = judge("CS007", snapshot=make_snapshot(rows_fitted=1000, weights=make_weights(step_all_zero=1)))
        assert (found.outcome, found.message) == (NOT_APPLICABLE, "no row has an error to send down")

    def test_not_measured_is_skipped(self):
        found = judge("CS007", snapshot=make_snapshot(weights=None))
        assert (found.outcome, found.message) == (SKIPPED, "no weight gradients were measured")


class TestAtChance:
    """CS010. Best constant 0.106 over 1,000 test rows."""

    @pytest.mark.parametrize("hits", [100, 106, 115, 122, 123, 124, 130, 700])
    def test_bound_is_the_exact_binomial_one(self, hits):
        low = stats.binomtest(hits, 1000).proportion_ci(0.90, method="exact").low
        found = judge("CS010", snapshot=make_snapshot(accuracy=hits / 1000))
        assert f"lower bound {low:.3f} over 1000 rows" in found.message
        assert found.outcome == (PASSED if low > 0.106 else ISSUE)
        assert found.value == hits / 1000

    def test_both_sides_are_met_above(self):
        outcomes = {judge("CS010", snapshot=make_snapshot(accuracy=h / 1000)).outcome for h in (122, 124)}
        assert outcomes == {ISSUE, PASSED}

    def test_confidence_moves_the_outcome(self):
        moment = make_snapshot(accuracy=0.124)
        assert judge("CS010", snapshot=moment).outcome == PASSED
        assert judge("CS010", snapshot=moment, chance_confidence=0.99).outcome == ISSUE

    def test_the_best_constant_is_the_bar(self):
        assert judge("CS010", make_facts(best_constant=0.319), make_snapshot(accuracy=0.33)).outcome == ISSUE
        assert judge("CS010", make_facts(best_constant=0.319), make_snapshot(accuracy=0.36)).outcome == PASSED

    def test_a_watched_model_is_judged_on_the_rows_it_was_seen_on(self):
        facts = make_facts(test_rows=0, trainer=False)
        found = judge("CS010", facts, make_snapshot(rows=500, rows_covered=500, accuracy=0.2))
        assert "over 500 rows" in found.message

    def test_rows_outside_the_mask_are_no_evidence(self):
        """0.3 of 20 masked rows, seen in a graph of 1,000: 6 hits, whose lower bound is 0.140."""
        low = stats.binomtest(6, 20).proportion_ci(0.90, method="exact").low
        facts = make_facts(test_rows=0, trainer=False, best_constant=0.2)
        found = judge("CS010", facts, make_snapshot(rows=1000, rows_covered=20, accuracy=0.3))
        assert low < 0.2
        assert found.outcome == ISSUE

    def test_regression_is_not_applicable(self):
        found = judge("CS010", make_facts(best_constant=None), make_snapshot(accuracy=None))
        assert (found.outcome, found.message) == (NOT_APPLICABLE, "the targets are not classes")
