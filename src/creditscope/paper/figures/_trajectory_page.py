"""A page of training trajectories: nets from top to bottom, quantities from left to right, a caption under each net.

Places are in inches. A column has one range of values for all nets.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from creditscope.auditing.thresholds import PUBLISHED_FLOOR, table
from creditscope.paper.figures import _style
from creditscope.paper.figures._log_axis import LogScale, draw_log_axis
from creditscope.paper.figures._page import GAP, LETTERS, MARGIN, add_axes, draw_footer, wrap_footer
from creditscope.paper.figures._style import GREY, PAD, SMALL, WIDTH, line_height
from creditscope.paper.figures._trajectories import Group, Quantity, Row, Trajectories
from creditscope.paper.figures._words import number
from creditscope.plots._quantities import mean_sd
from creditscope.text import power

AXIS_ROOM, RIGHT, BELOW, HEADING, BETWEEN = 0.47, 0.07, 0.36, 0.26, 0.1
"""Room left and right of a panel, between a panel and its caption, over a panel, and under a caption; inches."""
REACH = 100.0
"""A floor that lies within this factor of the data is shown with them."""
MARKERS = 0.14
"""Distance of the markers on a line, as a share of the panel's diagonal."""
MOST_MARKERS = 15
"""Up to so many epochs each has its own."""


def compose_trajectories(
    found: Trajectories,
    quantities: Sequence[Quantity],
    *,
    captions: Sequence[str],
    footer: str,
    panel_height: float,
) -> Figure:
    """The page is as high as its panels and sentences need."""
    width = WIDTH - 2 * MARGIN
    texts = [_style.wrap_text(caption, width=width - 2 * PAD, italic=True) for caption in captions]
    boxes = [len(lines) * line_height() + 2 * PAD for lines in texts]
    foot, keys = wrap_footer([footer, " ".join(found.notes)]), _keys(found, quantities)
    bottom = len(foot) * line_height() + 0.1
    key_top = bottom + max(map(_style.key_height, keys)) + 0.06
    top = key_top + sum(BETWEEN + box + BELOW + panel_height + HEADING for box in boxes)
    fig = Figure(figsize=(WIDTH, top + MARGIN))
    for row, lines, box, letter in zip(found.rows, texts, boxes, LETTERS, strict=False):
        y = top - HEADING - panel_height
        _draw_row(fig, found, row, quantities, y=y, height=panel_height, letter=letter)
        _style.draw_caption(fig, lines, x=MARGIN, y=y - BELOW - box, width=width, height=box)
        top = y - BELOW - box - BETWEEN
    for group, x in zip(keys, (0.12, 1.7), strict=True):
        _style.draw_key(fig.axes[0], group, x=MARGIN + x, y=key_top, loc="upper left")
    draw_footer(fig, foot, top=bottom - 0.06)
    return fig


def _draw_row(
    fig: Figure, found: Trajectories, row: Row, quantities: Sequence[Quantity], *, y: float, height: float, letter: str
) -> None:
    """One net: its name, what is missing of it, and its panels."""
    column = (WIDTH - 2 * MARGIN - (len(quantities) - 1) * GAP) / len(quantities)
    for i, quantity in enumerate(quantities):
        x = MARGIN + i * (column + GAP) + AXIS_ROOM
        ax = add_axes(fig, x, y, column - AXIS_ROOM - RIGHT, height, label=f"{letter}{i + 1}")
        draw_panel(ax, found, row, quantity)
    where = {"transform": fig.dpi_scale_trans, "va": "bottom"}
    heading = f"{letter}   {row.wanted.title}" if len(found.rows) > 1 else row.wanted.title
    fig.text(MARGIN, y + height + 0.08, heading, weight="bold", **where)
    gaps = "; ".join(f"{group.style.label}: {group.gap}" for group in row.groups if group.gap)
    if gaps and row.drawn:
        fig.text(WIDTH - MARGIN, y + height + 0.08, gaps, size=SMALL, color=GREY, ha="right", **where)


def draw_panel(ax: Axes, found: Trajectories, row: Row, quantity: Quantity) -> None:
    """One quantity of one net: the mean over seeds of every rule with its band, and runs that diverged."""
    _draw_axes(ax, found, row, quantity)
    for place, group in enumerate(row.groups):
        if group.records:
            _draw_mean(ax, row, group, quantity, start=place * MARKERS / len(row.groups))
        for record in group.diverged:
            epochs = [snapshot.epoch for snapshot in record.snapshots]
            values = quantity.curve(record, epochs)
            x, y = np.array(epochs)[~np.isnan(values)], values[~np.isnan(values)]
            ax.plot(x, y, ls=":", lw=0.9, color=group.style.colour, zorder=3, gid=f"{group.rule} diverged")
            ax.plot(x[-1:], y[-1:], "x", ms=4, color=group.style.colour, zorder=5)
    if row.any_record is None:
        ax.text(0.5, 0.5, "not on record", transform=ax.transAxes, ha="center", va="center", color=GREY)


def _draw_mean(ax: Axes, row: Row, group: Group, quantity: Quantity, *, start: float) -> None:
    mean, low, high = _band(group, row, quantity)
    look = {"color": group.style.colour, "marker": group.style.marker, "ms": 3.2, "lw": 1.2}
    ax.fill_between(
        row.epochs, low, high, color=group.style.colour, alpha=0.2, lw=0, zorder=2, gid=f"{group.rule} band"
    )
    markers = (start, MARKERS) if len(row.epochs) > MOST_MARKERS else 1
    ax.plot(row.epochs, mean, markevery=markers, zorder=4, gid=group.rule, **look)


def _band(group: Group, row: Row, quantity: Quantity) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, mean − sd and mean + sd over seeds, of log10 for a norm; no band without a second seed."""
    mean, sd = mean_sd(group.values(quantity, row.epochs))
    found = mean, mean - sd, mean + sd
    return (10 ** found[0], 10 ** found[1], 10 ** found[2]) if quantity.log else found


def _column_values(found: Trajectories, quantity: Quantity) -> np.ndarray:
    """All that is drawn of a quantity, over the nets."""
    parts = [np.concatenate(_band(group, row, quantity)) for row in found.rows for group in row.drawn]
    parts += [
        quantity.curve(record, [snapshot.epoch for snapshot in record.snapshots])
        for row in found.rows
        for group in row.groups
        for record in group.diverged
    ]
    values = np.concatenate(parts)
    return values[np.isfinite(values)]


def _draw_axes(ax: Axes, found: Trajectories, row: Row, quantity: Quantity) -> None:
    """Epochs of the row; values of the column, so that nets can be compared."""
    values = _column_values(found, quantity)
    if quantity.log:
        floor = np.array([PUBLISHED_FLOOR] if shows_floor(found, quantity) else [])
        _draw_log_axis(ax, LogScale.of(values, floor, zeros=False))
        if len(floor):
            ax.axhline(PUBLISHED_FLOOR, color=GREY, lw=0.8, ls="--", zorder=1, gid="published floor")
    else:
        ax.set_ylim(0, 1.08 * max([0.1, *values]))
        ax.yaxis.set_major_locator(MaxNLocator(5))
        if row.facts and row.facts.chance is not None:
            ax.axhline(row.facts.chance, color=GREY, lw=0.8, ls=":", zorder=1, gid="chance")
    last = max(_last_epochs(row), default=1)
    ax.set(xlim=(-0.02 * last, 1.02 * last), xlabel="epoch")
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    said = {"h": "median {}", "g": "median {} per sample"}.get(quantity.name[0], "{}")
    ax.set_ylabel(said.format(quantity.symbol(row.facts)))


def _draw_log_axis(ax: Axes, scale: LogScale) -> None:
    """Powers of ten; 2 and 5 times them, too, where the span is short."""
    draw_log_axis(ax, scale)
    if len(scale.ticks()) < 3:
        lowest, highest = np.floor(np.log10(scale.low)), np.ceil(np.log10(scale.high))
        finer = [step * 10.0**e for e in np.arange(lowest, highest) for step in (1, 2, 5)]
        shown = [tick for tick in finer if scale.low <= tick <= scale.high]
        ax.set_yticks(shown, [power(tick) for tick in shown])


def _last_epochs(row: Row) -> list[int]:
    return [record.spec.epochs for group in row.groups for record in (*group.records, *group.diverged) if record.spec]


def shows_floor(found: Trajectories, quantity: Quantity) -> bool:
    """Whether the published floor of ‖g‖ lies among the data of the column, or near them."""
    if quantity.name != "g_norm":
        return False
    values = _column_values(found, quantity)
    return bool(len(values)) and values.min() / REACH <= PUBLISHED_FLOOR <= values.max() * REACH


def _keys(found: Trajectories, quantities: Sequence[Quantity]) -> list[Sequence[Artist]]:
    """The rules, and what the other marks are; only what is on the page."""
    rules = [
        Line2D([], [], color=look.colour, marker=look.marker, ms=3.4, lw=1.2, label=look.label)
        for look in found.styles.values()
    ]
    n = len(found.seeds)
    marks: list[Artist] = []
    if n > 1:
        of = " of log10" if all(q.log for q in quantities) else ", of log10 for norms,"
        marks.append(Patch(color=_style.BAND, label=f"mean ± sd{of} over {n} seeds"))
    elif n:
        marks.append(Line2D([], [], color=GREY, lw=1.2, label="one seed, no band"))
    if any(q.name == "g_norm" for q in quantities):
        published = next(line["published"] for line in table() if line["name"] == "floor")
        beyond = "" if any(shows_floor(found, q) for q in quantities) else "; out of the panels"
        marks.append(Line2D([], [], color=GREY, lw=0.8, ls="--", label=f"published floor: {published}{beyond}"))
    chances = {row.facts.chance for row in found.rows if row.facts and row.facts.chance is not None}
    if chances and not all(q.log for q in quantities):
        level = f", {number(chances.pop())}" if len(chances) == 1 else ""
        marks.append(Line2D([], [], color=GREY, lw=0.8, ls=":", label=f"chance{level}"))
    if any(group.diverged for row in found.rows for group in row.groups):
        marks.append(Line2D([], [], color=GREY, lw=0.9, ls=":", marker="x", ms=4, label="a run that diverged"))
    return [rules, marks]
