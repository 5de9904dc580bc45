"""What is read from the runs of a condition: one number per seed, or in words why there is none."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from creditscope.auditing.thresholds import PUBLISHED_FLOOR, PUBLISHED_GROWTH, PUBLISHED_ROWS, USUAL_GAMMA
from creditscope.errors import UnknownNameError
from creditscope.paper.studies import RunIndex
from creditscope.paper.studies.penalty_rescue import find_early
from creditscope.record import Record, Snapshot, TapMeasures
from creditscope.record.table import largest_growth, read, richness

Condition = Mapping[str, Any]
"""Fields of a run's spec but the seed; what is left out is the default."""
Reader = Callable[[Record], float | str]
"""From a finished run to a number, or why there is none."""
Fires = Callable[[Record, Snapshot], bool]
"""Whether a published diagnostic fires at a moment."""
NOT_MEASURED, NEVER = "not measured", "never fires"
MEASURES = tuple(field.name for field in fields(TapMeasures))


class RunFinder:
    """Finds the runs of a condition, and remembers which were asked for."""

    def __init__(self, records: Sequence[Record]):
        self.records = [r for r in records if r.spec is not None and r.snapshots]
        self.read: dict[int, Record] = {}
        self._index, self._seeds = RunIndex(self.records), sorted({r.spec.seed for r in self.records if r.spec})
        self._found: dict[str, tuple[dict[int, Record], list[int]]] = {}

    def find(self, condition: Condition) -> tuple[dict[int, Record], list[int]]:
        """The complete runs by seed, the richest record where one was measured twice; and the seeds that diverged."""
        key = str(sorted(condition.items()))
        if key not in self._found:
            by_seed = {seed: self._index.fitting({**condition, "seed": seed}) for seed in self._seeds}
            complete = {s: [r for r in rs if r.provenance.status == "complete"] for s, rs in by_seed.items()}
            runs = {seed: max(rs, key=richness) for seed, rs in complete.items() if rs}
            diverged = {s for s, rs in by_seed.items() if any(r.provenance.status == "diverged" for r in rs)}
            self._found[key] = runs, sorted(diverged - runs.keys())
        self.read |= {id(record): record for record in self._found[key][0].values()}
        return self._found[key]

    def runs(self, condition: Condition) -> list[Record]:
        """The complete runs, in the order of seeds."""
        return list(self.find(condition)[0].values())


@dataclass(frozen=True)
class Values:
    """One number per seed; `lacking` says of the seeds without one, why."""

    by_seed: Mapping[int, float]
    lacking: Mapping[int, str] = field(default_factory=dict)

    @property
    def numbers(self) -> list[float]:
        return list(self.by_seed.values())

    @property
    def seeds(self) -> set[int]:
        """All that were run."""
        return {*self.by_seed, *self.lacking}

    @property
    def answered(self) -> set[int]:
        """Those with a number, and those that never fire, which is an answer, too; not those diverged or unmeasured."""
        return {*self.by_seed, *(seed for seed, why in self.lacking.items() if why == NEVER)}

    def on(self, seeds: Collection[int], run: Collection[int] = ()) -> "Values":
        """The answers of these seeds alone, and what else is lacking of those that were run."""
        own = {seed: value for seed, value in self.by_seed.items() if seed in seeds}
        named = {*seeds, *(set(run) - self.answered)}
        return Values(own, {seed: why for seed, why in self.lacking.items() if seed in named})

    def words(self) -> str:
        """What is lacking: "1 diverged, 2 not measured"."""
        return ", ".join(f"{count} {why}" for why, count in Counter(self.lacking.values()).items())


def shared(sets: Iterable[set[int]]) -> frozenset[int]:
    """What all that are not empty have in common."""
    known = [found for found in sets if found]
    return frozenset(set.intersection(*known) if known else ())


Reading = Callable[[RunFinder], Values]


def read_each(condition: Condition, reader: Reader) -> Reading:
    """A reader on every seed of a condition."""

    def find(finder: RunFinder) -> Values:
        runs, diverged = finder.find(condition)
        return read_runs(runs, reader, diverged)

    return find


def read_runs(runs: Mapping[int, Record], reader: Reader, diverged: Iterable[int] = ()) -> Values:
    """A reader on every run."""
    found = {seed: reader(record) for seed, record in runs.items()}
    numbers = {seed: value for seed, value in found.items() if not isinstance(value, str)}
    reasons = {seed: value for seed, value in found.items() if isinstance(value, str)}
    return Values(numbers, reasons | dict.fromkeys(diverged, "diverged"))


def gain(condition: Condition, baseline: Condition) -> Reading:
    """Accuracy minus that of the baseline, paired by seed."""

    def find(finder: RunFinder) -> Values:
        own, other = (read_each(c, accuracy)(finder).by_seed for c in (condition, baseline))
        return Values({seed: own[seed] - other[seed] for seed in own if seed in other})

    return find


def first_is_best(*conditions: Condition) -> Reading:
    """1 for a seed whose accuracy is highest under the first of the conditions, on the seeds that have all."""

    def find(finder: RunFinder) -> Values:
        first, *others = (read_each(condition, accuracy)(finder).by_seed for condition in conditions)
        shared = [seed for seed in first if all(seed in other for other in others)]
        return Values({seed: float(all(first[seed] > other[seed] for other in others)) for seed in shared})

    return find


def at_end(quantity: str) -> Reader:
    """A number of the whole net."""
    return lambda record: _known(read(record.facts, record.last, quantity))


accuracy, gamma = at_end("accuracy"), at_end("gamma")


def at_tap(name: str, tap: int, *, rows: int = 1) -> Reader:
    """A per-tap measure at the end; `rows`: divided by so many, as under a loss that is a mean over them."""
    _check_measure(name)

    def find(record: Record) -> float | str:
        values = read(record.facts, record.last, f"head_taps.{name}")
        value = values[tap] if values else None
        return NOT_MEASURED if value is None else value / rows

    return find


def deep(name: str, *, early: bool = False, start: int = 2) -> Reader:
    """Mean over taps 2..L, or from another on, at the end or early."""
    _check_measure(name)

    def find(record: Record) -> float | str:
        values = read(record.facts, find_early(record).snapshot if early else record.last, name)[start:]
        return NOT_MEASURED if not values or None in values else sum(values) / len(values)

    return find


def _known(value: float | None) -> float | str:
    return NOT_MEASURED if value is None else value


def _check_measure(name: str) -> None:
    if name not in MEASURES:
        raise UnknownNameError("measure at taps", name, MEASURES)


gamma_at_input = deep("cos_input", start=1)
"""Γ as published: over blocks, the cosine of what a block is given with the gradient at its input."""


def under_floor(rows: int) -> Fires:
    """‖g_L‖ of a loss that is a mean over `rows` is below the published floor."""

    def fires(record: Record, snapshot: Snapshot) -> bool:
        top = snapshot.head_taps.g_norm[-1]
        return top is not None and top / rows < PUBLISHED_FLOOR / PUBLISHED_ROWS

    return fires


def grows(record: Record, snapshot: Snapshot) -> bool:
    """A block's growth is above the published limit."""
    return (_growth(record, snapshot) or 0.0) > PUBLISHED_GROWTH


def _growth(record: Record, snapshot: Snapshot) -> float | None:
    """The largest over residual blocks, on the tokens that the head reads."""
    return largest_growth(record.facts, replace(snapshot, taps=snapshot.head_taps))


def greatest_growth(record: Record) -> float | str:
    """The largest growth of any block at any snapshot."""
    return max((g for s in record.snapshots if (g := _growth(record, s)) is not None), default=NOT_MEASURED)


def ever(fires: Fires, record: Record) -> bool:
    """Whether it fires at some snapshot after training began."""
    return any(fires(record, s) for s in record.snapshots if s.epoch > 0)


def never(fires: Fires) -> Reader:
    """1 if it fires at no snapshot after training began, else 0."""
    return lambda record: float(not ever(fires, record))


def first_epoch(fires: Fires) -> Reader:
    """The first epoch of training at which it fires; in a thinned run the middle of those that this may be.

    Were only epochs counted that are known exactly, runs that fire late, where records are thin, would be left out.
    """

    def find(record: Record) -> float | str:
        before = 0
        for snapshot in record.snapshots:
            if snapshot.epoch > 0 and fires(record, snapshot):
                return (before + 1 + snapshot.epoch) / 2
            before = snapshot.epoch
        return NEVER

    return find


def pair_accepts(aggregate: Reader = gamma) -> Reader:
    """1 if accuracy is above chance and Γ positive, as the usual pair asks."""

    def find(record: Record) -> float | str:
        reached, found, chance = record.last.accuracy, aggregate(record), record.facts.chance
        if reached is None or isinstance(found, str) or chance is None:
            return NOT_MEASURED
        return float(reached > chance and found > USUAL_GAMMA)

    return find


READERS: dict[str, Callable[..., Reader]] = {
    "accuracy": lambda: accuracy,
    "gamma": lambda: gamma,
    "gamma_at_input": lambda: gamma_at_input,
    "at_tap": at_tap,
    "deep": deep,
    "deep_early": partial(deep, early=True),
    "first_growth": lambda: first_epoch(grows),
    "first_under_floor": lambda rows: first_epoch(under_floor(rows)),
    "never_grows": lambda: never(grows),
    "never_under_floor": lambda rows: never(under_floor(rows)),
    "greatest_growth": lambda: greatest_growth,
    "pair_accepts": lambda: pair_accepts(),
    "pair_accepts_at_input": lambda: pair_accepts(gamma_at_input),
}
"""By the names that `published.toml` has for them, made from the arguments that follow there."""
OF_THE_END = ("accuracy", "gamma", "at_tap", "deep")
"""Those that read the last snapshot alone."""
