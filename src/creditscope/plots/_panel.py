"""What panels share: their axes, the axis of taps, and a series over taps."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from creditscope.plots._lines import Line, name_room
from creditscope.plots._style import FAINT, line_height, styled
from creditscope.text import subscript

SIZE = (2.9, 2.4)
"""Of a panel that is a figure of its own, without names beside it; inches."""
TICKS = 12
"""Taps that are named on an axis, at most."""
MANY = 10
"""Taps beyond which markers are small and bars pale."""


@contextmanager
def panel(ax: Axes | None, lines: Sequence[Line], *, labels: bool = True) -> Iterator[Axes]:
    """The axes to draw on, in our style, or those of a new figure with room for names."""
    room, rows = (name_room(lines), len(lines)) if labels else (0.0, 0)
    with new_axes(ax, (SIZE[0] + room, max(SIZE[1], 0.9 + line_height() * rows))) as chosen:
        yield chosen


@contextmanager
def new_axes(ax: Axes | None, size: tuple[float, float]) -> Iterator[Axes]:
    """Those given, in our style, or those of a new figure of this size (inches), laid out at the end."""
    with styled():
        if ax is not None:
            yield ax
            return
        fig = Figure(figsize=size, layout="constrained")
        yield fig.add_subplot()
        fig.draw_without_rendering()


def dodge(lines: Sequence[Line]) -> list[float]:
    """A small sideways shift per line, so that bars and equal values stay visible."""
    step = 0.54 / len(lines)
    return [step * (i - (len(lines) - 1) / 2) for i in range(len(lines))]


def draw_series(
    ax: Axes,
    line: Line,
    x: np.ndarray,
    y: np.ndarray,
    bars: tuple[np.ndarray, np.ndarray],
    *,
    joined: Sequence[int],
    hollow: Sequence[int] = (),
) -> None:
    """Bars and markers at every tap, a line through the `joined` ones, white markers at the `hollow` ones."""
    look, name = line.look, line.look.label
    ax.plot(x[list(joined)], y[list(joined)], color=look.colour, ls=line.dashes, lw=1.1, zorder=2, gid=f"{name} line")
    size, cap, alpha = (4.5, 1.5, 1.0) if len(x) <= MANY else (2.8, 0, 0.35)
    thin = {"fmt": "none", "ecolor": look.colour, "elinewidth": 0.8, "capsize": cap, "alpha": alpha}
    ax.errorbar(x, y, np.nan_to_num(bars), zorder=3, **thin)
    filled = [tap for tap in range(len(x)) if tap not in hollow]
    for kind, taps, face in (("filled", filled, look.colour), ("hollow", list(hollow), "white")):
        style = {"color": look.colour, "mfc": face, "ms": size, "ls": ""}
        ax.plot(x[taps], y[taps], marker=look.marker, zorder=4, gid=f"{name} {kind}", **style)


def draw_tap_axis(ax: Axes, lines: Sequence[Line]) -> None:
    """Taps by number, the stem's apart."""
    taps, stem = max(len(line.facts.taps) for line in lines), lines[0].facts.stem_tap
    every = 1 + (taps - 1) // TICKS
    ax.set_xticks(range(0, taps, every), [subscript("h", tap) for tap in range(0, taps, every)])
    ax.set_xlim(-0.5, taps - 0.5)
    ax.set_xlabel("tap (h₀: stem)" if stem else "tap")
    if stem:
        ax.axvline(0.5, color=FAINT, lw=0.5, zorder=1)


def last_known(y: np.ndarray) -> float:
    """Where a line ends, which has its name beside it; NaN if it has no point."""
    known = y[~np.isnan(y)]
    return float(known[-1]) if len(known) else np.nan
