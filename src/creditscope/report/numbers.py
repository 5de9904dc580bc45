"""Numbers as the page writes them."""

import math
from collections.abc import Sequence

from creditscope.auditing.stats import Interval

DIGITS = 4
"""Significant digits of the numbers that the script looks up."""


def four(value: float | None) -> float | None:
    """Rounded to four significant digits.

    >>> four(0.123456), four(1.23456e-9), four(None)
    (0.1235, 1.235e-09, None)
    """
    return None if value is None or not math.isfinite(value) else float(f"{value:.{DIGITS}g}")


def mean(values: Sequence[float | None], *, geometric: bool) -> float | None:
    """Over the seeds that have a value; sizes on a log scale, unless one of them is exactly zero.

    >>> mean([1.0, 100.0, None], geometric=True), mean([0.0, 2.0], geometric=True), mean([None], geometric=False)
    (10.0, 1.0, None)
    """
    known = [v for v in values if v is not None]
    if not known:
        return None
    if geometric and min(known) > 0:
        return math.exp(sum(map(math.log, known)) / len(known))
    return sum(known) / len(known)


def interval(found: Interval | None, form: str = ".3f") -> str:
    """In words, or a dash."""
    return "–" if found is None else found.text(form).replace("-", "−")


def plain(value: float | None, form: str) -> str:
    """Formatted, or a dash."""
    return "–" if value is None else format(value, form).replace("-", "−")


def plural(count: int, word: str) -> str:
    """A count with its word.

    >>> plural(1, "run"), plural(2079, "run")
    ('1 run', '2,079 runs')
    """
    return f"{count:,} {word}{'s' * (count != 1)}"


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
