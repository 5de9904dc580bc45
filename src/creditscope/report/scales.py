"""From a value to a colour level: signed quantities by a square root, sizes by their logarithm."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from creditscope.report.colours import DIVERGING_LEVELS, SEQUENTIAL_LEVELS
from creditscope.text import superscript

SIGNED_TICKS = ((-1.0, "−1"), (-0.25, "−.25"), (0.0, "0"), (0.25, ".25"), (1.0, "1"))
MOST_TICKS = 4


@dataclass(frozen=True)
class Scale:
    """One quantity's colours in one setting."""

    kind: Literal["signed", "log"]
    low: float = -1.0
    high: float = 1.0
    """Ends; of a log scale their logarithms to base 10."""
    has_zero: bool = False
    """Whether a size is exactly zero somewhere, which no logarithm shows."""

    @property
    def letter(self) -> str:
        """The classes of its colours begin with it."""
        return "d" if self.kind == "signed" else "s"

    def place(self, value: float) -> float:
        """From 0 to 1 along the bar.

        >>> Scale("signed").place(-0.25), Scale("log", -2, 2).place(10)
        (0.25, 0.75)
        """
        if self.kind == "signed":
            return 0.5 + 0.5 * math.copysign(math.sqrt(min(abs(value), 1.0)), value)
        return min(max((math.log10(value) - self.low) / (self.high - self.low), 0.0), 1.0)

    def css(self, value: float) -> str:
        """The class of a value's colour."""
        if self.kind == "log" and value == 0:
            return "zero"
        levels = DIVERGING_LEVELS if self.kind == "signed" else SEQUENTIAL_LEVELS
        return f"{self.letter}{round(self.place(value) * (levels - 1))}"

    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Places and labels."""
        if self.kind == "signed":
            return tuple((self.place(value), label) for value, label in SIGNED_TICKS)
        inner = decades(self.low, self.high, MOST_TICKS)
        room = (self.high - self.low) / MOST_TICKS  # both ends of a bar are labelled, and nothing right beside them
        shown = [e for e in inner if e == inner[0] or self.high - e > room / 2 or e == self.high]
        ends = [] if shown[-1] == self.high else [round(self.high)]
        return tuple((self.place(10.0**e), power(e)) for e in (*shown, *ends))


def log_scale(values: Iterable[float]) -> Scale:
    """A scale over all sizes of a setting, to whole decades where they span more than one."""
    found = list(values)
    positive = [math.log10(v) for v in found if v > 0]
    low, high = (min(positive), max(positive)) if positive else (0.0, 1.0)
    low, high = math.floor(low + 1e-9), math.ceil(high - 1e-9)
    return Scale("log", low, max(high, low + 1), has_zero=any(v == 0 for v in found))


def decades(low: float, high: float, most: int) -> list[int]:
    """Whole powers between two at equal steps from the lowest on, at most so many.

    >>> decades(-7, 2, 4), decades(-9, 1, 4)
    ([-7, -4, -1, 2], [-9, -5, -1])
    """
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    step = max(1, math.ceil((last - first) / max(most - 1, 1)))
    return list(range(first, last + 1, step))


def power(exponent: int) -> str:
    """A power of ten as people write it.

    >>> power(-5), power(0), power(2)
    ('10⁻⁵', '1', '100')
    """
    if 0 <= exponent <= 3:
        return str(10**exponent)
    if -3 <= exponent < 0:
        return f"{10.0**exponent:g}"
    return f"10{superscript(exponent)}"
