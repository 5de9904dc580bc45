"""What types cannot say of a record: that its lines and lists are all there, and its numbers such as runs have.

And what the end of a run is measured for by now, and a record from before lacks: it is drawn, but not kept.
"""

import math
from dataclasses import fields
from typing import TYPE_CHECKING

from creditscope.errors import CreditscopeError
from creditscope.record.schema import DESCENT_TURNS, Counts, Provenance, Snapshot, TapMeasures, WeightMeasures
from creditscope.record.spec import RunSpec

if TYPE_CHECKING:
    from creditscope.record.store import Record

LARGEST = 2**53
"""Whole numbers beyond it are no counts, and a float cannot hold them."""
SCALARS = ("epoch", "step", "rows", "rows_covered", "rows_fitted", "fresh_draws", "descent_turns", "probe_rows")
TAP_COUNTS = tuple(f.name for f in fields(TapMeasures) if f.type == Counts)
WEIGHT_COUNTS = tuple(f.name for f in fields(WeightMeasures) if f.type in (Counts, tuple[int | None, ...]))
AT_THE_END = ("null_q99", "stage_cos", "rewind")
"""Per-tap fields of a last snapshot at any tier; what could not be measured is a series of None, and not empty."""


def check_whole(name: str, spec: RunSpec | None, provenance: Provenance, snapshots: tuple[Snapshot, ...]) -> None:
    """Refuse a record whose lines or lists are not all there, or whose whole numbers cannot be."""
    if spec is not None:
        _check_run(name, spec, provenance, snapshots)
    taps, weights = len(provenance.facts.taps), len(provenance.facts.weights)
    for snapshot in snapshots:
        if not _is_even(snapshot, taps, weights):
            expected = f"{taps} taps and {weights} weights in every list of epoch {snapshot.epoch}"
            raise _refusal(name, expected, "other lengths")
        if not all(0 <= count <= LARGEST for count in _counts(snapshot)):
            raise _refusal(name, f"counts from 0 to {LARGEST} in every snapshot", "others")


def _check_run(name: str, spec: RunSpec, provenance: Provenance, snapshots: tuple[Snapshot, ...]) -> None:
    if not all(_is_possible(value) for value in _asked(spec)):
        raise _refusal(name, f"finite numbers in the spec, whole ones of at most {LARGEST}", "others")
    if provenance.status == "complete" and (not snapshots or snapshots[-1].epoch != spec.epochs):
        last = snapshots[-1].epoch if snapshots else "none"
        raise _refusal(name, f"snapshots to epoch {spec.epochs}", f"the last is {last}", got=False)


def _refusal(name: str, expected: str, came: str, *, got: bool = True) -> CreditscopeError:
    return CreditscopeError(f"Record {name} cannot be read: Expected {expected}, but {'got ' * got}{came}.")


def _asked(spec: RunSpec) -> list:
    options = (spec.task_options, spec.net_options, spec.rule_options)
    return [*vars(spec).values(), *(value for given in options for value in given.values())]


def _is_possible(value: object) -> bool:
    """False for a whole number that is huge, and for one that is infinite or none."""
    return math.isfinite(value) if isinstance(value, float) else not isinstance(value, int) or abs(value) <= LARGEST


def _is_even(snapshot: Snapshot, taps: int, weights: int) -> bool:
    groups = [(snapshot.taps, taps), (snapshot.class_token, taps), (snapshot.weights, weights)]
    for measures, count in groups:
        if measures is not None and any(values and len(values) != count for values in vars(measures).values()):
            return False
    if (layers := snapshot.layers) is not None:
        states = len(layers.z_grad) + 1
        return all(len(values) == states for values in (layers.rms, layers.dispersion, layers.probe or layers.rms))
    return True


def _counts(snapshot: Snapshot) -> list[int]:
    found = [getattr(snapshot, name) for name in SCALARS]
    for name in TAP_COUNTS:
        found += getattr(snapshot.taps, name)
    for name in WEIGHT_COUNTS if snapshot.weights else ():
        found += [count for count in getattr(snapshot.weights, name) if count is not None]
    return found


def lacks(record: "Record") -> tuple[str, ...]:
    """Fields that its tier asks for at the end of a run and the record lacks; none of one that diverged.

    Of frozen blocks only the accuracy is asked at tier quick.
    """
    spec = record.spec
    if spec is None or record.provenance.status != "complete" or (spec.frozen and spec.tier == "quick"):
        return ()
    last = record.last
    found = tuple(name for name in AT_THE_END if not getattr(last.taps, name))
    measured = spec.tier != "quick" and any(value is not None for value in last.taps.descent)
    return (*found, "descent_turns") if measured and last.descent_turns < DESCENT_TURNS else found
