"""What a check asks, why and what to do, for people without the manual's pages at hand."""

import inspect
from collections.abc import Iterable, Sequence

from creditscope.auditing.checks import all_checks
from creditscope.auditing.findings import Finding, Outcome
from creditscope.auditing.thresholds import table
from creditscope.errors import UnknownNameError
from creditscope.registry import CHECKS

FIRED = (Outcome.ISSUE, Outcome.UNDECIDED, Outcome.TIP)
"""Outcomes that there is a remedy for; a check that was skipped says itself what it lacks."""


def what_to_do(findings: Iterable[Finding]) -> list[str]:
    """A sentence for each check that fired, once a code."""
    fired = {f.code for f in findings if f.outcome in FIRED}
    return [
        f"{check.code} {check.title}: {check.remedy} ({check.page})"
        for check in all_checks()
        if check.code in fired and check.remedy
    ]


def describe_checks(codes: Sequence[str]) -> list[str]:
    """Lines on the checks of these codes, or on all of them if none is named."""
    known, summaries = {check.code: check for check in all_checks()}, _summaries()
    lines = []
    for code in codes or known:
        if code not in known:
            raise UnknownNameError("check", code, known)
        check = known[code]
        lines += [f"{code} {check.title}", f"  How it is found: {summaries[code]}"]
        lines += [f"  {inspect.cleandoc(check.__doc__)}" if check.__doc__ else ""]
        lines += [f"  Why it matters: {check.why}", f"  What to do: {check.remedy}"]
        limits = [row for row in table() if code in row["checks"]]
        lines += [f"  Threshold {row['name']} {row['value']:g}: {row['meaning']}" for row in limits]
        lines += [f"  Page: {check.page}"]
    return [line for line in lines if line.strip()]


def _summaries() -> dict[str, str]:
    """Code → first line of its file, without the code."""
    return {CHECKS.get(name).code: CHECKS.summary(name).partition(", ")[2] for name in CHECKS.names()}
