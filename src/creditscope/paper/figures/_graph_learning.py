"""Who trains in figure `graph_depth`: where BP by the recipe first fails, and how deep others still train.

What "trains" and "fails" mean is defined here and nowhere else; the margin is that of figure `bottleneck_controls`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from creditscope.auditing.stats import Interval
from creditscope.errors import CreditscopeError
from creditscope.paper.figures._controls import MARGIN
from creditscope.paper.figures._graph_grid import Grid
from creditscope.paper.studies.graph_depth import BP_VARIANTS, Method

RECIPE = BP_VARIANTS[0]
Verdict = Literal["trains", "undecided", "fails", "diverged", "not on record"]


@dataclass(frozen=True)
class Subject:
    """The depth that a graph's matrix and caption speak of: where BP by the recipe first fails, else the deepest."""

    depth: int
    failed: bool


def majority(grid: Grid, task: str) -> float:
    """Accuracy of the best constant answer; 0 if no run of the graph is complete."""
    facts = grid.facts(task)
    if facts is not None and facts.best_constant is None:
        raise CreditscopeError(f"Expected the share of the majority class in the records of {task!r}, but got none.")
    return 0.0 if facts is None or facts.best_constant is None else facts.best_constant


def judge(grid: Grid, task: str, depth: int, method: Method) -> Verdict:
    """Whether accuracy is above the majority class by the margin: a mean that is not fails.

    It trains if the lower end of the 95 % t interval is and no run diverged; in between it is undecided.
    """
    cell = grid.cell(task, depth, method)
    found = cell.interval()
    if found is None:
        return "diverged" if cell.diverged else "not on record"
    bar = majority(grid, task) + MARGIN
    if found.mean <= bar:
        return "fails"
    return "trains" if found.low is not None and found.low > bar and not cell.diverged else "undecided"


def find_subject(grid: Grid, task: str) -> Subject:
    """The shallowest depth at which BP by the recipe fails or diverges; the deepest if there is none."""
    failed = [depth for depth in grid.depths if judge(grid, task, depth, RECIPE) in ("fails", "diverged")]
    return Subject(failed[0], failed=True) if failed else Subject(grid.depths[-1], failed=False)


def find_deepest(grid: Grid, task: str, methods: Sequence[Method]) -> tuple[int, list[Method]]:
    """The largest depth at which one of the methods trains, and all that do there, best first; 0 and none."""
    for depth in reversed(grid.depths):
        found = [m for m in methods if judge(grid, task, depth, m) == "trains"]
        if found:
            return depth, sort_by_accuracy(grid, task, depth, found)
    return 0, []


def sort_by_accuracy(grid: Grid, task: str, depth: int, methods: Sequence[Method]) -> list[Method]:
    """By the mean there, the best first; those without runs last."""
    found = {method: grid.cell(task, depth, method).interval() for method in methods}
    return sorted(methods, key=lambda method: -(interval.mean if (interval := found[method]) else 0.0))


def compare(difference: Interval) -> str:
    """Above, below, or neither: whether the 95 % interval leaves out 0."""
    if difference.low is None or difference.high is None:
        return ""
    return "above" if difference.low > 0 else "below" if difference.high < 0 else ""
