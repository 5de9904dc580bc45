"""CS011: trained depth, the number of blocks a net depends on having trained, as an interval against BP's."""

from dataclasses import replace
from typing import Any

import pytest
from builders import make_family, make_record
from judging import ISSUE, NOT_APPLICABLE, PASSED, SKIPPED, TIP, UNDECIDED, judge_method
from scipy import stats

from creditscope.auditing import Finding, Thresholds, audit
from creditscope.auditing.depth import trained_depth
from creditscope.auditing.methods import Method
from creditscope.record import Record

SPREAD = (-0.001, 0.0, 0.001)
"""By seed, around what putting back a block costs."""
IDLE, OPEN = 0.0, (-0.05, 0.0, 0.1)
"""A block that costs nothing, and one of which the seeds do not tell."""
Costs = tuple[float | tuple[float, ...], ...]


def records(costs: Costs, rule: str = "dfa", seeds: int = 3, **others: Any) -> dict[int, Record]:
    """Runs of accuracy 0.7 that lose so much by block: one number, a little different by seed, or one per seed."""

    def rewound(i: int) -> list[float | None]:
        by_block = [c[i] if isinstance(c, tuple) else c + SPREAD[i % 3] for c in costs]
        return [None, *(0.7 - cost for cost in by_block)]

    facts = {"depth": len(costs), **others.pop("facts", {})}
    return {
        i + 1: make_record(rule=rule, seed=i + 1, facts=facts, taps={"rewind": rewound(i)}, **others)
        for i in range(seeds)
    }


def judged(own: Costs, bp: Costs = (0.1,) * 4, limits: dict[str, float] | None = None, **others: Any) -> Finding:
    method = Method("DFA", "here", records(own, **others), bp=records(bp, "bp"))
    return judge_method("CS011", method, **(limits or {}))


class TestTrainedDepth:
    @pytest.mark.parametrize("costs", [(0.0, 0.012, 0.03), (0.01, 0.011, 0.012), (0.02, 0.03, 0.04), (-0.1, 0.0, 0.0)])
    def test_bounds_are_those_of_a_t_test(self, costs):
        found = trained_depth(list(records((costs,)).values()), Thresholds())
        assert found is not None
        bounds = stats.ttest_1samp(costs, 0).confidence_interval(0.9)
        (block,) = found.blocks
        assert (block.tap, block.low, block.high) == (1, pytest.approx(bounds.low), pytest.approx(bounds.high))
        assert (found.low, found.high) == (bounds.low >= 0.01, bounds.high >= 0.01)
        assert found.idle == ((1,) if bounds.high < 0.01 else ())

    def test_it_is_an_interval(self):
        found = trained_depth(list(records((0.1, IDLE, OPEN, 0.1)).values()), Thresholds())
        assert found is not None
        assert (found.low, found.high, found.idle) == (2, 3, (2,))

    def test_batch_norms_that_were_estimated_anew_come_first(self):
        taps = {"rewind": (None, 0.1, 0.1, 0.1, 0.1), "rewind_refit": (None, 0.7, 0.7, 0.7, 0.7)}
        found = trained_depth([make_record(seed=s, taps=taps) for s in (1, 2, 3)], Thresholds())
        assert found is not None
        assert (found.low, found.high) == (0, 0)

    def test_too_few_seeds_have_none_and_a_diverged_one_does_not_count(self):
        runs = list(records((0.1,) * 4).values())
        assert trained_depth(runs[:2], Thresholds()) is None
        assert trained_depth(runs[:2], Thresholds(seeds=2)) is not None
        assert trained_depth(runs[:1], Thresholds(seeds=1)) is None  # a bound needs two, whatever the limit
        lost = make_record(seed=9, diverged=3)
        assert trained_depth([*runs, lost], Thresholds()) == trained_depth(runs, Thresholds())


class TestIdleBlocks:
    """BP depends on all four blocks unless said otherwise: half of it is two."""

    def test_one_block_of_four(self):
        found = judged((IDLE, IDLE, IDLE, 0.3))
        assert (found.outcome, found.value) == (ISSUE, 1)
        assert "idle: 1, 2, 3" in found.message

    def test_half_of_bps_is_enough(self):
        found = judged((IDLE, IDLE, 0.1, 0.1))
        assert (found.outcome, found.value) == (PASSED, 2)
        assert "idle: 1, 2" in found.message  # named whatever the answer

    def test_between_it_is_undecided(self):
        assert judged((IDLE, IDLE, OPEN, 0.3)).outcome == UNDECIDED  # one or two against two

    def test_bps_own_interval_counts(self):
        own = (IDLE, IDLE, IDLE, 0.3)
        assert judged(own, bp=(0.1, 0.1, 0.1, OPEN)).outcome == ISSUE  # 1 < 3/2
        assert judged(own, bp=(0.1, 0.1, OPEN, OPEN)).outcome == UNDECIDED  # 1 against half of 2 to 4
        assert judged(own, bp=(0.1, 0.1, IDLE, IDLE)).outcome == PASSED

    def test_not_asked_where_bp_depends_on_fewer_than_two(self):
        assert judged((IDLE,) * 4, bp=(0.1, IDLE, IDLE, IDLE)).outcome == NOT_APPLICABLE
        assert judged((IDLE,) * 4, bp=(0.1, 0.1, IDLE, IDLE)).outcome == ISSUE

    def test_limits_move_the_outcome(self):
        own = (IDLE, IDLE, 0.02, 0.3)
        assert judged(own).outcome == PASSED
        assert judged(own, limits={"rewind_loss": 0.03}).outcome == ISSUE
        assert judged(own, limits={"trained_share": 0.75}).outcome == ISSUE
        assert judged(own, limits={"seeds": 4}).outcome == SKIPPED
        wide = (IDLE, IDLE, (0.02, 0.04, 0.08), 0.3)  # mean 4.7 pp, lower bound −0.5 pp at 95 %
        assert judged(wide).outcome == UNDECIDED
        assert judged(wide, limits={"depth_confidence": 0.8}).outcome == PASSED

    @pytest.mark.parametrize(("costs", "outcome"), [((IDLE, 0.1, 0.1, 0.1), TIP), ((0.1,) * 4, NOT_APPLICABLE)])
    def test_without_skips_it_is_a_tip_at_most(self, costs, outcome):
        """There, putting back any block breaks the net."""
        assert judged(costs, facts={"residual": (False,) * 5}).outcome == outcome

    def test_what_is_missing(self):
        assert judged((0.1,) * 4, seeds=2).outcome == SKIPPED
        method = Method("DFA", "here", records((0.1,) * 4))
        assert judge_method("CS011", method).outcome == SKIPPED  # no BP
        old = Method("DFA", "here", {s: make_record(seed=s, taps={"rewind": ()}) for s in (1, 2, 3)})
        assert judge_method("CS011", old).outcome == SKIPPED

    def test_random_targets_and_nets_without_blocks_are_not_asked(self):
        assert judged((0.1,) * 4, targets="random").outcome == NOT_APPLICABLE
        assert judge_method("CS011", Method("DFA", "here", records(()))).outcome == NOT_APPLICABLE

    def test_one_run_of_a_watched_model_has_a_tip_at_most(self):
        for costs, idle in (((IDLE, 0.1, 0.1, 0.1), True), ((0.1,) * 4, False)):
            (record,) = records(costs, seeds=1, facts={"trainer": False}).values()
            found = judge_method("CS011", Method("DFA", "watched", {0: replace(record, spec=None)}))
            assert (found.outcome, "idle" in found.message) == (TIP, idle)

    def test_before_training_nothing_is_idle(self):
        (record,) = records((0.0,) * 4, seeds=1, facts={"trainer": False}).values()
        last = replace(record.last, untrained=True)
        method = Method("BP", "watched", {0: replace(record, spec=None, snapshots=(last,))})
        assert judge_method("CS011", method).outcome == NOT_APPLICABLE

    def test_one_seed_of_a_run_is_not_measured(self):
        assert judged((IDLE,) * 4, seeds=1).outcome == SKIPPED


def test_one_trained_block_of_four_is_walked_back_by_the_whole_audit():
    """It beats the frozen nets by 30 pp, so that CS004 passes."""
    idle = {"rewind": (None, 0.7, 0.7, 0.7, 0.4)}
    (found,) = [m for m in audit(make_family(taps=idle)).methods if m.method == "DFA"]
    assert str(found.verdict) == "walk back (CS011)"
    assert found.trained_depth is not None
    assert (found.trained_depth.low, found.trained_depth.high) == (1, 1)
    assert {f.code: f.outcome for f in found.findings}["CS004"] == PASSED
