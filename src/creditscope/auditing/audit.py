"""Judge records: one verdict per method, and the numbers it rests on."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from creditscope.auditing.checks import Check, Finding, all_checks, checks_for
from creditscope.auditing.checks.cs008_descent_disagrees import rank_notes
from creditscope.auditing.columns import Shown, method_frame
from creditscope.auditing.depth import Rung, TrainedDepth, depth_ladder, paired_interval, trained_depth, use_of_depth
from creditscope.auditing.judge import judge_method, judge_seeds, mute_findings
from creditscope.auditing.methods import (
    Method,
    accuracies,
    change_records,
    group_methods,
    read_methods,
    rule_key,
    setting_key,
    split_settings,
)
from creditscope.auditing.modules import ModuleRow, module_rows
from creditscope.auditing.per_tap import TapAudit, audit_taps
from creditscope.auditing.stats import INTERVALS, Interval, IntervalKind, known_mean, t_interval
from creditscope.auditing.thresholds import Thresholds
from creditscope.auditing.verdict import GOOD, Verdict, reach_network_verdict, reach_verdict
from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.record import Record, in_memory, open_records
from creditscope.record.load import collection_paused
from creditscope.record.table import largest_growth

if TYPE_CHECKING:
    from rich.console import Console

    from creditscope.auditing.card import Card
    from creditscope.auditing.decisions import Decisions
    from creditscope.auditing.sensitivity import Sensitivity


@dataclass(frozen=True)
class MethodAudit:
    """One method: what it reached, what its layers were told, and what may be concluded."""

    method: str
    setting: str
    seeds: tuple[int, ...]
    taps: tuple[str, ...]
    exact_taps: tuple[int, ...]
    gamma_taps: tuple[int, ...]
    """Those that Γ is over: of the blocks, or all of a net without a stem."""
    accuracy: Interval | None
    frozen_own: Interval | None
    frozen_bp: Interval | None
    versus_bp: Interval | None
    """Accuracy minus BP's, paired by seed."""
    gain: Interval | None
    """Δ, accuracy over the better frozen baseline, paired by seed."""
    bp_gain: Interval | None
    """Δ_BP, the same of BP."""
    gain_share: float | None
    """Δ/Δ_BP."""
    ladder: tuple[Rung, ...]
    trained_depth: TrainedDepth | None
    """How many blocks the net depends on having trained."""
    bp_trained_depth: TrainedDepth | None
    """The same of BP; None for BP itself."""
    gamma: float | None
    gamma_inexact: float | None
    cos: tuple[float | None, ...]
    z: tuple[float | None, ...]
    per_tap: tuple[TapAudit, ...]
    growth: float | None
    g_top: float | None
    findings: tuple[Finding, ...]
    verdict: Verdict
    rows_interact: bool
    seed_findings: dict[int, tuple[Finding, ...]]
    seed_verdicts: dict[int, Verdict]
    """Each seed alone, without what needs several: use of depth (CS004) and of blocks (CS011)."""
    network: bool = False
    """Whether it is a model that was watched under backprop: the net was judged, and no rule."""
    modules: tuple[ModuleRow, ...] = ()
    """Of a network, layer by layer."""


@dataclass(frozen=True)
class Audit(Shown):
    """The judged methods, the thresholds used, and what could not be read; made by `audit`.

    >>> import creditscope as cs
    >>> judged = cs.run(rule="dfa", task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick").audit()
    >>> dfa = judged.methods[0]
    >>> dfa.method, dfa.seeds, [finding.code for finding in dfa.findings][:2]
    ('DFA', (42,), ['CS001', 'CS002'])
    >>> [line.question for line in dfa.verdict.lines]
    ['Is the reference gradient resolved?', 'Does credit carry information?', 'Is depth used?']
    """

    methods: tuple[MethodAudit, ...]
    limits: Thresholds
    problems: tuple[str, ...] = field(default=())
    notes: tuple[str, ...] = field(default=())
    """What a comparison of the methods shows."""
    groups: tuple[Method, ...] = field(default=(), repr=False, compare=False)
    """The records behind the methods, in the same order; those of a folder stay on disk (`by_setting` reads them)."""
    mute: tuple[str, ...] = field(default=())

    def draw(self, width: int, *, verbose: bool = False):
        """A strip a method, and of at most three settings the reasons; if `verbose`, answers, numbers and checks."""
        from creditscope.auditing.show import draw_audit

        return draw_audit(self, width, verbose=verbose)

    def show(self, console: "Console | None" = None, *, verbose: bool = False) -> None:
        """Print it to the terminal, or to another console; if `verbose`, with all that lies behind it."""
        self._show(console, partial(self.draw, verbose=verbose))

    def _repr_html_(self) -> str:
        from creditscope.report.notebook import show_audit

        return show_audit(self)

    def without_rich(self) -> str:
        from creditscope.auditing.plain import write_audit

        return write_audit(self)

    def only(self, text: str) -> "Audit":
        """The settings in whose title, methods or verdicts every comma-separated part of `text` occurs, in any case.

        A whole title keeps that setting alone, also where others begin with it.
        """
        words = [part.strip().lower() for part in text.split(",") if part.strip()]
        texts: dict[str, str] = {}
        for m in self.methods:
            texts[m.setting] = f"{texts.get(m.setting, m.setting)} {m.method} {m.verdict}".lower()
        fitting = {setting for setting, said in texts.items() if words and all(word in said for word in words)}
        kept = fitting & {text} or fitting
        if not kept:
            raise CreditscopeError(
                f"Expected words of a setting, a method or a verdict, but none of {len(texts)} settings has all of "
                f"{text!r}. Choose among words such as {next(iter(texts))}."
            )
        pairs = [(m, g) for m, g in zip(self.methods, self.groups, strict=True) if m.setting in kept]
        methods, groups = zip(*pairs, strict=True)
        found = replace(self, methods=methods, groups=groups)
        return replace(found, notes=tuple(note for part in found.by_setting() for note in rank_notes(part.groups)))

    def by_setting(self) -> "Iterator[Audit]":
        """The same of one setting after the other, with its records in memory."""
        pairs = list(zip(self.methods, self.groups, strict=True))
        for _, part in groupby(pairs, key=lambda pair: pair[0].setting):
            methods, groups = zip(*part, strict=True)
            yield replace(self, methods=methods, groups=tuple(read_methods(groups)))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON: everything but the records, and the decision table."""
        kept = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("groups", "methods", "limits")}
        return {
            "methods": [asdict(m) for m in self.methods],
            "limits": asdict(self.limits),
            "decisions": self.decisions().to_dicts(),
            **kept,
        }

    def frame(self):
        """A pandas table, one row per method."""
        return method_frame(self.methods)

    def decisions(self) -> "Decisions":
        """What the usual numbers, the published diagnostics, each check and the whole protocol conclude."""
        from creditscope.auditing.decisions import decide

        return decide(self)

    def sensitivity(self, *names: str) -> "Sensitivity":
        """How far each threshold (those named, or all) could move before any method's verdict word changes."""
        from creditscope.auditing.sensitivity import find_ranges

        return find_ranges(self, names)

    def failures(self, *names: str) -> list[str]:
        """One sentence per method (those named, in every setting, or all) that is neither trustworthy nor healthy."""
        _must_be_known("method", names, {m.method for m in self.methods})
        asked = [m for m in self.methods if not names or m.method in names]
        return [_say_failure(m) for m in asked if m.verdict.word not in GOOD]

    def cards(self) -> "list[Card]":
        """A reporting card per method."""
        from creditscope.auditing.card import make_card

        return [make_card(self, i) for i in range(len(self.methods))]


def audit(
    source: Any,
    *,
    limits: Thresholds | None = None,
    mute: Sequence[str] = (),
    interval: IntervalKind = "t",
    unsealed: bool = False,
) -> Audit:
    """Judge a folder of records, a list of them, runs, or a scope, by these limits.

    `limits` are the thresholds, ours by default; checks whose codes are in `mute` are left out of the verdict and named
    beside it; `interval` chooses how per-tap intervals are made: t, or a percentile bootstrap over seeds.
    Records of a folder that were altered since they were written are read only if `unsealed`.

    >>> import creditscope as cs
    >>> runs = cs.run(task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick")
    >>> cs.audit("out/records", limits=cs.Thresholds().changed(growth=20), mute=["CS010"]).methods[0].method
    'BP'
    """
    problems: list[str] = []
    records = _gather(source, problems, unsealed)
    _must_be_known("kind of interval", [interval], INTERVALS)
    limits, checks = limits or Thresholds(), all_checks()
    _must_be_known("check", mute, [check.code for check in checks])
    judge = partial(_judge, checks=checks, limits=limits, mute=mute, interval=interval)
    parts = [part for own in split_settings(records) if (part := _judge_setting(own, judge, problems)).groups]
    if not parts and problems:
        raise CreditscopeError(" ".join(["Expected records that can be judged, but none is left.", *problems]))
    if not parts:
        raise CreditscopeError(
            "Expected a run whose blocks are all trained, but got frozen baselines or rungs of a depth ladder only. "
            "Train one without frozen and train_last."
        )
    places = {id(record): place for place, record in enumerate(records)}
    parts.sort(key=lambda part: places[id(part.first)])
    methods, groups, notes = (tuple(chain(*(getattr(p, n) for p in parts))) for n in ("methods", "groups", "notes"))
    return Audit(methods, limits, tuple(problems), notes, groups, tuple(mute))


class _Setting(NamedTuple):
    """What is left of a setting that was judged."""

    groups: list[Method]
    methods: list[MethodAudit]
    notes: list[str]
    first: Record | None
    """The first record of a method or its baselines, by which settings are ordered."""


def _judge_setting(records: Sequence[Record], judge: Callable[[Method], MethodAudit], problems: list[str]) -> _Setting:
    """Read the snapshots of one setting, judge them, and let them go."""
    read: list[Record] = []
    stored: dict[int, Record] = {}
    with collection_paused():
        for record in records:
            try:
                read.append(in_memory(record))
                stored[id(read[-1])] = record
            except CreditscopeError as error:
                problems.append(str(error))
        groups = group_methods(read)
        keys = {(rule_key(m.first), setting_key(m.first)) for m in groups}
        first = next((stored[id(r)] for r in read if (rule_key(r), setting_key(r)) in keys), None)
        methods, notes = [judge(method) for method in groups], rank_notes(groups)
        return _Setting(change_records(groups, lambda r: stored[id(r)]), methods, notes, first)


def _must_be_known(kind: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise UnknownNameError(kind, name, known)


def _gather(source: Any, problems: list[str], unsealed: bool) -> list[Record]:
    """The records of a source that have something to judge."""
    if isinstance(source, str | Path):
        records = open_records(source, problems=problems, unsealed=unsealed)
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
    problems += [f"Record {r.name} holds no snapshot; left out." for r in empty]
    running = [r for r in records if r.snapshots and r.spec is not None and not r.finished]
    problems += [f"Record {r.name} did not finish; left out." for r in running]
    records = [r for r in records if r.snapshots and (r.spec is None or r.finished)]
    if not records:
        detail = " ".join(problems) or "Train runs first (creditscope run), or name the folder that holds them."
        where = f" under {source}" if isinstance(source, str | Path) else ""
        raise CreditscopeError(f"Expected at least one finished record to audit{where}, but got none. {detail}")
    return records


def _judge(
    method: Method, checks: Sequence[Check], limits: Thresholds, mute: Sequence[str], interval: IntervalKind
) -> MethodAudit:
    checks, network = checks_for(method.facts, checks), method.facts.is_network
    by_seed = judge_seeds(checks, method, limits)
    findings = tuple(
        f if f.value is None else replace(f, limit=check.compared_with(method.facts, limits))
        for check, f in zip(checks, mute_findings(judge_method(checks, method, by_seed, limits), mute), strict=True)
    )
    seed_findings = {seed: tuple(mute_findings(list(found.values()), mute)) for seed, found in by_seed.items()}
    lasts, depth = [record.last for record in method.whole], use_of_depth(method)
    reach = reach_network_verdict if network else reach_verdict
    verdict, lost = partial(reach, not_judged=method.not_judged, checks=checks), method.diverged
    taps, is_bp = audit_taps(method, limits, kind=interval), method.bp == method.runs
    return MethodAudit(
        method=method.label,
        setting=method.setting,
        seeds=tuple(method.runs),
        taps=method.facts.taps,
        exact_taps=method.facts.exact_taps,
        gamma_taps=method.facts.gamma_taps,
        accuracy=_interval(method.runs),
        frozen_own=_interval(method.frozen_own),
        frozen_bp=_interval(method.frozen_bp),
        versus_bp=None if is_bp else paired_interval(accuracies(method.runs), accuracies(method.bp)),
        gain=t_interval(depth.gains) if depth else None,
        bp_gain=t_interval(depth.bp_gains) if depth else None,
        gain_share=depth.share if depth else None,
        ladder=depth_ladder(method),
        trained_depth=trained_depth(method.whole, limits),
        bp_trained_depth=None if is_bp else trained_depth(list(method.bp.values()), limits),
        gamma=known_mean(s.gamma for s in lasts),
        gamma_inexact=known_mean(s.gamma_inexact for s in lasts),
        cos=tuple(tap.cos.mean if tap.cos else None for tap in taps),
        z=tuple(tap.z.mean if tap.z else None for tap in taps),
        per_tap=taps,
        growth=known_mean(largest_growth(r.facts, r.last) for r in method.whole),
        g_top=known_mean(s.taps.g_norm[-1] for s in lasts),
        findings=findings,
        verdict=verdict(findings, diverged=method.divergence, all_diverged=not method.whole),
        rows_interact=method.facts.rows_interact,
        seed_findings=seed_findings,
        seed_verdicts={
            seed: verdict(found, diverged=f"at epoch {lost[seed]}" if seed in lost else "", all_diverged=seed in lost)
            for seed, found in seed_findings.items()
        },
        network=network,
        modules=module_rows(method, findings),
    )


def _say_failure(m: MethodAudit) -> str:
    why = [f"{f.code} {f.outcome}, {f.message}" for f in m.findings if f.code in m.verdict.codes]
    why += [f"diverged: {m.verdict.diverged}"] * bool(m.verdict.diverged)
    why += [m.verdict.not_judged] * bool(m.verdict.not_judged)
    good = "healthy" if m.network else "trustworthy"
    more = f" creditscope audit --explain {' '.join(m.verdict.codes)} tells what to do." if m.verdict.codes else ""
    return f"Expected {m.method} ({m.setting}) to be {good}, but got {m.verdict.word}: {'; '.join(why)}.{more}"


def _interval(records: dict[int, Record]) -> Interval | None:
    values = list(accuracies(records).values())
    return t_interval(values) if values else None
