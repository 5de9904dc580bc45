"""What is read from a finished run: a number, or in words why there is none."""

from collections.abc import Callable
from dataclasses import replace

from creditscope.auditing.early import find_early
from creditscope.auditing.growth import largest_growth
from creditscope.auditing.thresholds import PUBLISHED_FLOOR, PUBLISHED_GROWTH, PUBLISHED_ROWS, USUAL_GAMMA
from creditscope.record import Record, Snapshot

Answer = float | str
Reader = Callable[[Record], Answer]
Fires = Callable[[Record, Snapshot], bool | None]
"""Whether a published diagnostic fires at a moment; None if that cannot be said."""

FLOOR = PUBLISHED_FLOOR / PUBLISHED_ROWS
NOT_MEASURED, NEVER = "not measured", "never fires"


def accuracy(record: Record) -> Answer:
    """On the whole test set, at the end."""
    return _or_missing(record.last.accuracy)


def gamma(record: Record) -> Answer:
    """Γ over taps 1..L at the end."""
    return _or_missing(record.last.gamma)


def at_tap(name: str, tap: int, *, rows: int = 1) -> Reader:
    """A per-tap measure at the end; `rows`: divided by so many, as under a loss that is a mean over them."""

    def read(record: Record) -> Answer:
        values = getattr(record.last.head_taps, name)
        value = values[tap] if values else None
        return NOT_MEASURED if value is None else value / rows

    return read


def deep(name: str, *, early: bool = False, start: int = 2) -> Reader:
    """Mean over taps 2..L, or from another on, at the end or early."""

    def read(record: Record) -> Answer:
        snapshot = find_early(record).snapshot if early else record.last
        values = getattr(snapshot.taps, name)[start:]
        if not values or None in values:
            return NOT_MEASURED
        return sum(values) / len(values)

    return read


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


def _or_missing(value: float | None) -> Answer:
    return NOT_MEASURED if value is None else value
