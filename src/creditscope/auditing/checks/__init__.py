"""Checks: coded judgements over records, one file each; they touch no model and need no torch."""

import inspect
from collections.abc import Iterable, Sequence

from creditscope.auditing.checks._check import MOST, Check, Finding, MethodCheck, Outcome, RunCheck, SeedsCheck
from creditscope.auditing.checks._published import PUBLISHED, USUAL
from creditscope.auditing.methods import Method, Moment
from creditscope.auditing.thresholds import Thresholds, table
from creditscope.errors import UnknownNameError
from creditscope.record import Facts
from creditscope.registry import CHECKS

__all__ = [
    "MOST",
    "PUBLISHED",
    "USUAL",
    "Check",
    "Finding",
    "Method",
    "MethodCheck",
    "Moment",
    "Outcome",
    "RunCheck",
    "SeedsCheck",
    "Thresholds",
    "all_checks",
    "checks_for",
    "describe_checks",
    "in_order",
    "register_check",
    "what_to_do",
]
FIRED = (Outcome.ISSUE, Outcome.UNDECIDED, Outcome.TIP)
"""Outcomes that there is a remedy for; a check that was skipped says itself what it lacks."""
register_check = CHECKS.register


def all_checks() -> list[Check]:
    """One instance of every check that a verdict rests on, by code."""
    return sorted((CHECKS.get(name)() for name in CHECKS.names()), key=lambda check: check.code)


def checks_for(facts: Facts, checks: Iterable[Check] | None = None) -> list[Check]:
    """Those of a network, for a model that was watched under backprop; else those of a rule."""
    return [check for check in checks or all_checks() if check.network == facts.is_network]


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The issues, causes before consequences."""
    return sorted((f for f in findings if f.is_issue), key=lambda f: f.rank)


def what_to_do(findings: Iterable[Finding]) -> list[str]:
    """A sentence for each check that fired, once a code; what to do first comes first."""
    fired = {f.code: f.rank for f in findings if f.outcome in FIRED}
    told = [check for check in all_checks() if check.code in fired and check.remedy]
    told.sort(key=lambda check: fired[check.code])
    return [f"{check.code} {check.title}: {check.remedy} ({check.page})" for check in told]


def describe_checks(codes: Sequence[str]) -> list[str]:
    """How the checks of these codes (all of them if none is named) decide, why they matter and what to do, in lines."""
    summaries = {CHECKS.get(name).code: CHECKS.summary(name).partition(", ")[2] for name in CHECKS.names()}
    known, lines = {check.code: check for check in all_checks()}, []
    for code in codes or known:
        if code not in known:
            raise UnknownNameError("check", code, known)
        check = known[code]
        lines += [f"{code} {check.title}", f"  How it is found: {summaries[code]}"]
        lines += [f"  {inspect.cleandoc(check.__doc__)}"] if check.__doc__ else []
        lines += [f"  Why it matters: {check.why}", f"  What to do: {check.remedy}"]
        limits = [row for row in table() if code in row["checks"]]
        lines += [f"  Threshold {row['name']} {row['value']:g}: {row['meaning']}" for row in limits]
        lines.append(f"  Page: {check.page}")
    return [line for line in lines if line.strip()]
