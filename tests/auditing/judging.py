"""One check on one moment, on the same moment of several seeds, or on a method, for the tests of the checks."""

from collections.abc import Mapping, Sequence
from typing import Any

from builders import make_facts, make_snapshot, make_spec

from creditscope.auditing import Finding, Outcome, Thresholds
from creditscope.auditing.checks import MethodCheck, RunCheck, all_checks
from creditscope.auditing.judge import judge_together
from creditscope.auditing.methods import Method, Moment
from creditscope.record import Facts, RuleFacts, Snapshot

ISSUE, TIP, PASSED, UNDECIDED = Outcome.ISSUE, Outcome.TIP, Outcome.PASSED, Outcome.UNDECIDED
NOT_APPLICABLE, SKIPPED, MUTED = Outcome.NOT_APPLICABLE, Outcome.SKIPPED, Outcome.MUTED
CHECKS = {check.code: check for check in all_checks()}
AIM = RuleFacts(name="pc", label="PC", approximates="equilibrium")
BLIND = {"cos": 0.0, "cos_F": 0.0, "stage_cos": 0.0, "z": 0.0, "descent": 0.02, "descent_stage": 0.02}
"""Per-tap values of credit that knows nothing."""


def judge(
    code: str,
    facts: Facts | None = None,
    snapshot: Snapshot | None = None,
    *,
    untrained: Snapshot | None = None,
    spec: dict[str, Any] | None = None,
    **limits: float,
) -> Finding:
    """A check on one moment of one run; a healthy one unless said otherwise."""
    check = CHECKS[code]
    facts = facts or make_facts()
    moment = Moment(facts, snapshot or make_snapshot(facts), untrained, None if spec is None else make_spec(**spec))
    if isinstance(check, RunCheck):
        return check.judge(moment, Thresholds().changed(**limits))
    return judge_together(check, [moment], Thresholds().changed(**limits))


def make_moments(
    facts: Facts | None = None,
    *,
    seeds: int = 3,
    taps: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    spec: Mapping[str, Any] | None = None,
    **others: Any,
) -> list[Moment]:
    """The last moments of seeds 1 to n; `taps`, and a list in `others`, may give each seed its own."""
    facts = facts or make_facts()
    own = list(taps) if isinstance(taps, Sequence) else [taps] * seeds
    given = [{name: v[i] if isinstance(v, list) else v for name, v in others.items()} for i in range(len(own))]
    return [
        Moment(facts, make_snapshot(facts, taps=t, **g), None, make_spec(seed=i, **(spec or {})))
        for i, (t, g) in enumerate(zip(own, given, strict=True), start=1)
    ]


def judge_seeds(code: str, moments: Sequence[Moment], **limits: float) -> Finding:
    """A check on the same moment of several seeds."""
    return judge_together(CHECKS[code], moments, Thresholds().changed(**limits))


def judge_method(code: str, method: Method, **limits: float) -> Finding:
    """A check of a method."""
    check = CHECKS[code]
    assert isinstance(check, MethodCheck)
    return check.judge(method, Thresholds().changed(**limits))


def blind_taps(*taps: int, count: int = 5, **others: Any) -> dict[str, Any]:
    """Healthy values but at these taps, which know nothing."""
    healthy = {"cos": 0.5, "cos_F": 0.45, "stage_cos": 0.5, "z": 10.0, "descent": 0.4, "descent_stage": 0.4}
    return {n: tuple(BLIND[n] if i in taps else v for i in range(count)) for n, v in healthy.items()} | others
