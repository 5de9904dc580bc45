"""Does a penalty on what blocks add rescue DFA? Trajectories, deep credit beside its nulls and controls, and the cost.

Figure F2. Every number, also those in headings and captions, comes from the records; one setting and one set of seeds
serve all panels.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from creditscope.auditing.thresholds import PUBLISHED_FLOOR
from creditscope.paper.figures import _style, register_figure
from creditscope.paper.figures._page import AXIS_ROOM, Panel, compose_page
from creditscope.paper.figures._penalty import KINDS, Rescue, select_rescue
from creditscope.paper.figures._penalty_bars import COLUMNS, METRICS, measure_bar, note_missing
from creditscope.paper.figures._penalty_captions import (
    TRACED,
    caption_cost,
    caption_metrics,
    caption_trajectory,
    footer,
    title_cost,
)
from creditscope.paper.figures._penalty_keys import COLOURS, COST, MARKERS, cost_keys, metric_keys, trajectory_keys
from creditscope.paper.figures._penalty_text import write_rescue
from creditscope.paper.figures._style import GREY, INK, SMALL
from creditscope.paper.figures._words import number, share
from creditscope.paper.studies.penalty_rescue import STRONG
from creditscope.plots._quantities import mean_sd, take_log
from creditscope.record import Record
from creditscope.text import power, subscript

HALF = 1.12
"""Share of the other axis' range that a curve's axis is extended by, so that states stay above gradients."""
BAR = 0.16


@register_figure("penalty_rescue")
def plot_penalty_rescue(records: Sequence[Record], *, credit_norm: str = "none") -> Figure:
    """Draw the figure from the records of study `penalty_rescue` under one normalisation of credit.

    A condition without records is a marked gap; seeds that not all conditions have are left out and said.
    """
    found = select_rescue(records, credit_norm=credit_norm)
    panels = [
        Panel(
            "A",
            "Stream and gradient under DFA",
            lambda ax: draw_trajectory(ax, found),
            trajectory_keys(found),
            caption_trajectory(found),
            right_room=AXIS_ROOM,
        ),
        Panel(
            "B",
            "Credit of the deep taps",
            lambda ax: draw_metrics(ax, found),
            metric_keys(found),
            caption_metrics(found),
        ),
        Panel("C", title_cost(found), lambda ax: draw_cost(ax, found), cost_keys(found), caption_cost(found)),
    ]
    with _style.styled():
        return compose_page(panels, footer=[footer(found), " ".join([*found.notes, *note_missing(found)])])


def describe(records: Sequence[Record], *, credit_norm: str = "none") -> str:
    """Conditions by deep cosine, ρ, descent and accuracy, with the sentences, as text."""
    return write_rescue(select_rescue(records, credit_norm=credit_norm))


def draw_trajectory(ax: Axes, found: Rescue) -> None:
    """A: ‖h_L‖ over epochs above, ‖g_L‖ on the right axis below with the published floor; 10^(mean ± sd of log10)."""
    right = ax.twinx()
    right.set_label("A right")
    right.spines["right"].set_visible(True)
    sizes = {name: [take_log(found.trajectory(key, name)[1]) for key in TRACED] for name in ("h_norm", "g_norm")}
    _set_log_axis(ax, sizes["h_norm"], [], upper=True)
    _set_log_axis(right, sizes["g_norm"], [np.log10(PUBLISHED_FLOOR)], upper=False)
    for axis, name, line in ((ax, "h_norm", "-"), (right, "g_norm", "--")):
        for key in TRACED:
            epochs, values = found.trajectory(key, name)
            if not len(epochs):
                continue
            mean, sd = mean_sd(take_log(values))
            look = {"color": COLOURS[key], "ls": line, "marker": MARKERS[key], "ms": 2.8}
            every = max(1, len(epochs) // 6)
            axis.plot(epochs, 10**mean, lw=1.1, markevery=every, gid=f"{key} {name}", zorder=3, **look)
            if len(found.seeds) > 1:
                band = {"color": COLOURS[key], "alpha": 0.2, "lw": 0, "zorder": 2}
                axis.fill_between(epochs, 10 ** (mean - sd), 10 ** (mean + sd), **band)
    right.axhline(PUBLISHED_FLOOR, color=GREY, lw=0.8, ls=(0, (4, 2)), zorder=1, gid="floor")
    last = found.last_tap
    ax.set(xlabel="epoch", ylabel=f"‖{subscript('h', last)}‖, median")
    right.set_ylabel(f"‖{subscript('g', last)}‖ per sample, median")
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))


def _set_log_axis(ax: Axes, logs: Sequence[np.ndarray], lines: Sequence[float], *, upper: bool) -> None:
    """A log axis whose data fill the upper or the lower half; ticks are where the data are."""
    ax.set_yscale("log")
    known = np.concatenate([np.array(lines), *(v[np.isfinite(v)] for v in logs)])
    low, high = (np.floor(known.min()), np.ceil(known.max())) if len(known) else (0.0, 1.0)
    high = max(high, low + 1)
    room = HALF * (high - low)
    ax.set_ylim(10 ** (low - room * upper), 10 ** (high + room * (not upper)))
    step = max(1, int(np.ceil((high - low) / 5)))
    ax.set_yticks(10.0 ** np.arange(low, high + 1, step))
    ax.yaxis.set_minor_locator(NullLocator())


def draw_metrics(ax: Axes, found: Rescue) -> None:
    """B: the five conditions side by side for every measure; a cross where there is no value."""
    ax.axhline(0, color=INK, lw=0.6, zorder=1)
    low, high = 0.0, 1.0
    middle = (len(COLUMNS) - 1) / 2
    for i, metric in enumerate(METRICS):
        for j, column in enumerate(COLUMNS):
            bar, x = measure_bar(found, metric, column), i + BAR * (j - middle)
            gid, colour = f"{metric.own} {column}", COLOURS[column]
            if np.isnan(bar.mean):
                _mark_gap(ax, x, colour, gid)
                continue
            face = "white" if bar.defined else colour
            ax.bar(x, bar.mean, 0.9 * BAR, facecolor=face, edgecolor=colour, lw=0.7, gid=gid, zorder=2)
            _draw_error(ax, x, bar.mean, bar.sd, gid)
            spread = np.nan_to_num(bar.sd)
            low, high = min(low, bar.mean - spread), max(high, bar.mean + spread)
            where = {"size": SMALL - 1, "rotation": 90, "ha": "center", "va": "bottom"}
            ax.annotate(_short(bar.mean), (x, max(bar.mean + spread, 0)), (0, 1.5), textcoords="offset points", **where)
    room = 0.06 * (high - low)
    ax.set(ylim=(low - room, high + 3 * room), xlim=(-0.5, len(METRICS) - 0.5), ylabel="mean over deep taps")
    ax.set_xticks(range(len(METRICS)), ["cosine", "ρ", "relative\ndescent"])
    ax.tick_params(axis="x", length=0)


def _short(value: float) -> str:
    """Two decimals, without a leading zero or the sign of a zero."""
    return number(value).replace("0.", ".", 1) if abs(value) < 1 else number(value)


def _mark_gap(ax: Axes, x: float, colour: str, gid: str) -> None:
    ax.plot(x, 0, "x", color=colour, ms=4, mew=1.0, gid=f"{gid} gap", zorder=4, clip_on=False)


def _draw_error(ax: Axes, x: float, mean: float, sd: float, gid: str) -> None:
    if not np.isnan(sd):
        look = {"color": INK, "lw": 0.8, "zorder": 3, "solid_capstyle": "butt"}
        ax.plot([x, x], [mean - sd, mean + sd], gid=f"{gid} sd", **look)


def draw_cost(ax: Axes, found: Rescue) -> None:
    """C: accuracy of BP and DFA without and with the penalty, over frozen blocks."""
    places = (0.0, 1.0, 2.3, 3.3)
    highest = [0.05]
    for x, key in zip(places, COST, strict=True):
        values = found.accuracy(key)
        mean, sd = (float(value) for value in mean_sd(values)) if len(values) else (np.nan, np.nan)
        if np.isnan(mean):
            _mark_gap(ax, x, COLOURS[key], key)
            continue
        ax.bar(x, mean, 0.8, color=COLOURS[key], lw=0, zorder=1, gid=key)
        _draw_error(ax, x, mean, sd, key)
        spots = x + 0.22 + 0.1 * np.linspace(-1, 1, len(values)) * (len(values) > 1)
        ax.plot(spots, values, "o", color="white", mec=INK, mew=0.4, ms=2.4, zorder=5, gid=f"{key} seeds")
        ground = {"size": SMALL, "color": "white", "ha": "center", "va": "bottom", "zorder": 6}
        ax.text(x, 0.01, share(mean, digits=3), **ground)
        highest += [float(np.nanmax(values)), mean + np.nan_to_num(sd)]
    for key, colour in (("frozen bp", COLOURS["frozen bp"]), ("frozen dfa", COLOURS["frozen dfa"])):
        if found.runs[key]:
            level = float(mean_sd(found.accuracy(key))[0])
            ax.axhline(level, color=colour, lw=1.0, ls="--", zorder=4, gid=key)
            highest.append(level)
    ax.set(xlim=(places[0] - 0.6, places[-1] + 0.6), ylim=(0, 1.08 * np.nanmax(highest)), ylabel="test accuracy")
    ax.set_xticks(
        places, [f"{KINDS[key].rule.upper()}\nλ = {power(STRONG) if KINDS[key].penalty else 0}" for key in COST]
    )
    ax.tick_params(axis="x", length=0)
