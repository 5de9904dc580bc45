"""The runs behind figure `graph_depth`: methods at depths on a graph; who trains, and what they differ by.

What "trains" and "fails" mean is defined here and nowhere else; the margin is that of figure `bottleneck_controls`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from creditscope.auditing.depth import paired_interval
from creditscope.auditing.stats import Interval, t_interval
from creditscope.errors import CreditscopeError
from creditscope.paper.figures._controls import MARGIN
from creditscope.paper.studies.graph_depth import BP_VARIANTS, METHODS, SQRT2, Method, method_of
from creditscope.record import Facts, Record, RunSpec
from creditscope.record.pick import Cell, Picked, pick, spec_of
from creditscope.rule_styles import LOOKS

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
