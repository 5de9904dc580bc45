"""The one table of thresholds: checks, reference lines and docs all read it.

Ours and, where the published protocol (arXiv 2606.21126) states one, its threshold beside it.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Any

from creditscope.errors import CreditscopeError, UnknownNameError

PUBLISHED_GROWTH, PUBLISHED_FLOOR, PUBLISHED_GAIN = 50.0, 1.28e-5, 0.02
"""The published protocol's thresholds; unlike ours they do not move."""
PROBABILITIES = ("depth_confidence", "orientation", "chance_confidence")


def _limit(value: float, check: str, meaning: str, published: str = "") -> Any:
    return field(default=value, metadata={"check": check, "meaning": meaning, "published": published})


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Every number a verdict depends on."""

    growth: float = _limit(
        PUBLISHED_GROWTH,
        "CS001",
        "RMS(h_l) / RMS(h_l−1) above this: the block overwrites the stream",
        "50, same quantity",
    )
    noise: float = _limit(0.1, "CS002", "g_noise above this at a tap: the reference is not resolved")
    fitted_rows: float = _limit(0.5, "CS002", "share of rows without a resolvable error above this: unresolved")
    floor: float = _limit(
        PUBLISHED_FLOOR,
        "CS002",
        "median ‖g_L‖ per sample below this: a tip, for comparison only",
        "1e-7 for a mean over N = 128 rows, i.e. 1.28e-5 per sample",
    )
    depth_gain: float = _limit(
        PUBLISHED_GAIN,
        "CS004",
        "accuracy over the better frozen baseline that counts as use of depth",
        "0.02 on the mean, against the method's own frozen baseline, no interval",
    )
    depth_confidence: float = _limit(0.95, "CS004", "one-sided confidence of the paired bound over seeds")
    task_gain: float = _limit(0.05, "CS004", "BP's own gain below this: the task cannot show use of depth")
    seeds: int = _limit(3, "CS004", "fewest seeds for a paired bound")
    orientation: float = _limit(
        0.01,
        "CS005",
        "one-sided level, Holm over the taps, at which credit differs from a random orientation",
    )
    hidden_share: float = _limit(0.5, "CS006", "share of informed taps at or below which a positive Γ hides the layers")
    hidden_taps: int = _limit(3, "CS006", "fewest taps without exact credit for the question to make sense")
    chance_confidence: float = _limit(0.95, "CS010", "one-sided confidence of the bound on accuracy")

    def changed(self, **values: float) -> "Thresholds":
        """A copy with other values; unknown names are refused."""
        names = [f.name for f in fields(self)]
        for name, value in values.items():
            if name not in names:
                raise UnknownNameError("threshold", name, names)
            if not isinstance(value, int | float) or not value >= 0:
                raise CreditscopeError(f"Expected threshold {name!r} to be a number >= 0, but got {value!r}.")
            if name in PROBABILITIES and not 0 < value < 1:
                raise CreditscopeError(f"Expected threshold {name!r} to lie between 0 and 1, but got {value!r}.")
        return replace(self, **values)


def table(limits: Thresholds | None = None) -> list[dict[str, Any]]:
    """One row per threshold: name, value, check, meaning, published."""
    limits = limits or Thresholds()
    return [{"name": f.name, "value": getattr(limits, f.name), **f.metadata} for f in fields(limits)]
