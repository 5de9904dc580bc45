"""Deep GCNs by rule: accuracy and mean alignment over depth, and each rule against every variant of BP.

Every number, also those in the captions, comes from the last snapshots of the records.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, NullLocator

from creditscope.auditing.stats import t_interval
from creditscope.figures import _style, register_figure
from creditscope.figures._graph_depth_captions import captions, compare, footer
from creditscope.figures._graph_depth_text import write_grid
from creditscope.figures._graph_grid import Grid, gain_word, list_depths, paired, select_grid
from creditscope.figures._page import GAP, MARGIN, add_axes, draw_footer, wrap_footer
from creditscope.figures._style import BAND, BODY, FAINT, GREY, INK, PAD, SMALL, WIDTH, line_height, number
from creditscope.record import Record
from creditscope.studies.graph_depth import BP_VARIANTS, METHODS, RULES, Method

BLUE, RED = "#2166ac", "#b2182b"
STARTS = {(1.0, False): "o", (2**0.5, False): "^", (2.0, False): "s", (1.0, True): "*"}
"""Marker of a variant of BP, by gain and residual."""
HEIGHTS = {"accuracy": 1.85, "gamma": 1.15, "matrix": 0.86}
"""Of the rows of panels, inches; a single graph has its panels side by side, all as high as the first."""
AXIS_ROOM, COLUMN_GAP, BELOW = 0.48, 0.2, 0.36
"""Room left of a panel with an axis of its own, left of the others, and below every panel, inches."""
Place = tuple[float, float, float, float]
DODGE = 0.1
"""Octaves between the first and the middle method at one depth."""


@register_figure("graph_depth")
def plot_graph_depth(records: Sequence[Record]) -> Figure:
    """Draw the figure from the records of study `graph_depth`: every method at every depth on every graph."""
    grid = select_grid(records)
    with _style.styled():
        return _compose(grid)


def describe(records: Sequence[Record]) -> str:
    """The tables and sentences as text."""
    return write_grid(select_grid(records))


def _compose(grid: Grid) -> Figure:
    """Graphs from left to right, measures from top to bottom; keys, captions and footer below."""
    boxes = len(grid.tasks)
    box_width = (WIDTH - 2 * MARGIN - (boxes - 1) * GAP) / boxes
    texts = [_paragraphs(captions(grid, task), width=box_width - 2 * PAD) for task in grid.tasks]
    foot, keys = wrap_footer([footer(grid), " ".join(grid.notes)]), _keys(grid)
    box, box_bottom = max(map(len, texts)) * line_height() + 2 * PAD, len(foot) * line_height() + 0.1
    key_top = box_bottom + box + 0.1 + max(map(_style.key_height, keys))
    places, top = _arrange(grid.tasks, bottom=key_top + 0.46)
    fig = Figure(figsize=(WIDTH, top + 0.26))
    for (task, kind), place in places.items():
        ax = add_axes(fig, *place, label=f"{task} {kind}")
        first = boxes == 1 or task == grid.tasks[0]
        PANELS[kind](ax, grid, task, first=first)
        if kind == "accuracy":
            said = {"transform": fig.dpi_scale_trans, "weight": "bold", "va": "bottom", "size": BODY}
            fig.text(place[0], top + 0.06, task, **said)
    for i, text in enumerate(texts):
        x = MARGIN + i * (box_width + GAP)
        _style.draw_caption(fig, text, x=x, y=box_bottom, width=box_width, height=box)
    for x, group in zip((0.1, 1.25, 3.0, 4.1), keys, strict=True):
        _style.draw_key(fig.axes[0], group, x=MARGIN + x, y=key_top, loc="upper left")
    draw_footer(fig, foot, top=box_bottom - 0.06)
    return fig


def _paragraphs(texts: Sequence[str], *, width: float) -> list[str]:
    return [line for text in texts for line in _style.wrap_text(text, width=width, italic=True)]


def _arrange(tasks: Sequence[str], *, bottom: float) -> tuple[dict[tuple[str, str], Place], float]:
    """Where each panel goes (x, y, width, height), and the top of them; one graph has its panels side by side."""
    left, right = MARGIN + AXIS_ROOM, WIDTH - MARGIN
    if len(tasks) == 1:
        width, height = (right - left + AXIS_ROOM) / len(HEIGHTS) - AXIS_ROOM, HEIGHTS["accuracy"]
        kinds = enumerate(HEIGHTS)
        row = {(tasks[0], kind): (left + i * (width + AXIS_ROOM), bottom, width, height) for i, kind in kinds}
        return row, bottom + height
    width = (right - left + COLUMN_GAP) / len(tasks) - COLUMN_GAP
    places, y = {}, bottom
    for kind, height in reversed(HEIGHTS.items()):
        places |= {(t, kind): (left + i * (width + COLUMN_GAP), y, width, height) for i, t in enumerate(tasks)}
        y += height + BELOW
    return places, y - BELOW


def look(method: Method, grid: Grid) -> dict:
    """Colour by rule; of BP's variants, the marker by start, line and face by decay."""
    styles = _style.rule_styles([m.rule for m in (BP_VARIANTS[0], *RULES)], labels=grid.labels)
    rule = styles[method.rule]
    if method.rule != "bp":
        return {"color": rule.colour, "marker": rule.marker, "ms": 4.0, "lw": 1.3, "mew": 0}
    filled = {"mfc": rule.colour, "ls": "-"} if method.decay else {"mfc": "white", "ls": (0, (3, 1.6))}
    marker = STARTS[method.gain, method.residual]
    return {
        "color": rule.colour,
        "marker": marker,
        "ms": 5.0 if marker == "*" else 3.2,
        "lw": 0.9,
        "mew": 0.7,
        **filled,
    }


def _draw_depths(ax: Axes, grid: Grid) -> None:
    """The logarithmic axis of depth."""
    ax.set_xscale("log", base=2)
    ax.set_xlim(grid.depths[0] / 2**0.25, grid.depths[-1] * 2**0.25)
    ax.xaxis.set_major_locator(FixedLocator(grid.depths))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(grid.depths, [str(depth) for depth in grid.depths])
    ax.set_xlabel("depth L", labelpad=1)


def _draw_series(ax: Axes, grid: Grid, task: str, name: str, methods: Sequence[Method]) -> None:
    """Mean and 95 % t interval over seeds of every method at every depth; a line breaks where runs are missing."""
    middle = (len(METHODS) - 1) / 2
    for rank, method in enumerate(METHODS):
        if method not in methods:
            continue
        x = np.array(grid.depths) * 2 ** (DODGE * (rank - middle) / middle)
        means, lows, highs = (np.full(len(grid.depths), np.nan) for _ in range(3))
        for i, depth in enumerate(grid.depths):
            values = list(grid.cell(task, depth, method).values(name).values())
            if values:
                found = t_interval(values)
                means[i] = found.mean
                lows[i], highs[i] = (np.nan if bound is None else bound for bound in (found.low, found.high))
        style = look(method, grid)
        own = method.rule != "bp"
        ax.vlines(x, lows, highs, color=style["color"], lw=0.6, alpha=0.8, zorder=3 + own)
        ax.plot(x, means, zorder=4 + own, gid=f"{name} {grid.name(method)}", **style)


def draw_accuracy(ax: Axes, grid: Grid, task: str, *, first: bool) -> None:
    """Every method, with chance, the majority class, and a mark where runs are missing."""
    _draw_depths(ax, grid)
    facts = grid.facts(task)
    for name, style in (("best_constant", "--"), ("chance", ":")):
        value = getattr(facts, name, None)
        if value is not None:
            ax.axhline(value, color=GREY, lw=0.7, ls=style, zorder=1, gid=name)
    for depth in grid.depths:
        lost = grid.missing(task, depth)
        if lost:
            ax.axvspan(
                depth / 2**0.13, depth * 2**0.13, facecolor="none", edgecolor=BAND, hatch="/////", lw=0, zorder=0
            )
            said = {"size": SMALL - 0.6, "rotation": 90, "ha": "center", "va": "top", "color": INK, "zorder": 6}
            ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8}
            ax.text(depth, 0.99, f"{len(lost)} of {len(METHODS)} not on record", bbox=ground, gid="gap", **said)
    _draw_series(ax, grid, task, "accuracy", METHODS)
    ax.set_ylim(0, 1.03)
    ax.set_ylabel("test accuracy" if first else "")
    ax.tick_params(axis="y", labelleft=first)


def draw_gamma(ax: Axes, grid: Grid, task: str, *, first: bool) -> None:
    """Mean alignment of every rule; of BP, whose is 1 by definition, one variant."""
    _draw_depths(ax, grid)
    ax.axhline(0, color=FAINT, lw=0.7, ls=":", zorder=1)
    _draw_series(ax, grid, task, "gamma", (BP_VARIANTS[0], *RULES))
    lowest = min((min(c.values("gamma").values(), default=0.0) for c in grid.cells.values()), default=0.0)
    ax.set_ylim(min(-0.1, lowest - 0.05), 1.08)
    ax.set_yticks([0, 0.5, 1])
    ax.set_ylabel("mean alignment Γ" if first else "")
    ax.tick_params(axis="y", labelleft=first)


def draw_matrix(ax: Axes, grid: Grid, task: str, *, first: bool) -> None:
    """A cell for each rule and variant of BP: the difference over the deep depths, tinted where it is no accident."""
    ax.set(xlim=(0, len(BP_VARIANTS)), ylim=(len(RULES), -0.9))
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.tick_params(length=0)
    for y, rule in enumerate(RULES):
        own = grid.over_deep(task, rule)
        for x, method in enumerate(BP_VARIANTS):
            found = paired(own, grid.over_deep(task, method))
            answer = "" if found is None else compare(found)
            tint = {"above": "#f6d3cf", "below": "#cfe0f1"}.get(answer, "white")
            ax.add_patch(Rectangle((x, y), 1, 1, facecolor=tint, edgecolor=BAND, lw=0.5))
            text = "–" if found is None else _whole(found.mean)
            weight = "bold" if answer else "normal"
            where = {"ha": "center", "va": "center", "size": SMALL, "weight": weight}
            ax.text(x + 0.5, y + 0.53, text, gid=f"{rule.rule} {grid.name(method)}", **where)
    ax.set_xticks([x + 0.5 for x in range(len(BP_VARIANTS))], [_start(m) for m in BP_VARIANTS])
    ax.set_yticks([y + 0.5 for y in range(len(RULES))], [grid.name(r) for r in RULES] if first else [""] * len(RULES))
    half = len(BP_VARIANTS) // 2
    for x, words in ((half / 2, "decay"), (half * 1.5, "no decay")):
        ax.text(x, -0.25, words, ha="center", va="center", size=SMALL, color=GREY)
    ax.axvline(half, ymax=len(RULES) / (len(RULES) + 0.9), color=INK, lw=0.8)
    said = f"rule − BP by start, pp, mean over {list_depths(grid.deep)}"
    width = ax.get_window_extent().width / ax.figure.dpi
    ax.set_xlabel("\n".join(_style.wrap_text(said, width=width)), size=SMALL, labelpad=1)


PANELS = {"accuracy": draw_accuracy, "gamma": draw_gamma, "matrix": draw_matrix}


def _whole(value: float) -> str:
    return ("+" if round(value) > 0 else "") + number(value, digits=0).replace("−0", "0")


def _start(method: Method) -> str:
    return "res." if method.residual else gain_word(method.gain)


def _keys(grid: Grid) -> list[Sequence[Artist]]:
    """The variants of BP with decay and without, the rules, and what the other marks are."""

    def line(method: Method) -> Line2D:
        return Line2D([], [], label=grid.name(method), **look(method, grid))

    n = len(grid.seeds)
    seen = f"mean, 95 % t interval over {n} seeds" if n > 1 else "one seed, no interval"
    marks: list[Artist] = [
        Line2D([], [], color=INK, lw=0.6, marker="|", ms=6, mew=0.6, ls="", label=seen),
        Line2D([], [], color=GREY, lw=0.7, ls="--", label="majority class"),
        Line2D([], [], color=GREY, lw=0.7, ls=":", label="chance (accuracy), 0 (Γ)"),
        Patch(facecolor="#f6d3cf", edgecolor=BAND, label="rule above BP (95 % t interval leaves out 0)"),
        Patch(facecolor="#cfe0f1", edgecolor=BAND, label="rule below BP"),
    ]
    if any(grid.missing(task, depth) for task in grid.tasks for depth in grid.depths):
        marks.append(Patch(facecolor="white", edgecolor=FAINT, hatch="/////", lw=0.4, label="runs missing"))
    decay, none = ([line(m) for m in BP_VARIANTS if m.decay is on] for on in (True, False))
    return [decay, none, [line(m) for m in RULES], marks]
