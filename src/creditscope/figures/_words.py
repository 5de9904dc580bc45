"""Words that captions share."""

from collections.abc import Sequence

from creditscope.auditing.stats import Interval
from creditscope.figures._style import number


def join_words(words: Sequence[str]) -> str:
    """In words.

    >>> join_words(["a", "b", "c"]), join_words(["a"]), join_words([])
    ('a, b and c', 'a', '')
    """
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def accuracy_words(found: Interval | None) -> str:
    """Mean ± half of the interval, without a leading zero.

    >>> accuracy_words(Interval(0.66, 0.61, 0.71, 5))
    '.66\\xa0±\\xa0.05'
    """
    if found is None:
        return "–"
    mean = number(found.mean).lstrip("0")
    if found.low is None or found.high is None:
        return mean
    return f"{mean}\u00a0±\u00a0{number(found.high - found.mean).lstrip('0')}"
