"""A heatmap as SVG: one path per colour, deepest tap on top."""

import math
from itertools import groupby

import numpy as np
from markupsafe import Markup, escape

from creditscope.report.colours import Scale
from creditscope.report.history import SYMBOLS, LayerHistory

LEFT, TOP, BOTTOM, RIGHT = 22, 3, 15, 8
WIDTH, HEIGHT = 240, 120
NARROWEST, WIDEST = 8.0, 26.0
LOWEST, TALLEST = 5.0, 18.0
LABEL_GAP_X, LABEL_GAP_Y = 24.0, 14.0
MOST_SPACES = 4


def draw_heatmap(history: LayerHistory, quantity: str, scale: Scale, *, key: int, method: str) -> Markup:
    """One method's taps over epochs; cells without a value keep the hatched ground."""
    columns, rows = len(history.epochs), len(history.taps)
    wide = round(min(max(WIDTH / columns, NARROWEST), WIDEST), 1)
    tall = round(min(max(HEIGHT / rows, LOWEST), TALLEST), 1)
    across, down = wide * columns, tall * rows
    width, height = LEFT + across + RIGHT, TOP + down + BOTTOM
    hooks = (
        f'data-heatmap="{key}" data-method="{escape(method)}" data-quantity="{quantity}" data-cell="{wide:g},{tall:g}"'
    )
    return Markup(
        f'<svg class="heat" width="{width:g}" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{SYMBOLS[quantity]} of {escape(method)}" {hooks}>'
        f"{_ground(across, down) if np.isnan(history.means[quantity]).any() else ''}"
        f'<g transform="translate({LEFT} {TOP + tall / 2:g}) scale({wide:g} {tall:g})">'
        f"{_cells(history.means[quantity], scale)}</g>"
        f"{_dots(history, wide, tall) if quantity == 'cos' else ''}"
        f"{_labels(history, wide, tall)}</svg>"
    )


def _ground(width: float, height: float) -> str:
    return f'<rect class="gap" x="{LEFT}" y="{TOP}" width="{width:g}" height="{height:g}"/>'


def _cells(means: np.ndarray, scale: Scale) -> str:
    """Each cell is a stroke as wide as a row is tall; neighbours of one colour in a row are one stroke."""
    rows = means.shape[1]
    paths: dict[str, list[str]] = {}
    for tap, values in enumerate(means.T.tolist()):
        start = 0
        for colour, cells in groupby("" if math.isnan(value) else scale.css(value) for value in values):
            length = len(list(cells))
            if colour:
                paths.setdefault(colour, []).append(f"M{start} {rows - 1 - tap}h{length}")
            start += length
    return "".join(f'<path class="{colour}" d="{"".join(parts)}"/>' for colour, parts in paths.items())


def _dots(history: LayerHistory, wide: float, tall: float) -> str:
    rows = len(history.taps)
    places = np.argwhere(history.in_null).tolist()
    marks = [f"M{LEFT + (e + 0.5) * wide:.4g} {TOP + (rows - 0.5 - tap) * tall:.4g}h0" for e, tap in places]
    return f'<path class="dot" d="{"".join(marks)}"/>' if marks else ""


def _labels(history: LayerHistory, wide: float, tall: float) -> str:
    rows, columns = len(history.taps), len(history.epochs)
    y = f"{TOP + rows * tall + 12:.4g}"
    side = [
        (tap, TOP + (rows - 0.5 - tap) * tall + 3.5)
        for tap in _spaced(rows, tall, max(LABEL_GAP_Y, rows * tall / MOST_SPACES - 1))
    ]
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
