"""The panels of figure `graph_depth`: accuracy of rules and of BP variants, alignment, the matrix of differences."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, NullLocator

from creditscope.paper.figures import _style
from creditscope.paper.figures._graph_depth_captions import title
from creditscope.paper.figures._graph_grid import Grid, gain_word
from creditscope.paper.figures._graph_learning import RECIPE, compare, find_subject
from creditscope.paper.figures._style import BAND, BLUE, FAINT, GREY, INK, SMALL
from creditscope.paper.figures._words import number
from creditscope.paper.studies.graph_depth import BP_VARIANTS, RULES, SQRT2, Method
from creditscope.rule_styles import rule_looks
from creditscope.text import DASH

STARTS = {
    (1.0, False): ("o", 3.4, BLUE),
    (SQRT2, False): ("^", 3.6, "#67a9cf"),
    (2.0, False): ("s", 3.2, "#01665e"),
    (1.0, True): ("*", 5.0, "#bf812d"),
}
"""Marker, its size and colour of a variant of BP, by gain and residual."""
OTHERS = BP_VARIANTS[1:]
RANGE = "#d6e4f0"
"""Colour of the range of the other BP variants."""
TINTS = {"above": "#f6d3cf", "below": "#cfe0f1", "": "white"}
DODGE = 0.1
"""Octaves between the middle method and the last one at a depth."""
HEAD = 0.9
"""Room over the matrix for the words decay and no decay, in rows."""


def look(method: Method, grid: Grid) -> dict:
    """A rule has its colour and marker; of BP's variants start gives both, and decay a full line and marker."""
    if method.rule != "bp":
        style = rule_looks([m.rule for m in (RECIPE, *RULES)], labels=grid.labels)[method.rule]
        return {"color": style.colour, "marker": style.marker, "ms": 4.2, "lw": 1.4, "mew": 0}
    marker, size, colour = STARTS[method.gain, method.residual]
    line = {"mfc": colour, "ls": "-"} if method.decay else {"mfc": "white", "ls": (0, (3, 1.6))}
    width = 1.9 if method == RECIPE else 0.9
    return {"color": colour, "marker": marker, "ms": size + (method == RECIPE), "lw": width, "mew": 0.7, **line}


def draw_rules(ax: Axes, grid: Grid, task: str, *, first: bool) -> None:
    """The rules and BP by the recipe, over the range of the other BP variants."""
    means = np.array([_means(grid, task, method) for method in OTHERS])
    masked = np.ma.masked_invalid(means)
    low, high = (np.ma.filled(edge, np.nan) for edge in (masked.min(axis=0), masked.max(axis=0)))
    ax.fill_between(grid.depths, low, high, color=RANGE, lw=0, zorder=1, gid="other BP")
    _draw_accuracy(ax, grid, task, (RECIPE, *RULES))
    _name_values(ax, "test accuracy, rules", first=first)


def draw_variants(ax: Axes, grid: Grid, task: str, *, first: bool) -> None:
    """Every variant of BP."""
    _draw_accuracy(ax, grid, task, BP_VARIANTS)
    _name_values(ax, "test accuracy, BP variants", first=first)


def draw_gamma(ax: Axes, grid: Grid, task: str, *, first: bool) -> None:
    """Mean alignment of every rule; of BP, whose is 1 by definition, one variant."""
    _draw_depths(ax, grid)
    ax.axhline(0, color=FAINT, lw=0.7, ls=":", zorder=1)
    _draw_series(ax, grid, task, "gamma", (RECIPE, *RULES))
    lowest = min((min(c.values("gamma").values(), default=0.0) for c in grid.cells.values()), default=0.0)
    ax.set_ylim(min(-0.1, lowest - 0.05), 1.08)
    ax.set_yticks([0, 0.5, 1])
    _name_values(ax, "mean alignment Γ", first=first)


def draw_matrix(ax: Axes, grid: Grid, task: str, *, first: bool) -> None:
    """A cell for each rule and variant of BP: the difference at one depth, tinted where its interval leaves out 0."""
    depth, half = find_subject(grid, task).depth, len(BP_VARIANTS) // 2
    ax.set(xlim=(0, len(BP_VARIANTS)), ylim=(len(RULES), -HEAD))
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.tick_params(length=0)
    for y, rule in enumerate(RULES):
        for x, method in enumerate(BP_VARIANTS):
            found = grid.difference(task, depth, rule, method)
            answer = "" if found is None else compare(found)
            ax.add_patch(Rectangle((x, y), 1, 1, facecolor=TINTS[answer], edgecolor=BAND, lw=0.5))
            text = DASH if found is None else _whole(found.mean)
            where = {"ha": "center", "va": "center", "size": SMALL, "weight": "bold" if answer else "normal"}
            ax.text(x + 0.5, y + 0.53, text, gid=f"{rule.rule} {grid.name(method)}", **where)
    ax.set_xticks([x + 0.5 for x in range(len(BP_VARIANTS))], [_start(m) for m in BP_VARIANTS])
    ax.set_yticks([y + 0.5 for y in range(len(RULES))], [grid.name(r) for r in RULES] if first else [""] * len(RULES))
    for x, words in ((half / 2, "decay"), (half * 1.5, "no decay")):
        ax.text(x, -0.25, words, ha="center", va="center", size=SMALL, color=GREY)
    ax.axvline(half, ymax=len(RULES) / (len(RULES) + HEAD), color=INK, lw=0.8)
    ax.set_xlabel("gain (res.: residual) of BP", size=SMALL, labelpad=1)
    width = ax.get_window_extent().width / ax.figure.dpi
    ax.set_title("\n".join(_style.wrap_text(title(grid, task), width=width)), size=SMALL, pad=2)


PANELS = {"rules": draw_rules, "variants": draw_variants, "gamma": draw_gamma, "matrix": draw_matrix}


def _draw_accuracy(ax: Axes, grid: Grid, task: str, methods: Sequence[Method]) -> None:
    """Methods with chance, majority class, the depth where BP first fails, and a mark where runs are lost."""
    _draw_depths(ax, grid)
    facts, subject = grid.facts(task), find_subject(grid, task)
    for name, style in (("best_constant", "--"), ("chance", ":")):
        value = getattr(facts, name, None)
        if value is not None:
            ax.axhline(value, color=GREY, lw=0.7, ls=style, zorder=2, gid=name)
    if subject.failed:
        ax.axvline(subject.depth, color=INK, lw=0.6, ls="-.", zorder=2, gid="first failure")
    for depth in grid.depths:
        counts = zip(grid.lost(task, depth, methods), ("diverged", "not on record"), strict=True)
        lost = ", ".join(f"{count} {how}" for count, how in counts if count)
        if lost:
            around = {"facecolor": "none", "edgecolor": BAND, "hatch": "/////", "lw": 0, "zorder": 0}
            ax.axvspan(depth / 2**0.13, depth * 2**0.13, **around)
            said = {"size": SMALL - 0.4, "rotation": 90, "ha": "center", "va": "top", "color": INK, "zorder": 9}
            ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
            ax.text(depth, 1.02, lost, bbox=ground, gid="lost", **said)
    _draw_series(ax, grid, task, "accuracy", methods)
    ax.set_ylim(0, 1.03)


def _draw_series(ax: Axes, grid: Grid, task: str, name: str, methods: Sequence[Method]) -> None:
    """Mean over seeds of every method at every depth, and, but for BP's variants, its 95 % t interval.

    A line breaks where there is no run.
    """
    middle = (len(methods) - 1) / 2
    for rank, method in enumerate(methods):
        x = np.array(grid.depths) * 2 ** (DODGE * (rank - middle) / middle)
        found = [grid.cell(task, depth, method).interval(name) for depth in grid.depths]
        bounds = [(i.low, i.high) if i and i.low is not None else (np.nan, np.nan) for i in found]
        style, own = look(method, grid), method.rule != "bp"
        if own or method == RECIPE:
            ax.vlines(x, *zip(*bounds, strict=True), color=style["color"], lw=0.7, alpha=0.6, zorder=3 + own)
        ax.plot(x, _means(grid, task, method, name), zorder=4 + own, gid=f"{name} {grid.name(method)}", **style)


def _means(grid: Grid, task: str, method: Method, name: str = "accuracy") -> list[float]:
    """By depth; NaN without runs."""
    found = [grid.cell(task, depth, method).interval(name) for depth in grid.depths]
    return [interval.mean if interval else np.nan for interval in found]


def _draw_depths(ax: Axes, grid: Grid) -> None:
    """The logarithmic axis of depth."""
    ax.set_xscale("log", base=2)
    ax.set_xlim(grid.depths[0] / 2**0.25, grid.depths[-1] * 2**0.25)
    ax.xaxis.set_major_locator(FixedLocator(grid.depths))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(grid.depths, [str(depth) for depth in grid.depths])
    ax.set_xlabel("depth L", labelpad=1)


def _name_values(ax: Axes, name: str, *, first: bool) -> None:
    ax.set_ylabel(name if first else "")
    ax.tick_params(axis="y", labelleft=first)


def _whole(value: float) -> str:
    return ("+" if round(value) > 0 else "") + number(value, digits=0)


def _start(method: Method) -> str:
    return "res." if method.residual else gain_word(method.gain)
