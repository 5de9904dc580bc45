"""What the tests of the stacked engine share: tiny specs of every net, seeds trained to their end, records compared."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from creditscope.record import Record, RunSpec, Snapshot, read_record, run_folder
from creditscope.tasks import AnyTask, ImageSettings, Task, load_task
from creditscope.train.plan import plan_run
from creditscope.train.run import Run, build_run
from creditscope.train.stacked import StackedRun, stack_runs
from creditscope.train.training import StoppedError

MLP = {"task": "digits", "net_options": {"depth": 2, "width": 16}, "epochs": 2, "eval_rows": 32}
VIT_OPTIONS = {"depth": 2, "width": 16, "dropout": 0.2}
SETTINGS: dict[str, dict[str, Any]] = {
    "resmlp": MLP,
    "student": MLP,
    "gcn": {"task": "sbm", "net_options": {"depth": 3, "width": 8, "dropout": 0.2}, "epochs": 20},
    "vit": {"task": "cifar10", "net_options": VIT_OPTIONS, "epochs": 5, "batch": 16},
}
"""Twenty steps of every net."""
SMALL = {"task": "digits", "net_options": {"depth": 1, "width": 8}, "tier": "quick"}
LONG = 200_000
"""Epochs that nobody waits for."""
FEWER = {"resmlp": {"batch": 350}, "student": {"batch": 350}}
"""Four steps in an epoch of digits, where their number does not matter."""
RULES = ("bp", "fa", "block_fa", "dfa")
EVERY_NET = pytest.mark.parametrize("net", SETTINGS)
EVERY_RULE = pytest.mark.parametrize("rule", RULES)
ODD_RULES = Path(__file__).with_name("odd_rules.py")
FILES = ("spec.json", "snapshots.jsonl", "weights.safetensors")


def spec_of(net: str = "resmlp", rule: str = "dfa", **others: Any) -> RunSpec:
    options = {"net_options": SETTINGS[net]["net_options"] | others.pop("net_options", {})}
    return plan_run(net=net, rule=rule, **SETTINGS[net] | {"tier": "quick"} | options | others)


def small_specs(*epochs: int, **others: Any) -> list[RunSpec]:
    """Runs of epochs of two steps that are not measured before the last."""
    given = SMALL | {"batch": 700, "eval_rows": 32, "snapshot_every": 0} | others
    return [plan_run(**given, epochs=count) for count in epochs]


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
    taken: list[list[Snapshot]] = []
    train_run(run, audit=audit, on_snapshots=taken.append)
    return [Ended(run.tensors(seed), [each[seed] for each in taken]) for seed in range(len(run.specs))]


def snapshots_of(run: Run) -> list[Snapshot]:
    """Of one seed, trained to its end."""
    return train(run)[0].snapshots


def assert_equal(found: Ended, wanted: Ended) -> None:
    """To the last bit."""
    assert found.tensors.keys() == wanted.tensors.keys()
    for name, tensor in wanted.tensors.items():
        assert torch.equal(found.tensors[name], tensor), name
    assert found.snapshots == wanted.snapshots


def assert_snapshots_agree(
    found: Sequence[Snapshot], wanted: Sequence[Snapshot], tolerance: float, skipped: Sequence[int] = ()
) -> None:
    """Numbers to a relative tolerance, with a tenth of it for those near 0; counts and flags exactly."""
    for one, other in zip(found, wanted, strict=True):
        ours, others = (dict(numbers(asdict(snapshot), skipped)) for snapshot in (one, other))
        assert ours.keys() == others.keys()
        for (name, place), a in ours.items():
            b = others[name, place]
            if name.endswith("g_noise") and a is not None:  # how far float32 is off is itself a matter of rounding
                assert b / 10 < a < b * 10, f"{name}[{place}]: {a} {b}"
            elif isinstance(a, float) and isinstance(b, float):
                assert math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance / 10), f"{name}[{place}]: {a} {b}"
            else:
                assert a == b, f"{name}[{place}]"


def assert_near(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], rtol: float, atol: float) -> None:
    """Tensors by name."""
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, rtol=rtol, atol=atol, msg=name)


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


def read(root: Path, spec: RunSpec) -> Record:
    return read_record(run_folder(root, spec))


def weights_of(root: Path, spec: RunSpec) -> dict[str, Tensor]:
    return load_file(run_folder(root, spec) / "weights.safetensors")


def assert_records_agree(root: Path, other: Path, spec: RunSpec, measures: float, rtol: float, atol: float) -> None:
    """Snapshots to a tolerance of their own, and weights, in the same order."""
    assert_snapshots_agree(read(root, spec).snapshots, read(other, spec).snapshots, measures)
    ours, theirs = weights_of(root, spec), weights_of(other, spec)
    assert list(ours) == list(theirs)
    assert_near(ours, theirs, rtol, atol)


def same_bytes(specs: Sequence[RunSpec], root: Path, other: Path) -> bool:
    """Whether both folders hold the same records, but for provenance."""
    folders = [(run_folder(root, spec), run_folder(other, spec)) for spec in specs]
    return all((a / name).read_bytes() == (b / name).read_bytes() for a, b in folders for name in FILES)


def stop_after(steps: int) -> Callable[[], bool]:
    calls = []
    return lambda: calls.append(1) or len(calls) >= steps


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


def end_alike(specs: Sequence[RunSpec], root: Path, other: Path) -> bool:
    """Whether runs, trained or gone on with as a stack, complete with the bytes of those in another folder."""
    return set(train_on(specs, root)) == {"complete"} and same_bytes(specs, root, other)


def stop(
    specs: Sequence[RunSpec], root: Path, *, epochs: int = 2, steps: int | None = None, engine: str = "stacked"
) -> None:
    """Train for so many epochs more, or steps."""
    in_epoch = 1 if specs[0].net == "gcn" else 1400 // specs[0].batch
    with pytest.raises(StoppedError):
        record_runs(specs, root, engine=engine, should_stop=stop_after(steps or epochs * in_epoch))


def assert_engines_agree(specs: Sequence[RunSpec], root: Path) -> None:
    """Weights of every seed are those of the loop, whether it was stacked or could not be."""
    for engine in ("loop", "stacked"):
        assert set(train_on(specs, root / engine, engine=engine)) == {"complete"}
    for spec in specs:
        assert_near(*(weights_of(root / engine, spec) for engine in ("stacked", "loop")), rtol=1e-3, atol=1e-4)


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
