"""Which groups of runs are begun first."""

from collections.abc import Sequence

from creditscope.record import RunSpec
from creditscope.registry import TASKS
from creditscope.tasks import GraphTask, declared_kinds
from creditscope.train.engines import Group

ROWS = 50_000
"""Taken as those of any task but a graph, whose epoch is one step: to count them its data would have to be read."""
STEP = 10
"""What a step of a stack costs beside its seeds, as if it had so many more (bench/stacked.py on a GPU)."""
DEAR = 100_000
"""What the dear instruments cost a seed, as if it were trained for so many more steps of one layer."""


def longest_first(groups: Sequence[Group]) -> list[Group]:
    """Transformers, then what is measured in full, then by what training and measuring cost, as far as a spec tells.

    So no worker is left with a long one at the end. Groups of the same length stay in their order.
    """
    return sorted(groups, key=_length, reverse=True)


def _length(group: Group) -> tuple[bool, bool, float]:
    spec, seeds = group.specs[0], len(group.specs)
    layers = spec.net_options.get("depth", 1)
    training = _steps(spec) * (layers if isinstance(layers, int) else 1) * (STEP + seeds)
    return spec.net == "vit", spec.tier == "full", training + _dear_snapshots(spec) * seeds * DEAR


def _steps(spec: RunSpec) -> float:
    graph = declared_kinds(TASKS.get(spec.task)) == (GraphTask.kind,)
    return spec.epochs * (1 if graph else ROWS / spec.batch)


def _dear_snapshots(spec: RunSpec) -> int:
    """How often the dear instruments are taken: never, before and after training, or always."""
    if spec.tier == "full":
        return sum(map(spec.snapshot_due, range(spec.epochs + 1)))
    return 0 if spec.tier == "quick" else 2
