"""Fill the decision table: the usual numbers and published diagnostics, then each check, then the whole protocol."""

from collections.abc import Sequence
from typing import Any

from creditscope.auditing.audit import Audit, MethodAudit
from creditscope.auditing.criteria import judge_criteria
from creditscope.auditing.decision import PROTOCOL, Conclusion, Decision, Decisions, with_epochs
from creditscope.auditing.findings import Finding, Outcome
from creditscope.auditing.verdict import Verdict

OF_OUTCOME: dict[Outcome, Conclusion] = {
    Outcome.ISSUE: "walks back",
    Outcome.TIP: "accepts",
    Outcome.PASSED: "accepts",
    Outcome.UNDECIDED: "open",
    Outcome.SKIPPED: "open",
    Outcome.NOT_APPLICABLE: "not applicable",
    Outcome.MUTED: "muted",
}
OF_WORD: dict[str, Conclusion] = {
    "trustworthy": "accepts",
    "walk back": "walks back",
    "undecided": "open",
    "not measured": "open",
    "not judged": "no verdict",
}


def decide(audit: Audit) -> Decisions:
    """Every criterion on every method of an audit."""
    rows = []
    for method, found in zip(audit.groups, audit.methods, strict=True):
        rows += judge_criteria(method, audit.limits.seed_share)
        rows += _checks(found)
        rows += _protocol(found)
    return Decisions(tuple(rows), audit.notes)


def _checks(found: MethodAudit) -> list[Decision]:
    """Each check on each seed, then over seeds; what needs several seeds has no answer for one."""
    rows = []
    for finding in found.findings:
        for seed, findings in found.seed_findings.items():
            own = next((f for f in findings if f.code == finding.code), None)
            rows.append(_of_finding(found, seed, finding.code, own))
        rows.append(_of_finding(found, None, finding.code, finding))
    return rows


def _of_finding(found: MethodAudit, seed: int | None, code: str, finding: Finding | None) -> Decision:
    place: dict[str, Any] = {"setting": found.setting, "method": found.method, "seed": seed}
    if finding is None:
        return Decision(**place, criterion=code, kind="check", conclusion="not applicable", said="needs several seeds")
    return Decision(
        **place,
        criterion=code,
        kind="check",
        conclusion=OF_OUTCOME[finding.outcome],
        said=f"{finding.outcome}: {finding.message}",
        value=finding.value,
        first_epoch=finding.first_epoch,
        last_first_epoch=finding.last_first_epoch,
        seeds_hit=finding.seeds_hit,
        seeds=finding.seeds,
    )


def _protocol(found: MethodAudit) -> list[Decision]:
    """The verdict of each seed alone, then the method's, which also knows of use of depth."""
    seeds = [_of_verdict(found, s, verdict, found.seed_findings[s]) for s, verdict in found.seed_verdicts.items()]
    return [*seeds, with_epochs(_of_verdict(found, None, found.verdict, ()), seeds)]


def _of_verdict(found: MethodAudit, seed: int | None, verdict: Verdict, findings: Sequence[Finding]) -> Decision:
    first = min((f.first_epoch for f in findings if f.is_issue and f.first_epoch is not None), default=None)
    return Decision(
        setting=found.setting,
        method=found.method,
        seed=seed,
        criterion=PROTOCOL,
        kind="protocol",
        conclusion=OF_WORD[verdict.word],
        said=str(verdict),
        first_epoch=first,
        last_first_epoch=first,
        seeds_hit=int(verdict.word == "walk back"),
    )
