"""Is a published number what we measure? One definition, for values, ranges and claims: that of `method.md`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from creditscope.auditing.stats import CONFIDENCE
from creditscope.paper.reproduction._readers import NEVER
from creditscope.paper.reproduction._readings import Reading, Values
from creditscope.paper.reproduction._settings import OURS, Readings

CLOSE = 0.015
"""Distance of accuracies that is said beside: 1.5 pp."""


@dataclass(frozen=True)
class Alternative:
    """The same number under another condition that may be the published one."""

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
    readings: Readings
    alternatives: tuple[Alternative, ...] = ()
    apart: str = ""
    """Why it is not like for like, if it is not: it is shown, and not counted."""

    @property
    def reading(self) -> Reading:
        """Where ours is read."""
        return self.readings[OURS]

    @property
    def depends(self) -> bool:
        """Whether a convention of the rule changes it."""
        return len({id(reading) for reading in self.readings.values()}) > 1

    @property
    def spread(self) -> float | None:
        """The published sd over seeds, if it is known."""
        if self.kind == "seeds":
            return float(np.std([float(text) for text in self.said], ddof=1))
        return float(self.sd) if self.sd else None

    @property
    def seeds(self) -> int:
        """m, 1 if not stated."""
        return len(self.said) if self.kind == "seeds" else self.n or 1

    def bounds(self) -> tuple[float, float]:
        """All numbers that round to what was said; of one value per seed the mean alone."""
        numbers = [float(text) for text in self.said]
        if self.kind == "seeds":
            middle = float(np.mean(numbers))
            return middle, middle
        half = max(unit_of(text) for text in self.said) / 2
        return min(numbers) - half, max(numbers) + half


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
    def far(self) -> bool:
        """Inside, but an accuracy more than 1.5 pp away: the interval is wide."""
        return self.inside is True and self.close is False


def compare(published: Published, values: Values) -> Comparison:
    """The interval, and whether the published number is in it."""
    if not values.by_seed:
        return Comparison(values, inside=False if NEVER in values.lacking.values() else None)
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
    sd = float(np.std(numbers, ddof=1))
    reach, half = _reach(sd, n, published), _t(n - 1) * sd / math.sqrt(n)
    low, high = _back(mean - reach, published.scale), _back(mean + reach, published.scale)
    inside = low <= said_high and said_low <= high and NEVER not in values.lacking.values()
    return Comparison(values, _back(mean, published.scale), half, low, high, inside, close)


def _reach(sd: float, n: int, published: Published) -> float:
    """Half width of the prediction interval."""
    m, theirs = published.seeds, published.spread
    if theirs is None or m < 2:
        return _t(n - 1) * sd * math.sqrt(1 / n + 1 / m)
    ours, others = sd * sd / n, theirs * theirs / m
    if ours + others == 0:
        return 0.0
    freedom = (ours + others) ** 2 / (ours * ours / (n - 1) + others * others / (m - 1))
    return _t(freedom) * math.sqrt(ours + others)


def _t(freedom: float) -> float:
    return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))


def _on_scale(numbers: Sequence[float], scale: str) -> tuple[list[float], bool]:
    """The numbers as they are compared, and whether they can be: a size of 0 has no logarithm."""
    if scale == "linear":
        return list(numbers), True
    return ([math.log10(x) for x in numbers], True) if min(numbers) > 0 else ([], False)


def _back(value: float, scale: str) -> float:
    return value if scale == "linear" else float(10.0**value) if value < 300 else math.inf
