"""What normalising credit does to DFA: accuracy, deep cosine, growth and use of depth by norm, λ, optimiser and net.

Every number, also those in the caption, comes from the last snapshots of the records.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from creditscope.auditing.stats import t_interval
from creditscope.auditing.thresholds import Thresholds
from creditscope.paper.figures import _style, register_figure
from creditscope.paper.figures._conditions import NORMS, Condition, Grid, Setting, accuracies, select_conditions
from creditscope.paper.figures._normalisation_captions import caption, footer
from creditscope.paper.figures._page import GAP, LETTERS, MARGIN, add_axes, draw_footer, wrap_footer
from creditscope.paper.figures._style import BLUE, BODY, FAINT, GREY, INK, PAD, RED, SMALL, WIDTH, line_height
from creditscope.record import Record
from creditscope.text import power

LOOKS = (("o", "white"), ("^", "#f4c7c3"), ("s", "#e58a82"), ("D", RED), ("v", "#5c0a14"))
"""Marker and face by rank of λ, light to dark; the edge is always dark."""
LABEL_ROOM, HEADING = 0.5, 0.24
"""Room for the norms' names and for a setting's heading; inches."""
STEP, TALLEST = 0.13, 1.6
"""Between two λ, and the most that a setting may take; inches."""


@dataclass(frozen=True)
class Column:
    """One measure: its values by seed, and whether it is drawn as a logarithm."""

    title: str
    values: Callable[[Setting, Condition], np.ndarray]
    log: bool = False


COLUMNS = (
    Column("test accuracy", lambda setting, condition: condition.accuracy()),
    Column("use of depth, pp over frozen", lambda setting, condition: 100 * setting.gains(condition)),
    Column("deep cosine, taps 2..L", lambda setting, condition: condition.deep_cosine()),
    Column("largest growth over a block", lambda setting, condition: condition.growth(), log=True),
)


@register_figure("normalisation")
def plot_normalisation(records: Sequence[Record]) -> Figure:
    """Draw the figure from the records of study `normalisation`: DFA in every condition, frozen and BP references."""
    grid = select_conditions(records)
    with _style.styled():
        return _compose(grid)


def _compose(grid: Grid) -> Figure:
    """Settings from top to bottom, measures from left to right; key, caption and footer below."""
    text = _style.wrap_text(caption(grid), width=WIDTH - 2 * MARGIN - 2 * PAD, italic=True)
    foot, looks = wrap_footer([footer(grid), " ".join(grid.notes)]), _looks(grid)
    box, box_bottom = len(text) * line_height() + 2 * PAD, len(foot) * line_height() + 0.1
    keys = _keys(grid, looks)
    key_top = box_bottom + box + 0.1 + max(map(_style.key_height, keys))
    height = min(len(NORMS) * (len(looks) + 1) * STEP, TALLEST)
    bottom = key_top + 0.42
    top = bottom + len(grid.settings) * (height + HEADING)
    fig = Figure(figsize=(WIDTH, top + 0.26))
    width = (WIDTH - 2 * MARGIN - LABEL_ROOM - (len(COLUMNS) - 1) * GAP) / len(COLUMNS)
    limits = [_limits(grid, column) for column in COLUMNS]
    fig.text(MARGIN, top + 0.05, "credit norm", transform=fig.dpi_scale_trans, va="bottom", color=GREY)
    for i, setting in enumerate(grid.settings):
        y = top - (i + 1) * (height + HEADING)
        fig.text(
            MARGIN,
            y + height + 0.07,
            _heading(setting, LETTERS[i % len(LETTERS)]),
            transform=fig.dpi_scale_trans,
            weight="bold",
        )
        for j, column in enumerate(COLUMNS):
            x = MARGIN + LABEL_ROOM + j * (width + GAP)
            ax = add_axes(fig, x, y, width, height, label=f"{i} {column.title}")
            _draw_axis(ax, column, limits[j], first=j == 0, last=i == len(grid.settings) - 1)
            _draw_references(ax, setting, column)
            _draw_conditions(ax, setting, column, looks, n=len(grid.seeds))
            if i == 0:
                where = {"transform": fig.dpi_scale_trans, "size": BODY, "ha": "center", "va": "bottom"}
                fig.text(x + width / 2, top + 0.05, column.title, **where)
    for x, group in zip((MARGIN + 0.1, MARGIN + 1.55, MARGIN + 4.1), keys, strict=True):
        _style.draw_key(fig.axes[0], group, x=x, y=key_top, loc="upper left")
    _style.draw_caption(fig, text, x=MARGIN, y=box_bottom, width=WIDTH - 2 * MARGIN, height=box)
    draw_footer(fig, foot, top=box_bottom - 0.06)
    return fig


def _heading(setting: Setting, letter: str) -> str:
    return f"{letter}   {setting.label}   (lr {setting.lr:g})"


def _looks(grid: Grid) -> dict[float, tuple[str, str]]:
    """Marker and face of every λ; two values take the lightest and a dark one."""
    chosen = (LOOKS[0], LOOKS[3]) if len(grid.penalties) == 2 else LOOKS
    return {penalty: chosen[i % len(chosen)] for i, penalty in enumerate(grid.penalties)}


def _limits(grid: Grid, column: Column) -> tuple[float, float]:
    """Of all settings: values, intervals and reference lines."""
    found = [_position(value, column) for value in _lines(column)]
    for setting in grid.settings:
        for condition in setting.conditions.values():
            low, _, high = _interval(column.values(setting, condition), column)
            found += [low, high]
        if column is COLUMNS[0]:
            found += [float(a) for runs in (setting.bp, setting.frozen_bp) for a in accuracies(runs)]
    known = np.array(found)[np.isfinite(found)]
    if column is COLUMNS[0]:
        known = np.clip([*known, 0.0], 0, 1)
    room = 0.06 * max(float(np.ptp(known)), 0.1)
    low, high = float(known.min()) - room, float(known.max()) + room
    return (10**low, 10**high) if column.log else (low, high)


def _lines(column: Column) -> list[float]:
    """Where a threshold or zero is drawn."""
    limits = Thresholds()
    return {1: [0.0, 100 * limits.depth_gain], 2: [0.0], 3: [1.0, limits.growth]}.get(COLUMNS.index(column), [])


def _position(value: float, column: Column) -> float:
    return float(np.log10(value)) if column.log else value


def _interval(values: np.ndarray, column: Column) -> tuple[float, float, float]:
    """Lower bound, mean and upper bound of the 95 % t interval over seeds (of log10 if so drawn)."""
    known = values[np.isfinite(values)]
    if column.log:
        known = np.log10(known[known > 0])
    if not len(known):
        return np.nan, np.nan, np.nan
    found = t_interval(known.tolist())
    low, high = (found.mean if bound is None else bound for bound in (found.low, found.high))
    return low, found.mean, high


def _draw_axis(ax: Axes, column: Column, limits: tuple[float, float], *, first: bool, last: bool) -> None:
    if column.log:
        ax.set_xscale("log")
    ax.set(xlim=limits, ylim=(len(NORMS) - 0.5, -0.5))
    ax.xaxis.set_major_locator(LogLocator(numticks=6) if column.log else MaxNLocator(5))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_yticks(range(len(NORMS)), NORMS if first else [""] * len(NORMS))
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelbottom=last)
    for y in range(1, len(NORMS)):
        ax.axhline(y - 0.5, color=_style.BAND, lw=0.6, zorder=0)


def _draw_references(ax: Axes, setting: Setting, column: Column) -> None:
    """BP and frozen blocks beside accuracy; zero and the thresholds beside the others."""
    for value in _lines(column):
        neutral = value == (1.0 if column.log else 0.0)
        ax.axvline(value, color=FAINT if neutral else GREY, lw=0.7, ls="-" if neutral else ":", zorder=1)
    if column is not COLUMNS[0]:
        return
    for runs, style, name in ((setting.bp, "-", "bp"), (setting.frozen_bp, "--", "frozen bp")):
        if runs:
            ax.axvline(float(np.nanmean(accuracies(runs))), color=BLUE, lw=1.0, ls=style, zorder=1, gid=name)
    for y, norm in enumerate(NORMS):
        if setting.frozen.get(norm):
            x = float(np.nanmean(accuracies(setting.frozen[norm])))
            ax.plot([x, x], [y - 0.4, y + 0.4], color=RED, lw=1.0, ls="-.", zorder=2, gid=f"frozen {norm}")


def _draw_conditions(
    ax: Axes, setting: Setting, column: Column, looks: dict[float, tuple[str, str]], *, n: int
) -> None:
    """Mean and interval of every condition, the seeds as dots; diverged runs in words."""
    middle = (len(looks) - 1) / 2
    for y, norm in enumerate(NORMS):
        for rank, (penalty, (marker, face)) in enumerate(looks.items()):
            condition = setting.conditions.get((norm, penalty))
            place = y + (rank - middle) / (len(looks) + 1)
            if condition is None:
                continue
            values = column.values(setting, condition)
            low, mean, high = _interval(values, column)
            if column.log:
                low, mean, high = 10**low, 10**mean, 10**high
            ax.plot([low, high], [place, place], color=INK, lw=0.8, zorder=3, solid_capstyle="butt")
            ax.plot(values, [place] * len(values), "|", color=INK, ms=3.5, mew=0.7, zorder=3)
            look = {"mec": INK, "mfc": face, "mew": 0.6, "ms": 4.2}
            ax.plot(mean, place, marker, zorder=4, gid=f"{norm} {penalty:g}", **look)
            if condition.diverged and column is COLUMNS[0]:
                ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
                said = f" {len(condition.diverged)}/{n} diverged"
                ax.text(
                    ax.get_xlim()[0], place, said, size=SMALL - 0.6, color=INK, va="center", bbox=ground, zorder=2.3
                )


def _keys(grid: Grid, looks: dict[float, tuple[str, str]]) -> list[list[Line2D]]:
    """λ; references; what the marks are."""
    penalties = [
        Line2D([], [], ls="", marker=marker, mec=INK, mfc=face, mew=0.6, ms=4.5, label=f"λ = {power(penalty)}")
        for penalty, (marker, face) in looks.items()
    ]
    limits, n = Thresholds(), len(grid.seeds)
    references = [
        Line2D([], [], color=BLUE, lw=1.0, label="BP"),
        Line2D([], [], color=BLUE, lw=1.0, ls="--", label="frozen blocks, stem by BP"),
        Line2D([], [], color=RED, lw=1.0, ls="-.", label="frozen blocks, stem by DFA (same norm)"),
    ]
    seen = f"mean, 95 % t interval over {n} seeds (growth: of log10)" if n > 1 else "one seed, no interval"
    marks = [
        Line2D([], [], color=INK, lw=0.8, marker="o", mfc="white", ms=4.2, mew=0.6, label=seen),
        Line2D([], [], color=INK, ls="", marker="|", ms=4, label="each seed"),
        Line2D(
            [],
            [],
            color=GREY,
            lw=0.7,
            ls=":",
            label=f"{100 * limits.depth_gain:g} pp (CS004), {limits.growth:g} (CS001)",
        ),
    ]
    return [penalties, references, marks]
