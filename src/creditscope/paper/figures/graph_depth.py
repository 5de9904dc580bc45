"""Deep GCNs by rule: accuracy over depth, of every rule and of every variant of BP."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from creditscope.paper.figures import register_figure
from creditscope.paper.figures._graphs import (
    RECIPE,
    Graph,
    by_depth,
    draw_over_depth,
    list_gaps,
    look,
    name,
    pick_graphs,
    say_graphs,
)
from creditscope.paper.figures._layout import PAGE, Page, Panel, draw_page, grey_key
from creditscope.paper.figures.bottleneck_controls import MARGIN
from creditscope.paper.studies.graph_depth import BP_VARIANTS, METHODS, RULES, Method
from creditscope.plots import Caption, Statement
from creditscope.plots._style import BAND, FAINT, GREY, SMALL
from creditscope.record import Record

RANGE = "#d6e4f0"  # of the other BP variants
HATCH: dict[str, Any] = {"facecolor": "none", "edgecolor": FAINT, "hatch": "/////", "lw": 0}
TITLE = "Deep GCNs by rule: accuracy over depth, of rules and of variants of BP."
READING = (
    "Of each graph the rules, and the variants of BP. Means over seeds that did not diverge, bars their 95 % t "
    "interval (of rules and of BP by the recipe; the other variants of BP start from a larger gain or have a residual, "
    "or do not decay). Hatched: runs diverged or are not on record. "
    f"Fails: the mean is not above the majority class by {100 * MARGIN:g} pp; trains: the lower end of the interval is "
    "and no run diverged."
)


@register_figure("graph_depth")
def plot_graph_depth(records: Sequence[Record], *, page: Page = PAGE) -> Figure:
    """Draw the figure from the records of study `graph_depth`: every method at every depth on every graph."""
    graphs = pick_graphs(records)
    beside = page.narrow or len(graphs) == 1
    how: dict[str, Any] = {"height": 2.9, "shape": (2, 1)}
    if beside:
        how = {"height": 1.3, "shape": (1, 2), "above": ("accuracy, rules", "accuracy, BP variants")}
    panels = [
        Panel(find_title(graph), partial(_draw, graph, beside=beside, first=graph is graphs[0]), least=1.6, **how)
        for graph in graphs
    ]
    return draw_page(page, panels, keys=_keys, share={"y": "all"})


def find_title(graph: Graph) -> str:
    """Where BP by the recipe first fails, if it does."""
    depth = graph.first_failure()
    return graph.name if depth is None else f"{graph.name}: BP by the recipe fails at L\u00a0=\u00a0{depth}"


def _draw(graph: Graph, rules: Axes, variants: Axes, *, beside: bool, first: bool) -> None:
    """Rules and variants, below one another with their names at the first graph, or side by side."""
    others = [by_depth(graph, bp, "accuracy")[1] for bp in BP_VARIANTS[1:]]
    low, high = np.fmin.reduce(others), np.fmax.reduce(others)
    rules.fill_between(graph.depths, low, high, color=RANGE, lw=0, zorder=1, gid="other BP")
    draw_accuracy(rules, graph, (RECIPE, *RULES))
    draw_accuracy(variants, graph, BP_VARIANTS)
    for ax, of in ((rules, "rules"), (variants, "BP variants")):
        ax.set_ylabel(f"accuracy, {of}" if first and not beside else "")
        ax.tick_params(labelleft=(ax is rules) if beside else first)
    rules.set_xlabel("depth L" if beside else "")


def draw_accuracy(ax: Axes, graph: Graph, methods: Sequence[Method]) -> None:
    """Methods with chance, majority class, the depth where BP first fails, and a mark where runs are lost."""
    for value, style in ((graph.facts.best_constant, "--"), (graph.facts.chance, ":")):
        if value is not None:
            ax.axhline(value, color=GREY, lw=0.7, ls=style, zorder=2, gid="level")
    if (depth := graph.first_failure()) is not None:
        ax.axvline(depth, color=GREY, lw=0.8, ls="-.", zorder=2, gid="first failure")
    for depth in graph.depths:
        cells = [graph.cell(depth, method) for method in methods]
        diverged = sum(len(cell.diverged) for cell in cells)
        counts = {"diverged": diverged, "not on record": sum(len(cell.lost) for cell in cells) - diverged}
        if said := ", ".join(f"{runs} {why}" for why, runs in counts.items() if runs):
            ax.axvspan(depth / 2**0.13, depth * 2**0.13, gid="lost", **{**HATCH, "edgecolor": BAND, "zorder": 0})
            place = {"rotation": 90, "ha": "center", "va": "top", "size": SMALL, "zorder": 9, "gid": "lost"}
            ax.text(depth, 1.02, said, bbox={"fc": "white", "ec": "none", "pad": 0.6, "alpha": 0.85}, **place)
    draw_over_depth(ax, graph, "accuracy", methods)
    ax.set_ylim(0, 1.03)


def _keys(drawn: set[str]) -> list[Artist]:
    """The rules, the variants of BP, and what the other marks are, of those that are drawn."""
    keys: list[Artist] = [Line2D([], [], label=name(m), **look(m)) for m in (RECIPE, *RULES, *BP_VARIANTS[1:])]
    keys.append(Patch(facecolor=RANGE, label="other BPs, worst to best"))
    keys += [grey_key("majority class", ls="--"), grey_key("chance", ls=":")]
    keys += [grey_key("BP first fails", ls="-.")] * ("first failure" in drawn)
    keys += [Patch(label="diverged or missing", **HATCH)] * ("lost" in drawn)
    return keys


def describe(records: Sequence[Record]) -> Caption:
    """Who trains, and at which depths, by graph."""
    graphs = pick_graphs(records)
    said = [statement for graph in graphs for statement in _state(graph)]
    gaps = tuple(gap for graph in graphs for gap in list_gaps(graph))
    return Caption(TITLE, READING, say_graphs(graphs), tuple(said), gaps)


def _state(graph: Graph) -> list[Statement]:
    failure, levels = graph.first_failure(), {"majority class": graph.facts.best_constant, "chance": graph.facts.chance}
    depth = graph.compared_at()
    at = f"accuracy at L = {depth}"
    trained = {m: [own for own in graph.depths if graph.judge(own, m) == "trains"] for m in METHODS}
    said = [
        ("first depth at which it fails", name(RECIPE), failure or "none", ""),
        *((at, level, value, "") for level, value in levels.items()),
        *((at, name(m), graph.interval(depth, m), graph.judge(depth, m)) for m in METHODS),
        *(("deepest that trains", name(m), max(trained[m], default="none"), "") for m in METHODS),
        *(("accuracy there", name(m), graph.interval(own[-1], m), "") for m, own in trained.items() if own),
    ]
    return [Statement(*own, verdict=verdict, panel=graph.name) for *own, verdict in said]
