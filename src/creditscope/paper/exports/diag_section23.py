"""Deep GCNs by backprop, layer by layer: results/diag_section23/diag_data_v2.json, from study `bp_bottleneck`."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from creditscope.paper.exports import Export, register_export
from creditscope.paper.exports._logs import Share, Size
from creditscope.paper.studies import RunIndex
from creditscope.paper.studies.bp_bottleneck import bp_bottleneck
from creditscope.record import Record

PATH = "results/diag_section23/diag_data_v2.json"
ShareOrGap = Annotated[float, Field(description="from 0 to 1; the bare token NaN where the state is constant")]


class DiagRow(TypedDict):
    """One run of depth L."""

    seed: int
    bp_acc: Annotated[Share, Field(description="test accuracy")]
    W_grads_F: Annotated[list[Size], Field(description="‖∂L/∂W_l‖_F, l = 0..L−1, safely computed")]
    W_grads_F_float32: Annotated[list[Size], Field(description="the same by a plain float32 √Σx²")]
    W_all_zero: Annotated[list[Literal[0, 1]], Field(description="1 where every element is exactly 0")]
    Z_grads_F: Annotated[list[Size], Field(description="‖∂L/∂Z_l‖_F, l = 0..L−1; the last is the logits'")]
    probe_acc: Annotated[list[ShareOrGap], Field(description="linear probe on H_0..H_L")]
    M_rms: Annotated[list[Size], Field(description="root mean square of H_0..H_L")]
    D_norm: Annotated[list[Size], Field(description="the same of H_l minus its node mean")]


@cache
def shape() -> "TypeAdapter[dict[str, list[DiagRow]]]":
    """What the file holds: "L=6" and so on, each a list of rows; `schemas/diag_data_v2.json` is its JSON schema."""
    return TypeAdapter(dict[Annotated[str, Field(pattern=r"^L=\d+$")], list[DiagRow]])


@register_export("diag_section23")
def diag_section23(records: Sequence[Record], *, scale: str = "paper") -> Export:
    """One row per run, in the study's order of seeds; written as soon as every depth has one."""
    rows: dict[str, list[dict[str, Any]]] = {}
    lacking: dict[str, list[str]] = {}
    index = RunIndex(records)
    for wanted in bp_bottleneck(scale).runs:
        key = f"L={wanted['net_options']['depth']}"
        found = index.fitting(wanted)
        row, why = _row(found[0]) if found else (None, "not on record")
        rows.setdefault(key, [])
        if row is None:
            lacking.setdefault(f"{key}, {why}", []).append(str(wanted["seed"]))
        else:
            rows[key].append(row)
    missing = [f"{why}: seeds {', '.join(seeds)}." for why, seeds in lacking.items()]
    empty = [key for key, found in rows.items() if not found]
    if empty:
        return Export({}, (*missing, f"{PATH} is not written: nothing of {', '.join(empty)}."))
    return Export({PATH: shape().dump_python(shape().validate_python(rows))}, tuple(missing))


def _row(record: Record) -> tuple[dict[str, Any] | None, str]:
    """A record's row, or why it has none."""
    last, layers, weights = record.last, record.last.layers, record.last.weights
    if record.provenance.status != "complete":
        return None, record.provenance.status
    if layers is None or weights is None or not layers.probe or not weights.exact_float32 or last.accuracy is None:
        return None, "not measured layer by layer"
    row = {
        "seed": record.spec.seed if record.spec else 0,
        "bp_acc": last.accuracy,
        "W_grads_F": list(weights.exact_norm),
        "W_grads_F_float32": list(weights.exact_float32),
        "W_all_zero": list(weights.exact_all_zero),
        "Z_grads_F": list(layers.z_grad),
        "probe_acc": [math.nan if value is None else value for value in layers.probe],
        "M_rms": list(layers.rms),
        "D_norm": list(layers.dispersion),
    }
    if any(value is None for values in row.values() if isinstance(values, list) for value in values):
        return None, "not finite"
    return row, ""
