"""Cases that a review found: missing inputs, runs measured twice, unfinished runs, odd nets."""

from dataclasses import replace

import pytest
from builders import make_facts, make_record, make_snapshot
from judging import judge

from creditscope.auditing import Thresholds, audit
from creditscope.auditing.findings import Outcome
from creditscope.auditing.stats import t_as_z
from creditscope.record.view import to_xarray


def test_a_net_whose_only_inexact_tap_is_the_stem_hides_nothing_at_any_threshold():
    facts = make_facts(rule="fa", depth=1, exact_taps=(1,))
    for limits in (Thresholds(), Thresholds(hidden_taps=0)):
        found = judge("CS006", facts, make_snapshot(facts), hidden_taps=limits.hidden_taps)
        assert found.outcome == Outcome.NOT_APPLICABLE


def test_an_accuracy_that_is_missing_is_skipped_and_not_passed_over():
    found = judge("CS010", snapshot=make_snapshot(accuracy=None))
    assert (found.outcome, found.message) == (Outcome.SKIPPED, "accuracy was not measured")


def test_an_unfinished_run_is_named_and_left_out():
    done = make_record(rule="bp", seed=1)
    running = make_record(rule="bp", seed=2)
    running = replace(running, provenance=replace(running.provenance, status="running"))
    found = audit([done, running])
    assert found.methods[0].seeds == (1,)
    assert "did not finish; left out" in found.problems[0]


def test_of_one_run_measured_twice_the_record_that_holds_more_is_viewed():
    rich, poor = (
        make_record(rule="bp", seed=1, tier=tier, eval_rows=rows) for tier, rows in (("full", 1024), ("quick", 64))
    )
    taps = replace(poor.last.taps, cos=(0.1,) * len(poor.facts.taps))
    poor = replace(poor, snapshots=(replace(poor.last, taps=taps),))
    for records in ([rich, poor], [poor, rich]):
        assert float(to_xarray(records)["cos"].max()) == rich.last.taps.cos[0]


def test_few_draws_widen_the_tail():
    assert t_as_z(3.0, 7) == pytest.approx(2.33, abs=0.01)
    assert t_as_z(-3.0, 7) == pytest.approx(-2.33, abs=0.01)
