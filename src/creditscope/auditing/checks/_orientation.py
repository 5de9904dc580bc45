"""Which taps carry credit that a random orientation would not."""

import math
from collections.abc import Mapping

from creditscope.auditing.stats import holm, t_as_z
from creditscope.auditing.thresholds import Thresholds
from creditscope.record import Facts, Snapshot
from creditscope.record.schema import DESCENT_TURNS
from creditscope.words import name_all


def informed_taps(facts: Facts, snapshot: Snapshot, limits: Thresholds) -> dict[int, bool]:
    """For every tap without exact credit that has a z: whether it is above its null, Holm over those taps."""
    return _above({tap: snapshot.taps.z[tap] for tap in facts.inexact_taps}, limits)


def descending_taps(facts: Facts, snapshot: Snapshot, limits: Thresholds) -> dict[int, bool]:
    """The same of `descent` against its own null, whose mean and sd come from few rotations: by Student's t."""
    found = {tap: descent_z(snapshot, tap) for tap in facts.inexact_taps}
    wider = math.sqrt(1 + 1 / DESCENT_TURNS)
    return _above({t: z if z is None else t_as_z(z / wider, DESCENT_TURNS - 1) for t, z in found.items()}, limits)


def descent_z(snapshot: Snapshot, tap: int) -> float | None:
    """(descent − mean of its null) / sd of its null; None where it was not measured."""
    taps = snapshot.taps
    if not (taps.descent and taps.descent_null and taps.descent_null_sd):
        return None
    found, mean, sd = taps.descent[tap], taps.descent_null[tap], taps.descent_null_sd[tap]
    if found is None or mean is None or sd is None:
        return None
    if sd == 0:  # every rotation does the same, so any step beyond it is beyond the null
        return math.inf if found > mean else 0.0
    return (found - mean) / sd


def _above(z: Mapping[int, float | None], limits: Thresholds) -> dict[int, bool]:
    known = {tap: value for tap, value in z.items() if value is not None}
    return dict(zip(known, holm(list(known.values()), level=limits.orientation), strict=True))


def cut_off_taps(facts: Facts, snapshot: Snapshot) -> list[int]:
    """Taps that would be handed the exact gradient, but no row has one there."""
    about = facts.rule.approximates == "gradient"
    return [tap for tap in facts.exact_taps if about and not snapshot.taps.rows_used[tap]]


def not_about_gradients(facts: Facts, snapshot: Snapshot) -> str | None:
    """Why alignment with the gradient is no question here, or None."""
    if facts.rule.approximates != "gradient":
        return f"the rule approximates {facts.rule.approximates}, not the gradient"
    if not facts.inexact_taps:
        lost = cut_off_taps(facts, snapshot)
        return f"no gradient arrives at {name_all('tap', lost)}" if lost else "every tap is handed the exact gradient"
    return None
