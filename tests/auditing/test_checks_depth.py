"""Is depth used? Each check in a pair: flags the bad case, passes the good one; its limits move it."""

from typing import Any

import pytest
from builders import make_facts, make_record, make_snapshot, make_weights
from judging import ISSUE, NOT_APPLICABLE, PASSED, SKIPPED, UNDECIDED, judge, judge_method, judge_seeds, make_moments
from scipy import stats

from creditscope.auditing import Finding, audit
from creditscope.auditing.methods import Method
from creditscope.record import LayerMeasures, Record, Snapshot


class TestDepthNotUsed:
    """CS004. Gains of BP over frozen BP are 0.30 unless said otherwise."""

    OWN = (0.70, 0.71, 0.72)

    def method(self, own=OWN, frozen_own=(0.35, 0.36, 0.34), bp=(0.7, 0.7, 0.7), frozen_bp=(0.4, 0.4, 0.4), **facts):
        def runs(values, rule: str, frozen: bool) -> dict[int, Record]:
            given = {"rule": rule, "frozen": frozen, "facts": facts}
            return {s: make_record(seed=s, accuracy=a, **given) for s, a in enumerate(values) if a is not None}

        all_runs = (own, "dfa", False), (frozen_own, "dfa", True), (bp, "bp", False), (frozen_bp, "bp", True)
        return Method("DFA", "here", *(runs(*one) for one in all_runs))

    def judge(self, method: Method, **limits: float) -> Finding:
        return judge_method("CS004", method, **limits)

    def test_passed(self):
        found = self.judge(self.method())
        bounds = stats.ttest_1samp([0.30, 0.31, 0.32], 0, alternative="greater").confidence_interval(0.95)
        assert (found.outcome, found.published) == (PASSED, False)
        assert found.value == pytest.approx(0.31)
        for part in ("BP-frozen", f"({100 * bounds.low:+.1f} to", "n = 3", "103%"):
            assert part in found.message

    def test_the_better_baseline_is_that_of_the_seeds_compared(self):
        """A fourth seed, of the frozen runs alone, would make BP's the better."""
        frozen = {"frozen_own": (0.45, 0.45, 0.45, 0.1), "frozen_bp": (0.4, 0.4, 0.4, 0.4)}
        found = self.judge(self.method(**frozen))
        assert found.value == pytest.approx(0.26)
        assert "own-rule frozen" in found.message

    def test_issue(self):
        found = self.judge(self.method(own=(0.40, 0.41, 0.405)))
        assert (found.outcome, found.published) == (ISSUE, False)  # the published check looks at the own baseline
        assert found.value == pytest.approx(0.005)
        open_still = self.judge(self.method(own=(0.41, 0.45, 0.52)))
        assert (open_still.outcome, open_still.value) == (UNDECIDED, pytest.approx(0.06))
        assert "20% of" in self.judge(self.method(own=(0.45, 0.46, 0.47))).message  # 6 pp where BP gains 30

    @pytest.mark.parametrize(
        "gains",
        [(0.30, 0.31, 0.32), (0.0, 0.01, 0.005), (0.01, 0.05, 0.12), (0.03, 0.035, 0.04), (-0.02, 0.01, 0.04)],
    )
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
        assert (found.outcome, found.published, found.value) == (ISSUE, True, pytest.approx(0.01))

    def test_a_task_must_gain_enough_for_bp(self):
        exact = {"bp": (0.5, 0.5, 0.5), "frozen_bp": (0.25, 0.25, 0.25)}
        assert self.judge(self.method(**exact), task_gain=0.25).outcome != NOT_APPLICABLE
        found = self.judge(self.method(bp=(0.43, 0.44, 0.45)))
        assert (found.outcome, "+4.0 pp" in found.message) == (NOT_APPLICABLE, True)

    @pytest.mark.parametrize("gain", [0.3, 0.04, 0.0, -0.1])
    def test_worse_than_frozen_fails_on_any_task(self, gain):
        """Whether depth helps is another question; label-blind noise can be far below a frozen net."""
        bp = [0.4 + gain] * 3
        worse = self.judge(self.method(own=(0.30, 0.31, 0.32), bp=bp))
        assert (worse.outcome, worse.value) == (ISSUE, pytest.approx(-0.09))
        near = self.judge(self.method(own=(0.37, 0.39, 0.44), bp=bp))  # the upper bound is above −2 pp
        assert near.outcome == (UNDECIDED if gain == 0.3 else NOT_APPLICABLE)

    def test_what_cannot_be_asked(self):
        assert self.judge(self.method(trainer=False)).outcome == SKIPPED  # a watched model
        assert self.judge(self.method(depth=0)).outcome == NOT_APPLICABLE
        own = {s: make_record(seed=s, accuracy=0.1, targets="random") for s in (1, 2, 3)}
        assert self.judge(Method("DFA", "here", own)).outcome == NOT_APPLICABLE

    def test_too_few_seeds_or_baselines_are_named(self):
        for n in (1, 2):
            found = self.judge(self.method(own=(0.7,) * n))
            assert (found.outcome, found.message.split()[0]) == (SKIPPED, f"{n}")
        found = self.judge(self.method(frozen_own=(), frozen_bp=(0.4, 0.4)))
        assert found.outcome == SKIPPED
        assert [n in found.message for n in ("own frozen", "frozen BP", "--baselines")] == [True] * 3
        one = self.method(own=(0.7,), frozen_own=(0.3,), bp=(0.7,), frozen_bp=(0.4,))
        assert self.judge(one, seeds=1).outcome == SKIPPED  # a bound needs two whatever the limit

    def test_baselines_of_other_seeds_are_skipped(self):
        """Each baseline shares three seeds with the method, but no seed has them all."""
        own = (0.70, 0.71, 0.72, 0.70, 0.71, 0.72)
        early, late = (0.35, 0.36, 0.34, None, None, None), (None, None, None, 0.4, 0.4, 0.4)
        assert self.judge(self.method(own=own, frozen_own=early, bp=own, frozen_bp=late)).outcome == SKIPPED
        assert self.judge(self.method(own=own, frozen_own=own, bp=early, frozen_bp=late)).outcome == SKIPPED


class TestAtChance:
    """CS010. Best constant 0.106 over 1,000 test rows."""

    def test_an_accuracy_that_is_missing_is_skipped_and_of_other_targets_not_asked(self):
        assert judge("CS010", snapshot=make_snapshot(accuracy=None)).outcome == SKIPPED
        assert judge("CS010", make_facts(best_constant=None), make_snapshot()).outcome == NOT_APPLICABLE

    @pytest.mark.parametrize("hits", [50, 100, 105, 109, 110, 115, 122, 123, 124, 130, 700])
    def test_bounds_are_the_exact_binomial_ones(self, hits):
        """Passed above the best constant guess, an issue if less than 2 pp above it, by one-sided bounds."""
        bounds = stats.binomtest(hits, 1000).proportion_ci(0.90, method="exact")
        found = judge("CS010", snapshot=make_snapshot(accuracy=hits / 1000))
        assert f"{bounds.low:.3f} to {bounds.high:.3f}" in found.message
        assert found.outcome == (ISSUE if bounds.high < 0.126 else PASSED if bounds.low > 0.106 else UNDECIDED)
        assert found.value == hits / 1000

    @pytest.mark.parametrize("values", [(0.1, 0.101, 0.102), (0.11, 0.12, 0.15), (0.12, 0.13, 0.14), (0.6, 0.7, 0.8)])
    def test_over_seeds_the_bounds_are_those_of_the_mean(self, values):
        low = stats.ttest_1samp(values, 0.106, alternative="greater").pvalue < 0.05
        high = stats.ttest_1samp(values, 0.126, alternative="less").pvalue < 0.05
        found = judge_seeds("CS010", make_moments(accuracy=list(values)))
        assert found.outcome == (ISSUE if high else PASSED if low else UNDECIDED)
        assert found.value == pytest.approx(sum(values) / 3)

    def test_one_lost_seed_of_many_does_not_decide(self):
        """Each seed alone is judged by its rows: 0.105 of 1,000 is an issue."""
        found = judge_seeds("CS010", make_moments(seeds=20, accuracy=[0.105, *[0.5 + i / 100 for i in range(19)]]))
        assert found.outcome == PASSED

    def test_the_best_constant_is_the_bar(self):
        assert judge("CS010", make_facts(best_constant=0.0), make_snapshot(accuracy=0.0)).outcome == ISSUE
        facts = make_facts(best_constant=0.319)
        found = [judge("CS010", facts, make_snapshot(accuracy=a)).outcome for a in (0.30, 0.33, 0.36)]
        assert found == [ISSUE, UNDECIDED, PASSED]

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
        assert found.outcome == UNDECIDED

    def test_at_chance_is_expected_of_random_targets(self):
        found = judge("CS010", snapshot=make_snapshot(accuracy=0.1), spec={"targets": "random"})
        assert found.outcome == NOT_APPLICABLE
        assert judge("CS010", snapshot=make_snapshot(accuracy=0.1), spec={"targets": "true"}).outcome == ISSUE
        seeds = make_moments(accuracy=0.1, spec={"targets": "random"})
        assert judge_seeds("CS010", seeds).outcome == NOT_APPLICABLE


class TestInformationWithoutGradient:
    """CS009. Best constant 0.106 over 1,000 rows; the stem's weights get no gradient unless said otherwise."""

    DEAD = make_weights(step_all_zero=(1, 0))

    def judge(self, probe: Any, before: Any = 0.15, *, weights: Any = DEAD, facts: Any = None, **limits: float):
        """A probe of each tap at the end and, where there is one, before training."""
        facts = facts or make_facts()
        moment = make_snapshot(facts, weights=weights, taps={"probe": probe})
        first = None if before is None else make_snapshot(facts, epoch=0, taps={"probe": before})
        return judge("CS009", facts, moment, untrained=first, **limits)

    def test_a_probe_reads_what_no_gradient_reaches(self):
        found = self.judge((0.1, 0.5, 0.4, 0.1, 0.1))
        low = stats.binomtest(500, 1000).proportion_ci(0.90, method="exact").low
        assert (found.outcome, found.value) == (ISSUE, 0.5)
        for part in ("tap 1", f"{low:.3f}", "1,000 rows", "0.106", "0.150"):
            assert part in found.message
        assert self.judge(0.12).outcome == PASSED

    def test_a_gain_of_ten_points_is_asked_of_the_bound(self):
        """Best constant + 10 pp = 0.206; 230 hits have the lower bound 0.208, 225 have 0.203."""
        assert (self.judge(0.230).outcome, self.judge(0.225).outcome) == (ISSUE, PASSED)
        assert self.judge(0.230, chance_confidence=0.99).outcome == PASSED

    def test_what_the_untrained_net_has_is_no_credit_to_training(self):
        assert self.judge(0.5, before=0.5).outcome == PASSED
        assert self.judge(0.5, before=(0.1, 0.6, 0.6, 0.1, 0.1)).outcome == ISSUE  # at tap 3 it is above

    def test_only_the_middle_counts(self):
        """Neither the stem's tap nor the last, which the head reads itself."""
        assert self.judge((0.9, 0.1, 0.1, 0.1, 0.9)).outcome == PASSED
        assert self.judge(0.9, facts=make_facts(depth=1)).outcome == NOT_APPLICABLE

    def by_layers(
        self, probe: tuple, before: float = 0.15, *, taps: Any = (), rms: Any = 1.0, constant: bool = True
    ) -> Finding:
        """The same of a net that is measured layer by layer: H_0, five taps, the output."""
        facts = make_facts()

        def moment(values: tuple, epoch: int) -> Snapshot:
            sizes = (rms,) * 7 if isinstance(rms, float) else rms
            spread = tuple(0.0 if v is None and constant else size for v, size in zip(values, sizes, strict=True))
            layers = LayerMeasures(z_grad=(0.1,) * 6, rms=sizes, dispersion=spread, probe=values, probe_rows=400)
            own = {"taps": {"probe": taps}, "layers": layers, "probe_rows": 0, "epoch": epoch}
            return make_snapshot(facts, weights=self.DEAD, **own)

        return judge("CS009", facts, moment(probe, 1), untrained=moment((before,) * 7, 0))

    def test_probes_of_layers_serve_too(self):
        found = self.by_layers((0.9, 0.1, 0.5, 0.4, 0.1, 0.1, 0.9))
        assert (found.outcome, found.value) == (ISSUE, 0.5)
        assert ("tap 1" in found.message, "400 rows" in found.message) == (True, True)
        assert self.by_layers((0.9, 0.1, 0.5, 0.4, 0.1, 0.1, 0.9), before=0.55).outcome == PASSED
        own = self.by_layers((0.9,) * 7, taps=(0.1,) * 5)  # those of the taps come first
        assert (own.outcome, own.value) == (PASSED, 0.1)

    def test_a_constant_layer_holds_nothing_and_is_no_gap(self):
        found = self.by_layers((0.4, 0.1, 0.12, None, None, None, None))
        assert (found.outcome, found.value) == (PASSED, 0.12)
        dead = (0.4, 0.1, None, None, None, None, None)
        assert self.by_layers(dead).outcome == PASSED
        assert self.by_layers(dead, constant=False).outcome == SKIPPED  # alive on other rows
        overflowed = self.by_layers((0.4, 0.1, 0.12, None, 0.1, 0.1, 0.1), rms=(1.0, 1.0, 1.0, None, 1.0, 1.0, 1.0))
        assert (overflowed.outcome, overflowed.message[-5:]) == (SKIPPED, "tap 2")

    def test_not_asked_where_gradients_flow_nor_of_other_targets_than_classes(self):
        assert self.judge(0.9, weights=make_weights()).outcome == NOT_APPLICABLE
        assert self.judge(0.9, weights=None).outcome == NOT_APPLICABLE  # CS007 itself is skipped then
        assert self.judge(0.9, facts=make_facts(best_constant=None)).outcome == NOT_APPLICABLE

    def test_without_a_probe_it_is_skipped(self):
        found = [self.judge((), None), self.judge(0.9, None), self.judge((0.9, None, None, None, 0.9))]
        assert [f.outcome for f in found] == [SKIPPED] * 3
        assert ('tier="full"' in found[0].message, "taps 1, 2, 3" in found[2].message) == (True, True)

    def test_a_constant_state_is_left_out(self):
        assert self.judge((None, None, 0.5, None, None)).outcome == ISSUE
        assert self.judge((0.1, 0.5, 0.1, 0.1, 0.1), before=None).outcome == SKIPPED

    def test_the_run_brings_its_own_first_snapshot(self):
        """Through the whole audit: the record's snapshot of epoch 0 is the untrained net."""
        facts = make_facts()
        first = make_snapshot(facts, epoch=0, taps={"probe": 0.15})
        dead = make_snapshot(facts, epoch=1, weights=self.DEAD, taps={"probe": 0.5})
        for snapshots, expected in (([first, dead], ISSUE), ([dead], SKIPPED)):
            (method,) = audit([make_record(snapshots=snapshots)]).methods
            assert {f.code: f.outcome for f in method.findings}["CS009"] == expected
