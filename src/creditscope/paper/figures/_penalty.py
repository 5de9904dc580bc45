"""The runs behind figure `penalty_rescue`: DFA and BP with and without a penalty, on the seeds they share."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from creditscope.errors import CreditscopeError
from creditscope.paper.early import EARLY_UNTIL, Early, find_early
from creditscope.paper.figures._selection import require_one_setting
from creditscope.paper.studies.penalty_rescue import STRONG, WEAK
from creditscope.record import Record, RunSpec, Snapshot
from creditscope.record.spec import MEASURING_FIELDS
from creditscope.record.table import richness
from creditscope.text import name_all, power

FREE = ("rule", "seed", "frozen", "penalty", "credit_norm", "rule_options", "rule_source", *MEASURING_FIELDS)
DEEP = 2
"""The first of the deep taps, which go up to L."""


@dataclass(frozen=True)
class Kind:
    """One of the study's conditions."""

    rule: str
    label: str
    penalty: float = 0.0
    frozen: bool = False
    early: bool = False
    """The run measured in full over its first epochs."""


KINDS = {
    "dfa": Kind("dfa", "DFA"),
    "early": Kind("dfa", "early DFA", early=True),
    "weak": Kind("dfa", f"DFA with λ\u00a0=\u00a0{power(WEAK)}", WEAK),
    "strong": Kind("dfa", f"DFA with λ\u00a0=\u00a0{power(STRONG)}", STRONG),
    "bp": Kind("bp", "plain BP"),
    "bp strong": Kind("bp", f"BP with λ\u00a0=\u00a0{power(STRONG)}", STRONG),
    "frozen dfa": Kind("dfa", "frozen blocks, stem by DFA", frozen=True),
    "frozen bp": Kind("bp", "frozen blocks, stem by BP", frozen=True),
}


@dataclass(frozen=True)
class Rescue:
    """Runs by condition, each in the order of `seeds`; `gaps` say why one has none, `notes` what was left out."""

    runs: dict[str, tuple[Record, ...]]
    gaps: dict[str, str]
    seeds: tuple[int, ...]
    credit_norm: str
    notes: tuple[str, ...]

    @property
    def first(self) -> Record:
        """One of them: setting and shapes are shared."""
        return next(records[0] for records in self.runs.values() if records)

    @property
    def last_tap(self) -> int:
        """L."""
        return len(self.first.facts.taps) - 1

    def label(self, key: str) -> str:
        """In words, with why it is a gap."""
        return KINDS[key].label + (f": {self.gaps[key]}" if key in self.gaps else "")

    def accuracy(self, key: str) -> np.ndarray:
        """At the end, by seed; NaN where it was not measured."""
        return np.array([record.last.accuracy for record in self.runs[key]], dtype=float)

    @cached_property
    def early(self) -> tuple[Early, ...]:
        """Where DFA is read, by seed."""
        return tuple(map(find_early, self.runs["early"]))

    def moments(self, key: str) -> list[Snapshot]:
        """The snapshots a condition is read at, by seed: the early ones, or the last."""
        return [one.snapshot for one in self.early] if key == "early" else [r.last for r in self.runs[key]]

    def trajectory(self, key: str, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Epochs that all seeds share, and a measure at tap L, (seeds, epochs); NaN where it was not measured."""
        found = [{s.epoch: getattr(s.taps, name)[-1] for s in record.snapshots} for record in self.runs[key]]
        epochs = sorted(set.intersection(*map(set, found))) if found else []
        return np.array(epochs), np.array([[run[epoch] for epoch in epochs] for run in found], dtype=float)


def select_rescue(records: Sequence[Record], *, credit_norm: str = "none") -> Rescue:
    """The study's conditions under one normalisation of credit; refuses runs that differ in anything else."""
    wanted = [(r.spec, r) for r in records if r.spec and _keys(r.spec, credit_norm)]
    if not any(spec.rule == "dfa" for spec, _ in wanted):
        norms = sorted({r.spec.credit_norm for r in records if r.spec and r.spec.rule == "dfa"})
        held = name_all("credit norm", norms) if norms else "none of dfa"
        raise CreditscopeError(
            f"Expected records of dfa with credit norm {credit_norm}, but got {held} among {len(records)} records. "
            "creditscope figure penalty_rescue trains them."
        )
    require_one_setting([spec for spec, _ in wanted], free=FREE, variants=("rule_options", "rule_source"))
    if len(wanted[0][1].facts.taps) <= DEEP:
        raise CreditscopeError("Expected a net of at least two blocks, for the deep taps 2..L, but got one.")
    usable, gaps, notes = _sort(wanted, credit_norm)
    seeds = _share_seeds(usable, gaps)
    left_out = sorted({seed for runs in usable.values() for seed in runs} - set(seeds))
    notes += [f"Left out, as not every condition has it: {name_all('seed', left_out)}."] if left_out else []
    runs = {key: () if key in gaps else tuple(usable[key][seed] for seed in seeds) for key in KINDS}
    notes += [f"{KINDS[key].label}: {gap}." for key, gap in gaps.items()]
    return Rescue(runs, gaps, seeds, credit_norm, tuple(notes))


def _keys(spec: RunSpec, credit_norm: str) -> list[str]:
    """The conditions that a run may stand for."""
    if spec.train_last != -1 or spec.credit_norm != (credit_norm if spec.rule == "dfa" else "none"):
        return []
    asked = spec.rule, spec.penalty, spec.frozen
    return [
        key
        for key, kind in KINDS.items()
        if asked == (kind.rule, kind.penalty, kind.frozen) and (spec.tier == "full" or not kind.early)
    ]


def _sort(
    wanted: Sequence[tuple[RunSpec, Record]], credit_norm: str
) -> tuple[dict[str, dict[int, Record]], dict[str, str], list[str]]:
    """Complete runs by condition and seed, the conditions without any, and what diverged."""
    usable: dict[str, dict[int, Record]] = {key: {} for key in KINDS}
    lost: dict[str, dict[int, str]] = {key: {} for key in KINDS}
    for spec, record in wanted:
        for key in _keys(spec, credit_norm):
            if key == "early" and not any(0 < s.epoch <= EARLY_UNTIL for s in record.snapshots):
                continue
            runs = usable[key]
            if record.provenance.status != "complete":
                lost[key][spec.seed] = f"diverged at epoch {record.provenance.diverged_epoch}"
            elif spec.seed not in runs or _worth(key, record) > _worth(key, runs[spec.seed]):
                runs[spec.seed] = record
    gaps = {key: "diverged" if lost[key] else "not on record" for key, runs in usable.items() if not runs}
    notes = [
        f"{KINDS[key].label}, seed {seed}: {how}, left out."
        for key, seeds in lost.items()
        if key != "early"  # the same training as that of DFA
        for seed, how in sorted(seeds.items())
    ]
    return usable, gaps, notes


def _worth(key: str, record: Record) -> tuple:
    """What chooses among the records of one run: most early snapshots, or most later ones."""
    return sum((s.epoch <= EARLY_UNTIL) == KINDS[key].early for s in record.snapshots), richness(record)


def _share_seeds(usable: dict[str, dict[int, Record]], gaps: dict[str, str]) -> tuple[int, ...]:
    """Seeds of all conditions; one that has none in common with those before it becomes a gap."""
    seeds: set[int] = set()
    for key, runs in usable.items():
        shared = seeds & set(runs) if seeds else set(runs)
        if runs and not shared:
            gaps[key] = "no seed that the others have"
        seeds = shared or seeds
    if not seeds:
        raise CreditscopeError(
            "Expected at least one complete run, but got diverged or unfinished ones only. Train others."
        )
    return tuple(sorted(seeds))
