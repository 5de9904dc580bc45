"""What is read from a finished run: a number, or in words why there is none."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial

from creditscope.auditing.per_tap import largest_growth
from creditscope.auditing.thresholds import PUBLISHED_FLOOR, PUBLISHED_GROWTH, PUBLISHED_ROWS, USUAL_GAMMA
from creditscope.errors import UnknownNameError
from creditscope.paper.early import find_early
from creditscope.record import Record, Snapshot, TapMeasures

Answer = float | str
Reader = Callable[[Record], Answer]
Fires = Callable[[Record, Snapshot], bool | None]
"""Whether a published diagnostic fires at a moment; None if that cannot be said."""

FLOOR = PUBLISHED_FLOOR / PUBLISHED_ROWS
NOT_MEASURED, NEVER = "not measured", "never fires"
MEASURES = tuple(field.name for field in fields(TapMeasures))


def accuracy(record: Record) -> Answer:
    """On the whole test set, at the end."""
    return NOT_MEASURED if record.last.accuracy is None else record.last.accuracy


def gamma(record: Record) -> Answer:
    """Γ over taps 1..L at the end."""
    return NOT_MEASURED if record.last.gamma is None else record.last.gamma


def at_tap(name: str, tap: int, *, rows: int = 1) -> Reader:
    """A per-tap measure at the end; `rows`: divided by so many, as under a loss that is a mean over them."""
    _check_measure(name)

    def read(record: Record) -> Answer:
        values = getattr(record.last.head_taps, name)
        value = values[tap] if values else None
        return NOT_MEASURED if value is None else value / rows

    return read


def deep(name: str, *, early: bool = False, start: int = 2) -> Reader:
    """Mean over taps 2..L, or from another on, at the end or early."""
    _check_measure(name)

    def read(record: Record) -> Answer:
        snapshot = find_early(record).snapshot if early else record.last
        values = getattr(snapshot.taps, name)[start:]
        if not values or None in values:
            return NOT_MEASURED
        return sum(values) / len(values)

    return read


def _check_measure(name: str) -> None:
    if name not in MEASURES:
        raise UnknownNameError("measure at taps", name, MEASURES)


gamma_at_input = deep("cos_input", start=1)
"""Γ as published: over blocks, the cosine of what a block is given with the gradient at its input."""


def under_floor(rows: int) -> Fires:
    """‖g_L‖ of a loss that is a mean over `rows` is below the published floor."""

    def fires(record: Record, snapshot: Snapshot) -> bool | None:
        top = snapshot.head_taps.g_norm[-1]
        return None if top is None else top / rows < FLOOR

    return fires


def grows(record: Record, snapshot: Snapshot) -> bool | None:
    """A block's growth is above the published limit."""
    largest = _growth(record, snapshot)
    return None if largest is None else largest > PUBLISHED_GROWTH


def _growth(record: Record, snapshot: Snapshot) -> float | None:
    """The largest over residual blocks, on the tokens that the head reads."""
    return largest_growth(record.facts, replace(snapshot, taps=snapshot.head_taps))


def greatest_growth(record: Record) -> Answer:
    """The largest growth of any block at any snapshot."""
    found = [g for s in record.snapshots if (g := _growth(record, s)) is not None]
    return max(found, default=NOT_MEASURED)


def first_epoch(fires: Fires) -> Reader:
    """The first epoch of training at which it fires; in a thinned run the middle of those that this may be.

    Were only epochs counted that are known exactly, runs that fire late, where records are thin, would be left out.
    """

    def read(record: Record) -> Answer:
        before = 0
        for snapshot in record.snapshots:
            if snapshot.epoch > 0 and fires(record, snapshot):
                return (before + 1 + snapshot.epoch) / 2
            before = snapshot.epoch
        return NEVER

    return read


def never(fires: Fires) -> Reader:
    """1 if it fires at no snapshot after training began, else 0."""
    return lambda record: float(not any(fires(record, s) for s in record.snapshots if s.epoch > 0))


def pair_accepts(aggregate: Reader = gamma) -> Reader:
    """1 if accuracy is above chance and Γ positive, as the usual pair asks."""

    def read(record: Record) -> Answer:
        reached, found, chance = record.last.accuracy, aggregate(record), record.facts.chance
        if reached is None or isinstance(found, str) or chance is None:
            return NOT_MEASURED
        return float(reached > chance and found > USUAL_GAMMA)

    return read


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
    "pair_accepts": pair_accepts,
    "pair_accepts_at_input": lambda: pair_accepts(gamma_at_input),
}
"""By the names that `published.toml` has for them, made from the arguments that follow there."""
