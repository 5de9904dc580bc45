"""Run the checks over a method: each seed's snapshots, then the method as a whole."""

from collections.abc import Sequence
from dataclasses import replace

from creditscope.auditing.checks import MethodCheck, RunCheck, all_checks
from creditscope.auditing.findings import Finding, Outcome
from creditscope.auditing.methods import Method
from creditscope.auditing.thresholds import Thresholds
from creditscope.record import Record


def judge_method(method: Method, limits: Thresholds, *, mute: Sequence[str] = ()) -> list[Finding]:
    """One finding per check, over all seeds of the method; muted ones are named as such."""
    findings = []
    for check in all_checks():
        if isinstance(check, RunCheck):
            finding = combine([judge_run(check, record, limits) for record in method.runs.values()])
        else:
            assert isinstance(check, MethodCheck)
            finding = check.judge(method, limits)
            finding = replace(finding, seeds=len(method.runs), seeds_hit=len(method.runs) * _is_issue(finding))
        findings.append(_muted(finding) if check.code in mute else finding)
    return findings


def judge_seed(record: Record, limits: Thresholds, *, mute: Sequence[str] = ()) -> list[Finding]:
    """The findings of one run alone."""
    findings = [judge_run(check, record, limits) for check in all_checks() if isinstance(check, RunCheck)]
    return [_muted(f) if f.code in mute else f for f in findings]


def _muted(finding: Finding) -> Finding:
    message = f"muted; it was {finding.outcome}: {finding.message}"
    return replace(finding, outcome=Outcome.MUTED, message=message)


def judge_run(check: RunCheck, record: Record, limits: Thresholds) -> Finding:
    """The last snapshot's finding, with the first epoch of training at which the check was an issue."""
    if record.provenance.status == "diverged":
        return check.skipped(f"the run diverged at epoch {record.provenance.diverged_epoch}")
    finding = check.judge(record.facts, record.last, limits)
    fired = (s.epoch for s in record.snapshots if s.epoch > 0 and _is_issue(check.judge(record.facts, s, limits)))
    return replace(finding, first_epoch=next(fired, None), seeds_hit=int(_is_issue(finding)))


def combine(findings: Sequence[Finding]) -> Finding:
    """One finding over seeds: an issue if at least half have it, undecided if some do.

    Otherwise the least certain outcome among the seeds stands: skipped, undecided, tip, then the rest.
    """
    hit = [f for f in findings if _is_issue(f)]
    epochs = [f.first_epoch for f in findings if f.first_epoch is not None]
    order = (Outcome.SKIPPED, Outcome.UNDECIDED, Outcome.TIP, Outcome.PASSED, Outcome.NOT_APPLICABLE)
    if 2 * len(hit) >= len(findings):
        chosen = hit[0]
    elif hit:
        chosen = replace(hit[0], outcome=Outcome.UNDECIDED)
    else:
        chosen = min(findings, key=lambda f: order.index(f.outcome))
    values = [f.value for f in findings if f.value is not None]
    message = chosen.message
    if len(findings) > 1:
        alike = [f for f in findings if f.outcome == (hit[0].outcome if hit else chosen.outcome)]
        share = "all" if len(alike) == len(findings) else f"{len(alike)} of {len(findings)}"
        message = f"{share} seeds, e.g. {message}" if chosen.outcome != Outcome.NOT_APPLICABLE else message
    return replace(
        chosen,
        message=message,
        value=sum(values) / len(values) if values else None,
        published=_any([f.published for f in findings]),
        first_epoch=min(epochs, default=None),
        seeds_hit=len(hit),
        seeds=len(findings),
    )


def _is_issue(finding: Finding) -> bool:
    return finding.outcome == Outcome.ISSUE


def _any(answers: list[bool | None]) -> bool | None:
    known = [a for a in answers if a is not None]
    return any(known) if known else None
