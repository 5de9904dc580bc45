"""Numbers over seeds in words."""

from collections.abc import Sequence

from creditscope.auditing.stats import geometric_interval, t_interval
from creditscope.record import Record
from creditscope.text import number


def size(value: float) -> str:
    """Two digits and a power of ten."""
    return number(value, ".1e")


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
