"""Records of deep GCNs with other numbers in them, and what a figure of them holds."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from creditscope.record import Record, WeightMeasures


def depth_of(record: Record) -> int:
    return int(record.spec.net_options["depth"])


def altered(records: Sequence[Record], depth: int, *, layers=None, weights=None, **others) -> list[Record]:
    """The records with other numbers in the last snapshot of one depth; functions of the measures give them."""
    found = []
    for record in records:
        last = record.last
        if depth_of(record) == depth:
            changed = replace(last, **others)
            if layers:
                changed = replace(changed, layers=replace(last.layers, **layers(last.layers)))
            if weights:
                changed = replace(changed, weights=replace(last.weights, **weights(last.weights)))
            record = replace(record, snapshots=(*record.snapshots[:-1], changed))
        found.append(record)
    return found


def panel(fig: Figure, label: str) -> Axes:
    return next(ax for ax in fig.axes if ax.get_label() == label)


def line(ax: Axes, gid: str) -> np.ndarray:
    return np.asarray(next(found for found in ax.lines if found.get_gid() == gid).get_ydata(), dtype=float)


def has_line(ax: Axes, gid: str) -> bool:
    return any(found.get_gid() == gid for found in ax.lines)


def tiny(weights: WeightMeasures) -> dict:
    """True norms of 1e-26, which a float32 norm takes for 0."""
    count = len(weights.exact_norm)
    norms = tuple(1e-26 * (i + 1) for i in range(count))
    return {"exact_norm": norms, "exact_float32": (0.0,) * count, "exact_underflow": (1,) * count}


def gone(weights: WeightMeasures) -> dict:
    """Gradients of which every element is 0."""
    count = len(weights.exact_norm)
    return {"exact_norm": (0.0,) * count, "exact_float32": (0.0,) * count, "exact_all_zero": (1,) * count}
