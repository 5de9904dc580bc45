"""Is the reference resolved? Each check in a pair: flags the bad case, passes the good one; its limits move it."""

from typing import Any

import pytest
from builders import make_facts, make_family, make_snapshot, make_weights
from judging import ISSUE, NOT_APPLICABLE, PASSED, SKIPPED, TIP, judge

from creditscope.auditing import Finding, audit
from creditscope.record import WeightFact

KNOWN = {"rule's", "BP's", "BP's,", "exactly", "underflows", "stem.weight", "stem.weight;", "head.weight"}
"""Words of CS007 that tell whose gradient of which weight is what."""


class TestUnresolvedReference:
    """CS002."""

    def judge(self, taps: Any = None, *, facts: Any = None, spec: Any = None, limits: Any = None, **others: Any):
        return judge("CS002", facts, make_snapshot(taps=taps, **others), spec=spec, **(limits or {}))

    def test_noise_at_its_worst_tap(self):
        found = self.judge({"g_noise": (1e-7, 1e-7, 0.3, 1e-7, 1e-7)})
        assert (found.outcome, found.value) == (ISSUE, 0.3)
        assert "tap 2" in found.message

    @pytest.mark.parametrize(
        ("others", "limits", "outcome"),
        [
            ({"taps": {"g_noise": 0.09}}, {"noise": 0.09}, PASSED),  # at the limit is not above it
            ({"rows_covered": 800, "rows_fitted": 401}, {}, ISSUE),
            ({"rows_covered": 800, "rows_fitted": 400}, {}, PASSED),
            ({"rows_covered": 800, "rows_fitted": 400}, {"fitted_rows": 0.49}, ISSUE),
        ],
    )
    def test_limits_move_the_outcome(self, others, limits, outcome):
        assert self.judge(limits=limits, **others).outcome == outcome

    def test_without_gradients_it_says_whether_the_net_diverged(self):
        none = {"rows_used": 0, "g_noise": None}
        alive, lost = self.judge(none), self.judge({**none, "h_norm": (1.0, 1.0, None, None, None)})
        assert (alive.outcome, lost.outcome) == (ISSUE, ISSUE)
        assert ("diverged" in alive.message, "taps 2, 3, 4" in lost.message) == (False, True)

    def test_the_published_floor_is_a_tip(self):
        found = self.judge({"g_norm": (1, 1, 1, 1, 1.27e-5)})
        assert (found.outcome, found.published) == (TIP, True)
        above = {"g_norm": (1e-9, 1e-9, 1e-9, 1e-9, 2e-5)}  # the top tap alone counts
        assert (self.judge(above).outcome, self.judge(above).published) == (PASSED, False)
        assert self.judge(above, limits={"floor": 3e-5}).outcome == TIP

    def test_float64_is_not_applicable(self):
        assert self.judge({"g_noise": None}, facts=make_facts(precision="float64")).outcome == NOT_APPLICABLE

    @pytest.mark.parametrize(
        ("spec", "notes", "said"),
        [
            ({"tier": "quick"}, (), "--tier standard"),
            ({"noise": False}, (), "--no-noise"),
            (None, ("probe not measured", "g_noise: no float64"), "no float64"),
        ],
    )
    def test_noise_not_measured_is_skipped_with_the_remedy(self, spec, notes, said):
        found = self.judge({"g_noise": None}, spec=spec, notes=notes)
        assert (found.outcome, said in found.message) == (SKIPPED, True)

    def test_noise_unknown_at_one_tap_is_not_a_pass(self):
        dead = {"g_noise": (None, 1e-7, 1e-7, 1e-7, 1e-7), "rows_used": (0, 1000, 1000, 1000, 1000)}
        assert self.judge(dead).outcome in (SKIPPED, ISSUE)


class TestOneDirection:
    """CS003: a tip at most."""

    def judge(self, share: Any) -> Finding:
        return judge("CS003", snapshot=make_snapshot(taps={"common": share}))

    @pytest.mark.parametrize(
        ("share", "outcome", "value"),
        [
            ((0.1, 0.1, 0.45, 0.1, None), TIP, 0.45),
            (0.3, PASSED, 0.3),  # at the limit is not above it
            (-0.01, PASSED, -0.01),  # gradients that cancel
        ],
    )
    def test_the_largest_share_decides(self, share, outcome, value):
        found = self.judge(share)
        assert (found.outcome, found.value, "tap 2" in found.message) == (outcome, value, outcome == TIP)

    @pytest.mark.parametrize("common", [(), (None,) * 5])
    def test_not_measured_is_skipped_and_leaves_no_verdict_open(self, common):
        found = self.judge(common)
        assert (found.outcome, found.advisory) == (SKIPPED, True)
        records = make_family(taps={"common": common})
        assert {m.verdict.word for m in audit(records).methods} == {"trustworthy"}


class TestVanishingWeightGradients:
    """CS007. Weights: stem.weight and head.weight."""

    def judge(self, facts: Any = None, **weights: Any) -> Finding:
        return judge("CS007", facts, make_snapshot(weights=make_weights(**weights)))

    @pytest.mark.parametrize(
        ("weights", "words"),
        [
            ({"step_all_zero": (1, 0)}, {"rule's", "exactly", "stem.weight"}),
            ({"step_underflow": (0, 1)}, {"rule's", "underflows", "head.weight"}),
            ({"exact_all_zero": (0, 1)}, {"BP's", "exactly", "head.weight"}),
            ({"step_underflow": (1, 0), "exact_underflow": (1, 0)}, {"rule's", "BP's,", "underflows", "stem.weight"}),
            ({"step_all_zero": (1, 0), "exact_underflow": (1, 0)}, KNOWN - {"BP's,", "head.weight"}),
        ],
    )
    def test_zero_and_underflow_are_told_apart_and_whose_they_are(self, weights, words):
        found = self.judge(**weights)
        assert (found.outcome, set(found.message.split()) & KNOWN) == (ISSUE, words)

    def test_the_training_batch_counts_where_there_is_one(self):
        assert self.judge(all_zero=(1, 0), step_all_zero=(0, 0)).outcome == PASSED
        assert self.judge(all_zero=(1, 0), step_all_zero=None, step_underflow=None).outcome == ISSUE

    def test_a_batch_without_error_proves_nothing(self):
        flat = make_snapshot(step_error=0.0, weights=make_weights(step_all_zero=1))
        assert judge("CS007", snapshot=flat).outcome == PASSED

    def test_weights_that_nothing_reaches_are_a_tip(self):
        unused = WeightFact(name="stem.weight", stage=-1, role="unused")
        facts = make_facts(weights=(unused, WeightFact(name="head.weight", stage=5, role="exact")))
        found = self.judge(facts, step_all_zero=(1, 0), exact_all_zero=(1, 0))
        assert found.outcome == TIP
        assert ("stem.weight" in found.message, "head.weight" in found.message) == (True, False)

    def test_long_lists_are_cut(self):
        facts = make_facts(weights=tuple(WeightFact(name=f"w{i}", stage=i, role="rule") for i in range(5)))
        found = judge("CS007", facts, make_snapshot(facts, weights=make_weights(5, exact_all_zero=1)))
        assert found.message.endswith("w0, w1, w2 and 2 more")

    def test_nothing_to_learn_is_not_applicable_and_not_measured_is_skipped(self):
        fitted = make_snapshot(rows_fitted=1000, weights=make_weights(step_all_zero=1))
        assert judge("CS007", snapshot=fitted).outcome == NOT_APPLICABLE
        assert judge("CS007", snapshot=make_snapshot(weights=None)).outcome == SKIPPED
