"""Numbers in words."""

from collections.abc import Sequence

from creditscope.auditing.stats import geometric_interval, t_interval
from creditscope.record import Record


def size(value: float) -> str:
    """Two digits and a power of ten.

    >>> size(1.44e7), size(4.2e-9), size(0.0)
    ('1.4e7', '4.2e-9', '0')
    """
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def short(value: float) -> str:
    """All its digits, with a short power of ten.

    >>> short(1.28e-5), short(1e4), short(1.0)
    ('1.28e-5', '1e4', '1')
    """
    text = f"{value:g}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.6e}"
    mantissa, e, exponent = text.partition("e")
    return mantissa if not e else f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def mean_of(values: Sequence[float], form: str = ".4f") -> str:
    """Mean ± half width of its 95 % t interval, and n."""
    found = t_interval(values)
    return found.text(form) if found.low is None else f"{found.text(form)} (n = {found.n})"


def sizes_of(values: Sequence[float]) -> str:
    """Geometric mean, its 95 % interval, and n."""
    if min(values) <= 0:
        return f"{size(min(values))} to {size(max(values))} (n = {len(values)})"
    found = geometric_interval(values)
    if found.low is None or found.high is None:
        return f"{size(found.mean)} (n = 1)"
    return f"{size(found.mean)} [{size(found.low)}, {size(found.high)}] (n = {found.n})"


def name_of(record: Record) -> str:
    """The run's name, as its folder is called."""
    return f"`{record.spec.name()}`" if record.spec else "a watched model"


def count(noun: str, number: int) -> str:
    """In words: 1 seed, 2 seeds."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
