"""Use of depth as a table: accuracy against the number of trained blocks, paired with the full run."""

from collections.abc import Sequence

from rich.console import Group

from creditscope.auditing.audit import MethodAudit
from creditscope.auditing.stats import Interval
from creditscope.auditing.tables import fit_tables, note
from creditscope.words import DASH, number, points


def depth_table(methods: Sequence[MethodAudit], width: int) -> Group | None:
    """Gains over the baselines and the rungs of the depth ladder; None where there are none."""
    rungs = sorted({rung.trained for m in methods for rung in m.ladder})
    if not rungs:
        return None
    columns = {f"last {k} trained" if k else "none trained": [_rung(m, k) for m in methods] for k in rungs}
    columns |= {
        "all trained": [number(m.accuracy.mean if m.accuracy else None, ".3f") for m in methods],
        "− BP": [_points(m.versus_bp) for m in methods],
        "Δ": [_points(m.gain) for m in methods],
        "Δ/Δ_BP": [number(m.gain_share, ".0%") for m in methods],
    }
    tables = fit_tables("use of depth", [m.method for m in methods], columns, width)
    caption = (
        "accuracy by trained blocks, with (full run − this one) in pp, ± 95 % t interval of the difference paired by "
        "seed · Δ over the better frozen baseline, own or BP's · − BP: accuracy minus BP's"
    )
    return Group(*tables, note(caption))


def _rung(m: MethodAudit, trained: int) -> str:
    found = next((rung for rung in m.ladder if rung.trained == trained), None)
    if found is None:
        return DASH
    return f"{found.accuracy.mean:.3f} ({_points(found.below_full)})"


def _points(interval: Interval | None) -> str:
    """In percentage points."""
    if interval is None:
        return DASH
    half = "" if interval.high is None else f" ± {100 * (interval.high - interval.mean):.1f}"
    return points(interval.mean) + half
