"""Runs of one net at several depths, measured layer by layer, and the numbers that figures draw of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

import numpy as np

from creditscope.errors import CreditscopeError
from creditscope.paper.figures._selection import require_one_setting, spec_of
from creditscope.paper.studies.bp_bottleneck import DEPTHS
from creditscope.record import Facts, LayerMeasures, Record, RunSpec, Snapshot
from creditscope.record.table import richest
from creditscope.text import count, name_all

COLOURS = ("#5b8def", "#cc6677", "#882255")
MARKERS = ("o", "s", "D")


@dataclass(frozen=True)
class DepthGroup:
    """The runs at one depth, one per seed; none at all leaves a gap."""

    depth: int
    colour: str
    marker: str
    records: tuple[Record, ...]

    @property
    def label(self) -> str:
        """As in keys and tables."""
        return f"L = {self.depth}"

    def layers(self, name: str, *, untrained: bool = False) -> np.ndarray:
        """A measure per layer at the end (or before training), (seeds, layers); NaN where there is none."""
        return self._each(lambda snapshot: getattr(_layers(snapshot), name), untrained=untrained)

    def weights(self, name: str) -> np.ndarray:
        """A measure of each layer's weight at the end, (seeds, layers); NaN where a layer is not trained."""
        return self._each(lambda snapshot: self._by_stage(snapshot, name))

    def accuracy(self) -> np.ndarray:
        """Test accuracy, (seeds,)."""
        return np.array([r.last.accuracy for r in self.records], dtype=float)

    def _each(self, read: Callable[[Snapshot], Sequence], *, untrained: bool = False) -> np.ndarray:
        snapshots = [r.snapshots[0] if untrained else r.last for r in self.records]
        rows = [read(snapshot) for snapshot in snapshots]
        length = max(map(len, rows), default=0)
        return np.array([[*row, *[None] * (length - len(row))] for row in rows], dtype=float).reshape(-1, length)

    def _by_stage(self, snapshot: Snapshot, name: str) -> list[float | None]:
        values: list[float | None] = [None] * len(_layers(snapshot).z_grad)
        measured = getattr(snapshot.weights, name) if snapshot.weights else ()
        for weight, value in zip(self.records[0].facts.weights, measured, strict=False):
            values[weight.stage] = value
        return values


@dataclass(frozen=True)
class Depths:
    """All that is drawn; `notes` say what is missing."""

    groups: tuple[DepthGroup, ...]
    notes: tuple[str, ...]

    @property
    def drawn(self) -> list[DepthGroup]:
        """The depths that are no gap."""
        return [group for group in self.groups if group.records]

    @property
    def first(self) -> Record:
        """Any of the runs: all but depth and seed is the same."""
        return self.drawn[0].records[0]

    @property
    def facts(self) -> Facts:
        """Classes, chance and test rows, the same for all."""
        return self.first.facts

    @property
    def spec(self) -> RunSpec:
        """The setting, the same for all but depth and seed."""
        return spec_of(self.first)

    @property
    def counts(self) -> str:
        """How many seeds each depth has, in words."""
        numbers = list(dict.fromkeys(len(group.records) for group in self.drawn))
        if len(numbers) == 1:
            return count(numbers[0], "seed")
        return ", ".join(f"{count(len(group.records), 'seed')} at {group.label}" for group in self.drawn)


def select_depths(records: Sequence[Record]) -> Depths:
    """The complete runs by depth; depths of the study that have none are gaps, unless others than its are there."""
    measured = [r for r in records if r.spec and not r.spec.frozen and _is_measured(r.last)]
    if not measured:
        raise CreditscopeError(
            f"Expected records that were measured layer by layer, those of a GCN, but got none among {len(records)}. "
            "Train them with this version of creditscope."
        )
    measured = richest(measured)
    require_one_setting([_without_depth(spec_of(record)) for record in measured])
    by_depth: dict[int, dict[int, Record]] = {}
    notes = []
    for record in measured:
        spec, status = spec_of(record), record.provenance.status
        if status == "complete":
            by_depth.setdefault(_depth(spec), {})[spec.seed] = record
        else:
            notes.append(f"L = {_depth(spec)}, seed {spec.seed}: {status}, left out.")
    if not by_depth:
        raise CreditscopeError(
            "Expected at least one complete run, but got diverged or unfinished ones only. Train others."
        )
    found = sorted(DEPTHS if set(by_depth) <= set(DEPTHS) else by_depth)
    seeds = sorted({seed for runs in by_depth.values() for seed in runs})
    groups = []
    looks = zip(islice(cycle(COLOURS), len(found)), islice(cycle(MARKERS), len(found)), strict=True)
    for depth, (colour, marker) in zip(found, looks, strict=True):
        runs = by_depth.get(depth, {})
        lacking = [seed for seed in seeds if seed not in runs]
        if lacking:
            which = f"{name_all('seed', lacking)} not on record" if runs else "no run"
            notes.append(f"L = {depth}: {which}.")
        groups.append(DepthGroup(depth, colour, marker, tuple(runs[seed] for seed in sorted(runs))))
    return Depths(tuple(groups), tuple(notes))


def _is_measured(snapshot: Snapshot) -> bool:
    """Whether it has all that is drawn: states, probes, and weight gradients with their float32 norms."""
    layers, weights = snapshot.layers, snapshot.weights
    return bool(layers and layers.probe and weights and weights.exact_float32)


def _layers(snapshot: Snapshot) -> LayerMeasures:
    assert snapshot.layers is not None  # select_depths takes no others
    return snapshot.layers


def _depth(spec: RunSpec) -> int:
    return int(spec.net_options.get("depth", 0))


def _without_depth(spec: RunSpec) -> RunSpec:
    return replace(spec, net_options={name: v for name, v in spec.net_options.items() if name != "depth"})
