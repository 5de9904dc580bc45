"""Colours and keys of figure `penalty_rescue`."""

from math import isnan

from matplotlib.artist import Artist
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from creditscope.auditing.thresholds import PUBLISHED_FLOOR, PUBLISHED_ROWS
from creditscope.paper.figures._penalty import Rescue
from creditscope.paper.figures._penalty_bars import COLUMNS, EXACT, METRICS, NULL, measure_bar
from creditscope.paper.figures._penalty_captions import TRACED
from creditscope.paper.figures._style import BLUE, FAINT, GREY, INK, RED
from creditscope.text import power, subscript

COLOURS = {"dfa": RED, "early": RED, "weak": "#e58a82", "strong": "#4a0610", NULL: "#b5b5b5", EXACT: BLUE}
COLOURS |= {"bp": BLUE, "bp strong": "#0b2d52", "frozen dfa": INK, "frozen bp": FAINT}
"""Penalised runs are darker than their rule; the weak penalty is lighter."""
MARKERS = {"dfa": "D", "strong": "v"}
COST = ("bp", "bp strong", "dfa", "strong")
"""The four bars of panel c."""


def trajectory_keys(found: Rescue) -> list[Artist]:
    last, n = found.last_tap, len(found.seeds)
    keys: list[Artist] = [
        Line2D(
            [],
            [],
            color=COLOURS[key],
            marker="x" if key in found.gaps else MARKERS[key],
            ms=3.5,
            label=found.label(key),
        )
        for key in TRACED
    ]
    for symbol, line, side in (("h", "-", "left"), ("g", "--", "right")):
        keys.append(Line2D([], [], color=INK, ls=line, lw=1.1, label=f"‖{subscript(symbol, last)}‖, {side} axis"))
    stated = f"{power(PUBLISHED_FLOOR / PUBLISHED_ROWS)}·N, N\u00a0=\u00a0{PUBLISHED_ROWS}"
    floor = f"published floor, {power(PUBLISHED_FLOOR, digits=2)}\n({stated})"
    keys.append(Line2D([], [], color=GREY, lw=0.8, ls=(0, (4, 2)), label=floor))
    return keys + ([Patch(color=RED, alpha=0.2, lw=0, label=f"± sd of log10 over {n} seeds")] if n > 1 else [])


def metric_keys(found: Rescue) -> list[Artist]:
    keys: list[Artist] = []
    for column, label in COLUMNS.items():
        at = {"weak": ", end", "strong": ", end", NULL: ", same snapshots", EXACT: " (hollow: 1 by definition)"}
        said = found.label(column) if column in found.gaps else label + at.get(column, "")
        keys.append(Patch(facecolor=COLOURS[column], edgecolor=COLOURS[column], lw=0.7, label=said))
    if any(isnan(measure_bar(found, metric, column).mean) for metric in METRICS for column in COLUMNS):
        keys.append(Line2D([], [], color=GREY, ls="", marker="x", ms=4, label="not measured"))
    bars = "± sd over seeds (null: and draws)" if len(found.seeds) > 1 else "± sd over draws"
    return [*keys, Line2D([], [], color=INK, ls="", marker="|", ms=5, label=bars)]


def cost_keys(found: Rescue) -> list[Artist]:
    keys: list[Artist] = [
        Line2D([], [], color=COLOURS[key], marker="x", ls="", ms=4, label=found.label(key))
        for key in COST
        if key in found.gaps
    ]
    for key in ("frozen dfa", "frozen bp"):
        look = {"marker": "x", "ls": "", "ms": 4} if key in found.gaps else {"ls": "--", "lw": 1.0}
        keys.append(Line2D([], [], color=COLOURS[key], label=found.label(key), **look))
    seed = Line2D([], [], ls="", marker="o", mfc="white", mec=INK, mew=0.4, ms=2.8, label="each seed")
    bars = [Line2D([], [], color=INK, ls="", marker="|", ms=5, label="± sd over seeds")] if len(found.seeds) > 1 else []
    return [*keys, seed, *bars]
