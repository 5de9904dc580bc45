"""Intervals and tests: t or bootstrap over seeds (ddof 1, test set fixed), exact binomial, Holm."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np

from creditscope.auditing.quantiles import beta_point, normal_point, t_point, t_share
from creditscope.text import DASH, number, points

IntervalKind = Literal["t", "bootstrap"]
CONFIDENCE = 0.95
"""Of every interval that is shown; bounds that decide have theirs in the thresholds."""
DRAWS = 4000
"""Resamples of a bootstrap."""


OVER_SEEDS = "seeds; test set fixed"


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its two-sided interval; bounds are None for a single value."""

    mean: float
    low: float | None
    high: float | None
    n: int
    kind: IntervalKind = "t"
    over: str = OVER_SEEDS
    """What was drawn anew, and what was not."""
    scale: Literal["linear", "log"] = "linear"
    """Where the mean was taken; on a log scale it is the geometric one."""

    @property
    def ends(self) -> tuple[float, float]:
        """Its bounds, to be drawn: for a single value that value twice."""
        return self.mean if self.low is None else self.low, self.mean if self.high is None else self.high

    def __str__(self) -> str:
        return self.text()

    def text(self, form: str = ".3f") -> str:
        """In words: mean ± half width, on a log scale a factor, or the bounds where they are not symmetric.

        >>> Interval(-0.5, -0.6, -0.4, 3).text("+.2f"), Interval(2e-5, 1e-5, 4e-5, 3, scale="log").text(".2g")
        ('−0.50 ± 0.10', '2e-5 ×÷ 2')
        >>> Interval(0.5, 0.45, 0.6, 3, kind="bootstrap").text(".2f"), Interval(0.5, None, None, 1).text(".2f")
        ('0.50 [0.45, 0.60]', '0.50 (n = 1)')
        """
        mean = number(self.mean, form)
        if self.low is None or self.high is None:
            return f"{mean} (n = {self.n})"
        if self.kind == "bootstrap":
            return f"{mean} [{number(self.low, form)}, {number(self.high, form)}]"
        if self.scale == "linear":
            return f"{mean} ± {number(self.high - self.mean, form.lstrip('+'))}"
        factor = self.high / self.mean
        return f"{mean} ×÷ {number(factor, '.2f' if factor < 1.2 else '.2g')}"


def write_interval(found: Interval | None, form: str = ".3f", *, n: int | None = None) -> str:
    """In words, or a dash; with its number of seeds where that is not `n`.

    >>> write_interval(Interval(0.5, 0.4, 0.6, 3), n=20), write_interval(Interval(0.5, 0.4, 0.6, 3), n=3)
    ('0.500 ± 0.100 (n = 3)', '0.500 ± 0.100')
    """
    if found is None:
        return DASH
    said = found.text(form)
    return said if n in (None, found.n) or "n =" in said else f"{said} (n = {found.n})"


def write_points(found: Interval | None) -> str:
    """A difference of shares in percentage points.

    >>> write_points(Interval(0.021, 0.011, 0.031, 3)), write_points(Interval(-0.1, None, None, 1))
    ('+2.1 ± 1.0', '−10.0')
    """
    if found is None:
        return DASH
    half = "" if found.high is None else f" ± {100 * (found.high - found.mean):.1f}"
    return points(found.mean) + half


def known_mean(values: Iterable[float | None]) -> float | None:
    """Of the values there are; None if there is none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def t_interval(values: Sequence[float]) -> Interval:
    """Two-sided t interval of the mean."""
    mean, half = _mean_and_half(values, 0.5 + CONFIDENCE / 2)
    return Interval(mean, *((None, None) if half is None else (mean - half, mean + half)), len(values))


def bootstrap_interval(values: Sequence[float]) -> Interval:
    """Percentile bootstrap of the mean: seeds are drawn with replacement, the same draws at every call."""
    mean, n, low, high = float(np.mean(values)), len(values), None, None
    if n >= 2:
        means = np.asarray(values, dtype=float)[_resamples(n)].mean(axis=1)
        low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist()
    return Interval(mean, low, high, n, "bootstrap")


INTERVALS: dict[str, Callable[[Sequence[float]], Interval]] = {"t": t_interval, "bootstrap": bootstrap_interval}


def geometric_interval(values: Sequence[float], *, kind: IntervalKind = "t") -> Interval:
    """The interval of the mean logarithm, taken back: for sizes that differ by orders of magnitude."""
    found = INTERVALS[kind](np.log(values).tolist())
    low, high = (None if bound is None else float(np.exp(bound)) for bound in (found.low, found.high))
    return replace(found, mean=float(np.exp(found.mean)), low=low, high=high, scale="log")


@cache
def _resamples(n: int) -> np.ndarray:
    """Indices of all resamples of n values, (draws, n)."""
    return np.random.default_rng(0).integers(n, size=(DRAWS, n))


def t_bounds(values: Sequence[float], *, confidence: float) -> tuple[float, float]:
    """One-sided lower and upper t bounds of the mean of at least two values, each at `confidence`."""
    mean, half = _mean_and_half(values, confidence)
    assert half is not None
    return mean - half, mean + half


def _mean_and_half(values: Sequence[float], confidence: float) -> tuple[float, float | None]:
    """The mean and how far a one-sided t bound lies from it; np.mean and np.std (ddof 1) without their overhead."""
    array, n = np.array(values, dtype=float), len(values)
    mean = float(np.add.reduce(array)) / n
    if n < 2:
        return mean, None
    apart = array - mean
    sd = math.sqrt(float(np.add.reduce(apart * apart)) / (n - 1))
    return mean, t_point(n - 1, confidence) * sd / n**0.5


def share_bounds(hits: int, n: int, *, confidence: float) -> tuple[float, float]:
    """Exact (Clopper–Pearson) one-sided lower and upper bounds of a share, each at `confidence`."""
    low = beta_point(hits, n - hits + 1, 1 - confidence) if hits else 0.0
    return low, beta_point(hits + 1, n - hits, confidence) if hits < n else 1.0


def below_p(values: Sequence[float], limit: float) -> float:
    """The p-value of a t test that the mean of at least two values is at least `limit`, against less."""
    mean, half = _mean_and_half(values, 0.95)
    assert half is not None
    se = half / t_point(len(values) - 1, 0.95)
    if se == 0:
        return 0.0 if mean < limit else 1.0
    return t_share(len(values) - 1, (mean - limit) / se)


def holm(p: Sequence[float], *, level: float) -> list[bool]:
    """Which p-values are rejected at family-wise `level`, by Holm's step-down."""
    rejected = [False] * len(p)
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[i] > level / (len(p) - rank):
            break
        rejected[i] = True
    return rejected


def z_limit(level: float) -> float:
    """The z above which a single one-sided test rejects at `level`."""
    return normal_point(1 - level)


NULL_SDS = z_limit((1 - CONFIDENCE) / 2)
"""Half width of the two-sided 95 % band of a null, in its standard deviations."""
