"""Run the checks over a method: each seed's snapshots, then the method as a whole."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from creditscope.auditing.checks import Check, Finding, MethodCheck, Outcome, RunCheck, SeedsCheck
from creditscope.auditing.methods import Method, Moment
from creditscope.auditing.thresholds import Thresholds
from creditscope.record import Record

BySeed = Mapping[int, Mapping[str, Finding]]
"""Seed → code → finding."""


def judge_seeds(checks: Sequence[Check], method: Method, limits: Thresholds) -> BySeed:
    """What the checks find in each run alone; those of a method have nothing to say of one."""
    of_runs = [check for check in checks if isinstance(check, RunCheck | SeedsCheck)]
    found = {}
    for seed, record in method.runs.items():
        # of a run they are the same for all checks: what one has computed of them, others need not; those of a watched
        # model each hold all that went before
        moments = list(moments_of(record)) if record.spec else None
        found[seed] = {check.code: judge_run(check, record, limits, moments) for check in of_runs}
    return found


def moments_of(record: Record) -> Iterator[Moment]:
    """Every snapshot as a moment."""
    return (Moment.of(record, snapshot) for snapshot in record.snapshots)


def judge_method(checks: Sequence[Check], method: Method, by_seed: BySeed, limits: Thresholds) -> list[Finding]:
    """One finding per check, over all seeds of the method."""
    return [replace(judge_check(check, method, limits), **_fired(check, method, by_seed, limits)) for check in checks]


def judge_check(check: Check, method: Method, limits: Thresholds) -> Finding:
    """What one check finds over the seeds that did not diverge."""
    if isinstance(check, MethodCheck):
        return _of_all(check.judge(method, limits), len(method.runs))
    if not method.whole:
        return check.skipped("every run diverged")
    return judge_together(check, [Moment.of(record) for record in method.whole], limits)


def judge_together(check: Check, moments: Sequence[Moment], limits: Thresholds) -> Finding:
    """What a check finds in the same moment of several runs."""
    if isinstance(check, SeedsCheck):
        return _of_all(check.judge(moments, limits), len(moments))
    assert isinstance(check, RunCheck)
    finding = check.pool(moments, [check.judge(moment, limits) for moment in moments], limits)
    return replace(finding, seeds=len(moments), seeds_hit=finding.seeds_hit or int(finding.is_issue))


def _of_all(finding: Finding, seeds: int) -> Finding:
    return replace(finding, seeds=seeds, seeds_hit=seeds * finding.is_issue)


def judge_run(check: Check, record: Record, limits: Thresholds, moments: Sequence[Moment] | None = None) -> Finding:
    """The last snapshot's finding, and the first epoch of training at which it was an issue, where that is asked."""
    if record.provenance.status == "diverged":
        return check.skipped(f"the run diverged at epoch {record.provenance.diverged_epoch}")
    finding = _judge_moment(check, moments[-1] if moments else Moment.of(record), limits)
    first = _first_issue(check, moments or moments_of(record), limits) if check.traced else None
    return replace(finding, first_epoch=first, last_first_epoch=first, seeds_hit=int(finding.is_issue))


def first_fired(
    check: Check, record: Record, limits: Thresholds | None = None, *, head_only: bool = False
) -> int | None:
    """The first measured epoch of training at which a check of a moment is an issue; the untrained net is passed over.

    A snapshot that lacks the check's input is no issue. With `head_only` a net with a class token is judged by that
    token alone, which is what its head reads.
    """
    shown = [replace(s, taps=s.head_taps) for s in record.snapshots] if head_only else record.snapshots
    return _first_issue(check, (Moment.of(record, snapshot) for snapshot in shown), limits or Thresholds())


def _first_issue(check: Check, moments: Iterable[Moment], limits: Thresholds) -> int | None:
    epochs = (m.snapshot.epoch for m in moments if m.snapshot.epoch > 0 and _judge_moment(check, m, limits).is_issue)
    return next(epochs, None)


def _judge_moment(check: Check, moment: Moment, limits: Thresholds) -> Finding:
    if isinstance(check, SeedsCheck):
        return check.judge([moment], limits)
    assert isinstance(check, RunCheck)
    return check.judge(moment, limits)


def _fired(check: Check, method: Method, by_seed: BySeed, limits: Thresholds) -> dict[str, int | None]:
    """When it was first an issue: of single seeds, or where a single one cannot be, of all together."""
    if isinstance(check, MethodCheck):
        return {}
    epochs = [e for found in by_seed.values() if (e := found[check.code].first_epoch) is not None]
    if not epochs and isinstance(check, SeedsCheck) and len(method.whole) > 1:
        shared = [{s.epoch: Moment.of(record, s) for s in record.snapshots} for record in method.whole]
        common = sorted(set.intersection(*map(set, shared)) - {0})
        hits = (e for e in common if judge_together(check, [moments[e] for moments in shared], limits).is_issue)
        epochs = list(islice(hits, 1))
    return {"first_epoch": min(epochs, default=None), "last_first_epoch": max(epochs, default=None)}


def mute_findings(findings: Iterable[Finding], codes: Sequence[str]) -> list[Finding]:
    """Muted ones are named as such and keep what they said."""
    return [
        replace(f, outcome=Outcome.MUTED, message=f"muted; it was {f.outcome}: {f.message}") if f.code in codes else f
        for f in findings
    ]
