"""Second section: what each layer was told over training, and its final values."""

from collections.abc import Sequence

from creditscope.auditing.audit import MethodAudit
from creditscope.auditing.columns import OF_ANSWER, OF_WORD
from creditscope.auditing.methods import Method
from creditscope.auditing.stats import geometric_interval, write_points
from creditscope.report.grids import QUANTITIES, Grid, Quantity
from creditscope.report.heatmap import draw_heatmap
from creditscope.report.model import Heat, LayerRow, Legend
from creditscope.report.numbers import counted
from creditscope.report.scales import Scale, log_scale
from creditscope.text import DASH, count, name_all, number

NAMES: tuple[str, ...] = (
    "tap",
    "cos",
    "null sd",
    "cos of weights",
    "lost, put back (pp)",
    "lost, skipped (pp)",
    "‖g‖",
    "‖h‖",
    "ρ",
    "rows used",
    "rows without gradient",
    "g_noise",
    "n",
)
"""Columns of the final values."""
FEWEST_EPOCHS = 3
"""Of a quantity that is drawn over epochs, where more were measured."""
COUNTS = ("rows used", "rows without gradient", "n")
"""Said once where they are the same at every tap."""


def make_scales(grids: Sequence[Grid]) -> dict[str, Scale]:
    """One scale per quantity, over all methods of a setting."""
    return {q.name: _scale(q, grids) for q in QUANTITIES}


def _scale(quantity: Quantity, grids: Sequence[Grid]) -> Scale:
    if quantity.kind == "signed":
        return Scale("signed")
    return log_scale(v for grid in grids for v in grid.means.get(quantity.name, ()) if v is not None)


def legends(scales: dict[str, Scale], grids: Sequence[Grid]) -> tuple[Legend, ...]:
    """A bar per quantity that is drawn over epochs."""
    return tuple(
        Legend(
            quantity=q.name,
            symbol=q.symbol,
            title=q.title,
            kind=scales[q.name].letter,
            ticks=scales[q.name].ticks(),
            has_zero=scales[q.name].has_zero,
        )
        for q in QUANTITIES
        if _has_heatmaps(q, grids)
    )


def _has_heatmaps(quantity: Quantity, grids: Sequence[Grid]) -> bool:
    """Whether some method has it: a cosine that is not 1 by construction, and at enough of its epochs for a map."""
    if quantity.name == "cos" and all(grid.all_exact for grid in grids):
        return False
    counts = [(len(grid.epochs_with(quantity.name)), len(grid.epochs)) for grid in grids]
    return any(found > 0 and found >= min(FEWEST_EPOCHS, epochs) for found, epochs in counts)


def say_left_out(grids: Sequence[Grid], shown: Sequence[str]) -> tuple[str, ...]:
    """A line for each quantity that was measured and has no heatmaps."""
    said = []
    for quantity in QUANTITIES:
        epochs = sorted({epoch for grid in grids for epoch in grid.epochs_with(quantity.name)})
        if quantity.name in shown or not epochs:
            continue
        if quantity.name == "cos" and all(grid.all_exact for grid in grids):
            said.append("Every tap is handed the exact gradient: the cosine is 1 by construction.")
        else:
            said.append(
                f"{quantity.symbol}, {quantity.title}, was measured at {name_all('epoch', epochs)} only, too few for a "
                "map: it is in the tables."
            )
    return tuple(said)


def layer_row(
    key: int, found: MethodAudit, method: Method, grid: Grid, scales: dict[str, Scale], shown: Sequence[str]
) -> LayerRow:
    """A method's small multiples, of the quantities that its setting shows."""
    heats = []
    for quantity in QUANTITIES:
        if quantity.name not in shown:
            continue
        there = quantity.name in grid.means
        svg = draw_heatmap(grid, quantity, scales[quantity.name], key=key, method=found.method) if there else None
        heats.append(Heat(svg=svg, missing="" if there else "not measured"))
    alike, head, cells = tap_table(found, method)
    return LayerRow(
        key=key,
        method=found.method,
        word=found.verdict.word,
        symbol=OF_WORD[found.verdict.word],
        heats=tuple(heats),
        seeds=count(len(grid.seeds), "seed"),
        alike=alike,
        head=head,
        taps=cells,
    )


def tap_table(found: MethodAudit, method: Method) -> tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Final values: counts that are the same at every tap in words, the head, and a row per tap, deepest first.

    Means with 95 % intervals over seeds, sizes on a log scale; columns without a value are left out.
    """
    if not method.whole:
        return "no seed came to its end", (), ()
    rows = _tap_rows(found, method)
    columns: dict[str, tuple[str, ...]] = dict(zip(NAMES, zip(*rows, strict=True), strict=True)) if rows else {}
    alike = {name: columns[name][0] for name in COUNTS if columns and len(set(columns[name])) == 1}
    told = ("cos", "null sd", "cos of weights") if len(found.exact_taps) == len(found.taps) else ()
    kept = [n for n, cells in columns.items() if n not in (*alike, *told) and any(cell != DASH for cell in cells)]
    said = ", ".join([*(["every tap is handed the exact gradient"] if told else []), *map(" ".join, alike.items())])
    return said, tuple(kept), tuple(zip(*(columns[name] for name in kept), strict=True))


def _tap_rows(found: MethodAudit, method: Method) -> list[tuple[str, ...]]:
    lasts = [record.last.taps for record in method.whole]
    some_inexact = len(found.exact_taps) < len(found.taps)
    rows = []
    for tap in reversed(found.per_tap):
        at = tap.tap
        rows.append(
            (
                f"{tap.tap} {tap.name}{' (exact)' if tap.exact and some_inexact else ''}",
                f"{OF_ANSWER[tap.answer] if tap.answer else ''} {counted(tap.cos, len(lasts), '+.3f')}".strip(),
                DASH if tap.exact else number(tap.null_sd, ".3f"),
                counted(tap.stage_cos, len(lasts), "+.3f"),
                write_points(tap.rewind_loss),
                write_points(tap.skip_loss),
                _size([t.g_norm[at] for t in lasts], ".2g"),
                _size([t.h_norm[at] for t in lasts], ".3g"),
                counted(tap.rho, len(lasts), "+.3f"),
                f"{min(t.rows_used[at] for t in lasts):,}",
                f"{max(t.rows_no_gradient[at] for t in lasts):,}",
                number(tap.g_noise, ".0e"),
                str(len(lasts)),
            )
        )
    return rows


def _size(values: Sequence[float | None], form: str) -> str:
    """A geometric mean with its interval; where sizes are exactly 0, in how many seeds."""
    known = [v for v in values if v is not None]
    zeros = known.count(0)
    if zeros:
        return "0" if zeros == len(values) else f"0 in {zeros} of {count(len(values), 'seed')}"
    return counted(geometric_interval(known) if known else None, len(values), form)
