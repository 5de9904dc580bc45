"""Words that captions share."""

import math
from collections.abc import Callable, Sequence

from creditscope.auditing.stats import Interval
from creditscope.text import DASH, name_all
from creditscope.text import number as formatted

OPTIMISERS = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD"}
"""As they are written."""
PLUS_MINUS = "\u00a0±\u00a0"
FINEST = 6
"""Decimals beyond which nothing is written: nets compute in float32, which resolves no more."""


def number(value: float, *, digits: int = 2) -> str:
    """A decimal with a true minus sign."""
    return "unmeasured" if math.isnan(value) else formatted(value, f".{digits}f")


def signed(value: float, *, digits: int = 1) -> str:
    """The same with its sign, whichever it is; what rounds to zero has none.

    >>> signed(0.25), signed(-3.0), signed(-0.04)
    ('+0.2', '−3.0', '0.0')
    """
    if math.isnan(value):
        return "unmeasured"
    text = formatted(value, f"+.{digits}f")
    return text if text.strip("+−0.") else text[1:]


def decimals(value: float, least: int) -> int:
    """So many, or as many more as the first digit of `value` needs: a small number is not written as if it were none.

    >>> decimals(0.3, 1), decimals(-0.04, 1), decimals(0.0, 1)
    (1, 2, 1)
    """
    return next((digits for digits in range(least, FINEST + 1) if float(f"{value:.{digits}f}")), least)


def share(value: float, *, digits: int = 2) -> str:
    """A number from 0 to 1 without its leading zero.

    >>> share(0.66), share(1.0), share(0.615, digits=3)
    ('.66', '1.00', '.615')
    """
    return number(value, digits=digits).lstrip("0")


def accuracy_words(found: Interval | None) -> str:
    """Mean ± half of the interval, of numbers from 0 to 1.

    >>> accuracy_words(Interval(0.66, 0.61, 0.71, 5))
    '.66\\xa0±\\xa0.05'
    """
    if found is None:
        return DASH
    return with_spread(found.mean, half_width(found), write=share, digits=2)


def half_width(found: Interval) -> float:
    """Of an interval; NaN for a single value."""
    return math.nan if found.high is None else found.high - found.mean


def interval_words(found: Interval, *, digits: int = 1, unit: str = "") -> str:
    """A difference with its bounds, which show on which side of zero they are.

    >>> interval_words(Interval(-0.11, -0.19, -0.03, 3)), interval_words(Interval(5.9, 4.4, 7.4, 3), unit=" pp")
    ('−0.1 [−0.2, −0.03]', '+5.9 pp [+4.4, +7.4]')
    """
    if found.low is None or found.high is None:
        return f"{signed(found.mean, digits=digits)}{unit} (one seed)"
    digits = decimals(half_width(found), digits)
    low, high = (signed(bound, digits=decimals(bound, digits)) for bound in (found.low, found.high))
    return f"{signed(found.mean, digits=digits)}{unit} [{low}, {high}]"


def seed_words(seeds: Sequence[int]) -> str:
    """Which, and how many.

    >>> seed_words((1, 2))
    'seeds 1, 2 (n\\xa0=\\xa02)'
    """
    return f"{name_all('seed', seeds)} (n\u00a0=\u00a0{len(seeds)})"


def with_spread(mean: float, spread: float, *, write: Callable[..., str] = number, digits: int = 1) -> str:
    """Mean ± spread, where there is one; both have more decimals where the spread would else round to zero.

    >>> with_spread(2.71, 0.3), with_spread(2.71, 0.04), with_spread(2.71, 0.0)
    ('2.7\\xa0±\\xa00.3', '2.71\\xa0±\\xa00.04', '2.7\\xa0±\\xa00')
    """
    if math.isnan(spread):
        return write(mean, digits=digits)
    digits = decimals(spread, digits)
    size = (share if write is share else number)(spread, digits=digits)
    return f"{write(mean, digits=digits)}{PLUS_MINUS}{size if size.strip('0.') else '0'}"


def spread_cell(mean: float, spread: float, *, digits: int) -> str:
    """The same for a table that is also printed, with plain spaces."""
    return with_spread(mean, spread, digits=digits).replace("\u00a0", " ")
