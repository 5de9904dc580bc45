"""Records with named axes: an xarray data set over rule, seed, epoch and layer."""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from creditscope.errors import CreditscopeError
from creditscope.record.schema import TapMeasures
from creditscope.record.spec import FREE_FIELDS, RULE_FIELDS, TIERS
from creditscope.record.store import Record
from creditscope.record.validate import lacks

SCALARS = ("accuracy", "loss", "train_loss", "gamma", "gamma_inexact", "gamma_null_sd")


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
    """Every per-tap measurement as (rule, seed, epoch, layer), the scalars as (rule, seed, epoch); gaps are NaN.

    A layer is a tap; frozen runs and rungs of the depth ladder are rules of their own, "… frozen", "… last 2 trained".
    """
    import xarray as xr

    if not records:
        raise CreditscopeError("Expected at least one record to view, but got none.")
    records = richest(records)
    settings = {_setting(r) for r in records}
    if len(settings) > 1:
        raise CreditscopeError(
            f"Expected records of one task, net and recipe to share axes, but got {len(settings)} settings. "
            "View them one by one."
        )
    rules = list(dict.fromkeys(map(_rule_name, records)))
    seeds = sorted({_seed(r) for r in records})
    epochs = sorted({s.epoch for r in records for s in r.snapshots})
    layers = max((r.facts.taps for r in records), key=len)
    shape = (len(rules), len(seeds), len(epochs))
    taps = {f.name: np.full((*shape, len(layers)), np.nan) for f in fields(TapMeasures)}
    scalars = {name: np.full(shape, np.nan) for name in SCALARS}
    for record in records:
        for snapshot in record.snapshots:
            at = (rules.index(_rule_name(record)), seeds.index(_seed(record)), epochs.index(snapshot.epoch))
            for name, array in taps.items():
                values = np.array(getattr(snapshot.taps, name), dtype=float)
                array[at][: len(values)] = values
            for name, array in scalars.items():
                array[at] = np.nan if (value := getattr(snapshot, name)) is None else value
    axes = ("rule", "seed", "epoch")
    return xr.Dataset(
        {name: ((*axes, "layer"), array) for name, array in taps.items()}
        | {name: (axes, array) for name, array in scalars.items()},
        coords={"rule": rules, "seed": seeds, "epoch": epochs, "layer": list(layers)},
    )


def _rule_name(record: Record) -> str:
    spec, rule = record.spec, record.facts.rule
    extra = [rule.variant] if rule.variant else []
    if spec is not None:
        extra += [f"norm {spec.credit_norm}"] * (spec.credit_norm != "none")
        extra += [f"λ {spec.penalty:g}"] * bool(spec.penalty)
        extra += ["frozen"] * spec.frozen
        extra += [f"last {spec.train_last} trained"] * (spec.train_last >= 0)
    return ", ".join([rule.name, *extra])


def _setting(record: Record) -> str:
    if record.spec is None:
        return repr(record.facts.taps)
    return repr(record.spec.setting(without=RULE_FIELDS))


def _seed(record: Record) -> int:
    return record.spec.seed if record.spec else 0
