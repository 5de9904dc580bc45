"""Along what the snapshots of a record lie: epochs, or steps where a watched model has several in one epoch."""

from dataclasses import replace
from itertools import pairwise

from creditscope.record.schema import Snapshot
from creditscope.record.store import Record

AXES = ("epoch", "step", "snapshot")
"""What may count them; the last is their place."""


def axis_of(record: Record) -> str:
    """The first of the axes along which snapshots go forward; of a trained run always the epoch."""
    if record.spec is not None:
        return "epoch"
    return next(axis for axis in AXES if all(a < b for a, b in pairwise(_places(record, axis))))


def along_axis(record: Record) -> Record:
    """The record with what counts its snapshots as their epoch, for views that know one axis of time."""
    if (axis := axis_of(record)) == "epoch":
        return record
    moved = [replace(s, epoch=at) for s, at in zip(record.snapshots, _places(record, axis), strict=True)]
    return replace(record, snapshots=tuple(moved))


def _places(record: Record, axis: str) -> list[int]:
    taken: tuple[Snapshot, ...] = tuple(record.snapshots)
    return list(range(len(taken))) if axis == "snapshot" else [getattr(s, axis) for s in taken]
