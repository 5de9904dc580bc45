"""Which taps carry credit that a random orientation would not."""

from creditscope.auditing.stats import holm
from creditscope.auditing.thresholds import Thresholds
from creditscope.record import Facts, Snapshot


def informed_taps(facts: Facts, snapshot: Snapshot, limits: Thresholds) -> dict[int, bool]:
    """For every tap without exact credit that has a z: whether it is above its null, Holm over those taps."""
    z = {tap: snapshot.taps.z[tap] for tap in facts.inexact_taps}
    known = {tap: value for tap, value in z.items() if value is not None}
    return dict(zip(known, holm(list(known.values()), level=limits.orientation), strict=True))


def not_about_gradients(facts: Facts) -> str | None:
    """Why alignment with the gradient is no question here, or None."""
    if facts.rule.approximates != "gradient":
        return f"the rule approximates {facts.rule.approximates}, not the gradient"
    if not facts.inexact_taps:
        return "every tap is handed the exact gradient"
    return None


def list_taps(taps: list[int]) -> str:
    """In words: tap 2, or taps 2, 3."""
    return f"tap{'s' if len(taps) > 1 else ''} {', '.join(map(str, taps))}"
