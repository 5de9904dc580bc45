"""Intervals and tests: t over seeds (ddof 1, test set fixed), exact binomial, Holm."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri, stdtrit


@dataclass(frozen=True)
class Interval:
    """A mean with its t interval over seeds; bounds are None for a single seed."""

    mean: float
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:.3f} (n = {self.n})"
        return f"{self.mean:.3f} ± {self.high - self.mean:.3f}"


def t_interval(values: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """Two-sided t interval of the mean.

    >>> str(t_interval([0.6, 0.62, 0.64]))
    '0.620 ± 0.050'
    """
    low, high = t_bounds(values, confidence=0.5 + confidence / 2)
    return Interval(float(np.mean(values)), low, high, len(values))


def t_bounds(values: Sequence[float], *, confidence: float) -> tuple[float | None, float | None]:
    """One-sided lower and upper t bounds of the mean, each at `confidence`; None below two values."""
    n = len(values)
    if n < 2:
        return None, None
    half = float(stdtrit(n - 1, confidence)) * float(np.std(values, ddof=1)) / n**0.5
    mean = float(np.mean(values))
    return mean - half, mean + half


def binomial_lower(accuracy: float, rows: int, *, confidence: float) -> float:
    """Exact (Clopper–Pearson) one-sided lower bound of a share of `rows`."""
    hits = round(accuracy * rows)
    return float(betaincinv(hits, rows - hits + 1, 1 - confidence)) if hits else 0.0


def holm(z: Sequence[float], *, level: float) -> list[bool]:
    """Which one-sided z values are above 0 at family-wise `level`, by Holm's step-down.

    >>> holm([5.0, 2.4, 2.4, 0.0], level=0.01)
    [True, False, False, False]
    """
    p = [float(ndtr(-value)) for value in z]
    rejected = [False] * len(p)
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[i] > level / (len(p) - rank):
            break
        rejected[i] = True
    return rejected


def z_limit(level: float) -> float:
    """The z above which a single one-sided test rejects at `level`."""
    return float(ndtri(1 - level))
