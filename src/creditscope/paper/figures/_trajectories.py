"""Runs over training: rows of nets, in each row one group of runs a rule, and the quantities that are drawn of them.

All rows rest on the seeds that every group has; a row is drawn at the epochs at which all its drawn runs were measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from creditscope.auditing.checks import PUBLISHED as DIAGNOSTICS
from creditscope.auditing.checks import Check
from creditscope.auditing.judge import first_fired
from creditscope.auditing.methods import first_epoch
from creditscope.errors import CreditscopeError
from creditscope.paper.figures._selection import require_one_setting, spec_of
from creditscope.record import Facts, Record, RunSpec, Snapshot
from creditscope.record.view import richest
from creditscope.rule_styles import Look, rule_looks
from creditscope.text import name_all, subscript

REFERENCE = "bp"
PUBLISHED = (DIAGNOSTICS["growth"], DIAGNOSTICS["floor"])
"""The published diagnostics that look at one moment, as in the decision table: growth limit and floor."""


@dataclass(frozen=True)
class Wanted:
    """Which net a row is about; `terminal_norm` None: either."""

    title: str
    net: str
    terminal_norm: bool | None = None

    def holds(self, spec: RunSpec) -> bool:
        """Whether a run is one of this net."""
        known = spec.net_options.get("terminal_norm", True)
        return spec.net == self.net and self.terminal_norm in (None, known)


@dataclass(frozen=True)
class Quantity:
    """A number per snapshot: a norm at a tap (of the class token, where the net has one), or the test accuracy."""

    name: str
    """A per-tap measure, or "accuracy"."""
    tap: int | None = None
    """None: the last one."""

    @property
    def log(self) -> bool:
        """Norms are drawn, and averaged, as logarithms."""
        return self.name != "accuracy"

    def tap_in(self, facts: Facts) -> int:
        """The tap in a net, which may be shallower."""
        last = len(facts.taps) - 1
        return last if self.tap is None else min(self.tap, last)

    def symbol(self, facts: Facts | None) -> str:
        """As in axes and sentences."""
        if not self.log:
            return "test accuracy"
        letter = self.name[0]
        return f"‖{letter if facts is None else subscript(letter, self.tap_in(facts))}‖"

    def read(self, facts: Facts, snapshot: Snapshot) -> float:
        """NaN where it was not measured, or a norm is not above 0."""
        if not self.log:
            value = snapshot.accuracy
        else:
            taps = snapshot.taps if facts.class_token is None else snapshot.class_token
            value = getattr(taps, self.name)[self.tap_in(facts)] if taps else None
        if value is None or not np.isfinite(value) or (self.log and value <= 0):
            return np.nan
        return float(value)

    def curve(self, record: Record, epochs: Sequence[int]) -> np.ndarray:
        """One run at these epochs."""
        known = {snapshot.epoch: snapshot for snapshot in record.snapshots}
        return np.array([self.read(record.facts, known[epoch]) for epoch in epochs])


STREAM, SECOND_GRADIENT, TOP_GRADIENT, ACCURACY = (
    Quantity("h_norm"),
    Quantity("g_norm", tap=2),
    Quantity("g_norm"),
    Quantity("accuracy"),
)


@dataclass(frozen=True)
class Group:
    """The runs of one rule on one net: one per shared seed, apart from those that diverged; `gap` says why none."""

    rule: str
    style: Look
    records: tuple[Record, ...]
    diverged: tuple[Record, ...] = ()
    gap: str = ""

    def values(self, quantity: Quantity, epochs: Sequence[int]) -> np.ndarray:
        """(seeds, epochs); of a norm its log10, so that means are those that are drawn."""
        found = np.array([quantity.curve(record, epochs) for record in self.records]).reshape(
            len(self.records), len(epochs)
        )
        return np.log10(found) if quantity.log else found

    def first_epochs(self, check: Check) -> list[int | None]:
        """By seed, the first measured epoch of training at which a published diagnostic fires, on the drawn tokens."""
        return [first_fired(check, record, head_only=True) for record in self.records]

    def first_below(self, quantity: Quantity, floor: float) -> list[int | None]:
        """By seed, the first measured epoch of training at which the quantity is under the floor."""
        return [first_epoch(record, lambda s, f=record.facts: quantity.read(f, s) < floor) for record in self.records]


@dataclass(frozen=True)
class Row:
    """One net; without runs a gap."""

    wanted: Wanted
    groups: tuple[Group, ...]
    epochs: tuple[int, ...]

    @property
    def drawn(self) -> list[Group]:
        """The rules that have a mean to draw."""
        return [group for group in self.groups if group.records]

    @property
    def any_record(self) -> Record | None:
        """Of a run that is drawn: all but rule and seed is the same."""
        return next((r for group in self.groups for r in (*group.records, *group.diverged)), None)

    @property
    def facts(self) -> Facts | None:
        """Taps and chance, the same for all runs of the row."""
        return self.any_record.facts if self.any_record else None

    def group(self, rule: str) -> Group | None:
        """The runs of a rule, if it has any."""
        return next((group for group in self.drawn if group.rule == rule), None)


@dataclass(frozen=True)
class Trajectories:
    """All that is drawn; `notes` say what was left out."""

    rows: tuple[Row, ...]
    styles: dict[str, Look]
    seeds: tuple[int, ...]
    notes: tuple[str, ...]


def select_trajectories(
    records: Sequence[Record], *, rows: Sequence[Wanted], rules: Sequence[str], quantities: Sequence[Quantity]
) -> Trajectories:
    """The plain runs of `rules` in every net (no penalty, no credit norm, nothing frozen, default rule options)."""
    plain = richest([record for record in records if _is_plain(record, rules)])
    by_row = {wanted: [r for r in plain if wanted.holds(spec_of(r))] for wanted in rows}
    if not any(by_row.values()):
        raise CreditscopeError(
            f"Expected records of plain runs of {', '.join(rules)} on {', '.join(w.title for w in rows)}, but got none "
            f"among {len(records)} records. creditscope figure trains them."
        )
    for found in by_row.values():
        if found:
            require_one_setting([spec_of(record) for record in found])
    complete = {(wanted, rule): _by_seed(found, rule, "complete") for wanted, found in by_row.items() for rule in rules}
    seeds = _share_seeds([set(runs) for runs in complete.values() if runs])
    styles = rule_looks(rules, labels={spec_of(r).rule: r.facts.rule.label for r in plain})
    others = sorted(set().union(*complete.values()) - set(seeds))
    notes = [f"Left out, as not every rule and net has it: {name_all('seed', others)}."] if others else []
    chosen = []
    for wanted, found in by_row.items():
        groups = tuple(_make_group(rule, styles[rule], found, seeds) for rule in rules)
        drawn = [record for group in groups for record in group.records]
        shared = set.intersection(*({s.epoch for s in record.snapshots} for record in drawn)) if drawn else set()
        chosen.append(Row(wanted, groups, tuple(sorted(shared))))
        notes += _notes(chosen[-1], found, seeds, quantities)
    return Trajectories(tuple(chosen), styles, seeds, tuple(notes))


def _is_plain(record: Record, rules: Sequence[str]) -> bool:
    spec = record.spec
    if spec is None or spec.rule not in rules or not record.snapshots:
        return False
    changed = spec.frozen or spec.penalty or spec.train_last != -1 or spec.targets != "true"
    return not (changed or spec.credit_norm != "none" or record.facts.rule.variant)


def _by_seed(records: Sequence[Record], rule: str, status: str) -> dict[int, Record]:
    of_rule = [r for r in records if spec_of(r).rule == rule and r.provenance.status == status]
    return {spec_of(r).seed: r for r in of_rule}


def _share_seeds(held: Sequence[set[int]]) -> tuple[int, ...]:
    """Seeds that all have; if there is none, those that most have."""
    counts = {seed: sum(seed in seeds for seeds in held) for seed in set().union(*held)}
    return tuple(sorted(seed for seed, count in counts.items() if count == max(counts.values())))


def _make_group(rule: str, style: Look, found: Sequence[Record], seeds: Sequence[int]) -> Group:
    runs, diverged = _by_seed(found, rule, "complete"), _by_seed(found, rule, "diverged")
    kept = tuple(runs[seed] for seed in seeds if seed in runs)
    statuses = {r.provenance.status for r in found if spec_of(r).rule == rule}
    gap = "not on the shared seeds" if runs else " or ".join(sorted(statuses)) or "not on record"
    return Group(rule, style, kept, tuple(diverged[seed] for seed in sorted(diverged)), "" if kept else gap)


def _notes(row: Row, found: Sequence[Record], seeds: Sequence[int], quantities: Sequence[Quantity]) -> list[str]:
    """What is missing, unfinished, diverged or left out in one net."""
    title = row.wanted.title
    if not found:
        return [f"{title}: not on record."]
    notes = []
    for group in row.groups:
        own, runs = f"{title}, {group.style.label}", _by_seed(found, group.rule, "complete")
        diverged = [spec_of(record).seed for record in group.diverged]
        unfinished = sorted(_by_seed(found, group.rule, "running"))
        if not (runs or diverged or unfinished):
            notes.append(f"{own}: not on record.")
            continue
        lacking = [seed for seed in seeds if seed not in (*runs, *diverged, *unfinished)]
        notes += [f"{own}: {name_all('seed', lacking)} not on record."] if lacking else []
        notes += [f"{own}: {name_all('seed', unfinished)} unfinished, left out."] if unfinished else []
        notes += [f"{own}: {_say_diverged(record)}." for record in group.diverged]
        for quantity in quantities:
            values = group.values(quantity, row.epochs)
            lost, above = int(np.isnan(values).sum()), " above 0" if quantity.log else ""
            notes += [f"{own}: no {quantity.symbol(row.facts)}{above} at {lost} of {values.size} points."] * (lost > 0)
    return notes


def _say_diverged(record: Record) -> str:
    epoch = record.provenance.diverged_epoch
    when = "" if epoch is None else f" in epoch {epoch}"
    return f"seed {spec_of(record).seed} diverged{when}, drawn to its last snapshot and in no mean"
