"""Deep GCNs by rule: accuracy and mean alignment over depth, and each rule against every variant of BP.

Every number comes from the last snapshots of the records. What "trains" and "fails" mean is defined here and nowhere
else; the margin is that of figure `bottleneck_controls`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from creditscope.auditing.depth import paired_interval
from creditscope.auditing.stats import Interval, t_interval
from creditscope.errors import CreditscopeError
from creditscope.paper.figures import register_figure
from creditscope.paper.figures._depths import say_recipe
from creditscope.paper.figures._layout import LETTERS, draw_key, grey_key, head, make_page
from creditscope.paper.figures.bottleneck_controls import MARGIN
from creditscope.paper.studies.graph_depth import BP_VARIANTS, METHODS, RULES, SQRT2, Method, method_of
from creditscope.plots import Caption, Statement
from creditscope.plots._style import BAND, FAINT, GREY, INK, SMALL, styled
from creditscope.record import Facts, Record, RunSpec
from creditscope.record.pick import Cell, Picked, pick, spec_of
from creditscope.rule_styles import LOOKS
from creditscope.text import DASH, number

RECIPE = BP_VARIANTS[0]
FREE = ("task_options", "data_version", "net_options.gain", "net_options.residual", "weight_decay", "rule")
"""What a method or a graph changes."""
GRAPHS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed", "sbm": "SBM"}
"""How graphs are called, and their order from left to right; others follow under the names of their tasks."""
GAINS = {1.0: "1", SQRT2: "√2", 2.0: "2"}
Verdict = Literal["trains", "undecided", "fails", "diverged", "not on record"]


@dataclass(frozen=True)
class Graph:
    """The runs on one graph, by depth and method."""

    task: str
    name: str
    found: Picked
    """Of all graphs, by (task, depth, method)."""
    depths: tuple[int, ...]
    facts: Facts

    def cell(self, depth: int, method: Method) -> Cell:
        """The runs there, maybe none."""
        return self.found[self.task, depth, method]

    def interval(self, depth: int, method: Method, quantity: str = "accuracy") -> Interval | None:
        """Mean and 95 % t interval over seeds; None if there is no value."""
        values = list(self.cell(depth, method).by_seed(quantity).values())
        return t_interval(values) if values else None

    def difference(self, depth: int, method: Method, other: Method) -> Interval | None:
        """Of accuracies in pp, paired over the seeds both have; None if they share none."""
        found = [self.cell(depth, m).by_seed("accuracy") for m in (method, other)]
        return paired_interval(*({seed: 100 * value for seed, value in own.items()} for own in found))

    def best_bp(self, depth: int) -> Method | None:
        """The variant of BP with the highest mean accuracy there."""
        found = {m: interval.mean for m in BP_VARIANTS if (interval := self.interval(depth, m))}
        return max(found, key=found.__getitem__) if found else None

    def judge(self, depth: int, method: Method) -> Verdict:
        """Whether accuracy is above the majority class by the margin: a mean that is not fails.

        It trains if the lower end of the 95 % t interval is and no run diverged; in between it is undecided.
        """
        diverged, found = self.cell(depth, method).diverged, self.interval(depth, method)
        if found is None:
            return "diverged" if diverged else "not on record"
        if self.facts.best_constant is None:
            raise CreditscopeError(
                f"Expected the share of the majority class in the records of {self.task!r}, but got none. Train others."
            )
        bar = self.facts.best_constant + MARGIN
        if found.mean <= bar:
            return "fails"
        return "trains" if found.low is not None and found.low > bar and not diverged else "undecided"

    def first_failure(self) -> int | None:
        """The shallowest depth at which BP by the recipe fails or diverges."""
        return next((depth for depth in self.depths if self.judge(depth, RECIPE) in ("fails", "diverged")), None)


def pick_graphs(records: Sequence[Record]) -> list[Graph]:
    """Every run of a known method, by graph; refuses runs that differ in more than what the figure varies."""

    def method(spec: RunSpec) -> Method | None:
        return own if (own := method_of(spec)) in METHODS else None

    vary = {"task": "task", "depth": "net_options.depth", "method": method}
    found = pick(records, vary=vary, where={"net": "gcn"}, free=FREE)
    known = [record for cell in found for record in (*cell.records, *cell.diverged.values())]
    facts = {spec_of(record).task: record.facts for record in known}
    values = {"weight decay beside none": {str(spec_of(r).weight_decay) for r in known if spec_of(r).weight_decay}}
    for spec in map(spec_of, known):
        values.setdefault(f"version of the graph {spec.task!r}", set()).add(f"{spec.task_options} {spec.data_version}")
    for what, own in values.items():
        if len(own) > 1:
            raise CreditscopeError(f"Expected one {what}, but got {' and '.join(sorted(own))}. Pass records of one.")
    tasks = sorted(facts, key=lambda task: ([*GRAPHS, task].index(task), task))
    return [Graph(task, GRAPHS.get(task, task), found, tuple(found.along("depth")), facts[task]) for task in tasks]


def compare(difference: Interval | None) -> Literal["above", "below", ""]:
    """Whether the 95 % interval leaves out 0, and on which side."""
    if difference is None or difference.low is None or difference.high is None:
        return ""
    return "above" if difference.low > 0 else "below" if difference.high < 0 else ""


def name(method: Method) -> str:
    """A method in words, by what differs from the recipe.

    >>> name(Method("bp", gain=2.0, decay=False)), name(Method("bp")), name(Method("kaft"))
    ('BP, gain 2, no decay', 'BP by the recipe', 'KAFT')
    """
    gain = [] if method.gain == 1 else [f"gain {GAINS[method.gain]}"]
    changes = gain + ["residual"] * method.residual + ["no decay"] * (not method.decay)
    return "BP by the recipe" if method == RECIPE else ", ".join([LOOKS[method.rule].label, *changes])


STARTS = {
    (1.0, False): ("o", 3.4, LOOKS["bp"].colour),
    (SQRT2, False): ("^", 3.6, "#67a9cf"),
    (2.0, False): ("s", 3.2, "#01665e"),
    (1.0, True): ("*", 5.0, "#bf812d"),
}
"""Marker, its size and colour of a variant of BP, by gain and residual."""
RANGE = "#d6e4f0"  # of the other BP variants
TINTS = {"below": "#cfe0f1", "": "white", "above": "#f6d3cf"}
HATCH: dict[str, Any] = {"facecolor": "none", "edgecolor": FAINT, "hatch": "/////", "lw": 0}
LABELS = ("accuracy, rules", "accuracy, BP variants", "mean alignment Γ")
HEIGHTS = (2.0, 1.7, 1.1, 1.0)
"""Of the rows of panels, inches."""
TITLE = "Deep GCNs by rule: accuracy and alignment over depth, and every rule beside every variant of BP."
READING = (
    "Means over seeds that did not diverge, bars their 95 % t interval (of rules and of BP by the recipe; the other "
    "variants of BP start from a larger gain or have a residual, or do not decay). Hatched: runs diverged or are not "
    "on record. Γ: mean cosine of credit and gradient over taps, at the end; BP's is 1 by definition, and none where "
    "the gradient is 0. Tables: rule − BP in pp, paired over seeds, at the depth where BP by the recipe first fails, "
    "else at the deepest; bold on a tint: the 95 % t interval leaves out 0 (not corrected for their number). "
    f"Fails: the mean is not above the majority class by {100 * MARGIN:g} pp; trains: the lower end of the interval is "
    "and no run diverged. The best BP of a depth is chosen on the test nodes that it is compared on."
)


@register_figure("graph_depth")
def plot_graph_depth(records: Sequence[Record]) -> Figure:
    """Draw the figure from the records of study `graph_depth`: every method at every depth on every graph."""
    graphs = pick_graphs(records)
    several = len(graphs) > 1
    shape, heights = ((4, len(graphs)), HEIGHTS) if several else ((2, 2), HEIGHTS[::2])
    with styled():
        shared = "row" if several else "none"
        fig, axes = make_page(*shape, height=sum(heights) + 1.9, height_ratios=heights, sharey=shared)
        axes = axes.reshape(4, -1)
        for letter, graph, (rules, variants, gamma, matrix) in zip(LETTERS, graphs, axes.T, strict=False):
            head(rules, letter if several else "", graph.name)
            others = [_by_depth(graph, bp, "accuracy")[1] for bp in BP_VARIANTS[1:]]
            low, high = np.fmin.reduce(others), np.fmax.reduce(others)
            rules.fill_between(graph.depths, low, high, color=RANGE, lw=0, zorder=1, gid="other BP")
            draw_accuracy(rules, graph, (RECIPE, *RULES))
            draw_accuracy(variants, graph, BP_VARIANTS)
            draw_gamma(gamma, graph)
            draw_matrix(matrix, graph)
        for ax, label in zip(axes[:, 0], LABELS, strict=False):
            ax.set_ylabel(label)
        draw_key(fig, _keys(fig))
    return fig


def look(method: Method) -> dict[str, Any]:
    """A rule has its colour and marker; of BP's variants start gives both, and decay a full line and marker."""
    if method.rule != "bp":
        style = LOOKS[method.rule]
        return {"color": style.colour, "marker": style.marker, "ms": 4.2, "lw": 1.4, "mew": 0}
    marker, size, colour = STARTS[method.gain, method.residual]
    line = {"mfc": colour, "ls": "-"} if method.decay else {"mfc": "white", "ls": (0, (3, 1.6))}
    line |= {"lw": 1.9, "ms": size + 1} if method == RECIPE else {"lw": 0.9, "ms": size}
    return {"color": colour, "marker": marker, "mew": 0.7, **line}


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
    _draw_lines(ax, graph, "accuracy", methods)
    ax.set_ylim(0, 1.03)


def draw_gamma(ax: Axes, graph: Graph) -> None:
    """Mean alignment of every rule; of BP, whose is 1 by definition, one variant."""
    ax.axhline(0, color=GREY, lw=0.7, ls=":", zorder=1)
    _draw_lines(ax, graph, "gamma", (RECIPE, *RULES))
    lowest = np.fmin.reduce([value for cell in graph.found for value in cell.values("gamma")], initial=-0.05)
    ax.set_ylim(lowest - 0.05, 1.08)


def draw_matrix(ax: Axes, graph: Graph) -> None:
    """A cell for each rule and variant of BP: the difference at one depth, tinted where its interval leaves out 0."""
    depth = graph.first_failure() or graph.depths[-1]
    found = [[graph.difference(depth, rule, method) for method in BP_VARIANTS] for rule in RULES]
    answers = [[list(TINTS).index(compare(difference)) for difference in row] for row in found]
    ax.pcolormesh(answers, cmap=ListedColormap(list(TINTS.values())), vmin=0, vmax=2, edgecolors=BAND, lw=0.5)
    for (y, rule), (x, method) in product(enumerate(RULES), enumerate(BP_VARIANTS)):
        own = found[y][x]
        text = DASH if own is None else number(round(own.mean), "+d").replace("+0", "0")
        style = {"size": SMALL, "weight": "bold" if compare(own) else "normal", "ha": "center", "va": "center"}
        ax.text(x + 0.5, y + 0.5, text, gid=f"{name(rule)} {name(method)}", **style)
    starts = ["res." if m.residual else GAINS[m.gain] for m in BP_VARIANTS]
    ax.set_xticks(np.arange(len(starts)) + 0.5, starts)
    ax.set_yticks(np.arange(len(RULES)) + 0.5, [name(rule) for rule in RULES])
    ax.set_ylim(len(RULES), 0)
    ax.axvline(len(BP_VARIANTS) // 2, color=INK, lw=0.8)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_xlabel("gain (res.: residual), decay | no decay", size=SMALL)
    ax.set_title(f"rule − BP at L = {depth}, pp", size=SMALL)


def _draw_lines(ax: Axes, graph: Graph, quantity: str, methods: Sequence[Method]) -> None:
    """The mean of every method at every depth, and its interval, but for BP's variants; a line breaks without runs."""
    for method in methods:
        style, own = look(method), method.rule != "bp"
        low, mean, high = _by_depth(graph, method, quantity)
        if own or method == RECIPE:
            ax.vlines(graph.depths, low, high, color=style["color"], lw=0.7, alpha=0.6, zorder=3 + own)
        ax.plot(graph.depths, mean, zorder=4 + own, gid=f"{quantity} {name(method)}", **style)
    ax.set_xscale("log", base=2)
    ax.set_xlim(graph.depths[0] / 2**0.25, graph.depths[-1] * 2**0.25)
    ax.set_xticks(graph.depths, [str(depth) for depth in graph.depths])
    ax.minorticks_off()
    ax.set_xlabel("depth L")


def _by_depth(graph: Graph, method: Method, quantity: str) -> np.ndarray:
    """Mean and 95 % t interval over seeds, (low, mean and high; depths); NaN without runs."""
    found = [graph.interval(depth, method, quantity) for depth in graph.depths]
    return np.array([(i.low, i.mean, i.high) if i else (None,) * 3 for i in found], dtype=float).T


def _keys(fig: Figure) -> list[Artist]:
    """The rules, the variants of BP, and what the other marks are, of those that are drawn."""
    drawn = {artist.get_gid() for ax in fig.axes for artist in (*ax.lines, *ax.patches)}
    keys: list[Artist] = [Line2D([], [], label=name(m), **look(m)) for m in (RECIPE, *RULES, *BP_VARIANTS[1:])]
    keys.append(Patch(facecolor=RANGE, label="other BPs, worst to best mean"))
    keys += [grey_key("majority class", ls="--"), grey_key("chance; Γ = 0", ls=":")]
    keys += [grey_key("BP by the recipe first fails", ls="-.")] * ("first failure" in drawn)
    keys += [Patch(facecolor=TINTS[way], edgecolor=BAND, label=f"rule {way} BP") for way in ("above", "below")]
    keys += [Patch(label="runs diverged or missing", **HATCH)] * ("lost" in drawn)
    return keys


def describe(records: Sequence[Record]) -> Caption:
    """Who trains, at which depths, and by how much rules differ from every BP, by graph."""
    graphs = pick_graphs(records)
    found, nodes = graphs[0].found, ", ".join(f"{graph.name} {graph.facts.test_rows}" for graph in graphs)
    plain = min(found.records, key=lambda record: METHODS.index(method_of(spec_of(record))))
    setting = f"{say_recipe(plain, found.seeds).partition(' · ')[2]}; test nodes: {nodes}"
    said = [statement for graph in graphs for statement in _state(graph)]
    return Caption(TITLE, READING, setting, tuple(said), tuple(gap for graph in graphs for gap in _list_gaps(graph)))


def _state(graph: Graph) -> list[Statement]:
    failure, levels = graph.first_failure(), {"majority class": graph.facts.best_constant, "chance": graph.facts.chance}
    depth = failure or graph.depths[-1]
    at, best = f"at L = {depth}", {depth: bp for depth in graph.depths if (bp := graph.best_bp(depth))}
    trained = {m: [own for own in graph.depths if graph.judge(own, m) == "trains"] for m in METHODS}
    said = [
        ("first depth at which it fails", name(RECIPE), failure or "none", ""),
        *((f"accuracy {at}", level, value, "") for level, value in levels.items()),
        *((f"accuracy {at}", name(m), graph.interval(depth, m), graph.judge(depth, m)) for m in METHODS),
        *((f"Γ {at}", name(rule), graph.interval(depth, rule, "gamma"), "") for rule in RULES),
        *(("deepest that trains", name(m), max(trained[m], default="none"), "") for m in METHODS),
        *(("accuracy there", name(m), graph.interval(own[-1], m), "") for m, own in trained.items() if own),
    ]
    differences = [
        (f"{name(rule)} − BP {at}, pp", name(bp), graph.difference(depth, rule, bp))
        for rule, bp in product(RULES, BP_VARIANTS)
    ] + [
        (f"rule − {name(bp)}, the best BP at L = {depth}, pp", name(rule), graph.difference(depth, rule, bp))
        for (depth, bp), rule in product(best.items(), RULES)
    ]
    found = [Statement(*own, verdict=verdict, panel=graph.name) for *own, verdict in said]
    return found + [Statement(*own, verdict=compare(own[-1]), panel=graph.name, form="+.1f") for own in differences]


def _list_gaps(graph: Graph) -> Iterator[str]:
    """Runs that diverged, are missing or have no Γ, by method and depth."""
    for method, depth in product(METHODS, graph.depths):
        cell = graph.cell(depth, method)
        counts = Counter(why.partition(" in epoch")[0] for why in cell.lost.values())
        counts["without Γ"] = (len(cell.runs) - len(cell.by_seed("gamma"))) * (method in RULES)
        if said := ", ".join(f"{runs} {why}" for why, runs in counts.items() if runs):
            yield f"{graph.name}, {name(method)}, L = {depth}: {said}"
