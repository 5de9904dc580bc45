"""CS012: of a rule with another aim, every trained stage's own update must lower the loss."""

from typing import Any

import numpy as np
import pytest
from builders import QUICK, make_facts, make_family, make_snapshot
from judging import AIM, BLIND, ISSUE, NOT_APPLICABLE, PASSED, SKIPPED, UNDECIDED, judge, judge_seeds, make_moments
from scipy import stats

from creditscope.auditing import Finding, audit
from creditscope.record import WeightFact

ROLES = ("exact", "rule", "rule", "rule", "rule", "exact")
"""Of the stem, four blocks and the head."""
WEIGHTS = tuple(WeightFact(name=f"w{stage}", stage=stage, role=role) for stage, role in enumerate(ROLES))
FACTS = make_facts(rule=AIM, weights=WEIGHTS)


def judge_stages(*seeds: Any, facts: Any = FACTS, **limits: float) -> Finding:
    """What is given is the share of the gradient's decrease, one number or one per tap, for each seed."""
    return judge_seeds("CS012", make_moments(facts, taps=[{"descent_stage": one} for one in seeds]), **limits)


def test_all_stages_none_or_only_some_descend():
    every, none = judge_stages(0.4, 0.41, 0.42), judge_stages(0.01, 0.012, 0.014)
    assert (every.outcome, every.value) == (PASSED, pytest.approx(0.41))
    assert (none.outcome, none.value, none.seeds_hit) == (ISSUE, pytest.approx(0.012), 3)
    some = judge_stages(*[(0.4, 0.4, 0.01, 0.4, 0.01)] * 3)
    assert (some.outcome, some.value) == (UNDECIDED, pytest.approx(0.01))
    assert "stages 2, 4 of 5" in some.message


@pytest.mark.parametrize("shares", [(0.06, 0.062, 0.064), (0.0, 0.06, 0.12), (0.02, 0.03, 0.04), (0.03, 0.05, 0.08)])
def test_bounds_are_those_of_a_t_test_over_seeds(shares):
    """Against a null of next to nothing."""
    above = stats.ttest_1samp(shares, 0.05, alternative="greater").pvalue <= 0.05
    below = stats.ttest_1samp(shares, 0.05, alternative="less").pvalue < 0.05
    assert judge_stages(*shares).outcome == (PASSED if above else ISSUE if below else UNDECIDED)


def test_it_must_be_more_than_its_null():
    """A random update that would do as well is no evidence."""
    taps = [{"descent_stage": 0.4, "descent_stage_null": null} for null in (0.3, 0.4, 0.5)]
    assert judge_seeds("CS012", make_moments(FACTS, taps=taps)).outcome == UNDECIDED


def test_the_level_of_the_null_moves_the_outcome():
    shares = (0.1, 0.12, 0.16)  # beyond a null of 0.02 with p = 0.013
    p = stats.ttest_1samp(np.array(shares) - 0.02, 0, alternative="greater").pvalue
    assert 0.01 < p < 0.02
    assert judge_stages(*shares, descent_share=0).outcome == UNDECIDED
    assert judge_stages(*shares, descent_share=0, orientation=0.02).outcome == PASSED


def test_one_run_by_its_rotations_and_never_an_issue():
    limit = stats.t.isf(0.05, df=64 - 1) * np.sqrt(1 + 1 / 64) * 0.01
    for share, outcome in ((0.05 + 1.01 * limit, PASSED), (0.05 + 0.99 * limit, UNDECIDED), (0.0, UNDECIDED)):
        assert judge("CS012", FACTS, make_snapshot(FACTS, taps={"descent_stage": share})).outcome == outcome


def test_every_stage_that_is_trained_is_asked_whatever_it_says_of_its_gradient():
    assert judge_stages(*[(0.0, 0.4, 0.4, 0.4, 0.4)] * 3).outcome == UNDECIDED
    exact, unused = (
        make_facts(rule=AIM, weights=tuple(WeightFact(name=w.name, stage=w.stage, role=role) for w in WEIGHTS))
        for role in ("exact", "unused")
    )
    assert judge_stages(0.0, 0.0, facts=exact).outcome == ISSUE
    assert judge_stages(0.0, 0.0, facts=unused).outcome == NOT_APPLICABLE


def test_a_rule_that_aims_at_the_gradient_is_judged_by_alignment():
    assert judge_seeds("CS012", make_moments(taps=BLIND)).outcome == NOT_APPLICABLE


@pytest.mark.parametrize("name", ["descent_stage", "descent_stage_null", "descent_stage_null_sd"])
def test_what_was_not_measured_is_skipped(name):
    for taps in (QUICK, {name: ()}, {name: (0.4, 0.4, None, 0.4, 0.4)}):
        found = judge_seeds("CS012", make_moments(FACTS, taps=[{}, taps, {}]))
        assert found.outcome == SKIPPED
        assert "2" in found.message


def test_label_blind_noise_is_not_trustworthy_because_nothing_was_asked():
    """Through the whole audit: the credit line answers by CS012 alone."""
    words = {}
    for share in (0.4, 0.012):
        own = {"facts": {"rule": AIM, "weights": WEIGHTS}, "taps": {**BLIND, "descent_stage": share}}
        (found,) = [m for m in audit(make_family("dfa", **own)).methods if m.method == "PC"]
        words[share] = (found.verdict.word, found.verdict.codes, found.verdict.lines[1].answer)
    assert words == {0.4: ("trustworthy", (), "yes"), 0.012: ("walk back", ("CS012",), "no")}
