"""Numbers as the page needs them: rounded for the script, averaged over seeds, thinned over epochs."""

import math
from collections.abc import Sequence

from creditscope.auditing.stats import Interval, known_mean, write_interval

DIGITS = 4
"""Significant digits of the numbers that the script looks up."""


def four(value: float | None) -> float | None:
    """Rounded to four significant digits.

    >>> four(0.123456), four(1.23456e-9), four(1024.0), four(None)
    (0.1235, 1.235e-09, 1024, None)
    """
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def mean(values: Sequence[float | None], *, geometric: bool) -> float | None:
    """Over the seeds that have a value; sizes on a log scale, unless one of them is exactly zero.

    >>> mean([4.0, 4.0, None], geometric=True), mean([0.0, 2.0], geometric=True), mean([None], geometric=False)
    (4.0, 1.0, None)
    """
    known = [v for v in values if v is not None]
    if geometric and known and min(known) > 0:
        return math.exp(sum(map(math.log, known)) / len(known))
    return known_mean(known)


def counted(found: Interval | None, n: int, form: str = ".3f") -> str:
    """In words, with its number of seeds where that is not `n`.

    >>> counted(Interval(0.5, 0.4, 0.6, 3), 20), counted(Interval(0.5, 0.4, 0.6, 3), 3)
    ('0.500 ± 0.100 (n = 3)', '0.500 ± 0.100')
    """
    return write_interval(found, form, n=n)


def pick(epochs: Sequence[int], most: int) -> tuple[int, ...]:
    """At most so many of ascending epochs, evenly on a log scale of 1 + epoch, first and last among them.

    >>> pick(range(0, 101), 8)
    (0, 1, 3, 6, 13, 26, 51, 100)
    """
    if len(epochs) <= most:
        return tuple(epochs)
    first, last = math.log1p(epochs[0]), math.log1p(epochs[-1])
    chosen = [-1]
    for i in range(most):
        wanted = first + (last - first) * i / (most - 1)
        free = range(chosen[-1] + 1, len(epochs) - most + i + 1)
        chosen.append(min(free, key=lambda j: abs(math.log1p(epochs[j]) - wanted)))
    return tuple(epochs[j] for j in chosen[1:])
