"""Is the reference resolved? Each check in a pair: flags the bad case, passes the good one; its limits move it."""

from typing import Any

import pytest
from builders import make_facts, make_family, make_snapshot, make_weights
from judging import ISSUE, NOT_APPLICABLE, PASSED, SKIPPED, TIP, judge

from creditscope.auditing import Finding, audit
from creditscope.record import Snapshot, WeightFact


class TestUnresolvedReference:
    """CS002."""

    def test_noise(self):
        found = judge("CS002", snapshot=make_snapshot(taps={"g_noise": (1e-7, 1e-7, 0.3, 1e-7, 1e-7)}))
        assert (found.outcome, found.value) == (ISSUE, 0.3)
        assert "0.3 of the gradient at worst (tap 2); the limit is 0.1" in found.message

    def test_noise_limit_moves_the_outcome(self):
        moment = make_snapshot(taps={"g_noise": 0.09})
        assert judge("CS002", snapshot=moment).outcome == PASSED
        assert judge("CS002", snapshot=moment, noise=0.08).outcome == ISSUE
        assert judge("CS002", snapshot=moment, noise=0.09).outcome == PASSED  # at the limit is not above it

    def test_most_rows_fitted(self):
        found = judge("CS002", snapshot=make_snapshot(rows_covered=800, rows_fitted=401))
        assert (found.outcome, found.message) == (ISSUE, "401 of 800 rows have no resolvable error left")

    def test_fitted_limit_moves_the_outcome(self):
        moment = make_snapshot(rows_covered=800, rows_fitted=400)
        assert judge("CS002", snapshot=moment).outcome == PASSED
        assert judge("CS002", snapshot=moment, fitted_rows=0.49).outcome == ISSUE

    def test_no_gradient_anywhere(self):
        found = judge("CS002", snapshot=make_snapshot(taps={"rows_used": 0, "g_noise": None}))
        assert (found.outcome, found.message) == (ISSUE, "no row has a finite gradient at any tap")

    def test_a_diverged_net_is_called_so(self):
        sizes = (1.0, 1.0, None, None, None)
        found = judge("CS002", snapshot=make_snapshot(taps={"rows_used": 0, "g_noise": None, "h_norm": sizes}))
        assert found.outcome == ISSUE
        assert found.message == "the state is not finite at taps 2, 3, 4: the net has diverged"

    def test_published_floor_is_a_tip(self):
        found = judge("CS002", snapshot=make_snapshot(taps={"g_norm": (1, 1, 1, 1, 1.27e-5)}))
        assert (found.outcome, found.published) == (TIP, True)
        assert "‖g_L‖ = 1.3×10⁻⁵ is under the published floor" in found.message

    def test_floor_moves_the_outcome(self):
        moment = make_snapshot(taps={"g_norm": (1e-9, 1e-9, 1e-9, 1e-9, 2e-5)})  # the top tap alone counts
        assert (judge("CS002", snapshot=moment).outcome, judge("CS002", snapshot=moment).published) == (PASSED, False)
        assert judge("CS002", snapshot=moment, floor=3e-5).outcome == TIP
        assert "is under a floor of 3×10⁻⁵" in judge("CS002", snapshot=moment, floor=3e-5).message

    def test_float64_is_not_applicable(self):
        found = judge("CS002", make_facts(precision="float64"), make_snapshot(taps={"g_noise": None}))
        assert found.outcome == NOT_APPLICABLE
        assert "float64 already" in found.message

    def test_noise_not_measured_is_skipped_with_the_note(self):
        unknown = {"g_noise": None}
        said = judge("CS002", snapshot=make_snapshot(taps=unknown), spec={"tier": "quick"}).message
        assert said == "g_noise was not measured (tier quick: run with --tier standard)"
        said = judge("CS002", snapshot=make_snapshot(taps=unknown), spec={"noise": False}).message
        assert said == "g_noise was not measured (run with --noise)"
        found = judge(
            "CS002",
            snapshot=make_snapshot(taps=unknown, notes=("probe not measured", "g_noise not measured: no float64")),
        )
        assert (found.outcome, found.message) == (SKIPPED, "g_noise not measured: no float64")

    def test_noise_unknown_at_one_tap_is_not_a_pass(self):
        dead = {"g_noise": (None, 1e-7, 1e-7, 1e-7, 1e-7), "rows_used": (0, 1000, 1000, 1000, 1000)}
        assert judge("CS002", snapshot=make_snapshot(taps=dead)).outcome in (SKIPPED, ISSUE)


class TestOneDirection:
    """CS003: a tip at most."""

    def judge(self, share: Any, **limits: float) -> Finding:
        return judge("CS003", snapshot=make_snapshot(taps={"common": share}), **limits)

    def test_one_tap_above_is_a_tip(self):
        found = self.judge((0.1, 0.1, 0.45, 0.1, None))
        assert (found.outcome, found.value) == (TIP, 0.45)
        assert found.message.startswith("0.45 of the gradient at tap 2 is one direction shared by all rows, above 0.3")

    def test_spread_directions_pass(self):
        found = self.judge(0.3)  # at the limit is not above it
        assert (found.outcome, found.value) == (PASSED, 0.3)

    def test_limit_moves_the_outcome(self):
        assert self.judge(0.3, common=0.29).outcome == TIP
        assert self.judge(0.45, common=0.5).outcome == PASSED

    def test_negative_is_less_than_none(self):
        """Gradients that cancel: the share may be below 0."""
        assert self.judge(-0.01).outcome == PASSED

    @pytest.mark.parametrize("common", [(), (None,) * 5])
    def test_not_measured_is_skipped_and_leaves_no_verdict_open(self, common):
        found = self.judge(common)
        assert (found.outcome, found.advisory) == (SKIPPED, True)
        records = make_family(taps={"common": common})
        assert {m.verdict.word for m in audit(records).methods} == {"trustworthy"}


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
        assert both == "the rule's gradient, and BP's, is not zero but its float32 norm underflows for stem.weight"
        apart = judge("CS007", snapshot=self.moment(step_all_zero=(1, 0), exact_underflow=(1, 0))).message
        assert apart == (
            "the rule's gradient is exactly zero for stem.weight; BP's gradient is not zero but its float32 norm "
            "underflows for stem.weight"
        )

    def test_the_training_batch_counts_where_there_is_one(self):
        elsewhere = {"all_zero": (1, 0), "step_all_zero": (0, 0)}
        assert judge("CS007", snapshot=self.moment(**elsewhere)).outcome == PASSED
        untrained = {"all_zero": (1, 0), "step_all_zero": None, "step_underflow": None}
        assert judge("CS007", snapshot=self.moment(**untrained)).outcome == ISSUE

    def test_a_batch_without_error_proves_nothing(self):
        flat = make_snapshot(step_error=0.0, weights=make_weights(step_all_zero=1))
        assert judge("CS007", snapshot=flat).outcome == PASSED

    def test_weights_that_nothing_reaches_are_a_tip(self):
        unused = WeightFact(name="stem.weight", stage=-1, role="unused")
        facts = make_facts(weights=(unused, WeightFact(name="head.weight", stage=5, role="exact")))
        found = judge("CS007", facts, self.moment(step_all_zero=(1, 0), exact_all_zero=(1, 0)))
        said = "all 1 weights on the way to the output get a gradient, but nothing reaches stem.weight"
        assert (found.outcome, found.message) == (TIP, f"{said}: detached, or not used")
        facts = make_facts(weights=tuple(WeightFact(name=name, stage=0, role="exact") for name in ("a", "b")))
        found = judge("CS007", facts, self.moment())
        assert (found.outcome, found.message) == (PASSED, "all 2 weights on the way to the output get a gradient")

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
