"""Does credit carry information? Each check in a pair: flags the bad case, passes the good one; its limits move it."""

from typing import Any

import numpy as np
import pytest
from builders import QUICK, make_facts, make_record, make_snapshot
from judging import ISSUE, NOT_APPLICABLE, PASSED, SKIPPED, TIP, UNDECIDED, judge
from scipy import stats

from creditscope.auditing import Thresholds, audit
from creditscope.auditing.checks._orientation import descending_taps
from creditscope.record import RuleFacts, Snapshot


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

    def test_no_equal_shapes_is_not_applicable(self):
        facts = make_facts(depth=1, tap_shapes=((8,), (16,)))
        found = judge("CS001", facts, make_snapshot(facts, taps={"h_rms": (1, 100)}))
        assert (found.outcome, found.message) == (NOT_APPLICABLE, "no residual tap has the shape of the tap before it")

    def test_a_change_of_shape_is_not_growth(self):
        facts = make_facts(tap_shapes=((8,), (16,), (16,), (16,), (16,)))
        assert judge("CS001", facts, self.rms(1, 100, 100, 100, 100)).outcome == PASSED

    def test_sizes_unknown_is_skipped(self):
        found = judge("CS001", snapshot=self.rms(None, None, None, None, None))
        assert (found.outcome, found.message) == (SKIPPED, "the states have no finite size at neighbouring taps")

    def test_one_size_unknown_is_not_passed_over(self):
        assert judge("CS001", snapshot=self.rms(1, 1, 1, 1, None)).outcome in (SKIPPED, ISSUE)


class TestRandomOrientation:
    """CS005, level 0.01 over the five taps of a rule without exact credit."""

    def z(self, *values: float | None, **others: Any) -> Snapshot:
        return make_snapshot(taps={"z": values, **others})

    def test_a_blind_tap(self):
        found = judge("CS005", snapshot=self.z(9, 8, 0.5, 7, 9, cos=(0.3, 0.3, 0.012, 0.3, 0.3)))
        assert (found.outcome, found.value) == (ISSUE, 0.5)
        assert found.message == "tap 2 (cos +0.012, z +0.5): no better than chance"

    def test_every_blind_tap_has_its_numbers_beside_it(self):
        found = judge("CS005", snapshot=self.z(9, 0.5, 9, -1.6, 9, cos=(0.3, 0.012, 0.3, -0.02, 0.3)))
        assert found.message == "taps 1 (cos +0.012, z +0.5), 3 (cos −0.020, z −1.6): no better than chance"

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

    def test_an_exact_tap_that_no_gradient_arrives_at_leaves_it_open(self):
        """A stream detached halfway: nothing is handed to the taps below, whatever the rule promises."""
        cut = make_snapshot(make_facts(rule="bp"), taps={"rows_used": (0, 0, 1000, 1000, 1000)})
        found = judge("CS005", make_facts(rule="bp"), cut)
        assert (found.outcome, found.message) == (SKIPPED, "no gradient arrives at taps 0, 1")
        for code in ("CS006", "CS008"):
            assert judge(code, make_facts(rule="bp"), cut).message.startswith("no gradient arrives at taps 0, 1")

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

    @pytest.mark.parametrize("fewest", [3, 0])
    def test_a_net_whose_only_inexact_tap_is_the_stem_hides_nothing(self, fewest):
        facts = make_facts(rule="fa", depth=1, exact_taps=(1,))
        assert judge("CS006", facts, make_snapshot(facts), hidden_taps=fewest).outcome == NOT_APPLICABLE

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

    def test_a_tap_without_rows_is_neither_blind_nor_informed(self):
        found = judge("CS006", snapshot=self.z(9, 9, None, 0, 0))
        assert (found.outcome, found.message) == (SKIPPED, "no usable rows at tap 2")


class TestDescentDisagrees:
    """CS008, level 0.01 over five taps; null of the descent 0.02 ± 0.01, so 0.0433 is its single limit."""

    def moment(self, z: Any = 10.0, descent: Any = 0.4, **taps: Any) -> Snapshot:
        return make_snapshot(taps={"z": z, "descent": descent, **taps})

    def test_agreement_above_both_passes(self):
        found = judge("CS008", snapshot=self.moment())
        assert (found.outcome, found.value) == (PASSED, 0)
        assert found.message.endswith("5 of 5 taps are above both nulls")

    def test_agreement_above_neither_passes(self):
        """CS005 walks such a tap back; here the two agree."""
        found = judge("CS008", snapshot=self.moment(z=0.5, descent=0.02))
        assert found.outcome == PASSED
        assert found.message.endswith("0 of 5 taps are above both nulls")

    def test_aligned_without_descent(self):
        found = judge("CS008", snapshot=self.moment(descent=(0.4, 0.4, 0.021, 0.4, 0.4)))
        assert (found.outcome, found.value) == (ISSUE, 1)
        assert found.message == (
            "credit at tap 2 is aligned but lowers the loss no more than a random orientation "
            "(cos +0.500, z +10.0; descent 0.021, null 0.020 ± 0.010)"
        )

    def test_descent_against_the_cosine(self):
        found = judge("CS008", snapshot=self.moment(z=(9, 9, 9, -0.3, 9), cos=(0.5, 0.5, 0.5, -0.02, 0.5)))
        assert (found.outcome, found.value) == (ISSUE, 1)
        assert found.message.startswith(
            "credit at tap 3 lowers the loss without alignment (cos −0.020, z −0.3; descent"
        )

    def test_descent_with_a_weak_cosine_is_undecided(self):
        """A z of 1.6 is no sign of the contrary; CS005 walks the tap back in any case."""
        weak = self.moment(z=(9, 9, 9, 1.6, 9))
        found = judge("CS008", snapshot=weak)
        assert (found.outcome, found.value) == (UNDECIDED, 1)
        assert found.message.startswith("credit at tap 3 lowers the loss, yet its cosine is no more than a random")
        assert found.message.endswith("weak alignment may explain both")
        assert judge("CS005", snapshot=weak).outcome == ISSUE

    @pytest.mark.parametrize("power", [1, 2])
    def test_random_credit_is_seldom_called_a_contradiction(self, power):
        """Five taps of random orientation; descent ∝ max(0, cos)^power, its null from eight rotations."""
        stream, issues, runs = np.random.default_rng(0), 0, 400
        for _ in range(runs):
            z, null = stream.normal(size=5), np.maximum(stream.normal(size=(5, 8)), 0) ** power
            moment = self.moment(
                z=z.tolist(),
                descent=(np.maximum(z, 0) ** power).tolist(),
                descent_null=null.mean(1).tolist(),
                descent_null_sd=null.std(1, ddof=1).tolist(),
            )
            issues += judge("CS008", snapshot=moment).outcome == ISSUE
        assert issues / runs <= 0.02

    @pytest.mark.parametrize(("share", "above"), [(0.999, False), (1.001, True)])
    def test_descent_is_above_its_null_where_a_t_test_of_one_more_value_says_so(self, share, above):
        """One tap at level 0.01: mean and sd of the null come from eight rotations, so its own value is a ninth."""
        limit = stats.t.isf(0.01, df=8 - 1) * np.sqrt(1 + 1 / 8)
        moment = self.moment(descent=0.02 + 0.01 * share * limit)
        facts = make_facts(exact_taps=(0, 1, 2, 3))
        assert descending_taps(facts, moment, Thresholds()) == {4: above}

    def test_a_near_miss_is_no_disagreement(self):
        """z = 2.4 is above the single limit (2.33) but not above Holm's for two such taps; nothing contradicts it."""
        near = self.moment(z=(9, 9, 9, 2.4, 2.4))
        assert judge("CS005", snapshot=near).outcome == ISSUE
        assert judge("CS008", snapshot=near).outcome == PASSED
        near = self.moment(descent=(0.4, 0.4, 0.4, 0.044, 0.044))  # 2.4 sd
        assert judge("CS008", snapshot=near).outcome == PASSED

    def test_level_moves_the_outcome(self):
        moment = self.moment(descent=(0.4, 0.4, 0.4, 0.4, 0.041))  # 2.1 sd, p = 0.018
        assert judge("CS008", snapshot=moment).outcome == ISSUE
        assert judge("CS008", snapshot=moment, orientation=0.02).outcome == PASSED

    def test_a_null_without_spread_is_a_limit_itself(self):
        flat = {"descent_null": 0.0, "descent_null_sd": 0.0}
        assert judge("CS008", snapshot=self.moment(descent=0.001, **flat)).outcome == PASSED
        assert judge("CS008", snapshot=self.moment(descent=0.0, **flat)).outcome == ISSUE

    def test_exact_taps_are_left_out(self):
        facts = make_facts(exact_taps=(2,))
        moment = self.moment(descent=(0.4, 0.4, 0.0, 0.4, 0.4))
        assert judge("CS008", facts, moment).outcome == PASSED
        found = judge("CS008", make_facts(rule="bp"))
        assert (found.outcome, found.message) == (NOT_APPLICABLE, "every tap is handed the exact gradient")

    def test_a_rule_with_another_aim_is_shown_by_its_descent(self):
        aim = RuleFacts(name="pc", label="PC", approximates="equilibrium")
        found = judge("CS008", make_facts(rule=aim), self.moment(descent=(0.4, 0.4, 0.4, 0.02, 0.02)))
        assert found.outcome == NOT_APPLICABLE
        assert found.message == (
            "the rule approximates equilibrium, not the gradient; descent alone is above its null at 3 of 5 taps"
        )

    @pytest.mark.parametrize(
        ("spec", "remedy"),
        [
            ({"tier": "quick"}, "tier quick: run with --tier standard"),
            ({"tier": "standard"}, "run it again with --tier standard"),
            (None, 'call snapshot(…, tier="full")'),
        ],
    )
    def test_not_measured_is_skipped_with_the_remedy(self, spec, remedy):
        found = judge("CS008", snapshot=make_snapshot(taps=QUICK), spec=spec)
        assert (found.outcome, found.message) == (SKIPPED, f"descent was not measured ({remedy})")

    @pytest.mark.parametrize("name", ["z", "descent", "descent_null", "descent_null_sd"])
    def test_a_tap_without_an_input_is_skipped(self, name):
        value = {"z": 10.0, "descent": 0.4, "descent_null": 0.02, "descent_null_sd": 0.01}[name]
        found = judge("CS008", snapshot=self.moment(**{name: (value, value, None, value, value)}))
        assert (found.outcome, found.message) == (SKIPPED, "no cosine or no descent with a null at tap 2")

    def test_a_few_rows_dominate(self):
        found = judge("CS008", snapshot=self.moment(cos_F=(0.45, 0.45, 0.2, 0.45, 0.45)))
        assert found.outcome == TIP
        assert found.message == "tap 2 (cos +0.50, cos_F +0.20): a few high-loss rows dominate the norm-weighted cosine"

    def test_weighting_moves_the_outcome(self):
        moment = self.moment(cos_F=0.2)
        assert judge("CS008", snapshot=moment, weighting=0.31).outcome == PASSED
        assert judge("CS008", snapshot=moment, weighting=0.29).outcome == TIP

    def test_opposite_signs_beyond_the_null_are_a_tip_however_close(self):
        """Null sd 0.01, so 0.0233 is the limit of either sign."""
        near = {"cos": 0.03, "null_sd": 0.01}
        assert judge("CS008", snapshot=self.moment(cos_F=-0.03, **near)).outcome == TIP
        assert judge("CS008", snapshot=self.moment(cos_F=-0.02, **near)).outcome == PASSED

    def test_a_disagreement_comes_before_the_weighting(self):
        assert judge("CS008", snapshot=self.moment(descent=0.02, cos_F=0.0)).outcome == ISSUE

    def test_the_middle_of_training_is_not_judged_where_it_was_not_measured(self):
        """At tier standard only the first and last snapshots have a descent; a gap is no first epoch."""
        facts = make_facts()
        bad = {"descent": 0.02}
        middle = make_snapshot(facts, epoch=5, taps=QUICK)
        for last, first_epoch in ((bad, 10), ({}, None)):
            snapshots = [make_snapshot(facts, epoch=0), middle, make_snapshot(facts, epoch=10, taps=last)]
            (method,) = audit([make_record(epochs=10, snapshots=snapshots)]).methods
            found = {f.code: f for f in method.findings}["CS008"]
            assert (found.outcome, found.first_epoch) == (ISSUE if first_epoch else PASSED, first_epoch)
