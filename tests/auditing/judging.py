"""One check on one moment or one method, for the tests of the checks."""

from typing import Any

from builders import make_facts, make_snapshot, make_spec

from creditscope.auditing import Finding, Outcome, Thresholds
from creditscope.auditing.checks import MethodCheck, RunCheck, all_checks
from creditscope.auditing.methods import Method
from creditscope.auditing.moment import Moment
from creditscope.record import Facts, Snapshot

ISSUE, TIP, PASSED, UNDECIDED = Outcome.ISSUE, Outcome.TIP, Outcome.PASSED, Outcome.UNDECIDED
NOT_APPLICABLE, SKIPPED, MUTED = Outcome.NOT_APPLICABLE, Outcome.SKIPPED, Outcome.MUTED
CHECKS = {check.code: check for check in all_checks()}


def judge(
    code: str,
    facts: Facts | None = None,
    snapshot: Snapshot | None = None,
    *,
    untrained: Snapshot | None = None,
    spec: dict[str, Any] | None = None,
    **limits: float,
) -> Finding:
    """A check of a run on one moment; a healthy one unless said otherwise."""
    check = CHECKS[code]
    assert isinstance(check, RunCheck)
    facts = facts or make_facts()
    moment = Moment(facts, snapshot or make_snapshot(facts), untrained, None if spec is None else make_spec(**spec))
    return check.judge(moment, Thresholds().changed(**limits))


def judge_method(code: str, method: Method, **limits: float) -> Finding:
    """A check of a method."""
    check = CHECKS[code]
    assert isinstance(check, MethodCheck)
    return check.judge(method, Thresholds().changed(**limits))
