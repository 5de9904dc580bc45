"""A change of units is no finding: one trained net whose stream is multiplied by c, and what two protocols say of it.

Every number, also those in the captions, comes from the final weights of the records measured at each c.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from creditscope.auditing.thresholds import PUBLISHED_FLOOR, PUBLISHED_GROWTH, Thresholds
from creditscope.paper.figures import _style, register_figure
from creditscope.paper.figures._page import Panel, compose_page
from creditscope.paper.figures._rescaled import Judgement, Rescaled, select_rescaled
from creditscope.paper.figures._rescaling_captions import (
    at_last_tap,
    caption_constant,
    caption_sizes,
    caption_verdicts,
    factor_words,
    footer,
)
from creditscope.paper.figures._style import AMBER, BAND, BLUE, GREY, INK, RED, SMALL
from creditscope.plots._quantities import mean_sd, take_log
from creditscope.record import Record
from creditscope.text import power

SERIES = {
    "h": ("‖h_L‖, the state before the head", INK, "s", "-"),
    "g": ("‖g_L‖, the reference gradient there", BLUE, "o", "-"),
    "g_rel": ("g_rel = ‖g_L‖·‖h_L‖ / ‖e‖", BLUE, "D", "-"),
    "accuracy": ("test accuracy", INK, "o", "--"),
    "g_noise": ("g_noise, rounding (worst tap)", AMBER, "^", ":"),
}
"""Label (L stands for the last tap), colour, marker and line of every curve."""
Look = tuple[str, str]
QUIET, ALARM, MIXED = ("o", BLUE), ("X", RED), ("v", AMBER)
"""Marker and colour: no alarm or trustworthy, alarm or walk back, some seeds or undecided."""


@register_figure("rescaling")
def plot_rescaling(records: Sequence[Record]) -> Figure:
    """Draw the figure from the records of study `rescaling`: rescaled runs and their frozen baselines."""
    found = select_rescaled(records)
    n = len(found.seeds)
    spread = Line2D([], [], color=GREY, marker="|", ms=4, lw=0.8, label=f"mean ± sd of log10 over {n} seeds")
    bars = [spread] if n > 1 else []
    panels = [
        Panel(
            "A",
            "What the units change",
            lambda ax: draw_sizes(ax, found),
            [_key("h", found), _key("g", found), *bars],
            caption_sizes(found),
        ),
        Panel(
            "B",
            "What they do not",
            lambda ax: draw_constant(ax, found),
            [*(_key(name, found) for name in ("g_rel", "accuracy", "g_noise")), *bars],
            caption_constant(found),
        ),
        Panel(
            "C",
            "What is concluded",
            lambda ax: draw_verdicts(ax, found),
            _verdict_keys(found),
            caption_verdicts(found),
            axis_room=0.15,
        ),
    ]
    with _style.styled():
        return compose_page(panels, footer=[footer(found), " ".join(found.notes)])


def _key(name: str, found: Rescaled) -> Line2D:
    label, colour, marker, line = SERIES[name]
    return Line2D([], [], color=colour, marker=marker, ls=line, ms=4, lw=1.1, label=at_last_tap(label, found))


def _verdict_keys(found: Rescaled) -> list[Line2D]:
    """Of the marks that are in panel C."""
    used = {look for _, looks in _verdict_rows(found) for look in looks}
    said = {QUIET: "no alarm; trustworthy", ALARM: "alarm; walk back", MIXED: "some seeds; undecided"}
    return [
        Line2D([], [], color=look[1], marker=look[0], ls="", ms=4.5, mew=0, label=label)
        for look, label in said.items()
        if look in used
    ]


def draw_sizes(ax: Axes, found: Rescaled) -> None:
    """A: ‖h_L‖ and ‖g_L‖ against c, over the zone of the published alarm."""
    h, g = found.at_top("h_norm"), found.at_top("g_norm")
    _draw_factors(ax, found)
    lowest, _ = _draw_curves(ax, found, {"h": h, "g": g}, PUBLISHED_FLOOR)
    ax.axhspan(lowest, PUBLISHED_FLOOR, color=BAND, lw=0, zorder=0)
    ax.axhline(PUBLISHED_FLOOR, color=GREY, lw=0.8, ls="--", zorder=1)
    said = f"below the published\nfloor, {power(PUBLISHED_FLOOR, digits=2)}"
    ax.text(found.factors[0], lowest * 2, said, size=SMALL, color=INK, va="bottom", linespacing=1.2)
    ax.set_ylabel("per sample, median")


def draw_constant(ax: Axes, found: Rescaled) -> None:
    """B: what has no units, and the limit of the one among them that decides."""
    limit = Thresholds().noise
    values = {"g_rel": found.at_top("g_rel"), "accuracy": found.scalar("accuracy"), "g_noise": found.worst("g_noise")}
    _draw_factors(ax, found)
    _draw_curves(ax, found, values, limit)
    ax.axhline(limit, color=SERIES["g_noise"][1], lw=0.8, ls="--", zorder=1, gid="noise limit")
    said = f"limit of g_noise (CS002), {limit:g}"
    ax.text(found.factors[0], limit / 2, said, size=SMALL, color=INK, va="top")
    ax.set_ylabel("value (no units)")


def _draw_factors(ax: Axes, found: Rescaled) -> None:
    """The log axis of c; before anything is drawn on it."""
    ax.set_xscale("log")
    ax.set_xlim(found.factors[0] / 2, found.factors[-1] * 2)
    every = 1 + (len(found.factors) - 1) // 5
    shown = found.factors[::every]
    ax.set_xticks(shown, [factor_words(c) for c in shown])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("c, by which the stream is multiplied")


def _draw_curves(ax: Axes, found: Rescaled, values: dict[str, np.ndarray], line: float) -> tuple[float, float]:
    """10^(mean ± sd of log10 over seeds) of each; the limits take in all of them and the `line`."""
    ax.set_yscale("log")
    logs = {name: take_log(v) for name, v in values.items()}
    known = np.concatenate([[np.log10(line)], *(v[np.isfinite(v)] for v in logs.values())])
    limits = 10 ** np.floor(known.min() - 0.5), 10 ** np.ceil(known.max() + 0.5)
    ax.set_ylim(*limits)
    ax.yaxis.set_major_locator(LogLocator(numticks=7))
    ax.yaxis.set_minor_locator(NullLocator())
    for name, own in logs.items():
        _, colour, marker, style = SERIES[name]
        mean, sd = mean_sd(own)
        y = 10**mean
        bars = np.nan_to_num(np.array([y - 10 ** (mean - sd), 10 ** (mean + sd) - y]))
        ax.errorbar(found.factors, y, bars, fmt="none", ecolor=colour, elinewidth=0.8, capsize=1.5, zorder=3)
        ax.plot(found.factors, y, color=colour, marker=marker, ls=style, ms=3.6, lw=1.1, zorder=4, gid=name)
    return float(limits[0]), float(limits[1])


def draw_verdicts(ax: Axes, found: Rescaled) -> None:
    """C: one row per judgement, one mark per c."""
    rows = _verdict_rows(found)
    _draw_factors(ax, found)
    ax.set_ylim(len(rows) - 0.35, -0.75)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    for y, (label, looks) in enumerate(rows):
        ax.text(found.factors[0] / 1.6, y - 0.3, label, size=SMALL, va="center")
        ax.axhline(y, color=BAND, lw=0.8, zorder=1)
        for c, (marker, colour) in zip(found.factors, looks, strict=True):
            ax.plot(c, y, marker, color=colour, ms=5.5, mew=0, zorder=3, gid=f"row {y}")


def _verdict_rows(found: Rescaled) -> list[tuple[str, list[Look]]]:
    """What is asked, and the answer at every c."""
    n, floor = len(found.seeds), at_last_tap(f"published: ‖g_L‖ under {power(PUBLISHED_FLOOR, digits=2)}", found)
    return [
        (floor, [_count(j.floor, n) for j in found.judgements]),
        (f"published: growth over {PUBLISHED_GROWTH:g} in a block", [_count(j.growth, n) for j in found.judgements]),
        ("ours: gradient unresolved (CS002)", [_count(j.unresolved, n) for j in found.judgements]),
        ("ours: verdict", [_word(j) for j in found.judgements]),
    ]


def _count(fired: int, seeds: int) -> Look:
    return QUIET if fired == 0 else ALARM if fired == seeds else MIXED


def _word(judgement: Judgement) -> Look:
    return {"trustworthy": QUIET, "walk back": ALARM}.get(judgement.word, MIXED)
