"""Runs of one net at several depths, measured layer by layer, and the numbers that figures draw of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from creditscope.errors import CreditscopeError
from creditscope.figures._selection import plural, require_one_setting, spec_of
from creditscope.figures._style import GREY, INK, SMALL
from creditscope.record import Facts, LayerMeasures, Record, RunSpec, Snapshot
from creditscope.record.view import richest
from creditscope.studies.bp_bottleneck import DEPTHS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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

    def weights(self, name: str, *, untrained: bool = False) -> np.ndarray:
        """A measure of each layer's weight, (seeds, layers); NaN where a layer is not trained."""
        return self._each(lambda snapshot: self._by_stage(snapshot, name), untrained=untrained)

    def accuracy(self) -> np.ndarray:
        """Test accuracy, (seeds,)."""
        return np.array([r.last.accuracy for r in self.records], dtype=float)

    def _each(self, read: Callable[[Snapshot], Sequence], *, untrained: bool) -> np.ndarray:
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
            return f"{numbers[0]} seed{'s' * (numbers[0] > 1)}"
        return ", ".join(f"{len(group.records)} seeds at {group.label}" for group in self.drawn)


def select_depths(records: Sequence[Record], *, depths: Sequence[int] | None = None) -> Depths:
    """The complete runs by depth. `depths` that have none are gaps; by default those of the study are expected."""
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
    wanted = depths or (DEPTHS if set(by_depth) <= set(DEPTHS) else ())
    found = sorted({*by_depth, *wanted})
    seeds = sorted({seed for runs in by_depth.values() for seed in runs})
    groups = []
    looks = zip(islice(cycle(COLOURS), len(found)), islice(cycle(MARKERS), len(found)), strict=True)
    for depth, (colour, marker) in zip(found, looks, strict=True):
        runs = by_depth.get(depth, {})
        lacking = [seed for seed in seeds if seed not in runs]
        if lacking:
            notes.append(f"L = {depth}: {plural('seed', lacking)} not on record." if runs else f"L = {depth}: no run.")
        groups.append(DepthGroup(depth, colour, marker, tuple(runs[seed] for seed in sorted(runs))))
    return Depths(tuple(groups), tuple(notes))


def quartiles(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower quartile, median and upper quartile over seeds (the first axis) of the values there are."""
    found = np.full((3, values.shape[1]), np.nan)
    for i, column in enumerate(values.T):
        known = column[~np.isnan(column)]
        if len(known):
            found[:, i] = np.quantile(known, (0.25, 0.5, 0.75))
    return found[0], found[1], found[2]


@dataclass(frozen=True)
class LogScale:
    """A log axis with room under the data for zeros: the lowest floor, a higher one for a second kind, and the ends."""

    floor: float
    second: float
    low: float
    high: float

    @classmethod
    def of(cls, *values: np.ndarray, zeros: bool, second: bool = False) -> "LogScale":
        """For the values above 0; floors lie a tenth of their span apart."""
        positive = np.concatenate([v[np.isfinite(v) & (v > 0)] for v in values])
        least, most = (float(positive.min()), float(positive.max())) if len(positive) else (1.0, 1.0)
        room = 10 ** max(0.11 * math.log10(most / least), 0.35)
        upper = least / room
        floor = upper / room**1.3 if second else upper
        low = floor / room if zeros else upper / room if second else least / room**0.5
        return cls(floor, upper, low, most * room**0.7)

    def ticks(self, most: int = 6) -> list[float]:
        """Powers of ten above the floors, evenly spaced, at most so many."""
        lowest = math.ceil(math.log10(max(self.low, self.second)))
        highest = math.floor(math.log10(self.high))
        step = next(s for s in (1, 2, 5, 10, 20, 50, 100) if highest // s - -(-lowest // s) < most)
        return [10.0**e for e in range(-(-lowest // step) * step, highest + 1, step)]


def draw_log_axis(ax: "Axes", scale: LogScale) -> None:
    """Limits and ticks."""
    ax.set(yscale="log", ylim=(scale.low, scale.high))
    ax.set_yticks(scale.ticks())
    ax.minorticks_off()


def draw_floor(ax: "Axes", y: float, said: str, *, x: float = 1.0) -> None:
    """The line that zeros are drawn on, with what it means under it, up to (1) or from (0) a side."""
    ax.axhline(y, color=GREY, lw=0.7, ls="--", zorder=1, gid=said)
    where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "top"}
    side: dict[str, Any] = {"ha": "right", "xytext": (0, -3)} if x else {"ha": "left", "xytext": (3, -3)}
    ax.annotate(said, (x, y), size=SMALL, color=INK, **where, **side)


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
