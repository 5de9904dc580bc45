"""Numbers as the page writes them."""

import math
import re
from collections.abc import Sequence

from creditscope.auditing.stats import Interval

_EXPONENT = re.compile(r"e([-+])0+(\d)")
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
    if not known:
        return None
    if geometric and min(known) > 0:
        return math.exp(sum(map(math.log, known)) / len(known))
    return sum(known) / len(known)


def interval(found: Interval | None, form: str = ".3f") -> str:
    """In words, or a dash; on a log scale the half width is a factor.

    >>> interval(Interval(-0.5, -0.6, -0.4, 3), "+.2f"), interval(Interval(2e-5, 1e-5, 4e-5, 3, scale="log"), ".2g")
    ('−0.50 ± 0.10', '2e-5 ×÷ 2')
    """
    if found is None:
        return "–"
    if found.scale == "log" and found.high is not None:
        factor = found.high / found.mean
        return f"{plain(found.mean, form)} ×÷ {plain(factor, '.2f' if factor < 1.2 else '.2g')}"
    return _minus(found.text(form))


def counted(found: Interval | None, n: int, form: str = ".3f") -> str:
    """The same, with its number of seeds where that is not `n`.

    >>> counted(Interval(0.5, 0.4, 0.6, 3), 20), counted(Interval(0.5, 0.4, 0.6, 3), 3)
    ('0.500 ± 0.100 (n = 3)', '0.500 ± 0.100')
    """
    said = interval(found, form)
    return said if found is None or found.n == n or "n =" in said else f"{said} (n = {found.n})"


def plain(value: float | None, form: str) -> str:
    """Formatted, or a dash.

    >>> plain(-0.25, "+.2f"), plain(1.2e-05, ".1e"), plain(None, "g")
    ('−0.25', '1.2e-5', '–')
    """
    return "–" if value is None else _minus(_EXPONENT.sub(r"e\1\2", format(value, form)))


def _minus(text: str) -> str:
    return f"−{text[1:]}" if text.startswith("-") else text


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
