"""The runs behind figure `bottleneck_controls`: per depth a row for each control, and which removes the collapse.

What "removes" means is defined here and nowhere else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from creditscope.auditing.stats import Interval, t_bounds, t_interval
from creditscope.errors import CreditscopeError
from creditscope.paper.figures._measures import count_all_zero, count_zero_norms, decay_ratio
from creditscope.paper.figures._selection import require_one_setting
from creditscope.paper.figures._stats import median
from creditscope.paper.studies.bottleneck_controls import BASELINE, CONTROLS, FIELDS, NET, Control
from creditscope.record import Facts, Record, RunSpec, Snapshot
from creditscope.record.spec import MEASURING_FIELDS
from creditscope.record.table import richest
from creditscope.text import count

MARGIN = 0.05
"""Accuracy over the majority class, and over the runs compared with, that counts as learning: 5 pp."""
CONFIDENCE = 0.95
"""Of the one-sided lower bounds over seeds that must be above it."""
UNTRAINED = Control("untrained net", "")
FREE = (*FIELDS, "seed", "net_options", "task_options", *MEASURING_FIELDS)
Answer = Literal["learns", "zeros gone", "fails", "undecided", "not judged", ""]
"""Of a control: learning returns; it does not, but the zeros go; neither; seeds disagree; what it is held against has
not collapsed in every seed; no answer (no runs, or a row that others are held against)."""


@dataclass
class Row:
    """One control at one depth, over seeds."""

    control: Control
    runs: dict[int, Record] = field(default_factory=dict)
    diverged: list[int] = field(default_factory=list)
    answer: Answer = ""

    def moments(self) -> list[Snapshot]:
        """The last snapshots by seed; of the untrained net the first."""
        place = 0 if self.control is UNTRAINED else -1
        return [self.runs[seed].snapshots[place] for seed in sorted(self.runs)]

    def accuracies(self) -> dict[int, float]:
        """By seed, where measured."""
        found = {seed: s.accuracy for seed, s in zip(sorted(self.runs), self.moments(), strict=True)}
        return {seed: float(value) for seed, value in found.items() if value is not None}

    def accuracy(self) -> Interval | None:
        """Mean and 95 % t interval over seeds."""
        values = list(self.accuracies().values())
        return t_interval(values) if values else None

    def zero_norms(self) -> tuple[int, int]:
        """Weight gradients whose plain float32 norm is 0, of all layers and seeds."""
        return count_zero_norms(self.moments())

    def all_zero(self) -> tuple[int, int]:
        """Weight gradients of which every element is 0, of all layers and seeds."""
        return count_all_zero(self.moments())

    def output_error(self) -> float:
        """‖∂L/∂Z_out‖_F, median over seeds."""
        return median(s.layers.z_grad[-1] for s in self.moments() if s.layers)

    def probe(self) -> float:
        """Probe accuracy, median over the middle layers H_1..H_{L−1} and seeds."""
        return median(value for s in self.moments() if s.layers for value in s.layers.probe[1:-1])

    def dispersion(self) -> float:
        """Dispersion over RMS of the last hidden layer: 0 if all nodes are alike; median over seeds."""

        def share(s: Snapshot) -> float | None:
            spread, size = (s.layers.dispersion[-2], s.layers.rms[-2]) if s.layers else (None, None)
            return spread / size if size and spread is not None else None

        return median(share(s) for s in self.moments())

    def decay_ratio(self) -> float:
        """Decay term over data gradient before training, median over layers and seeds; NaN if it is no part of it."""
        return decay_ratio(list(self.runs.values()))


@dataclass(frozen=True)
class Block:
    """All rows of one depth."""

    depth: int
    rows: tuple[Row, ...]
    facts: Facts

    @property
    def baseline(self) -> Row:
        """The row the others are compared with."""
        return self.rows[0]

    @property
    def majority(self) -> float:
        """Accuracy of the best constant answer."""
        return self.facts.best_constant or 0.0


@dataclass(frozen=True)
class Controls:
    """All depths; `notes` say what is missing."""

    blocks: tuple[Block, ...]
    seeds: tuple[int, ...]
    spec: RunSpec
    notes: tuple[str, ...]


def select_controls(records: Sequence[Record]) -> Controls:
    """Every run of a known control; refuses runs that differ in more than what the controls change."""
    wanted = [(r.spec, c, r) for r in richest(records) if r.spec and (c := control_of(r.spec)) is not None]
    if not any(control is BASELINE for _, control, _ in wanted):
        raise CreditscopeError(
            f"Expected records of deep GCNs under the controls, the baseline among them, but got {len(wanted)} such "
            f"among {len(records)} records. creditscope figure bottleneck_controls trains them."
        )
    specs = [spec for spec, _, _ in wanted]
    require_one_setting(specs, free=FREE, variants=())
    for what, values in (
        ("nets of one size", {str({**s.net_options, "depth": None, **dict.fromkeys(NET)}) for s in specs}),
        ("one graph but for its normalisation", {str({**s.task_options, "normalisation": None}) for s in specs}),
    ):
        if len(values) > 1:
            raise CreditscopeError(f"Expected {what}, but got {' and '.join(sorted(values))}.")
    rows: dict[int, dict[str, Row]] = {}
    for spec, control, record in wanted:
        at = rows.setdefault(int(spec.net_options["depth"]), {c.name: Row(c) for c in CONTROLS})
        if record.provenance.status == "complete":
            at[control.name].runs[spec.seed] = record
        elif record.provenance.status == "diverged":
            at[control.name].diverged.append(spec.seed)
    blocks = tuple(
        _block(depth, list(rows[depth].values())) for depth in sorted(rows) if rows[depth][BASELINE.name].runs
    )
    if not blocks:
        raise CreditscopeError(
            "Expected a complete run of the baseline, but got diverged or unfinished ones only. Train others."
        )
    seeds = tuple(sorted({spec.seed for spec in specs}))
    baseline = next(spec for spec, control, _ in wanted if control is BASELINE)
    dropped = [depth for depth in sorted(rows) if depth not in {block.depth for block in blocks}]
    notes = [f"L\u00a0=\u00a0{depth}: left out, no complete run of the baseline." for depth in dropped]
    return Controls(blocks, seeds, baseline, (*notes, *_notes(blocks, seeds)))


def control_of(spec: RunSpec) -> Control | None:
    """The control that a run belongs to."""
    if spec.net != "gcn" or spec.rule != "bp" or spec.frozen or spec.train_last != -1:
        return None
    return next((control for control in CONTROLS if control.holds(spec)), None)


def _block(depth: int, rows: list[Row]) -> Block:
    """The rows of one depth with their answers, and the untrained net below the baseline."""
    baseline = rows[0]
    untrained = Row(UNTRAINED, {seed: r for seed, r in baseline.runs.items() if r.snapshots[0].epoch == 0})
    facts = next(iter(baseline.runs.values())).facts
    by_name = {row.control.name: row for row in rows}
    for row in rows[1:]:
        reference = by_name[row.control.against.name] if row.control.against else baseline
        row.answer = judge(row, reference, majority=facts.best_constant or 0.0)
    return Block(depth, (baseline, untrained, *rows[1:]), facts)


def count_collapsed(row: Row, majority: float) -> tuple[int, int]:
    """Seeds that are not above the majority class by the margin (a net with one answer cannot be), and all seeds."""
    values = row.accuracies().values()
    return sum(value <= majority + MARGIN for value in values), len(values)


def collapsed(row: Row, majority: float) -> bool:
    """Whether every seed has."""
    count, seeds = count_collapsed(row, majority)
    return seeds > 0 and count == seeds


def judge(row: Row, reference: Row, *, majority: float) -> Answer:
    """Whether the control removes the collapse of the reference.

    Learns: the lower bounds of its accuracy over the majority class, and of its paired gain over the reference, are
    above the margin. Fails: no seed is above the majority class by the margin; zeros gone if, unlike the reference, no
    norm of it is zero.
    """
    own, others = row.accuracies(), reference.accuracies()
    if not own or not others:
        return ""
    if not collapsed(reference, majority):
        return "not judged"
    if collapsed(row, majority):
        return "zeros gone" if reference.zero_norms()[0] and not row.zero_norms()[0] else "fails"
    gains = [own[seed] - others[seed] for seed in own if seed in others]
    if len(gains) < 2:  # one seed has no bound
        return "undecided"
    bounds = [t_bounds(values, confidence=CONFIDENCE)[0] for values in ([a - majority for a in own.values()], gains)]
    return "learns" if all(low > MARGIN for low in bounds) else "undecided"


def _notes(blocks: Sequence[Block], seeds: Sequence[int]) -> list[str]:
    notes = []
    for block in blocks:
        for row in block.rows:
            absent = len(seeds) - len(row.runs) - len(row.diverged)
            for runs, what in ((len(row.diverged), "diverged"), (absent, "not on record")):
                who = f"L\u00a0=\u00a0{block.depth}, {row.control.name}"
                notes += [f"{who}: {count(runs, 'run')} {what}."] if runs else []
    return notes
