"""Which runs are trained together, by which engine, and which are begun first.

Runs that differ only in their seed can be stacked. On CUDA they are, but for nets that say that they convolve: a stack
of those is of grouped convolutions, which take longer than several workers with a seed each. On a CPU that pays only
for small nets, where most of a step's time goes into starting its operations; the loop is as fast or faster for all
others, and its seeds go to several cores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from creditscope.errors import CreditscopeError
from creditscope.record import RunSpec, begun_by
from creditscope.registry import NETS, TASKS
from creditscope.rules import rule_class
from creditscope.tasks import AnyTask, GraphTask, declared_kinds, load_task

CPU_SEEDS = 8  # from which on a stack is the faster engine on a CPU, if the net is small
CPU_WORK = 2e7  # parameters × rows of a step up to which a net is small in that sense (bench/stacked.py)
CPU_CHUNK = 4  # seeds below which a stack is not split over cores
ROWS = 50_000  # taken as those of any task but a graph, whose epoch is one step: to count them its data would be read
STEP = 10  # what a step of a stack costs beside its seeds, as if it had so many more (bench/stacked.py on a GPU)
BACKPROP_PASSES = 3  # that a step of backprop takes, in forward passes
DEAR = 100_000  # what the dear instruments cost a seed, as if it were trained for so many more steps of one layer


@dataclass(frozen=True)
class RunGroup:
    """Runs to be trained in one go, by one engine."""

    specs: tuple[RunSpec, ...]
    engine: str


def group_runs(
    specs: Sequence[RunSpec], root: Path, *, device: torch.device, engine: str = "auto", workers: int = 1
) -> list[RunGroup]:
    """All runs, grouped; a run that was begun keeps its engine, so that it ends with the same bytes."""
    if engine not in ("auto", "loop", "stacked"):
        raise CreditscopeError(f"Expected an engine auto, loop or stacked, but got {engine!r}.")
    alike: dict[str, list[RunSpec]] = {}
    for spec in specs:
        alike.setdefault(spec.stack_key(), []).append(spec)
    groups: list[RunGroup] = []
    for together in alike.values():
        chosen = _choose(together, device) if engine == "auto" else engine
        by_engine: dict[str, list[RunSpec]] = {}
        for spec in together:
            by_engine.setdefault(begun_by(root, spec) or chosen, []).append(spec)
        for own, members in by_engine.items():
            size = 1 if own == "loop" else len(members)
            if own != "loop" and device.type == "cpu":
                size = max(CPU_CHUNK, -(-len(members) // workers))
            elif engine == "auto" and workers > 1 and getattr(NETS.get(members[0].net), "convolves", False):
                size = 1
            groups += [RunGroup(tuple(members[i : i + size]), own) for i in range(0, len(members), size)]
    return groups


def _choose(together: Sequence[RunSpec], device: torch.device) -> str:
    if device.type == "cuda":
        return "stacked"
    if len(together) < CPU_SEEDS:
        return "loop"
    spec = together[0]
    task = load_task(spec.task, **spec.task_options)
    rows = len(task.y) if isinstance(task, GraphTask) else spec.batch
    parameters = count_parameters(spec, task)
    return "stacked" if parameters is not None and parameters * rows <= CPU_WORK else "loop"


def count_parameters(spec: RunSpec, task: AnyTask) -> int | None:
    """Of the spec's net, without drawing them; None for a net that cannot be built so (or at all)."""
    try:
        with torch.device("meta"):
            net = NETS.get(spec.net)(task.input_shape, task.classes, **spec.net_options)
    except Exception:
        return None
    return sum(p.numel() for p in net.parameters())


def longest_first(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """Transformers, then what is measured in full, then by what training and measuring cost, as far as a spec tells.

    So no worker is left with a long one at the end. Groups of the same length stay in their order.
    """
    return sorted(groups, key=_length, reverse=True)


def _length(group: RunGroup) -> tuple[bool, bool, float]:
    spec, seeds = group.specs[0], len(group.specs)
    layers = spec.net_options.get("depth", 1)
    graph = declared_kinds(TASKS.get(spec.task)) == (GraphTask.kind,)
    steps = spec.epochs * (1 if graph else ROWS / spec.batch)
    training = steps * _cost_of_step(spec) * (layers if isinstance(layers, int) else 1) * (STEP + seeds)
    dear = 0 if spec.tier == "quick" else 2  # snapshots, before and after training, or all of them
    if spec.tier == "full":
        dear = sum(map(spec.snapshot_due, range(spec.epochs + 1)))
    transformer = getattr(NETS.get(spec.net), "class_token", None) is not None
    return transformer, spec.tier == "full", training + dear * seeds * DEAR


def _cost_of_step(spec: RunSpec) -> float:
    """In steps of backprop; 1 for a rule that cannot be made, which is its run's own failure, and told there."""
    try:
        return 1 + rule_class(spec.rule)(**spec.rule_options).passes / BACKPROP_PASSES
    except Exception:
        return 1.0
