"""The runs behind figure `bottleneck_controls`: per depth a row for each control, and which removes the collapse.

What "removes" means is defined here and nowhere else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from creditscope.auditing.stats import Interval, t_bounds, t_interval
from creditscope.errors import CreditscopeError
from creditscope.paper.figures._depths import decay_ratios
from creditscope.paper.studies.bottleneck_controls import BASELINE, CONTROLS, FIELDS, NET, Control
from creditscope.record import Facts, Record, RunSpec
from creditscope.record.pick import Cell, Picked, pick

MARGIN = 0.05
"""Accuracy over the majority class, and over the runs compared with, that counts as learning: 5 pp."""
CONFIDENCE = 0.95
"""Of the one-sided lower bounds over seeds that must be above it."""
UNTRAINED = Control("untrained net", "")
FREE = (*FIELDS, *(f"net_options.{name}" for name in NET), "task_options.normalisation")
"""What controls change."""
ControlAnswer = Literal["learns", "zeros gone", "fails", "undecided", "not judged", ""]
"""Of a control: learning returns; it does not, but the zeros go; neither; seeds disagree; what it is held against has
not collapsed in every seed; no answer (no runs, or a row that others are held against)."""


@dataclass(frozen=True)
class ControlRow:
    """One control at one depth, over seeds: at the end, of the untrained net at the start."""

    control: Control
    cell: Cell
    answer: ControlAnswer = ""

    def values(self, quantity: str) -> np.ndarray:
        """(seeds,) or (seeds, layers); NaN where it was not measured."""
        return self.cell.values(quantity, untrained=self.control is UNTRAINED)

    def accuracies(self) -> dict[int, float]:
        """By seed, where measured."""
        return self.cell.by_seed("accuracy", untrained=self.control is UNTRAINED)

    def accuracy(self) -> Interval | None:
        """Mean and 95 % t interval over seeds."""
        values = list(self.accuracies().values())
        return t_interval(values) if values else None

    def count_collapsed(self, majority: float) -> tuple[int, int]:
        """Seeds not above the majority class by the margin (a net with one answer cannot be), and all seeds."""
        values = self.accuracies().values()
        return sum(value <= majority + MARGIN for value in values), len(values)

    def zero_norms(self) -> tuple[int, int]:
        """Weight gradients whose plain float32 norm is 0, of all layers and seeds."""
        norms = self.values("weights.exact_float32")
        return int((norms == 0).sum()), int((~np.isnan(norms)).sum())

    def all_zero(self) -> tuple[int, int]:
        """Weight gradients of which every element is 0, of all layers and seeds."""
        flags = self.values("weights.exact_all_zero")
        return int((flags > 0).sum()), int((~np.isnan(flags)).sum())

    def output_error(self) -> float:
        """‖∂L/∂Z_out‖_F, median over seeds."""
        return _median(self.values("layers.z_grad")[..., -1:])

    def probe(self) -> float:
        """Probe accuracy, median over the middle layers H_1..H_{L−1} and seeds."""
        return _median(self.values("layers.probe")[..., 1:-1])

    def dispersion(self) -> float:
        """Dispersion over RMS of the last hidden layer: 0 if all nodes are alike; median over seeds."""
        spread, size = (self.values(f"layers.{name}")[..., -2:-1] for name in ("dispersion", "rms"))
        return _median(spread / np.where(size > 0, size, np.nan))

    def decay_ratio(self) -> float:
        """Decay term over data gradient before training, median over layers and seeds; NaN if it is no part of it."""
        return _median(decay_ratios(self.cell)) if self.cell else np.nan


def _median(values: np.ndarray) -> float:
    """Of the values there are; NaN if there is none."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else np.nan


@dataclass(frozen=True)
class Block:
    """All rows of one depth, the baseline first."""

    depth: int
    rows: tuple[ControlRow, ...]
    facts: Facts
    majority: float
    """Accuracy of the best constant answer."""


@dataclass(frozen=True)
class Controls:
    """The depths at which the baseline has a complete run, and all cells with their gaps."""

    blocks: tuple[Block, ...]
    picked: Picked


def select_controls(records: Sequence[Record]) -> Controls:
    """Every run of a known control; refuses runs that differ in more than what the controls change."""
    axes = {"depth": "net_options.depth", "control": control_name}
    found = pick(records, vary=axes, where={"net": "gcn", "rule": "bp"}, free=FREE)
    depths = found.along("depth")
    blocks = [_judge_depth(found, depth) for depth in depths if found[depth, BASELINE.name]]
    if not blocks:
        raise CreditscopeError(
            f"Expected a complete run of the {BASELINE.name}, which controls are compared with, but got none among "
            f"{len(records)} records. creditscope figure bottleneck_controls trains them."
        )
    cells = {(depth, control.name): found[depth, control.name] for depth in depths for control in CONTROLS}
    cells |= {row.cell.key: row.cell for block in blocks for row in block.rows}
    return Controls(tuple(blocks), Picked(found.axes, cells, found.seeds))


def control_name(spec: RunSpec) -> str | None:
    """Of the control that a run of BP belongs to."""
    return next((control.name for control in CONTROLS if control.holds(spec)), None)


def _judge_depth(found: Picked, depth: int) -> Block:
    """The rows of one depth with their answers, and the untrained net below the baseline."""
    rows = {control.name: ControlRow(control, found[depth, control.name]) for control in CONTROLS}
    baseline = rows.pop(BASELINE.name)
    facts = baseline.cell.first.facts
    early = {seed: r for seed, r in baseline.cell.runs.items() if r.snapshots[0].epoch == 0}
    late = dict.fromkeys(baseline.cell.runs.keys() - early, "not measured before training")
    untrained = ControlRow(UNTRAINED, Cell((depth, UNTRAINED.name), early, {**baseline.cell.lost, **late}, {}))
    majority, judged = facts.best_constant or 0.0, []
    for row in rows.values():
        reference = rows[row.control.against.name] if row.control.against else baseline
        judged.append(replace(row, answer=judge(row, reference, majority=majority)))
    return Block(depth, (baseline, untrained, *judged), facts, majority)


def judge(row: ControlRow, reference: ControlRow, *, majority: float) -> ControlAnswer:
    """Whether the control removes the collapse of the reference.

    Learns: the lower bounds of its accuracy over the majority class, and of its paired gain over the reference, are
    above the margin. Fails: no seed is above the majority class by the margin; zeros gone if, unlike the reference, no
    norm of it is zero.
    """
    own, others = row.accuracies(), reference.accuracies()
    if not own or not others:
        return ""
    (collapsed, seeds), (before, of) = (each.count_collapsed(majority) for each in (row, reference))
    if before < of:
        return "not judged"
    if collapsed == seeds:
        return "zeros gone" if reference.zero_norms()[0] and not row.zero_norms()[0] else "fails"
    gains = [own[seed] - others[seed] for seed in own if seed in others]
    if len(gains) < 2:  # one seed has no bound
        return "undecided"
    bounds = [t_bounds(values, confidence=CONFIDENCE)[0] for values in ([a - majority for a in own.values()], gains)]
    return "learns" if all(low > MARGIN for low in bounds) else "undecided"
