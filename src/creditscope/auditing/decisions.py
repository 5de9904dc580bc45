"""The decision table: what the usual numbers, the published diagnostics, each check and the whole protocol conclude."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from creditscope.auditing.audit import Audit, MethodAudit
from creditscope.auditing.checks import PUBLISHED, USUAL, Check, Finding, MethodCheck, RunCheck, all_checks, checks_for
from creditscope.auditing.checks._published import say_value
from creditscope.auditing.columns import ShownRows, mark
from creditscope.auditing.judge import judge_run
from creditscope.auditing.methods import Method, Moment
from creditscope.auditing.thresholds import Thresholds
from creditscope.auditing.verdict import Verdict
from creditscope.text import span

Conclusion = Literal["accepts", "walks back", "open", "not applicable", "no verdict", "muted"]
PROTOCOL = "whole protocol"
STYLES: dict[Conclusion, str] = {"accepts": "green", "walks back": "red", "open": "yellow"}
LEGEND = (
    "✓ accepts · ✗ walks back · ? open (an input is missing, or the data allow both) · – not applicable · ◌ muted · a "
    "number is the epoch of first firing (over seeds: earliest–latest), in brackets where it does not walk back at the "
    "end. "
    "Usual: accuracy above chance; the same and Γ > 0. Published diagnostics stand at their published thresholds, the "
    "gain on the mean over the method's own frozen runs; their cross-batch stability is exported as drift and not "
    "judged. A seed alone is judged without CS004 and CS011."
)
CONCLUSIONS: dict[str, Conclusion] = {
    "issue": "walks back",
    "tip": "accepts",
    "passed": "accepts",
    "skipped": "open",
    "not applicable": "not applicable",
    "muted": "muted",
    "undecided": "open",
    "trustworthy": "accepts",
    "walk back": "walks back",
    "not measured": "open",
    "not judged": "no verdict",
    "healthy": "accepts",
    "ill": "walks back",
    "not trained yet": "no verdict",
}
"""Of the outcome of a check, or the word of a verdict."""
SAME = ("value", "first_epoch", "last_first_epoch", "seeds_hit", "seeds")
"""What a decision has of a finding as it is."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What one criterion concludes of one method, for one seed or over all of them."""

    setting: str
    method: str
    seed: int | None = None
    """None: the method over its seeds."""
    criterion: str
    """The code of a check, or the whole protocol."""
    kind: Literal["usual", "published", "check", "protocol"]
    conclusion: Conclusion
    said: str
    value: float | None = None
    first_epoch: int | None = None
    """The first epoch of training at which it walked back, whatever it concludes at the end."""
    last_first_epoch: int | None = None
    """Over seeds: the latest of these."""
    seeds_hit: int = 0
    seeds: int = 1

    @property
    def fired(self) -> str:
        """When it first walked back, earliest to latest seed; empty if it never did; in brackets if not at the end."""
        if self.first_epoch is None:
            return ""
        when = span(self.first_epoch, self.last_first_epoch)
        return when if self.conclusion == "walks back" else f"({when})"


@dataclass(frozen=True)
class Decisions(ShownRows):
    """The table, one row per method, seed and criterion, and what a comparison of the methods adds."""

    rows: tuple[Decision, ...]
    notes: tuple[str, ...] = ()

    def draw(self, width: int):
        """One row per method and seed, one mark per criterion."""
        from rich.console import Group

        from creditscope.auditing.printing import fit_tables, note, printed, warn

        def cell(row: Decision):
            said = row.said if row.criterion == PROTOCOL else f"{mark(row)} {row.fired}".rstrip()
            return printed(said, style=STYLES.get(row.conclusion, "dim"))

        parts, by_setting = [], {}
        for row in self:
            by_setting.setdefault(row.setting, {})[row.method, row.seed, row.criterion] = row
        for setting, rows in by_setting.items():
            seeds = dict.fromkeys((method, seed) for method, seed, _ in rows)
            columns = {
                "verdict" if criterion == PROTOCOL else criterion: [cell(rows[*key, criterion]) for key in seeds]
                for criterion in dict.fromkeys(criterion for _, _, criterion in rows)
            }
            labels = [f"{method}, {'all seeds' if seed is None else f'seed {seed}'}" for method, seed in seeds]
            parts += [printed(setting, style="bold"), *fit_tables("method", labels, columns, width)]
        return Group(*parts, note(LEGEND), *warn(self.notes))


def decide(audit: Audit) -> Decisions:
    """Every way of judging on every method of an audit: each seed, then over seeds."""
    rows, known = [], all_checks()
    for part in audit.by_setting():
        for method, found in zip(part.groups, part.methods, strict=True):
            usual = () if method.facts.is_network else (*USUAL.values(), *PUBLISHED.values())
            for check in (*usual, *checks_for(method.facts, known)):
                seeds, whole = _judged(check, found) if check.kind == "check" else _judge(check, method, audit.limits)
                rows += [_of_finding(found, *pair, check) for pair in (*seeds.items(), (None, whole))]
            rows += _protocol(found)
    return Decisions(tuple(rows), audit.notes)


def _judged(check: Check, found: MethodAudit) -> tuple[Mapping[int, Finding | None], Finding]:
    """What the audit holds of a check; what needs several seeds has no answer for one."""
    seeds = {s: next((f for f in own if f.code == check.code), None) for s, own in found.seed_findings.items()}
    return seeds, next(f for f in found.findings if f.code == check.code)


def _judge(check: Check, method: Method, limits: Thresholds) -> tuple[Mapping[int, Finding], Finding]:
    """What takes no part in the verdict is judged here; a seed alone is a method of one seed."""
    if isinstance(check, MethodCheck):
        seeds = {s: check.judge(replace(method, runs={s: record}), limits) for s, record in method.runs.items()}
        seeds = {s: replace(finding, seeds_hit=int(finding.is_issue)) for s, finding in seeds.items()}
        whole = check.judge(method, limits)
    else:
        assert isinstance(check, RunCheck)
        seeds = {s: judge_run(check, record, limits) for s, record in method.runs.items()}
        whole = check.pool([Moment.of(record) for record in method.runs.values()], list(seeds.values()), limits)
    epochs = [f.first_epoch for f in seeds.values() if f.first_epoch is not None]
    fired = {"first_epoch": min(epochs, default=None), "last_first_epoch": max(epochs, default=None)}
    return seeds, replace(whole, **fired, seeds_hit=sum(f.is_issue for f in seeds.values()), seeds=len(seeds))


def _of_finding(found: MethodAudit, seed: int | None, finding: Finding | None, check: Check) -> Decision:
    place: dict[str, Any] = {"setting": found.setting, "method": found.method, "seed": seed}
    place |= {"criterion": check.code, "kind": check.kind}
    if finding is None:
        return Decision(**place, conclusion="not applicable", said="needs several seeds")
    return Decision(
        **place,
        conclusion=CONCLUSIONS[finding.outcome] if check.decides else "no verdict",
        said=f"{finding.outcome}: {finding.message}" if check.kind == "check" else say_value(finding.value),
        **{name: getattr(finding, name) for name in SAME},
    )


def _protocol(found: MethodAudit) -> list[Decision]:
    """The verdict of each seed alone, then the method's, which also knows of use of depth."""
    place: dict[str, Any] = {"setting": found.setting, "method": found.method, "criterion": PROTOCOL}
    rows = []
    for seed, verdict in found.seed_verdicts.items():
        issues = [f.first_epoch for f in found.seed_findings[seed] if f.is_issue and f.first_epoch is not None]
        rows.append(_of_verdict(place | {"seed": seed}, verdict, sorted(issues)[:1]))
    whole = _of_verdict(place, found.verdict, [row.first_epoch for row in rows if row.first_epoch is not None])
    return [*rows, replace(whole, seeds_hit=sum(row.seeds_hit for row in rows), seeds=len(rows))]


def _of_verdict(place: Mapping[str, Any], verdict: Verdict, epochs: Sequence[int]) -> Decision:
    return Decision(
        **place,
        kind="protocol",
        conclusion=CONCLUSIONS[verdict.word],
        said=str(verdict),
        first_epoch=min(epochs, default=None),
        last_first_epoch=max(epochs, default=None),
        seeds_hit=int(verdict.word in ("walk back", "ill")),
    )
