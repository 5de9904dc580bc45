"""Which runs are trained together, and by which engine.

Runs that differ only in their seed can be stacked. On CUDA they always are. On a CPU that pays only for small nets,
where most of a step's time goes into starting its operations; the loop is as fast or faster for all others, and its
seeds go to several cores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from creditscope.errors import CreditscopeError
from creditscope.record import RunSpec, begun_by
from creditscope.registry import NETS
from creditscope.tasks import AnyTask, GraphTask, load_task

CPU_SEEDS = 8
"""Seeds from which on a stack is the faster engine on a CPU, if the net is small."""
CPU_WORK = 2e7
"""Parameters × rows of a step up to which a net is small in that sense (bench/stacked.py)."""
CPU_CHUNK = 4
"""Seeds below which a stack is not split over cores."""


@dataclass(frozen=True)
class Group:
    """Runs to be trained in one go, by one engine."""

    specs: tuple[RunSpec, ...]
    engine: str


def choose_device(name: str) -> torch.device:
    """ "cpu", "cuda" (or "cuda:1", …), or "auto": CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise CreditscopeError(f"Expected a device auto, cpu or cuda, but got {name!r}.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise CreditscopeError("Expected a CUDA device, but torch finds none. Use --device cpu.")
    if device.type not in ("cpu", "cuda"):
        raise CreditscopeError(f"Expected a device auto, cpu or cuda, but got {name!r}.")
    return device


def group_runs(
    specs: Sequence[RunSpec], root: Path, *, device: torch.device, engine: str = "auto", workers: int = 1
) -> list[Group]:
    """All runs, grouped; a run that was begun keeps its engine, so that it ends with the same bytes."""
    if engine not in ("auto", "loop", "stacked"):
        raise CreditscopeError(f"Expected an engine auto, loop or stacked, but got {engine!r}.")
    alike: dict[str, list[RunSpec]] = {}
    for spec in specs:
        alike.setdefault(spec.stack_key(), []).append(spec)
    groups: list[Group] = []
    for together in alike.values():
        chosen = _choose(together, device) if engine == "auto" else engine
        by_engine: dict[str, list[RunSpec]] = {}
        for spec in together:
            by_engine.setdefault(begun_by(root, spec) or chosen, []).append(spec)
        for own, members in by_engine.items():
            size = 1 if own == "loop" else len(members)
            if own != "loop" and device.type == "cpu":
                size = max(CPU_CHUNK, -(-len(members) // workers))
            groups += [Group(tuple(members[i : i + size]), own) for i in range(0, len(members), size)]
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
