"""Use of depth as tables: accuracy by trained blocks, and what is lost when one block is put back or skipped."""

from collections.abc import Sequence

from rich.console import Group, RenderableType

from creditscope.auditing.audit import MethodAudit
from creditscope.auditing.stats import write_points
from creditscope.auditing.tables import fit_tables, note
from creditscope.text import DASH, number, points


def depth_table(methods: Sequence[MethodAudit], width: int) -> Group | None:
    """Gains over the baselines with the rungs of the depth ladder, and the blocks; None where there is neither."""
    parts = [*_ladder(methods, width), *_blocks(methods, width)]
    return Group(*parts) if parts else None


def _ladder(methods: Sequence[MethodAudit], width: int) -> list[RenderableType]:
    rungs = sorted({rung.trained for m in methods for rung in m.ladder})
    if not rungs:
        return []
    columns = {f"last {k} trained" if k else "none trained": [_rung(m, k) for m in methods] for k in rungs}
    columns |= {
        "all trained": [number(m.accuracy.mean if m.accuracy else None, ".3f") for m in methods],
        "− BP": [write_points(m.versus_bp) for m in methods],
        "Δ": [write_points(m.gain) for m in methods],
        "Δ/Δ_BP": [number(m.gain_share if _has_room(m) else None, ".0%") for m in methods],
    }
    tables = fit_tables("use of depth", [m.method for m in methods], columns, width)
    caption = (
        "accuracy by trained blocks, with (full run − this one) in pp, ± 95 % t interval of the difference paired by "
        "seed · Δ over the better frozen baseline, own or BP's · − BP: accuracy minus BP's"
    )
    return [*tables, note(caption)]


def _blocks(methods: Sequence[MethodAudit], width: int) -> list[RenderableType]:
    """What each block is worth to the trained net."""
    most = max(methods, key=lambda m: len(m.taps))
    known = [i for i in range(len(most.taps)) if any(_worth(m, i) != DASH for m in methods)]
    if not known:
        return []
    columns = {f"tap {i} {most.taps[i]}": [_worth(m, i) for m in methods] for i in known}
    if any(m.trained_depth for m in methods):
        columns["trained depth"] = [
            m.trained_depth.beside(m.bp_trained_depth) if m.trained_depth else DASH for m in methods
        ]
    tables = fit_tables("block put back", [m.method for m in methods], columns, width)
    skipped = " (when it is skipped)" if any(tap.skip_loss for m in methods for tap in m.per_tap) else ""
    caption = f"accuracy lost, pp, when this block alone is put back to where it began{skipped}, ± 95 % over seeds"
    if "trained depth" in columns:
        caption += " · trained depth: blocks that cost what counts, by their bounds; dependence, not benefit (CS011)"
    return [*tables, note(caption)]


def _worth(m: MethodAudit, tap: int) -> str:
    if tap >= len(m.per_tap):
        return ""
    back, skipped = m.per_tap[tap].rewind_loss, m.per_tap[tap].skip_loss
    if back is None and skipped is None:
        return DASH
    return write_points(back) + (f" ({points(skipped.mean)})" if skipped else "")


def _has_room(m: MethodAudit) -> bool:
    """Whether BP certainly gains, so that a share of its gain says something."""
    return m.bp_gain is not None and m.bp_gain.low is not None and m.bp_gain.low > 0


def _rung(m: MethodAudit, trained: int) -> str:
    found = next((rung for rung in m.ladder if rung.trained == trained), None)
    if found is None:
        return DASH
    return f"{found.accuracy.mean:.3f} ({write_points(found.below_full)})"
