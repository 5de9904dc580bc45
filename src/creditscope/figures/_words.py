"""Words that captions share."""

import math
from collections.abc import Sequence

from creditscope.auditing.stats import Interval
from creditscope.words import DASH, name_all
from creditscope.words import number as formatted

OPTIMISERS = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD"}
"""As they are written."""
PLUS_MINUS = "\u00a0±\u00a0"


def number(value: float, *, digits: int = 2) -> str:
    """A decimal with a true minus sign."""
    return "unmeasured" if math.isnan(value) else formatted(value, f".{digits}f")


def signed(value: float, *, digits: int = 1) -> str:
    """The same with its sign, whichever it is."""
    return "unmeasured" if math.isnan(value) else formatted(value, f"+.{digits}f")


def share(value: float, *, digits: int = 2) -> str:
    """A number from 0 to 1 without its leading zero.

    >>> share(0.66), share(1.0), share(0.615, digits=3)
    ('.66', '1.00', '.615')
    """
    return number(value, digits=digits).lstrip("0")


def accuracy_words(found: Interval | None) -> str:
    """Mean ± half of the interval.

    >>> accuracy_words(Interval(0.66, 0.61, 0.71, 5))
    '.66\\xa0±\\xa0.05'
    """
    if found is None:
        return DASH
    if found.low is None or found.high is None:
        return share(found.mean)
    return f"{share(found.mean)}{PLUS_MINUS}{share(found.high - found.mean)}"


def seed_words(seeds: Sequence[int]) -> str:
    """Which, and how many.

    >>> seed_words((1, 2))
    'seeds 1, 2 (n\\xa0=\\xa02)'
    """
    return f"{name_all('seed', seeds)} (n\u00a0=\u00a0{len(seeds)})"


def with_spread(mean: str, sd: float) -> str:
    """A mean in words, with ± sd to one decimal where there is one."""
    return mean if math.isnan(sd) else f"{mean}{PLUS_MINUS}{number(sd, digits=1)}"
