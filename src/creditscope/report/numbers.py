"""Numbers as the page needs them: rounded for the script, with their seeds, epochs thinned."""

import math
from collections.abc import Sequence

from creditscope.auditing.stats import Interval, write_interval

DIGITS = 4
"""Significant digits of the numbers that the script looks up."""


def four(value: float) -> float | None:
    """Rounded to four significant digits; None for what is no number.

    >>> four(0.123456), four(1.23456e-9), four(1024.0), four(math.nan)
    (0.1235, 1.235e-09, 1024, None)
    """
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def counted(found: Interval | None, n: int, form: str = ".3f") -> str:
    """In words, with its number of seeds where that is not `n`.

    >>> counted(Interval(0.5, 0.4, 0.6, 3), 20), counted(Interval(0.5, 0.4, 0.6, 3), 3)
    ('0.500 ± 0.100 (n = 3)', '0.500 ± 0.100')
    """
    said = write_interval(found, form)
    return said if found is None or found.n == n or "n =" in said else f"{said} (n = {found.n})"


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
