"""The stacked engine: a seed ends as it would alone, whatever its mates, and its record can be stopped and resumed."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.nets._dropout import HashDropout, seed_dropout, set_dropout_step
from creditscope.record import RecordWriter, RunSpec, Snapshot, read_record, run_folder
from creditscope.registry import NETS
from creditscope.stack import StackedNet
from creditscope.tasks import AnyTask, ImageSettings, Task, load_task
from creditscope.train import engines, recording, stacked
from creditscope.train.checkpoint import NAME
from creditscope.train.engines import CPU_CHUNK, CPU_SEEDS, CPU_WORK, choose_device, count_parameters, group_runs
from creditscope.train.plan import plan_run
from creditscope.train.recording import StoppedError, matrix_products, record_run, record_runs
from creditscope.train.run import Run, build_run, snapshot_run
from creditscope.train.runner import run_all
from creditscope.train.stacked import CannotStackError, StackedRun, stack_runs
from creditscope.train.training import train_run

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


class TestLoopAndStackAgree:
    """Nothing but rounding is between the engines: float32 after 20 steps, float64 after all of them."""

    SEEDS = (1, 2)

    def check(self, spec: RunSpec, weights: float, measures: float, places: Sequence[int] = (0, 1)) -> None:
        """Largest relative difference of a weight tensor, and of a number in a snapshot, of seeds by their place."""
        specs = [replace(spec, seed=seed) for seed in self.SEEDS]
        run = stack(specs)
        assert run.engine == "stacked"
        ended = train(run)
        for own, found in ((specs[place], ended[place]) for place in places):
            (wanted,) = train(build(own))
            assert found.tensors.keys() == wanted.tensors.keys()
            for name, tensor in wanted.tensors.items():
                if not tensor.is_floating_point():
                    assert torch.equal(found.tensors[name], tensor), name
                elif not rounding_alone(own, name):
                    far = float((found.tensors[name] - tensor).norm())
                    assert far <= weights * float(tensor.norm()), f"{name}: {far / float(tensor.norm()):.1e}"
            skipped = [i for i, w in enumerate(run.facts.weights) if rounding_alone(own, w.name, measured=True)]
            assert [s.epoch for s in found.snapshots] == [s.epoch for s in wanted.snapshots]
            for a, b in zip(found.snapshots, wanted.snapshots, strict=True):
                assert_snapshots_agree(a, b, measures, skipped)

    @EVERY_NET
    @EVERY_RULE
    def test_in_float32_after_20_steps(self, net, rule):
        spec = spec_of(net, rule, snapshot_every=10 if net == "gcn" else 0, noise=rule != "fa")
        assert spec.epochs * build(spec).data.steps == 20
        self.check(spec, 1e-4, 2e-3)

    @EVERY_NET
    @EVERY_RULE
    def test_in_float64_after_3_epochs(self, net, rule):
        fields = {"epochs": 3, "snapshot_every": 0, "precision": "float64", **FEWER.get(net, {})}
        self.check(spec_of(net, rule, **fields), 1e-10, 1e-7)

    VARIANTS = (
        ("resmlp", "bp", {"penalty": 0.1}),
        ("resmlp", "fa", {"penalty": 0.1, "rule_options": {"head": "exact"}}),
        ("resmlp", "dfa", {"penalty": 0.1, "credit_norm": "sample"}),
        ("resmlp", "dfa", {"credit_norm": "batch", "optimiser": "adam"}),
        ("resmlp", "block_fa", {"credit_norm": "sample", "schedule": "constant"}),
        ("resmlp", "bp", {"frozen": True}),
        ("resmlp", "dfa", {"frozen": True, "net_options": {"terminal_norm": False}}),
        ("resmlp", "fa", {"frozen": True, "optimiser": "sgd", "lr": 0.1, "weight_decay": 0.1}),
        ("gcn", "dfa", {"task_options": {"normalisation": "row"}, "optimiser": "adam"}),
        ("gcn", "bp", {"net_options": {"residual": True, "norm": "pair"}, "optimiser": "adam", "decay_on": "first"}),
        ("vit", "dfa", {"rule_options": {"tokens": "class"}, "credit_norm": "batch"}),
        ("vit", "bp", {"optimiser": "sgd", "lr": 0.1}),
        ("vit", "fa", {"optimiser": "sgd", "lr": 0.01}),
        ("resmlp", "grape", {"rule_options": {"rate": 0.5}}),
        ("vit", "grape", {"optimiser": "sgd", "lr": 0.01}),
        ("gcn", "grape", {}),
        ("gcn", "dfa_gnn", {"task_options": {"normalisation": "row"}}),
        ("gcn", "dfa_gnn", {"rule_options": {"pseudo": False}, "optimiser": "adam"}),
        ("gcn", "kaft", {"task_options": {"normalisation": "row"}, "rule_options": {"probes": 2, "K": 1}}),
        ("gcn", "kaft", {"rule_options": {"spread": True}, "optimiser": "adam"}),
    )

    @pytest.mark.parametrize(("net", "rule", "others"), VARIANTS, ids=lambda v: str(v))
    def test_whatever_the_recipe(self, net, rule, others):
        fields = {"snapshot_every": 0, "noise": False, **others}
        self.check(spec_of(net, rule, **fields), 1e-4, 2e-3, places=[1])
        fields |= {"epochs": 3, "precision": "float64", **FEWER.get(net, {})}
        self.check(spec_of(net, rule, **fields), 1e-10, 1e-7, places=[1])


def rounding_alone(spec: RunSpec, name: str, *, measured: bool = False) -> bool:
    """Whether all that a tensor is told is rounding.

    The softmax of attention does not change when one vector is added to all keys, so the gradient of the key bias is
    zero but for rounding. Adam divides it by its own size and so makes steps of it; SGD leaves it too small to matter.
    Its direction, in a snapshot, means nothing in either case.
    """
    return name.endswith("attention.k.bias") and (measured or spec.optimiser != "sgd")


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


class TestMates:
    """A seed's weights and snapshots are the same to the last bit whichever seeds share its stack."""

    STACKS = ((7,), (7, 1), (2, 7, 3), (1, 2, 3, 4, 7))

    def check(self, spec: RunSpec) -> None:
        ended = []
        for seeds in self.STACKS:
            run = stack([replace(spec, seed=seed) for seed in seeds])
            ended.append(train(run)[seeds.index(7)])
        for other in ended[1:]:
            assert_equal(other, ended[0])

    @pytest.mark.parametrize(
        ("net", "rule"),
        [
            *itertools.product(SETTINGS, ("fa", "block_fa")),
            ("resmlp", "grape"),
            ("gcn", "grape"),
            ("gcn", "dfa_gnn"),
            ("gcn", "kaft"),
        ],
    )
    def test_they_do_not_matter(self, net, rule):
        depth = 4 if rule in ("grape", "kaft") else 2
        fields = {"epochs": 3 if net == "gcn" else 1, "net_options": {"depth": depth}, **FEWER.get(net, {})}
        self.check(spec_of(net, rule, **fields, noise=net != "vit"))

    def test_they_do_not_matter_to_a_norm_over_nodes(self):
        self.check(spec_of("gcn", "bp", epochs=3, net_options={"residual": True, "norm": "pair"}))

    @pytest.mark.parametrize(("net", "width"), [("student", 9), ("gcn", 10)])
    def test_a_seed_s_share_that_is_not_aligned_in_memory_is_not_stacked(self, net, width):
        with pytest.raises(CannotStackError, match="last bits of a seed would depend on its place in the stack"):
            self.check(spec_of(net, "bp", net_options={"width": width}, epochs=3 if net == "gcn" else 1))


@EVERY_NET
@pytest.mark.parametrize("rule", ["fa", "dfa"])
def test_audited_and_unaudited_stacks_end_bit_identical(net, rule):
    penalty = 0.0 if net == "gcn" else 0.01
    fields = {"epochs": 2, "penalty": penalty, **FEWER.get(net, {})}
    specs = [spec_of(net, rule, seed=seed, **fields) for seed in (1, 2, 3)]
    audited = train(stack(specs))
    torch.manual_seed(1)  # the global stream must not matter
    plain = train(stack(specs), audit=False)
    for a, b in zip(audited, plain, strict=True):
        assert len(a.snapshots) == 3
        assert_equal(Ended(a.tensors, []), b)


def test_building_stacking_and_training_leave_the_global_stream_alone():
    specs = [spec_of("gcn", "fa", seed=seed, epochs=2) for seed in (1, 2)]
    stream = torch.get_rng_state()
    train(stack(specs))
    assert torch.equal(stream, torch.get_rng_state())


def test_a_snapshot_changes_nothing():
    run = stack([spec_of("vit", "fa", seed=seed) for seed in (1, 2)])
    run.train_epoch(0, keep_last=False)
    before = [{name: t.clone() for name, t in run.tensors(seed).items()} for seed in range(2)]
    first, second = (snapshot_run(run, 1) for _ in range(2))
    assert first == second
    for seed in range(2):
        assert all(torch.equal(t, before[seed][name]) for name, t in run.tensors(seed).items())


class Masks(nn.Module):
    """Two dropout layers on a parameter of ones: what comes out is the masks."""

    def __init__(self):
        super().__init__()
        self.ones = nn.Parameter(torch.ones(40, 30))
        self.first, self.second = HashDropout(0.3, 0), HashDropout(0.6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.first(self.ones), self.second(self.ones)]) * x


class TestDropout:
    def test_a_seed_in_a_stack_has_the_masks_it_has_alone(self):
        nets = [Masks() for _ in range(3)]
        for seed, net in enumerate(nets):
            seed_dropout(net, seed)
            set_dropout_step(net, 5)
        output = StackedNet.of(nets)(torch.ones(()))
        for seed, net in enumerate(nets):
            assert torch.equal(output[seed], net(torch.ones(())))
        assert not torch.equal(output[0], output[1])

    @pytest.mark.parametrize("net", ["gcn", "vit"])
    def test_through_a_net_at_every_step_of_training(self, net):
        specs = [spec_of(net, "bp", seed=seed, precision="float64", net_options={"dropout": 0.5}) for seed in (1, 2, 3)]
        run, alone = stack(specs), [build(spec) for spec in specs]
        inputs = run.data.snapshot_batch().inputs
        run.net.train()
        seen = []
        for step in (0, 3):
            run._dropout_step.fill_(step)
            output = run.net(inputs)
            for seed, single in enumerate(alone):
                single.net.train()
                set_dropout_step(single.net, step)
                wanted = single.net(*inputs) if isinstance(inputs, tuple) else single.net(inputs)
                torch.testing.assert_close(output[seed], wanted, rtol=1e-10, atol=1e-12)
            seen.append(output)
        assert not torch.allclose(seen[0], seen[1])

    def test_steps_are_counted_through_epochs(self):
        specs = [spec_of("vit", "bp", seed=seed) for seed in (1, 2)]
        run = stack(specs)
        for epoch in (0, 1, 4):
            run.train_epoch(epoch, keep_last=True)
            steps = {name: t for name, t in run.tensors(1).items() if name.endswith(".step")}
            assert len(steps) == 4
            assert all(int(t) == 4 * epoch + 3 for t in steps.values())


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


class Shuffles(Normed):
    """With a tensor of its own that is no buffer: the inputs in an order drawn for each net."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: int = 16):
        super().__init__(input_shape, classes, width=width)
        self.order = torch.randperm(math.prod(input_shape))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1)[:, self.order])


class Drops(Normed):
    """With torch's own dropout, which draws from the global stream."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(nn.functional.dropout(x, 0.1, self.training))


class TestNetsOfOnesOwn:
    def specs(self, monkeypatch, net: type, **others: Any) -> list[RunSpec]:
        monkeypatch.setitem(NETS._registered, "own", net)
        fields = {"task": "digits", "net": "own", "epochs": 2, "eval_rows": 32, **others}
        return [plan_run(**{"rule": "bp", **fields}, seed=seed) for seed in (1, 2)]

    @pytest.mark.parametrize("rule", RULES)
    def test_batch_norm_and_tied_weights(self, monkeypatch, rule):
        specs = self.specs(monkeypatch, Normed, rule=rule, precision="float64")
        for spec, found in zip(specs, train(stack(specs)), strict=True):
            (wanted,) = train(build_run(spec))
            assert "blocks.1.0.weight" in wanted.tensors
            assert int(wanted.tensors["blocks.0.1.num_batches_tracked"]) == 20
            for name, tensor in wanted.tensors.items():
                torch.testing.assert_close(found.tensors[name], tensor, rtol=1e-9, atol=1e-11, msg=name)
            assert found.snapshots[-1].accuracy == wanted.snapshots[-1].accuracy

    def test_a_tensor_that_is_no_buffer_is_not_taken_from_another_seed(self, monkeypatch, tmp_path):
        specs = self.specs(monkeypatch, Shuffles)
        assert_engines_agree(specs, tmp_path)

    def test_dropout_from_the_global_stream_is_not_stacked(self, monkeypatch):
        with pytest.raises(CannotStackError, match="random"):
            stack_runs([build_run(spec) for spec in self.specs(monkeypatch, Drops)])


@pytest.mark.parametrize(("after", "value"), [(0, math.nan), (1, math.inf)])
def test_a_seed_that_diverges_leaves_the_others_as_they_would_be_without_it(after, value):
    specs = [spec_of("resmlp", "dfa", seed=seed, epochs=3) for seed in (1, 2, 3)]
    run, ends, told = stack(specs), [], []
    taken: list[list[int | None]] = []

    def poison(epoch: int, losses: Sequence[float]) -> None:
        told.append((epoch, [math.isfinite(loss) for loss in losses]))
        if epoch == after:
            next(run.net.parameters()).data[1] = value

    poison(0, [])
    train_run(
        run,
        on_epoch=poison,
        on_snapshots=lambda snapshots: taken.append([s and s.epoch for s in snapshots]),
        on_end=lambda seed, diverged: ends.append((seed, diverged)),
    )
    assert ends == [(1, after + 1), (0, None), (2, None)]
    assert taken == [[epoch, epoch if epoch <= after else None, epoch] for epoch in range(4)]
    assert told[1:] == [(epoch, [True, epoch <= after, True]) for epoch in (1, 2, 3)]
    first, third = train(stack([specs[0], specs[2]]), audit=False)
    for place, wanted in ((0, first), (2, third)):
        assert_equal(Ended(run.tensors(place), []), wanted)


def test_what_cannot_be_stacked_leaves_the_runs_as_they_were():
    runs = [build(spec_of("gcn", "dfa", seed=seed, epochs=3)) for seed in (1, 2)]
    stack_runs(runs)
    for run in runs:
        assert_equal(train(run)[0], train(build(run.spec))[0])


def recorded(seeds: Sequence[int], rule: str = "dfa", **others: Any) -> list[RunSpec]:
    """Specs of runs that are short but have something to resume."""
    given = {"net": "resmlp", "epochs": 4, "snapshot_every": 2, "noise": False, "batch": 350} | others
    return [spec_of(rule=rule, seed=seed, **given) for seed in seeds]


FILES = ("spec.json", "snapshots.jsonl", "weights.safetensors")


def same_bytes(specs: Sequence[RunSpec], root: Path, other: Path) -> bool:
    """Whether both folders hold the same records, but for provenance."""
    folders = [(run_folder(root, spec), run_folder(other, spec)) for spec in specs]
    return all((a / name).read_bytes() == (b / name).read_bytes() for a, b in folders for name in FILES)


def stop_after(epochs: int) -> Callable[[], bool]:
    calls = []
    return lambda: calls.append(1) or len(calls) >= epochs


def train_on(specs: Sequence[RunSpec], root: Path, **options: Any) -> list[str | Exception]:
    """How each of them ended, by the stacked engine if nothing else is said."""
    outcomes = record_runs(specs, root, **{"engine": "stacked", **options})
    return [outcomes[spec.digest()] for spec in specs]


def stop(specs: Sequence[RunSpec], root: Path, *, epochs: int = 2, engine: str = "stacked") -> None:
    with pytest.raises(StoppedError):
        record_runs(specs, root, engine=engine, should_stop=stop_after(epochs))


def epoch_of(root: Path, spec: RunSpec) -> int:
    with safe_open(run_folder(root, spec) / NAME, framework="pt") as file:
        return int(file.metadata()["epoch"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Callable[[Sequence[RunSpec]], Path]:
    """Records of runs that were stacked and never stopped; trained once."""
    root = tmp_path_factory.mktemp("whole")

    def made(specs: Sequence[RunSpec]) -> Path:
        assert set(train_on(specs, root)) == {"complete"}
        return root

    return made


class TestRecords:
    def test_they_are_complete_and_name_the_stack(self, tmp_path):
        specs = recorded((1, 2, 3))
        heard, ended = [], []
        outcomes = train_on(
            specs,
            tmp_path,
            on_epoch=lambda spec, epoch, loss: heard.append((spec.seed, epoch)),
            on_end=lambda spec, outcome: ended.append((spec.seed, outcome)),
        )
        assert outcomes == ["complete"] * 3
        assert ended == [(seed, "complete") for seed in (1, 2, 3)]
        assert heard == [(seed, epoch) for epoch in range(1, 5) for seed in (1, 2, 3)]
        for spec in specs:
            record = read_record(run_folder(tmp_path, spec))
            provenance = record.provenance
            assert (provenance.status, provenance.engine, provenance.stack) == ("complete", "stacked", (1, 2, 3))
            assert (provenance.note, provenance.resumes, provenance.diverged_epoch) == ("", 0, None)
            assert [s.epoch for s in record.snapshots] == [0, 2, 4]
            assert record.last.correct is not None
            assert not (record.path / NAME).exists()

    def test_they_lie_where_the_loop_s_do_and_hold_the_same_but_for_rounding(self, tmp_path, whole):
        specs = recorded((1, 2, 3))
        stacked_root = whole(specs)
        assert train_on(specs, tmp_path, engine="loop") == ["complete"] * 3
        for spec in specs:
            ours, theirs = run_folder(stacked_root, spec), run_folder(tmp_path, spec)
            assert ours.name == theirs.name
            assert (ours / "spec.json").read_bytes() == (theirs / "spec.json").read_bytes()
            a, b = read_record(ours), read_record(theirs)
            assert (b.provenance.engine, b.provenance.stack) == ("loop", ())
            for name in ("facts", "parameters", "data_checksum", "device"):
                assert getattr(a.provenance, name) == getattr(b.provenance, name), name
            for found, wanted in zip(a.snapshots, b.snapshots, strict=True):
                assert_snapshots_agree(found, wanted, 2e-3, [])
            weights, others = (load_file(folder / "weights.safetensors") for folder in (ours, theirs))
            assert list(weights) == list(others)
            for name, tensor in others.items():
                torch.testing.assert_close(weights[name], tensor, rtol=1e-4, atol=1e-5, msg=name)

    def test_one_run_alone_can_be_a_stack(self, tmp_path, whole):
        (spec,) = recorded((2,))
        assert record_run(spec, tmp_path, engine="stacked") == "complete"
        assert read_record(run_folder(tmp_path, spec)).provenance.stack == (2,)
        assert same_bytes([spec], tmp_path, whole(recorded((1, 2, 3))))

    @pytest.mark.parametrize("after", [0, 2])
    def test_one_that_diverges_says_so_and_the_others_complete(self, tmp_path, monkeypatch, whole, after):
        specs = recorded((1, 2, 3))
        root = whole(specs)
        original = StackedRun.train_epoch

        def poisoned(self: StackedRun, epoch: int, **options: Any) -> Any:
            if epoch == after:
                next(self.net.parameters()).data[1] = math.nan
            return original(self, epoch, **options)

        monkeypatch.setattr(StackedRun, "train_epoch", poisoned)
        assert train_on(specs, tmp_path) == ["complete", "diverged", "complete"]
        record = read_record(run_folder(tmp_path, specs[1]))
        assert (record.provenance.status, record.provenance.diverged_epoch) == ("diverged", after + 1)
        assert [s.epoch for s in record.snapshots] == [e for e in (0, 2) if e <= after]
        assert (record.path / "weights.safetensors").exists()
        assert same_bytes([specs[0], specs[2]], tmp_path, root)
        monkeypatch.undo()
        assert train_on(specs, tmp_path) == ["complete", "diverged", "complete"]

    def test_mates_of_one_that_diverged_can_be_stopped_and_go_on(self, tmp_path, monkeypatch, whole):
        specs = recorded((1, 2, 3))
        root = whole(specs)
        original = StackedRun.train_epoch

        def poisoned(self: StackedRun, epoch: int, **options: Any) -> Any:
            if epoch == 0:
                next(self.net.parameters()).data[1] = math.nan
            return original(self, epoch, **options)

        monkeypatch.setattr(StackedRun, "train_epoch", poisoned)
        stop(specs, tmp_path, epochs=3)
        monkeypatch.undo()
        assert train_on(specs, tmp_path) == ["complete", "diverged", "complete"]
        assert read_record(run_folder(tmp_path, specs[0])).provenance.stack == (1, 3)
        assert same_bytes([specs[0], specs[2]], tmp_path, root)

    def test_all_can_diverge(self, tmp_path):
        specs = recorded((1, 2), "bp", optimiser="sgd", lr=1e12)
        assert train_on(specs, tmp_path) == ["diverged", "diverged"]
        assert [read_record(run_folder(tmp_path, s)).provenance.diverged_epoch for s in specs] == [1, 1]


def assert_engines_agree(specs: Sequence[RunSpec], root: Path) -> None:
    """Weights of every seed are those of the loop, whether it was stacked or could not be."""
    for engine in ("loop", "stacked"):
        assert set(train_on(specs, root / engine, engine=engine)) == {"complete"}
    for spec in specs:
        ours, theirs = (load_file(run_folder(root / e, spec) / "weights.safetensors") for e in ("stacked", "loop"))
        for name, tensor in theirs.items():
            torch.testing.assert_close(ours[name], tensor, rtol=1e-3, atol=1e-4, msg=f"{name} of seed {spec.seed}")


RESUMED = (
    ("dfa", {}),
    ("fa", {"noise": True}),
    ("block_fa", {"optimiser": "sgd", "lr": 0.01, "credit_norm": "batch"}),
    ("bp", {"frozen": True, "penalty": 0.1}),
    ("fa", {"net": "gcn", "optimiser": "adam", "epochs": 8}),
    ("kaft", {"net": "gcn", "optimiser": "adam", "epochs": 8}),
)


class TestResuming:
    @pytest.mark.parametrize(("rule", "others"), RESUMED, ids=lambda v: str(v))
    def test_stopped_stacks_go_on_and_end_alike(self, tmp_path, whole, rule, others):
        specs = recorded((1, 2, 3), rule, **others)
        for stood in (1, 2, 3):
            stop(specs, tmp_path, epochs=1)
            assert [epoch_of(tmp_path, spec) for spec in specs] == [stood] * 3
        assert train_on(specs, tmp_path) == ["complete"] * 3
        assert same_bytes(specs, tmp_path, whole(specs))
        for spec in specs:
            assert read_record(run_folder(tmp_path, spec)).provenance.resumes == 3
            assert not (run_folder(tmp_path, spec) / NAME).exists()

    def test_members_that_stand_at_different_epochs(self, tmp_path, whole):
        specs = recorded((1, 2, 3, 4))
        stop(specs[:2], tmp_path, epochs=1)
        stop(specs[2:], tmp_path, epochs=3)
        (run_folder(tmp_path, specs[1]) / NAME).unlink()
        assert train_on(specs, tmp_path) == ["complete"] * 4
        assert same_bytes(specs, tmp_path, whole(specs))
        stacks = [read_record(run_folder(tmp_path, spec)).provenance.stack for spec in specs]
        assert stacks == [(1,), (2,), (3, 4), (3, 4)]

    def test_members_at_different_epochs_can_be_stopped_again(self, tmp_path, whole):
        specs = recorded((1, 2, 3))
        stop(specs, tmp_path, epochs=1)
        (run_folder(tmp_path, specs[1]) / NAME).unlink()
        for _ in range(3):
            stop(specs, tmp_path, epochs=1)
        assert train_on(specs, tmp_path) == ["complete"] * 3
        assert same_bytes(specs, tmp_path, whole(specs))

    def test_other_mates(self, tmp_path, whole):
        one, two, three, four = recorded((1, 2, 3, 4))
        stop([one, two, three], tmp_path)
        stop([three, four], tmp_path, epochs=1)
        assert train_on([one], tmp_path) == ["complete"]
        assert train_on([four, three, two, one], tmp_path) == ["complete"] * 4
        assert same_bytes([one, two, three, four], tmp_path, whole(recorded((1, 2, 3, 4))))

    def test_a_damaged_checkpoint_fails_its_run_alone_and_is_set_aside(self, tmp_path, whole):
        specs = recorded((1, 2, 3))
        stop(specs, tmp_path)
        checkpoint = run_folder(tmp_path, specs[1]) / NAME
        checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
        first, second, third = train_on(specs, tmp_path)
        assert (first, third) == ("complete", "complete")
        assert isinstance(second, CreditscopeError)
        assert f"it is damaged; it was set aside as damaged-{NAME}" in str(second)
        assert checkpoint.with_name(f"damaged-{NAME}").exists()
        assert not checkpoint.exists()
        assert train_on(specs, tmp_path) == ["complete"] * 3
        assert same_bytes(specs, tmp_path, whole(specs))

    def test_a_finished_member_is_reused(self, tmp_path, whole):
        one, two = recorded((1, 2))
        train_on([one], tmp_path)
        before = {p.name: p.read_bytes() for p in run_folder(tmp_path, one).iterdir()}
        heard = []
        outcomes = train_on([one, two], tmp_path, on_epoch=lambda spec, *_: heard.append(spec.seed))
        assert outcomes == ["complete", "complete"]
        assert set(heard) == {2}
        assert {p.name: p.read_bytes() for p in run_folder(tmp_path, one).iterdir()} == before
        assert read_record(run_folder(tmp_path, two)).provenance.stack == (2,)
        assert same_bytes([one, two], tmp_path, whole(recorded((1, 2, 3))))

    def test_a_member_that_another_process_writes_fails_alone(self, tmp_path):
        specs = recorded((1, 2, 3), epochs=1)
        with RecordWriter(tmp_path, specs[1]).open():
            first, second, third = train_on(specs, tmp_path)
        assert (first, third) == ("complete", "complete")
        assert isinstance(second, CreditscopeError)
        assert "another process is writing it" in str(second)

    def test_a_record_that_cannot_be_written_fails_alone(self, tmp_path, monkeypatch, whole):
        specs = recorded((1, 2, 3))
        root = whole(specs)
        original = RecordWriter.append

        def full(self: RecordWriter, snapshot: Snapshot) -> None:
            if self.spec.seed == 2 and snapshot.epoch == 2:
                raise OSError(28, "No space left on device")
            original(self, snapshot)

        monkeypatch.setattr(RecordWriter, "append", full)
        first, second, third = train_on(specs, tmp_path)
        assert isinstance(second, OSError)
        assert (first, third) == ("complete", "complete")
        monkeypatch.undo()
        assert train_on(specs, tmp_path) == ["complete"] * 3
        assert same_bytes(specs, tmp_path, root)

    @pytest.mark.parametrize(("begun", "ended"), [("stacked", "loop"), ("loop", "stacked")])
    @pytest.mark.parametrize(("rule", "others"), [RESUMED[2], RESUMED[4]], ids=lambda v: str(v))
    def test_what_one_engine_began_the_other_can_finish(self, tmp_path, rule, others, begun, ended):
        specs = recorded((1, 2), rule, **others | {"precision": "float64"})
        train_on(specs, tmp_path / "loop", engine="loop")
        if begun == "stacked":
            stop(specs, tmp_path, epochs=2)
        else:
            for spec in specs:
                stop([spec], tmp_path, epochs=2, engine="loop")
        assert train_on(specs, tmp_path, engine=ended) == ["complete"] * 2
        for spec in specs:
            found, wanted = (read_record(run_folder(root, spec)) for root in (tmp_path, tmp_path / "loop"))
            assert (found.provenance.engine, found.provenance.resumes) == (ended, 1)
            for a, b in zip(found.snapshots, wanted.snapshots, strict=True):
                assert_snapshots_agree(a, b, 1e-7, [])
            ours, theirs = (load_file(record.path / "weights.safetensors") for record in (found, wanted))
            for name, tensor in theirs.items():
                torch.testing.assert_close(ours[name], tensor, rtol=1e-9, atol=1e-12, msg=name)

    def test_both_engines_write_the_same_checkpoints_but_for_rounding(self, tmp_path):
        (spec,) = recorded((1,), "fa", precision="float64")
        held = []
        for engine in ("loop", "stacked"):
            stop([spec], tmp_path / engine, engine=engine)
            held.append(load_file(run_folder(tmp_path / engine, spec) / NAME))
        assert held[0].keys() == held[1].keys()
        for name, tensor in held[0].items():
            torch.testing.assert_close(held[1][name], tensor, rtol=1e-8, atol=1e-12, msg=name)


OWN_RULES = '''
import torch
from creditscope import TapRule


class Reads(TapRule):
    """Reads a number on the host."""

    def credit(self, ctx):
        size = ctx.error.square().mean().item()
        return [h * size for h in ctx.states]


class Draws(TapRule):
    """Draws from the global stream."""

    def credit(self, ctx):
        return [h + 0.1 * torch.randn_like(h) for h in ctx.states]


class Decides(TapRule):
    """Chooses by what it sees."""

    def credit(self, ctx):
        return [h if bool(h.sum() > 0) else -h for h in ctx.states]


class Keeps(TapRule):
    """Keeps its feedback to itself."""

    def draw_feedback(self, tap_shapes, classes, generator):
        self.matrices = [torch.randn(shape[-1], classes, generator=generator) for shape in tap_shapes]
        return []

    def credit(self, ctx):
        return [ctx.error @ B.T for B in self.matrices]


class Plain(TapRule):
    """Without feedback; nothing that cannot be mapped."""

    def credit(self, ctx):
        return [torch.zeros_like(h) + ctx.error[:, :1] * ctx.target[:, None] for h in ctx.states]
'''


class TestRulesOfOnesOwn:
    def specs(self, folder: Path, name: str) -> list[RunSpec]:
        (folder / "rules.py").write_text(OWN_RULES)
        return recorded((1, 2), f"{folder}/rules.py:{name}", epochs=2)

    @pytest.mark.parametrize(
        ("name", "why"), [("Reads", r"\.item\(\)"), ("Draws", "random"), ("Decides", "data-dependent control flow")]
    )
    def test_one_that_cannot_be_mapped_is_trained_by_the_loop_and_says_why(self, tmp_path, name, why):
        specs = self.specs(tmp_path, name)
        with pytest.raises(CannotStackError, match=why):
            stack(specs)
        for engine in ("loop", "stacked"):
            torch.manual_seed(0)
            assert train_on(specs, tmp_path / engine, engine=engine) == ["complete"] * 2
        assert same_bytes(specs, tmp_path / "stacked", tmp_path / "loop")
        for spec in specs:
            provenance = read_record(run_folder(tmp_path / "stacked", spec)).provenance
            assert (provenance.engine, provenance.stack) == ("loop", ())
            assert provenance.note.startswith("not stacked: RuntimeError: vmap")
            assert len(provenance.note) <= 300

    def test_one_that_cannot_be_mapped_can_be_stopped_and_goes_on(self, tmp_path):
        specs = self.specs(tmp_path, "Reads")
        stop(specs, tmp_path, epochs=1)
        assert train_on(specs, tmp_path) == ["complete"] * 2
        train_on(specs, tmp_path / "loop", engine="loop")
        assert same_bytes(specs, tmp_path, tmp_path / "loop")
        (group,) = group_runs(specs[:1], tmp_path / "new", device=torch.device("cpu"), engine="stacked")
        assert group.engine == "stacked"

    def test_one_that_keeps_its_feedback_to_itself_is_not_given_that_of_another_seed(self, tmp_path):
        assert_engines_agree(self.specs(tmp_path, "Keeps"), tmp_path)

    def test_one_without_feedback_is_stacked(self, tmp_path):
        specs = self.specs(tmp_path, "Plain")
        for spec, found in zip(specs, train(stack(specs)), strict=True):
            (wanted,) = train(build(spec))
            for name, tensor in wanted.tensors.items():
                torch.testing.assert_close(found.tensors[name], tensor, rtol=1e-4, atol=1e-6, msg=name)


class TestMemory:
    """A stack that does not fit is halved until it does."""

    def stacks(self, specs: Sequence[RunSpec], root: Path) -> set[tuple[int, ...]]:
        return {read_record(run_folder(root, spec)).provenance.stack for spec in specs}

    def test_too_little_to_make_the_stack(self, tmp_path, monkeypatch, whole):
        specs = recorded((1, 2, 3, 4, 5), epochs=1)
        root = whole(specs)

        def small(runs: Sequence[Run]) -> StackedRun:
            if len(runs) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return stack_runs(runs)

        monkeypatch.setattr(recording, "stack_runs", small)
        ended = []
        assert train_on(specs, tmp_path, on_end=lambda spec, _: ended.append(spec.seed)) == ["complete"] * 5
        assert ended == [1, 2, 3, 4, 5]
        assert self.stacks(specs, tmp_path) == {(1, 2), (3,), (4, 5)}
        assert same_bytes(specs, tmp_path, root)

    def test_too_little_to_try_it_out(self, tmp_path, monkeypatch):
        specs = recorded((1, 2, 3), epochs=1)
        original = stacked.observe

        def small(net: StackedNet, *args: Any, **options: Any) -> Any:
            if net.seeds > 2:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return original(net, *args, **options)

        monkeypatch.setattr(stacked, "observe", small)
        assert train_on(specs, tmp_path) == ["complete"] * 3
        assert self.stacks(specs, tmp_path) == {(1,), (2, 3)}

    def test_too_little_in_the_middle_of_training(self, tmp_path, monkeypatch, whole):
        specs = recorded((1, 2, 3, 4))
        root = whole(specs)
        original = StackedRun.train_epoch

        def small(self: StackedRun, epoch: int, **options: Any) -> Any:
            if epoch == 2 and len(self.members) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return original(self, epoch, **options)

        monkeypatch.setattr(StackedRun, "train_epoch", small)
        assert train_on(specs, tmp_path, checkpoint_seconds=0.0) == ["complete"] * 4
        assert self.stacks(specs, tmp_path) == {(1, 2), (3, 4)}
        assert same_bytes(specs, tmp_path, root)

    def test_each_run_ends_once_even_if_its_checkpoint_was_damaged(self, tmp_path, monkeypatch):
        specs = recorded((1, 2, 3), epochs=2)
        stop(specs, tmp_path, epochs=1)
        (run_folder(tmp_path, specs[1]) / NAME).write_bytes(b"damaged")

        def small(runs: Sequence[Run]) -> StackedRun:
            if len(runs) > 1:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return stack_runs(runs)

        monkeypatch.setattr(recording, "stack_runs", small)
        ended = []
        train_on(specs, tmp_path, on_end=lambda spec, outcome: ended.append(spec.seed))
        assert sorted(ended) == [1, 2, 3]

    def test_too_little_for_one_is_an_error_of_that_run(self, tmp_path, monkeypatch):
        specs = recorded((1, 2), epochs=1)

        def none(runs: Sequence[Run]) -> StackedRun:
            raise torch.OutOfMemoryError("CUDA out of memory.")

        monkeypatch.setattr(recording, "stack_runs", none)
        with pytest.raises(torch.OutOfMemoryError):
            train_on(specs, tmp_path)
        with pytest.raises(CreditscopeError, match="CUDA out of memory"):
            run_all(specs, tmp_path, jobs=1, engine="stacked")


CPU, CUDA = torch.device("cpu"), torch.device("cuda")


class TestEngines:
    def specs(self, count: int, **others: Any) -> list[RunSpec]:
        return [spec_of("resmlp", "bp", seed=seed, **others) for seed in range(count)]

    def test_runs_are_grouped_by_everything_but_the_seed(self, tmp_path):
        others = [{}, {"lr": 0.1}, {"frozen": True}, {"net_options": {"width": 8}}, {"precision": "float64"}]
        kinds = [{"rule": rule, **other} for rule in ("bp", "dfa") for other in others]
        specs = [spec_of("resmlp", **kind, seed=seed) for seed in (1, 2) for kind in kinds]
        groups = group_runs(specs, tmp_path, device=CUDA)
        assert len(groups) == len(kinds)
        for group in groups:
            assert group.engine == "stacked"
            assert [spec.seed for spec in group.specs] == [1, 2]
            assert replace(group.specs[0], seed=2) == group.specs[1]
        assert sorted(s.digest() for g in groups for s in g.specs) == sorted(s.digest() for s in specs)

    def test_on_a_cpu_many_seeds_of_a_small_net_are_stacked(self, tmp_path):
        few = group_runs(self.specs(CPU_SEEDS - 1), tmp_path, device=CPU)
        assert [(len(group.specs), group.engine) for group in few] == [(1, "loop")] * (CPU_SEEDS - 1)
        (many,) = group_runs(self.specs(CPU_SEEDS), tmp_path, device=CPU)
        assert (len(many.specs), many.engine) == (CPU_SEEDS, "stacked")

    @pytest.mark.parametrize("net", ["resmlp", "gcn"])
    def test_on_a_cpu_small_means_parameters_times_rows(self, tmp_path, monkeypatch, net):
        specs = [spec_of(net, "bp", seed=seed) for seed in range(CPU_SEEDS)]
        task = task_of(specs[0])
        rows = len(task.y) if net == "gcn" else specs[0].batch
        work = count_parameters(specs[0], task) * rows
        assert work <= CPU_WORK
        for limit, engine in ((work, "stacked"), (work - 1, "loop")):
            monkeypatch.setattr(engines, "CPU_WORK", limit)
            assert {group.engine for group in group_runs(specs, tmp_path, device=CPU)} == {engine}

    def test_the_engine_can_be_chosen(self, tmp_path):
        specs = self.specs(3)
        assert [g.engine for g in group_runs(specs, tmp_path, device=CPU, engine="stacked")] == ["stacked"]
        assert [g.engine for g in group_runs(specs, tmp_path, device=CUDA, engine="loop")] == ["loop"] * 3

    @pytest.mark.parametrize(
        ("count", "workers", "sizes"), [(3, 8, [3]), (6, 4, [4, 2]), (10, 2, [5, 5]), (11, 2, [6, 5]), (9, 1, [9])]
    )
    def test_stacks_are_split_over_workers_but_not_too_small(self, tmp_path, count, workers, sizes):
        assert CPU_CHUNK == 4
        specs = self.specs(count)
        groups = group_runs(specs, tmp_path, device=CPU, engine="stacked", workers=workers)
        assert [len(group.specs) for group in groups] == sizes
        assert [spec for group in groups for spec in group.specs] == specs
        assert len(group_runs(specs, tmp_path, device=CUDA, workers=workers)) == 1

    @pytest.mark.parametrize("asked", ["auto", "loop", "stacked"])
    def test_a_run_that_was_begun_keeps_its_engine(self, tmp_path, asked):
        specs = recorded((1, 2, 3, 4), epochs=3)
        stop(specs[:2], tmp_path, epochs=1)
        stop(specs[2:3], tmp_path, epochs=1, engine="loop")
        groups = group_runs(specs, tmp_path, device=CPU, engine=asked)
        chosen = {spec.seed: group.engine for group in groups for spec in group.specs}
        new = "loop" if asked == "auto" else asked
        assert chosen == {1: "stacked", 2: "stacked", 3: "loop", 4: new}
        assert (1, 2) in [tuple(s.seed for s in group.specs)[:2] for group in groups]

    def test_counting_parameters_draws_nothing_and_is_right(self):
        spec = spec_of("vit", "bp")
        stream = torch.get_rng_state()
        counted = count_parameters(spec, image_task())
        assert torch.equal(stream, torch.get_rng_state())
        assert counted == sum(p.numel() for p in build(spec).net.parameters())

    def test_a_net_that_reads_numbers_while_it_is_built_can_be_grouped(self, tmp_path, monkeypatch):
        class Reads(Normed):
            def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: int = 16):
                super().__init__(input_shape, classes, width=width)
                self.rates = [rate.item() for rate in torch.linspace(0, 0.1, 3)]

        monkeypatch.setitem(NETS._registered, "reads", Reads)
        specs = [plan_run(task="digits", net="reads", seed=seed) for seed in range(CPU_SEEDS)]
        groups = group_runs(specs, tmp_path, device=CPU)
        assert sum(len(group.specs) for group in groups) == CPU_SEEDS

    def test_many_runs_that_cannot_be_built_do_not_stop_the_others(self, tmp_path):
        flat = self.specs(CPU_SEEDS, net_options={"depth": 0}, epochs=1)
        (good,) = recorded((1,), epochs=1)
        with pytest.raises(CreditscopeError, match=f"Run {flat[0].name()} and 7 more failed: Expected a ResMLP"):
            run_all([*flat, good], tmp_path, jobs=1)
        assert read_record(run_folder(tmp_path, good)).provenance.status == "complete"

    def test_unknown_names_are_refused(self, tmp_path, monkeypatch):
        with pytest.raises(CreditscopeError, match="Expected an engine auto, loop or stacked, but got 'captured'"):
            group_runs(self.specs(1), tmp_path, device=CPU, engine="captured")
        with pytest.raises(CreditscopeError, match="Expected an engine auto, loop or stacked, but got 'fast'"):
            run_all(self.specs(1), tmp_path, engine="fast")
        for name in ("tpu", "meta", ""):
            with pytest.raises(CreditscopeError, match=f"Expected a device auto, cpu or cuda, but got '{name}'"):
                choose_device(name)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(CreditscopeError, match="Expected a CUDA device, but torch finds none"):
            choose_device("cuda")

    def test_devices(self, monkeypatch):
        for available, name in ((True, "cuda"), (False, "cpu")):
            monkeypatch.setattr(torch.cuda, "is_available", lambda available=available: available)
            assert choose_device("auto") == torch.device(name)
            assert choose_device("cpu") == CPU
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        assert choose_device("cuda:1") == torch.device("cuda", 1)

    def test_tf32_needs_cuda(self, tmp_path):
        (spec,) = recorded((1,), precision="tf32")
        message = "Expected a CUDA device for precision 'tf32', but got 'cpu'. Use 'float32'."
        with pytest.raises(CreditscopeError, match=message):
            record_run(spec, tmp_path, engine="stacked")
        with pytest.raises(CreditscopeError, match=message):
            run_all([spec], tmp_path, jobs=1, device="cpu")
        assert not run_folder(tmp_path, spec).exists()

    @pytest.mark.parametrize("before", [True, False])
    def test_the_product_s_precision_is_put_back(self, before):
        products = torch.backends.cuda.matmul
        found, products.allow_tf32 = products.allow_tf32, before
        try:
            for precision in ("float32", "float64", "tf32"):
                with matrix_products(precision, CUDA):
                    assert products.allow_tf32 == (precision == "tf32")
                assert products.allow_tf32 == before
        finally:
            products.allow_tf32 = found


def test_workers_stack_too_and_end_with_the_same_bytes(tmp_path):
    specs = recorded(range(CPU_SEEDS), epochs=1)
    one = run_all(specs, tmp_path / "one", jobs=1, device="cpu", engine="stacked")
    two = run_all(specs, tmp_path / "two", jobs=2, device="cpu")
    assert {record.provenance.stack for record in one} == {tuple(range(8))}
    assert {record.provenance.stack for record in two} == {(0, 1, 2, 3), (4, 5, 6, 7)}
    assert {record.provenance.engine for record in two} == {"stacked"}
    assert [record.spec for record in two] == specs
    assert same_bytes(specs, tmp_path / "two", tmp_path / "one")
