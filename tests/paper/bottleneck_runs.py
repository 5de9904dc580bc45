"""Records of deep GCNs with other numbers in them, and what a figure of them draws and states."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from creditscope.plots import Caption
from creditscope.record import Record


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


def line(ax: Axes, gid: str) -> np.ndarray:
    return np.asarray(next(found for found in ax.lines if found.get_gid() == gid).get_ydata(), dtype=float)


def value(caption: Caption, quantity: str, group: str) -> Any:
    (found,) = [s for s in caption.statements if (s.quantity, s.group) == (quantity, group)]
    return found.value
