"""Deep GCNs by rule: mean alignment over depth, and each rule against every variant of BP where BP first fails."""

from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from creditscope.paper.figures import register_figure
from creditscope.paper.figures._graphs import (
    GAINS,
    RECIPE,
    Graph,
    compare,
    draw_over_depth,
    list_gaps,
    look,
    name,
    pick_graphs,
    say_graphs,
)
from creditscope.paper.figures._layout import PAGE, Page, Panel, draw_page, grey_key
from creditscope.paper.studies.graph_depth import BP_VARIANTS, RULES, Method
from creditscope.plots import Caption, Statement
from creditscope.plots._style import BAND, GREY, INK, SMALL
from creditscope.record import Record
from creditscope.text import DASH, number

TINTS = {"below": "#dbe9f6", "": "white", "above": "#f0a99c"}
"""Of cells; in grey the one is light and the other is not."""
TITLE = "Deep GCNs by rule: alignment over depth, and every rule beside every variant of BP."
READING = (
    "Γ: mean cosine of credit and gradient over taps, at the end, with 95 % t interval over seeds; BP's is 1 by "
    "definition, and none where the gradient is 0. Tables: rule − BP in pp, paired over seeds, at the depth where BP "
    "by the recipe first fails, else at the deepest; bold on a tint: the 95 % t interval leaves out 0 (not corrected "
    "for their number). The best BP of a depth is chosen on the test nodes that it is compared on."
)


@register_figure("graph_rules")
def plot_graph_rules(records: Sequence[Record], *, page: Page = PAGE) -> Figure:
    """Draw the figure from the records of study `graph_depth`: Γ over depth, and differences at one depth."""
    graphs = pick_graphs(records)
    beside = page.narrow or len(graphs) == 1
    how = {"height": 1.8, "shape": (1, 2)} if beside else {"height": 2.7, "shape": (2, 1)}
    panels = [
        Panel(find_title(graph), partial(_draw, graph, beside=beside, first=graph is graphs[0]), least=1.6, **how)
        for graph in graphs
    ]
    return draw_page(page, panels, keys=_keys)


def find_title(graph: Graph) -> str:
    """Which rules are above the best BP at the depth that is compared, or that none is."""
    depth = graph.compared_at()
    if (best := graph.best_bp(depth)) is None:
        return graph.name
    above = [name(rule) for rule in RULES if compare(graph.difference(depth, rule, best)) == "above"]
    return f"{graph.name}, L\u00a0=\u00a0{depth}: {', '.join(above) or 'no rule'} above the best BP"


def _draw(graph: Graph, gamma: Axes, matrix: Axes, *, beside: bool, first: bool) -> None:
    """Γ and the cells, below one another with their names at the first graph, or side by side."""
    draw_gamma(gamma, graph)
    draw_matrix(matrix, graph)
    gamma.set_ylabel("mean alignment Γ" if first or beside else "")
    for ax in (gamma, matrix):
        ax.tick_params(labelleft=first or beside)
    if beside:
        matrix.set_xticks(matrix.get_xticks(), [name(rule) for rule in RULES], rotation=90)


def draw_gamma(ax: Axes, graph: Graph) -> None:
    """Mean alignment of every rule; of BP, whose is 1 by definition, one variant."""
    ax.axhline(0, color=GREY, lw=0.7, ls=":", zorder=1, gid="level")
    draw_over_depth(ax, graph, "gamma", (RECIPE, *RULES))
    lowest = np.fmin.reduce([value for cell in graph.found for value in cell.values("gamma")], initial=-0.05)
    ax.set_ylim(lowest - 0.05, 1.08)


def draw_matrix(ax: Axes, graph: Graph) -> None:
    """A cell for each variant of BP and rule: the difference at one depth, tinted where its interval leaves out 0."""
    depth = graph.compared_at()
    found = [[graph.difference(depth, rule, method) for rule in RULES] for method in BP_VARIANTS]
    answers = [[list(TINTS).index(compare(difference)) for difference in row] for row in found]
    ax.pcolormesh(answers, cmap=ListedColormap(list(TINTS.values())), vmin=0, vmax=2, edgecolors=BAND, lw=0.5)
    for (y, method), (x, rule) in product(enumerate(BP_VARIANTS), enumerate(RULES)):
        own = found[y][x]
        text = DASH if own is None else number(round(own.mean), "+d").replace("+0", "0")
        style = {"size": SMALL, "weight": "bold" if compare(own) else "normal", "ha": "center", "va": "center"}
        ax.text(x + 0.5, y + 0.5, text, gid=f"{name(rule)} {name(method)}", **style)
    ax.set_xticks(np.arange(len(RULES)) + 0.5, [name(rule).replace("-", "-\n") for rule in RULES])
    ax.set_yticks(np.arange(len(BP_VARIANTS)) + 0.5, [_name_start(method) for method in BP_VARIANTS])
    ax.set_ylim(len(BP_VARIANTS), 0)
    ax.axhline(len(BP_VARIANTS) // 2, color=INK, lw=0.8)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _name_start(method: Method) -> str:
    """A variant of BP, shortly."""
    start = "residual" if method.residual else f"gain {GAINS[method.gain]}"
    return start if method.decay else f"{start}, no decay"


def _keys(drawn: set[str]) -> list[Artist]:
    keys: list[Artist] = [Line2D([], [], label=name(m), **look(m)) for m in (RECIPE, *RULES)]
    keys += [grey_key("Γ = 0", ls=":")]
    return keys + [Patch(facecolor=TINTS[way], edgecolor=BAND, label=f"rule {way} BP") for way in ("above", "below")]


def describe(records: Sequence[Record]) -> Caption:
    """Γ, and by how much rules differ from every BP, by graph."""
    graphs = pick_graphs(records)
    said = [statement for graph in graphs for statement in _state(graph)]
    gaps = tuple(gap for graph in graphs for gap in list_gaps(graph, RULES, gamma=True))
    return Caption(TITLE, READING, say_graphs(graphs), tuple(said), gaps)


def _state(graph: Graph) -> list[Statement]:
    depth, best = graph.compared_at(), {depth: bp for depth in graph.depths if (bp := graph.best_bp(depth))}
    at = f"at L = {depth}"
    differences = [
        (f"{name(rule)} − BP {at}, pp", name(bp), graph.difference(depth, rule, bp))
        for rule, bp in product(RULES, BP_VARIANTS)
    ] + [
        (f"rule − {name(bp)}, the best BP at L = {depth}, pp", name(rule), graph.difference(depth, rule, bp))
        for (depth, bp), rule in product(best.items(), RULES)
    ]
    gammas = [(rule, graph.interval(depth, rule, "gamma")) for rule in RULES]
    found = [Statement(f"Γ {at}", name(rule), value, panel=graph.name) for rule, value in gammas]
    return found + [Statement(*own, verdict=compare(own[-1]), panel=graph.name, form="+.1f") for own in differences]
