"""What the tests of the stacked engine share: tiny specs of every net, seeds trained to their end, records compared."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from trained import record_runs, train_run

from creditscope.errors import CreditscopeError
from creditscope.record import RunSpec, Snapshot, run_folder
from creditscope.tasks import AnyTask, ImageSettings, Task, load_task
from creditscope.train.plan import plan_run
from creditscope.train.run import Run, build_run
from creditscope.train.stacked import StackedRun, stack_runs
from creditscope.train.training import StoppedError

SETTINGS: dict[str, dict[str, Any]] = {
    "resmlp": {
        "task": "digits",
        "net_options": {"depth": 2, "width": 16},
        "epochs": 2,
        "eval_rows": 32,
        "tier": "quick",
    },
    "student": {
        "task": "digits",
        "net_options": {"depth": 2, "width": 16},
        "epochs": 2,
        "eval_rows": 32,
        "tier": "quick",
    },
    "gcn": {"task": "sbm", "net_options": {"depth": 3, "width": 8, "dropout": 0.2}, "epochs": 20, "tier": "quick"},
    "vit": {
        "task": "cifar10",
        "net_options": {"depth": 2, "width": 16, "dropout": 0.2},
        "epochs": 5,
        "batch": 16,
        "tier": "quick",
    },
}
"""Twenty steps of every net."""
FEWER = {"resmlp": {"batch": 350}, "student": {"batch": 350}}
"""Four steps in an epoch of digits, where their number does not matter."""
RULES = ("bp", "fa", "block_fa", "dfa")
EVERY_NET = pytest.mark.parametrize("net", SETTINGS)
EVERY_RULE = pytest.mark.parametrize("rule", RULES)
FILES = ("spec.json", "snapshots.jsonl", "weights.safetensors")


def spec_of(net: str = "resmlp", rule: str = "dfa", **others: Any) -> RunSpec:
    options = {"net_options": SETTINGS[net]["net_options"] | others.pop("net_options", {})}
    return plan_run(net=net, rule=rule, **SETTINGS[net] | options | others)


@functools.cache
def image_task() -> Task:
    rng = np.random.default_rng(0)
    x, y = rng.integers(256, size=(64, 3, 8, 8), dtype=np.uint8), rng.integers(4, size=64)
    return Task("toy", x, y, x, y, 4, ImageSettings(mean=(0.5,) * 3, std=(0.2,) * 3))


def task_of(spec: RunSpec) -> AnyTask:
    return image_task() if spec.net == "vit" else load_task(spec.task, **spec.task_options)


def build(spec: RunSpec) -> Run:
    return build_run(spec, task_of(spec))


def stack(specs: Sequence[RunSpec]) -> StackedRun:
    return stack_runs([build(spec) for spec in specs])


@dataclass
class Ended:
    """What one seed ended with."""

    tensors: dict[str, Tensor]
    snapshots: list[Snapshot]


def train(run: Run, *, audit: bool = True) -> list[Ended]:
    """Every seed of the run, trained to its end."""
    taken: list[list[Snapshot]] = [[] for _ in run.specs]

    def keep(snapshots: Sequence[Snapshot | None]) -> None:
        for own, snapshot in zip(taken, snapshots, strict=True):
            if snapshot is not None:
                own.append(snapshot)

    train_run(run, audit=audit, on_snapshots=keep)
    return [Ended(run.tensors(seed), taken[seed]) for seed in range(len(run.specs))]


def assert_equal(found: Ended, wanted: Ended) -> None:
    """To the last bit."""
    assert found.tensors.keys() == wanted.tensors.keys()
    for name, tensor in wanted.tensors.items():
        assert torch.equal(found.tensors[name], tensor), name
    assert found.snapshots == wanted.snapshots


def assert_snapshots_agree(found: Snapshot, wanted: Snapshot, tolerance: float, skipped: Sequence[int]) -> None:
    """Numbers to a relative tolerance, with a tenth of it for those near 0; counts and flags exactly."""
    others = dict(numbers(asdict(wanted), skipped))
    ours = dict(numbers(asdict(found), skipped))
    assert ours.keys() == others.keys()
    for (name, place), a in ours.items():
        b = others[name, place]
        if name.endswith("g_noise") and a is not None:  # how far float32 is off is itself a matter of rounding
            assert b / 10 < a < b * 10, f"{name}[{place}]: {a} {b}"
        elif isinstance(a, float) and isinstance(b, float):
            assert math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance / 10), f"{name}[{place}]: {a} {b}"
        else:
            assert a == b, f"{name}[{place}]"


def numbers(value: Any, skipped: Sequence[int], name: str = "") -> Iterator[tuple[tuple[str, int], Any]]:
    """Every number of a snapshot by its name and place; of weights, but for those skipped."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers(inner, skipped, f"{name}.{key}")
    elif isinstance(value, tuple):
        left = [i for i in range(len(value)) if not (name.startswith(".weights") and i in skipped)]
        yield from (((name, i), value[i]) for i in left)
    else:
        yield (name, 0), value


def recorded(seeds: Sequence[int], rule: str = "dfa", **others: Any) -> list[RunSpec]:
    """Specs of runs that are short but have something to resume."""
    given = {"net": "resmlp", "epochs": 4, "snapshot_every": 2, "noise": False, "batch": 350} | others
    return [spec_of(rule=rule, seed=seed, **given) for seed in seeds]


def same_bytes(specs: Sequence[RunSpec], root: Path, other: Path) -> bool:
    """Whether both folders hold the same records, but for provenance."""
    folders = [(run_folder(root, spec), run_folder(other, spec)) for spec in specs]
    return all((a / name).read_bytes() == (b / name).read_bytes() for a, b in folders for name in FILES)


def stop_after(epochs: int) -> Callable[[], bool]:
    calls = []
    return lambda: calls.append(1) or len(calls) >= epochs


def record_run(spec: RunSpec, root: Path, **options: Any) -> str:
    """How one run ended; raises why it failed."""
    (outcome,) = record_runs([spec], root, **options).values()
    if outcome not in ("complete", "diverged"):
        raise CreditscopeError(outcome)
    return outcome


def train_on(specs: Sequence[RunSpec], root: Path, **options: Any) -> list[str]:
    """How each of them ended, or why it failed, by the stacked engine if nothing else is said."""
    outcomes = record_runs(specs, root, **{"engine": "stacked", **options})
    return [outcomes[spec.digest()] for spec in specs]


def stop(specs: Sequence[RunSpec], root: Path, *, epochs: int = 2, engine: str = "stacked") -> None:
    with pytest.raises(StoppedError):
        record_runs(specs, root, engine=engine, should_stop=stop_after(epochs))


def assert_engines_agree(specs: Sequence[RunSpec], root: Path) -> None:
    """Weights of every seed are those of the loop, whether it was stacked or could not be."""
    for engine in ("loop", "stacked"):
        assert set(train_on(specs, root / engine, engine=engine)) == {"complete"}
    for spec in specs:
        ours, theirs = (load_file(run_folder(root / e, spec) / "weights.safetensors") for e in ("stacked", "loop"))
        for name, tensor in theirs.items():
            torch.testing.assert_close(ours[name], tensor, rtol=1e-3, atol=1e-4, msg=f"{name} of seed {spec.seed}")


class Normed(nn.Module):
    """With batch norm, whose statistics a step changes, and one layer used twice."""

    stem_tap = "stem"
    block_taps = "blocks.*"

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: int = 16):
        super().__init__()
        self.stem = nn.Linear(math.prod(input_shape), width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width, bias=False), nn.BatchNorm1d(width)) for _ in range(2)
        )
        self.blocks[1][0].weight = self.blocks[0][0].weight
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x.flatten(1))
        for block in self.blocks:
            h = h + block(h).relu()
        return self.head(h)
