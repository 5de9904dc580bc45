"""Which runs a question is about: those that are equal in all but what varies, by seed, and what is missing of them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from creditscope.errors import CreditscopeError
from creditscope.record.spec import MEASURING_FIELDS, RunSpec
from creditscope.record.store import Record
from creditscope.record.table import read, richness
from creditscope.text import join_words, name_all

PLAIN = {"frozen": False, "train_last": -1}
"""What is picked unless it is asked for or varies: all blocks are trained."""
OWN = ("rule_options", "rule_source", "credit_norm")
"""Fields that rules may differ in when the rule varies; the runs of one rule may not."""

Wanted = Any
"""Of a field: a value, a collection of values, or a function that says whether a value is wanted."""
Axis = str | Callable[[RunSpec], Any]
"""A field of the spec, as "credit_norm" or "net_options.depth", or a function of it; None: the run is not wanted."""
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Cell:
    """The runs of one group by seed; `lost` says of other seeds why they have none."""

    key: Key
    runs: dict[int, Record]
    lost: dict[int, str]
    diverged: dict[int, Record]

    def __bool__(self) -> bool:
        return bool(self.runs)

    @property
    def records(self) -> list[Record]:
        return list(self.runs.values())

    @property
    def first(self) -> Record:
        """Any of them: all but the seed is the same."""
        return next(iter((self.runs or self.diverged).values()))

    def values(self, quantity: str, *, tap: int | None = None, untrained: bool = False) -> np.ndarray:
        """At the end (or of the first snapshot), (seeds,) or (seeds, taps); NaN where it was not measured."""
        rows = [read(r.facts, r.snapshots[0] if untrained else r.last, quantity) for r in self.records]
        return _array(rows, tap)

    def by_seed(self, quantity: str, *, tap: int | None = None, untrained: bool = False) -> dict[int, float]:
        """The same of one number, without the seeds that lack it."""
        values = self.values(quantity, tap=tap, untrained=untrained)
        return {seed: float(value) for seed, value in zip(self.runs, values, strict=True) if np.isfinite(value)}

    def course(self, quantity: str, *, tap: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Epochs that all runs were measured at, and (seeds, epochs) or (seeds, epochs, taps)."""
        known = [{s.epoch: s for s in r.snapshots} for r in self.records]
        epochs = sorted(set.intersection(*map(set, known))) if known else []
        rows = [read(r.facts, own[e], quantity) for r, own in zip(self.records, known, strict=True) for e in epochs]
        found = _array(rows, tap)
        return np.array(epochs), found.reshape(len(self.records), len(epochs), *found.shape[1:])


def _array(rows: Sequence[Any], tap: int | None) -> np.ndarray:
    """Numbers, or series that may be missing, empty or of several lengths: these of a tap, or all."""
    length = max((len(row) for row in rows if isinstance(row, Sequence)), default=0)
    if not length:
        return np.array([None if isinstance(row, Sequence) else row for row in rows], dtype=float)
    found = np.array([[*(row or ()), *[None] * (length - len(row or ()))] for row in rows], dtype=float)
    return found if tap is None else found[:, tap]


@dataclass(frozen=True)
class Picked:
    """Cells by what varies, one key for each of `axes`; a cell without runs is a gap."""

    axes: tuple[str, ...]
    cells: dict[Key, Cell]
    seeds: tuple[int, ...]
    """All that any cell has."""

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells.values())

    def __getitem__(self, key: Any) -> Cell:
        key = key if isinstance(key, tuple) else (key,)
        return self.cells.get(key, Cell(key, {}, dict.fromkeys(self.seeds, "not on record"), {}))

    def along(self, axis: str) -> list[Any]:
        place = self.axes.index(axis)
        return list(dict.fromkeys(key[place] for key in self.cells))

    @property
    def drawn(self) -> list[Cell]:
        return [cell for cell in self if cell]

    @property
    def records(self) -> list[Record]:
        return [record for cell in self for record in cell.records]

    @property
    def first(self) -> Record:
        """Any of them, or of those that diverged: what does not vary is the same."""
        return next(record for cell in self for record in (*cell.records, *cell.diverged.values()))

    @property
    def spec(self) -> RunSpec:
        return spec_of(self.first)

    @property
    def gaps(self) -> tuple[str, ...]:
        """What is missing, in words: a line for each group and reason."""
        said = []
        for cell in self:
            for why in dict.fromkeys(cell.lost[seed] for seed in sorted(cell.lost)):
                seeds = sorted(seed for seed in cell.lost if cell.lost[seed] == why)
                which = "" if len(seeds) == len(self.seeds) and not cell.runs else f", {name_all('seed', seeds)}"
                said.append(f"{_name(cell.key)}{which}: {why}")
        return tuple(said)

    def shared(self) -> "Picked":
        """On the seeds that every cell with runs has; the others are lost as "not shared"."""
        if not self.drawn:
            return self
        seeds = set.intersection(*(set(cell.runs) for cell in self.drawn))
        if not seeds:
            said = join_words([f"{_name(c.key)} has {name_all('seed', sorted(c.runs))}" for c in self.drawn])
            raise CreditscopeError(
                f"Expected at least one seed that all have, but {said}. Run the missing seeds, or pass fewer records."
            )
        cells = {}
        for key, cell in self.cells.items():
            others = {seed: "not every group has it" for seed in cell.runs if seed not in seeds}
            kept = {seed: record for seed, record in cell.runs.items() if seed in seeds}
            cells[key] = replace(cell, runs=kept, lost={**cell.lost, **others})
        return Picked(self.axes, cells, tuple(sorted(seeds)))


def pick(
    records: Iterable[Record],
    *,
    vary: Mapping[str, Axis],
    where: Mapping[str, Wanted] | None = None,
    free: Collection[str] = (),
    choose: Callable[[Record], Any] | None = None,
    lost: bool = False,
) -> Picked:
    """The runs for which `where` holds, grouped by what may `vary` besides the seed.

    All else must be equal, but for how they were measured, fields that are `free`, and, where the rule varies, options
    of the rule and its credit norm. Of several records of one run the richest is taken, or the one that `choose` puts
    last. An axis whose field `where` lists has all values listed, in that order; those without runs are gaps. At least
    one run must be complete, unless runs that were `lost` will do.

    >>> import creditscope as cs
    >>> from creditscope.record.pick import pick
    >>> runs = cs.run(rule=["bp", "dfa"], task="digits", seeds=2, epochs=1, depth=1, width=8, tier="quick")
    >>> found = pick(runs.records, vary={"rule": "rule"}, where={"rule": ("bp", "dfa", "fa")})
    >>> found["dfa"].values("cos").shape, found.gaps
    ((2, 2), ('fa: not on record',))
    """
    records, worth = list(records), choose or richness
    asked = {**{name: value for name, value in PLAIN.items() if name not in vary.values()}, **(where or {})}
    listed: dict[Any, list[Any]] = {name: list(wanted) for name, wanted in asked.items() if _is_collection(wanted)}
    groups: dict[Key, dict[int, Record]] = {}
    specs: list[RunSpec] = []
    for record in records:
        spec = record.spec
        if spec is None or not record.snapshots or not _holds(spec, asked, listed):
            continue
        key = tuple(axis(spec) if callable(axis) else field_of(spec, axis) for axis in vary.values())
        if None in key:
            continue
        specs.append(spec)
        runs = groups.setdefault(key, {})
        if spec.seed in runs:
            same = spec_of(runs[spec.seed])
            _refuse_differences([same, spec], MEASURING_FIELDS, f"one run of {_name(key)}, seed {spec.seed},")
        if spec.seed not in runs or worth(record) > worth(runs[spec.seed]):
            runs[spec.seed] = record
    complete = any(r.provenance.status == "complete" for runs in groups.values() for r in runs.values())
    if not specs or not (complete or lost):
        held = "none" if not specs else "diverged or unfinished ones only"
        wanted = {n: "as asked" if callable(w) else " or ".join(map(str, listed.get(n, [w]))) for n, w in asked.items()}
        said = ", ".join(f"{name} {text}" for name, text in wanted.items() if PLAIN.get(name) != asked[name])
        raise CreditscopeError(
            f"Expected complete runs{' with ' * bool(said)}{said}, but got {held} among {len(records)} records. "
            "Train them first, or pass other records."
        )
    _require_equal(specs, vary, free)
    along = [listed.get(axis) or _ordered({key[i] for key in groups}) for i, axis in enumerate(vary.values())]
    gaps = len(vary) < 2 or any(listed.get(axis) for axis in vary.values())
    keys = [key for key in product(*along) if gaps or key in groups]
    seeds = tuple(sorted({seed for runs in groups.values() for seed in runs}))
    return Picked(tuple(vary), {key: _cell(key, groups.get(key, {}), seeds) for key in keys}, seeds)


def _cell(key: Key, runs: Mapping[int, Record], seeds: Sequence[int]) -> Cell:
    by_status: dict[str, dict[int, Record]] = {"complete": {}, "diverged": {}, "running": {}}
    for seed in sorted(runs):
        by_status[runs[seed].provenance.status][seed] = runs[seed]
    lost = {seed: _why_lost(runs.get(seed)) for seed in seeds if seed not in by_status["complete"]}
    return Cell(key, by_status["complete"], lost, by_status["diverged"])


def _why_lost(record: Record | None) -> str:
    if record is None:
        return "not on record"
    epoch = record.provenance.diverged_epoch
    return f"diverged in epoch {epoch}" if record.provenance.status == "diverged" else "unfinished"


def field_of(spec: RunSpec, name: str) -> Any:
    """A field of a spec, or an option ("net_options.depth"), None if it is not set."""
    field, _, option = name.partition(".")
    return getattr(spec, field).get(option) if option else getattr(spec, field)


def _is_collection(wanted: Wanted) -> bool:
    return isinstance(wanted, Collection) and not isinstance(wanted, str | Mapping)


def _holds(spec: RunSpec, asked: Mapping[str, Wanted], listed: Mapping[str, list[Any]]) -> bool:
    found = [(field_of(spec, name), name, wanted) for name, wanted in asked.items()]
    return all(wanted(v) if callable(wanted) else v in listed.get(name, [wanted]) for v, name, wanted in found)


def _ordered(values: set[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=str)


def _require_equal(specs: Sequence[RunSpec], vary: Mapping[str, Axis], free: Collection[str]) -> None:
    """Refuse runs that differ in more than they may: over all, and those of one rule in what is its own."""
    varied = {axis for axis in vary.values() if isinstance(axis, str)} | set(free)
    allowed = {"seed", *MEASURING_FIELDS, *varied}
    _refuse_differences(specs, allowed | set(OWN if "rule" in varied else ()), "one setting")
    for rule in dict.fromkeys(spec.rule for spec in specs):
        own = [spec for spec in specs if spec.rule == rule]
        _refuse_differences(own, {*vars(specs[0])} - (set(OWN) - varied), f"one variant of rule {rule!r}")


def _name(key: Key) -> str:
    return ", ".join(str(getattr(part, "rule", part)) for part in key)


def _refuse_differences(specs: Sequence[RunSpec], allowed: Collection[str], what: str) -> None:
    """Options are compared one by one."""
    flat = [_flatten(spec, allowed) for spec in specs]
    names = dict.fromkeys(name for own in flat for name in own)
    found = {name: list(dict.fromkeys(own.get(name, "absent") for own in flat)) for name in names}
    differing = {name: values for name, values in found.items() if len(values) > 1}
    if differing:
        said = "; ".join(f"{name} ({', '.join(values)})" for name, values in differing.items())
        name, values = next(iter(differing.items()))
        raise CreditscopeError(
            f"Expected records of {what}, but they differ in {said}. Pass those of one only, for example with {name} = "
            f"{values[0]}."
        )


def _flatten(spec: RunSpec, allowed: Collection[str]) -> dict[str, str]:
    """Fields and options ("net_options.width") that must be equal, as text."""
    found = {name: value for name, value in vars(spec).items() if name not in allowed}
    options = {f"{n}.{k}": v for n, own in found.items() if isinstance(own, dict) for k, v in own.items()}
    plain = {name: value for name, value in found.items() if not isinstance(value, dict)}
    return {name: str(value) for name, value in {**plain, **options}.items() if name not in allowed}


def spec_of(record: Record) -> RunSpec:
    """The spec of a run that was picked, which has one."""
    assert record.spec is not None
    return record.spec
