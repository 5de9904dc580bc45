"""The decision table: what each way of judging concludes, per method and seed, and when it first fired."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from creditscope.auditing.findings import Finding, Outcome
from creditscope.auditing.verdict import Verdict

if TYPE_CHECKING:
    from creditscope.auditing.audit import Audit, MethodAudit

Conclusion = Literal["accepts", "walks back", "open", "not applicable", "no verdict", "muted"]
Kind = Literal["usual", "published", "check", "protocol"]
OF_OUTCOME: dict[Outcome, Conclusion] = {
    Outcome.ISSUE: "walks back",
    Outcome.TIP: "accepts",
    Outcome.PASSED: "accepts",
    Outcome.UNDECIDED: "open",
    Outcome.SKIPPED: "open",
    Outcome.NOT_APPLICABLE: "not applicable",
    Outcome.MUTED: "muted",
}
OF_WORD: dict[str, Conclusion] = {"trustworthy": "accepts", "walk back": "walks back", "inconclusive": "open"}
PROTOCOL = "whole protocol"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What one criterion concludes of one method, for one seed or over all of them."""

    setting: str
    method: str
    seed: int | None = None
    """None: the method over its seeds."""
    criterion: str
    kind: Kind
    conclusion: Conclusion
    said: str
    value: float | None = None
    first_epoch: int | None = None
    """The first epoch of training at which it walked back, whatever it concludes at the end."""
    last_first_epoch: int | None = None
    """Over seeds: the latest of these."""
    seeds_hit: int = 0
    seeds: int = 1


@dataclass(frozen=True)
class Decisions:
    """The rows of the table, and what a comparison of the methods adds."""

    rows: tuple[Decision, ...]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        from creditscope.auditing.show_decisions import render_decisions

        return render_decisions(self)

    def show(self) -> None:
        """Print the table to the terminal."""
        from creditscope.auditing.show_decisions import print_decisions

        print_decisions(self)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Plain data, one row each."""
        return [asdict(row) for row in self.rows]

    def frame(self):
        """A pandas table, one row per method, seed and criterion."""
        import pandas as pd

        return pd.DataFrame(self.to_dicts())


def decide(audit: "Audit") -> Decisions:
    """Every criterion on every method of an audit."""
    from creditscope.auditing.criteria import judge_criteria

    rows = []
    for method, found in zip(audit.groups, audit.methods, strict=True):
        rows += judge_criteria(method, audit.limits.seed_share)
        rows += _checks(found)
        rows += _protocol(found)
    return Decisions(tuple(rows), audit.notes)


def with_epochs(over_seeds: Decision, seeds: Sequence[Decision]) -> Decision:
    """The row over seeds with the span of first epochs and the number of seeds that walk back."""
    epochs = [row.first_epoch for row in seeds if row.first_epoch is not None]
    return replace(
        over_seeds,
        first_epoch=min(epochs, default=None),
        last_first_epoch=max(epochs, default=None),
        seeds_hit=sum(row.conclusion == "walks back" for row in seeds),
        seeds=len(seeds),
    )


def _checks(found: "MethodAudit") -> list[Decision]:
    """Each check on each seed, then over seeds; what needs several seeds has no answer for one."""
    rows = []
    for finding in found.findings:
        for seed, findings in found.seed_findings.items():
            own = next((f for f in findings if f.code == finding.code), None)
            rows.append(_of_finding(found, seed, finding.code, own))
        rows.append(_of_finding(found, None, finding.code, finding))
    return rows


def _of_finding(found: "MethodAudit", seed: int | None, code: str, finding: Finding | None) -> Decision:
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


def _protocol(found: "MethodAudit") -> list[Decision]:
    """The verdict of each seed alone, then the method's, which also knows of use of depth."""
    seeds = [_of_verdict(found, s, verdict, found.seed_findings[s]) for s, verdict in found.seed_verdicts.items()]
    return [*seeds, with_epochs(_of_verdict(found, None, found.verdict, ()), seeds)]


def _of_verdict(found: "MethodAudit", seed: int | None, verdict: Verdict, findings: Sequence[Finding]) -> Decision:
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
