"""Records as a table with named axes (rule, seed, epoch, tap), a quantity being a field of a snapshot.

It goes by its name: "accuracy", "cos" (of taps), "head_taps.g_norm", "layers.probe", "weights.exact_norm"; "growth" is
made of two taps.
"""

from collections.abc import Sequence
from dataclasses import fields
from functools import reduce
from typing import Any

import numpy as np

from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.record.schema import NUMBERS, Facts, Snapshot, TapMeasures
from creditscope.record.spec import FREE_FIELDS, RULE_FIELDS, TIERS
from creditscope.record.store import Record
from creditscope.record.stored import lacks
from creditscope.record.timeline import along_axis, axis_of

SCALARS = tuple(f.name for f in fields(Snapshot) if f.type in NUMBERS)
"""Numbers of the whole net."""
PER_TAP = (*(f.name for f in fields(TapMeasures)), "growth")
"""Numbers of every tap."""


def read(facts: Facts, snapshot: Snapshot, quantity: str) -> Any:
    """A quantity as it is kept: a number, or a series; None where it was not measured."""
    if quantity == "growth":
        found = growths(facts, snapshot)
        return [found.get(tap) for tap in range(len(facts.taps))]
    if quantity in PER_TAP:
        return getattr(snapshot.taps, quantity)
    try:
        return reduce(lambda part, name: None if part is None else getattr(part, name), quantity.split("."), snapshot)
    except AttributeError:
        raise UnknownNameError("quantity", quantity, SCALARS + PER_TAP) from None


def growths(facts: Facts, snapshot: Snapshot) -> dict[int, float]:
    """Growth of the stream, RMS(h_l) / RMS(h_{l−1}), by tap: over every residual stage of equal shape."""
    rms, found = snapshot.taps.h_rms, {}
    for tap in comparable_taps(facts):
        above, below = rms[tap], rms[tap - 1]
        if above is not None and below:
            found[tap] = above / below
    return found


def comparable_taps(facts: Facts) -> list[int]:
    """Residual taps of the same shape as the tap before."""
    return [t for t, adds in enumerate(facts.residual) if adds and facts.tap_shapes[t] == facts.tap_shapes[t - 1]]


def largest_growth(facts: Facts, snapshot: Snapshot) -> float | None:
    """Over one block; None where no two taps can be compared."""
    return max(growths(facts, snapshot).values(), default=None)


def richness(record: Record) -> tuple[bool, int, bool, bool, int]:
    """How much a record holds, to choose between those of one run that was measured twice."""
    if record.spec is None:
        return True, 0, False, True, len(record.snapshots)
    tier = TIERS.index(record.spec.tier)
    return record.finished, tier, record.spec.noise, not lacks(record), len(record.snapshots)


def richest(records: Sequence[Record]) -> list[Record]:
    """One record for each run: of those that differ only in how they were measured, the one that holds most."""
    chosen: dict[str, Record] = {}
    for record in records:
        spec = record.spec
        key = str(id(record)) if spec is None else f"{spec.setting()} {[getattr(spec, n) for n in FREE_FIELDS]}"
        if key not in chosen or richness(record) > richness(chosen[key]):
            chosen[key] = record
    return list(chosen.values())


def to_xarray(records: Sequence[Record]):
    """Every per-tap quantity as (rule, seed, epoch, tap), the scalars as (rule, seed, epoch); gaps are NaN.

    Of a watched model with several snapshots an epoch the axis is `step`. Records are of one setting.
    Frozen runs and rungs of the depth ladder are rules of their own, "dfa, frozen".
    (No axis is called method, because that is what `sel` calls its way to fill gaps.)
    """
    import xarray as xr

    if not records:
        raise CreditscopeError("Expected at least one record to view, but got none.")
    time, records = axis_of(records[0]), [along_axis(record) for record in richest(records)]
    settings = {_setting(r) for r in records}
    if len(settings) > 1:
        raise CreditscopeError(
            f"Expected records of one task, net and recipe to share axes, but got {len(settings)} settings. "
            "View them one by one."
        )
    axes = {
        "rule": list(dict.fromkeys(map(method_name, records))),
        "seed": sorted({_seed(r) for r in records}),
        time: sorted({s.epoch for r in records for s in r.snapshots}),
        "tap": list(max((r.facts.taps for r in records), key=len)),
    }
    shape = tuple(map(len, axes.values()))
    found = {name: np.full(shape if name in PER_TAP else shape[:3], np.nan) for name in (*PER_TAP, *SCALARS)}
    for record in records:
        place = axes["rule"].index(method_name(record)), axes["seed"].index(_seed(record))
        for snapshot in record.snapshots:
            at = (*place, axes[time].index(snapshot.epoch))
            for name, array in found.items():
                value = read(record.facts, snapshot, name)
                if name in SCALARS:
                    array[at] = np.nan if value is None else value
                else:
                    array[at][: len(value)] = np.array(value, dtype=float)
    data = {name: (tuple(axes)[: array.ndim], array) for name, array in found.items()}
    return xr.Dataset(data, coords=axes)


def to_frame(records: Sequence[Record]):
    """The same as a long pandas table, one row per rule, seed, epoch and tap."""
    return to_xarray(records).to_dataframe().reset_index()


def method_name(record: Record) -> str:
    """The rule and what else tells methods apart: "dfa, λ 0.01, frozen"."""
    spec, rule = record.spec, record.facts.rule
    extra = [rule.variant] if rule.variant else []
    if spec is not None:
        extra += [f"norm {spec.credit_norm}"] * (spec.credit_norm != "none")
        extra += [f"λ {spec.penalty:g}"] * bool(spec.penalty)
        extra += ["frozen"] * spec.frozen
        extra += [f"last {spec.train_last} trained"] * (spec.train_last >= 0)
    return ", ".join([rule.name, *extra])


def _setting(record: Record) -> str:
    return repr(record.spec.setting(without=RULE_FIELDS) if record.spec else record.facts.taps)


def _seed(record: Record) -> int:
    return record.spec.seed if record.spec else 0
