"""What each layer was told over training, as heatmaps, and its final values."""

import math
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from markupsafe import Markup, escape

from creditscope.auditing.audit import MethodAudit
from creditscope.auditing.columns import OF_ANSWER, TAPS
from creditscope.auditing.methods import Method
from creditscope.auditing.stats import geometric_interval, write_interval, write_points
from creditscope.plots._quantities import is_size, title
from creditscope.report.colours import SIGNED, Scale, log_scale
from creditscope.report.history import SYMBOLS, LayerHistory
from creditscope.text import DASH, count, name_all

FEWEST_EPOCHS = 3
"""Of a quantity that is drawn over epochs, where more were measured."""
COUNTS = ("rows used", "rows without gradient", "n")
"""Said once where they are the same at every tap."""
LEFT, TOP, BOTTOM, RIGHT = 22, 3, 15, 8
WIDTH, HEIGHT = 240, 120
"""Of the cells together: a map is as wide as its column, however few epochs it has."""
DANGER_SMALL = ("g_norm",)
"""Sizes of which the small ones are a danger."""
NEUTRAL = "#b9c0c8"
"""Of a cosine that is 1 by construction, which is neither well nor a danger."""
LOWEST, TALLEST = 5.0, 18.0
LABEL_GAP_X, LABEL_GAP_Y = 24.0, 14.0
MOST_SPACES = 4


def make_scales(histories: Sequence[LayerHistory]) -> tuple[dict[str, Scale], list[str]]:
    """The colours of each quantity that a setting shows; and a line for each that was measured and is not shown.

    Shown is what some method has at enough of its epochs for a map; a cosine only if it is not 1 by construction.
    """
    scales, notes = {}, []
    for quantity in SYMBOLS:
        found = [(history.epochs_with(quantity), history.epochs) for history in histories]
        measured = sorted({epoch for epochs, _ in found for epoch in epochs})
        if not measured:
            continue
        if quantity == "cos" and all(len(history.exact) == len(history.taps) for history in histories):
            notes.append("Every tap is handed the exact gradient: the cosine is 1 by construction.")
        elif any(epochs and len(epochs) >= min(FEWEST_EPOCHS, len(every)) for epochs, every in found):
            values = [history.means[quantity].ravel() for history in histories if quantity in history.means]
            scales[quantity] = SIGNED
            if is_size(quantity):
                scales[quantity] = log_scale(np.concatenate(values), falling=quantity in DANGER_SMALL)
        else:
            when = name_all("epoch", measured)
            notes.append(f"{title(quantity)} was measured at {when} only, too few for a map: it is in the tables.")
    return scales, notes


def draw_heatmap(history: LayerHistory, quantity: str, scale: Scale, *, key: str, method: str) -> Markup:
    """One method's taps over epochs as SVG, deepest on top; cells without a value keep the hatched ground."""
    means, columns, rows = history.means[quantity], len(history.epochs), len(history.taps)
    wide = round(WIDTH / columns, 3)
    tall = round(min(max(HEIGHT / rows, LOWEST), TALLEST), 1)
    across, down = wide * columns, tall * rows
    width, height = LEFT + across + RIGHT, TOP + down + BOTTOM
    hooks = (
        f'data-heatmap="{key}" data-method="{escape(method)}" data-quantity="{quantity}" data-cell="{wide:g},{tall:g}"'
    )
    ground = f'<rect class="gap" x="{LEFT}" y="{TOP}" width="{across:g}" height="{down:g}"/>'
    return Markup(
        f'<svg class="heat" width="{width:g}" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{SYMBOLS[quantity]} of {escape(method)}" {hooks}>'
        f"{ground if np.isnan(means).any() else ''}"
        f'<g transform="translate({LEFT} {TOP + tall / 2:g}) scale({wide:g} {tall:g})">'
        f"{_cells(means, scale, history.exact if quantity == 'cos' else ())}</g>"
        f"{_dots(history, wide, tall) if quantity == 'cos' else ''}"
        f"{_labels(history, wide, tall)}</svg>"
    )


def _cells(means: np.ndarray, scale: Scale, exact: Sequence[int]) -> str:
    """One path per colour. A cell is a stroke as wide as a row is tall; neighbours of one colour are one stroke."""
    rows = means.shape[1]
    paths: dict[str, list[str]] = {}
    for tap, values in enumerate(means.T.tolist()):
        start, colours = 0, ("" if math.isnan(v) else "exact" if tap in exact else scale.css(v) for v in values)
        for colour, cells in groupby(colours):
            length = len(list(cells))
            if colour:
                paths.setdefault(colour, []).append(f"M{start} {rows - 1 - tap}h{length}")
            start += length
    grey = {"exact": f' stroke="{NEUTRAL}"'}
    return "".join(
        f'<path class="{colour}"{grey.get(colour, "")} d="{"".join(parts)}"/>' for colour, parts in paths.items()
    )


def _dots(history: LayerHistory, wide: float, tall: float) -> str:
    rows = len(history.taps)
    places = np.argwhere(history.in_null).tolist()
    marks = [f"M{LEFT + (e + 0.5) * wide:.4g} {TOP + (rows - 0.5 - tap) * tall:.4g}h0" for e, tap in places]
    return f'<path class="dot" d="{"".join(marks)}"/>' if marks else ""


def _labels(history: LayerHistory, wide: float, tall: float) -> str:
    rows, columns = len(history.taps), len(history.epochs)
    y = f"{TOP + rows * tall + 12:.4g}"
    shown = _spaced(rows, tall, max(LABEL_GAP_Y, rows * tall / MOST_SPACES - 1))
    side = [(tap, TOP + (rows - 0.5 - tap) * tall + 3.5) for tap in shown]
    below = [(history.epochs[i], LEFT + (i + 0.5) * wide) for i in _spaced(columns, wide, LABEL_GAP_X)]
    return (
        f'<g class="y">{"".join(f"<text x=18 y={place:.4g}>{tap}</text>" for tap, place in side)}</g>'
        f'<g class="x">{"".join(f"<text x={place:.4g} y={y}>{epoch}</text>" for epoch, place in below)}</g>'
    )


def _spaced(count: int, step: float, gap: float) -> list[int]:
    """First and last, and those between that leave room for their labels."""
    chosen = [0]
    for i in range(1, count - 1):
        if (i - chosen[-1]) * step >= gap and (count - 1 - i) * step >= gap:
            chosen.append(i)
    return [*chosen, count - 1] if count > 1 and (count - 1) * step >= 9 else chosen


class FinalValues(NamedTuple):
    """A method's last snapshots as a table, a row per tap, deepest first."""

    alike: str
    """Counts that are the same at every tap."""
    head: Sequence[str] = ()
    rows: Sequence[tuple[str, ...]] = ()


def final_values(found: MethodAudit, method: Method) -> FinalValues:
    """Means with 95 % intervals over seeds, sizes on a log scale; columns without a value are left out."""
    if not method.whole:
        return FinalValues("no seed came to its end")
    rows = _tap_rows(found, method)
    columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
    alike = {name: columns[name][0] for name in COUNTS if columns and len(set(columns[name])) == 1}
    told = ("cos", "null sd", "cos of weights") if len(found.exact_taps) == len(found.taps) else ()
    kept = [n for n, cells in columns.items() if n not in (*alike, *told) and any(cell != DASH for cell in cells)]
    said = ", ".join(
        [
            *(["every tap is handed the exact gradient"] if told and not found.network else []),
            *map(" ".join, alike.items()),
        ]
    )
    return FinalValues(said, kept, list(zip(*(columns[name] for name in kept), strict=True)))


def _tap_rows(found: MethodAudit, method: Method) -> list[dict[str, str]]:
    lasts, rows = [record.last.taps for record in method.whole], []
    some_inexact, n = len(found.exact_taps) < len(found.taps), len(lasts)
    for tap in reversed(found.per_tap):
        at = tap.tap
        sign = f"{OF_ANSWER[tap.answer]} " if tap.answer else ""
        rows.append(
            {
                "tap": f"{at} {tap.name}{' (exact)' if tap.exact and some_inexact else ''}",
                "cos": f"{sign}{write_interval(tap.cos, '+.3f', n=n)}",
                "null sd": TAPS["null_sd"].cell(tap),
                "cos of weights": write_interval(tap.stage_cos, "+.3f", n=n),
                "lost, put back (pp)": write_points(tap.rewind_loss),
                "lost, skipped (pp)": write_points(tap.skip_loss),
                "‖g‖": _size([t.g_norm[at] for t in lasts], ".2g"),
                "‖h‖": _size([t.h_norm[at] for t in lasts], ".3g"),
                "ρ": write_interval(tap.rho, "+.3f", n=n),
                "rows used": f"{min(t.rows_used[at] for t in lasts):,}",
                "rows without gradient": f"{max(t.rows_no_gradient[at] for t in lasts):,}",
                "g_noise": TAPS["g_noise"].cell(tap),
                "n": str(n),
            }
        )
    return rows


def _size(values: Sequence[float | None], form: str) -> str:
    """A geometric mean with its interval; where sizes are exactly 0, in how many seeds."""
    known = [v for v in values if v is not None]
    zeros = known.count(0)
    if zeros:
        return "0" if zeros == len(values) else f"0 in {zeros} of {count(len(values), 'seed')}"
    return write_interval(geometric_interval(known) if known else None, form, n=len(values))
