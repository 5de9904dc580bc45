"""Records of deep GCNs with other numbers in them, and what a figure of them draws and states."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from drawn import lines, stated
from matplotlib.axes import Axes

from creditscope.plots import Caption
from creditscope.record import Record


def depth_of(record: Record) -> int:
    return int(record.spec.net_options["depth"])


def altered(records: Sequence[Record], depth: int, *, layers=None, weights=None) -> list[Record]:
    """The records with other numbers in the last snapshot of one depth; functions of the measures give them."""
    found = []
    for record in records:
        if depth_of(record) == depth:
            last, given = record.last, {"layers": layers, "weights": weights}
            own = {
                name: replace(old, **make(old)) for name, make in given.items() if make and (old := getattr(last, name))
            }
            record = replace(record, snapshots=(*record.snapshots[:-1], replace(last, **own)))
        found.append(record)
    return found


def line(ax: Axes, gid: str) -> np.ndarray:
    return lines(ax, gid)[0][1]


def value(caption: Caption, quantity: str, group: str) -> Any:
    return stated(caption)[quantity, group].value
