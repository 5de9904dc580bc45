"""A log axis that has room for zeros."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from creditscope.paper.figures._style import GREY, INK, SMALL

MOST_TICKS = 6


@dataclass(frozen=True)
class LogScale:
    """A log axis with room under the data for zeros: the lowest floor, a higher one for a second kind, and the ends."""

    floor: float
    second: float
    low: float
    high: float

    @classmethod
    def of(cls, *values: np.ndarray, zeros: bool, second: bool = False) -> "LogScale":
        """For the values above 0; floors lie a tenth of their span apart."""
        positive = np.concatenate([v[np.isfinite(v) & (v > 0)] for v in values])
        least, most = (float(positive.min()), float(positive.max())) if len(positive) else (1.0, 1.0)
        room = 10 ** max(0.11 * math.log10(most / least), 0.35)
        upper = least / room
        floor = upper / room**1.3 if second else upper
        low = floor / room if zeros else upper / room if second else least / room**0.5
        return cls(floor, upper, low, most * room**0.7)

    def ticks(self) -> list[float]:
        """Powers of ten above the floors, evenly spaced, not too many."""
        lowest = math.ceil(math.log10(max(self.low, self.second)))
        highest = math.floor(math.log10(self.high))
        step = next(s for s in (1, 2, 5, 10, 20, 50, 100) if highest // s - -(-lowest // s) < MOST_TICKS)
        return [10.0**e for e in range(-(-lowest // step) * step, highest + 1, step)]


def draw_log_axis(ax: Axes, scale: LogScale) -> None:
    """Limits and ticks."""
    ax.set(yscale="log", ylim=(scale.low, scale.high))
    ax.set_yticks(scale.ticks())
    ax.minorticks_off()


def draw_floor(ax: Axes, y: float, said: str, *, x: float = 1.0) -> None:
    """The line that zeros are drawn on, with what it means under it, up to (1) or from (0) a side."""
    ax.axhline(y, color=GREY, lw=0.7, ls="--", zorder=1, gid=said)
    where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "top"}
    side: dict[str, Any] = {"ha": "right", "xytext": (0, -3)} if x else {"ha": "left", "xytext": (3, -3)}
    ax.annotate(said, (x, y), size=SMALL, color=INK, **where, **side)
