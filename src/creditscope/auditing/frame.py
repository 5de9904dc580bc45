"""An audit as a pandas table."""

from typing import TYPE_CHECKING, Any

from creditscope.auditing.stats import Interval

if TYPE_CHECKING:
    from creditscope.auditing.audit import Audit, MethodAudit


MEANS = ("z", "cos_input", "stage_cos", "beta", "acquired", "descent", "rewind_loss", "skip_loss")
"""Per-tap columns without bounds."""


def audit_frame(audit: "Audit"):
    """One row per method; per-tap columns end in the tap's number."""
    import pandas as pd

    return pd.DataFrame([_row(m) for m in audit.methods])


def _row(m: "MethodAudit") -> dict[str, Any]:
    return {
        "setting": m.setting,
        "method": m.method,
        "seeds": len(m.seeds),
        **_bounds("accuracy", m.accuracy),
        "frozen_own": m.frozen_own.mean if m.frozen_own else None,
        "frozen_bp": m.frozen_bp.mean if m.frozen_bp else None,
        **_bounds("versus_bp", m.versus_bp),
        **_bounds("gain", m.gain),
        "gain_share": m.gain_share,
        "trained_depth_low": m.trained_depth.low if m.trained_depth else None,
        "trained_depth_high": m.trained_depth.high if m.trained_depth else None,
        "gamma": m.gamma,
        "gamma_inexact": m.gamma_inexact,
        "growth": m.growth,
        "g_top": m.g_top,
        **{f"{name}_{tap.tap}": value for tap in m.per_tap for name, value in _bounds("cos", tap.cos).items()},
        **{f"{name}_{tap.tap}": getattr(tap, name) for name in ("answer", "null_sd") for tap in m.per_tap},
        **{f"{name}_{tap.tap}": _mean(getattr(tap, name)) for name in MEANS for tap in m.per_tap},
        "verdict": m.verdict.word,
        "codes": " ".join(m.verdict.codes),
    }


def _mean(interval: Interval | None) -> float | None:
    return interval.mean if interval else None


def _bounds(name: str, interval: Interval | None) -> dict[str, float | None]:
    found = (interval.mean, interval.low, interval.high) if interval else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), found, strict=True))
