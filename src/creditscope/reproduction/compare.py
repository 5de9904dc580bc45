"""Is a published number what we measure? One definition, for values, ranges and claims.

*Inside*: the published value lies in the 95 % prediction interval for a mean of the published number m of seeds,
mean ± t·sd·√(1/n + 1/m), with mean and sd (ddof 1) over our n seeds, on log10 for sizes. A published number stands for
all that round to it, a range for all within it. Where no m is stated, m = 1. A claim is inside if every seed bears it
out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from creditscope.auditing.stats import CONFIDENCE
from creditscope.reproduction._readers import NEVER
from creditscope.reproduction._readings import Reading, Values

CLOSE = 0.015
"""Distance of accuracies that is said beside: 1.5 pp."""


@dataclass(frozen=True)
class Alternative:
    """The same number under another setting that may be the published one."""

    label: str
    reading: Reading


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published number and where it would be read on our records."""

    id: str
    part: str
    """The heading it is listed under."""
    quantity: str
    said: tuple[str, ...]
    """Digits as printed: one value, the ends of a range, or one value per seed; of a claim its words."""
    kind: Literal["value", "range", "seeds", "claim"] = "value"
    sd: str = ""
    n: int | None = None
    scale: Literal["linear", "log10"] = "linear"
    accuracy: bool = False
    reading: Reading
    alternatives: tuple[Alternative, ...] = ()

    @property
    def seeds(self) -> int:
        """m, 1 if not stated."""
        return len(self.said) if self.kind == "seeds" else self.n or 1

    def bounds(self) -> tuple[float, float]:
        """All numbers that round to what was said."""
        numbers = [float(text) for text in self.said]
        half = max(unit_of(text) for text in self.said) / 2
        middle = sum(numbers) / len(numbers)
        low, high = (middle, middle) if self.kind == "seeds" else (min(numbers), max(numbers))
        return low - half, high + half


def unit_of(text: str) -> float:
    """What the last printed digit stands for.

    >>> unit_of("0.615"), unit_of("1.8e-5"), unit_of("2e2"), unit_of("3")
    (0.001, 1e-06, 100.0, 1.0)
    """
    mantissa, _, exponent = text.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(f"1e{int(exponent or 0) - decimals}")


@dataclass(frozen=True)
class Comparison:
    """One reading beside a published number. Bounds are on the scale of the quantity itself."""

    values: Values
    mean: float | None = None
    half: float | None = None
    """Half width of the 95 % t interval of the mean, on the scale of the entry."""
    low: float | None = None
    high: float | None = None
    """The prediction interval."""
    inside: bool | None = None
    """None: it cannot be said."""
    close: bool | None = None
    """Accuracies: within 1.5 pp."""

    @property
    def n(self) -> int:
        """Seeds with a value."""
        return len(self.values.by_seed)

    @property
    def settled(self) -> bool:
        """Inside, and not merely because the interval is wide."""
        return self.inside is True and self.close is not False


def compare(published: Published, values: Values) -> Comparison:
    """The interval, and whether the published number is in it."""
    if not values.by_seed:
        fires = any(why == NEVER for why, _ in values.lacking)
        return Comparison(values, inside=False if fires else None)
    if published.kind == "claim":
        return Comparison(values, inside=all(values.numbers))
    numbers, usable = _on_scale(values.numbers, published.scale)
    if not usable:
        return Comparison(values, inside=False)
    mean, n = float(np.mean(numbers)), len(numbers)
    said_low, said_high = published.bounds()
    away = max(said_low - mean, mean - said_high, 0.0) if published.accuracy else None
    close = None if away is None else away <= CLOSE
    if n < 2:
        return Comparison(values, _back(mean, published.scale), close=close)
    t, sd = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)), float(np.std(numbers, ddof=1))
    reach = t * sd * math.sqrt(1 / n + 1 / published.seeds)
    low, high = _back(mean - reach, published.scale), _back(mean + reach, published.scale)
    inside = low <= said_high and said_low <= high and not any(why == NEVER for why, _ in values.lacking)
    return Comparison(values, _back(mean, published.scale), t * sd / math.sqrt(n), low, high, inside, close)


def _on_scale(numbers: Sequence[float], scale: str) -> tuple[list[float], bool]:
    """The numbers as they are compared, and whether they can be: a size of 0 has no logarithm."""
    if scale == "linear":
        return list(numbers), True
    return ([math.log10(x) for x in numbers], True) if min(numbers) > 0 else ([], False)


def _back(value: float, scale: str) -> float:
    return value if scale == "linear" else float(10.0**value) if value < 300 else math.inf
