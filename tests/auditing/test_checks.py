"""What holds of all checks: their codes, a healthy moment, the thresholds they read."""

from dataclasses import replace

import pytest
from builders import make_facts, make_record, make_snapshot, make_weights
from judging import CHECKS, PASSED, judge, judge_seeds, make_moments

from creditscope.auditing import Thresholds
from creditscope.auditing.checks import MethodCheck, RunCheck, SeedsCheck
from creditscope.auditing.methods import Method
from creditscope.auditing.thresholds import table
from creditscope.record import RuleFacts


def test_the_codes_are_these():
    assert list(CHECKS) == [f"CS0{i:02}" for i in range(1, 13)]


@pytest.mark.parametrize("code", ["CS001", "CS002", "CS003", "CS005", "CS006", "CS007", "CS008", "CS010"])
def test_a_healthy_moment_passes(code):
    assert judge(code).outcome == PASSED
    assert judge_seeds(code, make_moments()).outcome == PASSED


@pytest.mark.parametrize("code", CHECKS)
def test_a_check_reads_the_thresholds_that_the_table_gives_it(code):
    """Sensitivity judges again only the checks that the table names, so the table must name them all."""
    read = set()

    class Spy(Thresholds):
        def __getattribute__(self, name: str):
            if name in Thresholds.__dataclass_fields__:
                read.add(name)
            return super().__getattribute__(name)

    check, limits = CHECKS[code], Spy()
    facts = make_facts(
        rule=RuleFacts(name="pc", label="PC", approximates="equilibrium") if code == "CS012" else "block_fa"
    )
    if isinstance(check, MethodCheck):
        runs = {frozen: {s: make_record(seed=s, frozen=frozen) for s in (1, 2, 3)} for frozen in (False, True)}
        better = {s: make_record(rule="bp", seed=s, accuracy=0.9) for s in (1, 2, 3)}
        check.judge(Method("DFA", "here", runs[False], runs[True], better, runs[True]), limits)
    for taps in ({}, {"h_rms": (1, 9, 9, 9, 0.001)}, {"cos_F": -0.5}, {"cos": 0.0}, {"g_noise": 0.5}):
        for weights in (make_weights(), make_weights(step_all_zero=1)):
            moments = make_moments(facts, taps=taps, weights=weights)
            if isinstance(check, RunCheck):
                first = make_snapshot(facts, epoch=0, taps={"probe": 0.1})
                check.judge(replace(moments[0], untrained=first), limits)
            elif isinstance(check, SeedsCheck):
                check.judge(moments, limits)
    assert read == {row["name"] for row in table() if code in row["checks"]}
