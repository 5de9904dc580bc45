"""Run the checks over a method: each seed's snapshots, then the method as a whole."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from creditscope.auditing.checks import Check, MethodCheck, RunCheck
from creditscope.auditing.findings import Finding, Outcome
from creditscope.auditing.methods import Method
from creditscope.auditing.moment import Moment, first_epoch
from creditscope.auditing.thresholds import Thresholds
from creditscope.record import Record

BySeed = Mapping[int, Mapping[str, Finding]]
"""Seed → code → finding."""


def judge_seeds(checks: Sequence[Check], method: Method, limits: Thresholds) -> BySeed:
    """What the checks of a run find in each run alone."""
    return {
        seed: {c.code: judge_run(c, record, limits) for c in checks if isinstance(c, RunCheck)}
        for seed, record in method.runs.items()
    }


def judge_method(checks: Sequence[Check], method: Method, by_seed: BySeed, limits: Thresholds) -> list[Finding]:
    """One finding per check, over all seeds of the method."""
    findings = []
    for check in checks:
        if isinstance(check, MethodCheck):
            finding = check.judge(method, limits)
            finding = replace(finding, seeds=len(method.runs), seeds_hit=len(method.runs) * finding.is_issue)
        else:
            finding = combine([found[check.code] for found in by_seed.values()], limits)
        findings.append(finding)
    return findings


def mute_findings(findings: Sequence[Finding], codes: Sequence[str]) -> list[Finding]:
    """Muted ones are named as such and keep what they said."""
    return [_muted(finding) if finding.code in codes else finding for finding in findings]


def _muted(finding: Finding) -> Finding:
    message = f"muted; it was {finding.outcome}: {finding.message}"
    return replace(finding, outcome=Outcome.MUTED, message=message)


def judge_run(check: RunCheck, record: Record, limits: Thresholds, *, trace: bool = True) -> Finding:
    """The last snapshot's finding; with `trace`, also the first epoch of training at which it was an issue.

    A snapshot that lacks the check's input is no issue, so it is passed over in the search for the first epoch.
    """
    if record.provenance.status == "diverged":
        return check.skipped(f"the run diverged at epoch {record.provenance.diverged_epoch}")
    finding = check.judge(Moment.of(record), limits)
    first = first_epoch(record, lambda s: check.judge(Moment.of(record, s), limits).is_issue) if trace else None
    return replace(finding, first_epoch=first, last_first_epoch=first, seeds_hit=int(finding.is_issue))


def combine(findings: Sequence[Finding], limits: Thresholds) -> Finding:
    """One finding over seeds: an issue if enough have it (`seed_share`), undecided if fewer do.

    Otherwise the least certain outcome among the seeds stands: skipped, undecided, tip, then the rest.
    """
    hit = [f for f in findings if f.is_issue]
    epochs = [f.first_epoch for f in findings if f.first_epoch is not None]
    order = (Outcome.SKIPPED, Outcome.UNDECIDED, Outcome.TIP, Outcome.PASSED, Outcome.NOT_APPLICABLE)
    if hit and len(hit) >= limits.seed_share * len(findings):
        chosen = hit[0]
    elif hit:
        chosen = replace(hit[0], outcome=Outcome.UNDECIDED)
    else:
        least = min((f.outcome for f in findings), key=order.index)
        said = Counter(f.message for f in findings if f.outcome == least)
        chosen = next(f for f in findings if f.outcome == least and f.message == said.most_common(1)[0][0])
    values = [f.value for f in findings if f.value is not None]
    message = chosen.message
    if len(findings) > 1:
        alike = hit or [f for f in findings if f.outcome == chosen.outcome]
        if chosen.outcome == Outcome.SKIPPED:
            alike = [f for f in alike if f.message == chosen.message]
        share = "all" if len(alike) == len(findings) else f"{len(alike)} of {len(findings)}"
        message = f"{share} seeds, e.g. {message}" if chosen.outcome != Outcome.NOT_APPLICABLE else message
    return replace(
        chosen,
        message=message,
        value=sum(values) / len(values) if values else None,
        published=_any([f.published for f in findings]),
        first_epoch=min(epochs, default=None),
        last_first_epoch=max(epochs, default=None),
        seeds_hit=len(hit),
        seeds=len(findings),
    )


def _any(answers: list[bool | None]) -> bool | None:
    known = [a for a in answers if a is not None]
    return any(known) if known else None
