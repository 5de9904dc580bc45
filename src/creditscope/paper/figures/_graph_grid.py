"""The runs behind figure `graph_depth`: methods at depths on graphs, over seeds, and paired differences of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from creditscope.auditing.depth import paired_interval
from creditscope.auditing.stats import Interval, t_interval
from creditscope.errors import CreditscopeError
from creditscope.paper.figures._selection import require_one_setting
from creditscope.paper.studies.graph_depth import BP_VARIANTS, METHODS, RULES, SQRT2, Method, method_of
from creditscope.record import Facts, Record, RunSpec
from creditscope.record.spec import MEASURING_FIELDS
from creditscope.record.table import richest
from creditscope.text import count

FREE = ("task", "task_options", "data_version", "net_options", "rule", "rule_options", "rule_source", "seed")
NAMES = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed", "sbm": "SBM"}
"""How graphs are called, and their order from left to right; others follow under the names of their tasks."""
Values = dict[int, float]
"""A number by seed."""


@dataclass
class Cell:
    """The runs of one method at one depth on one graph."""

    runs: dict[int, Record] = field(default_factory=dict)
    diverged: list[int] = field(default_factory=list)

    def values(self, name: str) -> Values:
        """A measure of the last snapshots by seed, without those that lack it."""
        found = {seed: getattr(record.last, name) for seed, record in sorted(self.runs.items())}
        return {seed: float(value) for seed, value in found.items() if value is not None}

    def points(self) -> Values:
        """Accuracy in percent, by seed."""
        return {seed: 100 * value for seed, value in self.values("accuracy").items()}

    def interval(self, name: str = "accuracy") -> Interval | None:
        """Mean and 95 % t interval over seeds; None if there is no value."""
        values = list(self.values(name).values())
        return t_interval(values) if values else None


@dataclass(frozen=True)
class Grid:
    """All cells; `notes` say what is missing."""

    tasks: tuple[str, ...]
    depths: tuple[int, ...]
    seeds: tuple[int, ...]
    cells: dict[tuple[str, int, Method], Cell]
    labels: dict[str, str]
    spec: RunSpec
    notes: tuple[str, ...] = ()

    def cell(self, task: str, depth: int, method: Method) -> Cell:
        """The runs there, maybe none."""
        return self.cells.get((task, depth, method), Cell())

    def difference(self, task: str, depth: int, method: Method, other: Method) -> Interval | None:
        """Of accuracies in pp, paired over the seeds both have; None if they share none."""
        return paired_interval(*(self.cell(task, depth, m).points() for m in (method, other)))

    def best(self, task: str, depth: int, methods: Sequence[Method] = BP_VARIANTS) -> Method | None:
        """The method with the highest mean accuracy there."""
        found = {m: self.cell(task, depth, m).interval() for m in methods}
        means = {m: interval.mean for m, interval in found.items() if interval}
        return max(means, key=means.__getitem__) if means else None

    def with_runs(self, methods: Sequence[Method]) -> list[Method]:
        """Those that have an accuracy at some depth on some graph."""
        known = {method for (_, _, method), cell in self.cells.items() if cell.interval()}
        return [method for method in methods if method in known]

    def facts(self, task: str) -> Facts | None:
        """Chance and majority class of a graph."""
        return next((r.facts for (t, _, _), c in self.cells.items() if t == task for r in c.runs.values()), None)

    def lost(self, task: str, depth: int, methods: Sequence[Method]) -> tuple[int, int]:
        """How many runs diverged there, and how many are not on record or not complete."""
        cells = [self.cell(task, depth, method) for method in methods]
        diverged = sum(len(cell.diverged) for cell in cells)
        return diverged, len(cells) * len(self.seeds) - diverged - sum(len(cell.runs) for cell in cells)

    def name(self, method: Method) -> str:
        """In words."""
        return describe(method, self.labels.get(method.rule, method.rule))


def describe(method: Method, rule: str) -> str:
    """A method in words, by what differs from the recipe.

    >>> describe(Method("bp", gain=2.0, decay=False), "BP")
    'BP, gain 2, no decay'
    """
    return ", ".join([rule, *changes(method)])


def changes(method: Method) -> list[str]:
    """What a method changes of the recipe."""
    gain = [] if method.gain == 1 else [f"gain {gain_word(method.gain)}"]
    return gain + ["residual"] * method.residual + ["no decay"] * (not method.decay)


def gain_word(gain: float) -> str:
    """1, √2, 2."""
    return "√2" if np.isclose(gain, SQRT2) else f"{gain:g}"


def graph_name(task: str) -> str:
    """As it is written.

    >>> graph_name("citeseer"), graph_name("mine")
    ('CiteSeer', 'mine')
    """
    return NAMES.get(task, task)


def select_grid(records: Sequence[Record]) -> Grid:
    """Every run of a known method; refuses runs that differ in more than what the figure varies."""
    wanted = [(r.spec, r) for r in richest(records) if r.spec and method_of(r.spec) in METHODS]
    wanted = [(spec, r) for spec, r in wanted if spec.net == "gcn" and not spec.frozen]
    if not wanted:
        raise CreditscopeError(
            f"Expected records of GCNs by rule and depth, but got none among {len(records)} records. "
            "creditscope figure graph_depth trains them."
        )
    _check([spec for spec, _ in wanted])
    cells: dict[tuple[str, int, Method], Cell] = {}
    for spec, record in wanted:
        cell = cells.setdefault((spec.task, int(spec.net_options["depth"]), method_of(spec)), Cell())
        if record.provenance.status == "complete":
            cell.runs[spec.seed] = record
        elif record.provenance.status == "diverged":
            cell.diverged.append(spec.seed)
    depths = tuple(sorted({depth for _, depth, _ in cells}))
    seeds = tuple(sorted({spec.seed for spec, _ in wanted}))
    labels = {spec.rule: record.facts.rule.label for spec, record in wanted}
    found = {spec.task for spec, _ in wanted}
    tasks = tuple(task for task in NAMES if task in found) + tuple(sorted(found - set(NAMES)))
    spec = max((spec for spec, _ in wanted), key=lambda spec: spec.weight_decay)
    grid = Grid(tasks, depths, seeds, cells, labels, spec)
    return replace(grid, notes=tuple(_notes(grid)))


def _check(specs: Sequence[RunSpec]) -> None:
    """One recipe, one net but for what a method and a depth change, one decay where there is one."""
    require_one_setting(
        specs, free=(*FREE, "weight_decay", *MEASURING_FIELDS), variants=("rule_options", "rule_source")
    )
    varied = {"depth": None, "gain": None, "residual": None}
    for what, values in (
        ("nets that differ in depth, gain and residual only", {str({**s.net_options, **varied}) for s in specs}),
        ("one weight decay beside none", {s.weight_decay for s in specs if s.weight_decay}),
    ):
        if len(values) > 1:
            raise CreditscopeError(f"Expected {what}, but got {' and '.join(sorted(map(str, values)))}.")
    for task in dict.fromkeys(s.task for s in specs):
        if len({str(s.task_options) for s in specs if s.task == task}) > 1:
            raise CreditscopeError(f"Expected one version of the graph {task!r}, but got several task options.")


def _notes(grid: Grid) -> list[str]:
    """Runs that are not on record and rules' Γ that has no value, by graph; the captions count what diverged."""
    notes = []
    for task in grid.tasks:
        missing = sum(grid.lost(task, depth, METHODS)[1] for depth in grid.depths)
        cells = [grid.cell(task, depth, rule) for depth in grid.depths for rule in RULES]
        bare = sum(len(cell.runs) - len(cell.values("gamma")) for cell in cells)
        counts = {"not on record or not complete": missing, "without Γ": bare}
        said = [f"{count(runs, 'run')} {how}" for how, runs in counts.items() if runs]
        absent = [m for m in METHODS if not any((task, depth, m) in grid.cells for depth in grid.depths)]
        if absent:
            said.append(f"nothing of {', '.join(map(grid.name, absent))}")
        notes += [f"{graph_name(task)}: {'; '.join(said)}."] if said else []
    return notes


def list_depths(depths: Sequence[int]) -> str:
    """In words.

    >>> list_depths((16, 20))
    'L\xa0=\xa016,\xa020'
    """
    return "L\u00a0=\u00a0" + ",\u00a0".join(map(str, depths))
