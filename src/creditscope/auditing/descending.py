"""How far the loss falls along a rule's credit or updates, over seeds, against a null and against the gradient."""

import math
from collections.abc import Sequence

from creditscope.auditing.moment import Moment
from creditscope.auditing.stats import t_bounds, t_point
from creditscope.auditing.told import Estimate


def descent_estimate(
    moments: Sequence[Moment], tap: int, name: str, *, over_null: bool, confidence: float
) -> Estimate | None:
    """Of `descent` or `descent_stage`, as it is or less the mean of its null; None where it was not measured.

    Over seeds by t; of one run by the spread over its rotations.
    """
    known = [_one(m, tap, name) for m in moments]
    found = [one for one in known if one is not None]
    if len(found) < len(known):
        return None
    values = tuple(value - null * over_null for value, null, _, _ in found)
    if len(moments) > 1:
        low, high = t_bounds(values, confidence=confidence)
        return Estimate(values, low, high, 0.0, 0.0)
    value, (_, _, sd, turns) = values[0], found[0]
    reach = t_point(turns - 1, confidence) * sd * math.sqrt(1 + 1 / turns)
    return Estimate(values, value - reach, value + reach, 0.0, 0.0)


def _one(moment: Moment, tap: int, name: str) -> tuple[float, float, float, int] | None:
    """The value, mean and sd of its null, and the rotations behind them."""
    taps = moment.snapshot.taps
    series = [getattr(taps, name), getattr(taps, f"{name}_null"), getattr(taps, f"{name}_null_sd")]
    if not all(series):
        return None
    value, mean, sd = (values[tap] for values in series)
    if value is None or mean is None or sd is None:
        return None
    return value, mean, sd, moment.snapshot.descent_turns
