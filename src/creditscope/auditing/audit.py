"""Judge records: one verdict per method, and the numbers it rests on."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from creditscope.auditing.checks import all_checks
from creditscope.auditing.checks.cs001_overwritten_stream import growths
from creditscope.auditing.findings import Finding
from creditscope.auditing.judge import judge_method, judge_seed
from creditscope.auditing.methods import Method, accuracies, group_methods
from creditscope.auditing.stats import Interval, t_interval
from creditscope.auditing.thresholds import Thresholds
from creditscope.auditing.verdict import Verdict, reach_verdict
from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.record import Record, load_records


@dataclass(frozen=True)
class MethodAudit:
    """One method: what it reached, what its layers were told, and what may be concluded."""

    method: str
    setting: str
    seeds: tuple[int, ...]
    taps: tuple[str, ...]
    exact_taps: tuple[int, ...]
    accuracy: Interval | None
    frozen_own: Interval | None
    frozen_bp: Interval | None
    gamma: float | None
    gamma_inexact: float | None
    cos: tuple[float | None, ...]
    z: tuple[float | None, ...]
    growth: float | None
    g_top: float | None
    findings: tuple[Finding, ...]
    verdict: Verdict
    rows_interact: bool
    seed_verdicts: dict[int, Verdict]
    """Each seed alone, without use of depth (CS004), which needs several."""


@dataclass(frozen=True)
class Audit:
    """The judged methods, the thresholds used, and what could not be read."""

    methods: tuple[MethodAudit, ...]
    limits: Thresholds
    problems: tuple[str, ...] = field(default=())

    def show(self) -> None:
        """Print the tables and verdicts to the terminal."""
        from creditscope.auditing.show import print_audit

        print_audit(self)

    def __str__(self) -> str:
        from creditscope.auditing.show import render_audit

        return render_audit(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

    def frame(self):
        """A pandas table, one row per method."""
        from creditscope.auditing.show import audit_frame

        return audit_frame(self)


def audit(
    source: Any,
    *,
    limits: Thresholds | None = None,
    mute: Sequence[str] = (),
) -> Audit:
    """Judge a folder of records, a list of them, runs, or a scope, by these limits."""
    problems: list[str] = []
    if isinstance(source, str | Path):
        records = load_records(source, problems=problems)
    elif hasattr(source, "records"):
        records = list(source.records)
        problems += getattr(source, "problems", ())
    elif isinstance(source, Record):
        records = [source]
    else:
        records = list(source) if isinstance(source, Iterable) else [source]
    if not all(isinstance(r, Record) for r in records):
        raise CreditscopeError(
            f"Expected a folder, records, runs or a scope to audit, but got {type(source).__name__}."
        )
    empty = [r for r in records if not r.snapshots]
    problems += [f"Record {r.path.name if r.path else '?'} holds no snapshot; left out." for r in empty]
    records = [r for r in records if r.snapshots]
    if not records:
        detail = f" {' '.join(problems)}" if problems else ""
        raise CreditscopeError(f"Expected at least one finished record to audit, but got none.{detail}")
    limits = limits or Thresholds()
    codes = [check.code for check in all_checks()]
    for code in mute:
        if code not in codes:
            raise UnknownNameError("check", code, codes)
    methods = tuple(_judge(method, limits, mute) for method in group_methods(records))
    if not methods:
        raise CreditscopeError("Expected a run whose blocks are trained, but got frozen baselines only.")
    return Audit(methods, limits, tuple(problems))


def _judge(method: Method, limits: Thresholds, mute: Sequence[str]) -> MethodAudit:
    findings = tuple(judge_method(method, limits, mute=mute))
    whole = [record for record in method.runs.values() if record.provenance.status != "diverged"]
    lasts = [record.last for record in whole]
    untested = "" if method.facts.trainer else "use of depth not tested"
    diverged = ", ".join(f"seed {s} at epoch {e}" for s, e in method.diverged.items())
    growth = [g for r in whole for g in [max(growths(r.facts, r.last).values(), default=None)]]
    return MethodAudit(
        method=method.label,
        setting=method.setting,
        seeds=tuple(method.runs),
        taps=method.facts.taps,
        exact_taps=method.facts.exact_taps,
        accuracy=_interval(method.runs),
        frozen_own=_interval(method.frozen_own),
        frozen_bp=_interval(method.frozen_bp),
        gamma=_mean([s.gamma for s in lasts]),
        gamma_inexact=_mean([s.gamma_inexact for s in lasts]),
        cos=_per_tap([s.taps.cos for s in lasts], len(method.facts.taps)),
        z=_per_tap([s.taps.z for s in lasts], len(method.facts.taps)),
        growth=_mean(growth),
        g_top=_mean([s.taps.g_norm[-1] for s in lasts]),
        findings=findings,
        verdict=reach_verdict(findings, diverged=diverged, untested=untested),
        rows_interact=method.facts.rows_interact,
        seed_verdicts={seed: reach_verdict(judge_seed(r, limits, mute=mute)) for seed, r in method.runs.items()},
    )


def _interval(records: dict[int, Record]) -> Interval | None:
    values = list(accuracies(records).values())
    return t_interval(values) if values else None


def _per_tap(rows: Sequence[Sequence[float | None]], taps: int) -> tuple[float | None, ...]:
    return tuple(_mean([row[tap] for row in rows]) for tap in range(taps))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None
