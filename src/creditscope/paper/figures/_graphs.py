"""Runs of study `graph_depth` by graph, depth and method: who trains there, how they differ, how they are drawn.

Every number comes from the last snapshots of the records. What "trains" and "fails" mean is defined here and nowhere
else; the margin is that of figure `bottleneck_controls`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes

from creditscope.auditing.depth import paired_interval
from creditscope.auditing.stats import Interval, t_interval
from creditscope.errors import CreditscopeError
from creditscope.paper.figures._depths import say_recipe
from creditscope.paper.figures.bottleneck_controls import MARGIN
from creditscope.paper.studies.graph_depth import BP_VARIANTS, METHODS, SQRT2, Method, method_of
from creditscope.record import Facts, Record, RunSpec
from creditscope.record.pick import Cell, Picked, pick, spec_of
from creditscope.rule_styles import LOOKS

RECIPE = BP_VARIANTS[0]
FREE = ("task_options", "data_version", "net_options.gain", "net_options.residual", "weight_decay", "rule")
"""What a method or a graph changes."""
GRAPHS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed", "sbm": "SBM"}
"""How graphs are called, and their order from left to right; others follow under the names of their tasks."""
CLOSE = 1.3
"""Factor from a depth to the next under which a tick has no number."""
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

    def compared_at(self) -> int:
        """The depth at which rules are held against BP: where BP by the recipe first fails, else the deepest."""
        return self.first_failure() or self.depths[-1]


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
    (1.0, False): ("o", 3.0, LOOKS["bp"].colour),
    (SQRT2, False): ("^", 3.2, "#5a9bd0"),
    (2.0, False): ("s", 2.8, "#00332b"),
    (1.0, True): ("*", 4.4, "#bf812d"),
}
"""Marker, its size and colour of a variant of BP, by gain and residual."""


def look(method: Method) -> dict[str, Any]:
    """A rule has its colour and marker; of BP's variants start gives both, and decay a full line and marker."""
    if method.rule != "bp":
        style = LOOKS[method.rule]
        return {"color": style.colour, "marker": style.marker, "ms": 3.6, "lw": 1.2, "mew": 0}
    marker, size, colour = STARTS[method.gain, method.residual]
    line = {"mfc": colour, "ls": "-"} if method.decay else {"mfc": "white", "ls": (0, (3, 1.6))}
    line |= {"lw": 1.7, "ms": size + 1} if method == RECIPE else {"lw": 0.9, "ms": size}
    return {"color": colour, "marker": marker, "mew": 0.7, **line}


def draw_over_depth(ax: Axes, graph: Graph, quantity: str, methods: Sequence[Method]) -> None:
    """The mean of every method at every depth, and its interval, but for BP's variants; a line breaks without runs."""
    for method in methods:
        style, own = look(method), method.rule != "bp"
        low, mean, high = by_depth(graph, method, quantity)
        if own or method == RECIPE:
            ax.vlines(graph.depths, low, high, color=style["color"], lw=0.7, alpha=0.6, zorder=3 + own)
        ax.plot(graph.depths, mean, zorder=4 + own, gid=f"{quantity} {name(method)}", **style)
    ax.set_xscale("log", base=2)
    ax.set_xlim(graph.depths[0] / 2**0.25, graph.depths[-1] * 2**0.25)
    ax.set_xticks(graph.depths, [str(depth) for depth in graph.depths])
    ax.minorticks_off()
    for before, depth, tick in zip(graph.depths, graph.depths[1:], ax.get_xticklabels()[1:], strict=False):
        tick.set_visible(depth >= CLOSE * before or depth == graph.depths[-1])
    ax.set_xlabel("depth L")


def by_depth(graph: Graph, method: Method, quantity: str) -> np.ndarray:
    """Mean and 95 % t interval over seeds, (low, mean and high; depths); NaN without runs."""
    found = [graph.interval(depth, method, quantity) for depth in graph.depths]
    return np.array([(i.low, i.mean, i.high) if i else (None,) * 3 for i in found], dtype=float).T


def say_graphs(graphs: Sequence[Graph]) -> str:
    """The setting that they share, and their test nodes."""
    found, nodes = graphs[0].found, ", ".join(f"{graph.name} {graph.facts.test_rows}" for graph in graphs)
    plain = min(found.records, key=lambda record: METHODS.index(method_of(spec_of(record))))
    return f"{say_recipe(plain, found.seeds).partition(' · ')[2]}; test nodes: {nodes}"


def list_gaps(graph: Graph, methods: Sequence[Method] = METHODS, *, gamma: bool = False) -> Iterator[str]:
    """Runs that diverged or are missing, with `gamma` those without Γ, too, by method and depth."""
    for method, depth in product(methods, graph.depths):
        cell = graph.cell(depth, method)
        counts = Counter(why.partition(" in epoch")[0] for why in cell.lost.values())
        counts["without Γ"] = (len(cell.runs) - len(cell.by_seed("gamma"))) * gamma
        if said := ", ".join(f"{runs} {why}" for why, runs in counts.items() if runs):
            yield f"{graph.name}, {name(method)}, L = {depth}: {said}"
