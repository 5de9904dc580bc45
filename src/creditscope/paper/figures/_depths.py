"""Runs of one net at several depths, measured layer by layer: which they are, and how they are drawn and named."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from creditscope.auditing.methods import group_methods
from creditscope.errors import CreditscopeError
from creditscope.paper.studies.bp_bottleneck import DEPTHS
from creditscope.plots._panel import set_log
from creditscope.plots._style import GREY, SMALL
from creditscope.record import Record
from creditscope.record.pick import Cell, Picked, field_of, pick, spec_of
from creditscope.text import count, superscript

DEPTH = "net_options.depth"
LOOKS = (("#5b8def", "o", 2.8), ("#cc6677", "s", 2.8), ("#882255", "D", 4.0))
"""Colour, marker and its size of each depth; the deepest is drawn first, so that others are seen on it."""
BACK = 0.7
"""Share of the deepest net from which on a line's name does not go on to the right."""
HEADROOM = 0.14
"""Share of an axis that is left above the data, for names of lines."""
STEEP = 0.03
"""Share of an axis by which a line that falls does."""
TICKS = 6
"""Powers of ten on an axis, at most."""


def pick_depths(records: Sequence[Record]) -> Picked:
    """The runs by depth; depths of the study that have none are gaps, unless others than its are there."""
    measured = [r for r in records if r.spec and r.snapshots and _is_measured(r)]
    if not measured:
        raise CreditscopeError(
            f"Expected records that were measured layer by layer, those of a GCN, but got none among {len(records)}. "
            "Train them with this version of creditscope."
        )
    known = {field_of(spec_of(record), DEPTH) for record in measured} <= set(DEPTHS)
    return pick(measured, vary={"depth": DEPTH}, where={DEPTH: DEPTHS} if known else {})


def _is_measured(record: Record) -> bool:
    """Whether it has all that is drawn: states, probes, and weight gradients with their float32 norms."""
    layers, weights = record.last.layers, record.last.weights
    return bool(layers and layers.probe and weights and weights.exact_float32)


def name(cell: Cell) -> str:
    """Of a depth."""
    return f"L = {cell.key[0]}"


def say_recipe(record: Record, seeds: Sequence[int]) -> str:
    """The setting of a run and of those that differ from it in depth."""
    spec = spec_of(record)
    options = {option: value for option, value in spec.net_options.items() if option != "depth"}
    bare = replace(record, spec=replace(spec, net_options=options))
    return f"{group_methods([bare])[0].setting}; {count(len(seeds), 'seed')}"


def look_of(found: Picked, cell: Cell) -> dict[str, Any]:
    """Colour, marker and place in the stack."""
    place = found.along("depth").index(cell.key[0])
    colour, marker, size = LOOKS[place % len(LOOKS)]
    return {"color": colour, "marker": marker, "ms": size, "lw": 1.2, "zorder": 4 - 0.1 * place}


def depth_keys(found: Picked, *, named: bool) -> list[Line2D]:
    """One for each depth, or if lines are named for those without any; a gap says so."""
    labels = {cell.key: name(cell) if cell else f"{name(cell)}: not on record" for cell in found}
    shown = [cell for cell in found if not named or not cell]
    return [Line2D([], [], label=labels[cell.key], **look_of(found, cell)) for cell in shown]


def draw_by_layer(
    ax: Axes, found: Picked, values: Callable[[Cell], np.ndarray], *, floor: float = -math.inf, labels: bool = True
) -> None:
    """Median and quartiles over seeds of (seeds, layers), a line per depth; what is below the floor lies on it."""
    drawn: list[tuple[Cell, np.ndarray]] = []
    for cell in found.drawn:
        low, middle, high = (np.maximum(q, floor) for q in quartiles(values(cell)))
        look = look_of(found, cell)
        ax.fill_between(np.arange(len(low)), low, high, color=look["color"], alpha=0.18, lw=0, zorder=2)
        ax.plot(middle, gid=name(cell), **look)
        drawn.append((cell, middle))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.margins(x=0.06, y=HEADROOM)
    deepest = max(len(middle) for _, middle in drawn) - 1
    for cell, middle in drawn if labels else ():
        if len(known := np.flatnonzero(np.isfinite(middle))):
            ends = [(int(at), float(middle[at])) for at in known[-2:]]
            _name_line(ax, name(cell), ends, look_of(found, cell)["color"], back=known[-1] > BACK * deepest)


def _name_line(ax: Axes, text: str, ends: Sequence[tuple[int, float]], colour: str, *, back: bool) -> None:
    """Beside the last point of a line, within the axes: below it if the line falls there, else above."""
    heights = (ax.transScale + ax.transLimits).transform(ends)[:, 1]
    below = heights[-1] < heights[0] - STEEP
    side: dict[str, Any] = {"ha": "right" if back or below else "left", "va": "top" if below else "bottom"}
    side["xytext"] = (4 if back else 2, -4 if below else 3)
    ax.annotate(text, ends[-1], textcoords="offset points", size=SMALL, color=colour, zorder=6, **side)


def draw_log_axis(ax: Axes, values: Sequence[np.ndarray]) -> float:
    """A log axis around them, with a tick for 0 at its foot if one is among them; the height of that tick."""
    known = np.concatenate([np.ravel(own) for own in values])
    above = known[known > 0]
    low, high = (math.log10(edge) for edge in (above.min(), above.max())) if len(above) else (0.0, 0.0)
    first, last = math.floor(low), max(math.ceil(high), math.floor(low) + 1)
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100) if (last - first) / s < TICKS)
    marks = range(-(-first // step) * step, last + 1, step)
    set_log(ax)
    ticks, labels = [10.0**mark for mark in marks], [f"10{superscript(mark)}" for mark in marks]
    floor = 10 ** (first - 0.14 * (last - first))
    if zeros := bool((known == 0).any()):
        ax.axhline(floor, color=GREY, lw=0.7, ls="--", zorder=1, gid="zero")
        ticks, labels = [floor, *ticks], ["0", *labels]
    ax.set_yticks(ticks, labels)
    ax.minorticks_off()
    ax.set_ylim(
        (floor if zeros else 10.0**first) / 10 ** (0.05 * (last - first)), 10 ** (last + HEADROOM * (last - first))
    )
    return floor


def quartiles(values: np.ndarray) -> np.ndarray:
    """Lower quartile, median and upper quartile over seeds (the first axis) of the values there are; else NaN."""
    with warnings.catch_warnings(category=RuntimeWarning, action="ignore"):
        return np.nanquantile(values, (0.25, 0.5, 0.75), axis=0)


def median(values: np.ndarray) -> float | None:
    """Of all there are."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else None


def decay_ratios(cell: Cell) -> np.ndarray:
    """weight_decay · ‖W‖ / ‖∂L/∂W‖ before training, (seeds, layers); 0 for layers that do not decay.

    NaN where decay is no part of the gradient, or not known.
    """
    spec = spec_of(cell.first)
    sizes, gradients = (cell.values(f"weights.{field}", untrained=True) for field in ("w_norm", "exact_norm"))
    if spec.optimiser == "adamw" or cell.first.snapshots[0].epoch or np.isnan(sizes).all():
        return np.array([np.nan])
    decays = spec.weight_decay * sizes
    decays[:, 1:] *= spec.decay_on == "all"
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((decays == 0) & ~np.isnan(gradients), 0.0, decays / gradients)
