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

    @pytest.mark.parametrize(
        ("own", "bp", "outcome"),
        [
            ((IDLE, IDLE, IDLE, 0.3), (0.1,) * 4, ISSUE),
            ((IDLE, IDLE, 0.1, 0.1), (0.1,) * 4, PASSED),  # half of BP's is enough
            ((IDLE, IDLE, OPEN, 0.3), (0.1,) * 4, UNDECIDED),  # one or two against two
            ((IDLE, IDLE, IDLE, 0.3), (0.1, 0.1, 0.1, OPEN), ISSUE),  # 1 < 3/2
            ((IDLE, IDLE, IDLE, 0.3), (0.1, 0.1, OPEN, OPEN), UNDECIDED),  # 1 against half of 2 to 4
            ((IDLE, IDLE, IDLE, 0.3), (0.1, 0.1, IDLE, IDLE), PASSED),
            ((IDLE,) * 4, (0.1, IDLE, IDLE, IDLE), NOT_APPLICABLE),  # BP depends on fewer than two
            ((IDLE,) * 4, (0.1, 0.1, IDLE, IDLE), ISSUE),
        ],
    )
    def test_both_ends_against_half_of_bps(self, own, bp, outcome):
        found = judged(own, bp)
        low = None if outcome == NOT_APPLICABLE else sum(cost not in (IDLE, OPEN) for cost in own)
        assert (found.outcome, found.value) == (outcome, low)
        idle = ", ".join(f"{tap}" for tap, cost in enumerate(own, start=1) if cost == IDLE)
        assert f"idle: {idle}" in found.message  # named whatever the answer

    @pytest.mark.parametrize(("costs", "outcome"), [((IDLE, 0.1, 0.1, 0.1), TIP), ((0.1,) * 4, NOT_APPLICABLE)])
    def test_without_skips_it_is_a_tip_at_most(self, costs, outcome):
        """There, putting back any block breaks the net."""
        assert judged(costs, facts={"residual": (False,) * 5}).outcome == outcome

    def test_what_is_missing_or_not_asked(self):
        for seeds in (1, 2):
            assert judged((IDLE,) * 4, seeds=seeds).outcome == SKIPPED
        assert judged((0.1,) * 4, limits={"seeds": 4}).outcome == SKIPPED
        assert judge_method("CS011", Method("DFA", "here", records((0.1,) * 4))).outcome == SKIPPED  # no BP
        old = Method("DFA", "here", {s: make_record(seed=s, taps={"rewind": ()}) for s in (1, 2, 3)})
        assert judge_method("CS011", old).outcome == SKIPPED
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


def test_one_trained_block_of_four_is_walked_back_by_the_whole_audit():
    """It beats the frozen nets by 30 pp, so that CS004 passes."""
    idle = {"rewind": (None, 0.7, 0.7, 0.7, 0.4)}
    (found,) = [m for m in audit(make_family(taps=idle)).methods if m.method == "DFA"]
    assert str(found.verdict) == "walk back (CS011)"
    assert found.trained_depth is not None
    assert (found.trained_depth.low, found.trained_depth.high) == (1, 1)
    assert {f.code: f.outcome for f in found.findings}["CS004"] == PASSED
