"""Deep GCNs by backprop: the gradient each weight gets, what a linear probe reads off each layer, and a table of both.

Every number, also those in titles and captions, comes from the first and last snapshots of the records.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from creditscope.paper.figures import _style, register_figure
from creditscope.paper.figures._bottleneck_captions import (
    caption_gradients,
    caption_probes,
    caption_table,
    footer,
    title_gradients,
    title_probes,
)
from creditscope.paper.figures._bottleneck_table import HEADINGS, table_rows, table_text
from creditscope.paper.figures._depths import DepthGroup, Depths, select_depths
from creditscope.paper.figures._log_axis import LogScale, draw_floor, draw_log_axis
from creditscope.paper.figures._page import GAP, MARGIN, add_axes, draw_footer, wrap_footer
from creditscope.paper.figures._stats import quartiles
from creditscope.paper.figures._style import BODY, FAINT, GREY, INK, PAD, SMALL, WIDTH, line_height
from creditscope.record import Record

PANEL, AXIS_ROOM = 2.0, 0.5
COLUMN = (WIDTH - 2 * MARGIN - GAP) / 2
ROW = 0.17
"""Height of a table row, inches; of its heading two."""
CENTRES = (0.06, 0.2, 0.37, 0.54, 0.71, 0.9)
"""Middle of each column of the table, as a share of its width."""
DIFFERS = 0.01
"""Relative difference from which on a float32 norm is drawn beside the true one."""


@register_figure("bp_bottleneck")
def plot_bp_bottleneck(records: Sequence[Record]) -> Figure:
    """Draw the figure from the records of study `bp_bottleneck`: one net at several depths, many seeds each."""
    found = select_depths(records)
    with _style.styled():
        return _compose(found)


def describe(records: Sequence[Record]) -> str:
    """The table as text."""
    return table_text(select_depths(records))


def _compose(found: Depths) -> Figure:
    """Two panels with their keys and captions, the table with its caption, the footer."""
    width = WIDTH - 2 * MARGIN
    foot = wrap_footer([footer(found), " ".join(found.notes)])
    below = _style.wrap_text(caption_table(found), width=width - 2 * PAD, italic=True)
    captions = [
        _style.wrap_text(text, width=COLUMN - 2 * PAD, italic=True)
        for text in (caption_gradients(found), caption_probes(found))
    ]
    keys = [_gradient_keys(found), _probe_keys(found)]
    box_c, c_bottom = len(below) * line_height() + 2 * PAD, len(foot) * line_height() + 0.1
    table_bottom = c_bottom + box_c + 0.1
    table_top = table_bottom + (len(found.groups) + 2) * ROW
    box, box_bottom = max(map(len, captions)) * line_height() + 2 * PAD, table_top + 0.34
    key_top = box_bottom + box + 0.1 + max(map(_style.key_height, keys))
    bottom = key_top + 0.36
    fig = Figure(figsize=(WIDTH, bottom + PANEL + 0.34))
    page = {"transform": fig.dpi_scale_trans, "weight": "bold", "va": "bottom"}
    titles, draws = (title_gradients(found), title_probes(found)), (draw_gradients, draw_probes)
    for i, (letter, title, draw) in enumerate(zip("AB", titles, draws, strict=True)):
        edge = MARGIN + i * (COLUMN + GAP)
        ax = add_axes(fig, edge + AXIS_ROOM, bottom, COLUMN - AXIS_ROOM, PANEL, label=letter)
        draw(ax, found)
        heading = f"{letter}   {title}"
        size = _style.fit_size(heading, width=COLUMN - 2 * GAP, bold=True)
        fig.text(edge, bottom + PANEL + 0.1, heading, size=size, **page)
        _style.draw_key(ax, keys[i], x=edge + 0.12, y=key_top, loc="upper left")
        _style.draw_caption(fig, captions[i], x=edge, y=box_bottom, width=COLUMN, height=box)
    fig.text(MARGIN, table_top + 0.06, f"C   After epoch {found.spec.epochs}", size=BODY, **page)
    draw_table(add_axes(fig, MARGIN, table_bottom, width, table_top - table_bottom, label="C"), found)
    _style.draw_caption(fig, below, x=MARGIN, y=c_bottom, width=width, height=box_c)
    draw_footer(fig, foot, top=c_bottom - 0.06)
    return fig


def draw_gradients(ax: Axes, found: Depths) -> None:
    """A: ‖∂L/∂W_l‖ by layer; zeros at a floor, those of the float32 norm alone a little above it."""
    norms = {group.depth: group.weights("exact_norm") for group in found.drawn}
    plain = {group.depth: float32_line(group) for group in found.drawn}
    zeros = any((values == 0).any() for values in norms.values())
    plain_zeros = any((values == 0).any() for values in plain.values())
    scale = LogScale.of(*norms.values(), *plain.values(), zeros=zeros, second=plain_zeros)
    draw_log_axis(ax, scale)
    ax.set_ylabel(r"$\|\partial L/\partial W_l\|_F$")
    for group in found.drawn:
        low, middle, high = (np.maximum(q, scale.floor) for q in quartiles(norms[group.depth]))
        x, own = np.arange(len(middle)), plain[group.depth]
        ax.fill_between(x, low, high, color=group.colour, alpha=0.18, lw=0, zorder=2)
        ax.plot(x, middle, color=group.colour, marker=group.marker, ms=3.2, lw=1.2, zorder=4, gid=group.label)
        if not np.isnan(own).all():
            y = np.where(own == 0, scale.second, own)
            ax.plot(x, y, gid=f"{group.label} float32", zorder=3, **_float32_look(group))
    if zeros:
        draw_floor(ax, scale.floor, "every element is 0 (drawn here)")
    if plain_zeros:
        draw_floor(ax, scale.second, "float32 norm is 0, elements are not (drawn here)")
    _draw_layers(ax, found, extra=0, label="layer $l$")


def float32_line(group: DepthGroup) -> np.ndarray:
    """The median plain float32 norm of every layer where it is not the true one; NaN elsewhere."""
    (_, true, _), (_, plain, _) = (quartiles(group.weights(name)) for name in ("exact_norm", "exact_float32"))
    return np.where(np.abs(plain - true) > DIFFERS * true, plain, np.nan)


def _float32_look(group: DepthGroup) -> dict[str, Any]:
    light = lighter(group.colour)
    return {"color": light, "lw": 0.9, "ls": "--", "marker": group.marker, "mfc": "white", "ms": 3.0}


def draw_probes(ax: Axes, found: Depths) -> None:
    """B: probe accuracy by layer, and chance."""
    most = 0.0
    for group in found.drawn:
        low, middle, high = quartiles(group.layers("probe"))
        x = np.arange(len(middle))
        ax.fill_between(x, low, high, color=group.colour, alpha=0.18, lw=0, zorder=2)
        ax.plot(x, middle, color=group.colour, marker=group.marker, ms=3.2, lw=1.2, zorder=4, gid=group.label)
        most = max(most, float(np.nanmax(high)))
    ax.set(ylim=(0, most + 0.06), ylabel="probe accuracy, test nodes")
    ax.yaxis.set_major_locator(MaxNLocator(5))
    if found.facts.chance is not None:
        ax.axhline(found.facts.chance, color=GREY, lw=0.8, ls=":", zorder=1, gid="chance")
    _draw_layers(ax, found, extra=1, label="state $H_l$")


def _draw_layers(ax: Axes, found: Depths, *, extra: int, label: str) -> None:
    last = max(group.depth for group in found.groups) - 1 + extra
    ax.set_xlim(-0.4, last + 0.4)
    ax.set_xlabel(label)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def draw_table(ax: Axes, found: Depths) -> None:
    """C: one row per depth, in its colour; two lines of heading."""
    rows = table_rows(found)
    lines = len(rows) + 2
    ax.set(xlim=(0, 1), ylim=(0, lines))
    ax.set_axis_off()
    for x, heading in zip(CENTRES, HEADINGS, strict=True):
        ax.text(x, lines - 1, heading, size=SMALL, ha="center", va="center", color=INK, linespacing=1.2)
    for y in (0, len(rows), lines):
        ax.axhline(y, color=INK if y != len(rows) else FAINT, lw=0.7, clip_on=False)
    for place, (row, group) in enumerate(zip(rows, found.groups, strict=True)):
        y = len(rows) - place - 0.5
        for i, (x, cell) in enumerate(zip(CENTRES, row.cells(), strict=True)):
            weight, colour = ("bold", group.colour) if i == 0 else ("normal", INK if row.runs else GREY)
            ax.text(x, y, cell, size=BODY, ha="center", va="center", color=colour, weight=weight)


def lighter(colour: str) -> tuple[float, float, float]:
    """Half way to white."""
    r, g, b = (0.5 + 0.5 * c for c in to_rgb(colour))
    return r, g, b


def _gradient_keys(found: Depths) -> list[Line2D]:
    differing = [group for group in found.drawn if not np.isnan(float32_line(group)).all()]
    said = "the same as a plain float32 norm, where it differs"
    return _depth_keys(found) + [
        Line2D([], [], label=f"{group.label}, {said}", **_float32_look(group)) for group in differing
    ]


def _probe_keys(found: Depths) -> list[Line2D]:
    if found.facts.chance is None:
        return _depth_keys(found)
    return [*_depth_keys(found), Line2D([], [], color=GREY, ls=":", lw=0.8, label=f"chance, 1/{found.facts.classes}")]


def _depth_keys(found: Depths) -> list[Line2D]:
    """One per depth; a gap says so."""
    keys = []
    for group in found.groups:
        label = group.label if group.records else f"{group.label}: not on record"
        line = "-" if group.records else ""
        keys.append(Line2D([], [], color=group.colour, marker=group.marker, ls=line, ms=3.4, lw=1.2, label=label))
    return keys
