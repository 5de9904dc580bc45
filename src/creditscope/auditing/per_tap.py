"""What each tap was told, over seeds: every per-tap quantity of the last snapshots with its interval."""

from collections.abc import Sequence
from dataclasses import dataclass

from creditscope.auditing.growth import growths
from creditscope.auditing.methods import Method
from creditscope.auditing.moment import Moment
from creditscope.auditing.stats import INTERVALS, Interval, Kind, geometric_interval, known_mean
from creditscope.record import Snapshot


@dataclass(frozen=True, kw_only=True)
class TapAudit:
    """One tap of a method; intervals are over seeds, None where nothing was measured."""

    tap: int
    name: str
    exact: bool
    """Whether it is handed the exact gradient."""
    cos: Interval | None
    cos_F: Interval | None  # noqa: N815 (the field's own symbol)
    null_sd: float | None
    """Mean over seeds of the sd of a random orientation."""
    z: Interval | None
    fresh_cos: Interval | None
    acquired: Interval | None
    """Alignment acquired: cos − fresh_cos, within each seed."""
    permuted_cos: Interval | None
    descent: Interval | None
    descent_null: float | None
    descent_null_sd: float | None
    rho: Interval | None
    growth: Interval | None
    """RMS of the state over that of the tap before, where a residual block lies between; geometric."""
    h_norm: Interval | None
    """Median ‖h‖ per sample; geometric."""
    g_norm: Interval | None
    """Median ‖g‖ per sample; geometric."""
    g_rel: Interval | None
    g_noise: float | None
    """The worst seed's."""
    common: Interval | None
    drift: Interval | None
    ratio: Interval | None
    probe: Interval | None
    probe_untrained: Interval | None
    skip_one: Interval | None


LINEAR = ("cos", "cos_F", "z", "fresh_cos", "permuted_cos", "descent", "rho", "common", "drift", "skip_one")
GEOMETRIC = ("h_norm", "g_norm", "g_rel", "ratio")


def audit_taps(method: Method, *, kind: Kind) -> tuple[TapAudit, ...]:
    """Every tap of a method, over the seeds that did not diverge."""
    moments = [Moment.of(record) for record in method.whole]
    return tuple(_audit_tap(method, moments, tap, kind) for tap in range(len(method.facts.taps)))


def _audit_tap(method: Method, moments: Sequence[Moment], tap: int, kind: Kind) -> TapAudit:
    snapshots = [m.snapshot for m in moments]
    untrained = [m.untrained for m in moments if m.untrained]
    grown = [g for m in moments if (g := growths(m.facts, m.snapshot).get(tap)) is not None]
    found = {name: _interval(_values(snapshots, name, tap), kind) for name in LINEAR}
    found["probe"] = _interval(_probes(snapshots, tap), kind)
    found |= {name: _geometric(_values(snapshots, name, tap), kind) for name in GEOMETRIC}
    return TapAudit(
        tap=tap,
        name=method.facts.taps[tap],
        exact=tap in method.facts.exact_taps,
        null_sd=known_mean(_values(snapshots, "null_sd", tap)),
        descent_null=known_mean(_values(snapshots, "descent_null", tap)),
        descent_null_sd=known_mean(_values(snapshots, "descent_null_sd", tap)),
        acquired=_interval(_acquired(snapshots, tap), kind),
        growth=_geometric(grown, kind),
        g_noise=max(_values(snapshots, "g_noise", tap), default=None),
        probe_untrained=_interval(_probes(untrained, tap), kind),
        **found,
    )


def _values(snapshots: Sequence[Snapshot], name: str, tap: int) -> list[float]:
    """What the seeds measured; an empty tuple and None both mean: nothing."""
    series = [getattr(s.taps, name) for s in snapshots]
    return [values[tap] for values in series if values and values[tap] is not None]


def _probes(snapshots: Sequence[Snapshot], tap: int) -> list[float]:
    series = [s.tap_probe for s in snapshots if s.tap_probe]
    return [probe for values in series if (probe := values[tap]) is not None]


def _acquired(snapshots: Sequence[Snapshot], tap: int) -> list[float]:
    both = [(s.taps.cos[tap], s.taps.fresh_cos[tap]) for s in snapshots if s.taps.fresh_cos]
    return [own - fresh for own, fresh in both if own is not None and fresh is not None]


def _interval(values: list[float], kind: Kind) -> Interval | None:
    return INTERVALS[kind](values) if values else None


def _geometric(values: list[float], kind: Kind) -> Interval | None:
    """None too where a size is exactly zero, which has no logarithm."""
    return geometric_interval(values, kind=kind) if values and min(values) > 0 else None
