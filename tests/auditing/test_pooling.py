"""One finding over seeds: events by their share with exact bounds, sizes by their mean logarithm."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import ISSUE, MUTED, NOT_APPLICABLE, PASSED, SKIPPED, TIP, UNDECIDED, judge_seeds, make_moments
from scipy import stats

from creditscope.auditing import Finding, Outcome, Thresholds
from creditscope.auditing.checks._check import pool_events

LIMITS = Thresholds()


def finding(outcome: Outcome, **others) -> Finding:
    return Finding(code="CS007", title="t", outcome=outcome, message=f"said {outcome}", **others)


def pool(*outcomes: Outcome) -> Finding:
    return pool_events(make_moments(seeds=len(outcomes)), [finding(o) for o in outcomes], LIMITS)


class TestEvents:
    def test_one_of_twenty_is_named_and_does_not_decide(self):
        found = pool(*[PASSED] * 12, ISSUE, *[PASSED] * 7)
        assert (found.outcome, found.seeds_hit, found.seeds) == (PASSED, 1, 20)
        assert "seed 13" in found.message
        assert "said issue" in found.message

    @pytest.mark.parametrize("n", [2, 3, 5, 10, 20])
    def test_the_bounds_of_the_share_decide(self, n):
        for hits in range(n + 1):
            bounds = stats.binomtest(hits, n).proportion_ci(0.9, method="exact")
            expected = (
                ISSUE if bounds.low > 0.5 or hits == n else PASSED if bounds.high < 0.5 or not hits else UNDECIDED
            )
            found = pool(*[ISSUE] * hits, *[PASSED] * (n - hits))
            assert (found.outcome, found.seeds_hit, found.seeds) == (expected, hits, n)

    def test_a_seed_that_could_not_be_judged_leaves_open_what_the_others_do_not_decide(self):
        assert pool(PASSED, SKIPPED, PASSED).outcome == SKIPPED
        assert pool(PASSED, SKIPPED, ISSUE).outcome == SKIPPED
        assert pool(SKIPPED, ISSUE, SKIPPED).outcome == SKIPPED  # one seed does not speak for three
        assert pool(*[ISSUE] * 9, SKIPPED).outcome == ISSUE  # at least 0.72 of seeds, whatever the tenth has
        assert pool(SKIPPED, SKIPPED).outcome == SKIPPED

    def test_without_an_issue_the_most_common_answer_counts(self):
        assert pool(PASSED, PASSED, TIP).outcome == PASSED
        assert pool(TIP, PASSED, TIP).outcome == TIP
        assert pool(NOT_APPLICABLE, NOT_APPLICABLE).outcome == NOT_APPLICABLE

    @pytest.mark.slow
    @given(st.lists(st.sampled_from([o for o in Outcome if o != MUTED]), min_size=1, max_size=8))
    def test_neither_order_nor_a_missing_seed_makes_a_pass(self, outcomes):
        found = pool(*outcomes).outcome
        assert found == pool(*outcomes[::-1]).outcome or ISSUE not in outcomes
        if SKIPPED in outcomes:
            assert found in (ISSUE, SKIPPED)
        if ISSUE not in outcomes:
            assert found in outcomes

    def test_numbers_are_of_all_seeds(self):
        findings = [finding(PASSED, value=1.0), finding(PASSED, value=2.0, published=True), finding(PASSED)]
        found = pool_events(make_moments(), findings, LIMITS)
        assert (found.value, found.published) == (1.5, True)

    def test_one_seed_is_told_as_it_is(self):
        assert pool(TIP).message == "said tip"


class TestSizes:
    """Growth (CS001, limit 50) and noise (CS002, limit 0.1)."""

    def growth(self, *values: float) -> Finding:
        return judge_seeds("CS001", make_moments(taps=[{"h_rms": (1, v, v, v, v)} for v in values]))

    @pytest.mark.parametrize(
        "values",
        [(60, 70, 80), (30, 31, 32), (30, 55, 90), (1e2, 1e4, 1e6), (49, 50, 50.5), (5, 5, 60), (51, 52, 53, 54, 1)],
    )
    def test_bounds_are_those_of_a_t_test_of_logarithms(self, values):
        logs = [math.log(v) for v in values]
        above = stats.ttest_1samp(logs, math.log(50), alternative="greater").pvalue < 0.05
        below = stats.ttest_1samp(logs, math.log(50), alternative="less").pvalue <= 0.05
        found = self.growth(*values)
        every = min(values) > 50  # an issue whatever the spread
        assert found.outcome == (ISSUE if above or every else PASSED if below else UNDECIDED)
        assert found.value == pytest.approx(stats.gmean(values))
        assert (found.seeds_hit, found.seeds) == (sum(v > 50 for v in values), len(values))

    def test_one_seed_of_twenty_is_named_and_passes(self):
        found = self.growth(*[10.0 + i / 10 for i in range(19)], 60)
        assert (found.outcome, found.seeds_hit) == (PASSED, 1)
        assert "seed 20" in found.message

    def test_noise_is_pooled_too_and_rows_without_error_are_an_event(self):
        assert judge_seeds("CS002", make_moments(taps=[{"g_noise": v} for v in (0.2, 0.25, 0.3)])).outcome == ISSUE
        one = judge_seeds("CS002", make_moments(taps=[{"g_noise": v} for v in (1e-7, 1e-7, 0.3)]))
        assert one.outcome == UNDECIDED
        fitted = judge_seeds("CS002", make_moments(rows_fitted=[900, 0, 0]))
        assert (fitted.outcome, fitted.seeds_hit) == (UNDECIDED, 1)
        assert judge_seeds("CS002", make_moments(rows_fitted=900)).outcome == ISSUE

    def test_a_tip_of_most_seeds_stays_one(self):
        found = judge_seeds("CS002", make_moments(taps={"g_norm": 1e-6}))
        assert (found.outcome, found.published) == (TIP, True)

    def test_a_seed_without_a_size_leaves_it_open(self):
        taps = [{"h_rms": (1, 9, 9, 9, 9)}, {"h_rms": None}, {"h_rms": (1, 9, 9, 9, 9)}]
        assert judge_seeds("CS001", make_moments(taps=taps)).outcome == SKIPPED
